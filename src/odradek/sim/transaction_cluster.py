"""A cluster in which transactions are coordinated, and what can be seen of them from outside."""

from __future__ import annotations

import asyncio
import functools
import random
from collections.abc import Callable, Iterator
from types import MappingProxyType
from typing import TYPE_CHECKING

from odradek.coordinator.transaction.shard import TransactionShard
from odradek.coordinator.transaction.state import COMPLETE, State
from odradek.ids import NodeId
from odradek.metadata.topic_names import TRANSACTION_TOPIC
from odradek.ports import FileSlice
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnTransaction
from odradek.protocol.records.batch import decode_records, iter_batches, read_header
from odradek.protocol.records.control import read_end_txn_marker
from odradek.server.partitions.hosted_partition import HostedPartition
from odradek.sim.history import GROUPS, LoggedBatch, LogHeld, Partition
from odradek.sim.loop import Crashed
from odradek.sim.machine import Machine
from odradek.sim.replication_cluster import MIN, REPLICAS, ReplicatedNode, ReplicationCluster
from odradek.sim.workload import TopicPlan
from odradek.storage.log import AppendInfo, Transaction
from odradek.storage.validation import Examined, Origin

if TYPE_CHECKING:
    from odradek.coordinator.shard import Effect
    from odradek.server.coordinators.marker_sender import Codes as MarkerCodes
    from odradek.server.coordinators.marker_sender import Told
    from odradek.server.coordinators.transactions import TransactionRunner
    from odradek.server.coordinators.verification import Codes

STATE_PARTITIONS = 2
STATE_LOGS = tuple(Partition(TRANSACTION_TOPIC, index) for index in range(STATE_PARTITIONS))
INPUT = TopicPlan("input", 2, (MIN,))
COPIES = TopicPlan("copies", 3, (MIN,))
ECHOES = TopicPlan("echoes", 2, (MIN, ("segment.ms", "1500"), ("index.interval.bytes", "1")))
"""Beside the copies, in the same transactions; old ones are deleted."""
FLEETING = "fleeting"
"""A topic that is written to in transactions as well, and deleted and made anew meanwhile."""
OLD_VERSION = 0.3
"""How many clusters begin at transaction.version 0."""
LATE_ANSWERS, LATE_MARKERS, LOST_ANSWERS = 0.03, 0.05, 0.05
LATEST_S = 12.0
"""Longer than most transactions may stay open."""


class TransactionCluster(ReplicationCluster):
    """Whoever writes to its output does so in transactions."""

    plans = (INPUT, COPIES, ECHOES)
    internal = (GROUPS, *STATE_LOGS)
    is_fixed = True
    settings = MappingProxyType(
        {
            "transaction.state.log.num.partitions": str(STATE_PARTITIONS),
            "transaction.state.log.replication.factor": str(REPLICAS),
            "transaction.state.log.min.isr": "2",
            "transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000",
            "transaction.max.timeout.ms": "20000",
        }
    )

    def __init__(self, seed: int, *, power: bool) -> None:
        self.begins_old = random.Random(f"{seed}/transaction.version").random() < OLD_VERSION
        if self.begins_old:
            self.features = {"transaction.version": 0}
        super().__init__(seed, power=power)
        self.output = [partition for partition in self.partitions if partition.topic != INPUT.name]
        for name, machine in self.machines.items():
            machine.make_node = functools.partial(TransactionNode, self, machine, self.members[name].node_id)

        self.on_step: Callable[[Machine, str], bool] | None = None
        """Asked at every step of a transaction's end that a node is about to make: whether it dies there."""

    def step(self, machine: Machine, what: str) -> None:
        if self.on_step is not None and machine.life is not None and self.on_step(machine, what):
            self.trace.note(machine.name, f"is struck before {what}")
            machine.life.alive = False
            raise Crashed(what)

    def led(self, partition: Partition) -> tuple[Machine, HostedPartition] | None:
        """Who leads a partition, as the cluster has agreed."""
        agreed = self.registration(partition)
        for machine, hosted in self.hosted(partition):
            replica = hosted.partition
            if agreed is not None and replica.is_leader and replica.state.leader_epoch == agreed.leader_epoch:
                return machine, hosted
        return None

    def end_of(self, partition: Partition) -> int:
        """Where a partition ends on who leads it; 0 if nobody does just now."""
        led = self.led(partition)
        return 0 if led is None else int(led[1].partition.log.log_end_offset)

    def undecided(self) -> list[str]:
        """Transactions that have not ended, and partitions with something that is not stable yet."""
        found = []
        for log in STATE_LOGS:
            shard = self.shard(log)
            if shard is None:
                found.append(f"{log} has no coordinator")
                continue
            found += [
                f"{known.transactional_id} is {known.state.title} in {known.partitions}"
                for known in shard.transactions.values()
                if known.state is not State.EMPTY and known.state not in COMPLETE
            ]
        for partition in (*self.output, GROUPS, *self.fleeting()):
            led = self.led(partition)
            if led is None:
                found.append(f"{partition} has no leader")
                continue
            held = led[1].partition.log
            if not held.last_stable_offset == held.high_watermark == held.log_end_offset:
                found.append(
                    f"{partition} is stable up to {held.last_stable_offset}, committed up to {held.high_watermark} "
                    f"and ends at {held.log_end_offset}"
                )
        return found

    def shard(self, log: Partition) -> TransactionShard | None:
        """The coordinator behind a partition of the transactions' log, once it is loaded."""
        led = self.led(log)
        node = None if led is None else led[0].node
        runner = None if node is None else node.rooms.transactions._runners.get(log.index)
        return None if runner is None or runner.state else runner.shard

    def fleeting(self) -> list[Partition]:
        """The partitions that this topic has now."""
        topic = None if self.image is None else self.image.topics.by_name.get(FLEETING)
        return [] if topic is None else [Partition(FLEETING, index) for index in range(len(topic.partitions))]

    def note_log(self, partition: Partition) -> None:
        """What the leader of a partition holds."""
        led = self.led(partition)
        assert led is not None, f"{partition} has no leader"
        held = led[1].partition.log
        self.history.add(
            LogHeld(
                partition,
                int(held.log_start_offset),
                int(held.log_end_offset),
                int(held.last_stable_offset),
                tuple(_batches(led[1])),
            )
        )


