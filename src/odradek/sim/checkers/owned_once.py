"""No partition is owned by two members of a group in one generation, nor at once where members hold leases.

A generation (KIP-848: the epoch of a member) is known by its number, which a power loss may give out again unless the
groups' log is synced before anything is answered. A member of the classic protocol may take what it was assigned long
before, when it had no time to look; so only those with leases are held to the time. A lease is a heartbeat that was
answered when no replaced coordinator was there to answer it from memory: Kafka promises no more. Nor is an answer one
that comes when the session is over, as where the coordinator had to wait for its replicas.
"""

from __future__ import annotations

from odradek.sim.history import GROUPS, NO_GENERATION, Departed, History, Owns, Partition


def check(history: History) -> list[str]:
    owners: dict[tuple[str, int, Partition], str] = {}
    holding: dict[tuple[str, str], Owns] = {}
    broken = []
    for event in history.events:
        if history.may_lose(GROUPS, event):
            owners.clear()
            holding.clear()
        elif isinstance(event, Departed):
            holding.pop((event.group, event.owner), None)
        elif isinstance(event, Owns):
            for partition in event.partitions if event.generation_id != NO_GENERATION else ():
                owner = owners.setdefault((event.group, event.generation_id, partition), event.owner)
                if owner != event.owner:
                    broken.append(
                        f"{event.group}: {partition} is owned by {owner} and by {event.owner} "
                        f"in generation {event.generation_id}"
                    )
            broken += _held_by_others(event, holding)
            holding[event.group, event.owner] = event
    return broken


def _held_by_others(taken: Owns, holding: dict[tuple[str, str], Owns]) -> list[str]:
    return [
        f"{taken.group}: {taken.owner} took {partition} at {taken.at_ms} ms, "
        f"while {held.owner} holds it until {held.lease_ms} ms"
        for (group, owner), held in holding.items()
        if group == taken.group
        and owner != taken.owner
        and taken.lease_ms > taken.at_ms
        and held.lease_ms > taken.at_ms
        for partition in taken.partitions
        if partition in held.partitions
    ]
