"""Produce, versions 3 to 13: from bytes to a plan, and from what came of it to bytes.

By hand is read what most producers send most of the time: batches for partitions of one topic, and nothing tagged. By
hand is written what they are answered when all went well. All else goes through the compiled codec.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import groupby
from operator import itemgetter
from struct import Struct
from struct import error as StructError
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, cast

from odradek.ids import NO_OFFSET, NO_TIMESTAMP, ZERO_UUID, Uuid
from odradek.protocol.codec import encode
from odradek.protocol.errors import ErrorCode, MalformedFrame
from odradek.protocol.frame import response_frame
from odradek.protocol.messages.produce import (
    BatchIndexAndErrorMessage,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from odradek.protocol.primitives import decode_uvarint, encode_uvarint
from odradek.protocol.records.batch import ATTRIBUTES_POSITION, HEADER_SIZE, TRANSACTIONAL_BIT
from odradek.values import value

if TYPE_CHECKING:
    from odradek.ports import Part

FIRST_FLEXIBLE_VERSION = 9
FIRST_VERSION_BY_ID = 13
_FIRST_VERSION_WITH_LEADERS = 10
_FIRST_VERSION_BY_HAND = 5
"""Of answers: those before have no place for where the log starts."""

FLAGS_POSITION = ATTRIBUTES_POSITION + 1
"""Where in a batch its flags are."""

MAX_PARTITIONS = 100
"""So many that their count fits into one byte."""


class ProducePlan:
    """A batch each for some partitions, none of which is named twice."""

    __slots__ = (
        "acks",
        "batches",
        "indexes",
        "is_transactional",
        "place",
        "throttle_ms",
        "timeout_ms",
        "topics",
        "transactional_id",
        "version",
    )

    def __init__(
        self,
        version: int,
        acks: int,
        timeout_ms: int,
        topics: list[Any],
        indexes: list[int],
        batches: Sequence[memoryview | None],
        is_transactional: bool,
        transactional_id: str | None = None,
    ) -> None:
        self.version = version
        self.acks = acks
        self.timeout_ms = timeout_ms
        self.topics = topics
        """By id from version 13 on, by name before: one entry a partition, as in `indexes`, in the answer's order."""
        self.indexes = indexes
        self.batches = batches
        """Views of the receive buffer, good until the handler first waits."""
        self.is_transactional = is_transactional
        """Whether any batch says that it belongs to a transaction."""
        self.transactional_id = transactional_id
        self.throttle_ms = 0
        self.place: Any = None
        """What the handler knows of where the only batch goes: the same plan may be carried out again with another."""

    def drop(self) -> None:
        """Let go of the batches: from here on only their places are waited for."""
        self.batches = ()


class Appended(Protocol):
    """Where a batch went."""

    @property
    def base_offset(self) -> int: ...
    @property
    def log_append_time_ms(self) -> int: ...
    @property
    def log_start_offset(self) -> int: ...


@value
class LeaderHint:
    """Who leads a partition instead, and where its clients reach it (KIP-951); no host where they cannot."""

    node_id: int
    leader_epoch: int
    host: str | None
    port: int
    rack: str | None


class Refused:
    """Why a partition did not take its batch; or, with `appended`, why nobody vouches for what it took."""

    __slots__ = ("appended", "code", "leader", "message", "record_errors")

    def __init__(
        self,
        code: ErrorCode,
        message: str | None = None,
        *,
        appended: Appended | None = None,
        leader: LeaderHint | None = None,
        record_errors: Sequence[tuple[int, str]] = (),
    ) -> None:
        self.code = code
        self.message = message
        self.appended = appended
        self.leader = leader
        self.record_errors = record_errors


Outcome: TypeAlias = Appended | Refused

Reader: TypeAlias = Callable[[memoryview, int], ProducePlan | None]
Writer: TypeAlias = "Callable[[ProducePlan, Sequence[Outcome], int], bytes | list[Part]]"


