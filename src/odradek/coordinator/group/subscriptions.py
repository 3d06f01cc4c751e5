"""Subscriptions by regular expression."""

from __future__ import annotations

from collections.abc import Iterable

from odradek.coordinator.expressions import matcher

_FIELD = "SubscribedTopicRegex"


def check_expression(expression: str) -> None:
    """INVALID_REGULAR_EXPRESSION unless topics can be matched against it."""
    matcher(expression, _FIELD)


def matching(expression: str, topics: Iterable[str]) -> frozenset[str]:
    """Those topics whose whole name the expression describes."""
    matches = matcher(expression, _FIELD)
    return frozenset(topic for topic in topics if matches(topic))
