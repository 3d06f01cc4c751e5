"""How fast replicas may be copied that are not in sync (KIP-73): a rate a broker, and which of its replicas it bounds.

A broker has two quotas, for what it sends as a leader and for what it fetches as a follower. A replica in sync is never
held back, or the ISR would shrink for the throttle's sake, but what it copies counts.
"""

from __future__ import annotations

from collections.abc import Iterable

from odradek.ids import NodeId
from odradek.values import value

UNLIMITED = (1 << 63) - 1
EVERY_REPLICA = "*"


@value
class ThrottledPartitions:
    """The partitions of one topic whose replica on this node is throttled."""

    every: bool
    partitions: frozenset[int]

    def __contains__(self, partition: int) -> bool:
        return self.every or partition in self.partitions


NOT_THROTTLED = ThrottledPartitions(every=False, partitions=frozenset())


def throttled_partitions(given: Iterable[str], node_id: NodeId) -> ThrottledPartitions:
    """What a topic's list of `partition:broker` means on one node; `*` stands for all."""
    partitions: dict[int, None] = {}
    for replica in given:
        if replica == EVERY_REPLICA:
            return ThrottledPartitions(every=True, partitions=frozenset())
        partition, _, broker = replica.partition(":")
        if broker and int(broker) == node_id:
            partitions[int(partition)] = None
    return ThrottledPartitions(every=False, partitions=frozenset(partitions))


class ByteRate:
    """Bytes a second over the last windows, measured as Kafka does.

    A sample takes what comes within one window of its beginning, and counts until nothing in it is younger than all
    windows together. The time is that since the oldest sample began, but at least one window: a first burst is no rate.
    """

    __slots__ = ("_kept_ms", "_samples", "_window_ms", "_windows")

    def __init__(self, *, windows: int, window_ms: int) -> None:
        self._windows = windows
        self._window_ms = window_ms
        self._kept_ms = windows * window_ms
        self._samples: list[_Sample] = []
        """The oldest first."""

    def record(self, size_bytes: int, now_ms: int) -> None:
        samples = self._samples
        if not samples or now_ms - samples[-1].start_ms >= self._window_ms:
            samples.append(_Sample(now_ms))
            if len(samples) > self._windows + 1:  # One may reach into the windows from before them.
                del samples[0]
        samples[-1].last_ms = now_ms
        samples[-1].size_bytes += size_bytes

    def per_second(self, now_ms: int) -> float:
        return self._size_bytes(now_ms) * 1000 / self._elapsed_ms(now_ms)

    def excess_ms(self, limit: int, now_ms: int) -> int:
        """How long until the rate is at the limit if nothing more comes; 0 if it is not above it.

        At most one window: samples that grow too old may end it sooner, so whoever waits looks again.
        """
        size_bytes, elapsed_ms = self._size_bytes(now_ms), self._elapsed_ms(now_ms)
        if size_bytes * 1000 <= limit * elapsed_ms:
            return 0
        if limit == 0:
            return self._window_ms
        since_start_ms = now_ms - self._samples[0].start_ms
        return min(-(-size_bytes * 1000 // limit) - since_start_ms, self._window_ms)

    def _size_bytes(self, now_ms: int) -> int:
        self._samples = [each for each in self._samples if now_ms - each.last_ms < self._kept_ms]
        return sum(each.size_bytes for each in self._samples)

    def _elapsed_ms(self, now_ms: int) -> int:
        since_start_ms = now_ms - self._samples[0].start_ms if self._samples else 0
        return max(since_start_ms, self._window_ms)


class _Sample:
    __slots__ = ("last_ms", "size_bytes", "start_ms")

    def __init__(self, now_ms: int) -> None:
        self.start_ms = self.last_ms = now_ms
        self.size_bytes = 0


class ReplicationQuota:
    """What a broker may send, or fetch, of its throttled replicas."""

    __slots__ = ("_rate", "limit")

    def __init__(self, *, windows: int, window_ms: int) -> None:
        self._rate = ByteRate(windows=windows, window_ms=window_ms)
        self.limit = UNLIMITED
        """Bytes a second."""

    def record(self, size_bytes: int, now_ms: int) -> None:
        """Note what was copied, by replicas in sync as well: it is the broker's traffic that has a bound."""
        self._rate.record(size_bytes, now_ms)

    def excess_ms(self, now_ms: int) -> int:
        """For how long replicas that are not in sync are to be left out; look again then. 0: they may go on."""
        return 0 if self.limit == UNLIMITED else self._rate.excess_ms(self.limit, now_ms)

    def per_second(self, now_ms: int) -> float:
        return self._rate.per_second(now_ms)
