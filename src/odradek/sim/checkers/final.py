"""What is in the logs at the end of a history."""

from __future__ import annotations

from odradek.sim.history import Bounds, History, Partition, Read


def final_logs(history: History) -> dict[Partition, dict[int, bytes]]:
    """Every partition's records by offset, as the last consumer found them."""
    logs: dict[Partition, dict[int, bytes]] = {}
    for event in history.events:
        if isinstance(event, Read) and event.final:
            log = logs.setdefault(event.partition, {})
            log.update(enumerate(event.records, event.offset))
    return logs


def final_starts(history: History) -> dict[Partition, int]:
    """Where every partition starts at the end: what lies before was allowed to go."""
    return {
        event.partition: event.log_start_offset for event in history.events if isinstance(event, Bounds) and event.final
    }


def was_deleted(partition: Partition, starts: dict[Partition, int]) -> bool:
    """Whether its topic, which is known by id, is not there in the end: then it owes nothing any more."""
    return partition.topic_id is not None and partition not in starts
