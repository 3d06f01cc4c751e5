"""Where a node listens: its listeners by name, the ports they have, and what was asked through them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from odradek.metadata.image.cluster import Endpoint
from odradek.protocol.api import ApiKey
from odradek.server.configs.settings import ListenerSetting
from odradek.server.net.buffers import BufferPool
from odradek.server.net.dispatch import Endpoints, Handle
from odradek.server.net.latency import Latencies
from odradek.server.net.listener import Listener, ListenerScope
from odradek.server.net.routes import Role

if TYPE_CHECKING:
    from odradek.server.net.context import ServedRooms

PLAINTEXT = 0


class Listeners:
    """All listeners of a node; `forward` hands a broker's requests on to the active controller."""

    def __init__(self, rooms: ServedRooms, buffers: BufferPool, forward: Handle) -> None:
        self._rooms = rooms
        self._buffers = buffers
        self._forward = forward
        self.by_name: dict[str, Listener] = {}
        self.ports: dict[str, int] = {}
        """All that are open, that of HTTP among them."""

    async def open(self) -> None:
        """Open every port; who comes is not served yet."""
        for listeners, role, forward in (
            (self._rooms.config.broker_listeners, Role.BROKER, self._forward),
            (self._rooms.config.controller_listeners, Role.CONTROLLER, None),
        ):
            for setting in listeners:
                endpoints = Endpoints(role, setting.name, forward)
                listener = Listener(ListenerScope(self._rooms, setting.name, endpoints, self._buffers))
                self.by_name[setting.name] = listener
                self.ports[setting.name] = await listener.open(setting.host, setting.port)

    def serve(self, listeners: tuple[ListenerSetting, ...]) -> None:
        for each in listeners:
            self.by_name[each.name].scope.serving = True

    def close(self, listeners: tuple[ListenerSetting, ...]) -> None:
        for each in listeners:
            if each.name in self.by_name:
                self.by_name[each.name].close()

    def endpoints(self, listeners: tuple[ListenerSetting, ...]) -> tuple[Endpoint, ...]:
        """Where any free port was asked for, the one that was found."""
        return tuple(
            Endpoint(each.name, each.host, each.port or self.ports[each.name], PLAINTEXT) for each in listeners
        )

    def served_requests(self) -> Iterator[tuple[str, int, int, Latencies]]:
        """Request (by Kafka's name), version, how many were answered and how long they took; of all listeners."""
        counted: dict[tuple[ApiKey, int], tuple[int, Latencies]] = {}
        for listener in self.by_name.values():
            for key, version, endpoint in listener.scope.endpoints.used():
                served, latencies = counted.setdefault((key, version), (0, Latencies()))
                latencies.add(endpoint.latencies)
                counted[key, version] = (served + endpoint.served, latencies)
        for (key, version), (served, latencies) in sorted(counted.items(), key=lambda each: each[0]):
            yield key.name.title().replace("_", ""), version, served, latencies
