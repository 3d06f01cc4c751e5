"""How a command tells of several things that were to be done, of which some may have failed."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from typing import TypeVar

from odradek.apps.terminal.output import complain, emit
from odradek.apps.terminal.session import failure_text
from odradek.protocol.errors import KafkaError

ThingT = TypeVar("ThingT")


def report(
    options: argparse.Namespace,
    what: str,
    outcomes: Mapping[str, KafkaError | None],
    done: str,
    sentences: Mapping[str, str] | None = None,
) -> int:
    """Print what was done and complain of what was not; 1 if anything was not.

    `sentences` say more about some failures than the broker could.
    """
    failures = {
        name: (sentences or {}).get(name) or f"{what} {name}: {failure_text(failure)}."
        for name, failure in outcomes.items()
        if failure is not None
    }
    data = [
        {what: name, "done": failure is None, "error": failure.code.name if failure else None}
        | ({"message": failures[name]} if failure else {})
        for name, failure in outcomes.items()
    ]
    emit(options, data, [f"{what} {name} {done}." for name in outcomes if name not in failures])
    for sentence in failures.values():
        complain(sentence)
    return 1 if failures else 0


def told_by_brokers(answers: Mapping[int, Sequence[ThingT] | KafkaError], what: str) -> list[tuple[int, ThingT]]:
    """What the brokers tell that answer, each with its broker; a complaint about each broker that does not."""
    found: list[tuple[int, ThingT]] = []
    for broker, told in answers.items():
        if not isinstance(told, KafkaError):
            found += [(broker, each) for each in told]
        elif told.code.retriable:
            complain(f"broker {broker} does not answer: its {what} are left out.")
        else:
            raise told
    return found
