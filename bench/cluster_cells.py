"""Measurements of clusters: what losing a node costs, what many partitions cost, what replication costs."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace

from bench import acknowledgements, controller_loss, scale_out, wire
from bench.acknowledgements import Stream, flowing
from bench.cells import Floor, Metrics, Rig, Shape
from bench.clusters import (
    LEADER_TIMEOUT_S,
    START_TIMEOUT_S,
    Cluster,
    hold,
    new_cluster,
    wait_for_brokers,
    wait_for_leaders,
    wait_for_replicas,
)
from bench.measure import cpu_seconds, have_memory_at_hand, memory_mib
from bench.servers import FILES_GO_SOON, Server

MIN_IN_SYNC = {"min.insync.replicas": "2"}
SETTLE_S = 3.0
YOUNG_ROUNDS = 6
"""Of Kafka on new nodes before it is measured: the first gigabytes that a cluster in a test or on a desk ever sees."""
WARM_ROUNDS = 12
"""And before each row on nodes that stay for all of them: its JVMs get cheaper for minutes, by half and more."""
REPLICATED_TURNS = 7
REPLICATED_MEGABYTES = 300
"""Enough for a second or two at the pace of either kind: with half of it the beginning costs a tenth of it all."""
OVERHEAD = 1.5
"""What is written for a byte of a record's value, at most."""


@dataclass(frozen=True)
class Setting:
    """What a cluster is made of before a measurement begins; measurements of one setting share it.

    Most need one cluster of a kind. Where several sizes are compared, there is one of each, and the kinds are measured
    one after the other: more nodes than that at once would be in each other's way.
    """

    sizes: tuple[int, ...] = (3,)
    partitions: int = 0
    replicas: int = 1
    properties: tuple[tuple[str, str], ...] = tuple(FILES_GO_SOON.items())
    kept_for: str = ""
    """The one measurement that shall find new nodes."""


@dataclass
class Stage:
    """Running clusters of one kind in their setting, and what the nodes of the first weighed before they had its
    partitions."""

    clusters: list[Cluster]
    rig: Rig
    topics: list[str]
    setting: Setting
    empty_mib: dict[int, float] = field(default_factory=dict)

    @property
    def cluster(self) -> Cluster:
        return self.clusters[0]

    @property
    def kind(self) -> str:
        return self.cluster.kind


@dataclass(frozen=True)
class ClusterCell:
    """One measurement, repeatable on any cluster in its setting."""

    name: str
    setting: Setting
    run: Callable[[Stage], Metrics]
    floor: Floor | None = None
    once: bool = False
    warm_up: int = 0
    turns: int = 0
    """If more than 0: so many repetitions, in turns while the clusters of other kinds stand still."""


def all_cells() -> list[ClusterCell]:
    """In the order of the report; cells of one setting stand together."""
    return [
        *_metadata_cells(2_000),
        *_metadata_cells(10_000),
        *_replicated_cells(),
        *_leader_loss_cells(),
        _scale_out_cell(),
    ]


def staged(kind: str, setting: Setting, rig: Rig, stack: ExitStack) -> Stage:
    """Clusters of that kind, the first with its partitions, until the stack is closed."""
    properties = dict(setting.properties)
    clusters = [stack.enter_context(new_cluster(kind, nodes=size, properties=properties)) for size in setting.sizes]
    cluster = clusters[0]
    time.sleep(SETTLE_S)
    empty = {server.seat.node_id: memory_mib(server.pid)[0] for server in cluster.servers}
    topics = cluster.create_topics(setting.partitions, replicas=setting.replicas) if setting.partitions else []
    return Stage(clusters, rig, topics, setting, empty)


def _metadata_cells(partitions: int) -> Iterator[ClusterCell]:
    setting = Setting(partitions=partitions)
    third = Floor("seconds", 1 / 3, ratio=True)
    # Weighed first, while nothing but the partitions was added.
    yield ClusterCell(f"memory-{partitions}", setting, _memory, Floor("kib_per_partition", 6, ratio=False), once=True)
    yield ClusterCell(f"idle-cpu-{partitions}", setting, _idle_cpu, Floor("cpu_percent", 5, ratio=False))
    yield ClusterCell(f"node-start-{partitions}", setting, _node_start, Floor("seconds", 0.2, ratio=True))
    yield ClusterCell(f"controller-kill-{partitions}", setting, _controller_loss(controller_loss.kill), third)
    yield ClusterCell(f"controller-hold-{partitions}", setting, _controller_loss(hold), third, once=True)


