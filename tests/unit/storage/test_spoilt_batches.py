"""What Apache Kafka refuses is refused with the same code, and what it takes is taken, batch by batch.

`tests/compat/test_spoilt_batches.py` sends the same to both over the network, in every version of Produce.
"""

from __future__ import annotations

from collections import Counter

from tests.spoilt.batches import TOPICS, batch, cases, record
from tests.spoilt.record import Answer, recorded
from tests.spoilt.unlike_kafka import expected
from tests.unit.storage.worlds import Machine, append_as_leader, at_time, open_log

from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.records.batch import crc_matches, decode_records, iter_batches, read_header
from odradek.storage.config import LogConfig, log_config
from odradek.storage.log import Log

NOW_MS = 1_795_000_000_000
LATEST_PRODUCE = 13


def spoilt_logs() -> dict[str, Log]:
    machine = Machine()
    return {
        name: open_log(machine.disk, log_config(settings), directory=f"/data/{name}-0", now_ms=NOW_MS)
        for name, settings in TOPICS.items()
    }


def answer_of(log: Log, batch: bytes) -> Answer:
    before = log.log_end_offset, log.size_bytes
    try:
        append_as_leader(log, memoryview(bytearray(batch)), now_ms=NOW_MS)
    except KafkaError as refused:
        assert before == (log.log_end_offset, log.size_bytes)
        return Answer(refused.code, tuple(index for index, _ in refused.record_errors))
    return Answer(ErrorCode.NONE)


def test_answers_are_those_of_apache_kafka() -> None:
    logs = spoilt_logs()
    answers = Counter[int]()
    for case, by_version in recorded():
        if not case.batch:
            continue  # No append: the request itself is refused.
        wanted = expected(case, by_version[LATEST_PRODUCE])
        assert answer_of(logs[case.topic], case.batch) == wanted, case.name
        answers[wanted.code] += 1
    assert min(answers.values()) > 10, answers


def test_whatever_was_taken_can_be_read() -> None:
    for name, log in spoilt_logs().items():
        for case, _ in recorded():
            if case.topic == name and case.batch:
                answer_of(log, case.batch)
        records = log.read(0, 1 << 30, log.log_end_offset, minimum_one=True).records
        batches = records if isinstance(records, bytes) else records.read()
        offsets = [record.offset for batch in iter_batches(batches) for record in decode_records(batch)]
        assert offsets == list(range(log.log_end_offset))


def test_the_recorded_batches_are_those_that_are_made() -> None:
    assert {case.name: case.topic for case in cases()} == {case.name: case.topic for case, _ in recorded()}


def test_who_trusts_all_producers_need_not_look() -> None:
    """Unless a setting of the topic depends on the records."""
    spoilt = batch(record(0, more=1), 1, base_time=NOW_MS, max_time=NOW_MS)
    trusting, compacted, bounded = (
        open_log(Machine().disk, LogConfig(validate_records=False, **more), now_ms=NOW_MS)  # type: ignore[arg-type]
        for more in ({}, {"cleanup_policy": ("compact",)}, {"message_timestamp_before_max_ms": 1_000})
    )
    assert answer_of(trusting, spoilt) == Answer(ErrorCode.NONE)
    assert trusting.append_sole_replica(memoryview(bytearray(spoilt)), 0, NOW_MS) == 1
    too_late = batch(
        record(0), 1, base_time=NOW_MS, max_time=NOW_MS + 2 * trusting.config.message_timestamp_after_max_ms
    )
    assert answer_of(trusting, too_late) == Answer(ErrorCode.INVALID_TIMESTAMP)
    for log in (compacted, bounded):
        assert answer_of(log, spoilt) == Answer(ErrorCode.INVALID_RECORD)


def test_the_largest_timestamp_is_that_of_the_records() -> None:
    log = open_log(Machine().disk, now_ms=NOW_MS)
    for max_time in (NOW_MS + 50, NOW_MS * 2, -1):
        lying = batch(record(0) + record(1, delta=7), 2, base_time=NOW_MS, max_time=max_time)
        assert answer_of(log, lying) == Answer(ErrorCode.NONE)
    records = log.read(0, 1 << 20, log.log_end_offset, minimum_one=True).records
    kept = list(iter_batches(records if isinstance(records, bytes) else records.read()))
    assert [read_header(each).max_timestamp for each in kept] == [NOW_MS + 7] * 3
    assert all(crc_matches(each) for each in kept)
    newest = at_time(log, log.max_timestamp)
    assert newest is not None
    assert (newest.timestamp, newest.offset) == (NOW_MS + 7, 1)
