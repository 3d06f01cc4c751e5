"""What commands print: tables, YAML, progress, and texts that must not steer a terminal."""

from __future__ import annotations

import argparse
import io
import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.apps.cli import progress
from odradek.apps.cli.outcomes import report
from odradek.apps.cli.topic_description import skew
from odradek.apps.terminal import yaml
from odradek.apps.terminal.output import (
    cell,
    emit,
    emit_one_of_many,
    fields,
    harmless,
    plural,
    size_text,
    span_text,
    table,
    time_text,
)
from odradek.apps.terminal.session import failure_text
from odradek.protocol.errors import ErrorCode, KafkaError


def options(form: str) -> argparse.Namespace:
    return argparse.Namespace(format=form)


class TestTables:
    def test_numbers_are_set_to_the_right(self) -> None:
        assert table(("NAME", "COUNT", "LAG"), [("a", 5, None), ("longer", 1000, 7)]) == [
            "NAME    COUNT  LAG",
            "a           5    -",
            "longer   1000    7",
        ]

    def test_nothing_but_a_head(self) -> None:
        assert table(("A", "B"), []) == ["A  B"]

    def test_wide_characters_take_two_columns(self) -> None:
        assert table(("A", "B"), [("漢字", 1), ("e\u0301a", 2)]) == ["A     B", "漢字  1", "e\u0301a    2"]

    def test_cells(self) -> None:
        assert [cell(each) for each in (None, True, False, 1.5, 1048576.0, [1, 2], [], "a\nb")] == [
            "-",
            "yes",
            "no",
            "1.5",
            "1048576",
            "1,2",
            "-",
            "a\\nb",
        ]

    def test_fields(self) -> None:
        assert fields([("Topic", "a"), ("Id", None)]) == ["Topic  a", "Id     -"]


@given(st.text())
def test_nothing_that_others_wrote_steers_the_terminal(text: str) -> None:
    assert harmless(text).isprintable()


def test_printable_texts_stay() -> None:
    assert harmless("grün 漢字 \\x") == "grün 漢字 \\x"
    assert harmless("\x1b[2J\t\u202e") == "\\x1b[2J\\t\\u202e"


@pytest.mark.parametrize(
    ("size", "text"), [(0, "0 B"), (1023, "1023 B"), (1024, "1.0 KiB"), (5 << 30, "5.0 GiB"), (1 << 45, "32.0 TiB")]
)
def test_sizes(size: int, text: str) -> None:
    assert size_text(size) == text


@pytest.mark.parametrize(
    ("span_ms", "text"),
    [
        (0, "0.0 s"),
        (119_900, "119.9 s"),
        (120_000, "2.0 min"),
        (7_200_000, "2.0 h"),
        (172_800_000, "2.0 d"),
        (864_000_000, "10.0 d"),
        (None, None),
    ],
)
def test_spans(span_ms: int | None, text: str | None) -> None:
    assert span_text(span_ms) == text


def test_times() -> None:
    assert re.fullmatch(r"20\d\d-\d\d-\d\d \d\d:\d\d:\d\d\.007", time_text(1_700_000_000_007))
    assert time_text(1 << 80) == str(1 << 80)


def test_counts() -> None:
    assert [plural(count, "record") for count in (0, 1, 2, 1000)] == [
        "0 records",
        "1 record",
        "2 records",
        "1,000 records",
    ]


