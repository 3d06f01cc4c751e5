"""A run of replicated partitions: producers and consumers at work while leaders go and followers fall behind.

What a crash may take is part of the model. A process that is killed keeps what it has written, any number of them at
once. A loss of power takes what was not synced, and so it meets one node at a time, while all replicas are in sync.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from odradek.client import Client as LibraryClient
from odradek.client.errors import ClientError
from odradek.ports import FileSlice
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from odradek.protocol.records.batch import decode_records, iter_batches
from odradek.server.hosted import Hosted
from odradek.sim.cluster import Cluster
from odradek.sim.consumer import Consumer, FinalReader, Observer
from odradek.sim.disk import Keep
from odradek.sim.entropy import SimulatedEntropy
from odradek.sim.group_member import Ports
from odradek.sim.history import History, Partition, ReplicaHolds, WatermarkSeen
from odradek.sim.machine import Machine
from odradek.sim.producer import Producer
from odradek.sim.quorum import BROKER_PORT, SETTLE_S, QuorumCluster, Shape
from odradek.sim.quorum_faults import QuorumFaults
from odradek.sim.workload import Client, TopicPlan, TryAgain

STATES = (
    "follower cut its log",
    "ISR shrank",
    "ISR grew",
    "leader moved",
    "append refused by a former leader",
    "too few in sync",
    "log tail cut",
    "process crash",
    "power loss",
    "all nodes crashed",
    "clean restart",
    "process held",
    "nodes cut off",
    "cluster split",
    "one way cut",
    "read from a follower",
    "records deleted",
    "fetch session used",
)
"""What a set of seeds must have met to prove anything about replication."""

SHAPES = (Shape(combined=3), Shape(combined=3, brokers=1), Shape(controllers=1, brokers=3))
PLANS = (
    TopicPlan("three", 2, (("min.insync.replicas", "2"),)),
    TopicPlan("three-small", 1, (("min.insync.replicas", "2"), ("segment.ms", "1500"), ("index.interval.bytes", "1"))),
)
PARTITIONS = tuple(Partition(plan.name, index) for plan in PLANS for index in range(plan.partitions))
TOPICS = tuple(plan.name for plan in PLANS)
PROPERTIES = {"replica.lag.time.max.ms": "3000", "replica.fetch.backoff.ms": "300"}
REPLICAS = 3
RUN_S = 40.0
MANY = 1_000_000
LOOK_EVERY_S = 0.1
SETTINGS = {
    "default.api.timeout.ms": 60_000,
    "request.timeout.ms": 4_000,
    "socket.connection.setup.timeout.ms": 2_000,
}


class ReplicationCluster(QuorumCluster):
    """Three brokers or four, and topics with three replicas each."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed, History(TOPICS), shapes=SHAPES, properties=PROPERTIES)
        self.brokers = [(member.name, BROKER_PORT) for member in self.members.values() if member.is_broker]

    def hosted(self, partition: Partition) -> list[tuple[Machine, Hosted]]:
        """Its replicas on nodes that are up."""
        found = []
        for machine in self.machines.values():
            if machine.is_up and machine.node is not None and machine.node.config.is_broker:
                hosted = machine.node.replicas.find(partition.topic, partition.index)
                if hosted is not None:
                    found.append((machine, hosted))
        return found

    def all_in_sync(self) -> bool:
        """Whether every replica is where it should be and has everything that is committed, as its leader knows."""
        for partition in PARTITIONS:
            replicas = self.hosted(partition)
            leading = [hosted.partition for _, hosted in replicas if hosted.partition.is_leader]
            if len(replicas) < REPLICAS or len(leading) != 1:
                return False
            leader = leading[0]
            ends = {hosted.partition.log.log_end_offset for _, hosted in replicas}
            if len(leader.state.isr) < REPLICAS or len(ends) > 1 or leader.log.high_watermark not in ends:
                return False
        return True

    def leader(self) -> Machine | None:
        """Faults like to strike who leads partitions, now and then the controller."""
        led = [machine for each in PARTITIONS for machine, hosted in self.hosted(each) if hosted.partition.is_leader]
        return led[0] if led else super().leader()


