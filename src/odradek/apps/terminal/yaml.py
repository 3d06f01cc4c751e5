"""Plain data as YAML: as much of it as the output of commands needs, which is little."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

_PLAIN = re.compile(r"[A-Za-z_/][A-Za-z0-9_/.@+-]*(?: [A-Za-z0-9_/.@+-]+)*")
_MEANS_SOMETHING_ELSE = frozenset(("true", "false", "null", "yes", "no", "on", "off", "y", "n", "nan", "inf"))
_UNPRINTABLE = re.compile("[\x7f-\x9f\u2028\u2029\ufeff\ud800-\udfff\ufffe\uffff]")


def dump(data: object) -> str:
    """One document, with a line end behind it."""
    return "\n".join(_lines(data)) + "\n"


def _lines(data: object) -> Iterator[str]:
    if isinstance(data, dict) and data:
        for key, held in data.items():
            yield from _entry(f"{scalar(key)}:", held)
    elif isinstance(data, list | tuple) and data:
        for held in data:
            yield from _item(held)
    else:
        yield scalar(data)


def _entry(start: str, held: object) -> Iterator[str]:
    """A key and what is under it: on the same line if that is a scalar, else indented below."""
    if isinstance(held, dict | list | tuple) and held:
        yield start
        for line in _lines(held):
            yield f"  {line}"
    else:
        yield f"{start} {scalar(held)}"


def _item(held: object) -> Iterator[str]:
    for number, line in enumerate(_lines(held)):
        yield f"- {line}" if number == 0 else f"  {line}"


def scalar(data: object) -> str:
    """A scalar on one line; a text that YAML could take for something else is quoted, as JSON quotes it."""
    match data:
        case None:
            return "null"
        case bool():
            return "true" if data else "false"
        case int() | float():
            return json.dumps(data)
        case dict():
            return "{}"
        case list() | tuple():
            return "[]"
    text = str(data)
    if _PLAIN.fullmatch(text) and text.lower() not in _MEANS_SOMETHING_ELSE:
        return text
    return _UNPRINTABLE.sub(lambda found: f"\\u{ord(found[0]):04x}", json.dumps(text, ensure_ascii=False))
