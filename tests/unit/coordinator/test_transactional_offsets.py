"""Offsets committed in transactions, live and after a load from the log, against the rule in plain words."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from tests.unit.coordinator.logs import load

from odradek.coordinator.group.offsets import offset_tombstone, offset_value
from odradek.coordinator.group.records import OffsetCommitKey
from odradek.coordinator.group.settings import GroupSettings
from odradek.coordinator.group.shard import GroupShard
from odradek.coordinator.record_format import encode_batch
from odradek.coordinator.shard import CoordinatorRecord, ProducerKey
from odradek.ids import ZERO_UUID
from odradek.protocol.records.batch import read_header
from odradek.protocol.records.control import EndTxnMarker, end_txn_batch

PARTITIONS = st.integers(0, 2)
PRODUCERS = st.integers(1, 3)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("commit"), PARTITIONS, st.none()),
        st.tuples(st.just("commit"), PARTITIONS, PRODUCERS),
        st.tuples(st.just("tombstone"), PARTITIONS, st.none()),
        st.tuples(st.just("commit marker"), st.none(), PRODUCERS),
        st.tuples(st.just("abort marker"), st.none(), PRODUCERS),
        st.tuples(st.just("load"), st.none(), st.none()),
    ),
    max_size=40,
)


def record_of(partition: int, offset: int) -> CoordinatorRecord:
    content = offset_value(offset, -1, "", ZERO_UUID, now_ms=5)
    return CoordinatorRecord(OffsetCommitKey(group="g", topic="t", partition=partition), content, 4)


class Log:
    """What a coordinator has written, and the shard that wrote it."""

    def __init__(self) -> None:
        self.batches: list[bytes] = []
        self.end_offset = 0
        self.shard = GroupShard(GroupSettings())

    def write(self, record: CoordinatorRecord, producer_id: int | None = None) -> None:
        producer = None if producer_id is None else ProducerKey(producer_id, 0)
        self._append(encode_batch([record], timestamp_ms=5, producer=producer))
        self.shard.replay(record, producer)

    def end(self, producer_id: int, *, committed: bool) -> None:
        marker = EndTxnMarker(committed, 0)
        self._append(end_txn_batch(marker, producer_id=producer_id, producer_epoch=1, timestamp=5))
        self.shard.replay_marker(ProducerKey(producer_id, 1), committed)

    def load(self) -> None:
        self.shard = GroupShard(GroupSettings())
        load(self.shard, self.batches)

    def _append(self, batch: bytearray) -> None:
        batch[:8] = self.end_offset.to_bytes(8)
        self.end_offset += read_header(batch).records_count
        self.batches.append(bytes(batch))

    def committed(self) -> dict[int, int]:
        return {index: each.offset for index, each in self.shard.offsets.of("g").get("t", {}).items()}


@given(STEPS)
def test_the_offset_in_force_is_the_one_that_was_written_last_of_those_that_count(
    steps: list[tuple[str, int, int]],
) -> None:
    log = Log()
    in_force: dict[int, int] = {}
    pending: dict[int, dict[int, int]] = {}
    for number, (what, partition, producer_id) in enumerate(steps):
        match what:
            case "commit":
                log.write(record_of(partition, number), producer_id)
                if producer_id is None:
                    in_force[partition] = number
                else:
                    pending.setdefault(producer_id, {})[partition] = number
            case "tombstone":
                log.write(offset_tombstone("g", "t", partition))
                in_force.pop(partition, None)
                for offsets in pending.values():
                    offsets.pop(partition, None)
            case "load":
                log.load()
            case _:
                log.end(producer_id, committed=what == "commit marker")
                for index, offset in pending.pop(producer_id, {}).items():
                    if what == "commit marker":
                        in_force[index] = max(offset, in_force.get(index, offset))
        assert log.committed() == in_force
