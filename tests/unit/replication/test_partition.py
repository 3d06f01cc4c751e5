"""One replica: who may append, and when what was appended is shown."""

from __future__ import annotations

import random

import pytest

from odradek.ids import LeaderEpoch, NodeId, Uuid
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.records.batch import build_batch
from odradek.protocol.records.record import Record
from odradek.replication.broker_liveness import BrokerLiveness
from odradek.replication.partition import Partition, PartitionState
from odradek.sim.disk import Device
from odradek.sim.loop import Life, SimulatedLoop
from odradek.sim.trace import Trace
from odradek.storage.config import LogConfig
from odradek.storage.log import Log

NOW_MS = 1_700_000_000_000
ME = NodeId(1)


def open_log(config: LogConfig) -> Log:
    device = Device(random.Random(0), Trace(SimulatedLoop()))
    device.provide("/data")
    return Log.open(
        device.attach(Life("node")),
        "/data/t-0",
        topic="t",
        partition=0,
        topic_id=Uuid(bytes(range(16))),
        config=config,
        now_ms=NOW_MS,
    )


def partition(config: LogConfig, *, leader: NodeId = ME, leader_epoch: int = 0) -> Partition:
    replica = Partition(ME, open_log(config), BrokerLiveness())
    replica.apply(PartitionState(leader, LeaderEpoch(leader_epoch), 0, (ME,), (ME,)), now_ms=0)
    return replica


def append(replica: Partition) -> int:
    batch = build_batch([Record(value=b"x")], timestamp=NOW_MS)
    return replica.append(memoryview(batch), now_ms=NOW_MS).base_offset


def test_what_is_appended_is_shown_at_once() -> None:
    replica = partition(LogConfig())
    assert [append(replica), append(replica)] == [0, 1]
    assert replica.log.high_watermark == 2


def test_what_must_be_synced_is_shown_once_it_is() -> None:
    replica = partition(LogConfig(flush_messages=2))
    append(replica)
    assert replica.log.high_watermark == 1
    append(replica)
    append(replica)
    assert replica.log.high_watermark == 1
    work = replica.log.flush_work()
    append(replica)
    work()
    assert replica.flushed(work.offset, now_ms=0)
    assert replica.log.high_watermark == 3
    assert not replica.flushed(work.offset, now_ms=0)
    append(replica)
    assert (replica.log.high_watermark, replica.log.log_end_offset) == (3, 5)


def test_only_a_leader_appends() -> None:
    replica = partition(LogConfig(), leader=NodeId(2))
    with pytest.raises(KafkaError) as refused:
        append(replica)
    assert refused.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert not replica.flushed(0, now_ms=0)


@pytest.mark.parametrize(
    ("asked", "error"),
    [(-1, None), (3, None), (2, ErrorCode.FENCED_LEADER_EPOCH), (4, ErrorCode.UNKNOWN_LEADER_EPOCH)],
)
def test_older_and_newer_views_of_the_leadership_are_fenced(asked: int, error: ErrorCode | None) -> None:
    replica = partition(LogConfig(), leader_epoch=3)
    if error is None:
        replica.require_leader(asked)
        return
    with pytest.raises(KafkaError) as refused:
        replica.require_leader(asked)
    assert refused.value.code is error
