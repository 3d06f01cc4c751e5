"""Fetches of the metadata log that are packed and compared as bytes: the same bytes that the codecs make and read."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.metadata.building import uuid

from odradek.ids import LeaderEpoch, NodeId, Offset, Uuid
from odradek.metadata.raft import wire
from odradek.metadata.raft.fetch_forms import (
    VERSION,
    AnswerForm,
    RequestForm,
    is_plain,
    leader_of,
    read_answer,
    read_request,
)
from odradek.metadata.raft.voters import ReplicaKey
from odradek.metadata.raft.wire import Standing
from odradek.protocol.codec import decode, encode
from odradek.protocol.frame import RequestHead
from odradek.protocol.messages.fetch import EpochEndOffset, FetchRequest, FetchResponse
from odradek.storage.config import LONG_MAX

INT32 = st.integers(min_value=-(1 << 31), max_value=(1 << 31) - 1)
INT64 = st.integers(min_value=-(1 << 63), max_value=(1 << 63) - 2)
STANDING = Standing(NodeId(2), LeaderEpoch(9), ("c2", 9093))


def request(
    epoch: int, offset: int, last_epoch: int, high_watermark: int, directory_id: Uuid | None = None
) -> FetchRequest:
    return wire.fetch_request(
        "a cluster",
        me=ReplicaKey(NodeId(3), uuid(7) if directory_id is None else directory_id),
        epoch=LeaderEpoch(epoch),
        end_offset=Offset(offset),
        last_epoch=LeaderEpoch(last_epoch),
        high_watermark=Offset(high_watermark),
        max_wait_ms=250,
        max_bytes=1000,
    )


@given(INT32, INT64, INT32, INT64, st.integers(min_value=0, max_value=(1 << 31) - 1))
def test_a_request_is_what_the_codec_makes(
    epoch: int, offset: int, last_epoch: int, high_watermark: int, correlation_id: int
) -> None:
    form = RequestForm.of(request(1, 2, 3, 4), VERSION, "raft-client-3")
    assert form is not None
    body = encode(request(epoch, offset, last_epoch, high_watermark), VERSION)
    head = RequestHead(FetchRequest.api_key, VERSION, "raft-client-3").before(len(body), correlation_id)
    assert form.frame(correlation_id, epoch, offset, last_epoch, high_watermark) == head + body
    read = read_request(memoryview(head + body), len(head))
    assert read is not None
    assert is_plain(read[0])
    assert read[1:] == (epoch, offset, last_epoch, high_watermark)


def test_the_shape_tells_who_asks_and_not_what_for() -> None:
    shapes = [
        read_request(encode(each, VERSION), 0)
        for each in (request(1, 2, 3, 4), request(5, 6, 7, 8), request(1, 2, 3, 4, uuid(8)))
    ]
    first, again, other = [each[0] for each in shapes if each is not None]
    assert first == again
    assert first != other


@pytest.mark.parametrize(
    "unlike",
    [
        request(1, 2, 3, LONG_MAX),
        request(1, 2, 3, 4, Uuid(bytes(16))),
        FetchRequest(max_wait_ms=1, min_bytes=0, topics=[]),
    ],
    ids=["no high watermark", "no directory", "no topic"],
)
def test_requests_of_another_layout_are_not_plain(unlike: FetchRequest) -> None:
    read = read_request(encode(unlike, VERSION), 0)
    assert read is None or not is_plain(read[0])
    assert RequestForm.of(unlike, VERSION, "c") is None


def test_older_versions_have_no_form() -> None:
    assert RequestForm.of(request(1, 2, 3, 4), VERSION - 1, "c") is None


@given(INT64, INT64, st.binary(max_size=300) | st.just(b"r" * 20_000))
def test_an_answer_is_what_the_codec_makes(high_watermark: int, log_start_offset: int, records: bytes) -> None:
    frame = AnswerForm(STANDING).frame(5, high_watermark, log_start_offset, records)
    assert int.from_bytes(frame[:4]) == len(frame) - 4
    assert frame[4:9] == b"\0\0\0\5\0"
    response = decode(FetchResponse, VERSION, frame[9:])
    partition = response.responses[0].partitions[0]
    assert (partition.high_watermark, partition.log_start_offset) == (high_watermark, log_start_offset)
    assert bytes(partition.records or b"") == records  # type: ignore[arg-type]
    assert leader_of(response) == (STANDING.leader_id, STANDING.epoch)
    assert [(each.host, each.port) for each in response.node_endpoints] == [STANDING.address]
    assert encode(response, VERSION) == frame[9:]
    read = read_answer(memoryview(frame)[4:])
    assert read is not None
    assert (read[0], bytes(read[1])) == (high_watermark, records)


def test_what_an_answer_says_of_its_leader_is_the_same_with_and_without_records() -> None:
    form = AnswerForm(STANDING)
    read = [read_answer(memoryview(form.frame(number, number, 0, b"x" * number))[4:]) for number in (0, 1, 500)]
    assert len({each[2] for each in read if each is not None}) == 1
    other = read_answer(memoryview(AnswerForm(Standing(NodeId(2), LeaderEpoch(10), None)).frame(0, 0, 0, b""))[4:])
    assert other is not None
    assert read[0] is not None
    assert other[2] != read[0][2]


def test_an_answer_that_is_cut_off_or_damaged_is_not_plain() -> None:
    frame = AnswerForm(STANDING).frame(5, 6, 0, b"records")[4:]
    for end in range(len(frame) - 40):
        assert read_answer(memoryview(frame[:end])) is None
    for place in (*range(4, 38), *range(63, 68)):
        damaged = bytearray(frame)
        damaged[place] ^= 0x55
        assert read_answer(memoryview(damaged)) is None, place


def test_an_answer_that_sends_the_follower_elsewhere_names_no_leader() -> None:
    response = decode(FetchResponse, VERSION, AnswerForm(STANDING).frame(5, 6, 0, b"")[9:])
    response.responses[0].partitions[0].diverging_epoch = EpochEndOffset(epoch=1, end_offset=2)
    assert leader_of(response) is None
    assert leader_of(FetchResponse(error_code=1)) is None
