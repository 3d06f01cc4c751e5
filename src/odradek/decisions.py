"""What a core hands its shell: records to append, answers to give once they are durable, and when to be asked again."""

from __future__ import annotations

from typing import Generic, NewType, TypeVar

from odradek.values import value

RecordT = TypeVar("RecordT")
AnswerT = TypeVar("AnswerT")

Ticket = NewType("Ticket", int)
"""Stands for one parked request; the shell knows which."""


@value
class Decision(Generic[RecordT, AnswerT]):
    """The outcome of one event.

    `records` are one batch: all of it or nothing. `answers` leave once the high watermark has passed the last record
    replayed when they were made. The shell keeps one timer a core and asks again at `next_deadline_ms`.
    """

    records: tuple[RecordT, ...]
    answers: tuple[tuple[Ticket, AnswerT], ...] = ()
    next_deadline_ms: int | None = None
