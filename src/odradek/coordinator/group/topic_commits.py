"""Commits of one topic's offsets, which is what most consumers send every few seconds: straight to a batch's bytes.

What `offset_record` and `record_format.encode_batch` would write for the same request, without an object for every
field; a test holds the two equal.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from odradek.coordinator.group.offsets import PLAIN_VALUE, VALUE_VERSION, offset_value
from odradek.coordinator.group.records import OffsetCommitKey
from odradek.coordinator.record_format import encode_key, encode_value
from odradek.coordinator.shard import Moment
from odradek.ids import Uuid
from odradek.protocol.fast.offset_commit import PartitionCommit
from odradek.protocol.primitives import encode_uvarint
from odradek.values import value

if TYPE_CHECKING:
    from odradek.coordinator.group.shard import GroupShard

MAX_KEYS_KEPT = 10_000
"""Keys of the log that need not be encoded again: a group commits the same partitions over and over."""

_NO_ATTRIBUTES_SAME_TIME = b"\0\0"
_NO_HEADERS = b"\0"


@value
class TopicCommit:
    """An OffsetCommit that names one topic, which exists and has all of these partitions."""

    group_id: str
    member_id: str
    instance_id: str | None
    generation_id: int
    api_version: int
    topic: str
    topic_id: Uuid
    partitions: list[PartitionCommit]

    @property
    def count(self) -> int:
        return len(self.partitions)

    def check(self, shard: GroupShard, now: Moment) -> bool:
        return shard.may_commit(self, now)

    def encode(self, first: int, now_ms: int) -> bytes:
        """One record a partition."""
        group_id, topic, topic_id = self.group_id, self.topic, self.topic_id
        parts: list[bytes] = []
        for delta, (index, offset, leader_epoch, metadata) in enumerate(self.partitions, first):
            content = (
                _encode_value(offset, leader_epoch, metadata, topic_id, now_ms)
                if metadata
                else PLAIN_VALUE.pack(VALUE_VERSION, offset, leader_epoch, 1, now_ms, 1, 0, 16, topic_id)
            )
            record = b"".join(
                (
                    _NO_ATTRIBUTES_SAME_TIME,
                    _varint(delta),
                    _sized_key(group_id, topic, index),
                    _varint(len(content)),
                    content,
                    _NO_HEADERS,
                )
            )
            parts += (_varint(len(record)), record)
        return b"".join(parts)

    def replay(self, shard: GroupShard, now: Moment) -> None:
        shard.replay_commit(self, now)


def _encode_value(offset: int, leader_epoch: int, metadata: str, topic_id: Uuid, now_ms: int) -> bytes:
    return encode_value(offset_value(offset, leader_epoch, metadata, topic_id, now_ms=now_ms), VALUE_VERSION)


@lru_cache(maxsize=MAX_KEYS_KEPT)
def _sized_key(group_id: str, topic: str, partition: int) -> bytes:
    key = encode_key(OffsetCommitKey(group=group_id, topic=topic, partition=partition))
    return _varint(len(key)) + key


@lru_cache(maxsize=1024)
def _varint(number: int) -> bytes:
    """As records have their lengths, which are never negative."""
    return encode_uvarint(number << 1)
