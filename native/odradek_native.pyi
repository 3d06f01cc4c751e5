"""As `odradek.protocol.records.pure`, function by function."""

from typing import TypeAlias

_Bytes: TypeAlias = bytes | bytearray | memoryview
_Refused: TypeAlias = tuple[int, int, list[tuple[int, int | None]]]

__version__: str

def check(
    payload: _Bytes, base_timestamp: int, count: int, flags: int, lowest: int, highest: int, /
) -> int | _Refused: ...

class Check:
    def __init__(self, base_timestamp: int, count: int, flags: int, lowest: int, highest: int, /) -> None: ...
    def feed(self, piece: _Bytes, /) -> bool: ...
    def finish(self) -> int | _Refused: ...
