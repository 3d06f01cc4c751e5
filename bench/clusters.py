"""Several nodes of one kind as a cluster of processes: start them, lose one, find who leads.

Everything is learnt from outside and the same way for either kind: over the wire, and from the `quorum-state` file that
every voter of KRaft keeps in its metadata directory.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from bench import wire
from bench.servers import OdradekServer, Seat, Server

PARTITIONS_A_TOPIC = 1_000
START_TIMEOUT_S = 240.0
"""Three JVMs on two cores that others use, too, take their time."""
LEADER_TIMEOUT_S = 60.0
GONE_TIMEOUT_S = 60.0
POLL_S = 0.01


@dataclass(frozen=True)
class QuorumState:
    """What a voter wrote down last: the epoch, and who leads it (-1: it does not know)."""

    epoch: int
    leader: int


@dataclass(frozen=True)
class Member:
    """A node to be: which server it runs, and what it does in the cluster."""

    make: Callable[..., Server]
    roles: tuple[str, ...] = ("broker", "controller")
    format_options: tuple[str, ...] = ()


class Cluster:
    """Nodes 1, 2, 3 and so on in directories of their own, with their default settings."""

    def __init__(
        self,
        members: Sequence[Member],
        *,
        directory: Path | None = None,
        properties: dict[str, str] | None = None,
        dynamic: bool = False,
    ) -> None:
        """With `dynamic`, the first node is the whole quorum to begin with, and others may be added to it later."""
        self._owned = directory is None
        self.directory = directory if directory is not None else Path(tempfile.mkdtemp(prefix="cluster-"))
        seats = [Seat(number, roles=member.roles) for number, member in enumerate(members, start=1)]
        settings = {**internal_topics(sum("broker" in seat.roles for seat in seats)), **(properties or {})}
        voters = [seat for seat in seats if "controller" in seat.roles]
        if dynamic:
            found_at = ",".join(f"127.0.0.1:{seat.controller_port}" for seat in voters)
            settings |= {"controller.quorum.voters": "", "controller.quorum.bootstrap.servers": found_at}
        self._dynamic = dynamic
        self._format_options = {
            seat.node_id: self._options_of(seat, member) for seat, member in zip(seats, members, strict=True)
        }
        self.servers = [
            member.make(
                self.directory / str(seat.node_id),
                properties=settings,
                seat=seat,
                voters=voters,
            )
            for member, seat in zip(members, seats, strict=True)
        ]
        self.kind = self.servers[0].kind

    def __enter__(self) -> Cluster:
        with ThreadPoolExecutor(len(self.servers)) as pool:
            list(pool.map(self._format, self.servers))
        try:
            for server in self.servers:
                server.spawn()
            self.wait_until_whole()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        # A node that is stopped alone takes time to hand over; at the end of a measurement nothing is worth keeping.
        for server in self.servers:
            if server.process is not None and server.process.poll() is None:
                server.process.send_signal(signal.SIGKILL)
        for server in self.servers:
            server.kill()
        if self._owned:
            shutil.rmtree(self.directory, ignore_errors=True)

    def _options_of(self, seat: Seat, member: Member) -> list[str]:
        if not self._dynamic or "controller" not in seat.roles:
            return [*member.format_options]
        return [*member.format_options, "--standalone" if seat.node_id == 1 else "--no-initial-controllers"]

    def _format(self, server: Server) -> None:
        # All must say the same cluster id, also a lone controller that would make up one of its own.
        if not (server.data / "meta.properties").exists():
            server.run_storage_format(*self._format_options[server.seat.node_id])

    @property
    def brokers(self) -> list[Server]:
        return [server for server in self.servers if "broker" in server.seat.roles]

    @property
    def controllers(self) -> list[Server]:
        return [server for server in self.servers if "controller" in server.seat.roles]

    @property
    def bootstrap(self) -> str:
        return ",".join(server.bootstrap for server in self.brokers)

    @property
    def controller_bootstrap(self) -> str:
        return ",".join(f"127.0.0.1:{server.controller_port}" for server in self.controllers)

    def server(self, node_id: int) -> Server:
        """The node of that id."""
        return self.servers[node_id - 1]

    def others(self, node_id: int) -> list[Server]:
        """All nodes but that one."""
        return [server for server in self.servers if server.seat.node_id != node_id]

    def wait_until_whole(self, timeout_s: float = START_TIMEOUT_S) -> None:
        """Until every broker names every broker as a live one."""
        deadline = time.monotonic() + timeout_s
        for server in self.brokers:
            wait_for_brokers(server, len(self.brokers), deadline)

    def controller(self) -> int:
        """The id of the active controller."""
        deadline = time.monotonic() + START_TIMEOUT_S
        while time.monotonic() < deadline:
            states = [state for server in self.controllers if (state := quorum_state(server)) is not None]
            latest = max(states, key=lambda state: (state.epoch, state.leader), default=QuorumState(0, -1))
            if latest.leader >= 0:
                return latest.leader
            time.sleep(POLL_S)
        raise RuntimeError("nobody leads the quorum")

    def create_topic(
        self, name: str, partitions: int, settings: dict[str, str] | None = None, *, replicas: int
    ) -> None:
        """A topic whose partitions all answer at their leaders, every replica in sync."""
        with wire.Connection(self.brokers[0].port, timeout_s=60) as connection:
            error = wire.create_topic(connection, name, partitions, settings, replicas=replicas)
        # A cluster of either kind that stood still says so of a name that is new, too: it elected another controller
        # while it was asked, and the broker asked twice.
        if error not in (0, wire.TOPIC_ALREADY_EXISTS):
            raise RuntimeError(f"CreateTopics answered error {error}")
        deadline = time.monotonic() + LEADER_TIMEOUT_S
        wait_for_leaders(self.brokers, [name], partitions=partitions, deadline=deadline)
        for server in self.brokers:
            wait_for_replicas(server, [name], deadline)

    def drop_topic(self, name: str) -> None:
        """Its files go when the brokers find the time."""
        with wire.Connection(self.brokers[0].port, timeout_s=60) as connection:
            wire.delete_topic(connection, name)

    def wait_until_gone(self, topic: str) -> None:
        """Until its files have gone."""
        deadline = time.monotonic() + GONE_TIMEOUT_S
        while any(path for server in self.servers for path in server.data.glob(f"{topic}-*")):
            if time.monotonic() > deadline:
                raise RuntimeError(f"files of {topic} are still there {GONE_TIMEOUT_S} s after it was deleted")
            time.sleep(POLL_S)

    def create_topics(self, partitions: int, *, replicas: int = 1, prefix: str = "many") -> list[str]:
        """Topics that have that many partitions together, each of which answers at its leader."""
        topics = [f"{prefix}-{number}" for number in range(-(-partitions // PARTITIONS_A_TOPIC))]
        for number, topic in enumerate(topics):
            size = min(PARTITIONS_A_TOPIC, partitions - number * PARTITIONS_A_TOPIC)
            with wire.Connection(self.brokers[0].port, timeout_s=60) as connection:
                error = wire.create_topic(connection, topic, size, replicas=replicas)
            # A broker that waited too long for the controller's answer asks again for what it may have been given.
            if error not in (0, wire.TOPIC_ALREADY_EXISTS):
                raise RuntimeError(f"CreateTopics answered error {error}")
            wait_for_leaders(self.brokers, [topic], partitions=size, deadline=time.monotonic() + 240)
        return topics


def new_cluster(kind: str, *, nodes: int = 3, properties: dict[str, str] | None = None) -> Cluster:
    """Combined nodes of Odradek or of Apache Kafka, not started."""
    return Cluster([Member(server_class(kind))] * nodes, properties=properties)


def server_class(kind: str) -> type[Server]:
    """What runs a node of that kind."""
    if kind == "odradek":
        return OdradekServer
    # Imported here, so that Odradek alone can be measured where there is no Java.
    from bench.apache_kafka import ApacheKafka

    return ApacheKafka


def internal_topics(nodes: int) -> dict[str, str]:
    """Kafka's defaults ask for three replicas; with fewer nodes they could not be had."""
    replicas, in_sync = str(min(nodes, 3)), str(min(nodes, 2))
    return {
        "offsets.topic.replication.factor": replicas,
        "transaction.state.log.replication.factor": replicas,
        "transaction.state.log.min.isr": in_sync,
    }


