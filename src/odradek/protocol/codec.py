"""Messages to bytes and back, by functions compiled from the declarations at first use and kept."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from odradek.protocol.compile_decoder import compile_decoder
from odradek.protocol.compile_encoder import compile_encoder
from odradek.protocol.declare import Message, Struct, Versions, field
from odradek.protocol.errors import ErrorCode, KafkaError, MalformedFrame

if TYPE_CHECKING:
    from odradek.ports import Part

__all__ = [
    "Buffer",
    "Message",
    "Struct",
    "Versions",
    "decode",
    "decoder",
    "encode",
    "encoder",
    "field",
    "parts_encoder",
]

Buffer: TypeAlias = bytes | bytearray | memoryview
MessageT = TypeVar("MessageT", bound=Message)

_decoders: dict[tuple[type[Message], int], Callable[[Any, int], Any]] = {}
_encoders: dict[tuple[type[Message], int], Callable[[Any], bytes]] = {}
_parts_encoders: dict[tuple[type[Message], int], Callable[[Any], list[Part]]] = {}


def decoder(cls: type[MessageT], version: int) -> Callable[[Buffer, int], tuple[MessageT, int]]:
    """`(buffer, position) -> (message, position after it)`; raises MalformedFrame on bytes that are no such message.

    Fields of type `records` are views into the buffer, everything else is copied out of it.
    """
    known = _decoders.get((cls, version))
    if known is None:
        known = _decoders[cls, version] = compile_decoder(_in_version(cls, version), version)
    return known


def encoder(cls: type[MessageT], version: int) -> Callable[[MessageT], bytes]:
    """`message -> bytes`."""
    known = _encoders.get((cls, version))
    if known is None:
        known = _encoders[cls, version] = compile_encoder(_in_version(cls, version), version, in_parts=False)
    return known


def parts_encoder(cls: type[MessageT], version: int) -> Callable[[MessageT], list[Part]]:
    """`message -> parts`: record batches are passed on as they are, everything between them is joined."""
    known = _parts_encoders.get((cls, version))
    if known is None:
        known = _parts_encoders[cls, version] = compile_encoder(_in_version(cls, version), version, in_parts=True)
    return known


def decode(cls: type[MessageT], version: int, data: Buffer) -> MessageT:
    """The message that is all of `data`."""
    message, position = decoder(cls, version)(data, 0)
    if position != len(data):
        raise MalformedFrame(f"{len(data) - position} bytes after the end of {cls.__name__} v{version}")
    return message


def encode(message: Message, version: int) -> bytes:
    """The bytes of a message in one version."""
    return encoder(type(message), version)(message)


def _in_version(cls: type[MessageT], version: int) -> type[MessageT]:
    if version not in cls.versions:
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, f"{cls.__name__} has no version {version}, only {cls.versions}")
    return cls
