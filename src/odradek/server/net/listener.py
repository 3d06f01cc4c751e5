"""One listener: an open port, the connections it took, and the broom that sweeps idle ones."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from odradek.ports import Listening, Wire, WireOwner
from odradek.server.containment import Cost
from odradek.server.net.buffers import BufferPool
from odradek.server.net.connection import LARGE_FRAME_BYTES, Connection
from odradek.server.net.dispatch import Endpoints

if TYPE_CHECKING:
    from odradek.server.net.context import ServedRooms

log = logging.getLogger(__name__)

_SWEEPS_PER_IDLE_TIME = 10


class ListenerScope:
    """What all connections of one listener share."""

    def __init__(self, rooms: ServedRooms, name: str, endpoints: Endpoints, buffers: BufferPool) -> None:
        self.rooms = rooms
        self.name = name
        self.endpoints = endpoints
        self.buffers = buffers
        self.max_request_bytes = rooms.config.socket_request_max_bytes
        self.is_for_peers = name in rooms.config.controller_listener_names
        self.max_lone_request_bytes = min(self.max_request_bytes, LARGE_FRAME_BYTES - 1)
        self.connections: dict[int, Connection] = {}
        self._when_lost: dict[int, list[Callable[[bool], None]]] = {}
        self.serving = False
        """The port is open before anybody is served, because the node tells others which port it is."""
        self._accepted = 0

    def accept(self, wire: Wire) -> WireOwner:
        if not self.serving:
            # A client served now would be told of a cluster without this broker; closed, it comes again.
            return _TurnedAway(wire, self.buffers)
        if len(self.connections) >= self.rooms.config.max_connections:
            log.warning("Refused a connection from %s: max.connections is reached", wire.peer_host)
            return _TurnedAway(wire, self.buffers)
        self._accepted += 1
        connection = self.connections[self._accepted] = Connection(self, wire, self._accepted)
        wait_ms = self.rooms.quotas.connected(wire.peer_host)
        if wait_ms:
            connection.refuse(wait_ms)
        return connection

    def when_lost(self, connection_id: int, told: Callable[[bool], None]) -> None:
        """Have it told once that connection is gone, and whether the process at the other end closed it, or has ended.

        That is what its system says in its name; what the network loses, and what is closed here, says nothing of it.
        """
        self._when_lost.setdefault(connection_id, []).append(told)

    def forget(self, connection_id: int, *, closed_by_peer: bool) -> None:
        """A connection is gone."""
        self.connections.pop(connection_id, None)
        for told in self._when_lost.pop(connection_id, ()):
            told(closed_by_peer)

    def close(self) -> None:
        for connection in list(self.connections.values()):
            connection.close()

    def sweep(self, idle_before_ms: int) -> None:
        """Close connections that have sent nothing since."""
        for connection in list(self.connections.values()):
            if connection.last_request_ms < idle_before_ms and not connection.busy:
                connection.close()


class Listener:
    """The open port of one scope."""

    def __init__(self, scope: ListenerScope) -> None:
        self.scope = scope
        self._listening: Listening | None = None
        self._sweeper: asyncio.Task[None] | None = None

    async def open(self, host: str, port: int) -> int:
        """Returns the port, which the system chose if 0 was asked for."""
        world = self.scope.rooms.world
        self._listening = await world.network.listen(host, port, self.scope.accept)
        if self.scope.rooms.config.connections_max_idle_ms >= 0:
            self._sweeper = asyncio.create_task(self._sweep_forever())
        return self._listening.port

    def close(self) -> None:
        """Take no more connections and close those there are; nothing if that was done before."""
        if self._listening is not None:
            self._listening.close()
            self._listening = None
        if self._sweeper is not None:
            self._sweeper.cancel()
        self.scope.close()

    async def _sweep_forever(self) -> None:
        clock = self.scope.rooms.world.clock
        idle_ms = self.scope.rooms.config.connections_max_idle_ms
        while True:
            await asyncio.sleep(max(idle_ms / _SWEEPS_PER_IDLE_TIME / 1000, 0.01))
            with self.scope.rooms.containment.at_most(Cost.TASK, "looking for idle connections"):
                self.scope.sweep(clock.monotonic_ms() - idle_ms)


class _TurnedAway:
    """The owner of a wire that is closed as soon as it has one; what came before that is not looked at."""

    def __init__(self, wire: Wire, buffers: BufferPool) -> None:
        self._buffers = buffers
        asyncio.get_running_loop().call_soon(wire.close)

    def buffer(self) -> memoryview:
        return self._buffers.spare.view

    def received(self, count: int) -> None:
        """Nobody is served here."""

    def drained(self) -> None:
        """Nothing is sent."""

    def lost(self, why: Exception | None) -> None:
        """Nobody knows of it."""
