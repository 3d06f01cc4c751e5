"""`odradek log verify`: whether log files hold what they say, as a recovery would check, without changing them."""

from __future__ import annotations

import argparse
import os
import struct
from bisect import bisect_left
from typing import Any

from odradek.apps.cli.log_files import base_offsets, partition_directories, read_batches, read_entries, size_of
from odradek.apps.cli.progress import Progress
from odradek.apps.terminal.output import complain, emit, table
from odradek.protocol.errors import KafkaError
from odradek.protocol.records.batch import MAGIC, BatchHeader, crc_matches, decode_records
from odradek.protocol.records.check import verify_records
from odradek.storage import offset_index, time_index
from odradek.storage.file_names import LOG_SUFFIX, OFFSET_INDEX_SUFFIX, TIME_INDEX_SUFFIX, offset_name


def verify(options: argparse.Namespace, path: str) -> int:
    """Every segment below a path; 1 if anything is wrong."""
    directories = partition_directories(path)
    stems = [os.path.join(each, offset_name(base)) for each in directories for base in base_offsets(each)]
    data: list[dict[str, Any]] = []
    with Progress("verifying", sum(size_of(stem + LOG_SUFFIX) for stem in stems), unit="byte") as progress:
        for directory in directories:
            end_offset = 0
            report: dict[str, Any] = {"directory": directory, "segments": 0, "batches": 0, "records": 0, "problems": []}
            for base in base_offsets(directory):
                segment = _Segment(os.path.join(directory, offset_name(base)), base, end_offset)
                segment.check(progress)
                end_offset = segment.end_offset
                report["segments"] += 1
                report["batches"] += len(segment.starts)
                report["records"] += segment.records
                report["problems"] += segment.problems
            data.append(report)
    rows = [
        (each["directory"], each["segments"], each["batches"], each["records"], len(each["problems"]) or "none")
        for each in data
    ]
    emit(options, data, table(("DIRECTORY", "SEGMENTS", "BATCHES", "RECORDS", "PROBLEMS"), rows))
    problems = [problem for each in data for problem in each["problems"]]
    if options.format == "table":
        for problem in problems:
            complain(f"{problem}.")
    return 1 if problems else 0


class _Segment:
    """One segment while it is checked."""

    def __init__(self, stem: str, base_offset: int, previous_end: int) -> None:
        self.problems: list[str] = []
        self.starts: dict[int, BatchHeader] = {}
        """Headers by the positions where batches start."""
        self.records = 0
        self.end_offset = max(base_offset, previous_end)
        self._stem = stem
        self._base_offset = base_offset
        if base_offset < previous_end:
            self._wrong(LOG_SUFFIX, f"begins at {base_offset}, and the segment before ends at {previous_end}")

    def check(self, progress: Progress) -> None:
        try:
            for position, header, batch in read_batches(self._stem + LOG_SUFFIX):
                self._check_batch(position, header, batch)
                progress.advance(header.size)
        except KafkaError as wrong:
            self._wrong(LOG_SUFFIX, wrong.message)
        self._check_offset_index()
        self._check_time_index()

    def _check_batch(self, position: int, header: BatchHeader, batch: bytes) -> None:
        where = f"the batch at position {position}"
        self.starts[position] = header
        if header.magic != MAGIC:
            self._wrong(LOG_SUFFIX, f"{where} has the format {header.magic}, which is not read")
            return
        if not crc_matches(batch):
            self._wrong(LOG_SUFFIX, f"{where} (offset {header.base_offset}) does not match its checksum")
            return
        if header.base_offset < self.end_offset:
            self._wrong(
                LOG_SUFFIX, f"{where} begins at offset {header.base_offset}, and {self.end_offset} was the next"
            )
        try:
            if header.last_offset_delta + 1 == header.records_count:
                verify_records(memoryview(batch), header)
                count = header.records_count
            else:
                count = self._checked_by_offset(where, header, batch)
        except KafkaError as wrong:
            self._wrong(LOG_SUFFIX, f"{where} (offset {header.base_offset}) cannot be read: {wrong.message}")
            return
        self.records += count
        self.end_offset = max(self.end_offset, header.last_offset + 1)

    def _checked_by_offset(self, where: str, header: BatchHeader, batch: bytes) -> int:
        """How many records compaction has left."""
        offsets = [record.offset for record in decode_records(batch)]
        if offsets != sorted(set(offsets)) or (offsets and offsets[-1] > header.last_offset):
            self._wrong(LOG_SUFFIX, f"{where} has records whose offsets are out of order")
        return len(offsets)

    def _check_offset_index(self) -> None:
        """Every entry must lead to the start of a batch that ends at the entry's offset."""
        for offset, position in self._entries(OFFSET_INDEX_SUFFIX, offset_index.ENTRY):
            header = self.starts.get(position)
            if header is None or header.last_offset - self._base_offset != offset:
                wanted = f"offset {self._base_offset + offset} at position {position}"
                self._wrong(OFFSET_INDEX_SUFFIX, f"points to {wanted}, where no such batch is")
                return

    def _check_time_index(self) -> None:
        """Entries ascend, and each names an offset in a batch that has its timestamp as the largest."""
        batches = list(self.starts.values())
        before = (-1, -1)
        for timestamp, offset in self._entries(TIME_INDEX_SUFFIX, time_index.ENTRY):
            if timestamp <= before[0] or offset < before[1]:
                self._wrong(TIME_INDEX_SUFFIX, "has entries that do not ascend")
                return
            before = (timestamp, offset)
            at = bisect_left(batches, self._base_offset + offset, key=lambda header: header.last_offset)
            if at == len(batches) or batches[at].max_timestamp != timestamp:
                claimed = f"offset {self._base_offset + offset} the timestamp {timestamp}"
                self._wrong(TIME_INDEX_SUFFIX, f"gives {claimed}, which it has not")
                return

    def _entries(self, suffix: str, entry: struct.Struct) -> list[tuple[int, ...]]:
        if not os.path.exists(self._stem + suffix):
            return []
        entries, torn = read_entries(self._stem + suffix, entry)
        if torn:
            self._wrong(suffix, f"has {torn} bytes at its end that are no entry")
        return entries

    def _wrong(self, suffix: str, what: str) -> None:
        self.problems.append(f"{self._stem}{suffix} {what}")
