"""How far the metadata log is committed: counted, told to those who wait, and replayed into the image."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from odradek.ids import LeaderEpoch
from odradek.metadata.raft.core import Raft
from odradek.server.quorum.log import MetadataLog
from odradek.server.quorum.replay import Replay, not_controller
from odradek.server.waiting.deferred import Wakeable
from odradek.server.waiting.stepped import resume


class Commits:
    """One node's, leader or not; `spawn` begins a task, `fail` is told what this node cannot go on with."""

    def __init__(
        self,
        raft: Raft,
        metadata_log: MetadataLog,
        replay: Replay,
        *,
        spawn: Callable[[Coroutine[Any, Any, None]], object],
        fail: Callable[[Exception], None],
    ) -> None:
        self._raft = raft
        self._log = metadata_log
        self._replay = replay
        self._spawn = spawn
        self._fail = fail
        self._parked: list[Wakeable] = []
        self._replays_soon = False

    def wake(self) -> None:
        """There is something for those who wait for the log's end or its high watermark to move."""
        parked, self._parked = self._parked, []
        for waiter in parked:
            if not waiter.is_done:
                waiter.wake()

    def park(self, waiter: Wakeable) -> None:
        """Have `waiter` woken with the next change."""
        if len(self._parked) > 64:
            self._parked = [each for each in self._parked if not each.is_done]
        self._parked.append(waiter)

    def end_offset(self) -> int:
        """Below it everything is committed and here."""
        high_watermark, end_offset = self._raft.high_watermark, self._log.log_end_offset
        return high_watermark if high_watermark < end_offset else end_offset

    def advanced(self) -> None:
        """The high watermark may have moved: tell who waits, and replay."""
        if self._raft.high_watermark > self._log.high_watermark:
            self._log.committed(self._raft.high_watermark)
            self.wake()
        replay = self._replay
        if replay.applied >= self.end_offset() or replay.is_busy or self._replays_soon:
            return
        if self._raft.is_lone_voter and not replay.is_awaited:
            return  # A lone voter's append replays what it wrote itself.
        self._replays_soon = True
        asyncio.get_running_loop().call_soon(self._replay_committed)

    def _replay_committed(self) -> None:
        """Without a task, unless something that was committed takes time to be carried out."""
        self._replays_soon = False
        if self._raft.closing or self._replay.is_busy:
            return
        replaying = self._replay.run(self.end_offset)
        try:
            awaited = replaying.send(None)
        except StopIteration:
            return
        except Exception as failure:  # noqa: BLE001 - whatever it is, this node cannot go on
            self._fail(failure)
        else:
            self._spawn(resume(replaying, awaited))

    async def sync_own(self) -> None:
        """Bring what this node has onto its device; a leader then counts itself among those who have it."""
        epoch = self._raft.epoch
        end_offset = await self._log.sync()
        if self._raft.is_leader and self._raft.epoch == epoch and self._raft.synced(end_offset):
            self.advanced()

    async def until(self, end_offset: int, epoch: LeaderEpoch) -> None:
        """Wait until everything below is replayed that this node wrote as leader of `epoch`.

        NOT_CONTROLLER if the epoch is over before.
        """
        if self._replay.applied < end_offset and not (self._raft.is_leader and self._raft.epoch == epoch):
            raise not_controller()
        await self._replay.until(end_offset, epoch)
