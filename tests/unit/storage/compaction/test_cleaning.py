"""What a cleaning leaves of a log."""

from __future__ import annotations

import pytest
from tests.unit.storage.compaction.worlds import COMPACTED, Found, clean, committed, put, settle, table
from tests.unit.storage.transactions import end
from tests.unit.storage.worlds import DIRECTORY, NOW_MS, Machine, open_log, read_all

from odradek.protocol.records.batch import (
    DELETE_HORIZON_BIT,
    TIMESTAMP_TYPE_BIT,
    BatchHeader,
    build_batch,
    crc_matches,
    decode_records,
    read_header,
    update_crc,
)
from odradek.protocol.records.compression import Compression
from odradek.protocol.records.record import Record
from odradek.storage.compaction.choice import cleanable
from odradek.storage.compaction.cleaning import Uncleanable
from odradek.storage.compaction.offset_map import ENTRY_BYTES
from odradek.storage.log import Log
from odradek.values import replace

RETENTION_MS = COMPACTED.delete_retention_ms


@pytest.fixture
def machine() -> Machine:
    return Machine()


@pytest.fixture
def log(machine: Machine) -> Log:
    return open_log(machine.disk, COMPACTED)


def cleaned(log: Log, machine: Machine, now_ms: int = NOW_MS) -> list[BatchHeader]:
    """The headers of what is left after a cleaning of all that was appended so far."""
    log.roll(now_ms)
    settle(log)
    clean(log, machine.disk, now_ms=now_ms)
    batches = read_all(log)
    assert all(map(crc_matches, batches))
    return [read_header(batch) for batch in batches]


def found(log: Log) -> list[Found]:
    return [(each.offset, each.key, each.value) for batch in read_all(log) for each in decode_records(batch)]


def test_the_last_value_of_each_key_stays_at_its_offset(machine: Machine, log: Log) -> None:
    put(log, (b"a", b"1"), (b"b", b"1"), (b"c", b"1"))
    put(log, (b"a", b"2"))
    put(log, (b"b", b"2"), (b"a", b"3"))
    headers = cleaned(log, machine)
    assert found(log) == [(2, b"c", b"1"), (4, b"b", b"2"), (5, b"a", b"3")]
    assert [(each.base_offset, each.last_offset, each.records_count) for each in headers] == [(0, 2, 1), (4, 5, 2)]
    assert log.log_end_offset == 6
    assert log.cleaned_offset == 6


def test_bytes_of_a_batch_that_loses_nothing_are_the_same(machine: Machine, log: Log) -> None:
    put(log, (b"a", b"1"), (b"b", b"1"), compression=Compression.GZIP)
    before = read_all(log)
    cleaned(log, machine)
    assert read_all(log) == before


@pytest.mark.parametrize("codec", Compression)
@pytest.mark.parametrize("timestamp_type", ["CreateTime", "LogAppendTime"])
def test_records_keep_their_time_headers_and_codec(
    machine: Machine, log: Log, codec: Compression, timestamp_type: str
) -> None:
    log.config = replace(COMPACTED, message_timestamp_type=timestamp_type, segment_bytes=10_000)
    records = [
        Record(b"k%d" % (number % 7), b"v%d" % number, (("h", b"%d" % number),), NOW_MS + 10 * (number % 9))
        for number in range(20)
    ]
    log.append_as_leader(memoryview(build_batch(records, compression=codec)), leader_epoch=0, now_ms=NOW_MS)
    before = list(decode_records(read_all(log)[0]))
    (header,) = cleaned(log, machine)
    after = list(decode_records(read_all(log)[0]))
    assert after == before[13:]
    assert header.compression is codec
    assert bool(header.attributes & TIMESTAMP_TYPE_BIT) is (timestamp_type == "LogAppendTime")
    assert header.max_timestamp == max(each.timestamp for each in after)


@pytest.mark.parametrize("codec", [Compression.NONE, Compression.ZSTD])
def test_a_tombstone_stays_until_its_time_and_carries_that(machine: Machine, log: Log, codec: Compression) -> None:
    put(log, (b"a", b"1"), (b"b", b"1"), timestamp=NOW_MS - 5)
    put(log, (b"a", None), (b"b", b"2"), timestamp=NOW_MS - 4, compression=codec)
    put(log, (b"z", b"last"))
    first, _ = cleaned(log, machine)
    assert first.attributes & DELETE_HORIZON_BIT
    assert first.base_timestamp == NOW_MS + RETENTION_MS
    assert first.max_timestamp == NOW_MS - 4
    assert found(log) == [(2, b"a", None), (3, b"b", b"2"), (4, b"z", b"last")]
    assert [each.timestamp for each in decode_records(read_all(log)[0])] == [NOW_MS - 4, NOW_MS - 4]

    put(log, (b"c", b"1"))
    cleaned(log, machine, NOW_MS + RETENTION_MS - 1)
    assert found(log)[0] == (2, b"a", None)
    put(log, (b"c", b"2"))
    headers = cleaned(log, machine, NOW_MS + RETENTION_MS)
    assert found(log) == [(3, b"b", b"2"), (4, b"z", b"last"), (6, b"c", b"2")]
    assert headers[0].base_timestamp == NOW_MS + RETENTION_MS, "the horizon stays where the batch does"
    assert next(decode_records(read_all(log)[0])).timestamp == NOW_MS - 4


