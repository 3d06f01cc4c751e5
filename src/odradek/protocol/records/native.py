"""Which of the twins does the work record by record: the native module where it is installed, `pure.py` where not.

`ODRADEK_NATIVE=0` in the environment leaves the native module alone.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Protocol, TypeAlias

from odradek.protocol.records import pure
from odradek.protocol.records.pure import Refused

Bytes: TypeAlias = bytes | bytearray | memoryview


class LooksAtPieces(Protocol):
    """See `pure.Check`."""

    def feed(self, piece: Bytes, /) -> bool: ...

    def finish(self) -> int | Refused: ...


try:
    if os.environ.get("ODRADEK_NATIVE") == "0":
        raise ImportError
    import odradek_native
except ImportError:
    NATIVE_VERSION: str | None = None
    check: Callable[[Bytes, int, int, int, int, int], int | Refused] = pure.check
    Check: Callable[[int, int, int, int, int], LooksAtPieces] = pure.Check
else:
    NATIVE_VERSION = odradek_native.__version__
    check = odradek_native.check
    Check = odradek_native.Check


def in_use() -> str:
    """For `odradek --version`, and for whoever measures."""
    return f"native module {NATIVE_VERSION}" if NATIVE_VERSION else "no native module"
