"""Which partition a record goes to when its sender does not say.

A key decides by murmur2, bit for bit as the Java client computes it, so that clients of both kinds put a key in the
same place. Records without a key stay with one partition until a batch's worth has gone there, then move on (KIP-794
without its look at the brokers' load): batches stay full and partitions even.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import TypeAlias

from odradek.client.cluster import TopicInfo
from odradek.ports import Entropy

Partitioner: TypeAlias = Callable[[str, bytes | None, bytes | None, int], int]
"""`(topic, key, value, number of partitions) -> partition`: what a user may hand in."""

_SEED = 0x9747B28C
_MULTIPLIER = 0x5BD1E995
_MASK = 0xFFFFFFFF
_WORDS = struct.Struct("<I")


def murmur2(data: bytes) -> int:
    """The hash of Kafka's Java client, as an unsigned number."""
    length = len(data)
    h = _SEED ^ length
    whole = length & ~3
    for (word,) in _WORDS.iter_unpack(memoryview(data)[:whole]):
        k = word * _MULTIPLIER & _MASK
        k = (k ^ k >> 24) * _MULTIPLIER & _MASK
        h = (h * _MULTIPLIER & _MASK) ^ k
    if length > whole:
        h = (h ^ int.from_bytes(data[whole:], "little")) * _MULTIPLIER & _MASK
    h = (h ^ h >> 13) * _MULTIPLIER & _MASK
    return h ^ h >> 15


def partition_of_key(key: bytes, partitions: int) -> int:
    """Where the Java client puts this key."""
    return (murmur2(key) & 0x7FFFFFFF) % partitions


class Sticky:
    """One partition a topic until `batch_size` bytes have gone there, then another one by chance."""

    def __init__(self, entropy: Entropy, batch_size: int) -> None:
        self._entropy = entropy
        self._batch_size = batch_size
        self._current: dict[str, list[int]] = {}
        """Partition and bytes by topic."""

    def choose(self, topic: TopicInfo, size_bytes: int) -> int:
        """The partition for that many bytes; one without a leader only if none has one."""
        current = self._current.get(topic.name)
        if current is None:
            current = self._current[topic.name] = [self._draw(topic, avoid=None), 0]
        elif current[1] >= self._batch_size or not self._is_led(topic, current[0]):
            current[0], current[1] = self._draw(topic, avoid=current[0]), 0
        current[1] += size_bytes
        return current[0]

    def _is_led(self, topic: TopicInfo, partition: int) -> bool:
        """A topic that was made anew may have fewer partitions."""
        return partition < len(topic.partitions) and topic.partitions[partition].leader >= 0

    def _draw(self, topic: TopicInfo, *, avoid: int | None) -> int:
        led = _led(topic)
        others = [partition for partition in led if partition != avoid] or led
        return others[self._entropy.below(len(others))]


class RoundRobin:
    """One partition after the other, whatever the key."""

    def __init__(self) -> None:
        self._next: dict[str, int] = {}

    def choose(self, topic: TopicInfo) -> int:
        led = _led(topic)
        turn = self._next.get(topic.name, 0)
        self._next[topic.name] = turn + 1
        return led[turn % len(led)]


def _led(topic: TopicInfo) -> list[int]:
    led = [each.partition for each in topic.partitions if each.leader >= 0]
    return led or list(range(len(topic.partitions)))
