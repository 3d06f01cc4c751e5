"""Where partitions shall be: plans as kafka-reassign-partitions reads and writes them, and new ones made."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeAlias

from odradek.apps.terminal.sentence import Sentence
from odradek.client.admin.reassignment import Reassignment
from odradek.client.cluster import TopicPartition
from odradek.values import value

Plan: TypeAlias = dict[TopicPartition, tuple[int, ...]]
"""The brokers of each partition, the preferred leader first."""

Racks: TypeAlias = Mapping[int, str | None]


# --- As text ----------------------------------------------------------------------------------------------------------


def parse_plan(text: str, name: str) -> Plan:
    """Read `{"version": 1, "partitions": [{"topic": …, "partition": …, "replicas": […]}]}`, or say what is wrong."""
    try:
        held = json.loads(text)
    except ValueError as wrong:
        raise Sentence(f"{name} is no plan: it is not JSON ({wrong}).", 2) from None
    entries = held.get("partitions") if isinstance(held, dict) else None
    if not isinstance(entries, list) or not entries:
        raise Sentence(f'{name} is no plan: it has no list of "partitions".', 2)
    if held.get("version", 1) != 1:
        raise Sentence(f"{name} is a plan of version {held['version']}; only version 1 is known.", 2)
    plan: Plan = {}
    for entry in entries:
        partition, replicas = _entry(entry, name)
        if partition in plan:
            raise Sentence(f"{name} names {partition} twice.", 2)
        plan[partition] = replicas
    return plan


def _entry(entry: Any, name: str) -> tuple[TopicPartition, tuple[int, ...]]:
    match entry:
        case {"topic": str(topic), "partition": int(index), "replicas": [*replicas]} if (
            type(index) is int and index >= 0 and replicas and all(type(each) is int and each >= 0 for each in replicas)
        ):
            if len(set(replicas)) < len(replicas):
                raise Sentence(f"{name} has a broker twice among the replicas of {topic}-{index}.", 2)
            _no_directories(entry, f"{topic}-{index}")
            return TopicPartition(topic, index), tuple(replicas)
    raise Sentence(f'{name} is no plan: each partition has a "topic", a "partition" and "replicas".', 2)


def _no_directories(entry: Mapping[str, Any], partition: str) -> None:
    directories = entry.get("log_dirs", [])
    if any(directory != "any" for directory in directories):
        raise Sentence(f"log_dirs of {partition} must be any: partitions are not moved between directories yet.", 2)


def plan_data(plan: Plan) -> dict[str, Any]:
    """A plan as it is written."""
    partitions = [
        {"topic": partition.topic, "partition": partition.partition, "replicas": list(replicas)}
        for partition, replicas in sorted(plan.items())
    ]
    return {"version": 1, "partitions": partitions}


# --- Made anew --------------------------------------------------------------------------------------------------------


def spread(current: Plan, racks: Racks, *, replication_factor: int | None = None) -> Plan:
    """Let partitions be on these brokers alone, evenly, in as many racks as can be, and move as little as that takes.

    A replica that may stay stays in its place, so the preferred leader does, too, unless some broker would lead much
    more than others.
    """
    counts = dict.fromkeys(sorted(racks), 0)
    plan: Plan = {}
    for partition, replicas in current.items():
        wanted = replication_factor or len(replicas)
        kept = [each if each in counts else None for each in replicas]
        while len(kept) > wanted:
            kept.pop(kept.index(None) if None in kept else -1)
        plan[partition] = tuple(each for each in kept if each is not None)
        for each in plan[partition]:
            counts[each] += 1
    for partition, replicas in current.items():
        plan[partition] = _filled(
            plan[partition], replicas, replication_factor or len(replicas), counts=counts, racks=racks
        )
    _even_out(plan, counts, racks)
    _even_out_leaders(plan, counts)
    return plan


def _filled(
    kept: tuple[int, ...], before: tuple[int, ...], wanted: int, *, counts: dict[int, int], racks: Racks
) -> tuple[int, ...]:
    """With as many replicas as wanted, each newcomer in the place of one that goes, as far as there are such."""
    newcomers: list[int] = []
    for _ in range(wanted - len(kept)):
        here = (*kept, *newcomers)
        used = [racks[each] for each in here]
        chosen = min(
            (each for each in counts if each not in here), key=lambda each: (racks[each] in used, counts[each], each)
        )
        counts[chosen] += 1
        newcomers.append(chosen)
    filled: list[int] = []
    for each in before:
        if each in kept:
            filled.append(each)
        elif newcomers:
            filled.append(newcomers.pop(0))
    return (*filled, *newcomers)


def _even_out(plan: Plan, counts: dict[int, int], racks: Racks) -> None:
    """Move replicas from brokers with many to brokers with few; every move makes it evener, so it ends."""
    moved = True
    while moved:
        moved = False
        for partition in plan:
            for place, heavy in enumerate(plan[partition]):
                replicas = plan[partition]
                others = [racks[each] for each in replicas if each != heavy]
                alone = racks[heavy] not in others
                light = min(
                    (each for each in counts if each not in replicas and (not alone or racks[each] not in others)),
                    key=lambda each: (counts[each], each),
                    default=heavy,
                )
                if counts[heavy] - counts[light] > 1:
                    plan[partition] = (*replicas[:place], light, *replicas[place + 1 :])
                    counts[heavy] -= 1
                    counts[light] += 1
                    moved = True


def _even_out_leaders(plan: Plan, counts: Iterable[int]) -> None:
    """Let others of a partition's replicas be preferred where one broker is much more often than another."""
    leads = dict.fromkeys(counts, 0)
    for replicas in plan.values():
        leads[replicas[0]] += 1
    moved = True
    while moved:
        moved = False
        for partition, replicas in plan.items():
            place = min(range(len(replicas)), key=lambda each: (leads[replicas[each]], each))
            if leads[replicas[0]] - leads[replicas[place]] > 1:
                leads[replicas[0]] -= 1
                leads[replicas[place]] += 1
                rest = list(replicas)
                rest[0], rest[place] = rest[place], rest[0]
                plan[partition] = tuple(rest)
                moved = True


