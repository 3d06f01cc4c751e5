"""An idle leader writes something all the same, so that everybody's lag can be told (KIP-835)."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from odradek.metadata.records import NoOpRecord
from odradek.protocol.errors import KafkaError

if TYPE_CHECKING:
    from odradek.server.quorum.quorum import Quorum


class IdleLeader:
    """One timer, put off by everything that is written."""

    def __init__(self, quorum: Quorum) -> None:
        self._quorum = quorum
        self._timer: asyncio.TimerHandle | None = None

    def put_off(self) -> None:
        """Something was written, so that nothing need be for a while; a lone voter has nobody whose lag to tell."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        interval_ms = self._quorum.settings.max_idle_interval_ms
        raft = self._quorum.raft
        if interval_ms > 0 and not raft.closing and not raft.is_lone_voter:
            self._timer = asyncio.get_running_loop().call_later(interval_ms / 1000, self._write)

    def cancel(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _write(self) -> None:
        self._timer = None
        if self._quorum.is_active and self._quorum.image.features.metadata_version:
            self._quorum.spawn(self._append())

    async def _append(self) -> None:
        try:
            await self._quorum.append([[NoOpRecord()]])
        except KafkaError:
            self.put_off()  # A full disk, or another leader by now.
