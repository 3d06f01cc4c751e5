"""A log as a coordinator finds it when it takes over."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from odradek.coordinator.record_format import Newest
from odradek.coordinator.shard import Shard


def newest_of(batches: Iterable[bytes]) -> Newest:
    """What is left of it."""
    newest = Newest()
    for batch in batches:
        deque(newest.add(batch), maxlen=0)
    return newest


def load(shard: Shard, batches: Iterable[bytes]) -> Newest:
    """As the shard's runner does."""
    newest = newest_of(batches)
    deque(newest.replay_into(shard), maxlen=0)
    return newest
