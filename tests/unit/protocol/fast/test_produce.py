"""Produce by hand and by the compiled codec: of the same bytes the same plan, of the same outcomes the same bytes."""

from __future__ import annotations

import random
import subprocess
import sys
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.ids import Uuid
from odradek.protocol.codec import decoder, encode
from odradek.protocol.errors import ErrorCode, MalformedFrame
from odradek.protocol.fast.cached_produce import MAX_SHAPES, CachedProduce, cached_produce
from odradek.protocol.fast.produce import (
    MAX_PARTITIONS,
    LeaderHint,
    Outcome,
    ProducePlan,
    Refused,
    plan_of,
    read_produce,
    write_produce,
)
from odradek.protocol.messages.produce import (
    BatchIndexAndErrorMessage,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from odradek.protocol.records.batch import build_batch
from odradek.protocol.records.record import Record

VERSIONS = range(3, 14)
CORRELATION_ID = 77
BATCH = bytes(build_batch([Record(value=b"v" * 20)], timestamp=5))
IN_TRANSACTION = bytes(
    build_batch([Record(value=b"v")], producer_id=1, producer_epoch=0, base_sequence=0, transactional=True)
)
IN_FRONT = b"in front of it"


@dataclass(frozen=True)
class Place:
    base_offset: int
    log_append_time_ms: int
    log_start_offset: int


def request_of(
    *topics: tuple[str, list[tuple[int, bytes | None]]], acks: int = 1, transactional_id: str | None = None
) -> ProduceRequest:
    return ProduceRequest(
        transactional_id=transactional_id,
        acks=acks,
        timeout_ms=1_000,
        topic_data=[
            TopicProduceData(
                name=name,
                topic_id=id_of(name),
                partition_data=[PartitionProduceData(index=index, records=batch) for index, batch in parts],
            )
            for name, parts in topics
        ],
    )


def id_of(name: str) -> Uuid:
    return Uuid(random.Random(name).randbytes(16))


def frame_of(request: ProduceRequest, version: int) -> memoryview:
    return memoryview(bytearray(IN_FRONT + encode(request, version)))


def by_hand(frame: memoryview, version: int) -> ProducePlan | None:
    return read_produce(version)(frame, len(IN_FRONT))


def by_codec(frame: memoryview, version: int) -> ProducePlan:
    return plan_of(decoder(ProduceRequest, version)(frame, len(IN_FRONT))[0], version)


def told(plan: ProducePlan) -> dict[str, Any]:
    return {name: getattr(plan, name) for name in ProducePlan.__slots__} | {"batches": list(plan.batches)}


def test_neither_the_server_nor_a_log_is_in_reach() -> None:
    """So a reader cannot ask them for anything."""
    program = "import sys, odradek.protocol.fast.cached_produce\nprint('\\n'.join(sys.modules))"
    environment = {"PYTHONPATH": ":".join(filter(None, sys.path))}
    loaded = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, env=environment
    ).stdout.split()
    assert "odradek.protocol.fast.produce" in loaded
    rooms = {name.split(".")[1] for name in loaded if name.startswith("odradek.")}
    assert not rooms & {"server", "storage", "replication", "metadata", "coordinator"}


# Reading.

names = st.one_of(st.text(max_size=6), st.just("n" * 120), st.just("n" * 200))
batches = st.one_of(st.just(BATCH), st.just(IN_TRANSACTION), st.none(), st.binary(max_size=30), st.just(BATCH * 3))
topics = st.tuples(names, st.lists(st.tuples(st.integers(0, 4), batches), max_size=3))