class ReplicationFaults(QuorumFaults):
    """Power is lost by one node, when nobody else's copy is in doubt."""

    def __init__(self, cluster: ReplicationCluster, *, power: bool) -> None:
        super().__init__(cluster, power=power, leader=cluster.leader)
        self._replicated = cluster
        self._powerless = False
        """Whether a node has lost power and not all have been in sync since."""

    def _keep(self) -> Keep:
        if self._powerless and self._replicated.all_in_sync():
            self._powerless = False
        if self._power and not self._powerless and self._replicated.all_in_sync() and self._draw.random() < 0.5:
            self._powerless = True
            return "power"
        return "process"

    async def _kill_all(self) -> None:
        power, self._power = self._power, False
        await super()._kill_all()
        self._power = power


class AtLeader(Client):
    """A client of one partition, which finds its leader; `strays` is how often it goes elsewhere."""

    strays = 0.02

    async def place(self) -> tuple[str, int]:
        cluster = self.cluster
        assert isinstance(cluster, ReplicationCluster)
        if self.draw.random() < self.strays:
            return self.draw.choice(cluster.brokers)
        connection = await self.connect(*self.draw.choice(cluster.brokers))
        try:
            wanted = self.wanted
            topics = [MetadataRequestTopic(name=wanted.topic)]
            request = MetadataRequest(topics=topics, allow_auto_topic_creation=False)
            response = await self.wait(connection.ask(request, MetadataResponse, 12))
        finally:
            connection.close()
        addresses = {broker.node_id: (broker.host, broker.port) for broker in response.brokers}
        for topic in response.topics:
            for partition in topic.partitions:
                if partition.partition_index == wanted.index and partition.leader_id in addresses:
                    if partition.leader_epoch < self.leader_epoch:
                        raise TryAgain  # The broker that was asked knows less.
                    self.leader_epoch = partition.leader_epoch
                    return addresses[partition.leader_id]
        raise TryAgain

    @property
    def wanted(self) -> Partition:
        return self.partitions[0]


class LeaderProducer(AtLeader, Producer):
    """Writes to one partition, for as long as faults happen."""

    longest_pause_s = 0.5

    def in_flight_at_most(self) -> int:
        """One, before anything is acknowledged: a leader that does not know a producer takes whatever comes first."""
        return super().in_flight_at_most() if self.is_known else 1

    def refused(self, error: ErrorCode) -> None:
        if error is ErrorCode.NOT_LEADER_OR_FOLLOWER:
            self.cluster.trace.mark("append refused by a former leader")
        elif error in (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND):
            self.cluster.trace.mark("too few in sync")


class LeaderConsumer(AtLeader, Consumer):
    """Reads one partition, often from a follower."""

    strays = 0.4

    async def place(self) -> tuple[str, int]:
        place = await super().place()
        cluster = self.cluster
        assert isinstance(cluster, ReplicationCluster)
        for machine, hosted in cluster.hosted(self.wanted):
            if machine.name == place[0] and not hosted.partition.is_leader and self._version >= READS_FROM_FOLLOWERS:
                cluster.trace.mark("read from a follower")
        return place


READS_FROM_FOLLOWERS = 11


class LeaderObserver(AtLeader, Observer):
    """Asks for the bounds of one partition."""


class LastReader(AtLeader, FinalReader):
    """Reads one partition when all is over."""

    strays = 0.0


