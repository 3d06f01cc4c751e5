"""Who reads only what is committed sees nothing of a transaction before its commit, and nothing that was aborted.

Nor does what he has seen change: each offset shows the same record to all, and in the end it is there.
"""

from __future__ import annotations

from odradek.sim.checkers.transaction_outcomes import name_of, outcomes
from odradek.sim.history import CommittedRead, History, LogHeld, Partition


def check(history: History) -> list[str]:
    known = outcomes(history)
    starts = {event.partition: event.log_start_offset for event in history.events if isinstance(event, LogHeld)}
    at_last: dict[tuple[Partition, int], bytes] = {}
    for event in history.events:
        if isinstance(event, CommittedRead) and event.final:
            at_last.update({(event.partition, offset): record for offset, record in event.records})
    broken = []
    for index, event in enumerate(history.events):
        if not isinstance(event, CommittedRead):
            continue
        for offset, record in event.records:
            told = f"{event.consumer} read {record[:48]!r} at {offset} of {event.partition}"
            outcome = known.get(name_of(record))
            if outcome is None:
                broken.append(f"{told}, which nobody wrote in a transaction")
            elif outcome.committed is False:
                broken.append(f"{told}, whose transaction was aborted")
            elif outcome.commit_asked_at is None or outcome.commit_asked_at > index:
                broken.append(f"{told}, whose transaction nobody had asked to commit by then")
            elif offset >= starts[event.partition] and at_last.get((event.partition, offset)) != record:
                broken.append(f"{told}, where in the end there is {at_last.get((event.partition, offset), b'')[:48]!r}")
    return broken
