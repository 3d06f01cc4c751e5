"""How long requests took, in a few integers.

A request that is answered in the turn of the loop in which it arrived took less than the clock can tell, and costs
nothing to count: only those that waited are put into a bucket. A bucket is a power of two of milliseconds, which is as
exact as a person looking at a graph needs.
"""

from __future__ import annotations

QUANTILES = (0.5, 0.75, 0.95, 0.98, 0.99, 0.999)
_BUCKETS = 24
"""Up to four hours."""


class Latencies:
    """The requests of one kind that had to wait, by how long."""

    __slots__ = ("_buckets", "waited")

    def __init__(self) -> None:
        self._buckets = [0] * _BUCKETS
        self.waited = 0

    def note(self, elapsed_ms: int) -> None:
        self.waited += 1
        number = elapsed_ms.bit_length() if elapsed_ms > 0 else 0
        self._buckets[number if number < _BUCKETS else -1] += 1

    def add(self, other: Latencies) -> None:
        """Count what others counted."""
        self.waited += other.waited
        self._buckets = [one + more for one, more in zip(self._buckets, other._buckets, strict=True)]

    def quantile(self, share: float, served: int) -> float:
        """The milliseconds within which that share of all `served` requests were answered."""
        below = served - self.waited
        if not served or below >= share * served:
            return 0.0
        for number, count in enumerate(self._buckets):
            below += count
            if below >= share * served:
                return float((1 << number) - 1)
        return float((1 << _BUCKETS) - 1)
