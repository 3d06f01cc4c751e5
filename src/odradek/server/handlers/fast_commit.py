"""OffsetCommit for partitions of one topic, from the frame's bytes to the log and to the answer's bytes.

That is what most consumers send. Anything else (several topics, a topic or a partition that does not exist, tagged
fields, an error) returns None before anything was done, and the generic path takes over; a test
holds the two equal. Versions before 5 carry a retention time and always take the generic path.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from struct import Struct
from struct import error as StructError
from typing import TYPE_CHECKING, Any, TypeAlias

from odradek.coordinator.group.topic_commits import PartitionCommit, TopicCommit
from odradek.ids import NO_EPOCH, Uuid
from odradek.protocol.codec import encode
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.messages.offset_commit import (
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from odradek.server.net.routes import FastAnswer, FastPath
from odradek.server.waiting.deferred import Deferred
from odradek.values import value

if TYPE_CHECKING:
    from odradek.server.rooms import Rooms

_OLDEST = 5
_EPOCHS_SINCE = 6
_INSTANCES_SINCE = 7
_COMPACT_SINCE = 8
_TOPIC_IDS_SINCE = 10

MAX_PARTITIONS = 100
"""So many that counts fit into one byte."""

MAX_REQUESTS_KEPT = 4096
"""Requests that need not be parsed again: a consumer sends the same every few seconds, with another offset."""

_INT8 = Struct(">b")
_INT16 = Struct(">h")
_INT32 = Struct(">i")
_INT32_AND_SIZE = Struct(">ih")
_OFFSET_AND_EPOCH = Struct(">qi")
_PARTITION_AND_SIZE = Struct(">iqih")
_PARTITION_AND_SIZE_BEFORE_6 = Struct(">iqh")
_COMPACT_PARTITION_AND_SIZE = Struct(">iqiB")
_ANSWER_HEAD = Struct(">ii")
_ANSWER = Struct(">ii")
_ANSWER_PARTITION = Struct(">ih")
_COMPACT_ANSWER = Struct(">BiB")
_COMPACT_ANSWER_PARTITION = Struct(">ihB")
_END_OF_TOPIC_AND_REQUEST = _END_OF_TOPIC_AND_ANSWER = b"\0\0"
"""Neither has tagged fields."""
_NULL = -1
_ONE_TOPIC = 2
"""As a compact array counts."""
_TWO_BYTES = 0x80
"""From here on a compact size is longer than a byte, and this way too narrow for it."""


@value
class _Request:
    """What is in the bytes, of one topic."""

    group_id: str
    generation_id: int
    member_id: str
    instance_id: str | None
    topic: bytes
    """As it stands there: its name with its size in front, or its id."""
    name: str
    """Empty where there is an id."""
    partitions: list[PartitionCommit]


Parse: TypeAlias = Callable[[bytes], _Request | None]


@value
class _Ending:
    """How requests end that are about one partition and say nothing beside its offset and leader epoch."""

    size: int
    """Of all from the offset on."""
    without_metadata: tuple[bytes, ...]
    count: bytes
    """One partition, in front of its index."""

    def ends(self, data: bytes) -> bool:
        index_at = -self.size - 4
        return data.endswith(self.without_metadata) and data[index_at - len(self.count) : index_at] == self.count


_ENDING_BEFORE_6 = _Ending(0, (), b"")
_ENDING_BEFORE_8 = _Ending(14, (b"\0\0", b"\xff\xff"), b"\0\0\0\1")
_COMPACT_ENDING = _Ending(16, (b"\0\0\0\0", b"\1\0\0\0"), b"\2")


def fast_commit(version: int, _: str) -> FastPath:
    """The handler for one version."""
    if version < _OLDEST:
        return lambda rooms, frame, position, correlation_id: None
    compact, by_id = version >= _COMPACT_SINCE, version >= _TOPIC_IDS_SINCE
    parse = _parse_compact(by_id=by_id) if compact else _parse_before_8(version)
    accepted = _accepted_compact if compact else _accepted_before_8
    ending = _COMPACT_ENDING if compact else _ENDING_BEFORE_8 if version >= _EPOCHS_SINCE else _ENDING_BEFORE_6
    same_again, end_size = ending.ends, ending.size

    @lru_cache(maxsize=MAX_REQUESTS_KEPT)
    def recall(beginning: bytes) -> tuple[_Request, bytes] | None:
        """A request about one partition up to its offset, and its answer."""
        request = parse(beginning + bytes(end_size))
        if request is None or len(request.partitions) != 1:
            return None
        return request, accepted(request.topic, request.partitions)

    def handle(rooms: Rooms, frame: memoryview, position: int, correlation_id: int) -> FastAnswer:
        data = bytes(frame[position:])
        try:
            known = recall(data[:-end_size]) if same_again(data) else None
            if known is None:
                request = parse(data)
                if request is None:
                    return None
                partitions = request.partitions
                answer = accepted(request.topic, partitions)
            else:
                request, answer = known
                offset, epoch = _OFFSET_AND_EPOCH.unpack_from(data, len(data) - end_size)
                partitions = [(request.partitions[0][0], offset, epoch, "")]
        except (StructError, IndexError, UnicodeDecodeError):
            return None
        topics = rooms.image.topics
        topic = topics.by_id.get(Uuid(request.topic)) if by_id else topics.by_name.get(request.name)
        runner = rooms.groups.runner(request.group_id)
        if topic is None or runner is None:
            return None
        count = len(topic.partitions)
        for part in partitions:
            if not 0 <= part[0] < count:
                return None
        commit = TopicCommit(
            request.group_id,
            request.member_id,
            request.instance_id,
            request.generation_id,
            version,
            topic.name,
            topic.topic_id,
            partitions,
        )
        committed = runner.gather(commit)
        if committed is not None:
            committed.asked, committed.frame = (commit, answer), _committed
        return committed

    return handle


def _committed(committed: Deferred[Any], correlation_id: int) -> bytes:
    """The answer, once it is true."""
    answer: bytes
    commit, answer = committed.asked
    try:
        committed.result()
    except KafkaError as refused:
        answer = _refused(commit, refused.code)
    return _ANSWER_HEAD.pack(len(answer) + 4, correlation_id) + answer


# Requests. A size that goes beyond the end makes the last position differ from the end, or there is nothing to unpack.


def _parse_before_8(version: int) -> Parse:
    knows_instances = version >= _INSTANCES_SINCE
    knows_epochs = version >= _EPOCHS_SINCE

    def parse(data: bytes) -> _Request | None:
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
        return _Request(group_id, generation_id, member_id, instance_id, topic, topic[2:].decode(), partitions)

    return parse


def _parse_compact(*, by_id: bool) -> Parse:
    def parse(data: bytes) -> _Request | None:
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
        name = "" if by_id else topic[1:].decode()
        return _Request(group_id, generation_id, member_id, instance_id, topic, name, partitions)

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


# Answers, from behind the correlation id.


def _accepted_before_8(topic: bytes, partitions: list[PartitionCommit]) -> bytes:
    parts = [
        _ANSWER.pack(0, 1),
        topic,
        _INT32.pack(len(partitions)),
        *[_ANSWER_PARTITION.pack(part[0], 0) for part in partitions],
    ]
    return b"".join(parts)


def _accepted_compact(topic: bytes, partitions: list[PartitionCommit]) -> bytes:
    parts = [
        _COMPACT_ANSWER.pack(0, 0, _ONE_TOPIC),
        topic,
        _INT8.pack(len(partitions) + 1),
        *[_COMPACT_ANSWER_PARTITION.pack(part[0], 0, 0) for part in partitions],
        _END_OF_TOPIC_AND_ANSWER,
    ]
    return b"".join(parts)


def _refused(commit: TopicCommit, code: ErrorCode) -> bytes:
    """Rare enough for the generic path."""
    version = commit.api_version
    parts = [OffsetCommitResponsePartition(partition_index=part[0], error_code=code) for part in commit.partitions]
    topic = OffsetCommitResponseTopic(name=commit.topic, topic_id=commit.topic_id, partitions=parts)
    no_tagged_fields = b"\0" if version >= _COMPACT_SINCE else b""
    return no_tagged_fields + encode(OffsetCommitResponse(topics=[topic]), version)
