"""Appending and reading: one log, step by step."""

from __future__ import annotations

import errno
import struct

import pytest
from tests.unit.storage.worlds import (
    NOW_MS,
    Machine,
    append,
    append_as_leader,
    at_time,
    batch_of,
    content,
    offsets,
    open_log,
    read_all,
    values,
)

from odradek.ids import NO_TIMESTAMP, Uuid
from odradek.ports import FileSlice
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.records.batch import BATCH_HEADER, build_batch, decode_records, read_header, update_crc
from odradek.protocol.records.compression import Compression
from odradek.protocol.records.record import Record
from odradek.storage.config import LogConfig
from odradek.storage.log import Log
from odradek.storage.segment import TAIL_BATCHES
from odradek.storage.validation import Origin


@pytest.fixture
def log() -> Log:
    return open_log(Machine().disk)


def refusal(log: Log, batch: memoryview | bytearray, **options: object) -> ErrorCode:
    """The code a batch is refused with; the log must be as it was."""
    before = (log.log_end_offset, log.size_bytes, len(log.producers))
    with pytest.raises(KafkaError) as refused:
        append_as_leader(log, memoryview(batch), **options)
    assert (log.log_end_offset, log.size_bytes, len(log.producers)) == before
    return refused.value.code


def test_offsets_and_epoch_are_patched(log: Log) -> None:
    append(log, b"a", b"b")
    info = append(log, b"c", leader_epoch=4)
    assert (info.base_offset, info.last_offset, info.log_append_time_ms, info.duplicate) == (2, 2, -1, False)
    first, second = read_all(log)
    assert offsets([first, second]) == [0, 1, 2]
    assert (read_header(first).leader_epoch, read_header(second).leader_epoch) == (0, 4)
    assert log.leader_epochs.entries == [(0, 0), (4, 2)]


def test_reads_are_slices_of_the_file(log: Log) -> None:
    append(log, b"a")
    read = log.read(0, max_bytes=1000, end_offset=1, minimum_one=True)
    assert isinstance(read.records, FileSlice)
    assert (read.position, read.segment_base_offset) == (0, 0)


def test_nothing_at_or_above_the_end_is_read(log: Log) -> None:
    for value in (b"a", b"b", b"c"):
        append(log, value)
    log.advance_high_watermark(2)
    for start in (0, 1):
        read = log.read(start, max_bytes=1000, end_offset=log.high_watermark, minimum_one=True)
        assert values(read_all(log, start, end=2)) == [b"a", b"b"][start:]
        assert len(read.records) == (2 - start) * len(batch_of(b"a"))
    assert log.read(2, max_bytes=1000, end_offset=2, minimum_one=True).records == b""
    assert log.read(3, max_bytes=1000, end_offset=3, minimum_one=True).records == b""
    assert log.read(3, max_bytes=1000, end_offset=2, minimum_one=True).records == b""


@pytest.mark.parametrize("offset", [-1, 4])
def test_offsets_outside_are_refused(log: Log, offset: int) -> None:
    for value in (b"a", b"b", b"c"):
        append(log, value)
    with pytest.raises(KafkaError) as refused:
        log.read(offset, max_bytes=1000, end_offset=3, minimum_one=True)
    assert refused.value.code is ErrorCode.OFFSET_OUT_OF_RANGE


