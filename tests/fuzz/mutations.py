"""Ways to spoil a request.

`spoil_body` changes what follows a sound header, so that it reaches its API's decoder; `spoil_header` and
`spoil_framing` change what comes before.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Callable

_WINDOWS = (
    b"\x7f\xff\xff\xff",
    b"\xff\xff\xff\xff",
    b"\x80\x00\x00\x00",
    b"\xff\xff\xff\xfe",
    b"\x00\x01\x00\x00",
    b"\x7f\xff",
    b"\xff\xff",
    b"\x80\x00",
    b"\x00\x00",
    b"\x7f" + b"\xff" * 7,
    b"\x80" + b"\x00" * 7,
    b"\xff" * 8,
)
_VARINTS = (
    b"\xff\xff\xff\xff\x0f",
    b"\xff\xff\xff\xff\x7f",
    b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
    b"\x80\x80\x80\x80\x80\x80",
    b"\x80\x00",
    b"\xff\xff\x03",
    b"\x80",
)
_BAD_TEXT = (b"\xff", b"\xc3\x28", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\xc0\x80", b"\x00")


def spoil_body(draw: random.Random, body: bytearray, start: int) -> str:
    """Change what lies behind `start`, in place; what was done."""
    name, mutate = draw.choice(_BODY)
    mutate(draw, body, start)
    if draw.random() < 0.2:
        other, mutate = draw.choice(_BODY)
        mutate(draw, body, start)
        name = f"{name}, {other}"
    return name


def spoil_header(draw: random.Random, body: bytearray) -> str:
    """Change API key, version, client id or the tagged fields of the header."""
    name, position, letter, choices = draw.choice(_HEADER)
    number = draw.choice(choices) if choices else draw.randrange(-(2**15), 2**15)
    struct.pack_into(letter, body, position, number)
    return f"{name} {number}"


def spoil_framing(draw: random.Random, body: bytearray, limit: int) -> tuple[str, bytes]:
    """The frame with a length that is not its own."""
    size = draw.choice(
        (
            0,
            1,
            7,
            -1,
            -(2**31),
            2**31 - 1,
            limit + 1,
            limit,
            len(body) - 1,
            len(body) + 1,
            draw.randrange(-(2**31), 2**31),
        )
    )
    return f"length {size}", struct.pack(">i", size) + body


def _flip_bits(draw: random.Random, body: bytearray, start: int) -> None:
    for _ in range(draw.choice((1, 1, 1, 2, 8))):
        if len(body) > start:
            body[draw.randrange(start, len(body))] ^= 1 << draw.randrange(8)


def _set_byte(draw: random.Random, body: bytearray, start: int) -> None:
    if len(body) > start:
        body[draw.randrange(start, len(body))] = draw.choice((0, 1, 0x7F, 0x80, 0xFF))


def _truncate(draw: random.Random, body: bytearray, start: int) -> None:
    del body[draw.randrange(start, len(body) + 1) :]


def _append(draw: random.Random, body: bytearray, start: int) -> None:
    body += draw.randbytes(draw.choice((1, 1, 4, 100)))


def _insert(draw: random.Random, body: bytearray, start: int) -> None:
    position = draw.randrange(start, len(body) + 1)
    body[position:position] = draw.randbytes(draw.choice((1, 2, 4, 30)))


def _remove(draw: random.Random, body: bytearray, start: int) -> None:
    position = draw.randrange(start, len(body) + 1)
    del body[position : position + draw.choice((1, 2, 4, 30))]


def _repeat(draw: random.Random, body: bytearray, start: int) -> None:
    position = draw.randrange(start, len(body) + 1)
    stretch = body[position : position + draw.choice((1, 4, 30))]
    body[position:position] = stretch * draw.choice((1, 3))


def _swap(draw: random.Random, body: bytearray, start: int) -> None:
    first, second = (draw.randrange(start, len(body) + 1) for _ in range(2))
    body[first : first + 4], body[second : second + 4] = body[second : second + 4], body[first : first + 4]


def _overwrite(choices: tuple[bytes, ...]) -> Callable[[random.Random, bytearray, int], None]:
    def mutate(draw: random.Random, body: bytearray, start: int) -> None:
        content = draw.choice(choices)
        position = draw.randrange(start, len(body) + 1)
        body[position : position + len(content)] = content

    return mutate


_BODY: tuple[tuple[str, Callable[[random.Random, bytearray, int], None]], ...] = (
    ("bits flipped", _flip_bits),
    ("bits flipped", _flip_bits),
    ("a byte set", _set_byte),
    ("truncated", _truncate),
    ("bytes behind the end", _append),
    ("bytes inserted", _insert),
    ("bytes removed", _remove),
    ("a stretch repeated", _repeat),
    ("two stretches swapped", _swap),
    ("a number set to an extreme", _overwrite(_WINDOWS)),
    ("a varint that is too long", _overwrite(_VARINTS)),
    ("text that is not UTF-8", _overwrite(_BAD_TEXT)),
)
_HEADER: tuple[tuple[str, int, str, tuple[int, ...]], ...] = (
    ("API key", 0, ">h", ()),
    ("API key", 0, ">h", (4, 5, 6, 7, 8, 11, 17, 36, 60, 74, 92, -1)),
    ("version", 2, ">h", ()),
    ("version", 2, ">h", (0, 1, 2, 3, 4, 8, 12, 13, 14, 19, -1, 2**15 - 1)),
    ("client id length", 8, ">h", (0, 1, 5, 7, 100, -1, -2, -(2**15), 2**15 - 1)),
    ("correlation id", 4, ">i", (0, -1, 2**31 - 1, -(2**31))),
    ("client id byte", 10, ">b", (-1, -61, 0)),
)
