"""One cleaning of one log, as the log's own thread sees it: what to do, and the result put in its place."""

from __future__ import annotations

from collections.abc import Sequence

from odradek.ports import Disk
from odradek.storage.compaction.choice import Cleanable
from odradek.storage.compaction.cleaned_segment import discard_cleaned
from odradek.storage.compaction.cleaning import CleanedGroup
from odradek.storage.compaction.plan import CleaningPlan, LastOfProducer, Source
from odradek.storage.log import Log
from odradek.storage.segment import Segment


class CleaningRound:
    """Made when the cleaning begins; holds on to the segments it began with, so that no others are ever replaced."""

    def __init__(self, log: Log, what: Cleanable, now_ms: int) -> None:
        self._log = log
        self._cuts = log.cuts
        self._directory = log.directory
        sealed = [segment for segment in log.segments[:-1] if segment.base_offset < what.end_offset]
        self._by_base = {segment.base_offset: segment for segment in sealed}
        self.plan = CleaningPlan(
            directory=log.directory,
            config=log.config,
            sources=tuple(_sources(sealed, what.end_offset)),
            first_dirty_offset=what.first_dirty_offset,
            aborted=tuple(log.aborted_transactions(log.segments[0].base_offset, what.end_offset)),
            producers={
                producer_id: LastOfProducer(producer.kept[-1][3] if producer.kept else None, producer.epoch)
                for producer_id, producer in log.producers
            },
            now_ms=now_ms,
        )

    @property
    def is_void(self) -> bool:
        """Whether what was learnt of the log does not hold any more: it was cut, or is on its way out, or shall keep
        everything."""
        log = self._log
        return log.cuts != self._cuts or log.directory != self._directory or not log.config.compacted

    def replace(self, disk: Disk, cleaned: CleanedGroup, now_ms: int) -> bool:
        """Let the log go on with what was cleaned; False if it has changed meanwhile, and the files are gone then."""
        if not self.is_void:
            old = [self._by_base[base] for base in cleaned.replaced]
            try:
                if self._log.replace_segments(old, size=cleaned.size, now_ms=now_ms):
                    return True
            except OSError:
                discard_cleaned(disk, self._directory, cleaned.base_offset)
                raise
        discard_cleaned(disk, self._directory, cleaned.base_offset)
        return False


def _sources(sealed: Sequence[Segment], end_offset: int) -> list[Source]:
    """Each ends where the next one begins; the last one where what may be cleaned does."""
    ends = [*(segment.base_offset for segment in sealed[1:]), end_offset]
    return [
        Source(segment.base_offset, end, segment.path, segment.size) for segment, end in zip(sealed, ends, strict=False)
    ]
