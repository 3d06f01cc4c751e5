"""A run of a cluster: nodes agree on metadata while they crash, stall and lose sight of each other."""

from __future__ import annotations

import asyncio
import functools
import random
from collections.abc import Mapping, Sequence

from odradek.ids import NodeId, Uuid
from odradek.metadata.raft.voters import Voter
from odradek.metadata.uuids import random_uuid
from odradek.server.configs.node_config import load
from odradek.server.membership.identity import all_directories, format_directories
from odradek.sim.checkers.quorum_settles import unsettled
from odradek.sim.cluster import HASTE, Cluster
from odradek.sim.entropy import SimulatedEntropy
from odradek.sim.history import ChangeAnswered, Committed, DiskLost, History, LeaderKnown, NodeView, QuorumSettled
from odradek.sim.loop import Life
from odradek.sim.machine import Machine
from odradek.sim.metadata_workload import MetadataClient
from odradek.sim.probes import ProbedNode
from odradek.sim.quorum_faults import QuorumFaults
from odradek.sim.voter_changes import Controller, VoterChanges
from odradek.values import value

STATES = (
    "election",
    "leader resigned",
    "pre-vote refused",
    "snapshot fetched",
    "truncation after divergence",
    "voter added",
    "voter removed",
    "fenced",
    "unfenced",
    "process crash",
    "power loss",
    "power loss took data",
    "all nodes crashed",
    "crash inside a write",
    "crash before a change of names",
    "clean restart",
    "process held",
    "listener refuses controllers",
    "controllers never reach a broker",
    "dead broker fenced early",
    "dead broker succeeded early",
    "process slowed",
    "network slowed",
    "nodes cut off",
    "cluster split",
    "one way cut",
    "connection cut",
    "connection stalled",
    "broker replaced",
    "voter lost its disk",
    "voter lost its disk while others are behind",
    "voter without its disk struck again",
    "clock set",
    "static voters",
    "dynamic voters",
    "roles together",
    "roles apart",
)
"""What a set of seeds must have met to prove anything about a quorum."""

CLUSTER_ID = "c2ltdWxhdGlvbi1ydW4tMQ"
BROKER_PORT = 9092
CONTROLLER_PORT = 9093
TWIN = 1000
"""What is added to a node's id in the history where another process has the same one."""
RUN_S = 45.0
"""Within which faults begin; with the time to settle and what comes then, a run takes a minute or more."""
SETTLE_S = 60.0
"""How long a cluster may take to be whole again when nothing goes wrong any more."""
SHORTEST_S = 60.0


@value
class Shape:
    """How many nodes of which kind."""

    combined: int = 0
    controllers: int = 0
    brokers: int = 0
    candidates: int = 0
    """Controllers that are no voters at first; in a dynamic quorum only."""
    dynamic: bool = False


SHAPES = (
    Shape(combined=3),
    Shape(combined=3, brokers=3, dynamic=True),
    Shape(controllers=3, brokers=5),
    Shape(controllers=3, brokers=4, candidates=1, dynamic=True),
    Shape(combined=3, brokers=4),
    Shape(combined=3, brokers=3, candidates=1, dynamic=True),
    Shape(combined=5, brokers=3),
    Shape(controllers=1, brokers=4, candidates=2, dynamic=True),
)
"""Most have more brokers than controllers, as clusters do."""


@value
class Member:
    """A node of the cluster."""

    node_id: int
    roles: str
    voter: bool

    @property
    def name(self) -> str:
        return f"node-{self.node_id}"

    @property
    def is_broker(self) -> bool:
        return "broker" in self.roles

    @property
    def is_controller(self) -> bool:
        return "controller" in self.roles


def members(shape: Shape) -> list[Member]:
    kinds = (
        (shape.combined, "broker,controller", True),
        (shape.brokers, "broker", False),
        (shape.controllers, "controller", True),
        (shape.candidates, "controller", False),
    )
    found: list[Member] = []
    for count, roles, voter in kinds:
        found += [Member(len(found) + 1 + number, roles, voter) for number in range(count)]
    return found