def test_records_without_a_key_go_and_are_counted(machine: Machine) -> None:
    log = open_log(machine.disk, replace(COMPACTED, cleanup_policy=("delete",)))
    put(log, (None, b"1"), (b"a", b"1"), (None, b"2"))
    log.config = COMPACTED
    log.roll(NOW_MS)
    settle(log)
    assert clean(log, machine.disk).keyless == 2
    assert found(log) == [(1, b"a", b"1")]


def test_nothing_of_the_active_segment_is_touched(machine: Machine, log: Log) -> None:
    put(log, (b"a", b"1"))
    log.roll(NOW_MS)
    put(log, (b"a", b"2"), (b"a", b"3"))
    settle(log)
    clean(log, machine.disk)
    assert found(log) == [(0, b"a", b"1"), (1, b"a", b"2"), (2, b"a", b"3")]


def test_nothing_from_the_last_stable_offset_on_is_touched(machine: Machine, log: Log) -> None:
    put(log, (b"a", b"1"))
    log.roll(NOW_MS)
    put(log, (b"a", b"2"), producer_id=1, producer_epoch=0, base_sequence=0, transactional=True)
    put(log, (b"a", b"3"))
    log.roll(NOW_MS)
    settle(log)
    assert log.last_stable_offset == 1
    clean(log, machine.disk)
    assert found(log) == [(0, b"a", b"1"), (1, b"a", b"2"), (2, b"a", b"3")]


def test_an_aborted_transaction_goes_and_its_marker_later(machine: Machine, log: Log) -> None:
    put(log, (b"a", b"kept"))
    put(log, (b"a", b"aborted"), producer_id=1, producer_epoch=0, base_sequence=0, transactional=True)
    end(log, commit=False, producer=1)
    put(log, (b"b", b"1"), producer_id=1, producer_epoch=0, base_sequence=1, transactional=True)
    end(log, commit=True, producer=1)
    put(log, (b"z", b"last"))
    headers = cleaned(log, machine)
    assert [each.base_offset for each in headers] == [0, 2, 3, 4, 5]
    assert committed(log) == [(0, b"a", b"kept"), (3, b"b", b"1"), (5, b"z", b"last")]
    assert not headers[1].attributes & DELETE_HORIZON_BIT, "its transaction was still there when it was read"

    put(log, (b"c", b"1"))
    headers = cleaned(log, machine)
    assert headers[1].attributes & DELETE_HORIZON_BIT
    assert headers[1].base_timestamp == NOW_MS + RETENTION_MS
    put(log, (b"c", b"2"))
    headers = cleaned(log, machine, NOW_MS + RETENTION_MS)
    assert [each.base_offset for each in headers][:3] == [0, 3, 4]
    assert headers[2].is_control
    assert committed(log)[:2] == [(0, b"a", b"kept"), (3, b"b", b"1")]


def test_a_reader_still_hears_of_an_aborted_transaction_that_is_left(machine: Machine, log: Log) -> None:
    """Its batch stays empty, for the sake of the sequence, and so does what the transaction index says."""
    put(log, (b"a", b"1"))
    put(log, (b"a", b"2"), producer_id=1, producer_epoch=0, base_sequence=0, transactional=True)
    end(log, commit=False, producer=1)
    put(log, (b"z", b"last"))
    headers = cleaned(log, machine)
    assert [(each.base_offset, each.records_count) for each in headers] == [(0, 1), (1, 0), (2, 1), (3, 1)]
    assert [each.first_offset for each in log.aborted_transactions(0, 4)] == [1]
    assert committed(log) == [(0, b"a", b"1"), (3, b"z", b"last")]


def test_the_last_batch_of_a_producer_stays_though_empty(machine: Machine, log: Log) -> None:
    put(log, (b"a", b"1"), producer_id=9, producer_epoch=3, base_sequence=40, compression=Compression.GZIP)
    put(log, (b"a", b"2"))
    (header, _) = cleaned(log, machine)
    assert (header.base_offset, header.records_count, header.size) == (0, 0, 61)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (9, 3, 40)
    assert header.compression is Compression.NONE
    for name in machine.disk.list(DIRECTORY):
        if name.endswith(".snapshot"):
            machine.disk.unlink(f"{DIRECTORY}/{name}")
    machine.crash("process")
    again = open_log(machine.disk, COMPACTED, recovery_point=log.recovery_point)
    assert put(again, (b"a", b"3"), producer_id=9, producer_epoch=3, base_sequence=41).base_offset == 2

    put(again, (b"z", b"last"))
    headers = cleaned(again, machine)
    assert [each.base_offset for each in headers] == [2, 3], "its place is taken by the newer one"