class TestYaml:
    def test_nested(self) -> None:
        data = {"name": "a", "list": [1, {"x": None, "z": [True]}], "empty": [], "none": {}, "matrix": [[1, 2], [3]]}
        assert yaml.dump(data) == (
            "name: a\nlist:\n  - 1\n  - x: null\n    z:\n      - true\n"
            "empty: []\nnone: {}\nmatrix:\n  - - 1\n    - 2\n  - - 3\n"
        )

    @pytest.mark.parametrize(
        "text",
        ["", "true", "No", "null", "~", "12", "1.5", "-", "- a", "a: b", "a #b", " a", "a ", "*x", "&x", "!t", "@a",
         "{", "1e3", "a\nb", '"', "'", "%x", "2026-11-15", "0x1f", "\u2028", "\x7f", "=", "<<"],
    )  # fmt: skip
    def test_texts_that_mean_something_else_are_quoted(self, text: str) -> None:
        shown = yaml.scalar(text)
        assert shown.startswith('"')
        assert shown.endswith('"')
        assert json.loads(shown) == text

    @pytest.mark.parametrize("text", ["a", "retention.ms", "two words", "/a/b-c", "user@host"])
    def test_plain_texts_are_not(self, text: str) -> None:
        assert yaml.scalar(text) == text


class TestForms:
    def test_each_form(self, capsys: pytest.CaptureFixture[str]) -> None:
        shown = {}
        for form in ("table", "json", "yaml"):
            emit(options(form), [{"a": "ü"}], ["A", "ü"])
            shown[form] = capsys.readouterr().out
        assert shown == {"table": "A\nü\n", "json": '[\n  {\n    "a": "ü"\n  }\n]\n', "yaml": '- a: "ü"\n'}

    def test_one_of_many(self, capsys: pytest.CaptureFixture[str]) -> None:
        shown = {}
        for form in ("table", "json", "yaml"):
            emit_one_of_many(options(form), {"a": 1}, ["A 1"])
            shown[form] = capsys.readouterr().out
        assert shown == {"table": "A 1\n", "json": '{"a": 1}\n', "yaml": "---\na: 1\n"}

    def test_outcomes(self, capsys: pytest.CaptureFixture[str]) -> None:
        outcomes = {"a": None, "b": KafkaError(ErrorCode.TOPIC_ALREADY_EXISTS, "There is one.")}
        assert report(options("table"), "topic", outcomes, "created") == 1
        shown = capsys.readouterr()
        assert shown.out == "topic a created.\n"
        assert shown.err == "odradek: topic b: There is one (TOPIC_ALREADY_EXISTS).\n"
        assert report(options("json"), "topic", {"a": None}, "created") == 0
        assert json.loads(capsys.readouterr().out) == [{"topic": "a", "done": True, "error": None}]

    def test_an_api_that_is_not_served(self) -> None:
        refused = KafkaError(ErrorCode.UNSUPPORTED_VERSION, "the broker does not serve CREATE_ACLS")
        assert failure_text(refused) == (
            "the broker does not serve CREATE_ACLS, which this command needs: "
            "the broker is too old for it, or does not offer it yet"
        )


class TestProgress:
    def test_the_line(self) -> None:
        assert progress.line("producing", 5, 10, "record") == "producing [############------------]  50%  5 records"
        assert progress.line("verifying", 2048, 1024, "byte") == "verifying [########################] 100%  2.0 KiB"
        assert progress.line("producing", 1, None, "record") == "producing 1 record"

    def test_nothing_where_nobody_watches(self, capsys: pytest.CaptureFixture[str]) -> None:
        with progress.Progress("producing", 10) as shown:
            shown.advance(5)
        assert capsys.readouterr().err == ""

    def test_on_a_terminal_it_leaves_no_trace(self, monkeypatch: pytest.MonkeyPatch) -> None:
        class Terminal(io.StringIO):
            def isatty(self) -> bool:
                return True

        terminal = Terminal()
        monkeypatch.setattr("sys.stderr", terminal)
        with progress.Progress("producing", 10) as shown:
            shown.advance(5)
            assert terminal.getvalue() == "\rproducing [############------------]  50%  5 records"
        assert terminal.getvalue().rpartition("\r")[2] == ""
        assert terminal.getvalue().split("\r")[-2].isspace()


def test_skew() -> None:
    assert skew([10, 10]) == 1.0
    assert skew([0, 0, 30]) == 3.0
    assert skew([0, 0]) is None
    assert skew([5]) is None
