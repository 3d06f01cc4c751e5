"""What clusters write for themselves, told to people and programs."""

from __future__ import annotations

from pathlib import Path

import pytest

from odradek.apps.cli.internal_records import (
    RECORD_KINDS,
    decode_control,
    decoded_data,
    decoded_lines,
    decoder_for,
)
from odradek.coordinator.group.records import OffsetCommitKey, OffsetCommitValue
from odradek.coordinator.record_format import encode_key, encode_value
from odradek.coordinator.shard import CoordinatorRecord
from odradek.coordinator.transaction.state import State, Transaction
from odradek.ids import ZERO_UUID, ProducerEpoch, ProducerId
from odradek.metadata.raft.control_records import control_record
from odradek.metadata.records import FeatureLevelRecord, TopicRecord
from odradek.metadata.serde import encode_record
from odradek.protocol.messages.control_records import LeaderChangeMessage
from odradek.protocol.records.batch import decode_records
from odradek.protocol.records.control import EndTxnMarker, end_txn_batch
from odradek.protocol.records.record import Record

KEY = OffsetCommitKey(group="g", topic="t", partition=3)
VALUE = OffsetCommitValue(offset=42, leader_epoch=2, metadata="here", commit_timestamp=1000, topic_id=ZERO_UUID)


def logged(record: CoordinatorRecord) -> Record:
    content = None if record.value is None else encode_value(record.value, record.value_version)
    return Record(encode_key(record.key), content, (), 1000, 7)


@pytest.mark.parametrize("version", [0, 1])
def test_a_transaction(version: int) -> None:
    ongoing = Transaction(
        "pay", State.ONGOING, ProducerId(5), ProducerEpoch(2), 60_000, 1000, 900, (("a", 0), ("a", 1), ("b", 0))
    )
    data = decoded_data(logged(ongoing.record(version)), RECORD_KINDS["transactions"])
    assert (data["offset"], data["timestamp"], data["kind"], data["version"]) == (7, 1000, "TransactionLog", version)
    assert data["key"] == {"transactional_id": "pay"}
    told = data["value"]
    assert (told["producer_id"], told["producer_epoch"], told["transaction_status"]) == (5, 2, "Ongoing")
    assert told["transaction_partitions"] == [
        {"topic": "a", "partition_ids": [0, 1]},
        {"topic": "b", "partition_ids": [0]},
    ]
    head, *below = decoded_lines(data)
    assert head == "offset 7  1970-01-01 00:00:01.000  TransactionLog  transactional_id pay"
    assert '    "transaction_status": "Ongoing",' in below


def test_a_committed_offset_and_one_that_is_forgotten() -> None:
    decode = RECORD_KINDS["offsets"]
    data = decoded_data(logged(CoordinatorRecord(KEY, VALUE, 4)), decode)
    assert (data["kind"], data["version"]) == ("OffsetCommit", 4)
    assert data["key"] == {"group": "g", "topic": "t", "partition": 3}
    assert data["value"] | {"expire_timestamp": -1} == {
        "offset": 42,
        "leader_epoch": 2,
        "metadata": "here",
        "commit_timestamp": 1000,
        "expire_timestamp": -1,
        "topic_id": "AAAAAAAAAAAAAAAAAAAAAA",
    }
    forgotten = decoded_data(logged(CoordinatorRecord(KEY, None)), decode)
    assert (forgotten["kind"], forgotten["value"]) == ("OffsetCommit", None)
    assert decoded_lines(forgotten) == [
        "offset 7  1970-01-01 00:00:01.000  OffsetCommit  group g  topic t  partition 3",
        "  (no value)",
    ]


def test_a_kind_that_a_newer_release_may_have_written() -> None:
    """KIP-915: it is passed over, and shown as it is."""
    data = decoded_data(Record(b"\x00\x63key", b"\x00\x00\xff", (), 1000, 7), RECORD_KINDS["offsets"])
    assert data == {
        "offset": 7,
        "timestamp": 1000,
        "kind": None,
        "key": "\x00ckey",
        "value": {"base64": "AAD/"},
    }
    assert decoded_lines(data)[0] == "offset 7  1970-01-01 00:00:01.000  of an unknown kind  key \\x00ckey"


@pytest.mark.parametrize("kind", ["transactions", "offsets"])
def test_bytes_that_are_none(kind: str) -> None:
    data = decoded_data(Record(b"\x00\x00\x00", b"\x00\x00", (), 1000, 7), RECORD_KINDS[kind])
    assert data["kind"] is None
    assert data["problem"]
    assert data["problem"] in decoded_lines(data)[0]


def test_records_of_metadata() -> None:
    decode = RECORD_KINDS["metadata"]
    record = Record(None, encode_record(FeatureLevelRecord(name="group.version", feature_level=1), 30))
    data = decoded_data(record, decode)
    assert (data["kind"], data["key"]) == ("FeatureLevel", None)
    assert data["value"] == {"name": "group.version", "feature_level": 1}
    topic = decoded_data(Record(None, encode_record(TopicRecord(name="t", topic_id=ZERO_UUID), 30)), decode)
    assert topic["value"] == {"name": "t", "topic_id": "AAAAAAAAAAAAAAAAAAAAAA"}


@pytest.mark.parametrize(("committed", "kind"), [(True, "COMMIT"), (False, "ABORT")])
def test_markers(committed: bool, kind: str) -> None:
    batch = end_txn_batch(EndTxnMarker(committed, 9), producer_id=5, producer_epoch=2, timestamp=1000)
    (record,) = decode_records(batch)
    data = decoded_data(record, decode_control)
    assert (data["kind"], data["value"]) == (kind, {"coordinator_epoch": 9})


def test_what_a_quorum_tells_itself() -> None:
    change = LeaderChangeMessage(version=0, leader_id=3, voters=[], granting_voters=[])
    data = decoded_data(control_record(change), decode_control)
    assert data["kind"] == "LEADER_CHANGE"
    assert data["value"] == {"version": 0, "leader_id": 3, "voters": [], "granting_voters": []}


def test_a_control_record_of_no_kind_that_is_known() -> None:
    assert decoded_data(Record(b"\x00\x00\x00\x63", b""), decode_control)["kind"] is None
    assert "too short" in decoded_data(Record(b"\x00", b""), decode_control)["problem"]


@pytest.mark.parametrize(
    ("directory", "kind"),
    [
        ("__transaction_state-12", "transactions"),
        ("__consumer_offsets-0", "offsets"),
        ("__cluster_metadata-0", "metadata"),
        ("__consumer_offsets", None),
        ("orders-0", None),
    ],
)
def test_the_directory_says_what_records_are(directory: str, kind: str | None, tmp_path: Path) -> None:
    assert decoder_for(str(tmp_path / directory / f"{0:020d}.log")) is (None if kind is None else RECORD_KINDS[kind])
