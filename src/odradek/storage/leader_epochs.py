"""Which leader epoch started at which offset: by which histories are compared (KIP-101)."""

from __future__ import annotations

from bisect import bisect_right

from odradek.ids import NO_EPOCH, NO_OFFSET, LeaderEpoch, Offset
from odradek.ports import Disk
from odradek.storage.checkpoints import checkpoint_bytes, read_checkpoint, replace_file
from odradek.values import value


@value
class EpochEnd:
    """Where an epoch ended in a log: the offset behind its last record."""

    epoch: LeaderEpoch
    end_offset: Offset


class LeaderEpochs:
    """Epochs and their first offsets, both ascending.

    `leader-epoch-checkpoint` is written when the log is flushed, truncated and closed, and not when an epoch begins: a
    node that starts would have to replace the file in every partition it leads. A crash loses nothing by it, since the
    batches that were not flushed are read again, and they carry their epochs.
    """

    __slots__ = ("_disk", "_epochs", "_path", "_saved", "_starts", "latest")

    def __init__(self, disk: Disk, path: str, entries: list[tuple[int, int]]) -> None:
        self._disk = disk
        self._path = path
        self._epochs: list[int] = []
        self._starts: list[int] = []
        self._saved = _content(entries)
        self.latest = NO_EPOCH
        """The newest epoch, -1 if there is none: an attribute since every append looks at it."""
        for epoch, start in entries:
            if epoch > self.latest and (not self._starts or start > self._starts[-1]):
                self._epochs.append(epoch)
                self._starts.append(start)
                self.latest = LeaderEpoch(epoch)

    @classmethod
    def load(cls, disk: Disk, path: str) -> LeaderEpochs:
        return cls(disk, path, read_checkpoint(disk, path, _entry))

    @property
    def entries(self) -> list[tuple[int, int]]:
        """(epoch, first offset), oldest first."""
        return list(zip(self._epochs, self._starts, strict=True))

    def assign(self, epoch: int, start_offset: int) -> None:
        """The batches from this offset on are of this epoch; entries that contradict it go."""
        if epoch < 0 or (self._epochs and epoch == self.latest and start_offset >= self._starts[-1]):
            return
        keep = len(self._epochs)
        while keep and (self._epochs[keep - 1] >= epoch or self._starts[keep - 1] >= start_offset):
            keep -= 1
        self._keep([*self._epochs[:keep], epoch], [*self._starts[:keep], start_offset])

    def end_offset_for(self, epoch: int, log_end_offset: int) -> EpochEnd:
        """The largest epoch not above the one asked for, and the offset where it ended; -1 and -1 if unknown."""
        if epoch < 0 or not self._epochs or epoch > self.latest:
            return EpochEnd(NO_EPOCH, NO_OFFSET)
        if epoch == self.latest:
            return _end(epoch, log_end_offset)
        following = bisect_right(self._epochs, epoch)
        if following == 0:
            return _end(epoch, self._starts[0])
        return _end(self._epochs[following - 1], self._starts[following])

    def epoch_for_offset(self, offset: int) -> LeaderEpoch:
        """The epoch of the record with this offset; -1 if it is older than all entries."""
        found = bisect_right(self._starts, offset) - 1
        return LeaderEpoch(self._epochs[found]) if found >= 0 else NO_EPOCH

    def truncate_from_end(self, end_offset: int) -> None:
        """The log ends here now."""
        count = len(self._starts)
        while count and self._starts[count - 1] >= end_offset:
            count -= 1
        if count != len(self._starts):
            self._keep(self._epochs[:count], self._starts[:count])

    def truncate_from_start(self, start_offset: int) -> None:
        """The log starts here now; the epoch of its first record keeps an entry."""
        first = bisect_right(self._starts, start_offset) - 1
        if first < 0 or (first == 0 and self._starts[0] == start_offset):
            return
        self._keep(self._epochs[first:], [start_offset, *self._starts[first + 1 :]])

    def clear(self) -> None:
        if self._epochs:
            self._keep([], [])

    def moved(self, path: str) -> None:
        self._path = path

    def unsaved(self, log_end_offset: int) -> bytes | None:
        """What the file should hold, if it does not: the epochs that have records."""
        content = _content([entry for entry in self.entries if entry[1] < log_end_offset])
        return None if content == self._saved else content

    def save(self, log_end_offset: int) -> None:
        """Write the file if need be, without a sync."""
        content = self.unsaved(log_end_offset)
        if content is not None:
            replace_file(self._disk, self._path, content, durable=False)
            self._saved = content

    def save_durably(self, content: bytes) -> None:
        """Write the file and wait for the device: from a worker thread, so by a temporary file of its own."""
        replace_file(self._disk, self._path, content, durable=True, via=".flush.tmp")
        self._saved = content

    def _keep(self, epochs: list[int], starts: list[int]) -> None:
        self._epochs, self._starts = epochs, starts
        self.latest = LeaderEpoch(epochs[-1]) if epochs else NO_EPOCH


def _content(entries: list[tuple[int, int]]) -> bytes:
    return checkpoint_bytes(f"{epoch} {start}" for epoch, start in entries)


def _end(epoch: int, end_offset: int) -> EpochEnd:
    return EpochEnd(LeaderEpoch(epoch), Offset(end_offset))


def _entry(words: list[str]) -> tuple[int, int]:
    epoch, start = words
    return int(epoch), int(start)
