"""No producer id is given twice, whoever asks which broker under which controller."""

from __future__ import annotations

from odradek.sim.history import History, ProducerIdGiven


def check(history: History) -> list[str]:
    given: dict[int, str] = {}
    broken = []
    for event in history.events:
        if isinstance(event, ProducerIdGiven):
            if event.producer_id in given:
                broken.append(
                    f"producer id {event.producer_id} was given to {given[event.producer_id]} and to {event.client}"
                )
            given[event.producer_id] = event.client
    return broken
