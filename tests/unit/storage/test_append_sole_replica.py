"""The shortest way into a log does what the long way does, or nothing at all."""

from __future__ import annotations

import random

import pytest
from tests.unit.storage.worlds import NOW_MS, Machine, append, batch_of, open_log, read_all

from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.records.batch import HEADER_SIZE, update_crc
from odradek.protocol.records.compression import Compression
from odradek.storage.config import LogConfig
from odradek.storage.log import NOT_PLAIN, Log


def two_logs(config: LogConfig | None = None) -> tuple[Log, Log]:
    """Both with a batch in them: the first batch of a segment is never plain."""
    logs = open_log(Machine().disk, config), open_log(Machine().disk, config)
    for log in logs:
        append(log, b"first")
    return logs


def append_both(short: Log, long: Log, batch: bytes, *, leader_epoch: int = 0) -> bool:
    """Whether the short way took it; then the long way must have done the same with it."""
    before = state(short)
    base_offset, refused = NOT_PLAIN, ErrorCode.NONE
    try:
        base_offset = short.append_sole_replica(memoryview(bytearray(batch)), leader_epoch, NOW_MS)
    except KafkaError as error:
        refused = error.code
    if refused:
        with pytest.raises(KafkaError) as also_refused:
            long.append_as_leader(memoryview(bytearray(batch)), leader_epoch=leader_epoch, now_ms=NOW_MS)
        assert (also_refused.value.code, state(short)) == (refused, before)
        return True
    if base_offset == NOT_PLAIN:
        assert state(short) == before
        return False
    info = long.append_as_leader(memoryview(bytearray(batch)), leader_epoch=leader_epoch, now_ms=NOW_MS)
    long.advance_high_watermark(long.log_end_offset)
    assert (info.base_offset, info.log_append_time_ms, info.duplicate) == (base_offset, -1, False)
    assert state(short) == state(long)
    assert short.high_watermark == short.log_end_offset
    return True


def state(log: Log) -> object:
    producers = {number: (producer.epoch, producer.batches) for number, producer in log.producers}
    active = log.segments[-1]
    return (
        read_all(log, max(log.log_end_offset - 2, 0)),
        log.size_bytes,
        log.high_watermark,
        log.log_end_offset,
        producers,
        active.max_timestamp,
        active.bytes_since_index_entry,
        log.last_stable_offset,
    )


def test_plain_batches_are_taken() -> None:
    logs = two_logs()
    for codec in Compression:
        assert append_both(*logs, bytes(batch_of(b"a", b"b" * 100, compression=codec)))
    for sequence in range(8):
        assert append_both(*logs, bytes(batch_of(b"a", producer_id=7, producer_epoch=1, base_sequence=sequence)))
    assert logs[0].log_end_offset == 1 + 2 * len(Compression) + 8


def test_headers_of_all_kinds_are_treated_alike() -> None:
    draw = random.Random(3)
    taken = refused = 0
    logs = two_logs()
    for _ in range(3_000):
        batch = bytearray(batch_of(b"a" * draw.randrange(30), producer_id=draw.choice((-1, 7)), base_sequence=0))
        position = draw.randrange(HEADER_SIZE)
        batch[position] = draw.choice((0, 1, 2, 0x7F, 0x80, 0xFF, batch[position] ^ 1))
        if draw.random() < 0.8 and len(batch) > HEADER_SIZE:
            update_crc(batch)
        if append_both(*logs, bytes(batch)):
            taken += 1
        else:
            refused += 1
    assert taken > 300
    assert refused > 300


@pytest.mark.parametrize(
    "config",
    [
        LogConfig(message_timestamp_type="LogAppendTime"),
        LogConfig(compression_type="gzip"),
        LogConfig(cleanup_policy=("compact",)),
        LogConfig(flush_messages=1),
        LogConfig(flush_ms=1),
        LogConfig(max_message_bytes=60),
        LogConfig(segment_bytes=100),
    ],
)
def test_what_a_setting_asks_to_look_at_is_left_alone(config: LogConfig) -> None:
    log = open_log(Machine().disk, LogConfig())
    append(log, b"first")
    assert log.append_sole_replica(batch_of(b"second"), 0, NOW_MS) == 1
    log.config = config
    assert log.append_sole_replica(batch_of(b"third"), 0, NOW_MS) == NOT_PLAIN


def test_what_begins_something_is_left_alone() -> None:
    log = open_log(Machine().disk, LogConfig())
    assert log.append_sole_replica(batch_of(b"first of the segment"), 0, NOW_MS) == NOT_PLAIN
    append(log, b"first of the segment")
    assert log.append_sole_replica(batch_of(b"first of the epoch"), 1, NOW_MS) == NOT_PLAIN
    assert (
        log.append_sole_replica(batch_of(b"later", timestamp=NOW_MS + log.config.segment_ms + 1), 0, NOW_MS)
        == NOT_PLAIN
    )
    transactional = batch_of(b"a", producer_id=1, producer_epoch=0, base_sequence=0, transactional=True)
    assert log.append_sole_replica(transactional, 0, NOW_MS) == NOT_PLAIN
    assert log.log_end_offset == 1


def test_a_duplicate_is_left_to_who_can_tell_where_it_went() -> None:
    logs = two_logs()
    batch = bytes(batch_of(b"a", producer_id=7, producer_epoch=1, base_sequence=0))
    assert append_both(*logs, batch)
    assert not append_both(*logs, batch)


def test_a_failed_write_changes_nothing() -> None:
    machine = Machine(capacity=4_000)
    log = open_log(machine.disk)
    append(log, b"first")
    before = state(log)
    with pytest.raises(OSError, match="No space"):
        log.append_sole_replica(batch_of(b"x" * 4_000), 0, NOW_MS)
    assert state(log) == before
    assert log.append_sole_replica(batch_of(b"second"), 0, NOW_MS) == 1