class TransactionNode(ReplicatedNode):
    """A node that may die between any two steps, and whose questions about transactions may take their time.

    What takes long here is the network: answers come late, or are lost after what was asked for has been done.
    """

    _cluster: TransactionCluster

    def _open_replicas(self) -> None:
        super()._open_replicas()
        draw = self._cluster.draw(f"{self._machine.name} transactions {self._machine.lives}")
        verifier, coordinators = self.rooms.verifier, self.rooms.transactions
        markers = coordinators._markers
        verify, tell, begin, append = verifier._ask, markers._ask, coordinators.begin, self.rooms.replicas.append

        async def verified(asked: AddPartitionsToTxnTransaction) -> Codes:
            codes = await verify(asked)
            if draw.random() < LATE_ANSWERS:
                self._trace("verification answered late")
                await asyncio.sleep(draw.random() * LATEST_S)
            return codes

        async def told(leader: NodeId, sent: list[Told]) -> MarkerCodes:
            self._cluster.step(self._machine, "markers")
            if sent and draw.random() < LATE_MARKERS:
                self._trace("markers late")
                await asyncio.sleep(draw.random() ** 2 * LATEST_S)
            codes = await tell(leader, sent)
            self._cluster.step(self._machine, "markers are known to be written")
            if sent and draw.random() < LOST_ANSWERS:
                self._trace("answer to markers lost")
                raise KafkaError(ErrorCode.NETWORK_EXCEPTION)
            return codes

        def begun(runner: TransactionRunner, effect: Effect) -> None:
            self._cluster.step(self._machine, "an end that is committed")
            begin(runner, effect)

        def appended(
            hosted: HostedPartition,
            batch: memoryview,
            now_ms: int,
            origin: Origin = Origin.CLIENT,
            acks_all: bool = False,
            examined: Examined | None = None,
            transaction: Transaction = None,
        ) -> AppendInfo:
            watched = hosted.topic == TRANSACTION_TOPIC or read_header(batch).is_control
            if watched:
                self._cluster.step(self._machine, f"an append to {hosted}")
            info = append(hosted, batch, now_ms, origin, acks_all, examined, transaction)
            if watched:
                self._cluster.step(self._machine, f"what follows an append to {hosted}")
            return info

        verifier._ask = verified  # type: ignore[method-assign]
        markers._ask = told  # type: ignore[method-assign]
        coordinators.begin = begun  # type: ignore[method-assign]
        self.rooms.replicas.append = appended  # type: ignore[method-assign]

    def _trace(self, mark: str) -> None:
        self._cluster.trace.note(self._machine.name, mark)
        self._cluster.trace.mark(mark)


def _batches(hosted: HostedPartition) -> Iterator[LoggedBatch]:
    log = hosted.partition.log
    offset = int(log.log_start_offset)
    while offset < log.log_end_offset:
        read = log.read(offset, max_bytes=1 << 20, end_offset=log.log_end_offset, minimum_one=True).records
        data = read.read() if isinstance(read, FileSlice) else read
        for batch in iter_batches(memoryview(data)):
            header = read_header(batch)
            offset = header.last_offset + 1
            marker = read_end_txn_marker(batch) if header.is_control else None
            yield LoggedBatch(
                header.base_offset,
                header.last_offset,
                header.producer_id,
                header.producer_epoch,
                header.is_transactional,
                "" if marker is None else "commit" if marker.committed else "abort",
                () if header.is_control else tuple(record.value or b"" for record in decode_records(batch)),
            )
