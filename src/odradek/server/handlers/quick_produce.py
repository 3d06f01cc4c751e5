"""Produce with one batch for one partition, from the frame's bytes to the answer's, without an object between them.

That is what most producers send most of the time, and where a broker's CPU goes. Anything else (several partitions, a
transactional id, tagged fields, a topic that is not here, a log that syncs as it goes) returns None, and the declared
messages and their handler take over; a test holds the two equal.
"""

from __future__ import annotations

from struct import Struct
from struct import error as StructError
from typing import TYPE_CHECKING

from odradek.ids import NO_OFFSET, NO_TIMESTAMP, ZERO_UUID, Uuid
from odradek.protocol.codec import encode
from odradek.protocol.errors import KafkaError
from odradek.protocol.messages.produce import PartitionProduceResponse, ProduceResponse, TopicProduceResponse
from odradek.protocol.primitives import decode_uvarint
from odradek.server.routes import QuickHandler

if TYPE_CHECKING:
    from odradek.server.node import Node
    from odradek.server.replicas import Hosted

_NO_ANSWER = b""
_NO_TAGS = b"\0\0\0"
"""The ends of partition, topic and request, none of which says more."""

_ID_REQUEST = Struct(">BhiB16sBi")
_ID_ANSWER = Struct(">iiBB16sBihqqqBBBBiB")
_NAME_REQUEST = Struct(">BhiBB")
_NAME_PARTITION = Struct(">Bi")
_NAME_ANSWER = Struct(">iiBBB")
_NAME_ANSWER_PARTITION = Struct(">BihqqqBBBBiB")
_ID_ANSWER_BYTES = _ID_ANSWER.size - 4
_NAME_ANSWER_BYTES = _NAME_ANSWER.size - 4 + _NAME_ANSWER_PARTITION.size
"""What the frame's size counts: all but itself, and here without the name."""
_OLD_REQUEST = Struct(">hhiih")
_OLD_PARTITION = Struct(">iii")
_OLD_ANSWER = Struct(">iiih")
_OLD_ANSWER_PARTITION = {
    3: Struct(">iihqqi"),
    4: Struct(">iihqqi"),
    5: Struct(">iihqqqi"),
    6: Struct(">iihqqqi"),
    7: Struct(">iihqqqi"),
    8: Struct(">iihqqqihi"),
}
_NO_RECORD_ERRORS = (0, -1)
"""An empty array and no message, which version 8 added."""


def quick_produce(version: int) -> QuickHandler:
    """The handler for one version."""
    if version >= 13:
        return _by_topic_id
    if version >= 9:
        return _by_name(version)
    return _by_name_before_9(version)


def refused(index: int, error: KafkaError) -> PartitionProduceResponse:
    """What a partition answers that took nothing."""
    return PartitionProduceResponse(
        index=index,
        error_code=error.code,
        base_offset=NO_OFFSET,
        log_append_time_ms=NO_TIMESTAMP,
        log_start_offset=NO_OFFSET,
        error_message=error.message,
    )


def _by_topic_id(node: Node, frame: memoryview, position: int, correlation_id: int) -> bytes | None:
    try:
        no_transaction, acks, _, topics, topic_id, partitions, index = _ID_REQUEST.unpack_from(frame, position)
        size, position = decode_uvarint(frame, position + 29)
    except (StructError, IndexError):
        return None
    end = position + size - 1
    if no_transaction or topics != 2 or partitions != 2 or size < 1 or frame[end:] != _NO_TAGS:
        return None
    hosted = node.replicas.find_by_id(topic_id, index)
    if hosted is None or hosted.partition.log.flushes_on_append or not -1 <= acks <= 1:
        return None
    try:
        info = node.replicas.append(hosted, frame[position:end], now_ms=node.world.clock.now_ms())
    except KafkaError as error:
        return _refusal(13, correlation_id, hosted, acks, error, topic_id=topic_id)
    if not acks:
        return _NO_ANSWER
    return _ID_ANSWER.pack(
        _ID_ANSWER_BYTES,
        correlation_id,
        0,
        2,
        topic_id,
        2,
        index,
        0,
        info.base_offset,
        info.log_append_time_ms,
        info.log_start_offset,
        1,
        0,
        0,
        0,
        0,
        0,
    )


