"""An operator at work: topics are made, trimmed, moved, changed, deleted and made anew under the same name.

The operator asks as any client does and believes nothing: what became of its steps is seen in the newest image. Each
topic that is seen there has clients of its own, who know it by its id and go when it goes.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from odradek.client import Client as LibraryClient
from odradek.client.admin import Admin
from odradek.client.admin.cluster import ConfigChange, ConfigResource, ResourceType, UpgradeType
from odradek.client.admin.topics import Election
from odradek.client.cluster import TopicPartition
from odradek.client.errors import ClientError
from odradek.ids import NO_NODE, uuid_text
from odradek.metadata.features import ELIGIBLE_LEADER_REPLICAS
from odradek.metadata.image.topics import PartitionRegistration, TopicImage
from odradek.protocol.errors import KafkaError
from odradek.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)
from odradek.protocol.messages.produce import ProduceResponse
from odradek.sim.history import GROUPS, Partition, TrimAnswered, TrimSent
from odradek.sim.producer import Batch
from odradek.sim.replication_clients import LastReader, LeaderConsumer, LeaderProducer
from odradek.sim.replication_cluster import ReplicationCluster
from odradek.sim.replication_faults import ReplicationFaults
from odradek.sim.workload import BY_TOPIC_ID

STATES = (
    "node struck beside an operator",
    "operator created a topic",
    "operator deleted a topic",
    "operator recreated a topic",
    "operator added partitions",
    "operator trimmed",
    "operator moved a partition",
    "operator redirected a move",
    "operator cancelled a move",
    "operator moved to the same brokers",
    "operator moved to a dead broker",
    "operator held an election",
    "operator changed min.insync.replicas",
    "operator changed unclean elections",
    "operator moved to one replica",
    "operator moved to four replicas",
    "operator passed on a coordinator",
    "operator turned the ELR off",
    "operator turned the ELR on",
)
NAMES = ("operated-0", "operated-1")
MOST_PARTITIONS = 3
SETTINGS = {
    "default.api.timeout.ms": 5_000,
    "request.timeout.ms": 3_000,
    "socket.connection.setup.timeout.ms": 1_000,
    "reconnect.backoff.max.ms": 500,
}
MANY = 1_000_000
TRIMS = 0.08
LOOK_EVERY_S = 0.2
COUNTS = {1: "one replica", 4: "four replicas"}
LONGEST_PAUSES_S = (0.0, 0.3, 3.0)
STRIKES = 0.2


class OperatedProducer(LeaderProducer):
    """Writes to one partition of one topic id, and now and then has old records of it deleted."""

    def __init__(self, cluster: ReplicationCluster, partition: Partition) -> None:
        assert partition.topic_id is not None
        super().__init__(cluster, f"to-{_name(partition)}", MANY, partitions=[partition])
        self._version = BY_TOPIC_ID
        self.topic_ids = {partition.topic: partition.topic_id}
        self._acknowledged = 0

    def _hear(self, batches: Sequence[Batch], response: ProduceResponse) -> None:
        super()._hear(batches, response)
        answer = response.responses[0].partition_responses[0]
        self._acknowledged = max(self._acknowledged, answer.base_offset + len(batches[0].records))
        if self.draw.random() < TRIMS:
            self._trim(self.draw.randrange(self._acknowledged + 1))

    def _trim(self, before: int) -> None:
        history, number = self.cluster.history, len(self.cluster.history.events)
        history.add(TrimSent(self.wanted, number, before))
        asked = DeleteRecordsPartition(partition_index=self.wanted.index, offset=before)
        topic = DeleteRecordsTopic(name=self.wanted.topic, partitions=[asked])
        answer = self.ask_soon(DeleteRecordsRequest(topics=[topic], timeout_ms=5_000), DeleteRecordsResponse, 2)

        def note(heard: asyncio.Future[DeleteRecordsResponse]) -> None:
            if heard.cancelled() or heard.exception() is not None:
                return
            history.add(TrimAnswered(number))
            if not heard.result().topics[0].partitions[0].error_code:
                self.cluster.trace.mark("operator trimmed")

        answer.add_done_callback(note)


class OperatedConsumer(LeaderConsumer):
    """Reads one partition of one topic id."""

    def __init__(self, cluster: ReplicationCluster, partition: Partition) -> None:
        assert partition.topic_id is not None
        super().__init__(cluster, f"of-{_name(partition)}", partitions=[partition])
        self._version = BY_TOPIC_ID
        self.topic_ids = {partition.topic: partition.topic_id}

    async def _consume(self) -> None:
        """Whoever is out of range begins again: bounds are asked for by name, and may be another topic's."""
        self._offsets = {
            partition: offset if self.draw.random() < 0.9 else 0 for partition, offset in self._offsets.items()
        }
        await super()._consume()


