"""What stands around a message on a connection: four bytes of size, then a header, then the message."""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct as Packing
from struct import error as StructError
from typing import TYPE_CHECKING

from odradek.protocol.api import ApiKey, request_header_version
from odradek.protocol.codec import Buffer, Message, decoder, encode, field
from odradek.protocol.compile_decoder import skip_tagged_fields
from odradek.protocol.errors import MalformedFrame
from odradek.protocol.primitives import int16, int32, string

if TYPE_CHECKING:
    from odradek.ports import Part

__all__ = [
    "RequestHead",
    "RequestHeader",
    "ResponseHeader",
    "decode_request_header",
    "request_frame",
    "response_frame",
    "skip_tagged_fields",
]

_KEY_AND_VERSION = Packing(">hh")
_SIZE = Packing(">i")
_REQUEST_PREFIX = Packing(">ihhi")
_NUMBERED_BYTES = _REQUEST_PREFIX.size - _SIZE.size
_RESPONSE_PREFIX = Packing(">ii")


class RequestHeader(Message, versions="0-2", flexible="2+"):
    """What every request starts with.

    The client id keeps its two-byte length also where the header is flexible: a broker reads it before it knows whether
    it understands the request.
    """

    request_api_key: int16
    request_api_version: int16
    correlation_id: int32
    client_id: string | None = field(versions="1+", nullable="1+", flexible="none", default="")


class ResponseHeader(Message, versions="0-1", flexible="1+"):
    """What every response starts with."""

    correlation_id: int32


def decode_request_header(buffer: Buffer, position: int) -> tuple[RequestHeader, int]:
    """The header and the position of the request behind it.

    The header of an API that does not exist here is read as the oldest common one, so that a refusal can name it.
    """
    try:
        key, version = _KEY_AND_VERSION.unpack_from(buffer, position)
    except StructError as wrong:
        raise MalformedFrame("a request ends inside its header") from wrong
    try:
        header_version = request_header_version(ApiKey(key), version)
    except ValueError:
        header_version = 1
    return decoder(RequestHeader, header_version)(buffer, position)


class RequestHead:
    """What stands before every request of one kind that one client sends, but for its size and its number."""

    __slots__ = ("_api_key", "_api_version", "_rest")

    def __init__(self, api_key: int, api_version: int, client_id: str) -> None:
        header = RequestHeader(
            request_api_key=api_key, request_api_version=api_version, correlation_id=0, client_id=client_id
        )
        self._api_key = api_key
        self._api_version = api_version
        self._rest = encode(header, request_header_version(ApiKey(api_key), api_version))[_NUMBERED_BYTES:]

    def before(self, body_bytes: int, correlation_id: int) -> bytes:
        """The bytes before a body of that size."""
        size = _NUMBERED_BYTES + len(self._rest) + body_bytes
        return _REQUEST_PREFIX.pack(size, self._api_key, self._api_version, correlation_id) + self._rest


def request_frame(header: RequestHeader, parts: Sequence[Part]) -> list[Part]:
    """A request as it is sent."""
    version = request_header_version(ApiKey(header.request_api_key), header.request_api_version)
    head = encode(header, version)
    return [_SIZE.pack(len(head) + sum([len(part) for part in parts])) + head, *parts]


def response_frame(correlation_id: int, parts: Sequence[Part], *, header_version: int) -> list[Part]:
    """A response as it is sent."""
    size = 4 + header_version + sum([len(part) for part in parts])
    head = _RESPONSE_PREFIX.pack(size, correlation_id)
    return [head + b"\0" if header_version else head, *parts]
