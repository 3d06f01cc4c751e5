"""A metadata log and its controller on a made-up disk that can lose power, for tests of both."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, TypeVar

from tests.unit.metadata.building import NodeDescription, uuid

from odradek.ids import NodeId
from odradek.metadata.bootstrap import default_bootstrap_records
from odradek.metadata.features import SUPPORTED_FEATURES
from odradek.metadata.image import Changes, Image
from odradek.metadata.image.cluster import Endpoint, FeatureRange
from odradek.metadata.raft.voters import Voter
from odradek.ports import World
from odradek.protocol.codec import Message
from odradek.protocol.errors import KafkaError
from odradek.protocol.messages.allocate_producer_ids import AllocateProducerIdsRequest
from odradek.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from odradek.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from odradek.server.configs.node_config import load
from odradek.server.configs.quorum_settings import QuorumSettings
from odradek.server.containment import Containment
from odradek.server.controller.controller import Controller
from odradek.server.quorum.quorum import Quorum
from odradek.sim.clock import SimulatedClock
from odradek.sim.disk import Device, Keep
from odradek.sim.entropy import SimulatedEntropy
from odradek.sim.loop import Life, SimulatedLoop
from odradek.sim.network import Internet
from odradek.sim.trace import Trace
from odradek.sim.workers import SimulatedWorkers
from odradek.values import replace

ResultT = TypeVar("ResultT")

DIRECTORY = "/data/__cluster_metadata-0"
ME = Voter(NodeId(1), "localhost", 9093, uuid(300))
SETTINGS = QuorumSettings(
    segment_bytes=1 << 30,
    segment_ms=1 << 40,
    max_bytes_between_snapshots=1 << 30,
    max_snapshot_interval_ms=0,
    max_retention_bytes=1 << 30,
    max_retention_ms=1 << 40,
)
PROPERTIES = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "listeners": "PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093",
    "controller.listener.names": "CONTROLLER",
    "controller.quorum.voters": "1@localhost:9093",
    "log.dirs": "/data",
}


class Machine:
    """A disk, and the life that uses it now: `boot`, `run` things, `crash` or `stop`, boot again."""

    def __init__(self, seed: int = 0, settings: QuorumSettings = SETTINGS, **properties: str) -> None:
        self.loop = SimulatedLoop()  # type: ignore[abstract]
        self.trace = Trace(self.loop)
        self.device = Device(random.Random(seed), self.trace)
        self.config = load({**PROPERTIES, **{key.replace("_", "."): text for key, text in properties.items()}})
        self.settings = settings
        self.clock = SimulatedClock(self.loop)
        self._seed = seed
        self._lives = 0
        self._incarnations = 0
        self.committed: list[tuple[Image, Changes]] = []
        disk = self.device.attach(Life("setup"))
        disk.make_directory("/data")
        disk.sync_directory("/")

    def open(self, *, clean: bool = False, me: Voter = ME) -> Quorum:
        """A new life: load the log and lead it."""
        self._lives += 1
        self.life = Life(f"life {self._lives}")
        draw = random.Random(f"{self._seed}/{self._lives}")
        self.world = World(
            clock=self.clock,
            entropy=SimulatedEntropy(draw),
            disk=self.device.attach(self.life),
            network=Internet(self.loop, draw, self.trace).attach("localhost", self.life),
            workers=SimulatedWorkers(self.life, draw),
        )
        self.quorum = Quorum(
            self.world, metadata_log_dir="/data", me=me, listener_name="CONTROLLER", settings=self.settings
        )
        self.run(self.quorum.start(clean=clean))
        self.quorum.on_commit = self._note_commit
        self.controller = Controller(self.config, self.world, self.quorum, Containment(), bootstrap=self.bootstrap())
        return self.quorum

    async def _note_commit(self, image: Image, changes: Changes) -> None:
        self.committed.append((image, changes))
        self.controller.learn(image)

    def boot(self, *, clean: bool = False) -> Image:
        """Open, register and unfence."""
        self.open(clean=clean)
        self.run(self.join())
        return self.quorum.image

    async def join(self) -> None:
        """Lead, register and unfence."""
        self.life.context.run(self.controller.activate, self.quorum.epoch)
        await self.controller.register_controller(self.description().as_controller())
        await self.register()
        await self.heartbeat()

    async def register(self, broker_id: int = 1, *, previous_broker_epoch: int = -1, **told: Any) -> int:
        """The epoch of another incarnation of a broker."""
        described = replace(self.description(broker_id), **told)
        request = described.as_broker("", previous_broker_epoch=previous_broker_epoch)
        return (await self.controller.register_broker(request, 4)).broker_epoch

    async def heartbeat(self, broker_id: int = 1, **wants: Any) -> BrokerHeartbeatResponse:
        """From the registered incarnation of a broker, which has replayed everything."""
        fields: dict[str, Any] = {"want_fence": False, "want_shut_down": False, "cordoned_log_dirs": [], **wants}
        known = self.quorum.image.cluster.brokers.get(NodeId(broker_id))
        fields.setdefault("broker_epoch", -1 if known is None else known.broker_epoch)
        fields.setdefault("current_metadata_offset", self.quorum.image.provenance.offset)
        return await self.controller.broker_heartbeat(BrokerHeartbeatRequest(broker_id=broker_id, **fields))

    async def producer_ids(self) -> int:
        """The first of a block."""
        epoch = self.quorum.image.cluster.brokers[NodeId(1)].broker_epoch
        request = AllocateProducerIdsRequest(broker_id=1, broker_epoch=epoch)
        return (await self.controller.allocate_producer_ids(request)).producer_id_start

    def description(self, broker_id: int = 1) -> NodeDescription:
        self._incarnations += 1
        return NodeDescription(
            node_id=NodeId(broker_id),
            incarnation_id=uuid(9000 + self._incarnations),
            broker_endpoints=(Endpoint("PLAINTEXT", "localhost", 9000 + 100 * broker_id, 0),),
            controller_endpoints=(Endpoint("CONTROLLER", "localhost", 9093, 0),),
            features=tuple(FeatureRange(each.name, each.minimum, each.maximum) for each in SUPPORTED_FEATURES),
            rack=None,
            log_dirs=(uuid(299 + broker_id),),
        )

    def bootstrap(self) -> tuple[Message, ...]:
        return default_bootstrap_records()

    def run(self, work: Coroutine[Any, Any, ResultT]) -> ResultT:
        result: ResultT = self.loop.run_until_complete(work)
        return result

    def create(self, *names: str, partitions: int = 1) -> CreateTopicsResponse:
        return self.run(self.controller.create_topics(create_request(*names, partitions=partitions)))

    def stop(self) -> None:
        self.run(self._leave())
        self.run(self.controller.close())
        self.run(self.quorum.close())
        self.life.end()

    async def _leave(self) -> None:
        """As a node stops: on a full disk without saying so."""
        with suppress(KafkaError):
            while not (await self.heartbeat(want_shut_down=True)).should_shut_down:
                pass

    def crash(self, keep: Keep) -> None:
        self.life.end()
        self.device.crash(keep)

    def files(self, suffix: str) -> list[str]:
        return [name for name in self.world.disk.list(DIRECTORY) if name.endswith(suffix)]

    def change_file(self, name: str, change: Callable[[bytes], bytes]) -> None:
        """What someone else did to a file between two lives."""
        life = Life("someone else")
        disk = self.device.attach(life)
        path = f"{DIRECTORY}/{name}"
        disk.write_file(path, change(disk.read_file(path)))
        file = disk.open(path)
        file.sync()
        file.close()


def create_request(*names: str, partitions: int = 1) -> CreateTopicsRequest:
    return CreateTopicsRequest(
        topics=[
            CreatableTopic(name=name, num_partitions=partitions, replication_factor=1, assignments=[], configs=[])
            for name in names
        ]
    )


async def together(*work: Coroutine[Any, Any, Any]) -> list[Any]:
    return list(await asyncio.gather(*work))