def plan_of(request: ProduceRequest, version: int) -> ProducePlan:
    """Of a partition that is named several times only the last batch counts, and is answered, as with Kafka."""
    by_id = version >= FIRST_VERSION_BY_ID
    merged: dict[str | Uuid, dict[int, PartitionProduceData]] = {}
    for topic in request.topic_data:
        parts = merged.setdefault(Uuid(topic.topic_id) if by_id else topic.name, {})
        for part in topic.partition_data:
            parts[part.index] = part
    entries = [(key, part) for key, parts in merged.items() for part in parts.values()]
    return ProducePlan(
        version,
        request.acks,
        request.timeout_ms,
        [key for key, _ in entries],
        [part.index for _, part in entries],
        [cast("memoryview | None", part.records) for _, part in entries],
        any(_is_transactional(part.records) for _, part in entries),
        request.transactional_id,
    )


def _is_transactional(batch: object) -> bool:
    return (
        isinstance(batch, memoryview)
        and len(batch) > FLAGS_POSITION
        and bool(batch[FLAGS_POSITION] & TRANSACTIONAL_BIT)
    )


# Reading.

_REQUEST_BY_ID = Struct(">BhiB16sB")
_REQUEST_BY_NAME = Struct(">BhiBB")
_PARTITION_START = Struct(">iB")
_COUNT = Struct(">i")
_REQUEST_BEFORE_9 = Struct(">hhiih")
_PARTITION_BEFORE_9 = Struct(">ii")


def read_produce(version: int) -> Reader:
    """The reader for one version."""
    if version < FIRST_FLEXIBLE_VERSION:
        return _reader_before_9(version)
    return _read_by_id if version >= FIRST_VERSION_BY_ID else _reader_by_name(version)


def _read_by_id(frame: memoryview, position: int) -> ProducePlan | None:
    try:
        transaction, acks, timeout_ms, topics, topic_id, count = _REQUEST_BY_ID.unpack_from(frame, position)
        if transaction or topics != 2:
            return None
        return _flexible_plan(13, frame, position + _REQUEST_BY_ID.size, acks, timeout_ms, topic_id, count - 1)
    except (StructError, IndexError, MalformedFrame):
        return None


def _reader_by_name(version: int) -> Reader:
    def read(frame: memoryview, position: int) -> ProducePlan | None:
        try:
            transaction, acks, timeout_ms, topics, name_size = _REQUEST_BY_NAME.unpack_from(frame, position)
            if transaction or topics != 2 or not 0 < name_size < 128:
                return None
            position += _REQUEST_BY_NAME.size
            name_end = position + name_size - 1
            count = frame[name_end]
            name = str(frame[position:name_end], "utf-8")
            return _flexible_plan(version, frame, name_end + 1, acks, timeout_ms, name, count - 1)
        except (StructError, IndexError, MalformedFrame, UnicodeDecodeError):
            return None

    return read


def _flexible_plan(
    version: int, frame: memoryview, position: int, acks: int, timeout_ms: int, topic: str | Uuid, count: int
) -> ProducePlan | None:
    """The topic's partitions begin here; None unless the request ends behind them and nothing in it is tagged."""
    if not 0 < count <= MAX_PARTITIONS:
        return None
    indexes, batches = [], []
    flags = 0
    unpack = _PARTITION_START.unpack_from
    for _ in range(count):
        index, size = unpack(frame, position)
        position += 5
        if size > 127:
            size, position = decode_uvarint(frame, position - 1)
        end = position + size - 1
        if size <= HEADER_SIZE or frame[end]:
            return None
        flags |= frame[position + FLAGS_POSITION]
        indexes.append(index)
        batches.append(frame[position:end])
        position = end + 1
    # Neither the topic nor the request has tagged fields.
    if len(frame) != position + 2 or frame[position] or frame[-1] or (count > 1 and len(set(indexes)) < count):
        return None
    return ProducePlan(version, acks, timeout_ms, [topic] * count, indexes, batches, flags & TRANSACTIONAL_BIT != 0)


