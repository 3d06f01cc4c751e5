"""The way to one broker: a connection that is made when it is needed, and again, not too soon, when it is lost."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol

from odradek.client.connection import Connection
from odradek.client.settings import Settings
from odradek.client.versions import connect
from odradek.ports import Clock, Entropy, Network


class Ports(Protocol):
    """What a client touches of its world; a whole `World` will do."""

    @property
    def network(self) -> Network: ...

    @property
    def clock(self) -> Clock: ...

    @property
    def entropy(self) -> Entropy: ...


class Link:
    """One broker's address, and the connection to it while there is one."""

    def __init__(
        self, ports: Ports, settings: Settings, host: str, port: int, *, opened: Callable[[Connection], None]
    ) -> None:
        self._ports = ports
        self._settings = settings
        self._host = host
        self._port = port
        self._tell_opened = opened
        self._connection: Connection | None = None
        self._opening: asyncio.Task[Connection] | None = None
        self._failures = 0
        self._failed_ms = 0

    @property
    def doubts(self) -> int:
        """How doubtful it is that the broker can be reached now; below 0 if it is connected."""
        return -1 if self._connection is not None and not self._connection.is_lost else self._failures

    async def ready(self) -> Connection:
        """The connection, made now if there is none; all who ask meanwhile get the same one."""
        if self._connection is not None and not self._connection.is_lost:
            return self._connection
        if self._opening is None:
            self._opening = asyncio.ensure_future(self._open())
            self._opening.add_done_callback(self._opened)
        return await asyncio.shield(self._opening)

    async def close(self) -> None:
        if self._opening is not None:
            self._opening.cancel()
            await asyncio.wait([self._opening])
        if self._connection is not None:
            self._connection.close()

    def _opened(self, task: asyncio.Task[Connection]) -> None:
        self._opening = None
        if task.cancelled():
            return
        if task.exception() is None:
            self._connection = task.result()
            self._failures = 0
            self._tell_opened(self._connection)
        else:
            self._failures += 1
            self._failed_ms = self._ports.clock.monotonic_ms()

    async def _open(self) -> Connection:
        if self._failures:
            wait_ms = backoff_ms(self._settings, "reconnect", self._failures - 1, self._ports.entropy)
            wait_ms -= self._ports.clock.monotonic_ms() - self._failed_ms
            if wait_ms > 0:
                await asyncio.sleep(wait_ms / 1000)
        return await connect(
            self._ports.network,
            host=self._host,
            port=self._port,
            client_id=self._settings.text("client.id"),
            connect_timeout_ms=self._settings.number("socket.connection.setup.timeout.ms"),
            answer_timeout_ms=self._settings.number("request.timeout.ms"),
        )


def backoff_ms(settings: Settings, what: str, tries: int, entropy: Entropy) -> int:
    first, longest = settings.number(f"{what}.backoff.ms"), settings.number(f"{what}.backoff.max.ms")
    pause_ms = min(first << min(tries, 20), longest)
    return pause_ms * (80 + entropy.below(41)) // 100
