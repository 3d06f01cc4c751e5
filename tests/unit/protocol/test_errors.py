"""Error codes as a client sees them."""

from __future__ import annotations

import pytest
from kio.schema.errors import ErrorCode as KioErrorCode

from odradek.protocol.errors import ErrorCode, KafkaError


def test_the_same_codes_and_the_same_retriable_ones_as_kio() -> None:
    assert {code.name.lower(): (int(code), code.retriable) for code in ErrorCode} == {
        code.name: (int(code), code.retriable) for code in KioErrorCode
    }


@pytest.mark.parametrize("code", list(ErrorCode))
def test_every_code_has_something_to_say(code: ErrorCode) -> None:
    assert code.default_message
    assert KafkaError(code).message == code.default_message


def test_an_error_keeps_what_it_was_told() -> None:
    error = KafkaError(ErrorCode.INVALID_CONFIG, "retention.ms is no number")
    assert (error.code, error.message, str(error)) == (40, "retention.ms is no number", "retention.ms is no number")
    assert str(KafkaError(ErrorCode.INVALID_CONFIG)) == "INVALID_CONFIG"
