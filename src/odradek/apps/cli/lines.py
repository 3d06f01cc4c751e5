"""Lines from files and from stdin, read so that the event loop goes on: a person may type slowly."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Callable, Sequence

from odradek.apps.terminal.sentence import Sentence

STDIN = "-"
MAX_LINE_BYTES = 64 * 1024 * 1024
"""Far above any `max.message.bytes` in use: a file without line ends must not fill the memory."""

_CHUNK_BYTES = 64 * 1024


async def read_lines(
    files: Sequence[str], on_read: Callable[[int], None] = lambda _: None
) -> AsyncIterator[tuple[str, bytes]]:
    """Each line without its end, and what to call it in an error; `on_read` hears of bytes as they are read."""
    for file in files:
        descriptor, name = _open(file)
        try:
            number = 0
            rest = b""
            while True:
                chunk = await _read(descriptor, name)
                on_read(len(chunk))
                lines = (rest + chunk).split(b"\n")
                rest = lines.pop() if chunk else b""
                for line in lines if chunk else [line for line in lines if line]:
                    number += 1
                    yield f"line {number} of {name}", line.removesuffix(b"\r")
                if not chunk:
                    break
                if len(rest) > MAX_LINE_BYTES:
                    raise Sentence(f"line {number + 1} of {name} is longer than {MAX_LINE_BYTES} bytes.")
        finally:
            if file != STDIN:
                os.close(descriptor)


def total_bytes(files: Sequence[str]) -> int | None:
    """How much there is to read, where that is known beforehand."""
    try:
        return sum(os.stat(file).st_size for file in files) if STDIN not in files else None
    except OSError:
        return None


def _open(file: str) -> tuple[int, str]:
    if file == STDIN:
        return sys.stdin.fileno(), "stdin"
    try:
        return os.open(file, os.O_RDONLY), file
    except OSError as wrong:
        raise _cannot_read(file, wrong) from wrong


async def _read(descriptor: int, name: str) -> bytes:
    """The next bytes, waiting for a pipe or a terminal without keeping the loop; a file gives them at once."""
    loop = asyncio.get_running_loop()
    readable = asyncio.Event()
    try:
        loop.add_reader(descriptor, readable.set)
    except OSError:  # A plain file, which is always readable and which epoll therefore refuses.
        await asyncio.sleep(0)
    else:
        try:
            await readable.wait()
        finally:
            loop.remove_reader(descriptor)
    try:
        return os.read(descriptor, _CHUNK_BYTES)
    except OSError as wrong:
        raise _cannot_read(name, wrong) from wrong


def _cannot_read(name: str, wrong: OSError) -> Sentence:
    return Sentence(f"cannot read {name}: {(wrong.strerror or str(wrong)).lower()}.")
