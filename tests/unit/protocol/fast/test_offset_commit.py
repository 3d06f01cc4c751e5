"""OffsetCommit by hand and by the compiled codec: from bytes the same plan, from an outcome the same bytes."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.ids import Uuid
from odradek.protocol.codec import decoder, encode
from odradek.protocol.errors import ErrorCode
from odradek.protocol.fast.offset_commit import (
    MAX_PARTITIONS,
    OffsetCommitPlan,
    plan_of,
    read_offset_commit,
    response_of,
    write_offset_commit,
)
from odradek.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)

VERSIONS = range(2, 11)
CORRELATION_ID = 77
IN_FRONT = b"in front of it"
SAID = [name for name in OffsetCommitPlan.__slots__ if name != "accepted"]

int64 = st.integers(-(1 << 63), (1 << 63) - 1)
int32 = st.integers(-(1 << 31), (1 << 31) - 1)
texts = st.one_of(st.text(max_size=5), st.just("x" * 200))
metadata = st.one_of(st.none(), st.just(""), texts)
partitions = st.lists(st.tuples(int32, int64, int32, metadata), max_size=3)
topics = st.lists(st.tuples(texts, partitions), max_size=2)


def request_of(
    topics: list[tuple[str, list[Any]]],
    *,
    group_id: str = "g",
    generation_id: int = 3,
    member_id: str = "m",
    instance_id: str | None = None,
) -> OffsetCommitRequest:
    return OffsetCommitRequest(
        group_id=group_id,
        generation_id_or_member_epoch=generation_id,
        member_id=member_id,
        group_instance_id=instance_id,
        topics=[
            OffsetCommitRequestTopic(
                name=name,
                topic_id=id_of(name),
                partitions=[
                    OffsetCommitRequestPartition(
                        partition_index=index,
                        committed_offset=offset,
                        committed_leader_epoch=epoch,
                        committed_metadata=metadata,
                    )
                    for index, offset, epoch, metadata in parts
                ],
            )
            for name, parts in topics
        ],
    )


def id_of(name: str) -> Uuid:
    return Uuid(random.Random(name).randbytes(16))


def frame_of(request: OffsetCommitRequest, version: int) -> memoryview:
    return memoryview(bytearray(IN_FRONT + encode(request, version)))


def by_hand(frame: memoryview, version: int) -> OffsetCommitPlan | None:
    return read_offset_commit(version)(frame, len(IN_FRONT))


def by_codec(frame: memoryview, version: int) -> OffsetCommitPlan:
    return plan_of(decoder(OffsetCommitRequest, version)(frame, len(IN_FRONT))[0], version)


def told(plan: OffsetCommitPlan) -> dict[str, Any]:
    said = {name: getattr(plan, name) for name in SAID}
    return said | {"topics": list(plan.topics), "partitions": [list(each) for each in plan.partitions]}


@pytest.mark.parametrize("version", VERSIONS)
@given(topics, texts, int32, texts, st.one_of(st.none(), texts))
def test_a_reader_and_the_codec_make_the_same_plan(
    version: int, topics: list[Any], group_id: str, generation_id: int, member_id: str, instance_id: str | None
) -> None:
    who = {"group_id": group_id, "generation_id": generation_id, "member_id": member_id, "instance_id": instance_id}
    if version < 7:
        who["instance_id"] = None
    frame = frame_of(request_of(topics, **who), version)  # type: ignore[arg-type]
    plan = by_hand(frame, version)
    assert plan is None or told(plan) == told(by_codec(frame, version))


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("count", [1, 2, MAX_PARTITIONS])
def test_what_most_consumers_send_is_read_by_hand_and_again(version: int, count: int) -> None:
    for offset in (5, 1 << 40, -1):
        parts = [(index, offset + index, index, "") for index in range(count)]
        frame = frame_of(request_of([("topic", parts)], instance_id="i" if version >= 7 else None), version)
        plan = by_hand(frame, version)
        assert (plan is None) == (version < 5)
        if plan is not None:
            assert told(plan) == told(by_codec(frame, version))
    many = [(index, 0, 0, "") for index in range(MAX_PARTITIONS + 1)]
    assert by_hand(frame_of(request_of([("topic", many)]), version), version) is None


@pytest.mark.parametrize("version", range(5, 11))
def test_with_any_byte_changed_cut_or_added_both_understand_the_same(version: int) -> None:
    draw = random.Random(version)
    read = 0
    for parts in ([(0, 7, 1, "")], [(0, 7, 1, ""), (3, 8, 1, "said")]):
        whole = frame_of(request_of([("topic", list(parts))]), version)
        for end in range(len(IN_FRONT), len(whole)):
            assert by_hand(whole[:end], version) is None
        assert by_hand(memoryview(bytes(whole) + b"x"), version) is None
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
@given(topics, st.integers(0, 1_000), st.booleans())
def test_all_committed_is_answered_as_the_codec_writes_it(
    version: int, topics: list[Any], throttle_ms: int, hand_made: bool
) -> None:
    frame = frame_of(request_of(topics), version)
    plan = (by_hand(frame, version) if hand_made else None) or by_codec(frame, version)
    plan.throttle_ms = throttle_ms
    expected = OffsetCommitResponse(
        throttle_time_ms=throttle_ms if version >= 3 else 0,
        topics=[
            OffsetCommitResponseTopic(
                name=name if version < 10 else "",
                topic_id=id_of(name),
                partitions=[OffsetCommitResponsePartition(partition_index=part[0]) for part in parts],
            )
            for name, parts in topics
        ],
    )
    assert written(plan, None) == framed(expected, version)


@pytest.mark.parametrize("version", VERSIONS)
def test_what_is_refused_is_told(version: int) -> None:
    for count in (1, 2):
        frame = frame_of(request_of([("topic", [(index, 5, 1, "") for index in range(count)])]), version)
        plan = by_hand(frame, version) or by_codec(frame, version)
        response = response_of(plan, ErrorCode.ILLEGAL_GENERATION)
        codes = [part.error_code for topic in response.topics for part in topic.partitions]
        assert codes == [ErrorCode.ILLEGAL_GENERATION] * count
        assert written(plan, response) == framed(response, version)


def written(plan: OffsetCommitPlan, outcome: OffsetCommitResponse | None) -> bytes:
    answer = write_offset_commit(plan.version)(plan, outcome, CORRELATION_ID)
    return b"".join([answer] if isinstance(answer, bytes) else answer)  # type: ignore[arg-type]


def framed(response: OffsetCommitResponse, version: int) -> bytes:
    body = CORRELATION_ID.to_bytes(4) + (b"\0" if version >= 8 else b"") + encode(response, version)
    return len(body).to_bytes(4) + body
