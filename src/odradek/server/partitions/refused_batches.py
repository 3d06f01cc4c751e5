"""Batches of idempotent producers that were refused a moment ago, and will come again.

A producer has several batches under way. When the first is refused (this broker does not know yet that it leads, too
few are in sync) and what stood in its way is gone before the second arrives, the second would be taken before the first
if the producer is new here, or be out of order. It is refused for the same reason as the first instead. Told of an
order that is wrong, librdkafka begins a new epoch in all partitions, and sends again under another name what other
leaders have taken and were killed before they could say so: then it stands there twice.

Nor may a second batch be the first that a new leader sees of a producer. The first went to the leader before, which was
cut off, and never got further: then who produces is unknown here, and would be let in with any sequence. librdkafka
takes the answer to the second for one to the first as well, and tells its user of records that are nowhere.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from odradek.ids import Uuid
from odradek.ports import Clock
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.records.batch import HEADER_SIZE, BatchHeader, read_header
from odradek.replication.leader import Leadership
from odradek.storage.log import Log
from odradek.values import value

REMEMBERED_MS = 5_000
"""What was under way when the first was refused has arrived by then."""

MOST_REMEMBERED = 1_000

ON_ITS_WAY_MS = 60_000
"""Within so much a client gives up on a leader that does not answer, and sends what that one was sent to the next."""

_COMES_AGAIN = (
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.KAFKA_STORAGE_ERROR,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.UNKNOWN_TOPIC_ID,
)
"""Refusals after which a client sends the same batch again."""

_HALF = 1 << 30
"""Of the sequence numbers, which begin again at 0."""

_Key: TypeAlias = tuple[str | Uuid, int, int, int]
"""Topic, partition, producer id and producer epoch."""


@value
class _Refusal:
    sequence: int
    error: KafkaError
    until_ms: int


class RefusedBatches:
    """The first that was refused, by partition and producer."""

    def __init__(self, clock: Clock, *, is_wanted: Callable[[], bool] = lambda: True) -> None:
        self._clock = clock
        self._is_wanted = is_wanted
        self.first: dict[_Key, _Refusal] = {}
        """Empty most of the time, which is all that most appends look at."""
        self._until_ms = 0
        """When the last of them is forgotten."""

    def __len__(self) -> int:
        return len(self.first)

    def note(self, topic: str | Uuid, index: int, batch: memoryview, error: KafkaError) -> None:
        """A batch was refused; if it comes again, those behind it have to wait for that."""
        header = _of_idempotent_producer(batch)
        if header is None or error.code not in _COMES_AGAIN or not self._is_wanted():
            return
        key = (topic, index, header.producer_id, header.producer_epoch)
        now_ms = self._clock.monotonic_ms()
        known = self.first.get(key)
        if known is not None and known.until_ms > now_ms and known.sequence != header.base_sequence:
            return
        if len(self.first) >= MOST_REMEMBERED:
            for each in [each for each, refusal in self.first.items() if refusal.until_ms <= now_ms]:
                del self.first[each]
        if len(self.first) < MOST_REMEMBERED:
            self._until_ms = now_ms + REMEMBERED_MS
            self.first[key] = _Refusal(header.base_sequence, error, self._until_ms)

    def check(self, topic: str, topic_id: Uuid, index: int, batch: memoryview) -> None:
        """KafkaError, the same as before, if one that comes before this batch was refused and has not come again."""
        now_ms = self._clock.monotonic_ms()
        if now_ms >= self._until_ms:
            self.first.clear()
            return
        header = _of_idempotent_producer(batch)
        if header is None:
            return
        for name in (topic_id, topic):
            key = (name, index, header.producer_id, header.producer_epoch)
            first = self.first.get(key)
            if first is None:
                continue
            distance = (header.base_sequence - first.sequence) % (2 * _HALF)
            if distance == 0 or first.until_ms <= now_ms:
                del self.first[key]
            elif distance < _HALF:
                raise KafkaError(first.error.code, first.error.message)


def check_is_first(leadership: Leadership, log: Log, batch: memoryview, clock: Clock) -> None:
    """NOT_LEADER_OR_FOLLOWER for a later batch of a producer that this leader, who has taken over, has never heard of.

    It has all that was acknowledged, and has forgotten nobody within a minute: so an earlier batch was sent elsewhere,
    is acknowledged nowhere, and will come again.
    """
    if not leadership.inherits or clock.monotonic_ms() - leadership.began_ms >= ON_ITS_WAY_MS:
        return
    header = _of_idempotent_producer(batch)
    if header is not None and header.base_sequence > 0 and log.producers.get(header.producer_id) is None:
        raise KafkaError(
            ErrorCode.NOT_LEADER_OR_FOLLOWER,
            f"producer {header.producer_id} comes with sequence {header.base_sequence} to a new leader that has none "
            "of its batches: what was sent before has to come first",
        )


def _of_idempotent_producer(batch: memoryview) -> BatchHeader | None:
    if len(batch) < HEADER_SIZE:
        return None
    header = read_header(batch)
    return header if header.producer_id >= 0 else None
