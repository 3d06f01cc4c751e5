"""A run of groups: members of both protocols come, go, crash, stall and return while the node crashes and restarts."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from odradek.client import Client
from odradek.client.admin import Admin
from odradek.client.admin.groups import GroupDescription
from odradek.client.errors import ClientError
from odradek.protocol.errors import KafkaError
from odradek.sim import brief_groups
from odradek.sim.brief_groups import BriefGroups
from odradek.sim.client_process import Ports
from odradek.sim.cluster import Cluster
from odradek.sim.consumer_group_member import ConsumerGroupMember
from odradek.sim.entropy import SimulatedEntropy
from odradek.sim.faults import Faults
from odradek.sim.group_member import (
    HEARTBEAT_INTERVAL_MS,
    REBALANCE_TIMEOUT_MS,
    SESSION_TIMEOUT_MS,
    ClassicMember,
    GroupPlan,
    Member,
)
from odradek.sim.history import (
    GROUPS,
    CommitAcknowledged,
    Departed,
    OffsetRead,
    Owns,
    Partition,
    PowerLost,
    ProcessCrashed,
    Restarted,
    Settled,
)
from odradek.sim.liars import STATES as LIES
from odradek.sim.liars import Liars
from odradek.sim.trace import OPERATION

STATES = (
    "classic group",
    "consumer group",
    "mixed group",
    "group changed its protocol",
    "rebalance by join",
    "rebalance by leave",
    "rebalance by session expiry",
    "static member came back",
    "coordinator reloaded",
    "member fenced by its successor",
    "member stalled",
    "process crash",
    "power loss",
    "crash inside a write",
    "clean restart",
    "connection cut",
    "disk full",
    *LIES,
    *brief_groups.STATES,
)
"""What a set of seeds must have met to prove anything about groups."""

TOPICS = {"orders": 4, "clicks": 3}
RECORDS = 200
CLASSIC_ASSIGNORS = ("range", "roundrobin", "cooperative-sticky")
CONSUMER_ASSIGNORS = ("uniform", "range")
MOST_MEMBERS = 4
LONGEST_PAUSE_S = 2.0
LIE_RATE = 0.5
"""Runs with one more group, whose members lie."""
QUIET_S = 40.0
"""How long a group may take to be stable when nothing goes wrong any more: sessions and rebalances that were under way
run into their timeouts first, one after the other at worst."""


def properties(*, power: bool) -> dict[str, str]:
    """What groups wait for, in seconds. Where power may be lost, all logs are synced before anything is answered."""
    return {
        "offsets.topic.num.partitions": "3",
        "group.initial.rebalance.delay.ms": "300",
        "group.min.session.timeout.ms": "1000",
        "group.consumer.min.session.timeout.ms": "1000",
        "group.consumer.session.timeout.ms": str(SESSION_TIMEOUT_MS),
        "group.consumer.min.heartbeat.interval.ms": "100",
        "group.consumer.heartbeat.interval.ms": str(HEARTBEAT_INTERVAL_MS),
    } | ({"log.flush.interval.messages": "1"} if power else {})


def durable_topics(*, power: bool) -> tuple[str, ...]:
    return (GROUPS.topic, *TOPICS) if power else ()


async def scenario(cluster: Cluster, *, power: bool) -> None:
    draw = cluster.draw("scenario")
    plans = [_plan(cluster, number) for number in range(draw.choice((1, 2, 3)))]
    await cluster.start()
    ports = Ports(cluster.client_network("admin"), cluster.clock, SimulatedEntropy(cluster.draw("admin entropy")))
    client = Client(ports, {"bootstrap.servers": cluster.bootstrap_servers})
    await _fill(client)
    crowds = [Crowd(cluster, plan, _partitions(plan.topics)) for plan in plans]
    async with client.admin({"default.api.timeout.ms": 10_000}) as admin:
        observing = asyncio.create_task(observe(cluster, admin, crowds))
        faults = Faults(cluster, draw.randrange(1, 5), power=power)
        liars = Liars(cluster, admin) if draw.random() < LIE_RATE else None
        lying = () if liars is None else (liars.run(),)
        brief = BriefGroups(cluster, admin, "orders", TOPICS["orders"])
        coming = [crowd.run(draw.randrange(6, 14)) for crowd in crowds]
        await asyncio.gather(faults.run(), brief.run(draw.randrange(5)), *coming, *lying)
        for crowd in crowds:
            await crowd.settle(admin)
        observing.cancel()
        await asyncio.gather(observing, return_exceptions=True)
        await asyncio.gather(*(crowd.empty() for crowd in crowds))
        if liars is not None:
            await liars.judge()
        await brief.judge()
        for crowd in crowds:
            await read_offsets(cluster, admin, crowd, patient=True)
    await cluster.stop()
    _mark_states(cluster)


def _plan(cluster: Cluster, number: int) -> GroupPlan:
    draw = cluster.draw(f"group {number}")
    protocol = draw.choice(("classic", "consumer", "mixed"))
    cluster.trace.mark(f"{protocol} group")
    topics = draw.choice((("orders",), ("clicks", "orders")))
    return GroupPlan(
        f"group-{number}",
        protocol,
        draw.choice(CLASSIC_ASSIGNORS),
        draw.choice(CONSUMER_ASSIGNORS),
        topics,
        records=RECORDS,
    )


def _partitions(topics: Sequence[str]) -> list[Partition]:
    return [Partition(topic, index) for topic in topics for index in range(TOPICS[topic])]


async def _fill(client: Client) -> None:
    """Something to read for those who do."""
    async with client.admin() as admin:
        for topic, partitions in TOPICS.items():
            await admin.create_topic(topic, partitions=partitions)
    async with client.producer({"linger.ms": 5}) as producer:
        for number in range(RECORDS):
            for topic, partitions in TOPICS.items():
                for index in range(partitions):
                    await producer.submit(topic, b"%d" % number, partition=index)


class Crowd:
    """All members of one group, and what happens to them."""

    def __init__(
        self, cluster: Cluster, plan: GroupPlan, partitions: Sequence[Partition], *, most_members: int = MOST_MEMBERS
    ) -> None:
        """`partitions` are all of the plan's topics."""
        self.plan = plan
        self.partitions = tuple(partitions)
        self._most_members = most_members
        self._cluster = cluster
        self._draw = cluster.draw(f"crowd {plan.name}")
        self._members: list[Member] = []
        self._all: list[Member] = []
        self._type: str | None = None
        self._kinds: tuple[tuple[int, Callable[[], None]], ...] = (
            (3, self._leave),
            (3, self._crash),
            (2, self._stall),
            (4, self._return),
            (4, self._join),
        )

    async def run(self, steps: int, *, longest_pause_s: float = LONGEST_PAUSE_S) -> None:
        """So many comings and goings."""
        self._join()
        weights = [weight for weight, _ in self._kinds]
        for _ in range(steps):
            await asyncio.sleep(self._draw.random() * longest_pause_s)
            self._forget_gone()
            ((_, happen),) = self._draw.choices(self._kinds, weights)
            if not self._members:
                happen = self._join
            happen()

    async def settle(self, admin: Admin) -> None:
        """Wait until the group is stable, and never empty, or for as long as that may take; note how it stands."""
        loop = self._cluster.loop
        began = loop.time()
        while True:
            await asyncio.sleep(0.5)
            self._forget_gone()
            if not self._members:
                self._join()
            state = await self._state(admin)
            found = Settled(
                self.plan.name,
                state,
                self.partitions,
                tuple((member.name, member.owned) for member in self._members),
                loop.time() - began,
            )
            owned = [partition for _, some in found.owned for partition in some]
            settled = state == "Stable" and sorted(map(str, owned)) == sorted(map(str, found.partitions))
            if settled or found.waited_s > QUIET_S:
                self._cluster.trace.note(self.plan.name, f"is {state} after {found.waited_s:.1f} s")
                self._cluster.history.add(found)
                return

    async def empty(self) -> None:
        """All leave; static members keep their places until their sessions end."""
        for member in self._members:
            member.is_leaving = True
        for member in self._all:
            await member.over.wait()

    async def _state(self, admin: Admin) -> str:
        """As the coordinator has it, which must know exactly those members that are there."""
        described = await self.describe(admin)
        if isinstance(described, str):
            return described
        if len(described.members) != len(self._members):
            return f"{described.state} with {len(described.members)} members for {len(self._members)}"
        return described.state

    async def describe(self, admin: Admin) -> GroupDescription | str:
        """The group as its coordinator sees it, or why that cannot be told."""
        try:
            described = (await admin.describe_groups([self.plan.name]))[self.plan.name]
        except ClientError as failure:
            return type(failure).__name__
        if isinstance(described, KafkaError):
            return described.code.name
        if self._type not in (None, described.type):
            self._cluster.trace.mark("group changed its protocol")
        self._type = described.type
        return described

    # What happens to members.

    def _join(self, instance_id: str | None = None) -> None:
        if len(self._members) >= self._most_members:
            return
        number = len(self._all)
        protocol = self.plan.protocol
        if protocol == "mixed":
            protocol = self._draw.choice(("classic", "consumer"))
        elif instance_id is None and self._draw.random() < 0.4:
            instance_id = f"{self.plan.name}-instance-{number}"
        kind = ClassicMember if protocol == "classic" else ConsumerGroupMember
        member = kind(self._cluster, self.plan, f"{self.plan.name}-m{number}", instance_id)
        self._members.append(member)
        self._all.append(member)
        member.start()

    def _leave(self) -> None:
        member = self._draw.choice(self._members)
        self._members.remove(member)
        member.is_leaving = True

    def _crash(self) -> None:
        member = self._draw.choice(self._members)
        self._members.remove(member)
        member.crash()

    def _stall(self) -> None:
        """For longer than a session or a poll may last, or not quite."""
        self._draw.choice(self._members).stall_s = self._draw.uniform(0.5, 1.5) * REBALANCE_TIMEOUT_MS / 1000
        self._cluster.trace.mark("member stalled")

    def _return(self) -> None:
        """A static member is started again: after it crashed, or while it still runs.

        In a classic group the newer one throws the older one out; in the other kind it has to wait until the older one
        has said that it goes for a while.
        """
        static = [member for member in self._members if member.instance_id is not None]
        if not static:
            self._join()
            return
        member = self._draw.choice(static)
        if self._draw.random() < 0.7:
            self._members.remove(member)
            member.crash()
        elif self.plan.protocol == "consumer":
            self._members.remove(member)
            member.is_leaving = True
        self._join(member.instance_id)

    def _forget_gone(self) -> None:
        self._members = [member for member in self._members if not member.over.is_set()]


