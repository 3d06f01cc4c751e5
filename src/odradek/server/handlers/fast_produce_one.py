"""Produce of one batch to one partition, the shortest way through.

When requests come one at a time the processor has forgotten all code in between, and what a request costs is how much
code it runs. Whatever is not one batch that is taken goes on to `fast_produce`, before anything was done.
"""

from __future__ import annotations

from struct import Struct
from struct import error as StructError
from typing import TYPE_CHECKING

from odradek.protocol.errors import KafkaError, MalformedFrame
from odradek.protocol.primitives import decode_uvarint
from odradek.protocol.records.check import TakesLong
from odradek.server.handlers.fast_produce import fast_produce, needs_generic_path
from odradek.server.handlers.fast_produce_all import append_acks_all
from odradek.server.handlers.leader_hints import LeaderHints
from odradek.server.handlers.produce_answers import generic_answer, is_too_new
from odradek.server.net.routes import FastAnswer, FastPath
from odradek.storage.log import AppendInfo

if TYPE_CHECKING:
    from odradek.server.partitions.hosted_partition import HostedPartition
    from odradek.server.rooms import Rooms

_NO_ANSWER = b""
_REQUEST_BY_ID = Struct(">BhiB16sBi")
_REQUEST_BY_NAME = Struct(">BhiBB")
_PARTITION = Struct(">Bi")
_END = b"\0\0\0"
"""Neither the partition nor the topic nor the request has tagged fields."""

_ANSWER_START = Struct(">iiBB")
_ANSWER_PARTITION = Struct(">BihqqqBBB6s")
_ANSWER_FIXED_BYTES = _ANSWER_START.size - 4 + _ANSWER_PARTITION.size
_ANSWER_END = bytes(6)
"""No tagged fields of the topic, no throttling, none of the answer."""

_REQUEST_BEFORE_9 = Struct(">hhiih")
_PARTITION_BEFORE_9 = Struct(">iii")
_ANSWER_START_BEFORE_9 = Struct(">iiih")
_ANSWER_PARTITION_BEFORE_9 = {5: Struct(">iihqqqi"), 6: Struct(">iihqqqi"), 7: Struct(">iihqqqi")}
"""Of the versions that clients in use still send; the others go on to `fast_produce`."""


def fast_produce_one(version: int, listener_name: str) -> FastPath:
    """The handler for one version on one listener."""
    several = fast_produce(version, listener_name)
    if version >= 13:
        return _by_topic_id(listener_name, several)
    if version >= 9:
        return _by_name(version, listener_name, several)
    if version in _ANSWER_PARTITION_BEFORE_9:
        return _before_9(version, listener_name, several)
    return several


def _by_topic_id(listener_name: str, several: FastPath) -> FastPath:
    def handle(rooms: Rooms, frame: memoryview, position: int, correlation_id: int) -> FastAnswer:
        try:
            transaction, acks, timeout_ms, topics, topic_id, partitions, index = _REQUEST_BY_ID.unpack_from(
                frame, position
            )
            batch = _only_batch(frame, position + _REQUEST_BY_ID.size) if partitions == 2 else None
        except (StructError, IndexError, MalformedFrame):
            return several(rooms, frame, position, correlation_id)
        if batch is None or topics != 2 or transaction:
            return several(rooms, frame, position, correlation_id)
        hosted = rooms.replicas.find_by_id(topic_id, index)
        if hosted is None:
            return None
        if needs_generic_path(hosted, batch, acks):
            return append_acks_all(
                rooms,
                hosted,
                batch,
                acks=acks,
                timeout_ms=timeout_ms,
                answer=lambda info: _answer(correlation_id, topic_id, index, info),
                refuse=lambda error: refusal(rooms, listener_name, 13, correlation_id, hosted, error, acks),
            )
        try:
            info = rooms.replicas.append(hosted, batch, now_ms=rooms.world.clock.now_ms())
        except TakesLong:
            return None
        except KafkaError as error:
            return refusal(rooms, listener_name, 13, correlation_id, hosted, error, acks)
        return _answer(correlation_id, topic_id, index, info) if acks else _NO_ANSWER

    return handle


