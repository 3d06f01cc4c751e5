from __future__ import annotations

from collections import deque
from itertools import pairwise
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.coordinator.logs import newest_of

from odradek.coordinator.group.kinds import GROUP_RECORDS
from odradek.coordinator.group.offsets import offset_tombstone
from odradek.coordinator.group.records import OffsetCommitKey, OffsetCommitValue
from odradek.coordinator.record_format import (
    Newest,
    client_error,
    decode_record,
    encode_batch,
    java_length,
    partition_for,
)
from odradek.coordinator.shard import CoordinatorRecord, ProducerKey, Shard
from odradek.protocol.errors import ErrorCode, MalformedFrame
from odradek.protocol.records.batch import build_batch, decode_records, iter_batches
from odradek.protocol.records.compression import Compression
from odradek.protocol.records.control import EndTxnMarker, end_txn_batch
from odradek.protocol.records.record import Record


@pytest.mark.parametrize(
    ("key", "partition"),
    # As a Java program said: Utils.abs(key.hashCode()) % 50.
    [
        ("", 0),
        ("g", 3),
        ("static", 38),
        ("console-consumer-12345", 6),
        ("Ünïcode", 14),
        ("😀", 49),
        ("polygenelubricants", 0),
    ],
)
def test_a_key_belongs_where_java_puts_it(key: str, partition: int) -> None:
    assert partition_for(key, 50) == partition


@given(st.text(), st.integers(1, 200))
def test_every_key_belongs_somewhere(key: str, partitions: int) -> None:
    assert 0 <= partition_for(key, partitions) < partitions


def committed(partition: int, offset: int) -> CoordinatorRecord:
    return CoordinatorRecord(
        OffsetCommitKey(group="g", topic="t", partition=partition),
        OffsetCommitValue(offset=offset, leader_epoch=2, metadata="m", commit_timestamp=3),
        3,
    )


class Recorder:
    """A shard that notes what is replayed."""

    kinds = GROUP_RECORDS
    next_deadline_ms = None

    def __init__(self, *, takes: bool = False) -> None:
        self.replayed: list[tuple[CoordinatorRecord, ProducerKey | None]] = []
        self.taken: list[tuple[bytes, bytes]] = []
        self._takes = takes

    def replay(self, record: CoordinatorRecord, producer: ProducerKey | None) -> None:
        self.replayed.append((record, producer))

    def replay_encoded(self, key: bytes, content: bytes) -> bool:
        if self._takes:
            self.taken.append((key, content))
        return self._takes


def in_force(newest: Newest) -> list[CoordinatorRecord]:
    """What there is if no transaction is open."""
    shard = Recorder()
    deque(newest.replay_into(cast("Shard", shard)), maxlen=0)
    assert all(producer is None for _, producer in shard.replayed)
    return [record for record, _ in shard.replayed]


def test_records_come_back_as_they_went() -> None:
    newest = newest_of([bytes(encode_batch([committed(0, 1), committed(1, 2)], timestamp_ms=5))])
    assert newest.end_offset == 2
    assert in_force(newest) == [committed(0, 1), committed(1, 2)]


def test_only_the_newest_value_of_a_key_is_kept_in_the_order_of_writing() -> None:
    gone = offset_tombstone("g", "t", 2)
    written = ([committed(0, 1), committed(1, 2), committed(2, 3)], [committed(0, 4)], [gone])
    newest = newest_of(bytes(encode_batch(records, timestamp_ms=5)) for records in written)
    assert len(newest) == 2
    assert in_force(newest) == [committed(1, 2), committed(0, 4)]


@pytest.mark.parametrize("compression", Compression)
def test_a_load_goes_in_steps_however_large_a_batch_is(compression: Compression) -> None:
    """Between them others get their turn; so each must be small, in records and in bytes."""
    records = [committed(partition, 7) for partition in range(5_000)]
    newest = Newest()
    known = [0]
    for _ in newest.add(bytes(encode_batch(records, timestamp_ms=5, compression=compression))):
        known.append(len(newest))
    shard = Recorder()
    for _ in newest.replay_into(cast("Shard", shard)):
        known.append(len(newest) + len(shard.replayed))
    known.append(len(newest) + len(shard.replayed))
    assert known[-1] == 10_000
    assert max(after - before for before, after in pairwise(known)) <= 500