async def observe(
    cluster: Cluster,
    admin: Admin,
    crowds: Sequence[Crowd],
    *,
    longest_pause_s: float = 1.0,
) -> None:
    """Look at groups and their offsets now and then, until cancelled."""
    draw = cluster.draw("observer")
    while True:
        await asyncio.sleep(draw.random() * longest_pause_s)
        crowd = draw.choice(crowds)
        await crowd.describe(admin)
        await read_offsets(cluster, admin, crowd, patient=False)


async def read_offsets(cluster: Cluster, admin: Admin, crowd: Crowd, *, patient: bool) -> None:
    """Note all offsets of a group; that it has none of a partition counts as well.

    A coordinator that was replaced and does not know it yet answers whoever is no member, as Kafka's does. What it
    tells was so at some time, and may be old; so where there is one when it is asked for, only that is judged.
    """
    group = crowd.plan.name
    while True:
        asked_at = 0 if cluster.has_deposed_coordinator() else len(cluster.history.events)
        try:
            held = await admin.group_offsets(group)
        except (KafkaError, ClientError):
            if not patient:
                return
            continue
        break
    cluster.trace.mark(OPERATION)
    found = {Partition(each.topic, each.partition): offset for each, offset in held.items()}
    for partition in crowd.partitions:
        offset = found.get(partition)
        if isinstance(offset, KafkaError):
            continue
        event = (
            OffsetRead(group, partition, -1, "", asked_at)
            if offset is None
            else OffsetRead(group, partition, offset.offset, offset.metadata, asked_at)
        )
        cluster.history.add(event)


