"""The way from a node to the active controller, wherever that is: also in the same process, so there is one path.

Who the active controller is the quorum says. A request goes again, until its time is up, when the one that was asked is
not (or no longer) active, or when the connection to it is lost; whoever it was meant for may then get it twice, as
with Kafka's brokers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from odradek.client.connection import Connection
from odradek.client.errors import ClientError, ConnectionLost
from odradek.client.versions import connect
from odradek.ports import World
from odradek.protocol.api import ApiKey, response_class
from odradek.protocol.codec import Message
from odradek.protocol.errors import ErrorCode, KafkaError

CONNECT_TIMEOUT_MS = 5_000
FIRST_PAUSE_MS = 20
LONGEST_PAUSE_MS = 500
"""Between two tries, doubled each time; a change of the leader ends the pause."""

Address = tuple[str, int]


class ControllerChannel:
    """One connection to whoever leads, made when it is needed."""

    def __init__(
        self, world: World, locate: Callable[[], Address | None], *, client_id: str, answer_timeout_ms: int
    ) -> None:
        """`locate` says where the active controller listens, None while nobody knows."""
        self._world = world
        self._locate = locate
        self._client_id = client_id
        self._answer_timeout_ms = answer_timeout_ms
        self._connection: Connection | None = None
        self._address: Address | None = None
        self._opening: asyncio.Task[Connection] | None = None
        self._changed: asyncio.Future[None] | None = None
        self._closed = False

    async def ask(self, request: Message, *, timeout_ms: int, retry: bool = True) -> Any:
        """The active controller's answer.

        KafkaError: REQUEST_TIMED_OUT if none could be had in time, NETWORK_EXCEPTION if the only try (`retry` is false)
        failed, UNSUPPORTED_VERSION if the controller does not know the request at all.
        """
        clock = self._world.clock
        deadline_ms = clock.monotonic_ms() + timeout_ms
        why = "nobody knows who the active controller is"
        tries = 0
        while (left_ms := deadline_ms - clock.monotonic_ms()) > 0 and not self._closed:
            if self._locate() is None:
                await self._pause(left_ms)
                continue
            try:
                connection = await self._ready(left_ms)
                answer = await self._ask(connection, request, min(left_ms, self._answer_timeout_ms))
            except ClientError as failure:
                why = str(failure)
                if not retry:
                    raise KafkaError(ErrorCode.NETWORK_EXCEPTION, why) from failure
            else:
                if not retry or getattr(answer, "error_code", 0) != ErrorCode.NOT_CONTROLLER:
                    return answer
                why = "the node that was asked is not the active controller"
            await self._pause(min(FIRST_PAUSE_MS << min(tries, 10), LONGEST_PAUSE_MS))
            tries += 1
        raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, f"No controller answered within {timeout_ms} ms: {why}.")

    def leader_changed(self) -> None:
        """What was asked of another one is asked again: that one may never answer."""
        if self._address != self._locate():
            if self._connection is not None:
                self._connection.close()
                self._connection = None
            if self._opening is not None:
                self._opening.cancel()
                self._opening = None
        if self._changed is not None and not self._changed.done():
            self._changed.set_result(None)

    def close(self) -> None:
        """Let everybody go."""
        self._closed = True
        if self._opening is not None:
            self._opening.cancel()
        if self._connection is not None:
            self._connection.close()
        if self._changed is not None and not self._changed.done():
            self._changed.set_result(None)

    async def _ask(self, connection: Connection, request: Message, timeout_ms: int) -> Message:
        key = ApiKey(request.api_key)
        lowest, highest = connection.versions.get(key, (0, -1))
        version = min(request.max_stable_version, highest)
        if version < max(request.min_version, lowest):
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, f"The controller does not serve {key.name}.")
        return await connection.ask(request, response_class(key), version, timeout_ms=max(timeout_ms, 1))

    async def _pause(self, duration_ms: int) -> None:
        if self._changed is None or self._changed.done():
            self._changed = asyncio.get_running_loop().create_future()
        await asyncio.wait([self._changed], timeout=duration_ms / 1000)

    # The connection.

    async def _ready(self, timeout_ms: int) -> Connection:
        """The connection to the active controller; all who ask while it is being made get the same one."""
        address = self._locate()
        assert address is not None
        connection = self._connection
        if connection is not None and not connection.is_lost and self._address == address:
            return connection
        if self._opening is None or self._opening.done() or self._address != address:
            self._address = address
            self._opening = asyncio.ensure_future(self._open(address))
            self._opening.add_done_callback(self._opened)
        opening = self._opening
        # Handlers take their first step outside of a task, where asyncio's own timeout does not work.
        await asyncio.wait([opening], timeout=timeout_ms / 1000)
        if not opening.done() or opening.cancelled():
            raise ConnectionLost(f"{address[0]}:{address[1]} has not answered yet")
        return opening.result()

    def _opened(self, task: asyncio.Task[Connection]) -> None:
        if task.cancelled() or task.exception() is not None:
            return
        if task is self._opening and not self._closed:
            self._connection = task.result()
        else:
            task.result().close()

    async def _open(self, address: Address) -> Connection:
        return await connect(
            self._world.network,
            host=address[0],
            port=address[1],
            client_id=self._client_id,
            connect_timeout_ms=CONNECT_TIMEOUT_MS,
            answer_timeout_ms=self._answer_timeout_ms,
        )