async def scenario(cluster: Cluster, *, power: bool) -> None:
    assert isinstance(cluster, ReplicationCluster)
    draw = cluster.draw("scenario")
    faults = ReplicationFaults(cluster, power=power)
    for machine in cluster.machines.values():
        faults.start(machine)
    await _create_topics(cluster)
    producers = [
        LeaderProducer(cluster, f"producer-{number}", MANY, partitions=[draw.choice(PARTITIONS)])
        for number in range(draw.choice((3, 4)))
    ]
    watching = [asyncio.create_task(_watch(cluster))]
    for number, partition in enumerate(PARTITIONS):
        consumer = LeaderConsumer(cluster, f"consumer-{number}", partitions=[partition])
        observer = LeaderObserver(cluster, f"observer-{number}", partitions=[partition])
        watching += [asyncio.create_task(consumer.run()), asyncio.create_task(observer.run())]
    working = [asyncio.create_task(producer.run()) for producer in producers]
    await faults.run(draw.randrange(3, 8), RUN_S)
    for producer in producers:
        producer.finish()
    await asyncio.gather(*working)
    for task in watching:
        task.cancel()
    await asyncio.gather(*watching, return_exceptions=True)
    await _settle(cluster)
    for partition in PARTITIONS:
        await LastReader(cluster, partitions=[partition]).run()
        _note_contents(cluster, partition)


async def _create_topics(cluster: ReplicationCluster) -> None:
    ports = Ports(cluster.client_network("admin"), cluster.clock, SimulatedEntropy(cluster.draw("admin entropy")))
    servers = ",".join(f"{host}:{port}" for host, port in cluster.brokers)
    client = LibraryClient(ports, {"bootstrap.servers": servers, "client.id": "admin"})
    for plan in PLANS:
        while True:
            try:
                async with client.admin(SETTINGS) as admin:
                    await admin.create_topic(
                        plan.name,
                        partitions=plan.partitions,
                        replication_factor=REPLICAS,
                        configs=dict(plan.configs),
                    )
                break
            except KafkaError as refused:
                if refused.code is ErrorCode.TOPIC_ALREADY_EXISTS:
                    break
            except ClientError:
                pass
            await asyncio.sleep(0.2)


async def _watch(cluster: ReplicationCluster) -> None:
    """Note where watermarks are on who leads, and that leaders move."""
    epochs: dict[Partition, int] = {}
    while True:
        for partition in PARTITIONS:
            for machine, hosted in cluster.hosted(partition):
                replica = hosted.partition
                if replica.is_leader:
                    epoch, watermark = int(replica.state.leader_epoch), int(replica.log.high_watermark)
                    cluster.history.add(WatermarkSeen(machine.name, machine.lives, partition, epoch, watermark))
                    if epoch > epochs.setdefault(partition, epoch):
                        epochs[partition] = epoch
                        cluster.trace.mark("leader moved")
        await asyncio.sleep(LOOK_EVERY_S)


async def _settle(cluster: ReplicationCluster) -> None:
    """Until all replicas have everything; the clusters that never get there are told of."""
    began = cluster.loop.time()
    while not cluster.all_in_sync():
        await asyncio.sleep(0.2)
        if cluster.loop.time() - began > SETTLE_S:
            told = [f"{partition}: {_told(cluster.hosted(partition))}" for partition in PARTITIONS]
            cluster.loop.failures.append(f"not all replicas came in sync within {SETTLE_S:.0f} s: {told}")
            return


def _told(replicas: Sequence[tuple[Machine, Hosted]]) -> list[str]:
    return [
        f"{machine.name} leader={hosted.partition.state.leader} epoch={hosted.partition.state.leader_epoch} "
        f"isr={hosted.partition.state.isr} hw={hosted.partition.log.high_watermark} "
        f"end={hosted.partition.log.log_end_offset}"
        for machine, hosted in replicas
    ]


def _note_contents(cluster: ReplicationCluster, partition: Partition) -> None:
    for machine, hosted in cluster.hosted(partition):
        log = hosted.partition.log
        records: list[tuple[int, bytes]] = []
        offset = int(log.log_start_offset)
        while offset < log.high_watermark:
            read = log.read(offset, max_bytes=1 << 20, end_offset=log.high_watermark, minimum_one=True).records
            data = read.read() if isinstance(read, FileSlice) else read
            for batch in iter_batches(memoryview(data)):
                for record in decode_records(batch):
                    records.append((record.offset, record.value or b""))
                    offset = record.offset + 1
        cluster.history.add(
            ReplicaHolds(machine.name, partition, int(log.log_start_offset), int(log.high_watermark), tuple(records))
        )
