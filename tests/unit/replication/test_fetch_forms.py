"""The forms of a follower's fetches are, byte for byte, what the codecs make of the same requests and answers."""

from __future__ import annotations

import pytest

from odradek.ids import ZERO_UUID, NodeId, Uuid
from odradek.protocol.codec import decoder, encode
from odradek.protocol.frame import RequestHeader, request_frame
from odradek.protocol.messages.fetch import (
    AbortedTransaction,
    EpochEndOffset,
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
    NodeEndpoint,
    PartitionData,
    ReplicaState,
)
from odradek.replication import fetch_forms
from odradek.replication.fetch_forms import RequestForm

A, B, DIRECTORY = (Uuid(bytes([number]) * 16) for number in (1, 2, 3))
FOLLOWER, BROKER_EPOCH = NodeId(7), 40_000_000_000
ENDING = fetch_forms.ending_of(FOLLOWER, BROKER_EPOCH)


def partition(index: int, offset: int, directory: Uuid = DIRECTORY) -> FetchPartition:
    return FetchPartition(
        partition=index,
        current_leader_epoch=5,
        fetch_offset=offset,
        last_fetched_epoch=4,
        log_start_offset=3,
        partition_max_bytes=1_048_576,
        replica_directory_id=directory,
    )


def request(topics: dict[Uuid, list[FetchPartition]], **more: object) -> FetchRequest:
    state = ReplicaState(replica_id=FOLLOWER, replica_epoch=BROKER_EPOCH)
    fields = {"max_wait_ms": 500, "min_bytes": 1, "max_bytes": 10_485_760, "session_id": 99, "session_epoch": 12}
    asked = [FetchTopic(topic_id=topic_id, partitions=partitions) for topic_id, partitions in topics.items()]
    return FetchRequest(**{**fields, "replica_state": state, "topics": asked, **more})  # type: ignore[arg-type]


SEVERAL = {A: [partition(0, 1 << 40), partition(200, 0, ZERO_UUID)], B: [partition(3, 17)]}


@pytest.mark.parametrize(
    "topics",
    [{}, SEVERAL, *({A: [partition(index, index) for index in range(count)]} for count in (1, 2, 126, 127, 300))],
)
def test_a_request_is_written_as_the_codec_writes_it(topics: dict[Uuid, list[FetchPartition]]) -> None:
    expected = request(topics)
    header = RequestHeader(request_api_key=1, request_api_version=18, correlation_id=77, client_id="broker-7-fetcher-0")
    partitions = {
        topic_id: [
            fetch_forms.written(
                each.partition,
                each.current_leader_epoch,
                each.fetch_offset,
                each.last_fetched_epoch,
                each.log_start_offset,
                each.partition_max_bytes,
            )
            + fetch_forms.written_directory(Uuid(each.replica_directory_id))
            for each in asked
        ]
        for topic_id, asked in topics.items()
    }
    form = RequestForm("broker-7-fetcher-0", expected)
    assert form.broker_epoch == BROKER_EPOCH
    assert form.frame(77, 99, 12, partitions) == b"".join(
        request_frame(header, [encode(expected, 18)])  # type: ignore[arg-type]
    )


def test_a_request_is_read_as_the_codec_reads_it() -> None:
    body = memoryview(b"before" + encode(request(SEVERAL), 18))
    assert fetch_forms.read_front(body, 6) == (500, 1, 10_485_760, 0, 99, 12)
    assert fetch_forms.read_partitions(body, 6, ENDING) == [
        (A, 0, 5, 1 << 40, 4, 3, 1_048_576),
        (A, 200, 5, 0, 4, 3, 1_048_576),
        (B, 3, 5, 17, 4, 3, 1_048_576),
    ]


@pytest.mark.parametrize(
    "other",
    [
        request(SEVERAL, forgotten_topics_data=[ForgottenTopic(topic_id=A, partitions=[1])]),
        request(SEVERAL, rack_id="r"),
        request(SEVERAL, cluster_id="c"),
        request(SEVERAL, replica_state=ReplicaState(replica_id=FOLLOWER, replica_epoch=BROKER_EPOCH + 1)),
        request(SEVERAL, replica_state=ReplicaState(replica_id=8, replica_epoch=BROKER_EPOCH)),
        request({A: [FetchPartition(partition=1, fetch_offset=1, partition_max_bytes=1, high_watermark=3)]}),
        request({A: [partition(index, index) for index in range(127)]}),
        request({Uuid(number.to_bytes(16)): [partition(0, 0)] for number in range(127)}),
    ],
)
def test_a_request_that_says_more_is_left_to_the_codec(other: FetchRequest) -> None:
    assert fetch_forms.read_partitions(memoryview(encode(other, 18)), 0, ENDING) is None


def test_no_request_that_is_cut_short_or_too_long_is_read() -> None:
    body = encode(request(SEVERAL), 18)
    for end in range(len(body)):
        cut = memoryview(body[:end])
        assert fetch_forms.read_front(cut, 0) is None or fetch_forms.read_partitions(cut, 0, ENDING) is None
    assert fetch_forms.read_partitions(memoryview(body + b"\0"), 0, ENDING) is None


