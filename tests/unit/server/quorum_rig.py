"""Several quorums on one made-up network, each with a disk of its own and an open controller listener.

What a whole node adds (brokers, controllers' decisions) is left out: these tests are about agreement.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from tests.unit.metadata.building import uuid

from odradek.client.connection import Connection
from odradek.ids import LeaderEpoch, NodeId, Uuid
from odradek.metadata.bootstrap import default_bootstrap_records
from odradek.metadata.features import SUPPORTED_FEATURES
from odradek.metadata.image import Changes, Image
from odradek.metadata.raft.snapshot import BOOTSTRAP_SNAPSHOT, QuorumRecords, build_snapshot
from odradek.metadata.raft.voters import Voter
from odradek.metadata.records import ConfigRecord
from odradek.ports import World
from odradek.protocol.api import ApiKey, response_class
from odradek.protocol.codec import Message
from odradek.server.access.authorizer import Authorizer
from odradek.server.access.quotas import Quotas
from odradek.server.configs.node_config import load
from odradek.server.configs.quorum_settings import QuorumSettings
from odradek.server.containment import Containment
from odradek.server.net.buffers import BufferPool
from odradek.server.net.dispatch import Endpoints
from odradek.server.net.listener import Listener, ListenerScope
from odradek.server.net.routes import Role
from odradek.server.quorum.quorum import Quorum
from odradek.server.waiting.purgatory import Purgatory
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
PORT = 9093
SETTINGS = QuorumSettings(
    segment_bytes=1 << 30,
    segment_ms=1 << 40,
    max_bytes_between_snapshots=1 << 30,
    max_snapshot_interval_ms=0,
    max_retention_bytes=1 << 30,
    max_retention_ms=1 << 40,
)


class Seat:
    """One node as far as its quorum needs one."""

    def __init__(self, rig: QuorumRig, node_id: int, *, may_vote: bool = True) -> None:
        self.rig = rig
        self.node_id = NodeId(node_id)
        self.name = f"c{node_id}"
        self.may_vote = may_vote
        self.directory_id: Uuid = uuid(700 + node_id)
        self.device = Device(random.Random(f"{rig.seed}/{node_id}/disk"), rig.trace, name=self.name)
        self.device.provide("/data")
        self.lives = 0
        self.life: Life | None = None
        self.failures: list[BaseException] = []
        self.leadership: list[LeaderEpoch | None] = []
        self.committed: list[tuple[Image, Changes]] = []
        self.guarded = False
        self.supported_features = SUPPORTED_FEATURES
        self.authorizer: Authorizer | None = None
        self.settings = rig.settings
        self.cluster_id = "rig"
        self.quorum: Quorum
        self.world: World
        self.purgatory: Purgatory

    @property
    def voter(self) -> Voter:
        return Voter(self.node_id, self.name, PORT if self.may_vote else 0, self.directory_id)

    @property
    def image(self) -> Image:
        return self.quorum.image

    @property
    def is_up(self) -> bool:
        return self.life is not None and self.life.alive

    async def start(self, *, clean: bool = False) -> Quorum:
        rig = self.rig
        self.lives += 1
        life = self.life = Life(f"{self.name} life {self.lives}")
        draw = f"{rig.seed}/{self.name}/{self.lives}"
        rig.internet.regain_power(self.name)
        self.world = World(
            clock=SimulatedClock(rig.loop),
            entropy=SimulatedEntropy(random.Random(f"{draw}/entropy")),
            disk=self.device.attach(life),
            network=rig.internet.attach(self.name, life),
            workers=SimulatedWorkers(life, random.Random(f"{draw}/workers")),
        )
        await rig.loop.create_task(self._start(clean), context=life.context)
        return self.quorum

    async def _start(self, clean: bool) -> None:
        rig = self.rig
        self.config = load(
            {
                "process.roles": "controller",
                "node.id": str(self.node_id),
                "listeners": f"CONTROLLER://{self.name}:{PORT}",
                "controller.listener.names": "CONTROLLER",
                "controller.quorum.bootstrap.servers": f"c1:{PORT}",
                "log.dirs": "/data",
            },
            host_name=self.name,
        )
        self.containment = Containment()
        self.purgatory = Purgatory(self.world.clock, self.containment)
        self.quotas = Quotas(self.world.clock, windows=11, window_s=1)
        self.quorum = quorum = Quorum(
            self.world,
            metadata_log_dir="/data",
            me=self.voter,
            listener_name="CONTROLLER",
            settings=self.settings,
            cluster_id=self.cluster_id,
            static_voters=rig.static_voters,
            bootstrap_servers=rig.bootstrap_servers,
            may_vote=self.may_vote,
        )
        quorum.on_commit = self._note_commit
        quorum.on_leadership = self.leadership.append
        quorum.on_failure = self.fail
        if self.may_vote:
            endpoints = Endpoints(Role.CONTROLLER, "CONTROLLER")
            scope = ListenerScope(self, "CONTROLLER", endpoints, BufferPool())  # type: ignore[arg-type]
            scope.serving = True
            self.listener = Listener(scope)
            await self.listener.open(self.name, PORT)
        await quorum.start(clean=clean)

    async def _note_commit(self, image: Image, changes: Changes) -> None:
        self.committed.append((image, changes))

    def fail(self, failure: BaseException) -> None:
        self.failures.append(failure)

    async def stop(self) -> None:
        assert self.life is not None
        if self.may_vote:
            self.listener.close()
        await self.rig.loop.create_task(self.quorum.close(), context=self.life.context)
        self._end()

    def crash(self, keep: Keep = "process") -> None:
        self._end()
        self.device.crash(keep)

    def wipe(self) -> None:
        """Someone replaced the disk."""
        self.device = Device(random.Random(f"{self.rig.seed}/{self.name}/new disk"), self.rig.trace, name=self.name)
        self.device.provide("/data")

    def _end(self) -> None:
        assert self.life is not None
        self.life.end()
        self.rig.internet.crash(self.life)

    def put(self, path: str, content: bytes) -> None:
        """Leave a file on the disk, as a tool would."""
        disk = self.device.attach(Life("a tool"))
        disk.make_directory(path.rpartition("/")[0])
        disk.write_file(path, content)


class QuorumRig:
    """Seats, and the network between them."""

    def __init__(self, voters: int = 3, *, seed: int = 0, static: bool = True, settings: QuorumSettings = SETTINGS):
        self.seed = seed
        self.settings = settings
        self.loop = SimulatedLoop()  # type: ignore[abstract]
        self.trace = Trace(self.loop)
        self.internet = Internet(self.loop, random.Random(f"{seed}/network"), self.trace)
        self.bootstrap_servers = tuple((f"c{node_id}", PORT) for node_id in range(1, voters + 1))
        self.static_voters: tuple[Voter, ...] = ()
        self.seats = [Seat(self, node_id) for node_id in range(1, voters + 1)]
        if static:
            self.static_voters = tuple(replace(seat.voter, directory_id=Uuid(bytes(16))) for seat in self.seats)
        else:
            for seat in self.seats:
                self.format(seat)

    def format(self, seat: Seat) -> None:
        """What `storage format --initial-controllers` leaves."""
        quorum = QuorumRecords(1, tuple(each.voter for each in self.seats), "CONTROLLER")
        content = build_snapshot(
            (),
            metadata_version=30,
            epoch=LeaderEpoch(0),
            last_contained_timestamp_ms=0,
            now_ms=0,
            quorum=quorum,
        )
        seat.put(f"{DIRECTORY}/{BOOTSTRAP_SNAPSHOT.file_name}", content)

    def observer(self, node_id: int, *, may_vote: bool = False) -> Seat:
        """A broker, or a controller that has no vote yet."""
        seat = Seat(self, node_id, may_vote=may_vote)
        self.seats.append(seat)
        return seat

    def run(self, test: Callable[[], Coroutine[Any, Any, ResultT]]) -> ResultT:
        """The test, and nothing that failed unseen."""
        result: ResultT = self.loop.run_until_complete(test())
        for seat in self.seats:
            if seat.is_up:
                seat._end()
        assert self.loop.failures == []
        return result

    async def start(self) -> None:
        for seat in self.seats:
            await seat.start()

    async def begun(self) -> Seat:
        """All are up and know what a cluster begins with; the active controller."""
        await self.start()
        leader = await self.active()
        await self.bootstrap(leader)
        return leader

    async def active(self, *, within_s: float = 10) -> Seat:
        """Whoever is the active controller, once somebody is."""
        deadline = self.loop.time() + within_s
        while self.loop.time() < deadline:
            for seat in self.seats:
                if seat.is_up and seat.life is not None and seat.life.held is None and seat.quorum.is_active:
                    return seat
            await asyncio.sleep(0.001)
        raise AssertionError("nobody became the active controller")

    async def ask(self, seat: Seat, request: Message, version: int | None = None) -> Any:
        """What a client that connects to that controller is answered."""
        connection = await Connection.open(
            self.internet.attach("client", Life("client")),
            host=seat.name,
            port=PORT,
            client_id="client",
            timeout_ms=5000,
        )
        try:
            assert request.api_key is not None
            kind = response_class(ApiKey(request.api_key))
            chosen = request.max_stable_version if version is None else version
            return await connection.ask(request, kind, chosen, timeout_ms=30_000)
        finally:
            connection.close()

    async def append(self, seat: Seat, *records: Message) -> None:
        assert seat.life is not None
        await self.loop.create_task(seat.quorum.append([records]), context=seat.life.context)

    async def bootstrap(self, seat: Seat) -> None:
        await self.append(seat, *default_bootstrap_records())

    async def agree(self, *seats: Seat, within_s: float = 10) -> None:
        """Wait until these (or all that are up) have one image."""
        deadline = self.loop.time() + within_s
        while self.loop.time() < deadline:
            images = [replace(seat.quorum.image, provenance=None) for seat in seats or self.seats if seat.is_up]
            if all(image == images[0] for image in images):
                return
            await asyncio.sleep(0.01)
        raise AssertionError("the images differ")


def setting(name: str, text: str = "x") -> ConfigRecord:
    """A small record that shows in the image."""
    return ConfigRecord(resource_type=2, resource_name="t", name=name, value=text)


def settings_in(seat: Seat) -> list[str]:
    return sorted(seat.quorum.image.configs.of(2, "t"))
