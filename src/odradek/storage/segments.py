"""All segments of one log, in the order of their offsets."""

from __future__ import annotations

from bisect import bisect_right

from odradek.ports import Disk
from odradek.storage.config import LogConfig
from odradek.storage.deletion import Deletions
from odradek.storage.file_names import snapshot_path
from odradek.storage.segment import Segment


class Segments:
    """At least one segment; the last is active, all others are sealed."""

    __slots__ = (
        "_bases",
        "_deletions",
        "_directory",
        "_disk",
        "_marked_offset",
        "_marked_position",
        "_marked_segment",
        "_sealed_bytes",
        "active",
        "all",
        "cuts",
    )

    def __init__(self, disk: Disk, directory: str, segments: list[Segment]) -> None:
        self._disk = disk
        self._directory = directory
        self.all = segments
        self.cuts = 0
        """How often batches were cut off, or all of them dropped, since it was opened."""
        self.active = segments[-1]
        self._bases = [segment.base_offset for segment in segments]
        self._sealed_bytes = sum(segment.size for segment in segments[:-1])
        self._deletions = Deletions(disk)
        self._marked_offset = -1
        self._marked_segment: Segment | None = None
        self._marked_position = 0

    @property
    def size_bytes(self) -> int:
        return self._sealed_bytes + self.active.size

    @property
    def first_offset(self) -> int:
        return self._bases[0]

    def number_of(self, offset: int) -> int:
        """Which segment holds this offset, or would."""
        bases = self._bases
        if offset >= bases[-1]:
            return len(bases) - 1
        return max(bisect_right(bases, offset) - 1, 0)

    def mark(self, offset: int) -> None:
        """Remember where this offset is once a read has ended there, as many will: it is the high watermark."""
        self._marked_segment = None
        self._marked_offset = offset

    def mark_end(self, offset: int) -> None:
        """As `mark`, for the offset behind the last batch."""
        self._marked_segment = self.active
        self._marked_position = self.active.size
        self._marked_offset = offset

    def find(
        self, start_offset: int, max_bytes: int, end_offset: int, minimum_one: bool
    ) -> tuple[Segment, int, int] | None:
        """Segment, position and end of the batches that a read shall get; None if there are none for it."""
        number = self.number_of(start_offset)
        while number < len(self.all):
            segment = self.all[number]
            position, first_size = segment.locate(start_offset)
            if first_size:
                end = self._end_position(number, segment, end_offset)
                if end - position > max_bytes:
                    if first_size <= max_bytes:
                        end = segment.boundary_at_most(position + max_bytes, floor=position + first_size)
                    else:
                        end = position + first_size if minimum_one else position
                return (segment, position, end) if end > position else None
            number += 1  # A gap reaches to the end of the segment.
        return None

    def start(self, base_offset: int, config: LogConfig, now_ms: int, *, with_indexes: bool = True) -> None:
        """Seal the active segment and make an empty one after it; `with_indexes` unless it is deleted next."""
        segment = Segment(self._disk, self._directory, base_offset, size=0, now_ms=now_ms, config=config)
        self.active.give_back_room()
        # The indexes come first: a disk that is full must not leave the file of a segment that never began.
        if with_indexes:
            self.active.maybe_write_indexes()
        segment.create()
        if with_indexes:
            self.active.use_index_files()
        self._sealed_bytes += self.active.size
        self._add(segment)

    def start_over(self, base_offset: int, config: LogConfig, now_ms: int) -> None:
        """Delete all segments and make an empty one."""
        self.cuts += 1
        self._drop(0, len(self.all), now_ms + config.file_delete_delay_ms)
        segment = Segment(self._disk, self._directory, base_offset, size=0, now_ms=now_ms, config=config)
        segment.create()
        self._sealed_bytes = 0
        self._add(segment)

    def drop_first(self, count: int, *, deadline_ms: int) -> None:
        """Delete the oldest ones; their files can be read until the deadline."""
        self._drop(0, count, deadline_ms)

    def truncate(self, offset: int, *, deadline_ms: int) -> int:
        """Cut everything from this offset on, which some segment must hold; the offset behind what is left."""
        self.cuts += 1
        keep = bisect_right(self._bases, offset)
        if keep < len(self.all):
            self._drop(keep, len(self.all), deadline_ms, newest_first=True)
            self.active = self.all[-1]
            self._sealed_bytes -= self.active.size
            self.active.activate()
        return self.active.truncate(offset)

    def purge_deleted(self, now_ms: int) -> int | None:
        """Unlink files whose deadline is over; when the next ones are due."""
        return self._deletions.purge(now_ms)

    def moved(self, directory: str) -> None:
        """The directory has been renamed."""
        self._directory = directory
        for segment in self.all:
            segment.moved(directory)

    def close(self) -> None:
        for segment in self.all:
            segment.close()
        self._deletions.close()

    def _end_position(self, number: int, segment: Segment, end_offset: int) -> int:
        """Where in this segment the batches below `end_offset` end."""
        if end_offset == self._marked_offset and segment is self._marked_segment:
            return self._marked_position
        if number + 1 < len(self._bases) and self._bases[number + 1] <= end_offset:
            return segment.size
        position, _ = segment.locate(end_offset)
        if end_offset == self._marked_offset:
            self._marked_segment = segment
            self._marked_position = position
        return position

    def _add(self, segment: Segment) -> None:
        self.all.append(segment)
        self._bases.append(segment.base_offset)
        self.active = segment

    def _drop(self, start: int, end: int, deadline_ms: int, *, newest_first: bool = False) -> None:
        """In the order that never leaves a hole: a crash may come between any two of them."""
        for segment in self.all[start:end][:: -1 if newest_first else 1]:
            snapshot = snapshot_path(self._directory, segment.base_offset)
            self._deletions.add(segment, [snapshot] if self._disk.exists(snapshot) else [], deadline_ms)
            if segment is not self.active:
                self._sealed_bytes -= segment.size
        del self.all[start:end]
        del self._bases[start:end]
