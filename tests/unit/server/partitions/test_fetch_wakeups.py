"""Followers that wait get large batches out of the buffer in which they came, and the same bytes as from the file."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import cast

import pytest
from tests.unit.server.handlers.test_produce_acks_all import produce
from tests.unit.server.replica_rig import ReplicaRig

from odradek.ports import FileSlice, Loan
from odradek.protocol.records.compression import Compression
from odradek.server.containment import Containment
from odradek.server.handlers import fast_fetch
from odradek.server.partitions.fetch_wakeups import FetchWakeups

LENT, READ = 1, 1 << 20


class Slices:
    """What followers were given."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.lent: list[FileSlice] = []
        self._known = fast_fetch._lent
        monkeypatch.setattr(fast_fetch, "_lent", self._note)

    def _note(self, records: FileSlice | bytes, at_hand: tuple[int, Loan], fetch_offset: int) -> FileSlice | bytes:
        found = self._known(records, at_hand, fetch_offset)
        if isinstance(found, FileSlice) and found.loan is not None:
            assert found.loan.view == found.read()
            self.lent.append(found)
        return found


@pytest.fixture
def slices(monkeypatch: pytest.MonkeyPatch) -> Slices:
    return Slices(monkeypatch)


def replicas_after(
    rig: ReplicaRig,
    *,
    partitions: int,
    configs: dict[str, str] | None = None,
    codec: Compression = Compression.NONE,
) -> list[bytes]:
    """Three requests with a batch for each partition, all followers waiting; what every replica then has."""

    def all_wait() -> bool:
        sessions = rig.brokers[1].fetch_sessions._sessions.values()
        return sum(isinstance(each.waiter, fast_fetch.FollowerFetch) for each in sessions) == 2

    async def test() -> list[bytes]:
        await rig.create_topic("t", [[1, 2, 3]] * partitions, configs=configs)
        for number in range(3):
            await rig.until(all_wait)
            answers = await produce(rig, *range(partitions), codec=codec)
            assert [(each.error_code, each.base_offset) for each in answers] == [(0, number)] * partitions
        assert all(rig.hosted(1, "t", index).at_hand is None for index in range(partitions))
        return [content(rig, broker, index) for broker in rig.brokers for index in range(partitions)]

    return rig.run(test)


def content(rig: ReplicaRig, broker: int, index: int) -> bytes:
    segment = rig.hosted(broker, "t", index).partition.log.segments[0]
    return segment.file.read(0, segment.size)


@pytest.mark.parametrize("partitions", [1, 2])
@pytest.mark.parametrize("codec", list(Compression))
def test_replicas_are_the_same_and_nothing_stays_lent(slices: Slices, partitions: int, codec: Compression) -> None:
    found = replicas_after(ReplicaRig(lent_from_bytes=LENT), partitions=partitions, codec=codec)
    assert found == found[:partitions] * 3
    # By two requests to two followers; before the first one they had no history, and were asked by the generic path.
    assert len(slices.lent) == 2 * 2 * partitions
    assert all(each.loan is not None and each.loan.view is None for each in slices.lent)


def test_small_batches_wait_for_others_and_are_read(slices: Slices) -> None:
    found = replicas_after(ReplicaRig(lent_from_bytes=READ), partitions=2)
    assert found == found[:2] * 3
    assert not slices.lent


def test_what_the_log_has_made_of_a_batch_is_read_from_it(slices: Slices) -> None:
    configs = {"message.timestamp.type": "LogAppendTime"}
    found = replicas_after(ReplicaRig(lent_from_bytes=LENT), partitions=2, configs=configs)
    assert found == found[:2] * 3
    assert not slices.lent


def test_a_fetch_that_cannot_be_answered_does_not_keep_others_from_it() -> None:
    class Fetch:
        def __init__(self, answer: Callable[[], object]) -> None:
            self.answer = answer

    async def test() -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _loop, _context: None)
        second, third = asyncio.Event(), asyncio.Event()
        woken = FetchWakeups(Containment())
        for answer in (lambda: 1 // 0, second.set, third.set):
            woken.add(cast(fast_fetch.FollowerFetch, Fetch(answer)))
        await asyncio.wait_for(second.wait(), 10)
        await asyncio.wait_for(third.wait(), 10)

    asyncio.run(test())