class QuorumCluster(Cluster):
    """Machines formatted as a cluster's, with probes on their nodes."""

    features: Mapping[str, int] = {}
    """Levels that it is formatted with, where they are not the newest."""

    def __init__(
        self,
        seed: int,
        history: History,
        *,
        shapes: Sequence[Shape] = SHAPES,
        properties: Mapping[str, str] | None = None,
    ) -> None:
        """`properties` are those of all nodes, beside what they need to be a cluster."""
        draw = random.Random(f"{seed}/shape")
        self.shape = draw.choice(shapes)
        self.members = {member.name: member for member in members(self.shape)}
        history.observers = tuple(member.name for member in self.members.values() if not member.is_controller)
        machines = _properties(self.shape, list(self.members.values()), draw)
        machines = {name: own | dict(properties or {}) for name, own in machines.items()}
        super().__init__(seed, history, machines=machines)
        voters = _voters(list(self.members.values()), self.draw("directory ids")) if self.shape.dynamic else None
        self.internet.whole = 0.95  # Frames in pieces are met often enough, and cost as much as whole ones.
        self.controllers: dict[int, Controller] = {}
        """All that are or may become voters."""
        for name, machine in self.machines.items():
            member = self.members[name]
            machine.power_is_silent = True
            machine.make_node = functools.partial(ProbedNode, machine, member.node_id)
            _provide(machine)
            directory_id = _format(
                machine, voters, SimulatedEntropy(self.draw(f"{name} format")), features=self.features
            )
            if member.is_controller:
                self.controllers[member.node_id] = Controller(member.node_id, name, CONTROLLER_PORT, directory_id)
            self.internet.machines[name] = None
        self.twins = self._twins()
        self.trace.mark("dynamic voters" if self.shape.dynamic else "static voters")
        self.trace.mark("roles together" if self.shape.combined else "roles apart")

    def _twins(self) -> tuple[Machine, Machine] | None:
        """A broker's machine and another that can take its place; none where brokers are controllers as well."""
        brokers = [member for member in self.members.values() if not member.is_controller]
        if not brokers:
            return None
        machine = self.machines[brokers[0].name]
        name = f"{machine.name}-twin"
        listeners = machine.properties["listeners"].replace(machine.name, name)
        twin = Machine(self, name, machine.properties | {"listeners": listeners})
        twin.make_node = functools.partial(ProbedNode, twin, TWIN + brokers[0].node_id)
        _format(twin, None, SimulatedEntropy(self.draw(f"{name} format")), features=self.features)
        return machine, twin

    def abandon(self) -> None:
        super().abandon()
        if self.twins is not None:
            self.twins[1].abandon()

    def leader(self) -> Machine | None:
        """Who leads the quorum, as far as it knows itself; of several the one with the newest epoch."""
        led = [
            (machine.node.rooms.quorum.epoch, machine)
            for machine in self.machines.values()
            if machine.is_up and machine.node is not None and machine.node.rooms.quorum.is_active
        ]
        return max(led, key=lambda each: each[0])[1] if led else None

    def views(self) -> tuple[NodeView, ...]:
        """Every node, and what it knows."""
        found = []
        for name, machine in self.machines.items():
            member = self.members[name]
            if machine.is_up and machine.node is not None:
                quorum = machine.node.rooms.quorum
                seen = NodeView(
                    member.node_id, member.is_broker, True, quorum.leader_id, quorum.epoch, machine.node.rooms.image
                )
            else:
                alive = machine.life is not None and machine.life.alive
                seen = NodeView(member.node_id, member.is_broker, alive, -1, -1, None)
            found.append(seen)
        return tuple(found)

    def spare(self) -> list[Machine]:
        """Those without whom there are still a majority of the voters and a broker."""
        leader = self.leader()
        voters = (
            [] if leader is None or leader.node is None else [each.node_id for each in leader.node.rooms.quorum.voters]
        )
        spare = []
        for name, machine in self.machines.items():
            others = [member for member in self.members.values() if member.name != name]
            majority = sum(member.node_id in voters for member in others) * 2 > len(voters)
            if majority and any(member.is_broker for member in others):
                spare.append(machine)
        return spare

    def voters(self) -> list[Machine]:
        """Of a static quorum."""
        return [self.machines[member.name] for member in self.members.values() if member.voter]

    def leads_quorum(self, machine: Machine) -> bool:
        return machine.is_up and machine.node is not None and machine.node.rooms.quorum.is_active

    def may_lose_disk(self, machine: Machine) -> bool:
        """As long as every voter knows what it once promised, and of something that is committed."""
        voters = self.voters()
        return machine in voters and len(voters) > 1 and all(_remembers(voter) for voter in voters)

    def replace_disk(self, machine: Machine) -> None:
        machine.device.lose()
        _provide(machine)
        entropy = SimulatedEntropy(self.draw(f"{machine.name} format {machine.lives}"))
        _format(machine, None, entropy, features=self.features)
        self.history.add(DiskLost(self.members[machine.name].node_id))

    @property
    def brokers(self) -> list[tuple[str, int]]:
        return [(member.name, BROKER_PORT) for member in self.members.values() if member.is_broker]

    def addresses(self) -> list[str]:
        return [f"{host}:{port}" for host, port in self.brokers]