def _leader_loss_cells() -> Iterator[ClusterCell]:
    small = Setting()
    second, soon = Floor("seconds", 1.0, ratio=False), Floor("seconds", 0.1, ratio=False)
    for name, make in (("", _impatient), ("-rdkafka", _rdkafka)):
        yield ClusterCell(f"gap-leader-killed{name}", small, _gap(make, _killed, of_controller=False), second)
        yield ClusterCell(
            f"gap-leader-and-controller-killed{name}", small, _gap(make, _killed, of_controller=True), second
        )
        limit = soon if make is _impatient else None
        yield ClusterCell(f"gap-leader-stopped{name}", small, _gap(make, _stopped, of_controller=False), limit)
    many = Setting(partitions=2_000, replicas=3)
    yield ClusterCell("leaders-2000", many, _leaders_live_again, Floor("seconds", 1 / 3, ratio=True))


def _replicated_cells() -> Iterator[ClusterCell]:
    """Each shape beside a Kafka that is minutes old, and beside one that has run for long: large batches last, because
    these profit most from what its JVMs have learnt."""
    cheap = Floor("cpu_s_per_gb", 0.35, ratio=True)
    in_turns = Setting(properties=tuple(scale_out.PROPERTIES.items()))
    shapes = [
        Shape(client="java", size=size, partitions=6, tuned=tuned, codec="none", acks="all")
        for tuned in (False, True)
        for size in (100, 1024)
    ]
    for shape in shapes:
        name = f"replicated-{shape.name('produce')}-young"
        setting = replace(in_turns, kept_for=name)
        run = _replicated(shape)
        yield ClusterCell(name, setting, run, cheap, warm_up=YOUNG_ROUNDS, turns=REPLICATED_TURNS)
    for shape in shapes:
        name = f"replicated-{shape.name('produce')}-warm"
        yield ClusterCell(name, in_turns, _replicated(shape), cheap, warm_up=WARM_ROUNDS, turns=REPLICATED_TURNS)


def _scale_out_cell() -> ClusterCell:
    """It has rounds of its own, so it is not repeated."""
    setting = Setting(sizes=scale_out.SIZES, properties=tuple(scale_out.PROPERTIES.items()))
    floor = Floor("spread", 1.15, ratio=False, compared=f"cpu_s_per_gb_{scale_out.SIZES[-1]}")
    return ClusterCell("scale-out", setting, _scale_out, floor, once=True)


def _memory(stage: Stage) -> Metrics:
    time.sleep(SETTLE_S)
    grown = [memory_mib(server.pid)[0] - stage.empty_mib[server.seat.node_id] for server in stage.cluster.servers]
    resident = [memory_mib(server.pid)[0] for server in stage.cluster.servers]
    of_all = max(grown) * 1024 / stage.setting.partitions
    hosted_share = stage.setting.replicas / len(stage.cluster.servers)
    return {"kib_per_partition": of_all, "kib_per_hosted": of_all / hosted_share, "rss_mib": max(resident)}


def _idle_cpu(stage: Stage) -> Metrics:
    seconds = 10.0
    time.sleep(SETTLE_S)
    before = [cpu_seconds(server.pid) for server in stage.cluster.servers]
    time.sleep(seconds)
    spent = [cpu_seconds(server.pid) - was for server, was in zip(stage.cluster.servers, before, strict=True)]
    return {"cpu_percent": max(spent) / seconds * 100}


def _node_start(stage: Stage) -> Metrics:
    cluster = stage.cluster
    controller = cluster.controller()
    server = cluster.others(controller)[0]
    server.stop()
    wait_for_brokers(cluster.server(controller), len(cluster.servers) - 1, time.monotonic() + 30)
    started = time.monotonic()
    server.spawn()
    wait_for_brokers(server, len(cluster.servers), started + START_TIMEOUT_S)
    registered = time.monotonic()
    live = wait_for_leaders(
        cluster.servers, stage.topics, partitions=stage.setting.partitions, deadline=registered + START_TIMEOUT_S
    )
    return {"seconds": registered - started, "all_live_s": live - started}


def _controller_loss(fault: Callable[[Server], None]) -> Callable[[Stage], Metrics]:
    def run(stage: Stage) -> Metrics:
        loss = controller_loss.measure(stage.cluster, stage.topics[0], fault)
        return {
            "seconds": loss.total,
            "detection_s": loss.detection,
            "election_s": loss.election,
            "load_s": loss.load,
        }

    return run


