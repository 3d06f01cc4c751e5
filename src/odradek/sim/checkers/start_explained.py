"""A topic that is known by id starts at 0, or where somebody asked for it to start: not where its predecessor did.

DeleteRecords names a topic by name, so one that nobody has answered may have reached a successor.
"""

from __future__ import annotations

from odradek.sim.history import Bounds, History, ReplicaHolds, TrimAnswered, TrimSent


def check(history: History) -> list[str]:
    answered = {event.number for event in history.events if isinstance(event, TrimAnswered)}
    trims = [event for event in history.events if isinstance(event, TrimSent)]
    broken = []
    for event in history.events:
        if not isinstance(event, Bounds | ReplicaHolds) or event.partition.topic_id is None:
            continue
        partition = event.partition
        latest = max(
            (
                trim.before
                for trim in trims
                if trim.partition == partition
                or (
                    trim.number not in answered
                    and (trim.partition.topic, trim.partition.index) == (partition.topic, partition.index)
                )
            ),
            default=0,
        )
        if event.log_start_offset > latest:
            broken.append(f"{partition} starts at {event.log_start_offset}, asked for was {latest}")
    return broken
