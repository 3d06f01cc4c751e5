"""A metadata change that was answered is in every later image.

Later are the images of at least the offset that anyone had committed when the answer came: the change cannot lie behind
it. There the fact must be what the change made it, or what a later change of it did, or one whose outcome nobody knows:
a request that was given up may still lie in somebody's buffer and be carried out at any time.
"""

from __future__ import annotations

from bisect import bisect_left

from odradek.sim import facts
from odradek.sim.history import ChangeAnswered, ChangeSent, Committed, Fact, History


class _Change:
    """One change: its place among those of the same fact, and from which offset on it must be seen."""

    def __init__(self, sent: ChangeSent) -> None:
        self.sent = sent
        self.seen_from: int | None = None
        """None while nobody was told that it is done."""


def check(history: History) -> list[str]:
    changes: dict[tuple[str, int], _Change] = {}
    by_fact: dict[Fact, list[_Change]] = {}
    images: dict[tuple[int, int], list[Committed]] = {}
    highest = -1
    for event in history.events:
        if isinstance(event, Committed):
            highest = max(highest, event.image.provenance.offset)
            images.setdefault((event.node_id, event.life), []).append(event)
        elif isinstance(event, ChangeSent):
            change = changes[event.client, event.number] = _Change(event)
            by_fact.setdefault(event.fact, []).append(change)
        elif isinstance(event, ChangeAnswered):
            changes[event.client, event.number].seen_from = highest
    return [
        broken
        for fact, of_fact in by_fact.items()
        for index, change in enumerate(of_fact)
        if change.seen_from is not None
        for broken in _judge(fact, change, _allowed(of_fact, index), images)
    ]


def _allowed(of_fact: list[_Change], index: int) -> list[str | None]:
    """What an image may say of the fact once this change was answered."""
    unknown = [change.sent.wanted for change in of_fact[:index] if change.seen_from is None]
    return [*unknown, *(change.sent.wanted for change in of_fact[index:])]


def _judge(
    fact: Fact, change: _Change, allowed: list[str | None], images: dict[tuple[int, int], list[Committed]]
) -> list[str]:
    """Look at the first image of each life that is late enough, and at its last."""
    assert change.seen_from is not None
    broken = []
    for (node_id, _), events in images.items():
        first = bisect_left(events, change.seen_from, key=lambda event: event.image.provenance.offset)
        for event in (*events[first : first + 1], *events[max(first + 1, len(events) - 1) :]):
            found = facts.find(event.image, fact)
            if found not in allowed:
                broken.append(
                    f"{change.sent.client} was told that {fact} is {change.sent.wanted}, "
                    f"and it is {found} on node {node_id} at offset {event.image.provenance.offset}"
                )
    return broken