def test_max_bytes_cuts_at_batches_and_gives_one_if_asked(log: Log) -> None:
    for value in (b"a", b"b", b"c"):
        append(log, value)
    size = len(batch_of(b"a"))
    for max_bytes in range(3 * size + 2):
        read = log.read(0, max_bytes=max_bytes, end_offset=3, minimum_one=False)
        assert len(read.records) == max_bytes // size * size if max_bytes < 3 * size else 3 * size
        read = log.read(0, max_bytes=max_bytes, end_offset=3, minimum_one=True)
        assert len(read.records) == max(min(max_bytes // size, 3), 1) * size


def test_reads_behind_the_remembered_tail_use_the_index(log: Log) -> None:
    count = 3 * TAIL_BATCHES
    for number in range(count):
        append(log, b"%d" % number)
    for start in (0, 1, 500, TAIL_BATCHES, count - TAIL_BATCHES - 1, count - TAIL_BATCHES, count - 1):
        read = log.read(start, max_bytes=1, end_offset=count, minimum_one=True)
        (record,) = decode_records(content(read.records))
        assert (record.offset, record.value) == (start, b"%d" % start)
    assert values(read_all(log, 100, max_bytes=3000)) == [b"%d" % number for number in range(100, count)]


def test_headers_that_cannot_be(log: Log) -> None:
    def changed(field: int, value: int) -> bytearray:
        batch = bytearray(batch_of(b"a", b"b"))
        fields = list(BATCH_HEADER.unpack_from(batch))
        fields[field] = value
        BATCH_HEADER.pack_into(batch, 0, *fields)
        update_crc(batch)
        return batch

    assert refusal(log, changed(0, 7)) is ErrorCode.INVALID_RECORD  # base offset
    assert refusal(log, changed(1, 10)) is ErrorCode.CORRUPT_MESSAGE  # length
    assert (
        refusal(log, changed(1, 60)) is ErrorCode.CORRUPT_MESSAGE
    )  # What is left over is no batch, so the CRC is wrong.
    assert refusal(log, changed(1, 200)) is ErrorCode.INVALID_RECORD
    assert refusal(log, changed(1, (1 << 31) - 1)) is ErrorCode.UNKNOWN_SERVER_ERROR
    assert refusal(log, changed(1, -1)) is ErrorCode.CORRUPT_MESSAGE
    assert refusal(log, changed(3, 0)) is ErrorCode.INVALID_RECORD  # magic
    assert refusal(log, changed(3, 1)) is ErrorCode.INVALID_RECORD
    assert refusal(log, changed(3, 3)) is ErrorCode.CORRUPT_MESSAGE
    assert refusal(log, changed(5, 0x20)) is ErrorCode.INVALID_RECORD  # control bit
    assert refusal(log, changed(5, 0x05)) is ErrorCode.UNKNOWN_SERVER_ERROR  # codec 5
    assert refusal(log, changed(6, 0)) is ErrorCode.INVALID_RECORD  # last offset delta
    assert refusal(log, changed(6, -1)) is ErrorCode.INVALID_RECORD
    assert refusal(log, changed(9, 5)) is ErrorCode.INVALID_RECORD  # a producer id without a sequence
    for count in (0, -1, 1, 3):
        assert refusal(log, changed(12, count)) is ErrorCode.INVALID_RECORD


@pytest.mark.parametrize("codec", [Compression.NONE, Compression.GZIP])
def test_a_count_that_no_bytes_could_hold_wastes_no_offsets(log: Log, codec: Compression) -> None:
    lying = bytearray(batch_of(b"a", b"b"))
    struct.pack_into(">h", lying, 21, codec)
    struct.pack_into(">i", lying, 23, (1 << 31) - 2)
    struct.pack_into(">i", lying, 57, (1 << 31) - 1)
    update_crc(lying)
    assert refusal(log, lying) is ErrorCode.INVALID_RECORD
    assert log.log_end_offset == 0


def test_damaged_bytes(log: Log) -> None:
    for at in range(17, len(batch_of(b"abc"))):
        batch = batch_of(b"abc")
        batch[at] ^= 0x40
        assert refusal(log, batch) in (
            ErrorCode.CORRUPT_MESSAGE,
            ErrorCode.INVALID_RECORD,
            ErrorCode.UNKNOWN_SERVER_ERROR,
        )
    whole = bytes(batch_of(b"abc"))
    for end in range(len(whole)):
        assert refusal(log, bytearray(whole[:end])) is ErrorCode.INVALID_RECORD
    assert refusal(log, bytearray(whole + whole)) is ErrorCode.INVALID_RECORD


@pytest.mark.parametrize("behind", [b"\0", bytes(11), bytes(8) + b"\0\0\0\x0e\0\0\0\0\2", bytes(batch_of(b"abc"))[:-1]])
def test_what_follows_and_is_no_batch_is_left_out(log: Log, behind: bytes) -> None:
    batch = bytes(batch_of(b"abc"))
    log.append_as_leader(memoryview(bytearray(batch + behind)), leader_epoch=0, now_ms=NOW_MS)
    assert (log.log_end_offset, log.size_bytes) == (1, len(batch))
    assert not log.wrote_as_it_came(memoryview(batch + behind))


def test_size_limits() -> None:
    size = len(batch_of(b"x" * 100))
    log = open_log(Machine().disk, LogConfig(max_message_bytes=size, segment_bytes=size - 1))
    assert refusal(log, batch_of(b"x" * 101)) is ErrorCode.MESSAGE_TOO_LARGE
    assert refusal(log, batch_of(b"x" * 100)) is ErrorCode.RECORD_LIST_TOO_LARGE


def test_timestamps_too_far_ahead(log: Log) -> None:
    after = log.config.message_timestamp_after_max_ms
    append(log, b"a", timestamp=NOW_MS + after)
    append(log, b"no timestamp", timestamp=-1)
    assert refusal(log, batch_of(b"b", timestamp=NOW_MS + after + 1)) is ErrorCode.INVALID_TIMESTAMP


def test_timestamps_too_old() -> None:
    log = open_log(Machine().disk, LogConfig(message_timestamp_before_max_ms=1000))
    append(log, b"a", timestamp=NOW_MS - 1000)
    assert refusal(log, batch_of(b"b", timestamp=NOW_MS - 1001)) is ErrorCode.INVALID_TIMESTAMP
    mixed = build_batch([Record(timestamp=NOW_MS), Record(timestamp=NOW_MS - 1001)])
    assert refusal(log, mixed) is ErrorCode.INVALID_TIMESTAMP


def test_log_append_time() -> None:
    log = open_log(Machine().disk, LogConfig(message_timestamp_type="LogAppendTime"))
    info = append(log, b"a", b"b", timestamp=5)
    assert info.log_append_time_ms == NOW_MS
    (batch,) = read_all(log)
    assert [record.timestamp for record in decode_records(batch)] == [NOW_MS, NOW_MS]
    log.append_as_follower(memoryview(bytearray(_moved(batch, 2))), now_ms=NOW_MS)  # Its checksum must be right.
    assert refusal(log, build_batch([Record()], log_append_time=True)) is ErrorCode.INVALID_TIMESTAMP


def test_a_producer_that_claims_append_time(log: Log) -> None:
    append(log, b"a", timestamp=NOW_MS, log_append_time=True)
    (batch,) = read_all(log)
    assert read_header(batch).attributes == 0
    log.append_as_follower(memoryview(bytearray(_moved(batch, 1))), now_ms=NOW_MS)


def test_compacted_topics_need_keys() -> None:
    log = open_log(Machine().disk, LogConfig(cleanup_policy=("compact",)))
    log.append_as_leader(memoryview(build_batch([Record(b"k", None)])), leader_epoch=0, now_ms=NOW_MS)
    assert refusal(log, build_batch([Record(b"k", b"v"), Record(None, b"v")])) is ErrorCode.INVALID_RECORD


@pytest.mark.parametrize("codec", list(Compression))
@pytest.mark.parametrize("wanted", ["producer", "uncompressed", "gzip", "snappy", "lz4", "zstd"])
def test_compression_type(codec: Compression, wanted: str) -> None:
    log = open_log(Machine().disk, LogConfig(compression_type=wanted))
    values_in = [b"x" * 100, b"y" * 100]
    for _ in range(2):
        append_as_leader(log, memoryview(batch_of(*values_in, compression=codec)))
    batches = read_all(log)
    assert values(batches) == values_in * 2
    assert offsets(batches) == [0, 1, 2, 3]
    names = {"producer": codec, "uncompressed": Compression.NONE}
    for batch in batches:
        assert read_header(batch).compression == names.get(wanted, Compression.__members__.get(wanted.upper()))


def test_garbage_where_the_broker_must_look_inside() -> None:
    log = open_log(Machine().disk, LogConfig(compression_type="gzip"))
    batch = bytearray(batch_of(b"x" * 100, compression=Compression.LZ4))
    batch[61:] = b"\xff" * (len(batch) - 61)
    update_crc(batch)
    assert refusal(log, batch) is ErrorCode.UNKNOWN_SERVER_ERROR


def test_recompression_may_not_exceed_the_limit() -> None:
    batch = batch_of(b"x" * 10_000, compression=Compression.ZSTD)
    log = open_log(Machine().disk, LogConfig(compression_type="uncompressed", max_message_bytes=1000))
    assert refusal(log, batch) is ErrorCode.MESSAGE_TOO_LARGE


def test_raft_and_coordinators_are_trusted_with_more(log: Log) -> None:
    batch = build_batch([Record(b"\0\0\0\2", b"")], base_offset=9, control=True)
    assert refusal(log, bytearray(batch)) is ErrorCode.INVALID_RECORD
    info = log.append_as_leader(memoryview(batch), leader_epoch=0, now_ms=NOW_MS, origin=Origin.RAFT_LEADER)
    assert info.base_offset == 0


def test_a_follower_takes_offsets_as_they_come(log: Log) -> None:
    first, second = batch_of(b"a", base_offset=0, leader_epoch=3), batch_of(b"b", b"c", base_offset=5, leader_epoch=4)
    together = bytearray(bytes(first) + bytes(second) + bytes(batch_of(b"d", base_offset=7))[:-1])
    assert log.append_as_follower(memoryview(together), now_ms=NOW_MS) == 6
    assert log.log_end_offset == 7
    assert offsets(read_all(log)) == [0, 5, 6]
    assert log.leader_epochs.entries == [(3, 0), (4, 5)]
    for start in range(1, 6):
        assert offsets(read_all(log, start)) == [5, 6], "a gap is skipped, or readers would never get over it"


def test_a_follower_refuses_what_does_not_fit(log: Log) -> None:
    log.append_as_follower(batch_of(b"a", base_offset=3), now_ms=NOW_MS)
    with pytest.raises(KafkaError):
        log.append_as_follower(batch_of(b"a", base_offset=3), now_ms=NOW_MS)
    damaged = batch_of(b"a", base_offset=4)
    damaged[-1] ^= 1
    with pytest.raises(KafkaError):
        log.append_as_follower(damaged, now_ms=NOW_MS)
    assert log.log_end_offset == 4


def test_the_watermark_never_goes_back_or_beyond_the_end(log: Log) -> None:
    for value in (b"a", b"b"):
        append(log, value)
    assert log.advance_high_watermark(1)
    assert not log.advance_high_watermark(1)
    assert not log.advance_high_watermark(0)
    assert log.advance_high_watermark(100)
    assert log.high_watermark == 2
    assert not log.advance_high_watermark(101)


def test_offsets_by_timestamp() -> None:
    log = open_log(Machine().disk, LogConfig(segment_bytes=300, index_interval_bytes=0))
    assert at_time(log, 0) is None
    assert log.max_timestamp == NO_TIMESTAMP
    stamps = [10, 30, 20, 40, 40, 5, 50, 45]
    for stamp in stamps:
        log.append_as_leader(
            memoryview(build_batch([Record(timestamp=stamp), Record(timestamp=stamp + 2)])),
            leader_epoch=0,
            now_ms=NOW_MS,
        )
    records = [(stamp + extra, 2 * n + extra // 2) for n, stamp in enumerate(stamps) for extra in (0, 2)]
    for wanted in range(60):
        expected = next(((stamp, offset) for stamp, offset in records if stamp >= wanted), None)
        found = at_time(log, wanted)
        assert (None if found is None else (found.timestamp, found.offset)) == expected
    newest = at_time(log, log.max_timestamp)
    assert newest is not None
    assert (newest.timestamp, newest.offset) == (52, 13)
    log.advance_high_watermark(log.log_end_offset)
    log.delete_records_before(3)
    found = at_time(log, 1)
    assert found is not None
    assert found.offset == 3


def test_a_search_by_time_gets_over_records_that_lie(log: Log) -> None:
    lying = bytearray(batch_of(b"a", b"b", timestamp=10))
    struct.pack_into(">i", lying, 23, 4)  # last offset delta
    struct.pack_into(">i", lying, 57, 5)  # count
    update_crc(lying)
    log.append_as_follower(memoryview(lying), now_ms=NOW_MS)  # As a leader of an older release may have it.
    append(log, b"c", timestamp=10)
    append(log, b"d", timestamp=20)
    for wanted, offset in ((5, 0), (10, 0), (15, 6)):
        found = at_time(log, wanted)
        assert found is not None
        assert found.offset == offset
    lying[61:] = b"\xff" * len(lying[61:])
    update_crc(lying)
    lying[:8] = log.log_end_offset.to_bytes(8)
    log.append_as_follower(memoryview(lying), now_ms=NOW_MS)
    append(log, b"e", timestamp=30)
    found = at_time(log, 25)
    assert found is not None
    assert found.offset == 12


def test_a_full_disk_refuses_and_nothing_has_changed() -> None:
    machine = Machine()
    log = open_log(machine.disk)
    append(log, b"a")
    machine.device.capacity = machine.device.used + 30
    for _ in range(2):
        with pytest.raises(OSError, match="space") as full:
            append(log, b"b")
        assert full.value.errno == errno.ENOSPC
    assert (log.log_end_offset, values(read_all(log))) == (1, [b"a"])
    machine.device.capacity = 1 << 40
    append(log, b"c")
    log.close()
    again = open_log(machine.disk, clean=True, recovery_point=2)
    assert values(read_all(again)) == [b"a", b"c"]


def test_another_topics_directory_is_refused() -> None:
    machine = Machine()
    open_log(machine.disk).close()
    with pytest.raises(KafkaError) as refused:
        open_log(machine.disk, topic_id=Uuid(bytes(16)), clean=True)
    assert refused.value.code is ErrorCode.INCONSISTENT_TOPIC_ID


def _moved(batch: bytes, base_offset: int) -> bytes:
    return struct.pack(">q", base_offset) + batch[8:]
