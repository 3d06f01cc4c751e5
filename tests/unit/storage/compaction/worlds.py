"""What the tests of compaction share: keyed records, a whole cleaning at once, and a reader as clients have it."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

from tests.unit.storage.worlds import NOW_MS, content

from odradek.ports import Disk
from odradek.protocol.records.batch import build_batch, decode_records, iter_batches, read_header
from odradek.protocol.records.control import read_end_txn_marker
from odradek.protocol.records.record import Record
from odradek.storage.compaction import cleaning
from odradek.storage.compaction.choice import cleanable
from odradek.storage.compaction.cleaning import Cleaned, Slice
from odradek.storage.compaction.round import CleaningRound
from odradek.storage.config import LogConfig
from odradek.storage.log import AppendInfo, Log

COMPACTED = LogConfig(cleanup_policy=("compact",), segment_bytes=300, index_interval_bytes=100, file_delete_delay_ms=10)

Pair = tuple[bytes | None, bytes | None]
Found = tuple[int, bytes | None, bytes | None]
"""Offset, key, value."""


def put(log: Log, *pairs: Pair, timestamp: int = NOW_MS, now_ms: int = NOW_MS, **options: Any) -> AppendInfo:
    """Append one batch of these keys and values."""
    batch = build_batch([Record(*pair) for pair in pairs], timestamp=timestamp, **options)
    return log.append_as_leader(memoryview(batch), leader_epoch=0, now_ms=now_ms)


def settle(log: Log) -> None:
    """All of it is committed and on the device."""
    log.advance_high_watermark(log.log_end_offset)
    work = log.flush_work()
    work()
    log.flushed(work.offset)


def begin(
    log: Log, disk: Disk, *, now_ms: int = NOW_MS, dedupe_bytes: int = 1 << 20, slice_bytes: int = 200
) -> tuple[CleaningRound, Generator[Slice, None, None]]:
    cleaning_round = CleaningRound(log, cleanable(log, now_ms), now_ms)
    return cleaning_round, cleaning.clean(
        disk, plan=cleaning_round.plan, dedupe_bytes=dedupe_bytes, load_factor=1.0, slice_bytes=slice_bytes
    )


def clean(log: Log, disk: Disk, *, now_ms: int = NOW_MS, **options: Any) -> Cleaned:
    """One whole round over everything that may be cleaned."""
    cleaning_round, slices = begin(log, disk, now_ms=now_ms, **options)
    done: Cleaned | None = None
    for each in slices:
        if each.group is not None:
            assert cleaning_round.replace(disk, each.group, now_ms)
        done = each.round
    assert done is not None
    log.cleaned_offset = done.end_offset
    return done


def committed(log: Log) -> list[Found]:
    """What a consumer at read_committed gets, who filters as clients do."""
    offset, end_offset = log.log_start_offset, log.last_stable_offset
    found: list[Found] = []
    aborting: dict[int, None] = {}
    while offset < end_offset:
        read = log.read(offset, max_bytes=200, end_offset=end_offset, minimum_one=True)
        aborted = sorted(log.aborted_in(offset, read), key=lambda each: each.first_offset)
        batches = list(iter_batches(content(read.records)))
        if not batches:
            break
        for batch in batches:
            header = read_header(batch)
            while aborted and aborted[0].first_offset <= header.last_offset:
                aborting[aborted.pop(0).producer_id] = None
            if header.is_control:
                marker = read_end_txn_marker(batch)
                if marker is not None and not marker.committed:
                    aborting.pop(header.producer_id, None)
            elif not (header.is_transactional and header.producer_id in aborting):
                found += [(each.offset, each.key, each.value) for each in decode_records(batch)]
        offset = read_header(batches[-1]).last_offset + 1
    return found


def table(records: list[Found]) -> dict[bytes | None, bytes]:
    """What the records amount to: of every key the last value, unless that is none."""
    last = {key: value for _, key, value in records}
    return {key: value for key, value in last.items() if value is not None}
