"""Requests become records.

A decision reads an image and returns the records to append and the answer to give once they are committed; it changes
nothing. Errors that are part of the protocol go into the answer, topic by topic, in Kafka's words.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import TypeVar

from odradek.decisions import Decision, Ticket
from odradek.protocol.codec import Message

ResponseT = TypeVar("ResponseT")
NameT = TypeVar("NameT", bound=Hashable)

ASKER = Ticket(0)
"""The request being decided; the controller parks no others."""

MAX_PARTITIONS_PER_REQUEST = 10_000
"""Kafka's bound on what one request may create, so that one batch of the metadata log holds it."""


def decided(records: Iterable[Message], response: ResponseT) -> Decision[Message, ResponseT]:
    return Decision(tuple(records), ((ASKER, response),))


def repeated(names: Iterable[NameT]) -> dict[NameT, None]:
    """Names given more than once, in the order of their second mention (a dictionary, for sets have no order)."""
    once: dict[NameT, None] = {}
    more: dict[NameT, None] = {}
    for name in names:
        (more if name in once else once)[name] = None
    return more