def _by_name(version: int) -> QuickHandler:
    def handle(node: Node, frame: memoryview, position: int, correlation_id: int) -> bytes | None:
        try:
            no_transaction, acks, _, topics, name_size = _NAME_REQUEST.unpack_from(frame, position)
            name_end = position + 8 + name_size
            name = bytes(frame[position + 9 : name_end])
            partitions, index = _NAME_PARTITION.unpack_from(frame, name_end)
            size, position = decode_uvarint(frame, name_end + 5)
            topic = name.decode()
        except (StructError, IndexError, UnicodeDecodeError):
            return None
        end = position + size - 1
        if no_transaction or topics != 2 or partitions != 2 or size < 1 or frame[end:] != _NO_TAGS:
            return None
        hosted = node.replicas.find(topic, index) if 0 < name_size < 128 else None
        if hosted is None or hosted.partition.log.flushes_on_append or not -1 <= acks <= 1:
            return None
        try:
            info = node.replicas.append(hosted, frame[position:end], now_ms=node.world.clock.now_ms())
        except KafkaError as error:
            return _refusal(version, correlation_id, hosted, acks, error)
        if not acks:
            return _NO_ANSWER
        return (
            _NAME_ANSWER.pack(_NAME_ANSWER_BYTES + len(name), correlation_id, 0, 2, name_size)
            + name
            + _NAME_ANSWER_PARTITION.pack(
                2, index, 0, info.base_offset, info.log_append_time_ms, info.log_start_offset, 1, 0, 0, 0, 0, 0
            )
        )

    return handle


def _by_name_before_9(version: int) -> QuickHandler:
    answer = _OLD_ANSWER_PARTITION[version]
    size_without_name = _OLD_ANSWER.size - 4 + answer.size
    says_log_start = version >= 5
    end_of_partition = _NO_RECORD_ERRORS if version >= 8 else ()

    def handle(node: Node, frame: memoryview, position: int, correlation_id: int) -> bytes | None:
        try:
            no_transaction, acks, _, topics, name_size = _OLD_REQUEST.unpack_from(frame, position)
            name_end = position + 14 + name_size
            name = bytes(frame[position + 14 : name_end])
            partitions, index, size = _OLD_PARTITION.unpack_from(frame, name_end)
            topic = name.decode()
        except (StructError, IndexError, UnicodeDecodeError):
            return None
        position = name_end + 12
        end = position + size
        if no_transaction != -1 or topics != 1 or partitions != 1 or size < 0 or end != len(frame):
            return None
        hosted = node.replicas.find(topic, index) if name_size >= 0 else None
        if hosted is None or hosted.partition.log.flushes_on_append or not -1 <= acks <= 1:
            return None
        try:
            info = node.replicas.append(hosted, frame[position:end], now_ms=node.world.clock.now_ms())
        except KafkaError as error:
            return _refusal(version, correlation_id, hosted, acks, error)
        if not acks:
            return _NO_ANSWER
        start = (info.log_start_offset,) if says_log_start else ()
        return (
            _OLD_ANSWER.pack(size_without_name + name_size, correlation_id, 1, name_size)
            + name
            + answer.pack(1, index, 0, info.base_offset, info.log_append_time_ms, *start, *end_of_partition, 0)
        )

    return handle


def _refusal(
    version: int, correlation_id: int, hosted: Hosted, acks: int, error: KafkaError, *, topic_id: Uuid = ZERO_UUID
) -> bytes:
    """An error is rare enough for the declared messages; one with acks=0 closes the connection."""
    if not acks:
        raise error
    topic = TopicProduceResponse(
        name=hosted.topic, topic_id=topic_id, partition_responses=[refused(hosted.index, error)]
    )
    body = encode(ProduceResponse(responses=[topic]), version)
    header = b"\0" if version >= 9 else b""
    return Struct(">ii").pack(4 + len(header) + len(body), correlation_id) + header + body
