"""Fetch after fetch of the metadata log over one connection, for as long as nothing out of the ordinary comes.

A follower does hardly anything else, day and night. What it asks and hears is known by its bytes (`fetch_forms`), each
step is a plain call by whoever brings the answer, and only records that have to reach the device are waited for. All
else is left to `MetadataFollower`: who leads, what an error means, where logs diverge, what a snapshot replaces.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from odradek.client.connection import Connection, decode_answer
from odradek.client.errors import ConnectionLost
from odradek.metadata.raft.fetch_forms import VERSION, RequestForm, leader_of, read_answer
from odradek.metadata.raft.state import Role
from odradek.metadata.raft.wire import Standing
from odradek.protocol.errors import MalformedFrame
from odradek.protocol.messages.fetch import FetchResponse
from odradek.server.waiting.stepped import Stepped

if TYPE_CHECKING:
    from odradek.server.quorum.quorum import Quorum


class RoutineFetches:
    """One follower's; it waits for its own answers, as a future would."""

    def __init__(
        self,
        quorum: Quorum,
        connection: Connection,
        form: RequestForm,
        *,
        on_asked: Callable[[], None],
        on_taken: Callable[[], None],
    ) -> None:
        self.connection = connection
        self.asked_epoch = -1
        self.asked_offset = -1
        self._quorum = quorum
        self._form = form
        self._on_asked = on_asked
        self._on_taken = on_taken
        self._waits = False
        self._standing: Standing | None = None
        self._tail: bytes | None = None
        """What that leader's answers say of it."""
        self._taking: Stepped[None] | None = None
        self._ended: asyncio.Future[FetchResponse | None]

    async def run(self) -> FetchResponse | None:
        """An answer that somebody has to look at; None where the leader is another by now.

        Raises ConnectionLost and RequestTimedOut, what the disk has to say, and whatever else ended the wait.
        """
        self._ended = asyncio.get_running_loop().create_future()
        self._ask()
        try:
            return await self._ended
        finally:
            self._waits = False
            if self._taking is not None:
                self._taking.close()
                self._taking = None

    def _ask(self) -> None:
        quorum = self._quorum
        self.asked_epoch = quorum.raft.epoch
        self.asked_offset = quorum.log.log_end_offset
        self._waits = True
        frame = self._form.frame(
            self.connection.next_correlation_id,
            self.asked_epoch,
            self.asked_offset,
            quorum.log.last_epoch,
            quorum.raft.high_watermark,
        )
        self.connection.ask_with(frame, self, quorum.settings.request_timeout_ms)
        self._on_asked()

    # What the connection calls.

    def done(self) -> bool:
        return not self._waits

    def set_result(self, frame: memoryview) -> None:
        self._waits = False
        try:
            read = read_answer(frame)
            if read is None or not self._is_usual(frame, read[2]):
                self._ended.set_result(decode_answer(frame, FetchResponse, VERSION))
                return
        except MalformedFrame as wrong:
            self.set_exception(ConnectionLost(f"what the leader answers makes no sense: {wrong}"))
            return
        high_watermark, records, _ = read
        if len(records):
            self._take(records, high_watermark)
        else:
            self._quorum.take_nothing(high_watermark)
            self._go_on()

    def set_exception(self, why: Exception) -> None:
        self._waits = False
        if not self._ended.done():
            self._ended.set_exception(why)
            self._ended.exception()  # Nobody looks if this node stops before it comes to that.

    def exception(self) -> None:
        """Seen already."""

    # What follows from it.

    def _is_usual(self, frame: memoryview, tail: bytes) -> bool:
        """Whether it is the leader's word on what was asked, and there is nobody who would have to be waited for."""
        quorum, raft = self._quorum, self._quorum.raft
        if (
            raft.role is not Role.FOLLOWER
            or raft.epoch != self.asked_epoch
            or quorum.log.log_end_offset != self.asked_offset
            or quorum.turn.locked()
        ):
            return False
        standing = raft.standing
        if standing is not self._standing or tail != self._tail:
            if leader_of(decode_answer(frame, FetchResponse, VERSION)) != (standing.leader_id, standing.epoch):
                return False
            self._standing, self._tail = standing, tail
        return True

    def _take(self, records: memoryview, high_watermark: int) -> None:
        quorum = self._quorum
        if not quorum.raft.may_vote:
            try:
                quorum.take_unsynced(records, high_watermark)
            except Exception as failure:  # noqa: BLE001 - for whoever runs this to judge
                self.set_exception(failure)
            else:
                self._go_on()
            return
        taking = self._take_in(records, high_watermark)
        try:
            awaited = taking.send(None)
        except StopIteration:
            self._go_on()
        except Exception as failure:  # noqa: BLE001 - for whoever runs this to judge
            self.set_exception(failure)
        else:
            self._taking = Stepped(taking, awaited, self._taken)

    async def _take_in(self, records: memoryview, high_watermark: int) -> None:
        async with self._quorum.turn:
            await self._quorum.take_records(records, high_watermark)

    def _taken(self, taking: Stepped[None]) -> None:
        self._taking = None
        if isinstance(taking.failure, Exception):
            self.set_exception(taking.failure)
        else:
            self._go_on()

    def _go_on(self) -> None:
        self._on_taken()
        raft = self._quorum.raft
        if raft.standing is self._standing and raft.role is Role.FOLLOWER:
            self._ask()
        elif not self._ended.done():
            self._ended.set_result(None)
