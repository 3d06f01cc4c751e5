"""Brokers that replicate, in a made-up world, without a quorum: the test decides what the cluster agrees on.

Each broker is the real thing from its listener to its disk. What the test commits reaches all of them, or those that it
does not keep in the dark.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine, Mapping, Sequence
from types import SimpleNamespace
from typing import Any, TypeVar, cast

from odradek.client.connection import Connection
from odradek.ids import LeaderEpoch, NodeId, Offset, Uuid
from odradek.metadata.features import SUPPORTED_FEATURES
from odradek.metadata.image import EMPTY_IMAGE, Changes, Image, Provenance
from odradek.metadata.image.cluster import FENCED, UNFENCED, BrokerRegistration, Endpoint, register_broker_record
from odradek.metadata.image.configs import TOPIC_RESOURCE
from odradek.metadata.image.topics import PartitionRegistration
from odradek.metadata.loader import Loader
from odradek.metadata.records import (
    BrokerRegistrationChangeRecord,
    ConfigRecord,
    FeatureLevelRecord,
    PartitionChangeRecord,
    PartitionRecord,
    TopicRecord,
)
from odradek.ports import FileSlice, World
from odradek.protocol.api import ApiKey, response_class
from odradek.protocol.codec import Message
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    PartitionData,
    RequestedPartitionData,
    TopicData,
)
from odradek.protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    TopicProduceData,
)
from odradek.protocol.records.batch import build_batch, decode_records, iter_batches
from odradek.protocol.records.record import Record
from odradek.server.access.quotas import Quotas
from odradek.server.configs.node_config import load
from odradek.server.containment import Containment
from odradek.server.following.fetchers import Fetchers
from odradek.server.net.buffers import BufferPool
from odradek.server.net.dispatch import Endpoints
from odradek.server.net.listener import Listener, ListenerScope
from odradek.server.net.routes import Role
from odradek.server.partitions.fetch_sessions import FetchSessions
from odradek.server.partitions.fetch_wakeups import LENT_FROM_BYTES, FetchWakeups
from odradek.server.partitions.hosted_partition import HostedPartition
from odradek.server.partitions.hosting import Hosting, whole_image
from odradek.server.partitions.isr_changes import IsrChanges
from odradek.server.partitions.replicas import Replicas
from odradek.server.rooms import Rooms
from odradek.server.waiting.purgatory import Purgatory
from odradek.sim.clock import SimulatedClock
from odradek.sim.disk import Device
from odradek.sim.entropy import SimulatedEntropy
from odradek.sim.loop import Life, SimulatedLoop
from odradek.sim.network import Internet
from odradek.sim.trace import Trace
from odradek.sim.workers import SimulatedWorkers
from odradek.storage.config import log_config
from odradek.storage.directories import LogDirectory

ResultT = TypeVar("ResultT")
ALL, LEADER = -1, 1
PORT = 9092
TIMEOUT_MS = 60_000


class Broker:
    """As much of a node as replication needs; handlers take it for one."""

    def __init__(self, rig: ReplicaRig, node_id: int) -> None:
        self.node_id = NodeId(node_id)
        self.machine = f"host-{node_id}"
        self.device = Device(random.Random(f"{node_id}/disk"), rig.trace, name=self.machine)
        self.device.provide("/data")
        self.incarnation = 0
        self.informed = True
        self.is_up = False
        self._rig = rig
        self.authorizer = None
        self.guarded = False
        self.supported_features = SUPPORTED_FEATURES
        self.quorum = SimpleNamespace(kraft_version=1)
        self.serving = True
        self.failed: BaseException | None = None

    async def start(self) -> None:
        rig = self._rig
        self.incarnation += 1
        self.life = Life(f"{self.machine} life {self.incarnation}")
        await asyncio.create_task(self._start(rig), context=self.life.context)

    async def _start(self, rig: ReplicaRig) -> None:
        properties = {
            "process.roles": "broker",
            "node.id": str(self.node_id),
            "controller.quorum.voters": "1000@controller:9093",
            "controller.listener.names": "CONTROLLER",
            "listeners": f"PLAINTEXT://{self.machine}:{PORT}",
            "log.dirs": "/data",
            "broker.rack": f"rack-{self.node_id}",
            **rig.properties,
        }
        draw = f"{self.node_id}/{self.incarnation}"
        self.world = World(
            clock=SimulatedClock(rig.loop),
            entropy=SimulatedEntropy(random.Random(f"{draw}/entropy")),
            disk=self.device.attach(self.life),
            network=rig.internet.attach(self.machine, self.life),
            workers=SimulatedWorkers(self.life, random.Random(f"{draw}/workers")),
        )
        self.config = load(properties, host_name=self.machine)
        self.containment = Containment()
        self.containment.on_contained = self.fail
        self.purgatory = Purgatory(self.world.clock, self.containment)
        self.quotas = Quotas(self.world.clock, windows=11, window_s=1)
        self.fetch_sessions = FetchSessions(
            slots=100, eviction_ms=120_000, clock=self.world.clock, entropy=self.world.entropy
        )
        self.fetch_wakeups = FetchWakeups(self.containment, lent_from_bytes=rig.lent_from_bytes)
        directory = LogDirectory(self.world.disk, "/data", rig.uuid(100 + self.node_id), self.world.entropy)
        self.image = rig.image
        self.replicas = Replicas(self.config, self.world, [directory], self.containment)
        self.hosting = Hosting(self.config, self.world, self.replicas, self._log_config_of)
        self.fetchers = Fetchers(self.config, self.world, self.replicas)
        self.isr_changes = IsrChanges(self.world, self.replicas, rig, node_id=self.node_id)
        self.replicas.learn(self.image)
        self.hosting.apply_topics(whole_image(self.image))
        scope = ListenerScope(
            cast(Rooms, self), "PLAINTEXT", Endpoints(Role.BROKER, "PLAINTEXT"), BufferPool(poison=True)
        )
        scope.serving = True
        self.listener = Listener(scope)
        await self.listener.open(self.machine, PORT)
        self.is_up = True
        await rig.register(self)
        self.replicas.liveness.broker_epoch = rig.image.cluster.brokers[self.node_id].broker_epoch
        self.fetchers.start()

    def _log_config_of(self, topic: str) -> Any:
        return log_config(self.image.configs.of(TOPIC_RESOURCE, topic), self.config.log_defaults)

    async def learn(self, image: Image, changes: Changes) -> None:
        self.image = image
        await self.hosting.apply(image, changes)

    def fail(self, failure: BaseException) -> None:
        self.failed = self.failed or failure

    def crash(self) -> None:
        """As kill -9: what was written stays."""
        self.is_up = False
        self._rig.internet.crash(self.life)
        self.life.end()
        self.device.crash("process")
        self.device.locks.clear()

    async def stop(self) -> None:
        self.is_up = False
        self.fetchers.close()
        await self.isr_changes.close()
        self.listener.close()
        self.replicas.close(broker_epoch=-1)
        self.life.end()


class ReplicaRig:
    """Some brokers, and the word of the cluster."""

    def __init__(
        self,
        brokers: int = 3,
        *,
        seed: int = 0,
        properties: Mapping[str, str] | None = None,
        lent_from_bytes: int = LENT_FROM_BYTES,
    ) -> None:
        self.lent_from_bytes = lent_from_bytes
        self.loop = SimulatedLoop(max_steps=5_000_000)  # type: ignore[abstract]
        self.trace = Trace(self.loop)
        self.internet = Internet(self.loop, random.Random(f"{seed}/network"), self.trace)
        self.properties = dict(properties or {})
        self.loader = Loader(EMPTY_IMAGE)
        self.offset = 0
        self.brokers = {number: Broker(self, number) for number in range(1, brokers + 1)}
        self.asked: list[AlterPartitionRequest] = []
        self.refuses: ErrorCode | None = None
        """What the controller answers to every proposal instead of deciding it."""
        self._client_life = Life("client")
        self._missed: dict[int, list[tuple[Image, Changes]]] = {}

    @property
    def image(self) -> Image:
        return self.loader.image

    def run(self, test: Callable[[], Coroutine[Any, Any, ResultT]]) -> ResultT:
        result: ResultT = self.loop.run_until_complete(self._run(test))
        assert self.loop.failures == []
        assert [broker.failed for broker in self.brokers.values() if broker.failed is not None] == []
        return result

    async def _run(self, test: Callable[[], Coroutine[Any, Any, ResultT]]) -> ResultT:
        await self.commit(FeatureLevelRecord(name="metadata.version", feature_level=30))
        for broker in self.brokers.values():
            await broker.start()
        result = await test()
        for broker in self.brokers.values():
            if broker.is_up:
                await broker.stop()
        return result

    @staticmethod
    def uuid(number: int) -> Uuid:
        return Uuid(number.to_bytes(16))

    # The word of the cluster.

    async def commit(self, *records: Message) -> None:
        provenance = Provenance(Offset(self.offset + len(records) - 1), LeaderEpoch(1), 0)
        self.offset += len(records)
        changes = self.loader.replay(records, provenance)
        for broker in self.brokers.values():
            if broker.is_up and broker.informed:
                await asyncio.create_task(broker.learn(self.image, changes), context=broker.life.context)
            elif broker.is_up:
                self._missed.setdefault(broker.node_id, []).append((self.image, changes))

    async def inform(self, number: int) -> None:
        """Tell a broker what it was not told."""
        broker = self.brokers[number]
        broker.informed = True
        for image, changes in self._missed.pop(number, []):
            await asyncio.create_task(broker.learn(image, changes), context=broker.life.context)

    async def register(self, broker: Broker) -> None:
        registration = BrokerRegistration(
            broker_id=broker.node_id,
            broker_epoch=self.offset,
            incarnation_id=self.uuid(1000 * broker.node_id + broker.incarnation),
            endpoints=(Endpoint("PLAINTEXT", broker.machine, PORT, 0),),
            features=(),
            rack=broker.config.broker_rack,
            fenced=False,
            in_controlled_shutdown=False,
            log_dirs=(self.uuid(100 + broker.node_id),),
            cordoned_log_dirs=None,
        )
        await self.commit(register_broker_record(registration))

    async def fence(self, number: int, how: int = FENCED) -> None:
        epoch = self.image.cluster.brokers[NodeId(number)].broker_epoch
        await self.commit(BrokerRegistrationChangeRecord(broker_id=number, broker_epoch=epoch, fenced=how))

    async def unfence(self, number: int) -> None:
        await self.fence(number, UNFENCED)

    async def create_topic(
        self,
        name: str,
        assignments: Sequence[Sequence[int]],
        *,
        isr: Sequence[int] | None = None,
        configs: Mapping[str, str] | None = None,
    ) -> None:
        topic_id = self.uuid(50_000 + self.offset)
        records: list[Message] = [TopicRecord(name=name, topic_id=topic_id)]
        for key, text in (configs or {}).items():
            records.append(ConfigRecord(resource_type=TOPIC_RESOURCE, resource_name=name, name=key, value=text))
        for index, replicas in enumerate(assignments):
            records.append(
                PartitionRecord(
                    partition_id=index,
                    topic_id=topic_id,
                    replicas=list(replicas),
                    isr=list(replicas if isr is None else isr),
                    removing_replicas=[],
                    adding_replicas=[],
                    leader=replicas[0],
                    leader_epoch=0,
                    partition_epoch=0,
                    directories=[self.uuid(100 + replica) for replica in replicas],
                )
            )
        await self.commit(*records)

    async def change(self, name: str, index: int = 0, **what: Any) -> None:
        topic = self.image.topics.by_name[name]
        await self.commit(PartitionChangeRecord(partition_id=index, topic_id=topic.topic_id, **what))

    async def elect(self, name: str, leader: int, isr: Sequence[int], index: int = 0) -> None:
        await self.change(name, index, leader=leader, isr=list(isr))

    def registration(self, name: str, index: int = 0) -> PartitionRegistration:
        return self.image.topics.by_name[name].partitions[index]

    # The controller, as far as leaders know it.

    async def ask(self, request: Message, *, timeout_ms: int) -> AlterPartitionResponse:
        assert isinstance(request, AlterPartitionRequest)
        self.asked.append(request)
        await asyncio.sleep(0.005)
        broker = self.image.cluster.brokers[NodeId(request.broker_id)]
        if request.broker_epoch != broker.broker_epoch:
            return AlterPartitionResponse(error_code=ErrorCode.STALE_BROKER_EPOCH)
        topics = []
        for topic in request.topics:
            answers = [await self._decide(topic.topic_id, asked) for asked in topic.partitions]
            topics.append(TopicData(topic_id=topic.topic_id, partitions=answers))
        return AlterPartitionResponse(topics=topics)

    async def _decide(self, topic_id: Uuid, asked: RequestedPartitionData) -> PartitionData:
        index = asked.partition_index
        name = self.image.topics.by_id[topic_id].name
        before = self.registration(name, index)
        refusal = self.refuses
        if asked.leader_epoch != before.leader_epoch:
            refusal = ErrorCode.FENCED_LEADER_EPOCH
        elif asked.partition_epoch != before.partition_epoch:
            refusal = ErrorCode.INVALID_UPDATE_VERSION
        for member in asked.new_isr_with_epochs:
            registered = self.image.cluster.brokers[NodeId(member.broker_id)].broker_epoch
            if member.broker_epoch not in (-1, registered):
                refusal = ErrorCode.INELIGIBLE_REPLICA
        if refusal is not None:
            return PartitionData(
                partition_index=index, error_code=refusal, leader_id=-1, leader_epoch=-1, isr=[], partition_epoch=-1
            )
        await self.change(name, index, isr=[member.broker_id for member in asked.new_isr_with_epochs])
        after = self.registration(name, index)
        return PartitionData(
            partition_index=index,
            leader_id=after.leader,
            leader_epoch=after.leader_epoch,
            isr=list(after.isr),
            partition_epoch=after.partition_epoch,
        )

    # Clients.

    async def connect(self, number: int, *, machine: str = "client") -> Connection:
        network = self.internet.attach(machine, self._client_life)
        return await Connection.open(
            network, host=f"host-{number}", port=PORT, client_id="tester", timeout_ms=TIMEOUT_MS
        )

    async def request(self, number: int, request: Message, version: int) -> Any:
        connection = await self.connect(number)
        try:
            response = response_class(ApiKey(request.api_key))
            return await connection.ask(request, response, version, timeout_ms=TIMEOUT_MS)
        finally:
            connection.close()

    async def produce(
        self, number: int, name: str, *values: bytes, acks: int = ALL, index: int = 0, timeout_ms: int = 5_000
    ) -> PartitionProduceResponse:
        now_ms = self.brokers[number].world.clock.now_ms()
        batch = build_batch([Record(value=each) for each in values], timestamp=now_ms)
        part = PartitionProduceData(index=index, records=batch)
        topic = TopicProduceData(topic_id=self.image.topics.by_name[name].topic_id, partition_data=[part])
        request = ProduceRequest(acks=acks, timeout_ms=timeout_ms, topic_data=[topic])
        response = await self.request(number, request, 13)
        answer: PartitionProduceResponse = response.responses[0].partition_responses[0]
        return answer

    def hosted(self, number: int, name: str, index: int = 0) -> HostedPartition:
        return self.brokers[number].replicas.require(name, index)

    def ends(self, name: str, index: int = 0) -> dict[int, tuple[int, int]]:
        """High watermark and end of the log on every broker that has it."""
        found = {}
        for number, broker in self.brokers.items():
            hosted = broker.replicas.find(name, index) if broker.is_up else None
            if hosted is not None:
                found[number] = (int(hosted.partition.log.high_watermark), int(hosted.partition.log.log_end_offset))
        return found

    async def until(self, holds: Callable[[], bool], *, within_s: float = 30.0) -> None:
        deadline = self.loop.time() + within_s
        while not holds():
            if self.loop.time() > deadline:
                raise AssertionError("it did not come about in time")
            await asyncio.sleep(0.01)

    async def content(self, number: int, name: str, index: int = 0) -> list[tuple[int, bytes]]:
        """What a broker's log holds, record by record."""
        log = self.hosted(number, name, index).partition.log
        found: list[tuple[int, bytes]] = []
        offset = int(log.log_start_offset)
        while offset < log.log_end_offset:
            read = log.read(offset, max_bytes=1 << 20, end_offset=log.log_end_offset, minimum_one=True)
            data = read.records.read() if isinstance(read.records, FileSlice) else read.records
            for batch in iter_batches(memoryview(data)):
                for record in decode_records(batch):
                    if record.offset >= offset:
                        found.append((record.offset, record.value or b""))
            offset = found[-1][0] + 1
        return found
