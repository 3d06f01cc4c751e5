"""The door to clients: `from odradek.clients import connect`.

What they are made of and what they raise is in `odradek.client`.
"""

from __future__ import annotations

from odradek.apps.clients import connect

__all__ = ["connect"]
