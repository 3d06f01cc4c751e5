"""Known bytes of a few messages, zero copy, and what the codecs do with bytes that are no message."""

from __future__ import annotations

import struct
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.protocol.generated import structs

from odradek.adapters.disk import RealDisk
from odradek.ids import Uuid
from odradek.ports import FileSlice
from odradek.protocol.codec import Message, decode, decoder, encode, encoder, parts_encoder
from odradek.protocol.errors import ErrorCode, KafkaError, MalformedFrame
from odradek.protocol.messages.api_versions import ApiVersionsRequest
from odradek.protocol.messages.create_topics import CreateTopicsRequest
from odradek.protocol.messages.fetch import (
    EpochEndOffset,
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from odradek.protocol.messages.join_group import JoinGroupRequest
from odradek.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from odradek.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData

TOPIC_ID = Uuid(bytes(range(16)))


def produce(records: bytes | None = b"batch") -> ProduceRequest:
    partition = PartitionProduceData(index=7, records=records)
    topic = TopicProduceData(name="ab", topic_id=TOPIC_ID, partition_data=[partition])
    return ProduceRequest(acks=-1, timeout_ms=1000, topic_data=[topic])


def fetched(records: object) -> FetchResponse:
    partition = PartitionData(partition_index=1, high_watermark=9, aborted_transactions=None, records=records)  # type: ignore[arg-type]
    return FetchResponse(responses=[FetchableTopicResponse(topic="ab", partitions=[partition])])


GOLDEN = [
    (
        produce(),
        3,
        "ffff ffff 000003e8 00000001 0002 6162 00000001 00000007 00000005 6261746368",
    ),
    (
        produce(),
        9,
        "00 ffff 000003e8 02 03 6162 02 00000007 06 6261746368 00 00 00",
    ),
    (
        produce(None),
        13,
        "00 ffff 000003e8 02 000102030405060708090a0b0c0d0e0f 02 00000007 00 00 00 00",
    ),
    (ApiVersionsRequest(client_software_name="x", client_software_version="1"), 3, "02 78 02 31 00"),
    (ApiVersionsRequest(), 0, ""),
    (MetadataRequest(topics=None), 1, "ffffffff"),
    (
        MetadataRequest(topics=[MetadataRequestTopic(name="t")], allow_auto_topic_creation=False),
        4,
        "00000001 0001 74 00",
    ),
    (
        FetchResponse(
            throttle_time_ms=1,
            session_id=2,
            responses=[
                FetchableTopicResponse(
                    topic="t",
                    partitions=[
                        PartitionData(
                            partition_index=0,
                            error_code=ErrorCode.FENCED_LEADER_EPOCH,
                            high_watermark=3,
                            last_stable_offset=3,
                            log_start_offset=0,
                            diverging_epoch=EpochEndOffset(epoch=4, end_offset=5),
                            aborted_transactions=None,
                            records=b"",
                        )
                    ],
                )
            ],
        ),
        12,
        "00000001 0000 00000002 02 02 74 02"
        "00000000 004a 0000000000000003 0000000000000003 0000000000000000 00 ffffffff 01"
        "01 00 0d 00000004 0000000000000005 00 00 00",
    ),
]


@pytest.mark.parametrize(("message", "version", "expected"), GOLDEN)
def test_known_bytes(message: Message, version: int, expected: str) -> None:
    encoded = bytes.fromhex(expected)
    assert encode(message, version) == encoded
    assert encode(decode(type(message), version, encoded), version) == encoded
    assert b"".join(parts_encoder(type(message), version)(message)) == encoded


def test_a_version_leaves_out_what_it_does_not_know_and_gives_its_default_back() -> None:
    assert decode(ProduceRequest, 9, encode(produce(), 9)).topic_data[0].topic_id == bytes(16)
    assert decode(ProduceRequest, 13, encode(produce(), 13)).topic_data[0].name == ""


def test_codecs_are_compiled_once() -> None:
    assert decoder(FetchRequest, 11) is decoder(FetchRequest, 11)
    assert encoder(FetchRequest, 11) is encoder(FetchRequest, 11)
    assert parts_encoder(FetchRequest, 11) is parts_encoder(FetchRequest, 11)


def test_a_version_that_does_not_exist_is_refused() -> None:
    with pytest.raises(KafkaError, match="has no version 19, only 4-18") as refused:
        decoder(FetchRequest, 19)
    assert refused.value.code == ErrorCode.UNSUPPORTED_VERSION


@pytest.mark.parametrize("version", [3, 9, 13])
def test_decoded_records_are_a_view_into_the_buffer(version: int) -> None:
    buffer = bytearray(encode(produce(), version))
    message, position = decoder(ProduceRequest, version)(memoryview(buffer), 0)
    records = message.topic_data[0].partition_data[0].records
    assert isinstance(records, memoryview)
    assert position == len(buffer)
    records[0:1] = b"B"
    assert b"Batch" in buffer


def test_a_message_may_start_anywhere_in_the_buffer() -> None:
    message, position = decoder(ProduceRequest, 9)(b"????" + encode(produce(), 9), 4)
    assert message.topic_data[0].name == "ab"
    assert position == 4 + len(encode(produce(), 9))


@pytest.mark.parametrize("version", [4, 12, 18])
def test_parts_keep_record_batches_as_they_are(version: int, tmp_path: Path) -> None:
    file = RealDisk().open(str(tmp_path / "log"), create=True)
    file.write(b"0123456789", 0)
    for records in (b"bytes", bytearray(b"bytes"), memoryview(b"bytes"), FileSlice(file, 2, 5)):
        parts = parts_encoder(FetchResponse, version)(fetched(records))
        assert len(parts) == (2 if version == 4 else 3)
        assert parts[1] is records
        content = records.read() if isinstance(records, FileSlice) else bytes(records)
        parts[1] = content
        assert b"".join(parts) == encode(fetched(records), version) == encode(fetched(content), version)


def test_parts_of_a_message_without_records_are_one() -> None:
    for records in (None, b""):
        parts = parts_encoder(FetchResponse, 12)(fetched(records))
        assert parts == [encode(fetched(records), 12)]


def test_lengths_of_two_and_three_bytes() -> None:
    for size in (126, 127, 128, 16_382, 16_383, 16_384, 2_097_150, 2_097_151):
        message = produce(bytes(size))
        assert len(decode(ProduceRequest, 9, encode(message, 9)).topic_data[0].partition_data[0].records or b"") == size


def test_padded_varints_mean_the_same() -> None:
    """Java reads them too; a length of zero in two bytes must not step back in the buffer."""
    assert decode(ApiVersionsRequest, 3, bytes.fromhex("8100 8200 31 00")) == ApiVersionsRequest(
        client_software_name="", client_software_version="1"
    )
    with pytest.raises(MalformedFrame, match="may not be null"):
        decode(ApiVersionsRequest, 3, bytes.fromhex("8000 8000 8000"))


def test_unknown_tagged_fields_are_skipped() -> None:
    plain = encode(ApiVersionsRequest(client_software_name="x"), 3)
    tagged = plain[:-1] + bytes.fromhex("02 05 03 aabbcc c801 00")
    assert decode(ApiVersionsRequest, 3, tagged) == decode(ApiVersionsRequest, 3, plain)
    fetch = encode(FetchRequest(max_wait_ms=1, min_bytes=1, topics=[], cluster_id="c"), 12)
    only_known = bytes.fromhex("01 00 02 02 63")
    assert fetch.endswith(only_known)
    known_and_unknown = fetch.removesuffix(only_known) + bytes.fromhex("02 00 02 02 63 63 01 ff")
    assert decode(FetchRequest, 12, known_and_unknown).cluster_id == "c"


MESSAGES: list[tuple[Message, int]] = [
    (produce(), 3),
    (produce(), 9),
    (produce(), 13),
    (fetched(b"xyz"), 4),
    (fetched(b"xyz"), 12),
    (fetched(b"xyz"), 18),
    (MetadataRequest(topics=[MetadataRequestTopic(name="topic")]), 9),
    (JoinGroupRequest(group_id="g", session_timeout_ms=1, member_id="m", protocol_type="consumer", protocols=[]), 5),
]


@pytest.mark.parametrize(("message", "version"), MESSAGES)
def test_cut_anywhere_is_malformed(message: Message, version: int) -> None:
    encoded = encode(message, version)
    for end in range(len(encoded)):
        for buffer in (encoded[:end], memoryview(encoded)[:end]):
            with pytest.raises(MalformedFrame):
                decode(type(message), version, buffer)


@pytest.mark.parametrize(("message", "version"), MESSAGES)
def test_more_bytes_than_the_message_are_malformed(message: Message, version: int) -> None:
    with pytest.raises(MalformedFrame, match="1 bytes after the end"):
        decode(type(message), version, encode(message, version) + b"\0")


FETCH_UP_TO_ITS_TAGS = "ffffffff 00000000 00000000 00000000 00 00000000 00000000 01 01 01"


@pytest.mark.parametrize(
    ("cls", "version", "bytes_hex", "complaint"),
    [
        (ProduceRequest, 3, "ffff ffff 000003e8 7fffffff", "2147483647 elements do not fit"),
        (ProduceRequest, 3, "ffff ffff 000003e8 ffffffff", "may not be null"),
        (ProduceRequest, 3, "ffff ffff 000003e8 80000000", "may not be null"),
        (ProduceRequest, 9, "00 ffff 000003e8 ffffffff0f", "4294967294 elements do not fit"),
        (ProduceRequest, 9, "00 ffff 000003e8 00", "may not be null"),
        (ProduceRequest, 3, "7fff 61", "32767 bytes declared, 1 left"),
        (ProduceRequest, 9, "80 01 61", "127 bytes declared, 1 left"),
        (ProduceRequest, 9, "8180 02" + 32_768 * "61", "a string of 32768 bytes"),
        (ProduceRequest, 9, "ffffffff0f 61", "a string of 4294967294 bytes"),
        (ProduceRequest, 9, "00 ffff 000003e8 02 03 6162 02 00000007 ffffffff0f", "4294967294 bytes declared, 0 left"),
        (ProduceRequest, 9, "ffffffffff0f", "more than 32 bits"),
        (ProduceRequest, 9, "ffffffff7f", "more than 32 bits"),
        (ProduceRequest, 9, "03 c328", "not UTF-8"),
        (ProduceRequest, 3, "0001 ff", "not UTF-8"),
        (ProduceRequest, 3, "0003 eda080", "not UTF-8"),
        (MetadataRequest, 0, "00000001 ffff", "may not be null"),
        (ApiVersionsRequest, 3, "01 01 01 00 7f", "longer than the message"),
        (ApiVersionsRequest, 3, "01 01 ffffffff0f 00 00", "ends inside its tagged fields"),
        (FetchRequest, 12, FETCH_UP_TO_ITS_TAGS + "01 00 03 02 63", "3 bytes declared, 2 left"),
        (FetchRequest, 12, FETCH_UP_TO_ITS_TAGS + "01 00 01 02 63", "cluster_id does not have its declared size"),
    ],
)
def test_lies_about_lengths_and_counts(cls: type[Message], version: int, bytes_hex: str, complaint: str) -> None:
    with pytest.raises(MalformedFrame, match=complaint):
        decode(cls, version, bytes.fromhex(bytes_hex))


def test_a_string_may_be_as_long_as_kafka_reads() -> None:
    request = MetadataRequest(topics=[MetadataRequestTopic(name="x" * 32_767)])
    for version in (8, 9):
        assert decode(MetadataRequest, version, encode(request, version)).topics == request.topics


def test_a_declared_count_allocates_nothing() -> None:
    many_topics = struct.pack(">hhii", -1, -1, 1000, 2**31 - 1) + bytes(1000)
    decoder(ProduceRequest, 3)
    tracemalloc.start()
    with pytest.raises(MalformedFrame):
        decode(ProduceRequest, 3, many_topics)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 100_000


@settings(max_examples=300, derandomize=True, database=None)
@given(version=st.sampled_from([4, 7, 12, 17, 18]), data=st.data())
def test_changed_bytes_decode_or_are_malformed(version: int, data: st.DataObject) -> None:
    encoded = bytearray(encode(data.draw(structs(FetchRequest, version)), version))  # type: ignore[arg-type]
    for _ in range(data.draw(st.integers(1, 4))):
        encoded[data.draw(st.integers(0, len(encoded) - 1))] = data.draw(st.integers(0, 255))
    try:
        message = decode(FetchRequest, version, encoded)
    except MalformedFrame:
        return
    assert decode(FetchRequest, version, encode(message, version)) == message


def test_required_fields_are_required() -> None:
    with pytest.raises(TypeError, match="topics"):
        CreateTopicsRequest()  # type: ignore[call-arg]
