"""The segment that a cleaning writes: its files, under names that no log takes for its own until they are complete."""

from __future__ import annotations

from contextlib import suppress

from odradek.ids import NO_OFFSET, NO_TIMESTAMP
from odradek.ports import Disk
from odradek.protocol.records.batch import BatchHeader
from odradek.storage.checkpoints import sync_file
from odradek.storage.file_names import (
    CLEANED_SUFFIX,
    LOG_SUFFIX,
    OFFSET_INDEX_SUFFIX,
    SEGMENT_SUFFIXES,
    TIME_INDEX_SUFFIX,
    TXN_INDEX_SUFFIX,
    offset_name,
)
from odradek.storage.offset_index import OffsetIndex
from odradek.storage.time_index import TimeIndex
from odradek.storage.txn_index import AbortedTxn, TxnIndex


class CleanedSegment:
    """Batches that stay, in `.cleaned` files."""

    def __init__(self, disk: Disk, directory: str, base_offset: int, *, index_interval_bytes: int) -> None:
        self._disk = disk
        self._directory = directory
        self._base_offset = base_offset
        discard_cleaned(disk, directory, base_offset)  # Of a cleaning that was given up, perhaps.
        self._file = disk.open(self._path(LOG_SUFFIX), create=True)
        self._index_interval_bytes = index_interval_bytes
        self._since_index_entry = 0
        self._offsets = OffsetIndex(base_offset)
        self._times = TimeIndex(base_offset)
        self._txns = TxnIndex(disk, self._path(TXN_INDEX_SUFFIX))
        self._max_timestamp, self._max_timestamp_offset = NO_TIMESTAMP, int(NO_OFFSET)
        self._unwritten: list[bytes | bytearray | memoryview] = []
        self._written = 0
        self.size = 0

    def append(self, header: BatchHeader, batch: bytes | bytearray | memoryview) -> None:
        """Put a batch behind the last one, and index it if it is time to, as a segment does while it is active."""
        if header.max_timestamp > self._max_timestamp:
            self._max_timestamp, self._max_timestamp_offset = header.max_timestamp, header.last_offset
        if self._since_index_entry > self._index_interval_bytes:
            self._since_index_entry = 0
            self._offsets.offsets.append(header.last_offset - self._offsets.base_offset)
            self._offsets.positions.append(self.size)
            self._note_timestamp()
        self._since_index_entry += len(batch)
        self._unwritten.append(batch)
        self.size += len(batch)

    def append_aborted(self, aborted: AbortedTxn) -> None:
        """The transaction index goes on telling of it."""
        self._txns.append(aborted)

    def write(self) -> int:
        """Write what was appended since the last time; how many bytes."""
        count = self.size - self._written
        if count:
            self._file.write(b"".join(self._unwritten), self._written)
            self._written = self.size
            self._unwritten.clear()
        return count

    def finish(self) -> None:
        """Write everything and come back when it is on the device."""
        self.write()
        self._note_timestamp()
        self._file.sync()
        self._file.close()
        self._disk.write_file(self._path(OFFSET_INDEX_SUFFIX), self._offsets.to_bytes())
        self._disk.write_file(self._path(TIME_INDEX_SUFFIX), self._times.to_bytes())
        for suffix in (OFFSET_INDEX_SUFFIX, TIME_INDEX_SUFFIX):
            sync_file(self._disk, self._path(suffix))
        self._txns.sync()

    def give_up(self) -> None:
        """Leave nothing behind."""
        with suppress(OSError):
            self._file.close()
        discard_cleaned(self._disk, self._directory, self._base_offset)

    def _note_timestamp(self) -> None:
        if self._max_timestamp_offset != NO_OFFSET:
            self._times.maybe_append(self._max_timestamp, self._max_timestamp_offset)

    def _path(self, suffix: str) -> str:
        return _cleaned_path(self._directory, self._base_offset, suffix)


def discard_cleaned(disk: Disk, directory: str, base_offset: int) -> None:
    """Remove what a cleaning has written, as far as it got; the next start would."""
    for suffix in SEGMENT_SUFFIXES:
        with suppress(OSError):
            disk.unlink(_cleaned_path(directory, base_offset, suffix))


def _cleaned_path(directory: str, base_offset: int, suffix: str) -> str:
    return f"{directory}/{offset_name(base_offset)}{suffix}{CLEANED_SUFFIX}"
