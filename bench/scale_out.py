"""What more brokers cost: the same load on clusters of one, two and three of them, which take turns.

Clusters that are measured one after the other differ by whatever else changed in between: what other programs do, how
fast the machine is just then. So all stand side by side from the first turn to the last, every round gives each of them
one, and only costs of the same round are compared; who was first in one round is last in the next. Who has no turn
stands still (SIGSTOP): an idle node costs little, but beside the smallest cluster there are the most of them.

A turn ends when its time is over, and each broker may use a fixed share of a core, where that can be done. So every
broker spends the same CPU in every turn, whatever it makes of it, and has work waiting at all times: one that the
clients cannot keep busy reads less at a time and looks dearer.

Between turns the files of the last one go. A virtual machine may have given free memory back to its host, and to take
it again costs ten times what it costs to fill a page that was used a moment ago; the kernel counts that as time of the
broker that writes. As long as little is kept, the page cache lives on the same pages all the time.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass

from bench import replay, wire
from bench.cells import Metrics, Rig
from bench.clusters import Cluster, alone
from bench.command import say
from bench.cpu_share import held_to
from bench.measure import cpu_seconds, median
from bench.servers import Server

SIZES = (1, 2, 3)
PROPERTIES = {
    # Who stood still for some turns has not been away, so that nobody spends the next one with coming back.
    "broker.session.timeout.ms": "3600000",
    # Files of deleted topics go at once.
    "log.segment.delete.delay.ms": "0",
    "log.retention.check.interval.ms": "1000",
    "log.initial.task.delay.ms": "0",
}
ROUNDS = 8
TURN_S = 4.0
SHARE_OF_A_CORE = 0.25
"""So that a broker spends a CPU second a turn, while three of them and their clients need only one core of two. Of less
it would spend too much on what it does without any load: heartbeats and fetches of metadata, 0.6 % of a core a node as
soon as there is more than one."""
LEAD_IN_S = 1.0
"""Of each turn, not counted: nodes that stood still elect a controller anew, and sockets find their speed."""
WARM_UP_TURNS_A_JVM = 4
"""Times the brokers of the cluster, because more of them have less of the cores each. Only a JVM gets better at it."""
IN_FLIGHT = 32
"""So that a broker always finds more than it can take in at once. With the five that a producer has by default, how
many it finds, and so what each of them costs, depends on how soon clients get a core: beside one broker sooner than
beside three."""
BATCH = [b"x" * 1000] * 16
"""What clients send at most unless they are told otherwise: 16 KB."""


@dataclass(frozen=True)
class Turn:
    """What the brokers of one cluster did in one turn, together."""

    size_bytes: int
    cpu_s: float
    seconds: float
    held: bool

    @property
    def cpu_s_per_gb(self) -> float:
        return self.cpu_s / (self.size_bytes / 1e9)

    @property
    def mb_per_s(self) -> float:
        return self.size_bytes / self.seconds / 1e6


def measure(clusters: Sequence[Cluster], rig: Rig) -> Metrics:
    """CPU per GB and MB/s of each cluster in the middle of its turns, and how far the dearest is from the cheapest."""
    for cluster in clusters:
        for _ in range(WARM_UP_TURNS_A_JVM * len(cluster.servers) if cluster.kind == "kafka" else 1):
            _turn(cluster, clusters, rig, share=1.0)
    turns: dict[int, list[Turn]] = {len(cluster.servers): [] for cluster in clusters}
    for number in range(ROUNDS):
        for cluster in clusters if number % 2 == 0 else reversed(clusters):
            turn = _turn(cluster, clusters, rig, share=SHARE_OF_A_CORE)
            size = len(cluster.servers)
            turns[size].append(turn)
            say(f"{number} {cluster.kind} {size}: {turn.cpu_s_per_gb:.2f} s/GB, {turn.mb_per_s:.1f} MB/s")
    costs = {size: [turn.cpu_s_per_gb for turn in taken] for size, taken in turns.items()}
    metrics = {f"cpu_s_per_gb_{size}": median(each) for size, each in costs.items()}
    metrics["spread"] = spread(costs)
    if all(turn.held for taken in turns.values() for turn in taken):
        metrics |= {f"mb_per_s_held_{size}": median([turn.mb_per_s for turn in taken]) for size, taken in turns.items()}
    return metrics


def spread(costs: Mapping[int, Sequence[float]]) -> float:
    """The largest cost over the smallest, each the median over the rounds of what it is in the mean of its round."""
    means = [statistics.fmean(round_) for round_ in zip(*costs.values(), strict=True)]
    relative = [median([cost / mean for cost, mean in zip(each, means, strict=True)]) for each in costs.values()]
    return max(relative) / min(relative)


def _turn(cluster: Cluster, clusters: Sequence[Cluster], rig: Rig, *, share: float) -> Turn:
    """The load on that cluster alone."""
    pids = [server.pid for server in cluster.servers]
    with alone(cluster, clusters), _new_topic(cluster, rig) as topic:
        frames = {server: _frame(topic, partition) for server, partition in _led(cluster, topic).items()}
        with held_to(share, pids) as held:
            _send_side_by_side(frames, LEAD_IN_S * rig.scale)
            before, started = sum(map(cpu_seconds, pids)), time.monotonic()
            size_bytes = _send_side_by_side(frames, TURN_S * rig.scale)
            return Turn(size_bytes, sum(map(cpu_seconds, pids)) - before, time.monotonic() - started, held)


@contextmanager
def _new_topic(cluster: Cluster, rig: Rig) -> Iterator[str]:
    """One of a partition a broker, of which nothing is left afterwards."""
    topic = rig.name("scale-out")
    cluster.create_topic(topic, len(cluster.servers), replicas=1)
    yield topic
    cluster.drop_topic(topic)
    cluster.wait_until_gone(topic)


def _led(cluster: Cluster, topic: str) -> dict[Server, int]:
    with wire.Connection(cluster.servers[0].port) as connection:
        states = wire.partition_states(connection, [topic])
    return {cluster.server(state.leader): partition for (_, partition), state in states.items()}


def _frame(topic: str, partition: int) -> bytes:
    batch = wire.record_batch(BATCH, timestamp_ms=int(time.time() * 1000))
    return wire.frame(wire.PRODUCE, 7, 7, wire.produce_body(topic, [(partition, batch)], acks=1))


def _send_side_by_side(frames: Mapping[Server, bytes], seconds: float) -> int:
    """To each server its frame, as often as it can be; the bytes of all that was answered."""
    with ThreadPoolExecutor(len(frames)) as pool:
        counts = {
            server: pool.submit(replay.produce_for, server.port, frame, seconds=seconds, in_flight=IN_FLIGHT)
            for server, frame in frames.items()
        }
        return sum(counts[server].result() * len(frame) for server, frame in frames.items())
