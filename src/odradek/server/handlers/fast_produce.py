"""Produce to partitions of one topic, from the frame's bytes to the answer's, without an object for every field.

That is what most producers send most of the time, and where a broker's CPU goes. Anything else (several topics, a
partition twice, a transactional id, tagged fields, a partition that is not here, a log that syncs as it goes) returns
None before anything was done, and the generic path takes over; a test holds the two equal.
"""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct
from struct import error as StructError
from typing import TYPE_CHECKING, TypeAlias, cast

from odradek.protocol.errors import KafkaError, MalformedFrame
from odradek.protocol.primitives import decode_uvarint
from odradek.replication.partition import LEADER, SOLE_REPLICA
from odradek.server.handlers.fast_produce_all import ALL, append_several_acks_all, examined_at_once
from odradek.server.handlers.leader_hints import LeaderHints
from odradek.server.handlers.produce_answers import Outcome, generic_answer, is_too_new, is_transactional
from odradek.server.net.routes import FastAnswer, FastPath

if TYPE_CHECKING:
    from odradek.server.partitions.hosted_partition import HostedPartition
    from odradek.server.rooms import Rooms

Batches: TypeAlias = tuple[list[int], list[memoryview]]
"""The indexes of partitions, and a batch for each."""

MAX_PARTITIONS = 100
"""So many that counts fit into one byte, and few enough to prepare all of them before the first is appended."""

_NO_ANSWER = b""

_INT32 = Struct(">i")
_ONE_BYTE = tuple(bytes((value,)) for value in range(128))
_NO_THROTTLING = bytes(4)
_REQUEST = Struct(">BhiB")
_REQUEST_BY_ID = Struct(">BhiB16s")
_ANSWER = Struct(">iiBB")
_ANSWER_PARTITION = Struct(">ihqqq3s")
_PARTITION_END = b"\1\0\0"
"""No record errors, no message, no tagged fields."""

_ANSWER_END = b"\0\0\0\0\0\0"
"""No tagged fields of the topic, no throttling, none of the answer."""

_REQUEST_BEFORE_9 = Struct(">hhiih")
_PARTITION_BEFORE_9 = Struct(">ii")
_ANSWER_BEFORE_9 = Struct(">iiih")
_ANSWER_PARTITION_BEFORE_9 = {
    3: Struct(">ihqq"),
    4: Struct(">ihqq"),
    5: Struct(">ihqqq"),
    6: Struct(">ihqqq"),
    7: Struct(">ihqqq"),
    8: Struct(">ihqqqih"),
}


def fast_produce(version: int, listener_name: str) -> FastPath:
    """The handler for one version on one listener."""
    if version >= 13:
        return _by_topic_id(listener_name)
    if version >= 9:
        return _by_name(version, listener_name)
    return _before_9(version, listener_name)


def needs_generic_path(hosted: HostedPartition, batch: memoryview, acks: int) -> bool:
    """Whether an append may have to wait, or be refused for what only the generic path looks at."""
    role = hosted.partition.role
    return (
        not -1 <= acks <= 1
        or (role is not SOLE_REPLICA and (acks < 0 or role is not LEADER))  # It waits, or is told who leads.
        or hosted.is_internal  # The generic path knows which topics are the cluster's own.
        or hosted.partition.log.flushes_on_append
        or is_transactional(batch)
    )


def _by_topic_id(listener_name: str) -> FastPath:
    def handle(rooms: Rooms, frame: memoryview, position: int, correlation_id: int) -> FastAnswer:
        try:
            transaction, acks, timeout_ms, topics, topic_id = _REQUEST_BY_ID.unpack_from(frame, position)
            found = _batches(frame, position + _REQUEST_BY_ID.size)
        except (StructError, IndexError, MalformedFrame):
            return None
        if transaction or topics != 2 or found is None:
            return None
        indexes, batches = found
        hosts = rooms.replicas.find_all(topic_id, indexes)

        def answer(outcomes: list[Outcome]) -> bytes:
            return _answer(correlation_id, topic_id, indexes, outcomes) or generic_answer(
                13,
                correlation_id,
                zip(indexes, outcomes, strict=True),
                LeaderHints(rooms.image, listener_name),
                topic_id=topic_id,
            )

        return _appended(rooms, hosts, batches, acks, timeout_ms, answer)

    return handle


def _by_name(version: int, listener_name: str) -> FastPath:
    def handle(rooms: Rooms, frame: memoryview, position: int, correlation_id: int) -> FastAnswer:
        try:
            transaction, acks, timeout_ms, topics = _REQUEST.unpack_from(frame, position)
            name_end = position + 8 + frame[position + 8]
            sized_name = bytes(frame[position + 8 : name_end])
            found = _batches(frame, name_end)
            topic = sized_name[1:].decode()
        except (StructError, IndexError, MalformedFrame, UnicodeDecodeError):
            return None
        if transaction or topics != 2 or found is None or not 0 < sized_name[0] < 128:
            return None
        indexes, batches = found
        hosts = rooms.replicas.find_all(topic, indexes)

        def answer(outcomes: list[Outcome]) -> bytes:
            return _answer(correlation_id, sized_name, indexes, outcomes) or generic_answer(
                version,
                correlation_id,
                zip(indexes, outcomes, strict=True),
                LeaderHints(rooms.image, listener_name),
                topic=topic,
            )

        return _appended(rooms, hosts, batches, acks, timeout_ms, answer)

    return handle