def test_whatever_a_request_has_in_place_of_a_byte_it_is_read_as_the_codec_reads_it_or_not_at_all() -> None:
    body = encode(request(SEVERAL), 18)
    for place in range(len(body)):
        for byte in {0, 1, 2, 0x7F, 0x80, 0xFF, body[place] ^ 1}:
            changed = memoryview(body[:place] + bytes([byte]) + body[place + 1 :])
            asked = fetch_forms.read_partitions(changed, 0, ENDING)
            if asked is not None:
                read, end = decoder(FetchRequest, 18)(changed, 0)
                assert end == len(body)
                assert asked == [
                    (
                        topic.topic_id,
                        each.partition,
                        each.current_leader_epoch,
                        each.fetch_offset,
                        each.last_fetched_epoch,
                        each.log_start_offset,
                        each.partition_max_bytes,
                    )
                    for topic in read.topics
                    for each in topic.partitions
                ]
                assert not read.forgotten_topics_data
                assert read.replica_state == ReplicaState(replica_id=FOLLOWER, replica_epoch=BROKER_EPOCH)


def answer(*partitions: PartitionData, **more: object) -> bytes:
    """Behind the size."""
    topics = [FetchableTopicResponse(topic_id=A, partitions=list(partitions))]
    body = encode(FetchResponse(**{"session_id": 99, "responses": topics, **more}), 18)  # type: ignore[arg-type]
    return b"\0\0\0\x4d\0" + body


def data(index: int, records: bytes | None, **more: object) -> PartitionData:
    fields = {"high_watermark": 8, "last_stable_offset": 6, "log_start_offset": 2, "aborted_transactions": None}
    return PartitionData(**{"partition_index": index, "records": records, **fields, **more})  # type: ignore[arg-type]


@pytest.mark.parametrize("records", [b"", b"x" * 100, b"y" * 20_000, b"z" * 3_000_000])
def test_an_answer_is_written_and_read_as_the_codec_does(records: bytes) -> None:
    expected = answer(data(4, records), data(5, b""))
    parts = (A, b"\3", fetch_forms.answered(4, 8, 6, 2, len(records)), records, b"\0")
    body = b"".join((*parts, fetch_forms.answered(5, 8, 6, 2, 0), b"\0", b"\0", b"\0"))
    frame = fetch_forms.answer_head(77, 99, 1, len(body)) + body
    assert frame == len(expected).to_bytes(4) + expected
    assert fetch_forms.read_answer(memoryview(expected)) == [(A, 4, 8, 2, records), (A, 5, 8, 2, b"")]


def test_an_answer_without_news_or_records_is_read() -> None:
    assert fetch_forms.read_answer(memoryview(answer(responses=[]))) == []
    assert fetch_forms.read_answer(memoryview(answer(data(4, None, aborted_transactions=[])))) == [(A, 4, 8, 2, b"")]


@pytest.mark.parametrize(
    "other",
    [
        answer(data(4, b"r"), error_code=70),
        answer(data(4, b"", error_code=6)),
        answer(data(4, b"", diverging_epoch=EpochEndOffset(epoch=3, end_offset=5))),
        answer(data(4, b"", preferred_read_replica=2)),
        answer(data(4, b"", aborted_transactions=[AbortedTransaction(producer_id=1, first_offset=2)])),
        answer(data(4, b""), node_endpoints=[NodeEndpoint(node_id=1, host="h", port=2)]),
        answer(*(data(index, b"") for index in range(127))),
        answer(data(4, b"r")) + b"\0",
    ],
)
def test_an_answer_that_says_more_is_left_to_the_codec(other: bytes) -> None:
    decoder(FetchResponse, 18)(memoryview(other), 5)
    assert fetch_forms.read_answer(memoryview(other)) is None


def test_no_answer_that_is_cut_short_is_read() -> None:
    whole = answer(data(4, b"r" * 200), data(5, b"s"))
    assert [end for end in range(len(whole)) if fetch_forms.read_answer(memoryview(whole[:end])) is not None] == []
    assert fetch_forms.read_answer(memoryview(b"\0\0\0\x4d\0" + b"\xff" * 200)) is None


def test_whatever_an_answer_has_in_place_of_a_byte_it_is_read_as_the_codec_reads_it_or_not_at_all() -> None:
    whole = answer(data(4, b"r" * 30), data(5, b"s"))
    for place in range(5, len(whole)):
        for byte in {0, 1, 2, 0x7F, 0x80, 0xFF, whole[place] ^ 1}:
            changed = memoryview(whole[:place] + bytes([byte]) + whole[place + 1 :])
            heard = fetch_forms.read_answer(changed)
            if heard is not None:
                read, end = decoder(FetchResponse, 18)(changed, 5)
                assert (end, read.error_code) == (len(whole), 0)
                assert heard == [
                    (
                        topic.topic_id,
                        each.partition_index,
                        each.high_watermark,
                        each.log_start_offset,
                        each.records or b"",
                    )
                    for topic in read.responses
                    for each in topic.partitions
                ]
                assert not any(each.error_code for topic in read.responses for each in topic.partitions)
