"""Real nodes for tests: a context manager for everyone, and a pytest plugin with a `kafka` fixture.

May start processes, threads and signals, and always takes them away again. Every pytest run of everyone who has Odradek
installed imports this package for its plugin, so what it offers is imported when it is first asked for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from odradek.testing.node import RunningNode, running_node

__all__ = ["RunningNode", "running_node"]


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from odradek.testing import node

    return getattr(node, name)
