"""A run of transactions: copiers work, stall, die and come back as two, while coordinators and leaders go."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence

from odradek.client import Client as LibraryClient
from odradek.client import Consumer, TopicPartition
from odradek.client.errors import ClientError
from odradek.protocol.errors import KafkaError
from odradek.sim.client_process import ClientProcess, Ports
from odradek.sim.cluster import Cluster
from odradek.sim.copier import COMMON, GROUP, Copier, Job
from odradek.sim.entropy import SimulatedEntropy
from odradek.sim.hasty import STATES as HASTY
from odradek.sim.hasty import Hasty
from odradek.sim.history import (
    CommittedRead,
    InputConsumed,
    Partition,
    StableSeen,
    TransactionsSettled,
)
from odradek.sim.impostor import STATES as FENCED
from odradek.sim.impostor import Impostor
from odradek.sim.replication import (
    LOOK_EVERY_S,
    MANY,
    RUN_S,
    SHORTEST_S,
    create_topics,
    end_serving,
    library_client,
    settle,
)
from odradek.sim.replication_clients import LastReader, LeaderProducer
from odradek.sim.trace import OPERATION
from odradek.sim.transaction_cluster import TransactionCluster
from odradek.sim.transaction_faults import TransactionFaults
from odradek.sim.transaction_operator import TransactionOperator

STATES = (
    "copiers share a group",
    "copiers have partitions of their own",
    "transaction committed",
    "transaction aborted",
    "transaction failed",
    "producer fenced",
    "offsets of a former member refused",
    "copier stalled",
    "copier killed",
    "copier held",
    "copier doubled",
    "process crash",
    "power loss",
    "leader moved",
    "coordinator reloaded",
    "coordinator struck",
    "coordinator struck with what it had decided",
    "struck between two steps",
    "verification answered late",
    "markers late",
    "answer to markers lost",
    "output trimmed",
    "topic deleted under transactions",
    "operator passed on a coordinator",
    "transaction.version raised to 1",
    "transaction.version raised to 2",
    *FENCED,
    *HASTY,
)
"""What a set of seeds must have met to prove anything about transactions."""

GROUPED = 0.4
"""How many runs have copiers that are members of a group."""
FEWEST_FAULTS = 3
FEWEST_OPERATIONS = 60
DECIDED_S = 40.0
"""How long transactions may take to end when nothing goes wrong any more: those that nobody ends run into their
timeouts first."""


async def scenario(cluster: Cluster, *, power: bool) -> None:
    assert isinstance(cluster, TransactionCluster)
    draw = cluster.draw("scenario")
    faults = TransactionFaults(cluster, power=power)
    for machine in cluster.machines.values():
        faults.start(machine)
    client = library_client(cluster)
    await create_topics(cluster, client)
    sources = [partition for partition in cluster.partitions if partition not in cluster.output]
    producers = [
        InputProducer(cluster, f"producer-{number}", MANY, partitions=[partition])
        for number, partition in enumerate(sources)
    ]
    is_grouped = draw.random() < GROUPED
    cluster.trace.mark("copiers share a group" if is_grouped else "copiers have partitions of their own")
    positions = dict.fromkeys(sources, 0)
    shifts = [Shift(cluster, Job(cluster, number, positions, is_grouped=is_grouped)) for number in range(len(sources))]
    readers = [CommittedReader(cluster, f"reader-{number}") for number in range(2)]
    watching = asyncio.create_task(_watch(cluster, faults))
    for reader in readers:
        reader.start()
    feeding = [asyncio.create_task(producer.run()) for producer in producers]
    working = [asyncio.create_task(shift.run()) for shift in shifts]
    impostor = Impostor(cluster, [shift.job for shift in shifts])
    operator = TransactionOperator(cluster, client)
    serving = [asyncio.create_task(each.run()) for each in (impostor, operator, Hasty(cluster))]
    await faults.run(draw.randrange(FEWEST_FAULTS, 8), RUN_S)
    await asyncio.sleep(max(SHORTEST_S - cluster.loop.time(), 1))
    for producer in producers:
        producer.finish()
    await asyncio.gather(*feeding)
    await end_serving(serving)
    await settle(cluster)
    for shift in shifts:
        shift.is_ending = True
    await asyncio.gather(*working)
    await _decide(cluster)
    watching.cancel()
    for reader in readers:
        reader.is_leaving = True
    for reader in readers:
        await reader.over.wait()
    await asyncio.gather(watching, return_exceptions=True)
    for partition in sources:
        await LastReader(cluster, partitions=[partition]).run()
    await _read_all(cluster)
    await _note_consumed(cluster, client, sources)
    for partition in cluster.output:
        cluster.note_log(partition)


class InputProducer(LeaderProducer):
    """Feeds the copiers, who need a while for each record."""

    longest_pause_s = 3.0


class Shift:
    """One job, done by one copier after the other, or by two who do not know of each other."""

    def __init__(self, cluster: TransactionCluster, job: Job) -> None:
        self.job = job
        self.is_ending = False
        """Whether nothing more shall happen to copiers; it is over when all is copied."""
        self._cluster = cluster
        self._draw = cluster.draw(f"shift {job.name}")
        self._copiers: list[Copier] = []
        self._lives = 0

    async def run(self) -> None:
        kinds = ((3, self._kill), (3, self._hold), (2, self._double), (2, self._relieve))
        while not self.is_ending:
            copier = self._begin()
            await self._wait(copier, self._draw.uniform(1, 9))
            if not copier.over.is_set():
                ((_, happen),) = self._draw.choices(kinds, [weight for weight, _ in kinds])
                await happen(copier)
        for copier in self._copiers:
            if copier.life.held is not None:
                self._cluster.loop.go_on(copier.life)
        await self._finish()

    def _begin(self) -> Copier:
        self._lives += 1
        copier = Copier(self._cluster, self.job, f"{self.job.name}.{self._lives}")
        self._copiers.append(copier)
        copier.start()
        return copier

    async def _wait(self, copier: Copier, longest_s: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(longest_s):
                await copier.over.wait()

    async def _kill(self, copier: Copier) -> None:
        copier.crash()
        self._cluster.trace.mark("copier killed")
        await asyncio.sleep(self._draw.random() ** 2 * 3)

    async def _hold(self, copier: Copier) -> None:
        """Stopped for so long that another takes its place; then it goes on as if nothing had been."""
        copier.life.held = []
        self._cluster.trace.note(copier.name, "is held")
        self._cluster.trace.mark("copier held")
        waking = asyncio.get_running_loop().call_later(self._draw.uniform(0.5, 14), self._wake, copier)
        assert waking is not None
        await asyncio.sleep(self._draw.random() * 3)

    def _wake(self, copier: Copier) -> None:
        if copier.life.held is not None:
            self._cluster.trace.note(copier.name, "goes on")
            self._cluster.loop.go_on(copier.life)

    async def _double(self, copier: Copier) -> None:
        """Another one is started while it still works."""
        self._cluster.trace.mark("copier doubled")

    async def _relieve(self, copier: Copier) -> None:
        copier.is_leaving = True
        await copier.over.wait()

    async def _finish(self) -> None:
        """Until everything is copied; a copier that is fenced by an older one's successor is followed by another."""
        cluster = self._cluster
        self.job.is_draining = True
        newest = self._copiers[-1] if self._copiers else self._begin()
        while any(self.job.positions[each] < cluster.end_of(each) for each in self.job.sources):
            if newest.over.is_set():
                newest = self._begin()
            await asyncio.sleep(0.3)
        for copier in self._copiers:
            copier.is_leaving = True
        for copier in self._copiers:
            await copier.over.wait()