def _remembers(machine: Machine) -> bool:
    if not machine.is_up or machine.node is None:
        return False
    raft = machine.node.rooms.quorum.raft
    return raft.amnesia is None and raft.high_watermark > 0


def _properties(shape: Shape, nodes: list[Member], draw: random.Random) -> dict[str, dict[str, str]]:
    """What nodes wait for is shortened, and limits are small, so that a minute has more to offer."""
    shared = HASTE | {
        "log.dirs": "/data",
        "log.retention.check.interval.ms": "5000",
        "log.flush.scheduler.interval.ms": "5000",
        "log.flush.offset.checkpoint.interval.ms": "10000",
        "log.flush.start.offset.checkpoint.interval.ms": "10000",
        "replica.high.watermark.checkpoint.interval.ms": "5000",
        "controller.listener.names": "CONTROLLER",
        "broker.session.timeout.ms": "4000",
        "broker.heartbeat.interval.ms": "1000",
        "metadata.log.max.record.bytes.between.snapshots": draw.choice(("2500", "6000", "20971520")),
        "metadata.max.retention.bytes": "1",
        "controller.quorum.fetch.max.bytes": draw.choice(("1", "400", "1048576")),
        "controller.quorum.fetch.snapshot.max.bytes": draw.choice(("700", "1048576")),
    }
    controllers = [node for node in nodes if node.is_controller]
    if shape.dynamic:
        servers = ",".join(f"{node.name}:{CONTROLLER_PORT}" for node in controllers if node.voter)
        shared["controller.quorum.bootstrap.servers"] = servers
    else:
        voters = ",".join(f"{node.node_id}@{node.name}:{CONTROLLER_PORT}" for node in controllers)
        shared["controller.quorum.voters"] = voters
    return {
        node.name: shared
        | {"process.roles": node.roles, "node.id": str(node.node_id), "listeners": ",".join(_listeners(node))}
        for node in nodes
    }


def _listeners(node: Member) -> list[str]:
    broker = [f"PLAINTEXT://{node.name}:{BROKER_PORT}"] if node.is_broker else []
    return broker + ([f"CONTROLLER://{node.name}:{CONTROLLER_PORT}"] if node.is_controller else [])


def _voters(nodes: list[Member], draw: random.Random) -> tuple[Voter, ...]:
    entropy = SimulatedEntropy(draw)
    return tuple(
        Voter(NodeId(node.node_id), node.name, CONTROLLER_PORT, random_uuid(entropy)) for node in nodes if node.voter
    )


