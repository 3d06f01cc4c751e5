"""Subscriptions by regular expression: RE2's language, as Kafka has it, which no expression can make slow."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import lru_cache

from odradek.protocol.errors import ErrorCode, KafkaError

COMPILED_KEPT = 1_000
"""Compiled expressions that are kept, over all groups of a node."""


def check_expression(expression: str) -> None:
    """INVALID_REGULAR_EXPRESSION unless topics can be matched against it."""
    _matcher(expression)


def matching(expression: str, topics: Iterable[str]) -> frozenset[str]:
    """Those topics whose whole name the expression describes."""
    matches = _matcher(expression)
    return frozenset(topic for topic in topics if matches(topic))


@lru_cache(maxsize=COMPILED_KEPT)
def _matcher(expression: str) -> Callable[[str], object]:
    try:
        import re2  # Costs ten milliseconds, and most nodes never see such a subscription.
    except ImportError:
        raise KafkaError(
            ErrorCode.INVALID_REGULAR_EXPRESSION,
            f"SubscribedTopicRegex `{expression}` cannot be matched: this broker has no google-re2.",
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
            f"SubscribedTopicRegex `{expression}` is not a valid regular expression: {said}.",
        ) from None
    return fullmatch