def quorum_state(server: Server) -> QuorumState | None:
    """What the voter's file says; None before there is one, and while it is being replaced."""
    try:
        stated = json.loads((server.data / "__cluster_metadata-0" / "quorum-state").read_text())
    except (OSError, ValueError):
        return None
    return QuorumState(epoch=stated["leaderEpoch"], leader=stated["leaderId"])


def wait_for_brokers(server: Server, count: int, deadline: float) -> None:
    """Until that node's Metadata names that many brokers."""
    while time.monotonic() < deadline:
        assert server.process is not None
        if server.process.poll() is not None:
            raise RuntimeError(
                f"node {server.seat.node_id} exited with {server.process.returncode}:\n{server.log_tail()}"
            )
        try:
            with wire.Connection(server.port, timeout_s=5) as connection:
                if wire.brokers_known(connection) == count:
                    return
        except (OSError, wire.ConnectionClosed):
            pass
        time.sleep(POLL_S)
    raise RuntimeError(f"node {server.seat.node_id} does not know {count} brokers:\n{server.log_tail()}")


def wait_for_leaders(servers: Sequence[Server], topics: Sequence[str], *, partitions: int, deadline: float) -> float:
    """Until every partition of the topics has a leader among these nodes that answers ListOffsets; the time it was so.

    The first of the nodes is asked who leads.
    """
    by_id = {server.seat.node_id: server for server in servers}
    answered: set[tuple[str, int]] = set()
    while time.monotonic() < deadline:
        # A node may be named a moment before it answers, or be asked a moment before it ends.
        with suppress(OSError, wire.ConnectionClosed):
            answered |= _answering(servers[0], by_id, topics, answered)
        if len(answered) == partitions:
            return time.monotonic()
        time.sleep(POLL_S)
    raise RuntimeError(f"{partitions - len(answered)} of {partitions} partitions have no leader that answers")


