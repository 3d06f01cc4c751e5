"""Which of the twins does the work record by record: the native module where it is installed, `pure.py` where not.

`ODRADEK_NATIVE=0` in the environment leaves the native module alone.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Protocol, TypeAlias

from odradek.protocol.records import pure
from odradek.protocol.records.pure import Columns, Refused

Header: TypeAlias = tuple[str, bytes | None]
Fields: TypeAlias = tuple[bytes | None, bytes | None, tuple[Header, ...], int, int]
"""Of a record: key, value, headers, timestamp and offset."""

Bytes: TypeAlias = bytes | bytearray | memoryview

WANTED_VERSION = "0.2.0"
"""That of `native/Cargo.toml`; another one may know less, or answer otherwise."""


class LooksAtPieces(Protocol):
    """See `pure.Check`."""

    def feed(self, piece: Bytes, /) -> bool: ...

    def finish(self) -> int | Refused: ...


try:
    if os.environ.get("ODRADEK_NATIVE") == "0":
        raise ImportError
    import odradek_native

    if odradek_native.__version__ != WANTED_VERSION:
        raise ImportError
except ImportError:
    NATIVE_VERSION: str | None = None
    check: Callable[[Bytes, int, int, int, int, int], int | Refused] = pure.check
    Check: Callable[[int, int, int, int, int], LooksAtPieces] = pure.Check
    encode: Callable[[int, int, bytes | None, bytes | None, Sequence[Header]], bytes] | None = None
    decode: Callable[[bytes, int, int, int, int], tuple[list[Fields], int]] | None = None
    offsets_keys_hashes: Callable[[bytes, int, int, int, int, int, int], Columns] = pure.offsets_keys_hashes
else:
    NATIVE_VERSION = odradek_native.__version__
    check = odradek_native.check
    Check = odradek_native.Check
    encode = odradek_native.encode
    decode = odradek_native.decode
    offsets_keys_hashes = odradek_native.offsets_keys_hashes


def in_use() -> str:
    """For `odradek --version`, and for whoever measures."""
    return f"native module {NATIVE_VERSION}" if NATIVE_VERSION else "no native module"