def _replicated(shape: Shape) -> Callable[[Stage], Metrics]:
    def run(stage: Stage) -> Metrics:
        cluster, rig = stage.cluster, stage.rig
        topic = _new_topic(stage, shape.partitions, replicas=3)
        records = rig.records(shape.size, REPLICATED_MEGABYTES)
        servers = cluster.servers
        have_memory_at_hand(cluster.directory, len(servers) * REPLICATED_MEGABYTES * rig.scale * OVERHEAD)
        before = sum(cpu_seconds(server.pid) for server in servers)
        produced = rig.java.produce(
            cluster.bootstrap, topic, records=records, size=shape.size, settings=shape.producer_settings()
        )
        spent = sum(cpu_seconds(server.pid) for server in servers) - before
        cluster.drop_topic(topic)
        cluster.wait_until_gone(topic)
        size_bytes = records * shape.size
        return {"cpu_s_per_gb": spent / (size_bytes / 1e9), "mb_per_s": size_bytes / produced.seconds / 1e6}

    return run


def _impatient(cluster: Cluster, topic: str) -> Callable[[Stream], None]:
    return acknowledgements.impatient(cluster.servers, topic, 0)


def _rdkafka(cluster: Cluster, topic: str) -> Callable[[Stream], None]:
    return acknowledgements.rdkafka(cluster.bootstrap, topic, 0)


def _killed(server: Server) -> None:
    assert server.process is not None
    server.process.kill()


def _stopped(server: Server) -> None:
    assert server.process is not None
    server.process.terminate()


def _gap(
    make: Callable[[Cluster, str], Callable[[Stream], None]], fault: Callable[[Server], None], *, of_controller: bool
) -> Callable[[Stage], Metrics]:
    def run(stage: Stage) -> Metrics:
        cluster = stage.cluster
        topic, leader = _topic_led_by(stage, controller=of_controller)
        with flowing(make(cluster, topic)) as stream:
            gap = stream.longest_gap(lambda: fault(leader))
        leader.stop()
        leader.spawn()
        cluster.wait_until_whole()
        wait_for_replicas(leader, [topic], time.monotonic() + LEADER_TIMEOUT_S)
        stage.cluster.drop_topic(topic)
        return {"seconds": gap}

    return run


def _topic_led_by(stage: Stage, *, controller: bool) -> tuple[str, Server]:
    """A topic of one partition, and its leader, which is the active controller or is not."""
    active = stage.cluster.controller()
    for _ in range(30):
        topic = _new_topic(stage, 1, replicas=3)
        with wire.Connection(stage.cluster.server(active).port) as connection:
            leader = wire.partition_states(connection, [topic])[topic, 0].leader
        if (leader == active) is controller:
            return topic, stage.cluster.server(leader)
        stage.cluster.drop_topic(topic)
    raise RuntimeError("no partition came to be led where it was wanted")


def _leaders_live_again(stage: Stage) -> Metrics:
    cluster = stage.cluster
    controller = cluster.controller()
    with wire.Connection(cluster.server(controller).port) as connection:
        led = Counter(state.leader for state in wire.partition_states(connection, stage.topics).values())
    # Who was lost the last time leads nothing before leaders are moved back, and its loss would cost nothing.
    other, lost = sorted(cluster.others(controller), key=lambda server: led[server.seat.node_id])
    wait_for_replicas(other, stage.topics, time.monotonic() + LEADER_TIMEOUT_S)
    started = time.monotonic()
    _killed(lost)
    live = wait_for_leaders(
        [cluster.server(controller), other],
        stage.topics,
        partitions=stage.setting.partitions,
        deadline=started + LEADER_TIMEOUT_S,
    )
    lost.kill()
    lost.spawn()
    cluster.wait_until_whole()
    return {"seconds": live - started}


def _scale_out(stage: Stage) -> Metrics:
    return scale_out.measure(stage.clusters, stage.rig)


def _new_topic(stage: Stage, partitions: int, *, replicas: int) -> str:
    name = stage.rig.name("cluster")
    stage.cluster.create_topic(name, partitions, MIN_IN_SYNC if replicas > 1 else {}, replicas=replicas)
    return name


def pick(cells: Sequence[ClusterCell], setting: Setting) -> list[ClusterCell]:
    """Those measured in that setting."""
    return [cell for cell in cells if cell.setting == setting]
