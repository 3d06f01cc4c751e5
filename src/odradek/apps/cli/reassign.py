"""`odradek reassign`: partitions move to other brokers, by plans that kafka-reassign-partitions understands, too."""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import time
from collections.abc import Iterable, Mapping
from typing import Any

from odradek.apps.cli.outcomes import report
from odradek.apps.cli.reassign_plan import Plan, Racks, Throttled, parse_plan, plan_data, spread, throttled
from odradek.apps.cli.topic_description import known_topics
from odradek.apps.terminal.options import add_actions, add_many, add_remote_action, natural, positive, seconds
from odradek.apps.terminal.output import complain, emit, plural, table
from odradek.apps.terminal.sentence import Sentence
from odradek.apps.terminal.session import failure_text
from odradek.client.admin import Admin
from odradek.client.admin.cluster import ConfigChange, ConfigOperation, ConfigResource, ResourceType
from odradek.client.admin.reassignment import Reassignment
from odradek.client.cluster import TopicPartition
from odradek.protocol.errors import ErrorCode, KafkaError

LISTS = ("leader.replication.throttled.replicas", "follower.replication.throttled.replicas")
RATES = ("leader.replication.throttled.rate", "follower.replication.throttled.rate")
LOOK_AGAIN_S = 0.5


def declare(parser: argparse.ArgumentParser) -> None:
    actions = add_actions(
        parser, "Move partitions to other brokers: make a plan, execute it, and verify it until all is done."
    )
    planning = add_remote_action(
        actions,
        "plan",
        "make a plan that spreads topics over brokers",
        make_plan,
        "Make a plan that spreads topics evenly over brokers and their racks, and moves no more than that takes. "
        "Nothing is moved; `--format json` prints the plan for `odradek reassign execute`.",
    )
    add_many(planning, "topics", at_least=1, metavar="TOPIC")
    planning.add_argument("--brokers", metavar="IDS", help="the brokers to be on, as in 1,2,3 (default: all)")
    planning.add_argument("--replication-factor", type=positive, metavar="N", help="another number of replicas")
    executing = add_remote_action(
        actions,
        "execute",
        "let partitions move as a plan says",
        execute,
        "Let partitions move as a plan says. A throttle stays until `odradek reassign verify` finds all done.",
    )
    executing.add_argument(
        "--throttle", type=natural, metavar="BYTES", help="so many bytes a second at most, of each broker"
    )
    executing.add_argument(
        "--additional", action="store_true", help="although others move already; their throttle becomes the same"
    )
    executing.add_argument("--rollback", metavar="FILE", help="write a plan there that takes this one back")
    verifying = add_remote_action(
        actions,
        "verify",
        "say how far a plan is, by the exit code, too; when nothing moves any more, remove the throttle",
        verify,
    )
    verifying.add_argument("--wait", action="store_true", help="until all is done")
    verifying.add_argument("--timeout", type=seconds, metavar="SECONDS", help="wait for so long at most")
    cancelling = add_remote_action(
        actions, "cancel", "take back what of a plan is under way, and remove the throttle", cancel
    )
    for action in (executing, verifying, cancelling):
        action.add_argument("plan", metavar="PLAN", help="a file; `-` is standard input")
    for action in (verifying, cancelling):
        action.add_argument("--preserve-throttles", action="store_true", help="leave the throttle as it is")
    add_remote_action(actions, "list", "show the partitions that move", list_moves)


# --- Actions ----------------------------------------------------------------------------------------------------------


async def make_plan(admin: Admin, options: argparse.Namespace) -> int:
    current = await _current(admin, dict.fromkeys(options.topics))
    racks = _chosen(options.brokers, await _racks(admin))
    wanted = options.replication_factor or max(map(len, current.values()))
    if wanted > len(racks):
        raise Sentence(f"{plural(wanted, 'replica')} of a partition need as many brokers: there are {len(racks)}.")
    plan = spread(current, racks, replication_factor=options.replication_factor)
    rows = [
        (str(partition), list(current[partition]), list(plan[partition]))
        for partition in sorted(plan)
        if plan[partition] != current[partition]
    ]
    lines = table(("PARTITION", "REPLICAS", "PLANNED"), rows)
    emit(options, plan_data(plan), lines if rows else ["All is well spread: nothing would move."])
    return 0


