"""Records for people and for programs, and back."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.apps.cli import lines
from odradek.apps.cli.record_text import GivenRecord, parse_record, record_data, record_lines
from odradek.apps.terminal.sentence import Sentence
from odradek.protocol.records.record import Record

CONTENT = st.none() | st.binary() | st.text().map(str.encode)


@given(CONTENT, CONTENT, st.lists(st.tuples(st.text(), CONTENT)), st.integers(0, 1 << 60))
def test_what_is_shown_as_json_can_be_produced_again(
    key: bytes | None, content: bytes | None, headers: list[tuple[str, bytes | None]], timestamp: int
) -> None:
    record = Record(key, content, tuple(headers), timestamp, 7)
    line = json.dumps(record_data("t", 3, record), ensure_ascii=False).encode()
    assert b"\n" not in line
    assert parse_record(line, "line 1") == GivenRecord(key, content, tuple(headers), 3, timestamp)


@given(CONTENT, CONTENT, st.lists(st.tuples(st.text(), CONTENT)), st.integers(-1, 1 << 63))
def test_what_people_see_is_always_printable(
    key: bytes | None, content: bytes | None, headers: list[tuple[str, bytes | None]], timestamp: int
) -> None:
    for line in record_lines(0, Record(key, content, tuple(headers), timestamp, 7)):
        assert line.isprintable()


def test_json_is_spread_out_and_the_rest_is_not() -> None:
    def below(content: bytes | None) -> list[str]:
        return record_lines(None, Record(value=content, timestamp=0, offset=1))[1:]

    assert below(b'{"b":1,"a":[]}') == ["  {", '    "b": 1,', '    "a": []', "  }"]
    assert below(b"{broken") == ["  {broken"]
    assert below(b"12") == ["  12"]
    assert below(b"two\nlines") == ["  two", "  lines"]
    assert below(b"[" * 100_000) == ["  " + "[" * 100_000]
    assert below(None) == ["  (no value)"]
    assert below(b"") == ["  "]


def test_any_json_may_be_a_value() -> None:
    assert parse_record(b'{"key": 7, "value": {"a": "\xc3\xbc"}}', "x").value == '{"a":"ü"}'.encode()
    assert parse_record(b'{"key": 7}', "x").key == b"7"
    assert parse_record(b'{"value": {"base64": "AA==", "other": 1}}', "x").value == b'{"base64":"AA==","other":1}'


def test_deep_json_is_a_sentence() -> None:
    with pytest.raises(Sentence, match="x is no JSON"):
        parse_record(b"[" * 100_000, "x")


def read(*files: str) -> list[tuple[str, bytes]]:
    async def all_of_them() -> list[tuple[str, bytes]]:
        return [each async for each in lines.read_lines(files)]

    return asyncio.run(all_of_them())


def test_lines_of_files(tmp_path: Path) -> None:
    a, b = tmp_path / "a", tmp_path / "b"
    a.write_bytes(b"one\n\ntwo\r\n" + b"x" * 100_000 + b"\nend")
    b.write_bytes(b"")
    assert read(str(a), str(b)) == [
        (f"line 1 of {a}", b"one"),
        (f"line 2 of {a}", b""),
        (f"line 3 of {a}", b"two"),
        (f"line 4 of {a}", b"x" * 100_000),
        (f"line 5 of {a}", b"end"),
    ]
    assert lines.total_bytes([str(a), str(b)]) == a.stat().st_size
    assert lines.total_bytes([str(a), "-"]) is None


def test_a_line_without_an_end_does_not_fill_the_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lines, "MAX_LINE_BYTES", 1000)
    (tmp_path / "a").write_bytes(b"short\n" + b"x" * 200_000)
    with pytest.raises(Sentence, match=r"line 2 of .* is longer than 1000 bytes"):
        read(str(tmp_path / "a"))
