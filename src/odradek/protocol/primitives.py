"""The wire's own types, as names a declaration is written with, and variable-length integers.

To a type checker `int32` is an int and `string` a str; the codec's compiler reads the `WireType` beside it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, TypeAlias

from odradek.ids import Uuid
from odradek.protocol.errors import MalformedFrame

if TYPE_CHECKING:
    from odradek.ports import Part

MAX_UVARINT = 2**32 - 1


class WireType:
    """How one primitive lies on the wire."""

    __slots__ = ("default", "entity", "format", "name", "size")

    def __init__(self, name: str, default: object, format: str = "", size: int = 0, entity: str = "") -> None:
        self.name = name
        self.default = default
        self.format = format
        """The letter of the struct module, or nothing where the size varies."""
        self.size = size
        self.entity = entity
        """What the value names, in Kafka's schemas: such fields mean the same thing wherever they occur."""


int8: TypeAlias = Annotated[int, WireType("int8", 0, "b", 1)]
int16: TypeAlias = Annotated[int, WireType("int16", 0, "h", 2)]
int32: TypeAlias = Annotated[int, WireType("int32", 0, "i", 4)]
int64: TypeAlias = Annotated[int, WireType("int64", 0, "q", 8)]
uint16: TypeAlias = Annotated[int, WireType("uint16", 0, "H", 2)]
uint32: TypeAlias = Annotated[int, WireType("uint32", 0, "I", 4)]
float64: TypeAlias = Annotated[float, WireType("float64", 0.0, "d", 8)]
boolean: TypeAlias = Annotated[bool, WireType("bool", False, "?", 1)]
uuid: TypeAlias = Annotated[Uuid, WireType("uuid", Uuid(bytes(16)), "16s", 16)]
string: TypeAlias = Annotated[str, WireType("string", "")]
bytes_: TypeAlias = Annotated[bytes, WireType("bytes", b"")]
records: TypeAlias = Annotated["Part", WireType("records", None)]
"""Record batches: decoded as a view into the request, encoded from whatever can be sent."""

BrokerId: TypeAlias = Annotated[int, WireType("int32", 0, "i", 4, entity="brokerId")]
ProducerId: TypeAlias = Annotated[int, WireType("int64", 0, "q", 8, entity="producerId")]
GroupId: TypeAlias = Annotated[str, WireType("string", "", entity="groupId")]
TopicName: TypeAlias = Annotated[str, WireType("string", "", entity="topicName")]
TransactionalId: TypeAlias = Annotated[str, WireType("string", "", entity="transactionalId")]


def encode_uvarint(value: int) -> bytes:
    """Seven bits a byte, lowest first; the top bit says that more follow.

    Spelt out up to three bytes, here and in `decode_uvarint`: that is the length of nearly every record batch.
    """
    if value < 0x80:
        return bytes((value,))
    if value < 0x4000:
        return bytes((value & 0x7F | 0x80, value >> 7))
    if value < 0x200000:
        return bytes((value & 0x7F | 0x80, value >> 7 & 0x7F | 0x80, value >> 14))
    return bytes((value & 0x7F | 0x80,)) + encode_uvarint(value >> 7)


def decode_uvarint(buffer: bytes | bytearray | memoryview, position: int) -> tuple[int, int]:
    """The value and the position after it; IndexError where the buffer ends too early."""
    first = buffer[position]
    if first < 0x80:
        return first, position + 1
    second = buffer[position + 1]
    if second < 0x80:
        return first & 0x7F | second << 7, position + 2
    third = buffer[position + 2]
    if third < 0x80:
        return first & 0x7F | (second & 0x7F) << 7 | third << 14, position + 3
    value = first & 0x7F | (second & 0x7F) << 7 | (third & 0x7F) << 14
    for shift in (21, 28):
        byte = buffer[position + shift // 7]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if value > MAX_UVARINT:
                break
            return value, position + shift // 7 + 1
    raise MalformedFrame("a varint holds more than 32 bits")
