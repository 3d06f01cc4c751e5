"""All segments of one log, in the order of their offsets."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence

from odradek.ports import Disk
from odradek.storage.config import LogConfig
from odradek.storage.deletion import Deletions
from odradek.storage.file_names import CLEANED_SUFFIX, DELETED_SUFFIX, SWAP_SUFFIX, snapshot_path
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

    def replace(self, old: Sequence[Segment], cleaned: Segment, *, deadline_ms: int) -> bool:
        """Put a segment that compaction has made in the place of those it was made from; False if not all are here.

        Its files are complete, on the device, and end in `.cleaned`. Whoever reads the old ones may finish until the
        deadline. A crash between any two steps leaves what the next start undoes, up to the first rename, or completes;
        an error undoes them.
        """
        first = next((number for number, segment in enumerate(self.all) if segment is old[0]), None)
        if first is None or self.active in old or not _are_the_same(self.all[first : first + len(old)], old):
            return False
        paths = [path for path in cleaned.possible_paths() if self._disk.exists(path + CLEANED_SUFFIX)]
        outdated = [segment.paths() for segment in old]
        for segment, its_paths in zip(old[1:], outdated[1:], strict=True):  # The first one's is that of the new one.
            snapshot = snapshot_path(self._directory, segment.base_offset)
            its_paths += [snapshot] if self._disk.exists(snapshot) else []
        renames = [(path + CLEANED_SUFFIX, path + SWAP_SUFFIX) for path in paths]
        renames += [(path, path + DELETED_SUFFIX) for its_paths in outdated for path in its_paths]
        renames += [(path + SWAP_SUFFIX, path) for path in paths]
        for segment in old:
            segment.deleted = True  # Before, for the sake of a worker that syncs it.
        try:
            self._rename_all(renames)
        except OSError:
            for segment in old:
                segment.deleted = False
            raise
        for segment, its_paths in zip(old, outdated, strict=True):
            self._deletions.renamed(segment, [path + DELETED_SUFFIX for path in its_paths], deadline_ms)
        cleaned.use_index_files()
        self.all[first : first + len(old)] = [cleaned]
        self._bases[first : first + len(old)] = [cleaned.base_offset]
        self._sealed_bytes += cleaned.size - sum(segment.size for segment in old)
        self._marked_segment = None
        return True

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

    def _rename_all(self, renames: list[tuple[str, str]]) -> None:
        """In this order; all of them, or none if there is an error."""
        done: list[tuple[str, str]] = []
        try:
            for before, after in renames:
                self._disk.rename(before, after)
                done.append((before, after))
        except OSError:
            for before, after in reversed(done):
                self._disk.rename(after, before)
            raise

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


def _are_the_same(some: Sequence[Segment], others: Sequence[Segment]) -> bool:
    return len(some) == len(others) and all(one is other for one, other in zip(some, others, strict=True))
