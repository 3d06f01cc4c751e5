"""A cluster with replicated partitions, and what can be seen of them from outside."""

from __future__ import annotations

import asyncio
import functools
import random
from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

from odradek.ids import NodeId
from odradek.metadata.image import Changes, Image
from odradek.metadata.image.topics import PartitionRegistration
from odradek.metadata.raft.snapshot import Snapshot, SnapshotId
from odradek.ports import World
from odradek.protocol.errors import ErrorCode
from odradek.protocol.records.batch import read_header
from odradek.replication.isr import IsrProposal
from odradek.server.configs.node_config import NodeConfig
from odradek.server.coordinators.groups import GroupRunner
from odradek.server.membership.identity import Identity
from odradek.server.partitions.hosted_partition import HostedPartition
from odradek.sim.directory_changes import LOG_DIRS
from odradek.sim.groups import properties as group_properties
from odradek.sim.history import GROUPS, History, Partition
from odradek.sim.machine import Machine
from odradek.sim.network import SimulatedWire
from odradek.sim.probes import ProbedNode
from odradek.sim.quorum import QuorumCluster, Shape
from odradek.sim.workload import TopicPlan
from odradek.storage.log import AppendInfo, Transaction
from odradek.storage.validation import Examined, Origin

SHAPES = (
    Shape(combined=3),
    Shape(combined=3, brokers=1),
    Shape(controllers=1, brokers=3),
    Shape(controllers=1, brokers=3),
)
MIN_ISR = 2
MIN = ("min.insync.replicas", str(MIN_ISR))
PLANS = (
    TopicPlan("three", 2, (MIN,)),
    TopicPlan("three-small", 1, (MIN, ("segment.ms", "1500"), ("index.interval.bytes", "1"))),
)
REPLICAS = 3
PROPERTIES = group_properties(power=False) | {
    "replica.lag.time.max.ms": "3000",
    "replica.fetch.backoff.ms": "300",
    "min.insync.replicas": str(MIN_ISR),
    "log.flush.offset.checkpoint.interval.ms": "3000",
    "offsets.topic.num.partitions": "1",
    "offsets.topic.replication.factor": str(REPLICAS),
    "offsets.load.buffer.size": "1000",
}
FLUSHED = {"log.flush.interval.messages": "1"}
"""Of clusters all of whose nodes may lose power at once."""
UNFLUSHED = {"log.flush.interval.ms": str((1 << 63) - 1)}
"""Of the others, as by default: no append waits for the disk, and those that are acknowledged take the fast path."""

TWO_DIRECTORIES = 0.4
"""How many clusters have brokers with two log directories."""

OPERATED = 0.8
"""Of the other clusters."""

LOAD_PAUSES_S = (0.0, 0.05, 0.3)
"""How long a coordinator may stop between two slices of the log that it loads, by cluster."""
LOAD_SLICE_ENDS = 0.15
"""How probable that is after each step; a made-up clock stands still in steps."""

OnProposal: TypeAlias = Callable[[Machine, HostedPartition, IsrProposal], None]


