"""Members of groups: what all of them note in the history, and those of the classic protocol."""

from __future__ import annotations

import asyncio
import sys
from abc import abstractmethod
from collections.abc import Iterable, Mapping

from odradek.client import Consumer, TopicPartition
from odradek.client.errors import ClientError
from odradek.client.offsets import CommittedOffset
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.sim.client_process import ClientProcess
from odradek.sim.cluster import Cluster
from odradek.sim.history import NO_GENERATION, CommitAcknowledged, CommitSent, Departed, Owns, Partition
from odradek.sim.trace import OPERATION
from odradek.values import value

SESSION_TIMEOUT_MS = 3_000
HEARTBEAT_INTERVAL_MS = 500
REBALANCE_TIMEOUT_MS = 5_000


@value
class GroupPlan:
    """A group of the run."""

    name: str
    protocol: str
    """`classic`, `consumer`, or `mixed`: it passes from one to the other as its members come and go."""
    client_assignor: str
    server_assignor: str
    topics: tuple[str, ...]
    pace: float = 1.0
    """How many times as long as usual members rest between what they do."""
    records: int = sys.maxsize
    """How many a partition has: members that commit without having read stop there, since others begin again beyond."""


class Member(ClientProcess):
    """One life of one member; who comes back is another member, under the same instance id if it is static."""

    def __init__(self, cluster: Cluster, plan: GroupPlan, name: str, instance_id: str | None) -> None:
        super().__init__(cluster, name)
        self.plan = plan
        self.instance_id = instance_id
        self.owner = instance_id or name
        self.owned: tuple[Partition, ...] = ()
        self.generation_id = -1
        self._commits = 0

    def start(self) -> None:
        self.cluster.trace.note(self.name, f"joins {self.plan.name} as {self.owner}")
        super().start()

    @abstractmethod
    async def work(self) -> bool:
        """Be a member until told to leave; whether the group was told."""

    def gone(self, *, orderly: bool) -> None:
        self.cluster.history.add(Departed(self.plan.name, self.owner, self.name, orderly))
        super().gone(orderly=orderly)

    # What members note.

    def note_owned(self, partitions: Iterable[Partition], generation_id: int, *, lease_ms: int = 0) -> None:
        owned = tuple(sorted(partitions, key=str))
        if (owned, generation_id) != (self.owned, self.generation_id):
            text = ", ".join(map(str, owned)) or "nothing"
            self.cluster.trace.note(self.name, f"owns {text} in generation {generation_id}")
        self.owned, self.generation_id = owned, generation_id
        now_ms = self.cluster.clock.monotonic_ms()
        # A group that is empty when it changes its protocol begins to count anew.
        told_id = NO_GENERATION if self.plan.protocol == "mixed" else generation_id
        self.cluster.history.add(Owns(self.plan.name, self.owner, self.name, told_id, owned, now_ms, lease_ms))

    def note_commit(self, offsets: Mapping[Partition, int]) -> str:
        """The commit's name; to be called right before it is sent."""
        self._commits += 1
        name = f"{self.name}/{self._commits}"
        for partition, offset in offsets.items():
            self.cluster.history.add(CommitSent(self.plan.name, partition, offset, name))
        return name

    def note_acknowledged(self, partition: Partition, offset: int, name: str) -> None:
        self.cluster.trace.note(self.name, f"{partition} committed at {offset}")
        self.cluster.trace.mark(OPERATION)
        self.cluster.history.add(
            CommitAcknowledged(self.plan.name, self.name, self.generation_id, partition, offset, name)
        )


class ClassicMember(Member):
    """The client library's consumer: reads on, and commits what it has read."""

    def __init__(self, cluster: Cluster, plan: GroupPlan, name: str, instance_id: str | None) -> None:
        super().__init__(cluster, plan, name, instance_id)
        self._positions: dict[TopicPartition, int] = {}

    async def work(self) -> bool:
        consumer = Consumer(self.ports(), self._settings())
        consumer.subscribe(self.plan.topics, on_assigned=lambda _: self._assigned(consumer), on_revoked=self._revoked)
        while not self.is_leaving:
            stall_s, self.stall_s = self.stall_s, 0.0
            await asyncio.sleep(stall_s or self.draw.random() * 0.3 * self.plan.pace)
            try:
                records = await consumer.poll(300, max_records=self.draw.choice((1, 3, 10)))
            except KafkaError as fatal:
                if fatal.code is not ErrorCode.FENCED_INSTANCE_ID:
                    raise
                return False
            if records:
                self.cluster.trace.mark(OPERATION)
            self._positions.update((TopicPartition(each.topic, each.partition), each.offset + 1) for each in records)
            if self._positions and self.draw.random() < 0.5:
                await self._commit(consumer)
        await consumer.close()
        return self.instance_id is None

    def _settings(self) -> dict[str, str | int | bool]:
        settings: dict[str, str | int | bool] = {
            "bootstrap.servers": self.cluster.bootstrap_servers,
            "client.id": self.name,
            "group.id": self.plan.name,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "partition.assignment.strategy": self.plan.client_assignor,
            "session.timeout.ms": SESSION_TIMEOUT_MS,
            "heartbeat.interval.ms": int(HEARTBEAT_INTERVAL_MS * min(self.plan.pace, 2)),
            "max.poll.interval.ms": REBALANCE_TIMEOUT_MS,
            "default.api.timeout.ms": 10_000,
            "request.timeout.ms": 9_000,
        }
        if self.instance_id is not None:
            settings["group.instance.id"] = self.instance_id
        return settings

    def _assigned(self, consumer: Consumer) -> None:
        owned = [Partition(each.topic, each.partition) for each in consumer.assignment]
        self.note_owned(owned, consumer.group_membership().generation_id)

    def _revoked(self, partitions: list[TopicPartition]) -> None:
        """Whoever gets them next, be it this member, goes on where the group is and not where this member was."""
        for each in partitions:
            self._positions.pop(each, None)
        gone = [Partition(each.topic, each.partition) for each in partitions]
        self.note_owned([each for each in self.owned if each not in gone], self.generation_id)

    async def _commit(self, consumer: Consumer) -> None:
        positions = dict(self._positions)
        offsets = {Partition(each.topic, each.partition): offset for each, offset in positions.items()}
        name = self.note_commit(offsets)
        try:
            await consumer.commit({each: CommittedOffset(offset, -1, name) for each, offset in positions.items()})
        except (KafkaError, ClientError):
            return  # Thrown out, rebalancing, or the node is away: somebody reads it again.
        for partition, offset in offsets.items():
            self.note_acknowledged(partition, offset, name)