def _reader_before_9(version: int) -> Reader:
    def read(frame: memoryview, position: int) -> ProducePlan | None:
        try:
            transaction, acks, timeout_ms, topics, name_size = _REQUEST_BEFORE_9.unpack_from(frame, position)
            position += _REQUEST_BEFORE_9.size
            name_end = position + name_size
            if transaction != -1 or topics != 1 or name_size < 0:
                return None
            name = str(frame[position:name_end], "utf-8")
            (count,) = _COUNT.unpack_from(frame, name_end)
            if not 0 < count <= MAX_PARTITIONS:
                return None
            position = name_end + 4
            indexes, batches = [], []
            flags = 0
            for _ in range(count):
                index, size = _PARTITION_BEFORE_9.unpack_from(frame, position)
                position += 8
                if not HEADER_SIZE <= size <= len(frame) - position:
                    return None
                flags |= frame[position + FLAGS_POSITION]
                indexes.append(index)
                batches.append(frame[position : position + size])
                position += size
        except (StructError, UnicodeDecodeError):
            return None
        if position != len(frame) or (count > 1 and len(set(indexes)) < count):
            return None
        return ProducePlan(version, acks, timeout_ms, [name] * count, indexes, batches, flags & TRANSACTIONAL_BIT != 0)

    return read


# Writing.

_PLACE_END = {5: b"", 6: b"", 7: b"", 8: b"\0\0\0\0\xff\xff"}
_FLEXIBLE_PLACE_END = b"\1\0\0"
"""No record errors, no message, no tagged fields."""


def write_produce(version: int) -> Writer:
    """The writer for one version."""
    if version < _FIRST_VERSION_BY_HAND:
        return _write_compiled
    key_of: Callable[[Any], bytes]
    if version >= FIRST_FLEXIBLE_VERSION:
        # No tagged fields of the header, the topic and the answer; one topic, the count of whose partitions is a byte.
        start, place_end, edge = b"\0\2", _FLEXIBLE_PLACE_END, b"\0"
        counts = [bytes((count + 1,)) for count in range(MAX_PARTITIONS + 1)]
        key_of = bytes if version >= FIRST_VERSION_BY_ID else _compact_name
    else:
        start, place_end, edge = b"\0\0\0\1", _PLACE_END[version], b""
        counts = [_COUNT.pack(count) for count in range(MAX_PARTITIONS + 1)]
        key_of = _short_name
    pack_head = Struct(f">ii{len(start)}s").pack
    pack_place = Struct(f">ihqqq{len(place_end)}s").pack
    pack_end = Struct(f">{len(edge)}si{len(edge)}s").pack
    lone_end = place_end + edge
    lone_answer = Struct(f">{len(counts[1])}sihqqq{len(lone_end)}si{len(edge)}s")
    pack_lone, count_of_one = lone_answer.pack, counts[1]
    fixed_bytes = 4 + len(start) + len(counts[1]) + 4 + 2 * len(edge)
    lone_bytes = 4 + len(start) + lone_answer.size

    def write(plan: ProducePlan, outcomes: Sequence[Outcome], correlation_id: int) -> bytes | list[Part]:
        if not plan.acks:
            return b""
        topics = plan.topics
        count = len(outcomes)
        if count == 1:  # As most are, and where every line costs most.
            lone = outcomes[0]
            if isinstance(lone, Refused):
                return _write_compiled(plan, outcomes, correlation_id)
            key = key_of(topics[0])
            return (
                pack_head(lone_bytes + len(key), correlation_id, start)
                + key
                + pack_lone(
                    count_of_one,
                    plan.indexes[0],
                    0,
                    lone.base_offset,
                    lone.log_append_time_ms,
                    lone.log_start_offset,
                    lone_end,
                    plan.throttle_ms,
                    edge,
                )
            )
        if not 0 < count <= MAX_PARTITIONS or topics.count(topics[0]) < count:
            return _write_compiled(plan, outcomes, correlation_id)
        places = b""
        for index, outcome in zip(plan.indexes, outcomes, strict=True):
            if isinstance(outcome, Refused):
                return _write_compiled(plan, outcomes, correlation_id)
            places += pack_place(
                index, 0, outcome.base_offset, outcome.log_append_time_ms, outcome.log_start_offset, place_end
            )
        key = key_of(topics[0])
        head = pack_head(fixed_bytes + len(key) + len(places), correlation_id, start)
        return head + key + counts[count] + places + pack_end(edge, plan.throttle_ms, edge)

    return write