class OperatedTopics:
    """Clients for each topic of an operator, for as long as it is there."""

    def __init__(self, cluster: ReplicationCluster) -> None:
        self._cluster = cluster
        self._clients: dict[Partition, tuple[OperatedProducer, list[asyncio.Task[None]]]] = {}

    async def run(self) -> None:
        while True:
            there = self.partitions()
            for partition in [each for each in self._clients if each not in there]:
                await self._end(partition)
            for partition in there:
                if partition not in self._clients:
                    producer = OperatedProducer(self._cluster, partition)
                    consumer = OperatedConsumer(self._cluster, partition)
                    tasks = [asyncio.create_task(producer.run()), asyncio.create_task(consumer.run())]
                    self._clients[partition] = producer, tasks
            await asyncio.sleep(LOOK_EVERY_S)

    async def finish(self) -> None:
        """What is under way is brought to its end."""
        for producer, _ in self._clients.values():
            producer.finish()
        for partition, (_, tasks) in list(self._clients.items()):
            await tasks[0]
            await self._end(partition)

    async def _end(self, partition: Partition) -> None:
        _, tasks = self._clients.pop(partition)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def partitions(self) -> dict[Partition, PartitionRegistration]:
        """As the newest image has them."""
        image = self._cluster.image
        topics = [] if image is None else [image.topics.by_name.get(name) for name in NAMES]
        return {
            Partition(topic.name, index, topic.topic_id): registration
            for topic in topics
            if topic is not None
            for index, registration in enumerate(topic.partitions)
        }

    def unsettled(self) -> list[str]:
        """What is not as it should be in the end: no leader, a move that does not end, somebody not in sync."""
        found = []
        for partition, agreed in self.partitions().items():
            replicas = [
                (machine, hosted)
                for machine, hosted in self._cluster.hosted(partition)
                if hosted.topic_id == partition.topic_id
            ]
            ends = {hosted.partition.log.log_end_offset for _, hosted in replicas}
            led = [hosted.partition.log.high_watermark for _, hosted in replicas if hosted.partition.is_leader]
            if (
                agreed.leader < 0
                or agreed.adding_replicas
                or agreed.removing_replicas
                or set(agreed.isr) != set(agreed.replicas)
                or len(replicas) != len(agreed.replicas)
                or len(ends) != 1
                or led != list(ends)
            ):
                found.append(f"{partition}: {agreed}, ends {sorted(ends)}, watermark {led}")
        return found

    async def read(self) -> None:
        for partition in self.partitions():
            assert partition.topic_id is not None
            reader = LastReader(self._cluster, partitions=[partition])
            reader.topic_ids = {partition.topic: partition.topic_id}
            reader._version = BY_TOPIC_ID
            await reader.run()


