"""A cluster of real nodes for the time of a test: a process each, that can be killed and held, or a thread each."""

from __future__ import annotations

import abc
import contextlib
import pathlib
import tempfile
from collections.abc import Collection, Iterator, Mapping, Sequence

from odradek.adapters.clock import SystemClock
from odradek.adapters.disk import RealDisk
from odradek.adapters.entropy import SystemEntropy
from odradek.configdef import format_properties, parse_properties
from odradek.ids import uuid_text
from odradek.metadata.uuids import random_uuid
from odradek.server.configs.node_config import load
from odradek.server.membership.identity import format_directories, survey
from odradek.testing.ports import HOST, free_port
from odradek.testing.process import NodeFailed, NodeProcess
from odradek.testing.thread import NodeThread

FIRST_CONTROLLER_ID = 101
"""Of controllers that are no brokers; brokers count from 1."""


@contextlib.contextmanager
def running_cluster(
    *,
    brokers: int = 3,
    controllers: int = 0,
    in_process: bool = False,
    properties: Mapping[str, str] | None = None,
    data_directory: str | None = None,
    log_dirs: int = 1,
    places: Sequence[Place] = (),
) -> Iterator[RunningCluster]:
    """Nodes on free ports of the loopback interface, all ready when the block begins and gone when it ends.

    Without `controllers` of their own the first three brokers are controllers, too. `properties` are keys of
    `server.properties` for all nodes. Data goes to a temporary directory that is removed at the end, unless one is
    given; a node spreads it over `log_dirs` directories. Inside of this process (`in_process`) nodes start sooner, and
    can be stopped but not killed. `places` are other hosts to run the nodes' processes on, one each
    (`odradek.testing.namespaces`).
    """
    with contextlib.ExitStack() as cleaning:
        if data_directory is None:
            data_directory = cleaning.enter_context(tempfile.TemporaryDirectory(prefix="odradek-"))
        cluster = RunningCluster(
            data_directory,
            brokers=brokers,
            controllers=controllers,
            in_process=in_process,
            properties=properties or {},
            log_dirs=log_dirs,
            places=places,
        )
        cleaning.callback(cluster.close)
        cluster.start()
        yield cluster


class Place:
    """Where a node runs: an address, and a command in front of the node's own."""

    def __init__(self, host: str = HOST, prefix: Sequence[str] = ()) -> None:
        self.host = host
        self.prefix = tuple(prefix)


class ClusterNode(abc.ABC):
    """One node of a cluster."""

    def __init__(
        self, node_id: int, roles: str, directory: pathlib.Path, host: str, ports: tuple[int, int] | None = None
    ) -> None:
        """`ports` are a broker's and a controller's; free ones if not given."""
        self.node_id = node_id
        self.roles = roles
        self.directory = directory
        self.log_dirs = 1
        """How many directories its data is spread over; they are `data`, `data-2` and so on."""
        self.host = host
        self.port, self.controller_port = ports or (free_port(), free_port())

    def __repr__(self) -> str:
        return f"node {self.node_id}"

    @property
    def is_broker(self) -> bool:
        return "broker" in self.roles

    @property
    def is_controller(self) -> bool:
        return "controller" in self.roles

    @property
    def data_directory(self) -> pathlib.Path:
        return self.directory / "data"

    @property
    def data_directories(self) -> list[pathlib.Path]:
        """The first, which holds the metadata log, and the others."""
        others = [self.directory / f"data-{number}" for number in range(2, self.log_dirs + 1)]
        return [self.data_directory, *others]

    @property
    def properties_file(self) -> pathlib.Path:
        return self.directory / "server.properties"

    @property
    def bootstrap_server(self) -> str:
        return f"{self.host}:{self.port}"

    def settings(self) -> dict[str, str]:
        return parse_properties(self.properties_file.read_text(encoding="utf-8"))

    @property
    @abc.abstractmethod
    def running(self) -> bool: ...

    @abc.abstractmethod
    def begin(self) -> None:
        """Start it (again) on its data, without waiting for it."""

    @abc.abstractmethod
    def wait_until_ready(self) -> None:
        """NodeFailed if it does not get ready."""

    @abc.abstractmethod
    def stop(self) -> None:
        """The orderly way: its leaders move first. Nothing if it is not running."""

    @abc.abstractmethod
    def begin_closing(self) -> None:
        """It is not needed any more; the others neither."""

    @abc.abstractmethod
    def close(self) -> None:
        """Leave nothing behind, however it was left."""

    def start(self) -> None:
        """Start it (again) on its data."""
        self.begin()
        self.wait_until_ready()

    def kill(self) -> None:
        """kill -9: it gets to say nothing."""
        raise NodeFailed("a node inside this process cannot be killed alone: ask for processes")

    def pause(self) -> None:
        """SIGSTOP: it is there and answers nothing."""
        raise NodeFailed("a node inside this process cannot be held alone: ask for processes")

    def resume(self) -> None:
        """SIGCONT: it goes on as if no time had passed."""
        raise NodeFailed("a node inside this process cannot be held alone: ask for processes")

    def listeners(self) -> str:
        broker = [f"PLAINTEXT://{self.host}:{self.port}"] if self.is_broker else []
        controller = [f"CONTROLLER://{self.host}:{self.controller_port}"] if self.is_controller else []
        return ",".join(broker + controller)


