"""A partition seen by a follower: what to fetch next, and what to do with the answer."""

from __future__ import annotations

from odradek.ids import LeaderEpoch, Offset
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.records.batch import BATCH_HEADER, HEADER_SIZE, BatchHeader
from odradek.replication.truncation import truncation_offset
from odradek.storage.leader_epochs import EpochEnd
from odradek.storage.log import Log
from odradek.values import value


@value
class FetchPosition:
    """Where a follower goes on: what its Fetch says of a partition."""

    fetch_offset: Offset
    last_fetched_epoch: LeaderEpoch
    """Of the last record it has; the leader compares histories by it. -1 if it has none."""
    log_start_offset: Offset


def position_of(log: Log) -> FetchPosition:
    return FetchPosition(log.log_end_offset, log.leader_epochs.latest, log.log_start_offset)


def take(
    log: Log, records: memoryview, fetch_offset: Offset, high_watermark: int, log_start_offset: int, now_ms: int
) -> bool:
    """Append what the leader sent for `fetch_offset` and follow its watermarks; whether its watermark has moved.

    The watermark of a follower is what the leader said last, as far as it holds it: good for consumers that read here
    and as a start should it lead one day, and never a reason to cut anything.
    """
    if fetch_offset != log.log_end_offset:
        return False  # An answer to a question that was asked before the log was cut.
    if records:
        if log.log_start_offset == fetch_offset:
            _start_where_the_batch_does(log, records)
        log.append_as_follower(records, now_ms)
    moved = log.advance_high_watermark(high_watermark)
    if log_start_offset > log.log_start_offset:
        log.delete_records_before(min(log_start_offset, log.high_watermark))
    return moved


def _start_where_the_batch_does(log: Log, records: memoryview) -> None:
    """An empty log that starts inside of a batch (the leader deleted the records before) takes the whole batch."""
    if len(records) < HEADER_SIZE:
        return
    first = BatchHeader(*BATCH_HEADER.unpack_from(records))
    if first.base_offset < log.log_end_offset <= first.last_offset:
        log.truncate_fully_and_start_at(first.base_offset)


def cut_diverged(log: Log, leader: EpochEnd) -> bool:
    """Cut what the leader does not have, by its epochs; whether anything was cut."""
    if leader.epoch < 0 or leader.end_offset < 0:
        raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE, "the leader says that histories differ, but not where")
    return log.truncate_to(truncation_offset(log.leader_epochs, log.log_end_offset, leader))


def cut_to_leader_end(log: Log, leader_end: Offset) -> bool:
    """The leader ends before this log does, and no epoch says more: an election that gave up records (unclean)."""
    return log.truncate_to(leader_end)


def start_at_leader_start(log: Log, leader_start: Offset) -> bool:
    """The leader has deleted what would come next here: start over where it starts."""
    if leader_start <= log.log_end_offset:
        return False
    log.truncate_fully_and_start_at(leader_start)
    return True
