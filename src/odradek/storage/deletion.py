"""Files that are deleted for the log but may still be read by someone: renamed at once, unlinked later."""

from __future__ import annotations

from contextlib import suppress

from odradek.ports import Disk
from odradek.storage.file_names import DELETED_SUFFIX
from odradek.storage.segment import Segment


class Deletions:
    """Segments on their way out, the oldest deadline first."""

    __slots__ = ("_disk", "_waiting")

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self._waiting: list[tuple[int, list[str], Segment]] = []

    def add(self, segment: Segment, extra_paths: list[str], deadline_ms: int) -> None:
        """Rename a segment's files out of the log's way; readers that have them open keep them until the deadline."""
        segment.deleted = True
        renamed = []
        for path in [*segment.paths(), *extra_paths]:
            self._disk.rename(path, path + DELETED_SUFFIX)
            renamed.append(path + DELETED_SUFFIX)
        self.renamed(segment, renamed, deadline_ms)

    def renamed(self, segment: Segment, paths: list[str], deadline_ms: int) -> None:
        """The same for one whose files have these names already."""
        self._waiting.append((deadline_ms, paths, segment))

    def purge(self, now_ms: int) -> int | None:
        """Unlink what is due; the next deadline, if there is one."""
        while self._waiting and self._waiting[0][0] <= now_ms:
            _, paths, segment = self._waiting.pop(0)
            for path in paths:
                with suppress(FileNotFoundError):  # A later segment of the same name, deleted as well, took its place.
                    self._disk.unlink(path)
            segment.close()
        return self._waiting[0][0] if self._waiting else None

    def close(self) -> None:
        """Let go of the files; the next start removes what is left of them."""
        for _, _, segment in self._waiting:
            segment.close()
        self._waiting.clear()