class ReplicationCluster(QuorumCluster):
    """Three brokers or four, and topics with three replicas each, that of the groups' offsets among them."""

    plans: Sequence[TopicPlan] = PLANS
    internal: Sequence[Partition] = (GROUPS,)
    """Partitions of topics that are there once somebody has wanted them."""
    settings: Mapping[str, str] = {}
    """Properties of its nodes beside `PROPERTIES`."""
    is_fixed = False
    """Whether nobody changes its topics or its brokers' directories."""

    def __init__(self, seed: int, *, power: bool) -> None:
        self.flushed = power and random.Random(f"{seed}/flushed").random() < 0.4
        """Whether everything is synced before it counts, so that the power of all nodes may be lost at once."""
        properties = PROPERTIES | dict(self.settings) | (FLUSHED if self.flushed else UNFLUSHED)
        self.partitions = [Partition(plan.name, index) for plan in self.plans for index in range(plan.partitions)]
        self.all_partitions = [*self.partitions, *self.internal]
        self.two_directories = not self.is_fixed and random.Random(f"{seed}/two directories").random() < TWO_DIRECTORIES
        """Whether its brokers have two log directories, to which operators do something."""
        if self.two_directories:
            properties |= {"log.dirs": LOG_DIRS}
        self.is_operated = (
            not self.is_fixed and not self.two_directories and random.Random(f"{seed}/operated").random() < OPERATED
        )
        """Whether an operator changes topics. Checkers cannot tell yet what these keep when a disk is lost as well."""
        durable = (*(plan.name for plan in self.plans), *(each.topic for each in self.internal))
        super().__init__(seed, History(durable, synced=self.flushed), shapes=SHAPES, properties=properties)
        self.load_pause_s = random.Random(f"{seed}/load pause").choice(LOAD_PAUSES_S)
        self.on_proposal: OnProposal | None = None
        """Told when a leader asks the controller for another ISR, before it has asked."""
        self.zombie_appends: dict[tuple[Partition, int, int], None] = {}
        """Batches (by producer id and sequence) that a leader took after the cluster had agreed on another one."""
        self._image: Image | None = None
        for name, machine in self.machines.items():
            machine.make_node = functools.partial(ReplicatedNode, self, machine, self.members[name].node_id)

    # What the cluster has agreed on.

    @property
    def image(self) -> Image | None:
        """The newest that any node has seen."""
        return self._image

    def registration(self, partition: Partition) -> PartitionRegistration | None:
        """A partition as the newest image has it that any node has seen."""
        topic = None if self._image is None else self._image.topics.by_name.get(partition.topic)
        return None if topic is None or partition.index >= len(topic.partitions) else topic.partitions[partition.index]

    def learn(self, image: Image) -> None:
        """A node has seen that this is committed."""
        if self._image is not None and image.provenance.offset <= self._image.provenance.offset:
            return
        before = {partition: self.registration(partition) for partition in self.all_partitions}
        self._image = image
        for partition, old in before.items():
            new = self.registration(partition)
            if old is not None and new is not None and old is not new and new.leader >= 0:
                if new.leader_epoch > old.leader_epoch:
                    self.trace.mark("leader moved")
                if new.leader != old.leader and new.leader in old.elr and new.leader not in old.isr:
                    self.trace.mark("leader elected from the ELR")

    def is_registered(self, machine: Machine) -> bool:
        """Whether the newest image has the broker that runs there now, and has unfenced it."""
        node_id = NodeId(self.members[machine.name].node_id)
        broker = None if self._image is None else self._image.cluster.brokers.get(node_id)
        lifecycle = getattr(machine.node and machine.node.rooms, "lifecycle", None)
        return (
            broker is not None
            and not broker.fenced
            and lifecycle is not None
            and lifecycle.broker_epoch == broker.broker_epoch
        )

    def node_named(self, node_id: int) -> Machine:
        return self.machines[f"node-{node_id}"]

    def controller(self) -> Machine | None:
        """Whose node is the active controller."""
        return super().leader()

    # What its nodes hold.

    def hosted(self, partition: Partition) -> list[tuple[Machine, HostedPartition]]:
        """Its replicas on nodes that are up."""
        found = []
        for machine in self.machines.values():
            if machine.is_up and machine.node is not None and machine.node.config.is_broker:
                hosted = machine.node.rooms.replicas.find(partition.topic, partition.index)
                if hosted is not None:
                    found.append((machine, hosted))
        return found

    def has_deposed_coordinator(self) -> bool:
        agreed = self.registration(GROUPS)
        return agreed is not None and any(
            hosted.partition.is_leader and hosted.partition.state.leader_epoch < agreed.leader_epoch
            for _, hosted in self.hosted(GROUPS)
        )

    def all_in_sync(self) -> bool:
        """Whether every replica is where it should be and has everything, and all know that."""
        wanted = [each for each in self.internal if self.registration(each)]
        return all(self._is_in_sync(each) for each in (*self.partitions, *wanted))

    def _is_in_sync(self, partition: Partition) -> bool:
        agreed = self.registration(partition)
        if agreed is None or len(agreed.isr) < REPLICAS:
            return False
        replicas = self.hosted(partition)
        leading = [hosted.partition for _, hosted in replicas if hosted.partition.is_leader]
        if len(replicas) < REPLICAS or len(leading) != 1:
            return False
        leader = leading[0]
        ends = {hosted.partition.log.log_end_offset for _, hosted in replicas}
        return (
            leader.state.leader_epoch == agreed.leader_epoch
            and leader.state.isr == agreed.isr
            and len(ends) == 1
            and leader.log.high_watermark in ends
        )

    def leader(self) -> Machine | None:
        """Faults like to strike who leads partitions, now and then the controller."""
        led = [
            machine for each in self.partitions for machine, hosted in self.hosted(each) if hosted.partition.is_leader
        ]
        return led[0] if led else super().leader()


