"""Produce of one batch to a partition that the same connection has written to before.

A producer says the same things again and again: who it is, which acks it wants, which topic, which partition. All of
that lies in one stretch of bytes between the correlation id and the batch, the request's shape, and is compared at once
with what was read before. What is new is the batch. A client that waits for each answer finds the processor cold, so
that what a request costs is how much code it runs: this is the least that will do.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from struct import Struct
from typing import Any

from odradek.protocol.fast.produce import FIRST_FLEXIBLE_VERSION, FLAGS_POSITION, ProducePlan
from odradek.protocol.records.batch import HEADER_SIZE, TRANSACTIONAL_BIT

MAX_SHAPES = 64
"""How many partitions a connection is remembered to write to; all others are read as if it were their first time."""

_FIRST_VERSION = 5
_SHAPE_START = 12
"""Behind size, API, version and correlation id."""

_unpack_four_bytes = Struct(">I").unpack_from
_THREE_BYTES = 0xFFFFFF


class CachedProduce(ABC):
    """The requests that one connection has sent, all of one version, whose shapes are equally long."""

    __slots__ = ("_plans", "_shape_end", "_unpack", "_version")

    def __init__(self, version: int, shape_end: int, batch_size: str) -> None:
        self._version = version
        self._shape_end = shape_end
        # The size, API and version, the correlation id, all that does not change, and how large the batch is.
        self._unpack: Callable[[memoryview], tuple[Any, ...]] = Struct(
            f">iIi{shape_end - _SHAPE_START}s{batch_size}"
        ).unpack_from
        self._plans: dict[bytes, ProducePlan] = {}

    def learn(self, view: memoryview, plan: ProducePlan) -> None:
        """Remember a request that was read, with all that is in front of it (four bytes of size first).

        Nothing if it is of no kind that comes again.
        """
        if len(self._plans) < MAX_SHAPES and _shape_end(view, plan) == self._shape_end:
            self._plans[bytes(view[_SHAPE_START : self._shape_end])] = plan

    @abstractmethod
    def read(self, view: memoryview, end: int) -> tuple[ProducePlan, int] | None:
        """The plan and the correlation id of what the view holds up to there, which may be less than a request.

        None unless it is like one that was learnt. The plan is the same object each time: it is the caller's until the
        request is answered, and nothing is to be read here before that.
        """


class _Flexible(CachedProduce):
    __slots__ = ()

    def read(self, view: memoryview, end: int) -> tuple[ProducePlan, int] | None:
        unpack = self._unpack
        size, api, correlation_id, shape, batch_bytes, high = unpack(view)
        known = self._plans.get(shape)
        if known is None or api != self._version or size != end - 4:  # Produce is API 0.
            return None
        position = self._shape_end + 1
        if batch_bytes > 127:  # A number of variable length, of two bytes at most: larger batches can wait.
            if high > 127:
                return None
            batch_bytes += (high << 7) - 128
            position += 1
        batch_end = position + batch_bytes - 1
        (last_four,) = _unpack_four_bytes(view, batch_end - 1)
        if (
            batch_end + 3 != end
            or last_four & _THREE_BYTES  # Something is tagged.
            or batch_bytes <= HEADER_SIZE
            or view[position + FLAGS_POSITION] & TRANSACTIONAL_BIT
        ):
            return None
        known.batches = (view[position:batch_end],)
        known.throttle_ms = 0
        return known, correlation_id


class _Before9(CachedProduce):
    __slots__ = ()

    def read(self, view: memoryview, end: int) -> tuple[ProducePlan, int] | None:
        unpack = self._unpack
        size, api, correlation_id, shape, batch_bytes = unpack(view)
        known = self._plans.get(shape)
        position = self._shape_end + 4
        if (
            known is None
            or api != self._version  # Produce is API 0.
            or size != end - 4
            or batch_bytes != end - position
            or batch_bytes < HEADER_SIZE
            or view[position + FLAGS_POSITION] & TRANSACTIONAL_BIT
        ):
            return None
        known.batches = (view[position:end],)
        known.throttle_ms = 0
        return known, correlation_id


def cached_produce(view: memoryview, plan: ProducePlan) -> CachedProduce | None:
    """For requests like this one, in the view from its size to its end; None if its kind is not cached."""
    shape_end = _shape_end(view, plan)
    if shape_end is None:
        return None
    if plan.version >= FIRST_FLEXIBLE_VERSION:
        return _Flexible(plan.version, shape_end, "BB")
    return _Before9(plan.version, shape_end, "i")


def _shape_end(view: memoryview, plan: ProducePlan) -> int | None:
    """Where the size of its only batch is written."""
    if plan.version < _FIRST_VERSION or len(plan.batches) != 1:
        return None
    batch = plan.batches[0]
    assert batch is not None, "a reader by hand knows no other"
    if plan.version < FIRST_FLEXIBLE_VERSION:
        return len(view) - len(batch) - 4
    return len(view) - 3 - len(batch) - (1 if len(batch) < 127 else 2 if len(batch) < 16_383 else 3)