class Operator:
    """One operator, who changes a topic or two, step by step."""

    def __init__(
        self, cluster: ReplicationCluster, client: LibraryClient, faults: ReplicationFaults, *, may_lose_power: bool
    ) -> None:
        self._cluster = cluster
        self._client = client
        self._faults = faults
        self._trace = cluster.trace
        self._draw = cluster.draw("operator")
        self._brokers = [member.node_id for member in cluster.members.values() if member.is_broker]
        self._names = NAMES[: self._draw.choice((1, 1, 2))]
        self._kinds: list[tuple[int, Callable[[Admin, TopicImage], Awaitable[None]]]] = [
            (3, self._recreate),
            (1, self._delete),
            (1, self._add_partitions),
            (5, self._move),
            (3, self._redirect),
            (1, self._cancel),
            (1, self._elect),
            (4, self._set_min_insync),
            (1, self._set_unclean),
            (4, self._pass_on_coordinator),
        ]
        if not may_lose_power:
            # Without the ELR a loss of power may take what all topics of the run promise to keep.
            self._kinds.append((2, self._switch_elr))

    async def run(self, steps: int) -> None:
        longest_pause_s = self._draw.choice(LONGEST_PAUSES_S)
        async with self._client.admin(SETTINGS) as admin:
            for _ in range(steps):
                await asyncio.sleep(self._draw.random() * longest_pause_s + (self._draw.random() < 0.3) * 3)
                strike = None
                if self._draw.random() < STRIKES:
                    self._trace.mark("node struck beside an operator")
                    strike = asyncio.create_task(self._faults.strike_between())
                await self._step(admin)
                if strike is not None:
                    await strike

    async def settle(self, topics: OperatedTopics, *, patience_s: float) -> None:
        """Wait until all is as it should be."""
        began = self._cluster.loop.time()
        while topics.unsettled():
            await asyncio.sleep(0.2)
            if self._cluster.loop.time() - began > patience_s:
                told = topics.unsettled()
                self._cluster.loop.failures.append(f"operated topics are not whole after {patience_s:.0f} s: {told}")
                return

    async def _step(self, admin: Admin) -> None:
        name = self._draw.choice(self._names)
        topic = self._topic(name)
        ((_, kind),) = self._draw.choices(self._kinds, [weight for weight, _ in self._kinds])
        try:
            if topic is None:
                await self._create(admin, name)
            else:
                await kind(admin, topic)
        except (ClientError, KafkaError) as failure:
            self._trace.note("operator", f"gives up: {failure!r}")

    def _topic(self, name: str) -> TopicImage | None:
        image = self._cluster.image
        return None if image is None else image.topics.by_name.get(name)

    # Topics come and go.

    async def _create(self, admin: Admin, name: str) -> None:
        replicas = self._draw.choice((1, 2, 2, 3, 3))
        configs = {
            "min.insync.replicas": self._draw.choice("122"),
            "unclean.leader.election.enable": self._draw.choice(("true", "false", "false", "false")),
        }
        partitions = self._draw.randrange(1, MOST_PARTITIONS)
        self._note(f"creates {name} with {partitions} partitions, {replicas} replicas, {configs}")
        await admin.create_topic(name, partitions=partitions, replication_factor=replicas, configs=configs)
        self._trace.mark("operator created a topic")

    async def _delete(self, admin: Admin, topic: TopicImage) -> None:
        self._note(f"deletes {topic.name} {uuid_text(topic.topic_id)}")
        _raise(await admin.delete_topics([topic.name]))
        self._trace.mark("operator deleted a topic")

    async def _recreate(self, admin: Admin, topic: TopicImage) -> None:
        await self._delete(admin, topic)
        await self._create(admin, topic.name)
        self._trace.mark("operator recreated a topic")

    async def _add_partitions(self, admin: Admin, topic: TopicImage) -> None:
        if len(topic.partitions) < MOST_PARTITIONS:
            _raise(await admin.create_partitions({topic.name: len(topic.partitions) + 1}))
            self._trace.mark("operator added partitions")

    # Partitions move.

    async def _move(self, admin: Admin, topic: TopicImage) -> None:
        index = self._draw.randrange(len(topic.partitions))
        old = topic.partitions[index]
        targets = self._draw.sample(self._brokers, self._draw.randrange(1, len(self._brokers) + 1))
        if self._draw.random() < 0.1:
            targets = list(old.replicas)
        self._note(f"moves {topic.name}-{index} from {old.replicas} to {targets}")
        _raise(await admin.reassign_partitions({TopicPartition(topic.name, index): targets}))
        self._trace.mark("operator moved a partition")
        if old.adding_replicas or old.removing_replicas:
            self._trace.mark("operator redirected a move")
        if len(targets) in COUNTS:
            self._trace.mark(f"operator moved to {COUNTS[len(targets)]}")
        if targets == list(old.replicas):
            self._trace.mark("operator moved to the same brokers")
        if any(not self._cluster.node_named(broker).is_up for broker in targets):
            self._trace.mark("operator moved to a dead broker")

    async def _redirect(self, admin: Admin, topic: TopicImage) -> None:
        """Two moves at once: the first is hardly over when the second comes."""
        await self._move(admin, topic)
        await asyncio.sleep(self._draw.random() ** 2 * 0.5)
        moved = self._topic(topic.name)
        if moved is not None:
            await self._move(admin, moved)

    async def _cancel(self, admin: Admin, topic: TopicImage) -> None:
        await self._move(admin, topic)
        partitions = [TopicPartition(topic.name, index) for index in range(len(topic.partitions))]
        outcomes = await admin.reassign_partitions(dict.fromkeys(partitions))
        if any(failure is None for failure in outcomes.values()):
            self._trace.mark("operator cancelled a move")

    async def _elect(self, admin: Admin, topic: TopicImage) -> None:
        partitions = [TopicPartition(topic.name, index) for index in range(len(topic.partitions))]
        await admin.elect_leaders(Election.PREFERRED, partitions)
        self._trace.mark("operator held an election")

    async def _pass_on_coordinator(self, admin: Admin, topic: TopicImage) -> None:
        """The groups' coordinator goes from one broker to another and perhaps back, sooner than it has loaded."""
        await pass_on(self._cluster, admin, GROUPS, self._draw)

    # Settings.

    async def _set_min_insync(self, admin: Admin, topic: TopicImage) -> None:
        await self._set(admin, topic, "min.insync.replicas", self._draw.choice("123"))
        self._trace.mark("operator changed min.insync.replicas")

    async def _set_unclean(self, admin: Admin, topic: TopicImage) -> None:
        await self._set(admin, topic, "unclean.leader.election.enable", self._draw.choice(("true", "false")))
        self._trace.mark("operator changed unclean elections")

    async def _set(self, admin: Admin, topic: TopicImage, key: str, setting: str) -> None:
        self._note(f"sets {key} of {topic.name} to {setting}")
        _raise(
            await admin.alter_configs({ConfigResource(ResourceType.TOPIC, topic.name): [ConfigChange(key, setting)]})
        )

    async def _switch_elr(self, admin: Admin, topic: TopicImage) -> None:
        image = self._cluster.image
        is_on = image is not None and image.features.level(ELIGIBLE_LEADER_REPLICAS) > 0
        upgrade_type = UpgradeType.UNSAFE_DOWNGRADE if is_on else UpgradeType.UPGRADE
        self._note(f"turns the ELR {'off' if is_on else 'on'}")
        _raise(await admin.update_features({ELIGIBLE_LEADER_REPLICAS: int(not is_on)}, upgrade_type=upgrade_type))
        self._trace.mark(f"operator turned the ELR {'off' if is_on else 'on'}")

    def _note(self, what: str) -> None:
        self._trace.note("operator", what)


