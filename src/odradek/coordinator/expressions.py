"""Regular expressions of clients: RE2's language, as Kafka has it, in which none can be made that is slow."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

from odradek.protocol.errors import ErrorCode, KafkaError

COMPILED_KEPT = 1_000
"""Compiled expressions that are kept on a node."""


@lru_cache(maxsize=COMPILED_KEPT)
def matcher(expression: str, what: str) -> Callable[[str], object]:
    """Says whether an expression describes a whole text; INVALID_REGULAR_EXPRESSION that names `what` if it is none."""
    try:
        import re2  # Costs ten milliseconds, and most nodes never see an expression.
    except ImportError:
        raise KafkaError(
            ErrorCode.INVALID_REGULAR_EXPRESSION,
            f"{what} `{expression}` cannot be matched: this broker has no google-re2.",
        ) from None
    options = re2.Options()
    options.log_errors = False
    try:
        fullmatch: Callable[[str], object] = re2.compile(expression, options).fullmatch
    except re2.error as wrong:
        reason = wrong.args[0]
        said = reason.decode(errors="replace") if isinstance(reason, bytes) else str(reason)
        raise KafkaError(
            ErrorCode.INVALID_REGULAR_EXPRESSION,
            f"{what} `{expression}` is not a valid regular expression: {said}.",
        ) from None
    return fullmatch