def _by_name(version: int, listener_name: str, several: FastPath) -> FastPath:
    def handle(rooms: Rooms, frame: memoryview, position: int, correlation_id: int) -> FastAnswer:
        try:
            transaction, acks, timeout_ms, topics, name_size = _REQUEST_BY_NAME.unpack_from(frame, position)
            name_end = position + 8 + name_size
            sized_name = bytes(frame[position + 8 : name_end])
            partitions, index = _PARTITION.unpack_from(frame, name_end)
            batch = _only_batch(frame, name_end + _PARTITION.size) if partitions == 2 else None
            topic = sized_name[1:].decode()
        except (StructError, IndexError, MalformedFrame, UnicodeDecodeError):
            return several(rooms, frame, position, correlation_id)
        if batch is None or topics != 2 or transaction or not 0 < name_size < 128:
            return several(rooms, frame, position, correlation_id)
        hosted = rooms.replicas.find(topic, index)
        if hosted is None:
            return None
        if needs_generic_path(hosted, batch, acks):
            return append_acks_all(
                rooms,
                hosted,
                batch,
                acks=acks,
                timeout_ms=timeout_ms,
                answer=lambda info: _answer(correlation_id, sized_name, index, info),
                refuse=lambda error: refusal(rooms, listener_name, version, correlation_id, hosted, error, acks),
            )
        try:
            info = rooms.replicas.append(hosted, batch, now_ms=rooms.world.clock.now_ms())
        except TakesLong:
            return None
        except KafkaError as error:
            return refusal(rooms, listener_name, version, correlation_id, hosted, error, acks)
        return _answer(correlation_id, sized_name, index, info) if acks else _NO_ANSWER

    return handle


def _before_9(version: int, listener_name: str, several: FastPath) -> FastPath:
    pack_partition = _ANSWER_PARTITION_BEFORE_9[version].pack
    fixed_bytes = _ANSWER_START_BEFORE_9.size - 4 + _ANSWER_PARTITION_BEFORE_9[version].size

    def handle(rooms: Rooms, frame: memoryview, position: int, correlation_id: int) -> FastAnswer:
        try:
            transaction, acks, _, topics, name_size = _REQUEST_BEFORE_9.unpack_from(frame, position)
            name_end = position + 14 + name_size
            name = bytes(frame[position + 14 : name_end])
            partitions, index, size = _PARTITION_BEFORE_9.unpack_from(frame, name_end)
            topic = name.decode()
        except (StructError, UnicodeDecodeError):
            return several(rooms, frame, position, correlation_id)
        batch = frame[name_end + 12 :]
        if partitions != 1 or topics != 1 or transaction != -1 or name_size < 0 or size != len(batch):
            return several(rooms, frame, position, correlation_id)
        hosted = rooms.replicas.find(topic, index)
        if hosted is None or needs_generic_path(hosted, batch, acks) or is_too_new(batch, version):
            return None
        try:
            info = rooms.replicas.append(hosted, batch, now_ms=rooms.world.clock.now_ms())
        except TakesLong:
            return None
        except KafkaError as error:
            return refusal(rooms, listener_name, version, correlation_id, hosted, error, acks)
        if not acks:
            return _NO_ANSWER
        start = _ANSWER_START_BEFORE_9.pack(fixed_bytes + name_size, correlation_id, 1, name_size)
        offsets = info.base_offset, info.log_append_time_ms, info.log_start_offset
        return b"".join((start, name, pack_partition(1, index, 0, *offsets, 0)))

    return handle


def _only_batch(frame: memoryview, position: int) -> memoryview | None:
    """The batch at this position, if the request ends behind it and nothing in it is tagged."""
    size, position = decode_uvarint(frame, position)
    end = position + size - 1
    return frame[position:end] if size and frame[end:] == _END else None


def _answer(correlation_id: int, topic: bytes, index: int, info: AppendInfo) -> bytes:
    """The answer of versions 9 and above; `topic` is its id, or its name with the size in front."""
    return b"".join(
        (
            _ANSWER_START.pack(_ANSWER_FIXED_BYTES + len(topic), correlation_id, 0, 2),
            topic,
            _ANSWER_PARTITION.pack(
                2, index, 0, info.base_offset, info.log_append_time_ms, info.log_start_offset, 1, 0, 0, _ANSWER_END
            ),
        )
    )


def refusal(
    rooms: Rooms,
    listener_name: str,
    version: int,
    correlation_id: int,
    hosted: HostedPartition,
    error: KafkaError,
    acks: int,
) -> bytes:
    """The answer to a batch that was not taken."""
    if not acks:
        raise error  # All that a client can notice which does not want an answer: its connection closes.
    topic = "" if version >= 13 else hosted.topic
    leaders = LeaderHints(rooms.image, listener_name)
    return generic_answer(
        version, correlation_id, [(hosted.index, error)], leaders, topic=topic, topic_id=hosted.topic_id
    )
