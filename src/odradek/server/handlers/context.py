"""What a handler is handed beside its request: all rooms of the node, and who asks."""

from __future__ import annotations

from typing import TypeAlias

from odradek.server.net.context import RequestContext
from odradek.server.rooms import Rooms

Context: TypeAlias = RequestContext[Rooms]