@pytest.mark.parametrize("version", VERSIONS)
@given(st.lists(topics, max_size=2), st.sampled_from([-1, 0, 1, 2]), st.sampled_from([None, "", "t"]))
def test_a_reader_and_the_codec_make_the_same_plan(
    version: int, topics: list[Any], acks: int, transactional_id: str | None
) -> None:
    frame = frame_of(request_of(*topics, acks=acks, transactional_id=transactional_id), version)
    plan = by_hand(frame, version)
    assert plan is None or told(plan) == told(by_codec(frame, version))


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("count", [1, 2, MAX_PARTITIONS])
@pytest.mark.parametrize("batch", [BATCH, IN_TRANSACTION], ids=["plain", "transactional"])
def test_what_most_producers_send_is_read_by_hand(version: int, count: int, batch: bytes) -> None:
    parts: list[tuple[int, bytes | None]] = [(index, batch) for index in range(count)]
    frame = frame_of(request_of(("topic", parts), acks=-1), version)
    plan = by_hand(frame, version)
    assert plan is not None
    assert told(plan) == told(by_codec(frame, version))
    assert plan.is_transactional is (batch is IN_TRANSACTION)
    assert plan.topics == [id_of("topic") if version >= 13 else "topic"] * count


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    "request_",
    [
        request_of(),
        request_of(("t", [])),
        request_of(("t", [(0, None)])),
        request_of(("t", [(0, b"")])),
        request_of(("t", [(0, BATCH), (0, BATCH)])),
        request_of(("t", [(0, BATCH)]), ("u", [(0, BATCH)])),
        request_of(("t", [(0, BATCH)]), transactional_id="x"),
        request_of(("t", [(index, BATCH) for index in range(MAX_PARTITIONS + 1)])),
    ],
    ids=["nothing", "no partition", "null", "empty", "twice", "two topics", "transaction", "many"],
)
def test_the_rest_is_left_to_the_codec(version: int, request_: ProduceRequest) -> None:
    assert by_hand(frame_of(request_, version), version) is None


@pytest.mark.parametrize("version", VERSIONS)
def test_bytes_that_are_not_all_there_or_too_many_are_left_alone(version: int) -> None:
    for parts in ([(0, BATCH)], [(0, BATCH), (1, BATCH)]):
        whole = frame_of(request_of(("t", list(parts))), version)
        assert by_hand(whole, version) is not None
        for end in range(len(IN_FRONT), len(whole)):
            assert by_hand(whole[:end], version) is None
        assert by_hand(memoryview(bytes(whole) + b"x"), version) is None
        for tagged in (1, 2, 3) if version >= 9 else ():  # The request, its topic, the topic's last partition.
            spoilt = bytearray(whole)
            spoilt[-tagged] = 1
            assert by_hand(memoryview(spoilt), version) is None


@pytest.mark.parametrize("version", VERSIONS)
def test_with_any_byte_changed_both_understand_the_same(version: int) -> None:
    draw = random.Random(version)
    whole = frame_of(request_of(("topic", [(0, BATCH), (1, IN_TRANSACTION)])), version)
    read = 0
    for position in range(len(IN_FRONT), len(whole)):
        for changed in (0, 1, 2, 0x7F, 0x80, 0xFF, draw.randrange(256)):
            spoilt = memoryview(bytearray(whole))
            spoilt[position] = changed
            plan = by_hand(spoilt, version)
            if plan is not None:
                read += 1
                assert told(plan) == told(by_codec(spoilt, version))
    assert read > 100


@pytest.mark.parametrize("version", VERSIONS)
def test_lengths_beyond_all_bounds(version: int) -> None:
    whole = frame_of(request_of(("topic", [(0, BATCH)])), version)
    for position in range(len(IN_FRONT), len(whole) - len(BATCH)):
        spoilt = memoryview(bytearray(whole))
        spoilt[position : position + 6] = b"\xff" * 6
        plan = by_hand(spoilt, version)
        try:
            expected = by_codec(spoilt, version)
        except (MalformedFrame, IndexError):
            assert plan is None
        else:
            assert plan is None or told(plan) == told(expected)


@pytest.mark.parametrize("version", VERSIONS)
def test_of_a_partition_that_is_named_twice_the_last_batch_counts(version: int) -> None:
    request = request_of(("t", [(0, b"a"), (1, b"b"), (0, b"c")]), ("u", [(0, b"d")]), ("t", [(1, b"e"), (2, b"f")]))
    plan = by_codec(frame_of(request, version), version)
    name = id_of if version >= 13 else str
    assert plan.topics == [name("t")] * 3 + [name("u")]
    assert plan.indexes == [0, 1, 2, 0]
    assert [bytes(batch or b"") for batch in plan.batches] == [b"c", b"e", b"f", b"d"]


