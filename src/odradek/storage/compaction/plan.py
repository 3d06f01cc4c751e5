"""What a cleaning has to know of a log, all of it: values, so that a worker needs nothing else."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from odradek.storage.config import LogConfig
from odradek.storage.segment import INT32_MAX
from odradek.storage.txn_index import AbortedTxn
from odradek.values import value

MOST_SEGMENTS_A_GROUP = 32
"""So many files are renamed at once when the group is replaced, and nothing else happens on the loop meanwhile."""


@value
class Source:
    """A sealed segment that is to be read."""

    base_offset: int
    end_offset: int
    """Where the next one begins."""
    path: str
    size: int


@value
class LastOfProducer:
    """What the log remembers a producer by, and a cleaning must leave: with it go its sequence and its epoch."""

    data_offset: int | None
    """The last offset of its last batch with records; None where only a marker has come in its epoch."""
    epoch: int


@value
class CleaningPlan:
    """One round over one log."""

    directory: str
    config: LogConfig
    sources: tuple[Source, ...]
    """All segments up to the end of what may be cleaned, the clean ones too: they hold what newer records replace."""
    first_dirty_offset: int
    aborted: tuple[AbortedTxn, ...]
    producers: Mapping[int, LastOfProducer]
    now_ms: int


def group(sources: Sequence[Source], config: LogConfig, index_bytes_of: Callable[[Source], int]) -> list[list[Source]]:
    """Those that one segment may take the place of: neighbours that are together no larger than a segment may be."""
    groups: list[list[Source]] = []
    size = index_bytes = 0
    for source in sources:
        more_index_bytes = index_bytes_of(source)
        last = groups[-1] if groups else None
        if (
            last is not None
            and len(last) < MOST_SEGMENTS_A_GROUP
            and size + source.size <= config.segment_bytes
            and index_bytes + more_index_bytes <= config.segment_index_bytes
            and (not source.size or source.end_offset - 1 - last[0].base_offset <= INT32_MAX)
        ):
            last.append(source)
        else:
            groups.append([source])
            size = index_bytes = 0
        size += source.size
        index_bytes += more_index_bytes
    return groups
