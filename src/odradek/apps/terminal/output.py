"""What commands print: tables for people, JSON and YAML for programs, made from the same data."""

from __future__ import annotations

import argparse
import functools
import json
import sys
import time
import unicodedata
from collections.abc import Iterable, Sequence

GAP = "  "

json_line = json.JSONEncoder(ensure_ascii=False).encode
"""Kept, because `json.dumps` makes one each time where it is asked for anything special."""


def emit(options: argparse.Namespace, data: object, lines: Iterable[str]) -> None:
    """Print plain data in the form that was asked for; `lines` are what people read."""
    match options.format:
        case "json":
            print(json.dumps(data, indent=2, ensure_ascii=False))
        case "yaml":
            from odradek.apps.terminal.yaml import dump

            print(dump(data), end="")
        case _:
            for line in lines:
                print(line)


def emit_one_of_many(options: argparse.Namespace, data: object, lines: Iterable[str]) -> None:
    """As `emit`, for things that come one by one without an end: JSON on a line, YAML in a document of its own."""
    match options.format:
        case "json":
            print(json_line(data))
        case "yaml":
            print("---")
            emit(options, data, ())
        case _:
            emit(options, data, lines)


def table(headings: Sequence[str], rows: Iterable[Sequence[object]]) -> list[str]:
    """Columns as wide as they must be; those that hold numbers only are set to the right."""
    held = [list(row) for row in rows]
    cells = [[cell(each) for each in row] for row in held]
    numeric = [
        any(isinstance(row[at], int | float) for row in held)
        and all(isinstance(row[at], int | float | None) and not isinstance(row[at], bool) for row in held)
        for at in range(len(headings))
    ]
    widths = [max(map(_width, column)) for column in zip(headings, *cells, strict=True)]
    lines = []
    for row in [list(headings), *cells]:
        padded = [
            " " * (width - _width(text)) + text if right else text + " " * (width - _width(text))
            for text, width, right in zip(row, widths, numeric, strict=True)
        ]
        lines.append(GAP.join(padded).rstrip())
    return lines


def fields(pairs: Iterable[tuple[str, object]]) -> list[str]:
    """Names and what they stand for, one a line."""
    held = [(name, cell(each)) for name, each in pairs]
    width = max((_width(name) for name, _ in held), default=0)
    return [f"{name}{' ' * (width - _width(name))}{GAP}{text}".rstrip() for name, text in held]


def cell(content: object) -> str:
    """One value for people, on one line."""
    match content:
        case None:
            return "-"
        case bool():
            return "yes" if content else "no"
        case float():
            return f"{content:.15g}"
        case list() | tuple():
            return ",".join(map(cell, content)) or "-"
    return harmless(str(content))


def harmless(text: str) -> str:
    """Without characters that move the cursor or change the terminal: what others wrote must not steer it."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else _escaped(char) for char in text)


def size_text(size_bytes: int) -> str:
    """Bytes in the unit that people use for so many."""
    size = float(size_bytes)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{size_bytes} B" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} TiB"


def time_text(timestamp_ms: int) -> str:
    """A moment in local time to the millisecond; the bare number where it is none that a calendar has."""
    try:
        return f"{_second_text(timestamp_ms // 1000)}.{timestamp_ms % 1000:03d}"
    except (OverflowError, ValueError, OSError):
        return str(timestamp_ms)


def span_text(span_ms: int | None) -> str | None:
    """How long something takes or has lasted, in the unit that people use for so much."""
    if span_ms is None:
        return None
    span = span_ms / 1000
    for unit, below, many in (("s", 120, 60), ("min", 120, 60), ("h", 48, 24)):
        if span < below:
            return f"{span:.1f} {unit}"
        span /= many
    return f"{span:.1f} d"


@functools.lru_cache(64)
def _second_text(seconds: int) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(seconds))


def complain(sentence: str) -> None:
    """Say what went wrong with one of several things, and go on."""
    sys.stdout.flush()
    print(f"odradek: {sentence}", file=sys.stderr)


def plural(count: int, noun: str) -> str:
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def _escaped(char: str) -> str:
    return char.encode("unicode_escape").decode() if char != "\ufffd" else char


def _width(text: str) -> int:
    """How many columns of a terminal a text takes."""
    if text.isascii():
        return len(text)
    return sum(
        0 if unicodedata.combining(char) else 2 if unicodedata.east_asian_width(char) in "WF" else 1 for char in text
    )
