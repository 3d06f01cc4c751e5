"""What clusters write for themselves, as people read it: records of internal topics, and control records.

Rooms that know these records are imported when one of them is shown: most of what is looked into are others'.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

from odradek.apps.cli.record_text import bytes_data
from odradek.apps.terminal.output import harmless, time_text
from odradek.ids import Uuid, uuid_text
from odradek.protocol.codec import Struct
from odradek.protocol.errors import KafkaError, MalformedFrame
from odradek.protocol.records.control import ControlType, control_type, end_txn_marker
from odradek.protocol.records.record import Record

if TYPE_CHECKING:
    from odradek.coordinator.shard import RecordKinds

Decoded: TypeAlias = dict[str, Any]
"""`kind`, `key` and `value` of a record in plain data."""

Decoder: TypeAlias = Callable[[Record], "Decoded | None"]
"""None for a kind that is not known, as a newer release may have written (KIP-915)."""


def decoder_for(path: str) -> Decoder | None:
    """By the name of the partition's directory, in which the file lies."""
    from odradek.metadata.topic_names import GROUP_TOPIC, METADATA_TOPIC, TRANSACTION_TOPIC

    kinds = {TRANSACTION_TOPIC: "transactions", GROUP_TOPIC: "offsets", METADATA_TOPIC: "metadata"}
    directory = os.path.basename(os.path.dirname(os.path.abspath(path)))
    topic, _, index = directory.rpartition("-")
    return RECORD_KINDS[kinds[topic]] if topic in kinds and index.isdecimal() else None


def decode_control(record: Record) -> Decoded | None:
    """Markers of transactions, and what a quorum tells itself."""
    kind = control_type(record.key)
    marker = end_txn_marker(record)
    if marker is not None:
        return {"kind": ControlType(kind).name, "key": None, "value": {"coordinator_epoch": marker.coordinator_epoch}}
    from odradek.metadata.raft.control_records import read_control_record

    message = read_control_record(record)
    return None if message is None else {"kind": ControlType(kind).name, "key": None, "value": _plain(message)}


def _of_transactions(record: Record) -> Decoded | None:
    from odradek.coordinator.transaction.kinds import TRANSACTION_RECORDS
    from odradek.coordinator.transaction.state import State

    decoded = _of_coordinator(TRANSACTION_RECORDS, record)
    if decoded is not None and decoded["value"] is not None:
        status = decoded["value"]["transaction_status"]
        if status in set(State):
            decoded["value"]["transaction_status"] = State(status).title
    return decoded


def _of_groups(record: Record) -> Decoded | None:
    from odradek.coordinator.group.kinds import GROUP_RECORDS

    return _of_coordinator(GROUP_RECORDS, record)


def _of_coordinator(kinds: RecordKinds, record: Record) -> Decoded | None:
    from odradek.coordinator.record_format import decode_record

    if record.key is None:
        return None
    found = decode_record(kinds, record.key, record.value)
    if found is None:
        return None
    return {
        "kind": type(found.key).__name__.removesuffix("Key"),
        "key": _plain(found.key),
        "version": None if found.value is None else found.value_version,
        "value": None if found.value is None else _plain(found.value),
    }


def _of_metadata(record: Record) -> Decoded | None:
    from odradek.metadata.serde import decode_record as decode_metadata

    if record.value is None:
        return None
    found = decode_metadata(record.value)
    return {"kind": type(found).__name__.removesuffix("Record"), "key": None, "value": _plain(found)}


RECORD_KINDS: Mapping[str, Decoder] = {
    "transactions": _of_transactions,
    "offsets": _of_groups,
    "metadata": _of_metadata,
}


def decoded_data(record: Record, decode: Decoder) -> dict[str, Any]:
    """A record for JSON: what it says, or its bytes where that cannot be told, and why."""
    data: dict[str, Any] = {"offset": record.offset, "timestamp": record.timestamp}
    try:
        decoded, problem = decode(record), None
    except (KafkaError, MalformedFrame) as wrong:
        decoded, problem = None, str(wrong)
    if decoded is not None:
        return {**data, **decoded}
    data |= {"kind": None, "key": bytes_data(record.key), "value": bytes_data(record.value)}
    return data if problem is None else {**data, "problem": problem}


def decoded_lines(data: Mapping[str, Any]) -> list[str]:
    """The same for people: what about on one line, below it what it says."""
    head = f"offset {data['offset']}  {time_text(data['timestamp'])}  {data['kind'] or 'of an unknown kind'}"
    if "problem" in data:
        head += f" ({data['problem']})"
    key, content = data["key"], data["value"]
    if isinstance(key, dict) and data["kind"] is not None:
        head += "".join(f"  {name} {held}" for name, held in key.items())
    elif key is not None:
        head += f"  key {key}"
    shown = ["(no value)"] if content is None else json.dumps(content, indent=2, ensure_ascii=False).split("\n")
    return [harmless(head), *(f"  {harmless(line)}" for line in shown)]


def _plain(struct: Struct) -> dict[str, Any]:
    return {each.name: _plain_value(getattr(struct, each.name), each.annotation) for each in struct.FIELDS}


def _plain_value(held: Any, annotation: str) -> Any:
    if isinstance(held, Struct):
        return _plain(held)
    if isinstance(held, list):
        return [_plain_value(each, annotation) for each in held]
    if isinstance(held, bytes | bytearray | memoryview):
        return uuid_text(Uuid(bytes(held))) if "uuid" in annotation else bytes_data(bytes(held))
    return held
