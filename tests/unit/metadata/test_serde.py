"""The frames of metadata records, against a log that Apache Kafka wrote."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from odradek.ids import LeaderEpoch, Offset, parse_uuid
from odradek.metadata.image import Provenance
from odradek.metadata.loader import Loader
from odradek.metadata.records import NoOpRecord, PartitionRecord
from odradek.metadata.serde import decode_record, encode_record
from odradek.protocol.errors import MalformedFrame
from odradek.protocol.records.batch import decode_records, iter_batches, read_header

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
