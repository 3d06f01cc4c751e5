"""Snapshots: whole or nothing, and the last one always stays."""

from __future__ import annotations

import pytest
from tests.unit.metadata.building import uuid

from odradek.ids import LeaderEpoch, NodeId, Offset
from odradek.metadata.raft.snapshot import (
    RECORDS_PER_BATCH,
    BadSnapshot,
    HeldSnapshot,
    QuorumRecords,
    SnapshotId,
    build_snapshot,
    read_snapshot,
    snapshot_id_of,
    superseded,
)
from odradek.metadata.raft.voters import Voter
from odradek.metadata.records import TopicRecord

RECORDS = tuple(TopicRecord(name=f"t{index}", topic_id=uuid(index)) for index in range(2 * RECORDS_PER_BATCH + 5))
VOTER = Voter(NodeId(1), "localhost", 9093, uuid(200))


def snapshot(quorum: QuorumRecords | None = None) -> bytes:
    return build_snapshot(
        RECORDS,
        metadata_version=30,
        epoch=LeaderEpoch(3),
        last_contained_timestamp_ms=17,
        now_ms=18,
        quorum=quorum,
    )


def test_a_snapshot_can_be_read_again() -> None:
    read = read_snapshot(snapshot(QuorumRecords(1, (VOTER,), "CONTROLLER")))
    assert read.records == RECORDS
    assert (read.kraft_version, read.voters, read.last_contained_timestamp_ms) == (1, (VOTER,), 17)
    assert read_snapshot(snapshot()).voters == ()


def test_a_torn_or_damaged_snapshot_is_refused() -> None:
    content = snapshot()
    for cut in (0, 1, 83, len(content) // 2, len(content) - 1, len(content) - 75):
        with pytest.raises(BadSnapshot):
            read_snapshot(content[:cut])
    for position in (70, 100, len(content) // 2, len(content) - 1):
        damaged = bytearray(content)
        damaged[position] ^= 0x10
        with pytest.raises(BadSnapshot):
            read_snapshot(bytes(damaged))


def test_names() -> None:
    name = "00000000000000000020-0000000003.checkpoint"
    snapshot_id = SnapshotId(Offset(20), LeaderEpoch(3))
    assert snapshot_id.file_name == name
    assert snapshot_id_of(name) == snapshot_id
    for other in ("00000000000000000020.log", name + ".part", "20-3.checkpoint", "bootstrap.checkpoint", name[1:]):
        assert snapshot_id_of(other) is None


def held(*sizes_and_times: tuple[int, int]) -> list[HeldSnapshot]:
    return [
        HeldSnapshot(SnapshotId(Offset(index), LeaderEpoch(0)), size, at)
        for index, (size, at) in enumerate(sizes_and_times)
    ]


def test_old_and_large_snapshots_go_but_never_the_newest() -> None:
    three = held((10, 0), (10, 50), (10, 100))

    def going(*, log_bytes: int = 0, now_ms: int = 100, max_bytes: int = 1000, max_age_ms: int = 1000) -> int:
        return len(superseded(three, log_bytes=log_bytes, now_ms=now_ms, max_bytes=max_bytes, max_age_ms=max_age_ms))

    assert going() == 0
    assert going(max_age_ms=60) == 1
    assert going(max_age_ms=0, now_ms=10_000) == 2
    assert going(log_bytes=980, max_bytes=1000) == 1
    assert going(log_bytes=5000) == 2
    assert going(log_bytes=5000, max_bytes=-1, max_age_ms=-1) == 0
