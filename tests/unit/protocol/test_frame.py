"""Headers and sizes around messages."""

from __future__ import annotations

import pytest

from odradek.protocol.errors import MalformedFrame
from odradek.protocol.frame import RequestHeader, decode_request_header, request_frame, response_frame


@pytest.mark.parametrize(
    ("version", "expected"),
    [
        (8, "0000000f 0000 0008 00000007 0002 6d65 ffffff"),
        (9, "00000010 0000 0009 00000007 0002 6d65 00 ffffff"),
    ],
)
def test_a_request_and_back(version: int, expected: str) -> None:
    header = RequestHeader(request_api_key=0, request_api_version=version, correlation_id=7, client_id="me")
    framed = b"".join(request_frame(header, [b"\xff", memoryview(b"\xff\xff")]))
    assert framed == bytes.fromhex(expected)
    decoded, position = decode_request_header(memoryview(framed), 4)
    assert decoded == header
    assert framed[position:] == b"\xff\xff\xff"


def test_a_client_may_have_no_id() -> None:
    header, position = decode_request_header(bytes.fromhex("0003 0000 00000001 ffff"), 0)
    assert header.client_id is None
    assert position == 10


def test_tags_in_the_header_are_skipped() -> None:
    header, position = decode_request_header(bytes.fromhex("0012 0003 00000001 0000 01 05 01 aa 99"), 0)
    assert (header.request_api_key, header.client_id, position) == (18, "", 14)


def test_the_header_of_an_unknown_api_can_be_read() -> None:
    header, position = decode_request_header(bytes.fromhex("4e20 0000 00000001 0001 61 99"), 0)
    assert (header.request_api_key, header.client_id, position) == (20000, "a", 11)


BROKEN_HEADERS = [
    "",
    "00",
    "0003 00",
    "0003 0000 0000",
    "0003 0000 00000001 0005 61",
    "0003 0000 00000001 0001 ff",
    "0003 000d 00000001 0000",
    "0003 000d 00000001 0000 01 05",
    "0003 000d 00000001 0000 01 05 02 aa",
]


@pytest.mark.parametrize("bytes_hex", BROKEN_HEADERS)
def test_broken_headers(bytes_hex: str) -> None:
    with pytest.raises(MalformedFrame):
        decode_request_header(bytes.fromhex(bytes_hex), 0)


@pytest.mark.parametrize(("header_version", "expected"), [(0, "00000006 00000007"), (1, "00000007 00000007 00")])
def test_a_response(header_version: int, expected: str) -> None:
    parts = response_frame(7, [b"\xaa", b"\xbb"], header_version=header_version)
    assert b"".join(parts) == bytes.fromhex(expected) + b"\xaa\xbb"