def _short_name(name: str) -> bytes:
    raw = name.encode()
    return _COUNT.pack(len(raw))[2:] + raw


def _compact_name(name: str) -> bytes:
    raw = name.encode()
    return encode_uvarint(len(raw) + 1) + raw


def _write_compiled(plan: ProducePlan, outcomes: Sequence[Outcome], correlation_id: int) -> bytes | list[Part]:
    if not plan.acks:
        return b""
    response = response_of(plan, outcomes)
    header_version = 1 if plan.version >= FIRST_FLEXIBLE_VERSION else 0
    return response_frame(correlation_id, [encode(response, plan.version)], header_version=header_version)


def response_of(plan: ProducePlan, outcomes: Sequence[Outcome]) -> ProduceResponse:
    """What a plan is answered, as the message."""
    by_id = plan.version >= FIRST_VERSION_BY_ID
    responses = []
    for key, entries in groupby(zip(plan.topics, plan.indexes, outcomes, strict=True), itemgetter(0)):
        answers = [_answer(index, outcome, plan.version) for _, index, outcome in entries]
        name, topic_id = ("", Uuid(cast("bytes", key))) if by_id else (cast("str", key), ZERO_UUID)
        responses.append(TopicProduceResponse(name=name, topic_id=topic_id, partition_responses=answers))
    leaders = [each.leader for each in outcomes if isinstance(each, Refused) and each.leader is not None]
    return ProduceResponse(
        responses=responses, throttle_time_ms=plan.throttle_ms, node_endpoints=_endpoints(leaders, plan.version)
    )


def _endpoints(leaders: Sequence[LeaderHint], version: int) -> list[NodeEndpoint]:
    if version < _FIRST_VERSION_WITH_LEADERS:
        return []
    return [
        NodeEndpoint(node_id=each.node_id, host=each.host, port=each.port, rack=each.rack)
        for each in {leader.node_id: leader for leader in leaders}.values()
        if each.host is not None
    ]


def _answer(index: int, outcome: Outcome, version: int) -> PartitionProduceResponse:
    if not isinstance(outcome, Refused):
        return _place(index, outcome)
    if outcome.appended is not None:
        # Only the code is another, as with Kafka: the batch is where it is, and may come to be acknowledged yet.
        answer = _place(index, outcome.appended)
        answer.error_code = outcome.code
    else:
        answer = PartitionProduceResponse(
            index=index,
            error_code=outcome.code,
            base_offset=NO_OFFSET,
            log_append_time_ms=NO_TIMESTAMP,
            log_start_offset=NO_OFFSET,
            record_errors=[
                BatchIndexAndErrorMessage(batch_index=number, batch_index_error_message=what)
                for number, what in outcome.record_errors
            ],
            error_message=outcome.message,
        )
    if outcome.leader is not None and version >= _FIRST_VERSION_WITH_LEADERS:
        leader = outcome.leader
        answer.current_leader = LeaderIdAndEpoch(leader_id=leader.node_id, leader_epoch=leader.leader_epoch)
    return answer


def _place(index: int, appended: Appended) -> PartitionProduceResponse:
    return PartitionProduceResponse(
        index=index,
        error_code=0,
        base_offset=appended.base_offset,
        log_append_time_ms=appended.log_append_time_ms,
        log_start_offset=appended.log_start_offset,
    )