def test_a_shard_may_take_what_is_encoded_but_nothing_that_may_yet_be_another() -> None:
    newest = newest_of(
        [
            outside(0, committed(0, 1)),
            in_transaction(7, 1, committed(1, 2)),
            outside(2, committed(1, 3)),
            outside(3, offset_tombstone("g", "t", 2)),
        ]
    )
    shard = Recorder(takes=True)
    deque(newest.replay_into(cast("Shard", shard)), maxlen=0)
    assert [key[-1] for key, _ in shard.taken] == [0]
    assert [(each.key.partition, each.value is None, producer) for each, producer in shard.replayed] == [  # type: ignore
        (1, False, ProducerKey(7, 0)),
        (1, False, None),
        (2, True, None),
    ]


def test_nothing_is_made_of_nothing() -> None:
    assert newest_of([b""]).end_offset is None


def test_control_batches_and_records_without_a_key_say_nothing() -> None:
    newest = newest_of([marker(7, commit=True) + bytes(build_batch([Record(value=b"x")]))])
    assert newest.end_offset == 1
    assert len(newest) == 0


def marker(producer_id: int, *, commit: bool) -> bytes:
    return bytes(end_txn_batch(EndTxnMarker(commit, 0), producer_id=producer_id, producer_epoch=0, timestamp=5))


def in_transaction(producer_id: int, base_offset: int, *records: CoordinatorRecord) -> bytes:
    """A batch as a transactional producer has it written."""
    (plain,) = iter_batches(encode_batch(records, timestamp_ms=5))
    return bytes(
        build_batch(
            list(decode_records(plain)),
            base_offset=base_offset,
            producer_id=producer_id,
            producer_epoch=0,
            base_sequence=0,
            transactional=True,
        )
    )


def test_what_a_transaction_wrote_counts_from_its_commit_on() -> None:
    written = in_transaction(7, 0, committed(0, 1)) + in_transaction(8, 1, committed(1, 2))
    assert len(newest_of([written])) == 0
    newest = newest_of([written, marker(7, commit=True) + marker(8, commit=False)])
    assert in_force(newest) == [committed(0, 1)]


def outside(base_offset: int, record: CoordinatorRecord) -> bytes:
    (plain,) = iter_batches(encode_batch([record], timestamp_ms=5))
    return bytes(build_batch(list(decode_records(plain)), base_offset=base_offset))


def test_the_later_write_wins_also_over_a_later_commit() -> None:
    newest = newest_of(
        [
            in_transaction(7, 0, committed(0, 1), committed(1, 1)),
            outside(2, committed(0, 2)) + outside(3, committed(2, 2)),
            in_transaction(8, 4, committed(2, 3)),
            marker(7, commit=True) + marker(8, commit=True),
        ]
    )
    found = {record.key.partition: record.value.offset for record in in_force(newest)}  # type: ignore
    assert found == {0: 2, 1: 1, 2: 3}


def test_a_kind_that_nobody_knows_is_passed_over() -> None:
    assert decode_record(GROUP_RECORDS, b"\0\x63anything", b"\0\0") is None


SOUND_KEY = b"\0\1\0\1g\0\1t\0\0\0\0"


@pytest.mark.parametrize(
    ("key", "content"),
    [
        (b"\0", b"\0\3"),
        (b"\0\1\0\1g", None),
        (b"\0\1\0\1g\0\1t\0\0\0\0", b"\0"),
        (b"\0\1\0\1g\0\1t\0\0\0\0", b"\0\x09"),
    ],
)
def test_bytes_that_are_no_record_are_refused(key: bytes, content: bytes | None) -> None:
    with pytest.raises(MalformedFrame):
        decode_record(GROUP_RECORDS, key, content)


def test_errors_of_the_log_become_errors_of_a_coordinator() -> None:
    assert client_error(ErrorCode.KAFKA_STORAGE_ERROR) is ErrorCode.NOT_COORDINATOR
    assert client_error(ErrorCode.NOT_ENOUGH_REPLICAS) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert client_error(ErrorCode.MESSAGE_TOO_LARGE) is ErrorCode.UNKNOWN_SERVER_ERROR
    assert client_error(ErrorCode.ILLEGAL_GENERATION) is ErrorCode.ILLEGAL_GENERATION


@pytest.mark.parametrize(("text", "length"), [("", 0), ("abc", 3), ("é", 1), ("😀", 2)])
def test_lengths_are_javas(text: str, length: int) -> None:
    assert java_length(text) == length
