"""As `odradek.protocol.records.pure`, function by function."""

from array import array
from collections.abc import Sequence
from typing import TypeAlias

_Bytes: TypeAlias = bytes | bytearray | memoryview
_Refused: TypeAlias = tuple[int, int, list[tuple[int, int | None]]]

__version__: str

def check(
    payload: _Bytes, base_timestamp: int, count: int, flags: int, lowest: int, highest: int, /
) -> int | _Refused: ...
def encode(
    timestamp_delta: int,
    offset_delta: int,
    key: bytes | None,
    value: bytes | None,
    headers: Sequence[tuple[str, bytes | None]],
    /,
) -> bytes: ...
def decode(
    payload: bytes, position: int, most: int, base_offset: int, base_timestamp: int, /
) -> tuple[list[tuple[bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...], int, int]], int]: ...
def offsets_keys_hashes(
    payload: bytes, position: int, most: int, base_offset: int, base_timestamp: int, above: int, last: int, /
) -> tuple[array[int], array[int], array[int], bytes, bytes]: ...

class Check:
    def __init__(self, base_timestamp: int, count: int, flags: int, lowest: int, highest: int, /) -> None: ...
    def feed(self, piece: _Bytes, /) -> bool: ...
    def finish(self) -> int | _Refused: ...
