"""Codes of transactions, as clients of each version know them."""

from __future__ import annotations

from odradek.protocol.errors import ErrorCode

FENCED_IS_KNOWN_SINCE = 2
"""Of the requests for partitions, offsets and ends; InitProducerId has numbers of its own."""


def known_code(code: int, version: int, *, since: int = FENCED_IS_KNOWN_SINCE) -> ErrorCode:
    """PRODUCER_FENCED is younger than transactions (KIP-360); for older clients an epoch is invalid."""
    if code == ErrorCode.PRODUCER_FENCED and version < since:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    return ErrorCode(code)