def _before_9(version: int, listener_name: str) -> FastPath:
    partition_answer = _ANSWER_PARTITION_BEFORE_9[version]
    fixed_bytes = _ANSWER_BEFORE_9.size - 4 + 4 + 4
    says_log_start = version >= 5
    rest = (0, -1) if version >= 8 else ()  # No record errors, no message.

    def handle(rooms: Rooms, frame: memoryview, position: int, correlation_id: int) -> bytes | None:
        try:
            transaction, acks, _, topics, name_size = _REQUEST_BEFORE_9.unpack_from(frame, position)
            name_end = position + 14 + name_size
            name = bytes(frame[position + 14 : name_end])
            found = _batches_before_9(frame, name_end)
            topic = name.decode()
        except (StructError, UnicodeDecodeError):
            return None
        if transaction != -1 or topics != 1 or found is None or name_size < 0:
            return None
        indexes, batches = found
        if any(is_too_new(batch, version) for batch in batches):
            return None
        outcomes = _append_all(rooms, rooms.replicas.find_all(topic, indexes), batches, acks)
        if outcomes is None:
            return None
        if not acks:
            return _NO_ANSWER
        size = fixed_bytes + name_size + len(batches) * partition_answer.size
        parts = [_ANSWER_BEFORE_9.pack(size, correlation_id, 1, name_size), name, _INT32.pack(len(batches))]
        for index, outcome in zip(indexes, outcomes, strict=True):
            if isinstance(outcome, KafkaError):
                leaders = LeaderHints(rooms.image, listener_name)
                return generic_answer(
                    version, correlation_id, zip(indexes, outcomes, strict=True), leaders, topic=topic
                )
            start = (outcome.log_start_offset,) if says_log_start else ()
            parts.append(
                partition_answer.pack(index, 0, outcome.base_offset, outcome.log_append_time_ms, *start, *rest)
            )
        parts.append(_NO_THROTTLING)
        return b"".join(parts)

    return handle


def _batches(frame: memoryview, position: int) -> Batches | None:
    """The topic's partitions, if the request ends behind them and nothing in it is tagged."""
    count = frame[position] - 1
    if not 0 < count <= MAX_PARTITIONS:
        return None
    position += 1
    indexes, batches = [], []
    for _ in range(count):
        (index,) = _INT32.unpack_from(frame, position)
        size, position = decode_uvarint(frame, position + 4)
        end = position + size - 1
        if size < 1 or frame[end]:
            return None
        indexes.append(index)
        batches.append(frame[position:end])
        position = end + 1
    if len(set(indexes)) < count:
        return None
    # Neither the topic nor the request has tagged fields.
    return (indexes, batches) if len(frame) == position + 2 and not frame[position] and not frame[-1] else None


def _batches_before_9(frame: memoryview, position: int) -> Batches | None:
    (count,) = _INT32.unpack_from(frame, position)
    if not 0 < count <= MAX_PARTITIONS:
        return None
    position += 4
    indexes, batches = [], []
    for _ in range(count):
        index, size = _PARTITION_BEFORE_9.unpack_from(frame, position)
        position += 8
        if not 0 <= size <= len(frame) - position:
            return None
        indexes.append(index)
        batches.append(frame[position : position + size])
        position += size
    return (indexes, batches) if position == len(frame) and len(set(indexes)) == count else None


def _appended(
    rooms: Rooms,
    hosts: list[HostedPartition | None],
    batches: list[memoryview],
    acks: int,
    timeout_ms: int,
    answer: Callable[[list[Outcome]], bytes],
) -> FastAnswer:
    """What follows from the batches; the answer must not look at them any more, because it may have to wait."""
    first = hosts[0]
    if acks == ALL and first is not None and first.partition.leadership is not None:
        return append_several_acks_all(rooms, hosts, batches, timeout_ms, answer)
    outcomes = _append_all(rooms, hosts, batches, acks)
    if outcomes is None:
        return None
    return answer(outcomes) if acks else _NO_ANSWER


def _append_all(
    rooms: Rooms, hosts: list[HostedPartition | None], batches: list[memoryview], acks: int
) -> list[Outcome] | None:
    """Append each batch to its partition; None, and nothing done, if the generic path has to see to it."""
    for hosted, batch in zip(hosts, batches, strict=True):
        if hosted is None or needs_generic_path(hosted, batch, acks):
            return None
    replicas = rooms.replicas
    now_ms = rooms.world.clock.now_ms()
    outcomes: list[Outcome] = []
    failed: KafkaError | None = None
    led = cast("list[HostedPartition]", hosts)
    examined = examined_at_once(led, batches, now_ms)
    if examined is None:
        return None
    for hosted, batch, known in zip(led, batches, examined, strict=True):
        try:
            outcomes.append(replicas.append(hosted, batch, now_ms, examined=known))
        except KafkaError as error:
            failed = error
            outcomes.append(error)
    if failed is not None and not acks:
        raise failed  # All that a client can notice which does not want an answer: its connection closes.
    return outcomes


def _answer(correlation_id: int, topic: bytes, indexes: list[int], outcomes: list[Outcome]) -> bytes | None:
    """The answer of versions 9 and above if all went well; `topic` is its id, or its name with the size in front."""
    count = len(indexes)
    size = _ANSWER.size - 4 + len(topic) + 1 + count * _ANSWER_PARTITION.size + len(_ANSWER_END)
    frame = _ANSWER.pack(size, correlation_id, 0, 2) + topic + _ONE_BYTE[count + 1]
    pack = _ANSWER_PARTITION.pack
    for index, outcome in zip(indexes, outcomes, strict=True):
        if isinstance(outcome, KafkaError):
            return None
        frame += pack(
            index, 0, outcome.base_offset, outcome.log_append_time_ms, outcome.log_start_offset, _PARTITION_END
        )
    return frame + _ANSWER_END
