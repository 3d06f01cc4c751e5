"""A follower's log becomes what the leader's is, however its batches come together, or stays as it was."""

from __future__ import annotations

import random
import struct

import pytest
from tests.unit.storage.worlds import DIRECTORY, NOW_MS, Machine, append, batch_of, content, offsets, open_log, read_all

from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.records.batch import ATTRIBUTES_POSITION, HEADER_SIZE, read_header, update_crc
from odradek.protocol.records.control import EndTxnMarker, end_txn_batch
from odradek.storage.config import LogConfig
from odradek.storage.log import Log
from odradek.storage.validation import Origin

CONFIG = LogConfig(segment_bytes=2_000, index_interval_bytes=150, segment_ms=40)


def lead(log: Log, chance: random.Random, count: int) -> None:
    """Append a history with everything in it: producers, transactions and their ends, epochs, times that jump."""
    sequences = {7: 0, 8: 0}
    for number in range(count):
        timestamp = NOW_MS + 2 * number + chance.choice((0, 0, -5, 30))
        epoch = number // 30
        producer_id = chance.choice((-1, 7, 8))
        if producer_id < 0:
            append(log, *[b"x" * chance.randrange(60)] * chance.randint(1, 3), timestamp=timestamp, leader_epoch=epoch)
        elif producer_id == 8 and chance.random() < 0.3:
            marker = end_txn_batch(
                EndTxnMarker(committed=chance.random() < 0.5, coordinator_epoch=0),
                producer_id=8,
                producer_epoch=0,
                timestamp=timestamp,
            )
            log.append_as_leader(memoryview(marker), leader_epoch=epoch, now_ms=NOW_MS, origin=Origin.COORDINATOR)
        else:
            append(
                log,
                b"y" * chance.randrange(60),
                timestamp=timestamp,
                leader_epoch=epoch,
                producer_id=producer_id,
                producer_epoch=0,
                base_sequence=sequences[producer_id],
                transactional=producer_id == 8,
            )
            sequences[producer_id] += 1


def files(machine: Machine) -> dict[str, bytes]:
    return {name: machine.disk.read_file(f"{DIRECTORY}/{name}") for name in machine.disk.list(DIRECTORY)}


@pytest.mark.parametrize("seed", range(5))
def test_a_follower_has_the_leaders_files(seed: int) -> None:
    """Whether batches come alone or together, and with half of another behind them: not a byte is different."""
    chance = random.Random(seed)
    leading, following = Machine(), Machine()
    leader, follower = open_log(leading.disk, CONFIG), open_log(following.disk, CONFIG)
    lead(leader, chance, 120)
    left = read_all(leader)
    while left:
        count = chance.randint(0, 6)
        together = b"".join(left[:count]) + b"".join(left[count : count + 1])[: chance.randrange(HEADER_SIZE + 6)]
        follower.append_as_follower(memoryview(together), now_ms=NOW_MS)
        del left[:count]
    assert len(follower.segments) > 5
    assert follower.log_end_offset == leader.log_end_offset
    assert {number: (held.epoch, held.batches) for number, held in follower.producers} == {
        number: (held.epoch, held.batches) for number, held in leader.producers
    }
    assert follower.producers.first_unstable_offset == leader.producers.first_unstable_offset
    leader.close()
    follower.close()
    assert files(following) == files(leading)


def changed(batch: memoryview, position: int, form: str, value: int) -> bytes:
    """The batch with another number in its header, and the checksum right again."""
    copy = bytearray(batch)
    struct.pack_into(form, copy, position, value)
    update_crc(copy)
    return bytes(copy)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (changed(batch_of(b"b", base_offset=2), 0, ">q", 1), "does not follow on 2"),
        (changed(batch_of(b"b", base_offset=2), ATTRIBUTES_POSITION + 2, ">i", -1), "does not follow on 2"),
        (changed(batch_of(b"b", base_offset=2), 16, ">B", 1), "is damaged"),
        (bytes(batch_of(b"b", base_offset=2))[:-1] + b"\1", "is damaged"),
        (changed(batch_of(b"b", base_offset=2), 8, ">i", HEADER_SIZE - 13), "smaller than a header"),
        (changed(batch_of(b"b", base_offset=2), 8, ">i", -1_000), "smaller than a header"),
    ],
)
def test_one_wrong_batch_and_none_is_taken(wrong: bytes, said: str) -> None:
    log = open_log(Machine().disk)
    log.append_as_follower(batch_of(b"a", base_offset=0), now_ms=NOW_MS)
    together = bytes(batch_of(b"c", base_offset=1, producer_id=7, producer_epoch=0, base_sequence=0)) + wrong
    with pytest.raises(KafkaError, match=said) as refused:
        log.append_as_follower(memoryview(together), now_ms=NOW_MS)
    assert refused.value.code is ErrorCode.CORRUPT_MESSAGE
    assert (log.log_end_offset, len(log.producers), offsets(read_all(log))) == (1, 0, [0])


@pytest.mark.parametrize("seed", range(3))
def test_reads_end_at_the_watermark_wherever_it_is(seed: int) -> None:
    """In the active segment or a sealed one, at once or later, also after what lay there was cut and written anew."""
    chance = random.Random(seed)
    log = open_log(Machine().disk, CONFIG)
    ends = [0]
    for _ in range(150):
        append(log, *[b"x" * chance.randrange(200)] * chance.randint(1, 4))
        ends.append(log.log_end_offset)
        if chance.random() < 0.1:
            log.truncate_to(chance.choice(ends[-9:]))
            ends = [end for end in ends if end <= log.log_end_offset]
        if chance.random() < 0.5:
            log.advance_high_watermark(chance.choice(ends))
        for start in (chance.choice(ends), *[end for end in ends if end < log.high_watermark][-2:]):
            found = read_all(log, start, end=log.high_watermark)
            last = [read_header(batch).last_offset + 1 for batch in found]
            assert last == [end for end in ends if start < end <= log.high_watermark]


@pytest.mark.parametrize("seed", range(3))
def test_what_followers_read_is_what_anyone_reads_up_to_the_end(seed: int) -> None:
    chance = random.Random(seed)
    log = open_log(Machine().disk, CONFIG)
    for _ in range(60):
        append(log, *[b"x" * chance.randrange(200)] * chance.randint(1, 4))
        log.advance_high_watermark(log.log_end_offset - chance.randint(0, 5))
        if chance.random() < 0.1:
            log.delete_records_before(chance.randint(log.log_start_offset, log.high_watermark))
        for start in (*range(log.log_end_offset - 12, log.log_end_offset + 2), chance.randint(-1, log.log_end_offset)):
            max_bytes, minimum_one = chance.choice((0, 100, 700, 1 << 20)), chance.random() < 0.5
            if log.log_start_offset <= start <= log.log_end_offset:
                read = log.read(start, max_bytes, log.log_end_offset, minimum_one).records
                assert content(log.read_to_end(start, max_bytes, minimum_one)) == content(read)
            else:
                with pytest.raises(KafkaError) as refused:
                    log.read_to_end(start, max_bytes, minimum_one)
                assert refused.value.code is ErrorCode.OFFSET_OUT_OF_RANGE