def _provide(machine: Machine) -> None:
    for log_dir in machine.properties["log.dirs"].split(","):
        machine.device.provide(log_dir)


def _format(
    machine: Machine, voters: tuple[Voter, ...] | None, entropy: SimulatedEntropy, *, features: Mapping[str, int]
) -> Uuid:
    """As an administrator does before the first start; no crash takes it back. Which id the directory got."""
    config = load(machine.properties, host_name=machine.name)
    plan = format_directories(
        config,
        machine.device.attach(Life(f"{machine.name} format")),
        entropy,
        now_ms=machine.clock.now_ms(),
        cluster_id=CLUSTER_ID,
        unformatted=all_directories(config),
        initial_controllers=voters,
        features=features,
    )
    machine.device.settle()
    return plan.directories[0].directory_id


async def scenario(cluster: Cluster, *, power: bool) -> None:
    assert isinstance(cluster, QuorumCluster)
    draw = cluster.draw("scenario")
    disks = None if cluster.shape.dynamic else cluster
    faults = QuorumFaults(cluster, power=power, leader=cluster.leader, twins=cluster.twins, disks=disks)
    for machine in cluster.machines.values():
        faults.start(machine)
    clients = [
        MetadataClient(cluster, f"client-{number}", cluster.addresses()) for number in range(draw.choice((1, 2)))
    ]
    working = [asyncio.create_task(client.run()) for client in clients]
    if cluster.shape.candidates:
        changes = VoterChanges(cluster, cluster.addresses(), cluster.controllers)
        working.append(asyncio.create_task(changes.run()))
    await asyncio.sleep(draw.random() * 4)
    await faults.run(draw.randrange(3, 9), RUN_S)
    checking = MetadataClient(cluster, "checking", cluster.addresses())
    await settle(cluster, checking)
    left_s = SHORTEST_S - cluster.loop.time()
    if left_s > 0:
        await asyncio.sleep(left_s)
    for task in working:
        task.cancel()
    await asyncio.gather(*working, return_exceptions=True)
    spare = cluster.spare() if all(map(_remembers, cluster.voters())) else []  # Who does not, does not elect (ADR 18).
    if spare and draw.random() < 0.5:
        await draw.choice(spare).crash("process")
        await settle(cluster, checking)
    _mark_states(cluster)


async def settle(cluster: QuorumCluster, client: MetadataClient) -> None:
    """Wait until the cluster is whole, or for as long as that may take; note how it stands."""
    began = cluster.loop.time()
    while True:
        await asyncio.sleep(0.5)
        views = cluster.views()
        waited_s = cluster.loop.time() - began
        wrong = unsettled(views)
        if not wrong or waited_s > SETTLE_S:
            cluster.trace.note("cluster", "is not settled" if wrong else f"is settled after {waited_s:.1f} s")
            answers = await client.change_once()
            cluster.history.add(QuorumSettled(views, waited_s, answers))
            return


def _mark_states(cluster: QuorumCluster) -> None:
    """What became of the quorum, as its nodes saw it."""
    trace = cluster.trace
    led: dict[int, int] = {}
    fenced: dict[int, bool] = {}
    newest = -1
    for event in cluster.history.events:
        if isinstance(event, LeaderKnown) and event.leader_id == event.node_id and event.epoch not in led:
            led[event.epoch] = event.leader_id
            trace.mark("election")
        elif isinstance(event, Committed) and event.image.provenance.offset > newest:
            newest = event.image.provenance.offset
            for broker in event.image.cluster.brokers.values():
                if fenced.get(broker.broker_id, True) != broker.fenced:
                    trace.mark("fenced" if broker.fenced else "unfenced")
                fenced[broker.broker_id] = broker.fenced
        elif isinstance(event, ChangeAnswered):
            trace.mark("change answered")
