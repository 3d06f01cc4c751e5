"""What a handler is handed beside its request."""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

if TYPE_CHECKING:
    from odradek.ports import World
    from odradek.server.access.authorizer import Authorizer
    from odradek.server.access.caller import Caller
    from odradek.server.access.quotas import Quotas
    from odradek.server.configs.node_config import NodeConfig
    from odradek.server.containment import Containment
    from odradek.server.net.listener import ListenerScope


class ServedRooms(Protocol):
    """What net itself uses of the rooms that it hands to handlers."""

    config: NodeConfig
    world: World
    containment: Containment
    quotas: Quotas
    authorizer: Authorizer | None
    guarded: bool


RoomsT = TypeVar("RoomsT", bound=ServedRooms)


class RequestContext(Generic[RoomsT]):
    """One request's surroundings. Slots and no defaults: it is built once per request."""

    __slots__ = ("api_version", "caller", "listener", "rooms")

    def __init__(self, rooms: RoomsT, caller: Caller, listener: ListenerScope, api_version: int) -> None:
        self.rooms = rooms
        self.caller = caller
        self.listener = listener
        self.api_version = api_version

    @property
    def now_ms(self) -> int:
        return self.rooms.world.clock.now_ms()
