"""The frames of metadata records, against a log that Apache Kafka wrote."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from odradek.ids import LeaderEpoch, Offset, parse_uuid
from odradek.metadata.image import Provenance
from odradek.metadata.loader import Loader
from odradek.metadata.records import ConfigRecord, NoOpRecord, PartitionRecord
from odradek.metadata.serde import decode_batch, decode_record, encode_record
from odradek.protocol.codec import Message
from odradek.protocol.errors import KafkaError, MalformedFrame
from odradek.protocol.records.batch import build_batch, decode_records, iter_batches, read_header
from odradek.protocol.records.compression import Compression
from odradek.protocol.records.record import Record

GOLDEN = Path(__file__).parent / "golden"


def frames() -> Iterator[bytes]:
    for batch in iter_batches((GOLDEN / "one-session.log").read_bytes()):
        if not read_header(batch).is_control:
            for record in decode_records(batch):
                assert record.value is not None
                yield record.value


def test_what_kafka_wrote_is_written_again_byte_for_byte() -> None:
    kinds = []
    for frame in frames():
        record = decode_record(frame)
        kinds.append(type(record).__name__)
        assert encode_record(record, 30) == frame
    assert {"TopicRecord", "PartitionRecord", "RegisterBrokerRecord", "BrokerRegistrationChangeRecord"} <= set(kinds)


def test_kafkas_session_can_be_replayed() -> None:
    loader = Loader()
    records = [decode_record(frame) for frame in frames()]
    created = next(index for index, record in enumerate(records) if isinstance(record, PartitionRecord)) + 2
    loader.replay(records[:created], Provenance(Offset(0), LeaderEpoch(1), 0))
    topic = loader.image.topics.by_name["foo"]
    assert [partition.leader for partition in topic.partitions] == [1, 1]
    assert topic.partitions[0].directories == (parse_uuid("sWJpBERmihk-ltHi90Uz-A"),)
    assert loader.image.configs.of_topic("foo") == {"retention.ms": "1000"}
    assert loader.image.features.metadata_version == 30
    loader.replay(records[created:], Provenance(Offset(0), LeaderEpoch(1), 0))
    assert not loader.image.topics.by_name
    assert not loader.image.configs.of_topic("foo")
    assert [broker.fenced for broker in loader.image.cluster.brokers.values()] == [True]


@pytest.mark.parametrize("frame", [b"", b"\x01", b"\x01\x14", b"\x02\x14\x00\x00", b"\x01\x7f\x00\x00", b"\x80" * 9])
def test_bytes_that_are_no_record(frame: bytes) -> None:
    with pytest.raises(MalformedFrame):
        decode_record(frame)


def test_an_empty_record_is_a_frame_and_no_fields() -> None:
    assert encode_record(NoOpRecord(), 30) == b"\x01\x14\x00\x00"


def one_by_one(batch: bytes) -> list[Message] | str:
    try:
        return [decode_record(record.value or b"") for record in decode_records(batch)]
    except (KafkaError, MalformedFrame) as wrong:
        return type(wrong).__name__


def at_once(batch: bytes) -> list[Message] | str:
    try:
        return decode_batch(memoryview(batch))
    except (KafkaError, MalformedFrame) as wrong:
        return type(wrong).__name__


def config(value: str) -> Record:
    record = ConfigRecord(resource_type=2, resource_name="t", name="retention.ms", value=value)
    return Record(value=encode_record(record, 30))


@pytest.mark.parametrize("compression", [Compression.NONE, Compression.GZIP])
def test_a_batch_is_its_records(compression: Compression) -> None:
    several = [
        [config("1")],
        [config("1" * 300)],
        [config("1"), config("2")],
        [Record(value=config("1").value, key=b"k")],
        [Record(value=config("1").value, headers=(("h", b"v"),))],
        [Record(value=None)],
        [Record(value=b"")],
    ]
    for records in several:
        batch = bytes(build_batch(records, compression=compression))
        assert at_once(batch) == one_by_one(batch)
    assert at_once(bytes(build_batch(several[0]))) == [decode_record(config("1").value or b"")]


def test_a_batch_whose_bytes_are_spoilt_is_read_as_its_records_are() -> None:
    """Its checksum was compared before; still nothing may be read out of it that is not there."""
    batch = bytes(build_batch([config("1")]))
    for at in range(57, len(batch)):
        for value in (0, 1, 2, 0x7F, 0xFF):
            spoilt = batch[:at] + bytes([value]) + batch[at + 1 :]
            assert at_once(spoilt) == one_by_one(spoilt), (at, value)
    for end in range(62, len(batch)):
        assert at_once(batch[:end]) == one_by_one(batch[:end]), end
