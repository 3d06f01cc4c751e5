"""A run of replicated partitions: producers, consumers and a group at work while leaders go and followers lag."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from odradek.client import Client as LibraryClient
from odradek.client.errors import ClientError
from odradek.ports import FileSlice
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.records.batch import decode_records, iter_batches
from odradek.server.partitions.hosted_partition import HostedPartition
from odradek.sim import operated_offsets, operators
from odradek.sim.client_process import Ports
from odradek.sim.cluster import Cluster
from odradek.sim.directory_changes import STATES as DIRECTORY_STATES
from odradek.sim.entropy import SimulatedEntropy
from odradek.sim.group_member import GroupPlan
from odradek.sim.groups import Crowd, observe, read_offsets
from odradek.sim.history import Partition, ReplicaHolds, WatermarkSeen
from odradek.sim.machine import Machine
from odradek.sim.operated_offsets import OffsetKeeper
from odradek.sim.operators import OperatedTopics, Operator
from odradek.sim.quorum import SETTLE_S
from odradek.sim.replication_clients import LastReader, LeaderConsumer, LeaderObserver, LeaderProducer
from odradek.sim.replication_cluster import PLANS, REPLICAS, ReplicationCluster
from odradek.sim.replication_faults import ReplicationFaults
from odradek.sim.trace import OPERATION

STATES = (
    "follower cut its log",
    "ISR shrank",
    "ISR grew",
    "leader moved",
    "leader elected from the ELR",
    "torn tail cut",
    "zombie's append refused",
    "snapshot loaded",
    "coordinator reloaded",
    "too few in sync",
    "process crash",
    "power loss",
    "power loss took data",
    "power lost unseen",
    "all nodes crashed",
    "all nodes lost power",
    "clean restart",
    "process held",
    "listener refuses controllers",
    "controllers never reach a broker",
    "dead broker fenced early",
    "dead broker succeeded early",
    "nodes cut off",
    "cluster split",
    "one way cut",
    "struck while the ISR grew",
    "newcomer restarted",
    "request delivered late",
    "successor struck",
    "last in sync struck",
    "read from a follower",
    "records deleted",
    "fetch session used",
    "batch lent to a follower",
    "classic group",
    "consumer group",
    "voter lost its disk",
    "voter without its disk struck again",
    *DIRECTORY_STATES,
    *operators.STATES,
    *operated_offsets.STATES,
    "load of a coordinator cut short",
    "coordinator back before its load was over",
)
"""What a set of seeds must have met to prove anything about replication."""

FEWEST_FAULTS = 3
FEWEST_OPERATIONS = 500
SHORTEST_S = 60.0
RUN_S = 40.0
"""Within which faults begin."""
MANY = 1_000_000
LOOK_EVERY_S = 0.25
GROUPED = PLANS[0]
GROUP_PACE = 3.0
SETTINGS = {
    "default.api.timeout.ms": 60_000,
    "request.timeout.ms": 4_000,
    "socket.connection.setup.timeout.ms": 2_000,
}
IMPATIENT = SETTINGS | {"default.api.timeout.ms": 10_000}


async def scenario(cluster: Cluster, *, power: bool) -> None:
    assert isinstance(cluster, ReplicationCluster)
    draw = cluster.draw("scenario")
    faults = ReplicationFaults(cluster, power=power)
    for machine in cluster.machines.values():
        faults.start(machine)
    client = library_client(cluster)
    await create_topics(cluster, client)
    crowd = _crowd(cluster)
    producers = [
        LeaderProducer(cluster, f"producer-{number}", MANY, partitions=[partition])
        for number, partition in enumerate(draw.choices(cluster.partitions, k=draw.choice((2, 3, 3))))
    ]
    async with client.admin(IMPATIENT) as admin:
        watching = [
            asyncio.create_task(watch(cluster, faults)),
            asyncio.create_task(observe(cluster, admin, [crowd], longest_pause_s=6.0)),
        ]
        for number, partition in enumerate(cluster.partitions):
            consumer = LeaderConsumer(cluster, f"consumer-{number}", partitions=[partition])
            observer = LeaderObserver(cluster, f"observer-{number}", partitions=[partition])
            watching += [asyncio.create_task(consumer.run()), asyncio.create_task(observer.run())]
        operated = OperatedTopics(cluster)
        operator = Operator(cluster, client, faults, may_lose_power=power and not cluster.flushed)
        keeper = OffsetKeeper(cluster, operated.partitions)
        serving = [asyncio.create_task(operated.run()), asyncio.create_task(keeper.run())]
        steps = draw.randrange(6, 16) if cluster.is_operated else 0
        operating = asyncio.create_task(operator.run(steps))
        working = [asyncio.create_task(producer.run()) for producer in producers]
        coming = asyncio.create_task(crowd.run(draw.randrange(3, 6), longest_pause_s=16.0))
        await faults.run(draw.randrange(FEWEST_FAULTS, 8), RUN_S)
        await play_on(cluster)
        for producer in producers:
            producer.finish()
        await asyncio.gather(coming, operating, *working)
        await settle(cluster)
        await end_serving(serving)
        await operated.finish()
        await operator.settle(operated, patience_s=SETTLE_S)
        await crowd.settle(admin)
        for task in watching:
            task.cancel()
        await asyncio.gather(*watching, return_exceptions=True)
        await crowd.empty()
        await read_offsets(cluster, admin, crowd, patient=True)
        await keeper.judge(admin)
    for partition in cluster.partitions:
        await LastReader(cluster, partitions=[partition]).run()
    await operated.read()
    for partition in (*cluster.all_partitions, *operated.partitions()):
        _note_contents(cluster, partition)


async def end_serving(serving: Sequence[asyncio.Task[None]]) -> None:
    """Of those who go on for ever; if one did not, that was wrong."""
    for task in serving:
        task.cancel()
    for outcome in await asyncio.gather(*serving, return_exceptions=True):
        if isinstance(outcome, Exception):
            raise outcome


def library_client(cluster: ReplicationCluster) -> LibraryClient:
    ports = Ports(cluster.client_network("admin"), cluster.clock, SimulatedEntropy(cluster.draw("admin entropy")))
    return LibraryClient(ports, {"bootstrap.servers": cluster.bootstrap_servers, "client.id": "admin"})


def _crowd(cluster: ReplicationCluster) -> Crowd:
    draw = cluster.draw("group")
    protocol = draw.choice(("classic", "consumer"))
    cluster.trace.mark(f"{protocol} group")
    assignor = draw.choice(("range", "cooperative-sticky"))
    plan = GroupPlan("group", protocol, assignor, "uniform", (GROUPED.name,), pace=GROUP_PACE)
    partitions = [Partition(GROUPED.name, index) for index in range(GROUPED.partitions)]
    return Crowd(cluster, plan, partitions, most_members=2)


async def create_topics(cluster: ReplicationCluster, client: LibraryClient) -> None:
    flush = {"flush.messages": "1"} if cluster.flushed else {}
    for plan in cluster.plans:
        while True:
            try:
                async with client.admin(SETTINGS) as admin:
                    await admin.create_topic(
                        plan.name,
                        partitions=plan.partitions,
                        replication_factor=REPLICAS,
                        configs=dict(plan.configs) | flush,
                    )
                break
            except KafkaError as refused:
                if refused.code is ErrorCode.TOPIC_ALREADY_EXISTS:
                    break
            except ClientError:
                pass
            await asyncio.sleep(0.2)


async def watch(cluster: ReplicationCluster, faults: ReplicationFaults) -> None:
    """Note where watermarks are on who leads."""
    while True:
        faults.look()
        for partition in cluster.partitions:
            for machine, hosted in cluster.hosted(partition):
                replica = hosted.partition
                if replica.is_leader:
                    epoch, watermark = int(replica.state.leader_epoch), int(replica.log.high_watermark)
                    cluster.history.add(WatermarkSeen(machine.name, machine.lives, partition, epoch, watermark))
        await asyncio.sleep(LOOK_EVERY_S)


async def play_on(cluster: ReplicationCluster) -> None:
    """Clients go on until the run is long enough to count."""
    while True:
        await asyncio.sleep(max(SHORTEST_S - cluster.loop.time(), 1))
        if cluster.trace.marks.get(OPERATION, 0) >= FEWEST_OPERATIONS:
            return


async def settle(cluster: ReplicationCluster) -> None:
    """Until all replicas have everything; the clusters that never get there are told of."""
    began = cluster.loop.time()
    while not cluster.all_in_sync():
        await asyncio.sleep(0.2)
        if cluster.loop.time() - began > SETTLE_S:
            told = [f"{partition}: {_told(cluster.hosted(partition))}" for partition in cluster.partitions]
            cluster.loop.failures.append(f"not all replicas came in sync within {SETTLE_S:.0f} s: {told}")
            return


def _told(replicas: Sequence[tuple[Machine, HostedPartition]]) -> list[str]:
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
