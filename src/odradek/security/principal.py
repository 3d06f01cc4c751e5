"""Who somebody is, as Kafka writes it: a type and a name."""

from __future__ import annotations

ANONYMOUS = "User:ANONYMOUS"
"""Everybody on a listener that asks nobody for a name."""
EVERYBODY = "User:*"


def is_principal(text: str) -> bool:
    """Whether it has the form `Type:name`, neither of them empty."""
    kind, colon, name = text.partition(":")
    return bool(kind and colon and name)


def super_users(text: str) -> frozenset[str]:
    """The principals of `super.users`, which are separated by semicolons; ValueError names one that is none."""
    named = [each.strip() for each in text.split(";") if each.strip()]
    for each in named:
        if not is_principal(each):
            raise ValueError(each)
    return frozenset(named)