async def execute(admin: Admin, options: argparse.Namespace) -> int:
    plan = _read(options.plan)
    current = await _current(admin, _topics(plan))
    # As for Kafka's tool, a broker that is registered and not there now may be moved to: it fetches when it comes back.
    live, registered = await _racks(admin), await _racks(admin, fenced=True)
    _check(plan, current, registered)
    under_way = await admin.list_reassignments()
    if under_way and not options.additional:
        raise Sentence(
            f"{plural(len(under_way), 'partition')} still {'moves' if len(under_way) == 1 else 'move'}: wait, cancel "
            "that, or add to it with --additional."
        )
    before = {partition: current[partition] for partition in plan}
    if options.rollback is not None:
        _write(options.rollback, before)
    if options.throttle is not None:
        await _throttle(admin, throttled(plan, before, under_way), options.throttle, live)
    outcomes = await admin.reassign_partitions(plan)
    code = report(options, "partition", {str(partition): failure for partition, failure in outcomes.items()}, "moves")
    if options.throttle is not None and options.format == "table":
        print("The throttle is in force until `odradek reassign verify` finds that all is done.")
    return code


async def verify(admin: Admin, options: argparse.Namespace) -> int:
    plan = _read(options.plan)
    deadline = None if options.timeout is None else time.monotonic() + options.timeout
    while True:
        current = await _remaining(admin, _topics(plan))
        under_way = await admin.list_reassignments()
        states = {partition: _state(partition, plan, current, under_way) for partition in sorted(plan)}
        moving = "moving" in states.values()
        late = deadline is not None and time.monotonic() >= deadline
        if not (options.wait and moving) or late:
            break
        await asyncio.sleep(LOOK_AGAIN_S)
    removes = not under_way and not options.preserve_throttles
    if removes:
        await _remove_throttles(admin, plan, current)
    data: dict[str, Any] = {
        "done": all(state == "done" for state in states.values()),
        "throttles_removed": removes,
        "partitions": [
            {
                "topic": partition.topic,
                "partition": partition.partition,
                "state": state,
                "replicas": list(current.get(partition, ())),
                "planned": list(plan[partition]),
            }
            for partition, state in states.items()
        ],
    }
    rows = [
        (f"{each['topic']}-{each['partition']}", each["state"], each["replicas"], each["planned"])
        for each in data["partitions"]
    ]
    lines = table(("PARTITION", "STATE", "REPLICAS", "PLANNED"), rows)
    emit(options, data, [*lines, *(["Throttles are removed."] if removes else [])])
    return 0 if data["done"] else 1


async def cancel(admin: Admin, options: argparse.Namespace) -> int:
    plan = _read(options.plan)
    under_way = await admin.list_reassignments()
    chosen = [partition for partition in sorted(plan) if partition in under_way]
    outcomes = await admin.reassign_partitions(dict.fromkeys(chosen)) if chosen else {}
    # Also where nothing moves: topics may have been deleted on their way, and brokers would keep the throttle for ever.
    removes = not options.preserve_throttles and not any(outcomes.values())
    if removes:
        await _remove_throttles(admin, plan, await _remaining(admin, _topics(plan)))
    if not chosen:
        emit(options, [], ["Nothing of that plan is under way.", *(["Throttles are removed."] if removes else [])])
        return 0
    stays = {str(partition): failure for partition, failure in outcomes.items()}
    return report(options, "partition", stays, "stays where it was")


async def list_moves(admin: Admin, options: argparse.Namespace) -> int:
    under_way = await admin.list_reassignments()
    data = [
        {
            "topic": partition.topic,
            "partition": partition.partition,
            "replicas": list(move.replicas),
            "adding": list(move.adding),
            "removing": list(move.removing),
        }
        for partition, move in sorted(under_way.items())
    ]
    rows = [
        (f"{each['topic']}-{each['partition']}", each["replicas"], each["adding"], each["removing"]) for each in data
    ]
    lines = table(("PARTITION", "REPLICAS", "ADDING", "REMOVING"), rows)
    emit(options, data, lines if data else ["No partition moves."])
    return 0


# --- Plans and what they are about ------------------------------------------------------------------------------------


def _read(file: str) -> Plan:
    try:
        if file == "-":
            return parse_plan(sys.stdin.read(), "standard input")
        with open(file, encoding="utf-8") as opened:
            return parse_plan(opened.read(), file)
    except OSError as wrong:
        raise Sentence(f"cannot read {file}: {(wrong.strerror or str(wrong)).lower()}.") from wrong
    except UnicodeDecodeError as wrong:
        raise Sentence(f"cannot read {file}: it is not a text in UTF-8.") from wrong


