"""What a fetch brought: decoded from the position on, without what no consumer is to see."""

from __future__ import annotations

import pytest

from odradek.client.cluster import TopicPartition
from odradek.client.consumer.records import FetchedRecords
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.messages.fetch import AbortedTransaction
from odradek.protocol.records.batch import BATCH_HEADER, build_batch
from odradek.protocol.records.compression import Compression
from odradek.protocol.records.control import EndTxnMarker, end_txn_batch
from odradek.protocol.records.record import Record


def batch(
    base_offset: int, *values: bytes, producer_id: int = -1, compression: Compression = Compression.NONE
) -> bytearray:
    records = [Record(None, each, (("h", each),), timestamp=1000 + base_offset) for each in values]
    transactional = producer_id >= 0
    return build_batch(
        records,
        base_offset=base_offset,
        leader_epoch=3,
        producer_id=producer_id,
        producer_epoch=0,
        base_sequence=0,
        transactional=transactional,
        compression=compression,
    )


def marker(base_offset: int, *, producer_id: int, committed: bool) -> bytearray:
    made = end_txn_batch(EndTxnMarker(committed, 0), producer_id=producer_id, producer_epoch=0, timestamp=1)
    BATCH_HEADER.pack_into(made, 0, base_offset, *BATCH_HEADER.unpack_from(made)[1:])
    return made


def fetched(*batches: bytearray, start: int = 0, aborted: list[AbortedTransaction] | None = None) -> FetchedRecords:
    data = memoryview(b"".join(batches))
    return FetchedRecords(TopicPartition("t", 1), data, from_offset=start, aborted=aborted, check_crcs=True)


def values(records: FetchedRecords) -> list[bytes | None]:
    return [record.value for record in records.take(1000)]


def test_records_come_with_all_they_carry() -> None:
    records = fetched(batch(5, b"a"), start=5)
    (record,) = records.take(10)
    assert (record.topic, record.partition, record.offset, record.timestamp) == ("t", 1, 5, 1005)
    assert (record.key, record.value, record.headers, record.leader_epoch) == (None, b"a", (("h", b"a"),), 3)
    assert records.next_offset == 6


@pytest.mark.parametrize("compression", Compression)
def test_reading_starts_at_the_position_also_inside_a_batch(compression: Compression) -> None:
    records = fetched(batch(0, b"a", b"b", b"c", compression=compression), batch(3, b"d"), start=1)
    assert [record.value for record in records.take(2)] == [b"b", b"c"]
    assert records.next_offset == 3
    assert values(records) == [b"d"]
    assert values(records) == []
    assert records.next_offset == 4


def test_a_batch_that_is_cut_short_is_left_for_the_next_fetch() -> None:
    second = batch(1, b"b")
    records = fetched(batch(0, b"a"), second[:-3])
    assert values(records) == [b"a"]
    assert records.next_offset == 1


def test_what_was_aborted_is_passed_over_and_what_was_committed_is_not() -> None:
    log = [
        batch(0, b"a0", producer_id=1),
        batch(1, b"b0", producer_id=2),
        batch(2, b"plain"),
        marker(3, producer_id=1, committed=False),
        batch(4, b"a1", producer_id=1),
        marker(5, producer_id=2, committed=True),
        marker(6, producer_id=1, committed=True),
    ]
    aborted = [AbortedTransaction(producer_id=1, first_offset=0)]
    records = fetched(*log, aborted=aborted)
    assert values(records) == [b"b0", b"plain", b"a1"]
    assert records.next_offset == 7, "the markers have been read, too"
    assert values(fetched(*log)) == [b"a0", b"b0", b"plain", b"a1"]


def test_a_corrupt_batch_is_told_once_what_was_before_it_has_been_read() -> None:
    broken = batch(1, b"b")
    broken[-1] ^= 1
    records = fetched(batch(0, b"a"), broken)
    assert values(records) == [b"a"]
    for _ in range(2):
        with pytest.raises(KafkaError) as told:
            records.take(10)
        assert told.value.code is ErrorCode.CORRUPT_MESSAGE
    assert records.next_offset == 1