async def pass_on(cluster: ReplicationCluster, admin: Admin, partition: Partition, draw: random.Random) -> None:
    """Leadership of a partition goes from one broker to another and perhaps back, a few times."""
    key = TopicPartition(partition.topic, partition.index)
    first = NO_NODE
    for _ in range(draw.randrange(2, 6)):
        agreed = cluster.registration(partition)
        if agreed is None:
            return
        others = [replica for replica in agreed.isr if replica != agreed.leader]
        if others:
            first = first if first in others and draw.random() < 0.7 else draw.choice(others)
            cluster.trace.note("operator", f"passes {partition} on from {agreed.leader} to {first}")
            replicas = [first, *(replica for replica in agreed.replicas if replica != first)]
            _raise(await admin.reassign_partitions({key: replicas}))
            _raise(await admin.elect_leaders(Election.PREFERRED, [key]))
            cluster.trace.mark("operator passed on a coordinator")
            first = agreed.leader
        await asyncio.sleep(draw.random() ** 3)


def _name(partition: Partition) -> str:
    """Of a client, which is in each of its records."""
    assert partition.topic_id is not None
    return f"{partition.topic}-{partition.index}-{partition.topic_id.hex()[:12]}"


def _raise(outcomes: Mapping[Any, KafkaError | None]) -> None:
    for failure in outcomes.values():
        if failure is not None:
            raise failure
