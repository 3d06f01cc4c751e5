"""Transaction markers."""

import pytest

from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.records.batch import build_batch, decode_records, read_header
from odradek.protocol.records.control import (
    ControlType,
    EndTxnMarker,
    control_key,
    control_type,
    end_txn_batch,
    read_end_txn_marker,
)
from odradek.protocol.records.record import Record


@pytest.mark.parametrize("committed", [True, False])
def test_markers_there_and_back(committed: bool) -> None:
    marker = EndTxnMarker(committed, coordinator_epoch=7)
    batch = end_txn_batch(marker, producer_id=3, producer_epoch=2, timestamp=99)
    header = read_header(batch)
    assert header.is_control
    assert header.is_transactional
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (3, 2, -1)
    assert read_end_txn_marker(batch) == marker


def test_golden_bytes_of_a_commit() -> None:
    (record,) = decode_records(
        end_txn_batch(EndTxnMarker(True, coordinator_epoch=5), producer_id=1, producer_epoch=0, timestamp=0)
    )
    assert record.key == bytes.fromhex("00000001")
    assert record.value == bytes.fromhex("000000000005")


def test_other_control_records_are_no_markers() -> None:
    batch = build_batch([Record(control_key(ControlType.LEADER_CHANGE), b"")], control=True)
    assert read_end_txn_marker(batch) is None


@pytest.mark.parametrize("key", [None, b"", b"\x00\x00\x00"])
def test_short_keys(key: bytes | None) -> None:
    with pytest.raises(KafkaError) as refused:
        control_type(key)
    assert refused.value.code is ErrorCode.INVALID_RECORD


@pytest.mark.parametrize("value", [None, b"", b"\x00\x00\x00\x00\x00"])
def test_short_markers(value: bytes | None) -> None:
    batch = build_batch([Record(control_key(ControlType.ABORT), value)], control=True)
    with pytest.raises(KafkaError) as refused:
        read_end_txn_marker(batch)
    assert refused.value.code is ErrorCode.INVALID_RECORD