def _mark_states(cluster: Cluster) -> None:
    """What became of groups, as their members saw it."""
    trace = cluster.trace
    holders: dict[tuple[str, Partition], tuple[str, str]] = {}
    gone: dict[str, str] = {}
    owns: dict[str, Owns] = {}
    lived_through: dict[str, bool] = {}
    for event in cluster.history.events:
        if isinstance(event, ProcessCrashed | PowerLost | Restarted):
            lived_through.update(dict.fromkeys(lived_through, True))
        elif isinstance(event, Departed):
            gone[event.member] = "leave" if event.orderly else "session expiry"
        elif isinstance(event, CommitAcknowledged):
            if lived_through.get(event.member) and owns[event.member].generation_id == event.generation_id:
                trace.mark("coordinator reloaded")
                lived_through[event.member] = False
        elif isinstance(event, Owns):
            before = owns.get(event.member)
            if before is None or before.generation_id != event.generation_id:
                lived_through[event.member] = False
            owns[event.member] = event
            for partition in event.partitions:
                owner, member = holders.get((event.group, partition), (event.owner, event.member))
                if owner != event.owner:
                    trace.mark(f"rebalance by {gone.get(member, 'join')}")
                elif member != event.member:
                    trace.mark("static member came back")
                    if member not in gone:
                        trace.mark("member fenced by its successor")
                holders[event.group, partition] = event.owner, event.member
