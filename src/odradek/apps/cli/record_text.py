"""Records as people read them, as JSON, and back from JSON: the bytes survive the way there and back."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Sequence
from typing import Any

from odradek.apps.terminal.output import harmless, time_text
from odradek.apps.terminal.sentence import Sentence
from odradek.configdef import did_you_mean
from odradek.protocol.records.record import Header, Record
from odradek.values import value

BASE64 = "base64"
"""The one key of an object that stands for bytes which are no text."""

_WRITTEN = ("key", "value", "headers", "partition", "timestamp")
_READ_ONLY = ("topic", "offset")
"""What `odradek consume --format json` tells beside, so that its output can be produced again."""


def bytes_data(content: bytes | None) -> object:
    """Bytes for JSON: a text where they are one, else an object with base64."""
    if content is None:
        return None
    try:
        return content.decode()
    except UnicodeDecodeError:
        return {BASE64: base64.b64encode(content).decode()}


def record_data(topic: str | None, partition: int | None, record: Record) -> dict[str, Any]:
    """A record for JSON; topic and partition are left out where nobody knows them."""
    data: dict[str, Any] = {"topic": topic, "partition": partition} if topic is not None else {}
    data["offset"] = record.offset
    data["timestamp"] = record.timestamp
    data["key"] = bytes_data(record.key)
    data["value"] = bytes_data(record.value)
    data["headers"] = [{"name": name, "value": bytes_data(held)} for name, held in record.headers]
    return data


def record_lines(partition: int | None, record: Record) -> list[str]:
    """A record for people: where and when on one line, below it headers and value, JSON spread out."""
    where = f"partition {partition}  " if partition is not None else ""
    head = f"{where}offset {record.offset}  {time_text(record.timestamp)}"
    if record.key is not None:
        head += f"  key {_one_line(record.key)}"
    lines = [head]
    lines += [f"  {harmless(name)}: {'-' if held is None else _one_line(held)}" for name, held in record.headers]
    if record.value is None:
        return [*lines, "  (no value)"]
    return [*lines, *(f"  {harmless(line)}" for line in _spread_out(_text(record.value)).split("\n"))]


@value
class GivenRecord:
    """What a line of JSON asks to be produced."""

    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...]
    partition: int | None
    timestamp: int | None


def parse_record(line: bytes, where: str) -> GivenRecord:
    """One line of `odradek produce --json`; a Sentence that says where if it cannot be read."""
    try:
        held = json.loads(line)
    except (ValueError, RecursionError) as wrong:
        raise Sentence(f"{where} is no JSON: {wrong}.") from wrong
    if not isinstance(held, dict):
        raise Sentence(f'{where} is no JSON object: a record is written like {{"key": "k", "value": "v"}}.')
    for name in held:
        if name not in _WRITTEN and name not in _READ_ONLY:
            raise Sentence(f"{where} has a field {name!r} that records do not have.{did_you_mean(name, _WRITTEN)}")
    return GivenRecord(
        key=_given_bytes(held.get("key"), f"the key of {where}"),
        value=_given_bytes(held.get("value"), f"the value of {where}"),
        headers=_given_headers(held.get("headers"), where),
        partition=_given_number(held.get("partition"), f"the partition of {where}"),
        timestamp=_given_number(held.get("timestamp"), f"the timestamp of {where}"),
    )


def _given_bytes(held: object, where: str) -> bytes | None:
    """A text as it is, base64 decoded, and any other JSON as JSON."""
    if held is None:
        return None
    if isinstance(held, str):
        return held.encode("utf-8", "surrogatepass")
    if isinstance(held, dict) and list(held) == [BASE64]:
        try:
            return base64.b64decode(held[BASE64], validate=True)
        except (binascii.Error, ValueError, TypeError) as wrong:
            raise Sentence(f"{where} is no base64: {wrong}.") from wrong
    return json.dumps(held, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "surrogatepass")


def _given_headers(held: object, where: str) -> tuple[Header, ...]:
    """An object of names and values, or a list of objects with `name` and `value` where a name comes twice."""
    if held is None:
        return ()
    pairs: Sequence[tuple[object, object]]
    if isinstance(held, dict):
        pairs = list(held.items())
    elif isinstance(held, list) and all(isinstance(each, dict) and "name" in each for each in held):
        pairs = [(each["name"], each.get("value")) for each in held]
    else:
        raise Sentence(f"the headers of {where} are neither an object nor a list of objects with name and value.")
    return tuple((str(name), _given_bytes(content, f"header {name} of {where}")) for name, content in pairs)


def _given_number(held: object, where: str) -> int | None:
    if held is None or (isinstance(held, int) and not isinstance(held, bool) and 0 <= held < 1 << 63):
        return held
    raise Sentence(f"{where} is no number from 0 on: {held!r}.")


def _text(content: bytes) -> str:
    return content.decode("utf-8", "backslashreplace")


def _one_line(content: bytes) -> str:
    return harmless(_text(content))


def _spread_out(text: str) -> str:
    """An object or a list of JSON over several lines; everything else as it is."""
    if text.lstrip()[:1] not in ("{", "["):
        return text
    try:
        return json.dumps(json.loads(text), indent=2, ensure_ascii=False)
    except (ValueError, RecursionError):
        return text