class ReplicatedNode(ProbedNode):
    """A node whose partitions are looked at as well."""

    def __init__(
        self, cluster: ReplicationCluster, machine: Machine, known_as: int, config: NodeConfig, world: World
    ) -> None:
        super().__init__(machine, known_as, config, world)
        self._cluster = cluster
        self._loads = cluster.draw(f"{machine.name} loads {machine.lives}")

    def _open_quorum(self, identity: Identity) -> None:
        super()._open_quorum(identity)
        on_commit, take_snapshot = self.rooms.quorum.on_commit, self.rooms.quorum.take_snapshot

        async def committed(image: Image, changes: Changes) -> None:
            self._cluster.learn(image)
            await on_commit(image, changes)

        async def taken(snapshot_id: SnapshotId, snapshot: Snapshot, content: bytearray) -> None:
            await take_snapshot(snapshot_id, snapshot, content)
            self._cluster.trace.mark("snapshot loaded")

        self.rooms.quorum.on_commit = committed
        self.rooms.quorum.take_snapshot = taken  # type: ignore[method-assign]

    def _open_replicas(self) -> None:
        super()._open_replicas()
        propose, append = self.rooms.replicas.on_proposal, self.rooms.replicas.append
        load = self.rooms.groups._load_in_turns

        def proposed(hosted: HostedPartition, proposal: IsrProposal) -> None:
            if self._cluster.on_proposal is not None:
                self._cluster.on_proposal(self._machine, hosted, proposal)
            propose(hosted, proposal)

        def appended(
            hosted: HostedPartition,
            batch: memoryview,
            now_ms: int,
            origin: Origin = Origin.CLIENT,
            acks_all: bool = False,
            examined: Examined | None = None,
            transaction: Transaction = None,
        ) -> AppendInfo:
            self._note_zombie(hosted, batch)
            return append(hosted, batch, now_ms, origin, acks_all, examined, transaction)

        async def loaded(runner: GroupRunner) -> None:
            await load(runner)
            if runner.shard.offsets:
                self._cluster.trace.mark("coordinator reloaded")
            self._judge_load(runner)

        self.rooms.replicas.on_proposal = proposed
        self.rooms.replicas.append = appended  # type: ignore[method-assign]
        self.rooms.groups._load_in_turns = loaded  # type: ignore[method-assign]
        self.rooms.groups.give_way = self._give_way  # type: ignore[method-assign]
        self.rooms.groups.slice_is_over = self._slice_is_over  # type: ignore[method-assign]

    def _slice_is_over(self) -> bool:
        return self._loads.random() < LOAD_SLICE_ENDS

    async def _give_way(self) -> None:
        """As if there were much more to load."""
        await asyncio.sleep(self._loads.random() * self._cluster.load_pause_s)

    def _judge_load(self, runner: GroupRunner) -> None:
        """Whoever takes its place meanwhile must be the only one that runs on this log."""
        current = self.rooms.groups._runners.get(runner.hosted.index)
        if current is runner:
            return
        self._cluster.trace.mark("load of a coordinator cut short")
        if current is not None:
            self._cluster.trace.mark("coordinator back before its load was over")
        if runner.state is ErrorCode.NONE:
            self._cluster.loop.failures.append(f"a coordinator of {runner.hosted} began after it had resigned")

    async def _open_partitions(self) -> None:
        device = self._machine.device
        device.is_recovering = True
        try:
            await super()._open_partitions()
        finally:
            device.is_recovering = False

    def controller_wire(self) -> SimulatedWire | None:
        """By which leaders on this node ask for other ISRs, if there is a connection now."""
        connection = self.rooms.channel._connection
        wire = None if connection is None or connection.is_lost else connection._wire
        return wire if isinstance(wire, SimulatedWire) else None

    def _note_zombie(self, hosted: HostedPartition, batch: memoryview) -> None:
        partition = Partition(hosted.topic, hosted.index)
        agreed = self._cluster.registration(partition)
        state = hosted.partition.state
        if agreed is not None and hosted.partition.is_leader and state.leader_epoch < agreed.leader_epoch:
            header = read_header(batch)
            self._cluster.zombie_appends[partition, header.producer_id, header.base_sequence] = None
