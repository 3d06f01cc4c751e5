"""Fetches of followers that wait, and for which there is something now."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from odradek.ports import Loan
from odradek.server.containment import Containment, Cost
from odradek.storage.log import AppendInfo

if TYPE_CHECKING:
    from odradek.server.partitions.hosted_partition import HostedPartition

LENT_FROM_BYTES = 64 * 1024
"""A batch as large as this is worth an answer of its own; smaller ones wait for others that came in the same turn."""


class WaitingFetch(Protocol):
    """A follower's, for which there is something now."""

    def answer(self) -> None:
        """Look again, and answer with what there is."""


class FetchWakeups:
    """They are answered in the next turn of the loop, or as soon as `lend` says."""

    __slots__ = ("_containment", "_lent_from_bytes", "_woken")

    def __init__(self, containment: Containment, *, lent_from_bytes: int = LENT_FROM_BYTES) -> None:
        self._containment = containment
        self._lent_from_bytes = lent_from_bytes
        self._woken: list[WaitingFetch] = []

    def add(self, fetch: WaitingFetch) -> None:
        if not self._woken:
            asyncio.get_running_loop().call_soon(self._answer)
        self._woken.append(fetch)

    def lend(
        self,
        hosts: Sequence[HostedPartition | None],
        batches: Sequence[memoryview | None],
        outcomes: Sequence[object],
    ) -> None:
        """Answer now, out of the buffer in which these batches came, if that saves reading large ones from the file.

        What became of a batch that was appended is an `AppendInfo`; those of others are passed over.
        """
        if (
            not self._woken
            or max((len(batch) for batch in batches if batch is not None), default=0) < self._lent_from_bytes
        ):
            return
        lent: list[tuple[HostedPartition, Loan]] = []
        for hosted, batch, info in zip(hosts, batches, outcomes, strict=True):
            if hosted is None or batch is None or not isinstance(info, AppendInfo) or info.duplicate:
                continue
            if hosted.partition.log.wrote_as_it_came(batch):
                loan = Loan(batch)
                hosted.at_hand = info.base_offset, loan
                lent.append((hosted, loan))
        try:
            self._answer()
        finally:
            for hosted, loan in lent:
                loan.view = None
                hosted.at_hand = None

    def _answer(self) -> None:
        woken = self._woken
        while woken:
            try:
                while woken:
                    woken.pop(0).answer()
            except Exception as failure:  # noqa: BLE001 - the others need not pay for it
                self._containment.note(Cost.REQUEST, "a follower's fetch", failure)