def test_a_marker_that_alone_tells_a_producers_epoch_stays(machine: Machine, log: Log) -> None:
    put(log, (b"a", b"1"), producer_id=9, producer_epoch=0, base_sequence=0, transactional=True)
    end(log, commit=True, producer=9, epoch=1)
    put(log, (b"a", b"2"))
    for rounds in range(3):
        headers = cleaned(log, machine, NOW_MS + rounds * RETENTION_MS)
        put(log, (b"a", b"more"))
    markers = [each for each in headers if each.is_control]
    assert [(each.producer_id, each.producer_epoch, each.records_count) for each in markers] == [(9, 1, 0)]


def test_small_segments_are_put_together_within_the_size_of_one(machine: Machine, log: Log) -> None:
    for number in range(40):
        put(log, (b"k%d" % (number % 3), b"v%d" % number))
    before = len(log.segments)
    cleaned(log, machine)
    put(log, (b"more", b"1"))
    cleaned(log, machine)
    assert before >= 10
    assert len(log.segments) < 6
    assert all(segment.size <= COMPACTED.segment_bytes for segment in log.segments)
    assert {key: value for _, key, value in found(log)} == {
        b"k0": b"v39",
        b"k1": b"v37",
        b"k2": b"v38",
        b"more": b"1",
    }
    before = found(log)
    machine.crash("power")
    again = open_log(machine.disk, COMPACTED, recovery_point=log.recovery_point)
    assert found(again) == before


def test_segments_are_not_put_together_across_more_offsets_than_an_index_can_tell(machine: Machine, log: Log) -> None:
    put(log, (b"a", b"1"))
    log.roll(NOW_MS)
    batch = build_batch([Record(b"b", b"1")], base_offset=1 << 31, timestamp=NOW_MS)
    log.append_as_follower(memoryview(batch), NOW_MS)
    cleaned(log, machine)
    assert [segment.base_offset for segment in log.segments] == [0, 1, (1 << 31) + 1]


def test_too_little_memory_means_more_rounds_that_all_get_on(machine: Machine, log: Log) -> None:
    for number in range(60):
        put(log, (b"k%d" % (number % 20), b"v%d" % number))
    log.roll(NOW_MS)
    settle(log)
    expected = table(found(log))
    rounds = 0
    while cleanable(log, NOW_MS).dirty_bytes:
        before = log.cleaned_offset
        clean(log, machine.disk, dedupe_bytes=6 * ENTRY_BYTES)
        assert log.cleaned_offset > before
        rounds += 1
    assert rounds == 10
    assert len(found(log)) == 20
    assert table(found(log)) == expected


def test_one_batch_with_more_keys_than_there_is_memory_for_is_taken(machine: Machine, log: Log) -> None:
    log.config = replace(COMPACTED, segment_bytes=10_000)
    put(log, *[(b"k%d" % number, b"1") for number in range(100)])
    put(log, *[(b"k%d" % number, b"2") for number in range(100)])
    log.roll(NOW_MS)
    settle(log)
    for _ in range(2):
        clean(log, machine.disk, dedupe_bytes=3 * ENTRY_BYTES)
    assert len(found(log)) == 100


def test_a_log_with_a_batch_that_is_damaged_stays_as_it_is(machine: Machine, log: Log) -> None:
    put(log, (b"a", b"1"))
    put(log, (b"a", b"2"))
    log.roll(NOW_MS)
    settle(log)
    path = log.segments[0].path
    data = bytearray(machine.disk.read_file(path))
    data[-1] ^= 1
    machine.disk.write_file(path, bytes(data))
    with pytest.raises(Uncleanable, match="checksum"):
        clean(log, machine.disk)
    assert machine.disk.read_file(path) == data
    assert not [name for name in machine.disk.list(DIRECTORY) if name.endswith(".cleaned")]


def test_a_batch_that_lies_about_its_records_makes_its_log_uncleanable(machine: Machine, log: Log) -> None:
    info = put(log, (b"a", b"1"), (b"b", b"1"))
    log.roll(NOW_MS)
    settle(log)
    path = log.segments[0].path
    data = bytearray(machine.disk.read_file(path))
    data[60] = 1  # One record instead of two.
    update_crc(data)
    machine.disk.write_file(path, bytes(data))
    with pytest.raises(Uncleanable, match=f"at offset {info.base_offset} cannot be read"):
        clean(log, machine.disk)


def test_indexes_of_what_is_cleaned_are_those_that_recovery_makes(machine: Machine) -> None:
    config = replace(COMPACTED, segment_bytes=100_000, index_interval_bytes=200)
    log = open_log(machine.disk, config)
    for number in range(100):
        put(log, (b"k%d" % (number % 60), b"v%d" % number), timestamp=NOW_MS + number % 17)
    cleaned(log, machine)
    stem = f"{DIRECTORY}/{0:020d}"
    kept = {suffix: machine.disk.read_file(stem + suffix) for suffix in (".index", ".timeindex")}
    assert len(kept[".index"]) > 8
    machine.crash("process")
    for suffix in kept:
        machine.disk.unlink(stem + suffix)
    open_log(machine.disk, config, recovery_point=log.recovery_point)
    assert {suffix: machine.disk.read_file(stem + suffix) for suffix in kept} == kept
