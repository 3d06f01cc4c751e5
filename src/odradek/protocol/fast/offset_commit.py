"""OffsetCommit, versions 2 to 10: from bytes to a plan, and from what came of it to bytes.

By hand is read, from version 5 on, what most consumers send: offsets of partitions of one topic, and nothing tagged. By
hand is written that all of them are committed. Versions before carry a retention time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from struct import Struct
from struct import error as StructError
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from odradek.ids import NO_EPOCH, ZERO_UUID, Uuid
from odradek.protocol.codec import encode
from odradek.protocol.errors import ErrorCode
from odradek.protocol.frame import response_frame
from odradek.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from odradek.values import value

if TYPE_CHECKING:
    from odradek.ports import Part

TOPIC_IDS_SINCE = 10
_FIRST_BY_HAND = 5
_EPOCHS_SINCE = 6
_INSTANCES_SINCE = 7
_COMPACT_SINCE = 8

MAX_PARTITIONS = 100
"""So many that counts fit into one byte."""

MAX_REQUESTS_KEPT = 4096
"""Requests that need not be parsed again: a consumer sends the same every few seconds, with another offset."""

PartitionCommit: TypeAlias = tuple[int, int, int, str]
"""Partition, offset, leader epoch, and what the consumer wants to be told with them."""


class OffsetCommitPlan:
    """Offsets of a group, topic by topic."""

    __slots__ = (
        "accepted",
        "generation_id",
        "group_id",
        "instance_id",
        "member_id",
        "partitions",
        "retention_ms",
        "throttle_ms",
        "topics",
        "version",
    )

    def __init__(
        self,
        version: int,
        group_id: str,
        generation_id: int,
        member_id: str,
        instance_id: str | None,
        topics: Sequence[Any],
        partitions: Sequence[list[PartitionCommit]],
        *,
        retention_ms: int = -1,
        accepted: bytes | None = None,
    ) -> None:
        self.version = version
        self.group_id = group_id
        self.generation_id = generation_id
        """Of a member of a consumer group its epoch."""
        self.member_id = member_id
        self.instance_id = instance_id
        self.topics = topics
        """By id from version 10 on, by name before;"""
        self.partitions = partitions
        """and what is to be committed of each."""
        self.retention_ms = retention_ms
        self.accepted = accepted
        """The answer behind its correlation id if all is committed, of a plan that was read by hand."""
        self.throttle_ms = 0

    def request(self) -> OffsetCommitRequest:
        """The same as a message."""
        by_id = self.version >= TOPIC_IDS_SINCE
        return OffsetCommitRequest(
            group_id=self.group_id,
            generation_id_or_member_epoch=self.generation_id,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
            retention_time_ms=self.retention_ms,
            topics=[_topic(key, parts, by_id=by_id) for key, parts in zip(self.topics, self.partitions, strict=True)],
        )


def _topic(key: str | Uuid, partitions: list[PartitionCommit], *, by_id: bool) -> OffsetCommitRequestTopic:
    parts = [
        OffsetCommitRequestPartition(
            partition_index=index, committed_offset=offset, committed_leader_epoch=epoch, committed_metadata=metadata
        )
        for index, offset, epoch, metadata in partitions
    ]
    if by_id:
        return OffsetCommitRequestTopic(topic_id=Uuid(cast("bytes", key)), partitions=parts)
    return OffsetCommitRequestTopic(name=cast("str", key), partitions=parts)


Outcome: TypeAlias = OffsetCommitResponse | None
"""None where everything is committed."""

Reader: TypeAlias = Callable[[memoryview, int], OffsetCommitPlan | None]
Writer: TypeAlias = "Callable[[OffsetCommitPlan, Outcome, int], bytes | list[Part]]"


def plan_of(request: OffsetCommitRequest, version: int) -> OffsetCommitPlan:
    by_id = version >= TOPIC_IDS_SINCE
    return OffsetCommitPlan(
        version,
        request.group_id,
        request.generation_id_or_member_epoch,
        request.member_id,
        request.group_instance_id,
        [Uuid(topic.topic_id) if by_id else topic.name for topic in request.topics],
        [
            [
                (
                    part.partition_index,
                    part.committed_offset,
                    part.committed_leader_epoch,
                    part.committed_metadata or "",
                )
                for part in topic.partitions
            ]
            for topic in request.topics
        ],
        retention_ms=request.retention_time_ms,
    )


# Reading.

_INT8 = Struct(">b")
_INT16 = Struct(">h")
_INT32 = Struct(">i")
_INT32_AND_SIZE = Struct(">ih")
_OFFSET_AND_EPOCH = Struct(">qi")
_PARTITION_AND_SIZE = Struct(">iqih")
_PARTITION_AND_SIZE_BEFORE_6 = Struct(">iqh")
_COMPACT_PARTITION_AND_SIZE = Struct(">iqiB")
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
    topics: list[str | Uuid]
    partitions: list[PartitionCommit]


_Parse: TypeAlias = Callable[[bytes], _Request | None]


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


def read_offset_commit(version: int) -> Reader:
    """The reader for one version."""
    if version < _FIRST_BY_HAND:
        return lambda frame, position: None
    compact, by_id = version >= _COMPACT_SINCE, version >= TOPIC_IDS_SINCE
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

    def read(frame: memoryview, position: int) -> OffsetCommitPlan | None:
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
        return OffsetCommitPlan(
            version,
            request.group_id,
            request.generation_id,
            request.member_id,
            request.instance_id,
            request.topics,
            (partitions,),
            accepted=answer,
        )

    return read


# A size that goes beyond the end makes the last position differ from the end, or there is nothing to unpack.


def _parse_before_8(version: int) -> _Parse:
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
        return _Request(group_id, generation_id, member_id, instance_id, topic, [topic[2:].decode()], partitions)

    return parse


def _parse_compact(*, by_id: bool) -> _Parse:
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
        key = Uuid(topic) if by_id else topic[1:].decode()
        return _Request(group_id, generation_id, member_id, instance_id, topic, [key], partitions)

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


# Writing.

_ANSWER_HEAD = Struct(">ii")
_ANSWER = Struct(">ii")
_ANSWER_PARTITION = Struct(">ih")
_COMPACT_ANSWER = Struct(">BiB")
_COMPACT_ANSWER_PARTITION = Struct(">ihB")


def response_of(plan: OffsetCommitPlan, code: ErrorCode) -> OffsetCommitResponse:
    """All partitions are told the same."""
    by_id = plan.version >= TOPIC_IDS_SINCE
    topics = []
    for key, partitions in zip(plan.topics, plan.partitions, strict=True):
        parts = [OffsetCommitResponsePartition(partition_index=part[0], error_code=code) for part in partitions]
        name, topic_id = ("", Uuid(cast("bytes", key))) if by_id else (cast("str", key), ZERO_UUID)
        topics.append(OffsetCommitResponseTopic(name=name, topic_id=topic_id, partitions=parts))
    return OffsetCommitResponse(topics=topics)


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


def write_offset_commit(version: int) -> Writer:
    """The writer for one version."""
    header_version = 1 if version >= _COMPACT_SINCE else 0

    def write(plan: OffsetCommitPlan, outcome: Outcome, correlation_id: int) -> bytes | list[Part]:
        if outcome is None and plan.accepted is not None and not plan.throttle_ms:
            return _ANSWER_HEAD.pack(len(plan.accepted) + 4, correlation_id) + plan.accepted
        response = outcome or response_of(plan, ErrorCode.NONE)
        response.throttle_time_ms = plan.throttle_ms
        return response_frame(correlation_id, [encode(response, version)], header_version=header_version)

    return write