# --- Throttled --------------------------------------------------------------------------------------------------------


@value
class Throttled:
    """What a move under a throttle sets: lists of replicas by topic, and rates of brokers."""

    leaders: dict[str, str]
    followers: dict[str, str]
    brokers: tuple[int, ...]


def throttled(plan: Plan, current: Plan, under_way: Mapping[TopicPartition, Reassignment]) -> Throttled:
    """As kafka-reassign-partitions has it: all that may send are throttled as leaders, all that are new as followers.

    What is under way already is throttled as well, or the lists of a topic would lose it.
    """
    moves: dict[TopicPartition, tuple[list[int], list[int]]] = {}
    for partition, move in under_way.items():
        moves[partition] = ([each for each in move.replicas if each not in move.adding], list(move.adding))
    for partition, replicas in plan.items():
        sources = moves[partition][0] if partition in moves else list(current[partition])
        moves[partition] = (sources, [each for each in replicas if each not in sources])
    brokers = {each: None for sources, destinations in moves.values() for each in (*sources, *destinations)}
    return Throttled(
        _by_topic({partition: sources for partition, (sources, _) in moves.items()}),
        _by_topic({partition: destinations for partition, (_, destinations) in moves.items()}),
        tuple(sorted(brokers)),
    )


def _by_topic(replicas: Mapping[TopicPartition, Sequence[int]]) -> dict[str, str]:
    listed: dict[str, list[str]] = {}
    for partition, brokers in sorted(replicas.items()):
        listed.setdefault(partition.topic, []).extend(f"{partition.partition}:{broker}" for broker in sorted(brokers))
    return {topic: ",".join(pairs) for topic, pairs in listed.items()}