class CommittedReader(ClientProcess):
    """Follows the output, and sees what is committed."""

    cluster: TransactionCluster

    async def work(self) -> bool:
        consumer = Consumer(self.ports(), _reading(self.cluster, self.name))
        consumer.assign([TopicPartition(each.topic, each.index) for each in self.cluster.output])
        while not self.is_leaving:
            await _poll(self.cluster, self.name, consumer)
            await asyncio.sleep(self.draw.random() * 0.5)
        await consumer.close()
        return True


def _reading(cluster: TransactionCluster, name: str) -> dict[str, str | int | bool]:
    return {
        **COMMON,
        "bootstrap.servers": cluster.bootstrap_servers,
        "client.id": name,
        "auto.offset.reset": "earliest",
        "isolation.level": "read_committed",
    }


async def _poll(cluster: TransactionCluster, name: str, consumer: Consumer, *, final: bool = False) -> None:
    by_partition: dict[Partition, list[tuple[int, bytes]]] = {}
    for each in await consumer.poll(300):
        by_partition.setdefault(Partition(each.topic, each.partition), []).append((each.offset, each.value or b""))
    for partition, records in by_partition.items():
        cluster.history.add(CommittedRead(name, partition, tuple(records), final))
        cluster.trace.note(name, f"read {partition} from {records[0][0]} to {records[-1][0]}")
        cluster.trace.mark(OPERATION)


async def _watch(cluster: TransactionCluster, faults: TransactionFaults) -> None:
    """Note how far logs are stable on who leads."""
    while True:
        faults.look()
        for partition in cluster.output:
            for machine, hosted in cluster.hosted(partition):
                replica = hosted.partition
                if replica.is_leader:
                    log = replica.log
                    offsets = map(int, (log.log_start_offset, log.last_stable_offset, log.high_watermark))
                    epoch = int(replica.state.leader_epoch)
                    cluster.history.add(StableSeen(machine.name, partition, epoch, *offsets))
        await asyncio.sleep(LOOK_EVERY_S)


async def _decide(cluster: TransactionCluster) -> None:
    """Wait until all transactions have ended everywhere, or for as long as that may take."""
    began = cluster.loop.time()
    while True:
        undecided = cluster.undecided()
        waited_s = cluster.loop.time() - began
        if not undecided or waited_s > DECIDED_S:
            cluster.history.add(TransactionsSettled(tuple(undecided), waited_s))
            return
        await asyncio.sleep(0.3)


async def _read_all(cluster: TransactionCluster) -> None:
    """From the beginning to the end."""
    ports = Ports(cluster.client_network("last"), cluster.clock, SimulatedEntropy(cluster.draw("last entropy")))
    async with Consumer(ports, _reading(cluster, "last-reader")) as consumer:
        partitions = [TopicPartition(each.topic, each.index) for each in cluster.output]
        consumer.assign(partitions)
        ends = await consumer.end_offsets(partitions)
        while True:
            await _poll(cluster, "last-reader", consumer, final=True)
            if all([await consumer.position(each) >= ends[each] for each in partitions]):
                return


async def _note_consumed(cluster: TransactionCluster, client: LibraryClient, sources: Sequence[Partition]) -> None:
    async with client.admin(COMMON) as admin:
        while True:
            try:
                held = await admin.group_offsets(GROUP)
                break
            except (KafkaError, ClientError):
                await asyncio.sleep(0.2)
    for partition in sources:
        offset = held.get(TopicPartition(partition.topic, partition.index))
        assert not isinstance(offset, KafkaError), offset
        cluster.history.add(InputConsumed(GROUP, partition, -1 if offset is None else offset.offset))