def _write(file: str, plan: Plan) -> None:
    try:
        with open(file, "x", encoding="utf-8") as opened:
            json.dump(plan_data(plan), opened, indent=2)
    except OSError as wrong:
        raise Sentence(f"cannot write {file}: {(wrong.strerror or str(wrong)).lower()}.") from wrong


async def _current(admin: Admin, topics: Iterable[str]) -> Plan:
    return {
        TopicPartition(topic.name, each.partition): each.replicas
        for topic in await known_topics(admin, list(topics))
        for each in topic.partitions
    }


async def _remaining(admin: Admin, topics: Iterable[str]) -> Plan:
    """As `_current`, without topics that are gone."""
    remaining: Plan = {}
    for topic in (await admin.describe_topics(list(topics))).values():
        if not isinstance(topic, KafkaError):
            remaining |= {TopicPartition(topic.name, each.partition): each.replicas for each in topic.partitions}
        elif topic.code not in (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.INVALID_TOPIC_EXCEPTION):
            raise topic
    return remaining


def _topics(plan: Plan) -> dict[str, None]:
    return {partition.topic: None for partition in plan}


async def _racks(admin: Admin, *, fenced: bool = False) -> dict[int, str | None]:
    """The brokers that are there, each with its rack; with those that are registered and do not answer, if so asked."""
    described = await admin.describe_cluster(fenced=fenced)
    return {broker.broker_id: broker.rack for broker in described.brokers}


def _chosen(given: str | None, racks: Racks) -> Racks:
    if given is None:
        return racks
    try:
        ids = [natural(each.strip()) for each in given.split(",")]
    except argparse.ArgumentTypeError:
        raise Sentence(f"--brokers takes broker ids as in 1,2,3, not {given!r}.", 2) from None
    _check_brokers(ids, racks)
    return {each: racks[each] for each in ids}


def _check(plan: Plan, current: Plan, racks: Racks) -> None:
    """A Sentence about the first partition or broker of a plan that is not there."""
    for partition, replicas in plan.items():
        if partition not in current:
            raise Sentence(f"there is no partition {partition}.")
        _check_brokers(replicas, racks)


def _check_brokers(ids: Iterable[int], racks: Racks) -> None:
    for each in ids:
        if each not in racks:
            raise Sentence(f"there is no broker {each}; there are {', '.join(map(str, sorted(racks)))}.")


def _state(
    partition: TopicPartition, plan: Plan, current: Plan, under_way: Mapping[TopicPartition, Reassignment]
) -> str:
    if partition in under_way:
        return "moving"
    if partition not in current:
        return "gone"
    return "done" if current[partition] == plan[partition] else "elsewhere"


# --- Throttles --------------------------------------------------------------------------------------------------------


async def _throttle(admin: Admin, wanted: Throttled, rate: int, live: Racks) -> None:
    changes: dict[ConfigResource, list[ConfigChange]] = {}
    for key, lists in zip(LISTS, (wanted.leaders, wanted.followers), strict=True):
        for topic, replicas in lists.items():
            changes.setdefault(ConfigResource(ResourceType.TOPIC, topic), []).append(ConfigChange(key, replicas))
    away = [broker for broker in wanted.brokers if broker not in live]
    if away:
        # A broker alone takes settings of its own. What leaders send it is throttled all the same.
        complain(f"broker {', '.join(map(str, away))} is not there and gets no throttle; those that send to it do.")
    for broker in wanted.brokers:
        if broker in away:
            continue
        resource = ConfigResource(ResourceType.BROKER, str(broker))
        changes[resource] = [ConfigChange(key, str(rate)) for key in RATES]
    for failure in (await admin.alter_configs(changes)).values():
        if failure is not None:
            raise failure


async def _remove_throttles(admin: Admin, plan: Plan, current: Plan) -> None:
    """From all brokers that are there, and from the plan's topics as far as there are any left."""
    brokers = await _racks(admin)
    changes = {
        ConfigResource(ResourceType.TOPIC, topic): [ConfigChange(key, None, ConfigOperation.DELETE) for key in LISTS]
        for topic in _topics(current)
    }
    for broker in sorted(brokers):
        resource = ConfigResource(ResourceType.BROKER, str(broker))
        changes[resource] = [ConfigChange(key, None, ConfigOperation.DELETE) for key in RATES]
    for resource, failure in (await admin.alter_configs(changes)).items():
        if failure is not None:
            complain(f"the throttle of {resource.name} is not removed: {failure_text(failure)}.")
    missing = sorted({each for replicas in plan.values() for each in replicas if each not in brokers})
    if missing:
        complain(f"broker {', '.join(map(str, missing))} is not there: its throttle stays, if it has one.")