# Reading what has come before.


def whole_frame(version: int, *, name: str = "topic", index: int = 0, batch: bytes = BATCH, acks: int = 1) -> bytes:
    header = (0).to_bytes(2) + version.to_bytes(2) + CORRELATION_ID.to_bytes(4) + b"\0\2me"
    header += b"\0" if version >= 9 else b""
    body = header + encode(request_of((name, [(index, batch)]), acks=acks), version)
    return len(body).to_bytes(4) + body


def start_in(version: int) -> int:
    return 16 + (1 if version >= 9 else 0)


def learnt(version: int, *frames: bytes) -> CachedProduce:
    reader = None
    for frame in frames:
        view = memoryview(bytearray(frame))
        plan = read_produce(version)(view, start_in(version))
        assert plan is not None
        reader = reader or cached_produce(view, plan)
        assert reader is not None
        reader.learn(view, plan)
    assert reader is not None
    return reader


def again(reader: CachedProduce, frame: bytes, end: int | None = None) -> tuple[dict[str, Any], int] | None:
    """As a connection asks: the frame, at the start of a buffer that is larger."""
    view = memoryview(bytearray(frame) + bytearray(64))
    found = reader.read(view, len(frame) if end is None else end)
    return None if found is None else (told(found[0]), found[1])


@pytest.mark.parametrize("version", range(5, 14))
@pytest.mark.parametrize("size", [1, 40, 60, 100, 127, 128, 1_000, 16_000])
def test_what_was_read_before_is_read_again(version: int, size: int) -> None:
    reader = learnt(version, whole_frame(version), whole_frame(version, index=3, acks=-1))
    batch = bytes(build_batch([Record(value=b"x" * size)]))
    for index, acks in ((0, 1), (3, -1)):
        frame = whole_frame(version, batch=batch, index=index, acks=acks)
        plan = read_produce(version)(memoryview(frame), start_in(version))
        assert plan is not None
        assert again(reader, frame) == (told(plan), CORRELATION_ID)
        for end in range(len(frame)):
            assert again(reader, frame, end) is None
    for other in ({"index": 1}, {"acks": 0}, {"name": "other"}, {"batch": IN_TRANSACTION}):
        assert again(reader, whole_frame(version, **other)) is None  # type: ignore[arg-type]


@pytest.mark.parametrize("version", range(5, 14))
def test_with_any_byte_changed_a_cached_reader_understands_what_the_other_one_does(version: int) -> None:
    frame = whole_frame(version)
    reader = learnt(version, frame)
    read = 0
    for position in range(len(frame)):
        for changed in (0, 1, 2, 0x7F, 0x80, 0xFF, frame[position] ^ 1):
            spoilt = bytearray(frame)
            spoilt[position] = changed
            found = again(reader, bytes(spoilt))
            if found is not None:
                read += 1
                plan = read_produce(version)(memoryview(spoilt), start_in(version))
                assert plan is not None
                assert found == (told(plan), int.from_bytes(spoilt[8:12], signed=True))
    assert read > 100


def test_of_other_kinds_nothing_is_learnt() -> None:
    for version, parts in ((4, [(0, BATCH)]), (9, [(0, BATCH), (1, BATCH)])):
        view = frame_of(request_of(("t", list(parts))), version)
        plan = by_hand(view, version)
        assert plan is not None
        assert cached_produce(view, plan) is None
    reader = learnt(9, whole_frame(9), whole_frame(9, name="longer than the other one"))
    assert again(reader, whole_frame(9)) is not None
    assert again(reader, whole_frame(9, name="longer than the other one")) is None


