"""What one idempotent producer wrote to a partition stands there in the order it was written, and once.

Records are named `producer/number/…` with numbers that grow by producer and partition, whatever ids the broker gave.
"""

from __future__ import annotations

from odradek.sim.checkers.final import final_logs
from odradek.sim.history import History


def record_name(record: bytes) -> tuple[str, int]:
    producer, number, _ = record.split(b"/", 2)
    return producer.decode(), int(number)


def check(history: History) -> list[str]:
    broken = []
    for partition, log in final_logs(history).items():
        last: dict[str, int] = {}
        for offset in sorted(log):
            producer, number = record_name(log[offset])
            before = last.get(producer, -1)
            if number == before:
                broken.append(f"{partition}: record {number} of {producer} stands there twice, again at {offset}")
            elif number < before:
                broken.append(f"{partition}: record {number} of {producer} stands at {offset}, behind {before}")
            last[producer] = number
    return broken