def _answering(
    asked: Server, by_id: dict[int, Server], topics: Sequence[str], known: set[tuple[str, int]]
) -> set[tuple[str, int]]:
    """Those partitions, beyond the known ones, that answer ListOffsets at the leader that the first node names."""
    with wire.Connection(asked.port, timeout_s=30) as connection:
        states = wire.partition_states(connection, topics)
    by_leader: dict[int, dict[str, list[int]]] = {}
    for (topic, partition), state in states.items():
        if state.leader in by_id and (topic, partition) not in known:
            by_leader.setdefault(state.leader, {}).setdefault(topic, []).append(partition)
    found = set()
    for leader, indexes in by_leader.items():
        with wire.Connection(by_id[leader].port, timeout_s=30) as connection:
            for topic, partitions in indexes.items():
                answers = wire.list_offsets(connection, topic, partitions, wire.LATEST)
                found |= {(topic, partition) for partition, error, _ in answers if not error}
    return found


def wait_for_replicas(server: Server, topics: Sequence[str], deadline: float) -> None:
    """Until that node knows every replica of the topics to be in sync."""
    while time.monotonic() < deadline:
        with wire.Connection(server.port, timeout_s=30) as connection:
            states = wire.partition_states(connection, topics).values()
        if states and all(state.leader >= 0 and len(state.in_sync) == len(state.replicas) for state in states):
            return
        time.sleep(POLL_S * 10)
    raise RuntimeError(f"replicas of {', '.join(topics)} are not in sync")


def hold(server: Server) -> None:
    """SIGSTOP: its sockets stay open, and nobody reads them."""
    os.kill(server.pid, signal.SIGSTOP)


def let_go(server: Server) -> None:
    """SIGCONT."""
    os.kill(server.pid, signal.SIGCONT)


@contextmanager
def alone(cluster: Cluster, clusters: Iterable[Cluster]) -> Iterator[None]:
    """The other clusters stand still meanwhile, and it is whole."""
    others = [server for other in clusters if other is not cluster for server in other.servers]
    try:
        for server in others:
            hold(server)
        cluster.wait_until_whole()
        yield
    finally:
        for server in others:
            let_go(server)