def test_no_more_is_remembered_than_is_worth_it() -> None:
    reader = learnt(13, *[whole_frame(13, index=index) for index in range(MAX_SHAPES + 1)])
    assert again(reader, whole_frame(13, index=MAX_SHAPES - 1)) is not None
    assert again(reader, whole_frame(13, index=MAX_SHAPES)) is None


# Writing.

offsets = st.integers(-1, 2**62)
places = st.builds(Place, offsets, offsets, offsets)
leaders = st.builds(
    LeaderHint, st.integers(1, 3), st.integers(0, 9), st.sampled_from([None, "here"]), st.just(1), st.none()
)
refusals = st.builds(
    Refused,
    st.sampled_from([ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.INVALID_RECORD]),
    st.sampled_from([None, "why"]),
    appended=st.one_of(st.none(), places),
    leader=st.one_of(st.none(), leaders),
    record_errors=st.sampled_from([(), ((3, "bad"), (5, "worse"))]),
)
outcomes = st.one_of(places, places, refusals)


@pytest.mark.parametrize("version", VERSIONS)
@given(
    st.lists(st.tuples(st.sampled_from(["t", "u", "n" * 200]), st.lists(outcomes, min_size=1, max_size=3)), max_size=2),
    st.integers(0, 1_000),
)
def test_outcomes_are_answered_as_the_codec_writes_them(
    version: int, found: list[tuple[str, list[Outcome]]], throttle_ms: int
) -> None:
    if len({name for name, _ in found}) < len(found):
        return
    request = request_of(*((name, [(index, BATCH) for index in range(len(each))]) for name, each in found))
    plan = plan_of(request, version)
    plan.throttle_ms = throttle_ms
    answer = write_produce(version)(plan, [each for _, some in found for each in some], CORRELATION_ID)
    expected = ProduceResponse(
        responses=[
            TopicProduceResponse(
                name=name,
                topic_id=id_of(name),
                partition_responses=[expected_part(version, index, each) for index, each in enumerate(some)],
            )
            for name, some in found
        ],
        throttle_time_ms=throttle_ms,
        node_endpoints=expected_nodes(version, [each for _, some in found for each in some]),
    )
    body = CORRELATION_ID.to_bytes(4) + (b"\0" if version >= 9 else b"") + encode(expected, version)
    assert b"".join([answer] if isinstance(answer, bytes) else answer) == len(body).to_bytes(4) + body  # type: ignore[arg-type]


def expected_part(version: int, index: int, outcome: Any) -> PartitionProduceResponse:
    place = outcome.appended if isinstance(outcome, Refused) else outcome
    answer = PartitionProduceResponse(index=index, base_offset=-1)
    if place is not None:
        answer.base_offset, answer.log_append_time_ms = place.base_offset, place.log_append_time_ms
        answer.log_start_offset = place.log_start_offset
    if not isinstance(outcome, Refused):
        return answer
    answer.error_code = outcome.code
    if place is None:
        answer.error_message = outcome.message
        answer.record_errors = [
            BatchIndexAndErrorMessage(batch_index=at, batch_index_error_message=what)
            for at, what in outcome.record_errors
        ]
    if outcome.leader is not None and version >= 10:
        answer.current_leader = LeaderIdAndEpoch(
            leader_id=outcome.leader.node_id, leader_epoch=outcome.leader.leader_epoch
        )
    return answer


def expected_nodes(version: int, found: list[Any]) -> list[NodeEndpoint]:
    if version < 10:
        return []
    named = [each.leader for each in found if isinstance(each, Refused) and each.leader is not None]
    last = {leader.node_id: leader for leader in named}
    return [
        NodeEndpoint(node_id=each.node_id, host=each.host, port=each.port, rack=each.rack)
        for each in last.values()
        if each.host is not None
    ]


@pytest.mark.parametrize("version", VERSIONS)
def test_acks_0_is_not_answered(version: int) -> None:
    for parts in ([(0, BATCH)], [(0, BATCH), (1, BATCH)]):
        plan = plan_of(request_of(("t", list(parts)), acks=0), version)
        assert write_produce(version)(plan, [Place(0, -1, 0)] * len(parts), CORRELATION_ID) == b""
