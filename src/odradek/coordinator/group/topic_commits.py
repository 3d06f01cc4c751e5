"""Commits of one topic's offsets, which is what most consumers send every few seconds: straight to a batch's bytes.

What `offset_record` and `runtime.encode_batch` would write for the same request, without an object for every field; a
test holds the two equal.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from struct import Struct
from typing import TypeAlias

from odradek.coordinator.group.offsets import VALUE_VERSION, offset_value
from odradek.coordinator.group.records import OffsetCommitKey
from odradek.coordinator.record_format import encode_key, encode_value
from odradek.ids import Uuid
from odradek.protocol.primitives import encode_uvarint
from odradek.protocol.records.batch import frame_batch
from odradek.values import value

PartitionCommit: TypeAlias = tuple[int, int, int, str]
"""Partition, offset, leader epoch, and what the consumer wants to be told with them."""

MAX_KEYS_KEPT = 10_000
"""Keys of the log that need not be encoded again: a group commits the same partitions over and over."""

_VALUE = Struct(">hqiBqBBB16s")
"""Version, offset, leader epoch, 1 (no metadata), time, 1 tagged field with the tag 0 and 16 bytes: the topic's id."""
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


def encode_commits(commits: Iterable[TopicCommit], *, now_ms: int) -> bytearray:
    """The batch that goes into the log: one record a partition."""
    count = 0
    parts: list[bytes] = []
    for commit in commits:
        group_id, topic, topic_id = commit.group_id, commit.topic, commit.topic_id
        for index, offset, leader_epoch, metadata in commit.partitions:
            content = (
                _encode_value(offset, leader_epoch, metadata, topic_id, now_ms)
                if metadata
                else _VALUE.pack(VALUE_VERSION, offset, leader_epoch, 1, now_ms, 1, 0, 16, topic_id)
            )
            record = b"".join(
                (
                    _NO_ATTRIBUTES_SAME_TIME,
                    _varint(count),
                    _sized_key(group_id, topic, index),
                    _varint(len(content)),
                    content,
                    _NO_HEADERS,
                )
            )
            parts += (_varint(len(record)), record)
            count += 1
    return frame_batch(b"".join(parts), attributes=0, records_count=count, base_timestamp=now_ms, max_timestamp=now_ms)


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
