"""OffsetCommit for partitions of one topic, from the frame's bytes to the log and to the answer's bytes.

That is what most consumers send. Anything else (several topics, a topic or a partition that does not exist, tagged
fields, an error) returns None before anything was done, and the declared messages and their handler take over; a test
holds the two equal. Versions before 5 carry a retention time and always go the declared way.
"""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct
from struct import error as StructError
from typing import TYPE_CHECKING, Any, TypeAlias

from odradek.coordinator.group.topic_commits import PartitionCommit, TopicCommit
from odradek.ids import NO_EPOCH, Uuid
from odradek.protocol.codec import encode
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.frame import response_frame
from odradek.protocol.messages.offset_commit import (
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from odradek.server.promise import Promise
from odradek.server.routes import QuickAnswer, QuickHandler

if TYPE_CHECKING:
    from odradek.metadata.image.topics import TopicsImage
    from odradek.server.node import Node

Parsed: TypeAlias = tuple[str, int, str, str | None, bytes, list[PartitionCommit]]
"""Group, generation, member, instance, the topic as it stands there (its name with its size, or its id), partitions."""

Found: TypeAlias = tuple[str, Uuid]

_OLDEST = 5
_INSTANCES_SINCE = 7
_COMPACT_SINCE = 8
_TOPIC_IDS_SINCE = 10
MAX_PARTITIONS = 100
"""So many that counts fit into one byte."""

_INT8 = Struct(">b")
_INT16 = Struct(">h")
_INT32 = Struct(">i")
_INT32_AND_SIZE = Struct(">ih")
_PARTITION_AND_SIZE = Struct(">iqih")
_PARTITION_AND_SIZE_BEFORE_6 = Struct(">iqh")
_COMPACT_PARTITION_AND_SIZE = Struct(">iqiB")
_ANSWER = Struct(">iiii")
_ANSWER_PARTITION = Struct(">ih")
_COMPACT_ANSWER = Struct(">iiBiB")
_COMPACT_ANSWER_PARTITION = Struct(">ihB")
_END_OF_TOPIC_AND_REQUEST = _END_OF_TOPIC_AND_ANSWER = b"\0\0"
"""Neither has tagged fields."""
_NULL = -1
_ONE_TOPIC = 2
"""As a compact array counts."""
_TWO_BYTES = 0x80
"""From here on a compact size is longer than a byte, and this way too narrow for it."""


def quick_commit(version: int) -> QuickHandler:
    """The handler for one version."""
    if version < _OLDEST:
        return lambda node, frame, position, correlation_id: None
    parse = _parse_compact(version) if version >= _COMPACT_SINCE else _parse_before_8(version)
    name_at = None if version >= _TOPIC_IDS_SINCE else 1 if version >= _COMPACT_SINCE else 2
    accepted = _accepted_compact if version >= _COMPACT_SINCE else _accepted_before_8

    def handle(node: Node, frame: memoryview, position: int, correlation_id: int) -> QuickAnswer:
        try:
            parsed = parse(bytes(frame[position:]))
            if parsed is None:
                return None
            group_id, generation_id, member_id, instance_id, topic, partitions = parsed
            found = _find(node.image.topics, topic, name_at, partitions)
        except (StructError, IndexError, UnicodeDecodeError):
            return None
        running = node.coordinators.running(group_id)
        if found is None or running is None:
            return None
        commit = TopicCommit(group_id, member_id, instance_id, generation_id, version, *found, partitions)
        try:
            done = running.commit_topic(commit)
        except KafkaError as refused:
            return _refused(commit, correlation_id, refused.code)
        if not done:
            return None
        answer = accepted(correlation_id, topic, partitions)
        if done is True:
            return answer
        done.asked, done.frame = (commit, answer), _committed
        return done

    return handle


def _committed(committed: Promise[Any], correlation_id: int) -> bytes:
    """The answer, once it is true."""
    commit, answer = committed.asked
    try:
        committed.result()
    except KafkaError as refused:
        return _refused(commit, correlation_id, refused.code)
    accepted: bytes = answer
    return accepted


def _find(topics: TopicsImage, topic: bytes, name_at: int | None, partitions: list[PartitionCommit]) -> Found | None:
    """The topic's name and id, if it has all of these partitions."""
    image = topics.by_id.get(Uuid(topic)) if name_at is None else topics.by_name.get(topic[name_at:].decode())
    if image is None:
        return None
    count = len(image.partitions)
    for part in partitions:
        if not 0 <= part[0] < count:
            return None
    return image.name, image.topic_id


# Requests. A size that goes beyond the end makes the last position differ from the end, or there is nothing to unpack.


def _parse_before_8(version: int) -> Callable[[bytes], Parsed | None]:
    knows_instances = version >= _INSTANCES_SINCE
    knows_epochs = version > _OLDEST

    def parse(data: bytes) -> Parsed | None:
        (size,) = _INT16.unpack_from(data)
        position = 2 + size
        group_id = data[2:position].decode()
        generation_id, size = _INT32_AND_SIZE.unpack_from(data, position)
        position += 6
        member_id = data[position : position + size].decode()
        position += size
        instance_id = None
        if knows_instances:
            (size,) = _INT16.unpack_from(data, position)
            position += 2
            if size != _NULL:
                instance_id = data[position : position + size].decode()
                position += size
        topics, size = _INT32_AND_SIZE.unpack_from(data, position)
        topic = data[position + 4 : position + 6 + size]
        position += 6 + size
        (count,) = _INT32.unpack_from(data, position)
        position += 4
        if topics != 1 or not 0 < count <= MAX_PARTITIONS:
            return None
        partitions: list[PartitionCommit] = []
        for _ in range(count):
            if knows_epochs:
                index, offset, epoch, size = _PARTITION_AND_SIZE.unpack_from(data, position)
                position += 18
            else:
                index, offset, size = _PARTITION_AND_SIZE_BEFORE_6.unpack_from(data, position)
                epoch = NO_EPOCH
                position += 14
            metadata = ""
            if size > 0:
                metadata = data[position : position + size].decode()
                position += size
            partitions.append((index, offset, epoch, metadata))
        if position != len(data):
            return None
        return group_id, generation_id, member_id, instance_id, topic, partitions

    return parse


def _parse_compact(version: int) -> Callable[[bytes], Parsed | None]:
    by_id = version >= _TOPIC_IDS_SINCE

    def parse(data: bytes) -> Parsed | None:
        position = data[0]
        if not 0 < position < _TWO_BYTES:
            return None
        group_id = data[1:position].decode()
        (generation_id,) = _INT32.unpack_from(data, position)
        position += 4
        size = data[position]
        if not 0 < size < _TWO_BYTES:
            return None
        member_id = data[position + 1 : position + size].decode()
        position += size
        size = data[position]
        if size >= _TWO_BYTES:
            return None
        instance_id = data[position + 1 : position + size].decode() if size else None
        position += size or 1
        if data[position] != _ONE_TOPIC:
            return None
        position += 1
        size = 16 if by_id else data[position]
        if not 0 < size < _TWO_BYTES:
            return None
        topic = data[position : position + size]
        position += size
        partitions = _parse_compact_partitions(data, position)
        if partitions is None:
            return None
        return group_id, generation_id, member_id, instance_id, topic, partitions

    return parse


def _parse_compact_partitions(data: bytes, position: int) -> list[PartitionCommit] | None:
    """Of a request that ends behind them and in which nothing is tagged."""
    count = data[position] - 1
    if not 0 < count <= MAX_PARTITIONS:
        return None
    position += 1
    partitions: list[PartitionCommit] = []
    for _ in range(count):
        index, offset, epoch, size = _COMPACT_PARTITION_AND_SIZE.unpack_from(data, position)
        if size >= _TWO_BYTES:
            return None
        position += 16
        partitions.append((index, offset, epoch, data[position + 1 : position + size].decode() if size > 1 else ""))
        position += size or 1
        if data[position]:
            return None
        position += 1
    return partitions if data[position:] == _END_OF_TOPIC_AND_REQUEST else None


# Answers.


def _accepted_before_8(correlation_id: int, topic: bytes, partitions: list[PartitionCommit]) -> bytes:
    count = len(partitions)
    parts = [
        _ANSWER.pack(_ANSWER.size + len(topic) + 6 * count, correlation_id, 0, 1),
        topic,
        _INT32.pack(count),
        *[_ANSWER_PARTITION.pack(part[0], 0) for part in partitions],
    ]
    return b"".join(parts)


def _accepted_compact(correlation_id: int, topic: bytes, partitions: list[PartitionCommit]) -> bytes:
    count = len(partitions)
    parts = [
        _COMPACT_ANSWER.pack(_COMPACT_ANSWER.size - 1 + len(topic) + 7 * count, correlation_id, 0, 0, _ONE_TOPIC),
        topic,
        _INT8.pack(count + 1),
        *[_COMPACT_ANSWER_PARTITION.pack(part[0], 0, 0) for part in partitions],
        _END_OF_TOPIC_AND_ANSWER,
    ]
    return b"".join(parts)


def _refused(commit: TopicCommit, correlation_id: int, code: ErrorCode) -> bytes:
    """Rare enough for the declared messages."""
    version = commit.api_version
    parts = [OffsetCommitResponsePartition(partition_index=part[0], error_code=code) for part in commit.partitions]
    topic = OffsetCommitResponseTopic(name=commit.topic, topic_id=commit.topic_id, partitions=parts)
    body = encode(OffsetCommitResponse(topics=[topic]), version)
    frame = response_frame(correlation_id, [body], header_version=1 if version >= _COMPACT_SINCE else 0)
    return b"".join(part for part in frame if isinstance(part, bytes))
