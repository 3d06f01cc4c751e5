"""What has to reach the device, as a job for a worker thread."""

from __future__ import annotations

from odradek.ports import Disk
from odradek.storage.checkpoints import sync_file
from odradek.storage.leader_epochs import LeaderEpochs
from odradek.storage.segment import Segment
from odradek.storage.segments import Segments
from odradek.values import value


@value
class FlushWork:
    """Sync segments and what lies beside them; touches nothing that the log's own thread changes."""

    disk: Disk
    directory: str
    segments: list[Segment]
    log: Segments
    end_offset: int
    """The end of the log when the work was made,"""
    cuts: int
    """and how often it had been cut by then."""
    epochs: LeaderEpochs
    epochs_content: bytes | None
    """What is to be written to the leader epochs' file, if anything."""
    files: list[str]
    """Other files that have changed."""
    names_changed: bool
    """Whether files came or went since the last time."""

    @property
    def offset(self) -> int:
        """All below this is on the device once the work is done, for the log's own thread to ask then.

        Nothing, if the log was cut meanwhile: what has come in place of what was cut may not be synced.
        """
        return self.end_offset if self.log.cuts == self.cuts else 0

    def __call__(self) -> None:
        """Block until all is on the device; OSError if it cannot be."""
        for segment in self.segments:
            segment.sync()
        for path in self.files:
            sync_file(self.disk, path)
        if self.epochs_content is not None:
            self.epochs.save_durably(self.epochs_content)
        if self.names_changed:
            self.disk.sync_directory(self.directory)
            self.disk.sync_directory(self.directory.rpartition("/")[0])