class ProcessNode(ClusterNode):
    """A node as users run it: `odradek start FILE`."""

    def __init__(self, node_id: int, roles: str, directory: pathlib.Path, place: Place) -> None:
        super().__init__(node_id, roles, directory, place.host)
        self.process = NodeProcess(repr(self), prefix=place.prefix)

    @property
    def running(self) -> bool:
        return self.process.running

    def begin(self) -> None:
        self.process.begin([str(self.properties_file)])

    def wait_until_ready(self) -> None:
        self.process.wait_until_ready()

    def stop(self) -> None:
        self.process.stop()

    def kill(self) -> None:
        self.process.kill()

    def pause(self) -> None:
        self.process.pause()

    def resume(self) -> None:
        self.process.resume()

    def begin_closing(self) -> None:
        self.process.kill()

    def close(self) -> None:
        self.process.close()


class ThreadNode(ClusterNode):
    """A node on a thread of this process."""

    def __init__(self, node_id: int, roles: str, directory: pathlib.Path) -> None:
        super().__init__(node_id, roles, directory, HOST)
        self._thread = NodeThread(HOST, repr(self))

    @property
    def running(self) -> bool:
        return self._thread.running

    def begin(self) -> None:
        self._thread.begin(self.settings())

    def wait_until_ready(self) -> None:
        self._thread.wait_until_ready()

    def stop(self) -> None:
        self._thread.stop()

    def begin_closing(self) -> None:
        self._thread.begin_stop()

    def close(self) -> None:
        self._thread.stop()


class RunningCluster:
    """Nodes that know each other."""

    def __init__(
        self,
        directory: str,
        *,
        brokers: int,
        controllers: int,
        in_process: bool,
        properties: Mapping[str, str],
        log_dirs: int,
        places: Sequence[Place],
    ) -> None:
        self.cluster_id = uuid_text(random_uuid(SystemEntropy()))
        self.nodes: dict[int, ClusterNode] = {}
        roles = node_roles(brokers=brokers, controllers=controllers)
        for index, (node_id, role) in enumerate(roles.items()):
            own = pathlib.Path(directory) / f"node-{node_id}"
            own.mkdir(parents=True, exist_ok=True)
            if in_process:
                self.nodes[node_id] = ThreadNode(node_id, role, own)
            else:
                self.nodes[node_id] = ProcessNode(node_id, role, own, places[index] if places else Place())
            self.nodes[node_id].log_dirs = log_dirs
        configure(self.nodes.values(), cluster_id=self.cluster_id, properties=properties)

    @property
    def brokers(self) -> list[ClusterNode]:
        return [node for node in self.nodes.values() if node.is_broker]

    @property
    def bootstrap_servers(self) -> str:
        """What clients are configured with: all brokers, whether they run or not."""
        return ",".join(node.bootstrap_server for node in self.brokers)

    def start(self) -> None:
        """Start all that do not run, at the same time."""
        start_all(self.nodes.values())

    def close(self) -> None:
        """Leave nothing behind, however the test left it."""
        close_all(self.nodes.values())

    def format(self, node: ClusterNode) -> None:
        """Make its empty directories its own, as `odradek storage format` does."""
        _format(node, self.cluster_id)


def node_roles(*, brokers: int, controllers: int) -> dict[int, str]:
    """What each node is, by its id. Without controllers of their own, one or three brokers are controllers, too."""
    voters = 0 if controllers else 3 if brokers >= 3 else 1
    roles = {number: "broker,controller" if number <= voters else "broker" for number in range(1, brokers + 1)}
    return roles | {FIRST_CONTROLLER_ID + number: "controller" for number in range(controllers)}


def configure(nodes: Collection[ClusterNode], *, cluster_id: str, properties: Mapping[str, str]) -> None:
    """Write each node's `server.properties`, and format directories that are not there yet."""
    voters = [f"{node.node_id}@{node.host}:{node.controller_port}" for node in nodes if node.is_controller]
    brokers = sum(node.is_broker for node in nodes)
    for node in nodes:
        settings = {
            "process.roles": node.roles,
            "node.id": str(node.node_id),
            "listeners": node.listeners(),
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.voters": ",".join(voters),
            "log.dirs": ",".join(map(str, node.data_directories)),
            "offsets.topic.replication.factor": str(min(brokers, 3)),
        }
        node.properties_file.write_text(format_properties(settings | dict(properties)), encoding="utf-8")
        if not node.data_directory.exists():
            _format(node, cluster_id)


def start_all(nodes: Collection[ClusterNode]) -> None:
    """Start those that do not run, at the same time: none gets ready without a majority."""
    starting = [node for node in nodes if not node.running]
    for node in starting:
        node.begin()
    for node in starting:
        node.wait_until_ready()


def close_all(nodes: Collection[ClusterNode]) -> None:
    """End all of them, at the same time: nobody is left to take anything over."""
    for node in nodes:
        node.begin_closing()
    for node in nodes:
        node.close()


def _format(node: ClusterNode, cluster_id: str) -> None:
    config = load(node.settings(), host_name=node.host)
    disk = RealDisk()
    format_directories(
        config,
        disk,
        SystemEntropy(),
        now_ms=SystemClock().now_ms(),
        cluster_id=cluster_id,
        unformatted=survey(config, disk).unformatted,
        initial_controllers=None,
    )
