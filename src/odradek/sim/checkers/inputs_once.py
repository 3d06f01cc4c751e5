"""Every record of the input is copied once: none is lost, and none is doubled."""

from __future__ import annotations

from odradek.sim.checkers.final import final_logs
from odradek.sim.checkers.transaction_outcomes import read_at_last
from odradek.sim.history import History, InputConsumed, Partition


def check(history: History) -> list[str]:
    copies: dict[tuple[int, int], int] = {}
    for records in read_at_last(history).values():
        for record in records:
            what = record.partition(b"|")[2].split()
            if what[0] == b"copy":
                source = int(what[1]), int(what[2])
                copies[source] = copies.get(source, 0) + 1
    logs = final_logs(history)
    broken = []
    for event in history.events:
        if isinstance(event, InputConsumed):
            broken += _judge(event.partition, event.offset, logs.get(event.partition, {}), copies)
    return broken


def _judge(partition: Partition, consumed: int, log: dict[int, bytes], copies: dict[tuple[int, int], int]) -> list[str]:
    end = max(log, default=-1) + 1
    broken = [f"{partition} ends at {end}, and was consumed up to {consumed}"] if log and consumed != end else []
    for offset in log:
        count = copies.get((partition.index, offset), 0)
        if count != 1:
            broken.append(f"{partition} at {offset} was copied {count} times")
    return broken
