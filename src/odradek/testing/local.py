"""A local cluster whose nodes outlive the command that started them: found again by the files in its directory.

DIR/node-1/server.properties   node.pid   node.log   data/
"""

from __future__ import annotations

import os
import pathlib
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping

from odradek.adapters.entropy import SystemEntropy
from odradek.ids import uuid_text
from odradek.metadata.uuids import random_uuid
from odradek.testing.cluster import ClusterNode, close_all, configure, node_roles, start_all
from odradek.testing.ports import HOST
from odradek.testing.process import READY, START_PATIENCE_S, STOP_PATIENCE_S, NodeFailed, node_environment

CONTROLLER_PORT_DISTANCE = 10_000
"""From a node's port to its controller's: 9092 and 19092."""


class NoSuchCluster(Exception):
    """Nobody has made a cluster in that directory."""


class DetachedNode(ClusterNode):
    """A node's process by its id, on file."""

    @property
    def pid_file(self) -> pathlib.Path:
        return self.directory / "node.pid"

    @property
    def log_file(self) -> pathlib.Path:
        return self.directory / "node.log"

    @property
    def pid(self) -> int | None:
        """Of the process that runs; None if there is none."""
        try:
            pid = int(self.pid_file.read_text(encoding="utf-8"))
        except (FileNotFoundError, ValueError):
            return None
        return pid if str(self.properties_file) in _command_of(pid) else None

    @property
    def running(self) -> bool:
        return self.pid is not None

    @property
    def state(self) -> str:
        """As people call it: running, paused or stopped."""
        pid = self.pid
        if pid is None:
            return "stopped"
        return "paused" if _is_held(pid) else "running"

    def begin(self) -> None:
        assert not self.running, f"{self} is running"
        with self.log_file.open("ab") as log:
            self._log_before = log.tell()
            process = subprocess.Popen(
                [sys.executable, "-m", "odradek", "start", str(self.properties_file)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=node_environment(),
                start_new_session=True,
            )
        self.pid_file.write_text(f"{process.pid}\n", encoding="utf-8")
        self._process = process

    def wait_until_ready(self) -> None:
        deadline = time.monotonic() + START_PATIENCE_S
        while not READY.search(self._printed()):
            if self._process.poll() is not None:
                self.pid_file.unlink(missing_ok=True)
                raise NodeFailed(f"{self} did not start:\n{self._printed()}")
            if time.monotonic() > deadline:
                raise NodeFailed(f"{self} was not ready after {START_PATIENCE_S:.0f} s; {self.log_file} may say why")
            time.sleep(0.02)

    def stop(self) -> None:
        self._signal(signal.SIGCONT)  # One that is held could not even stop.
        self._signal(signal.SIGTERM)
        self._wait_until_gone()

    def kill(self) -> None:
        self._signal(signal.SIGKILL)
        self._wait_until_gone()

    def pause(self) -> None:
        self._signal(signal.SIGSTOP)
        self._wait_until(lambda: self.state != "running", "stood still")

    def resume(self) -> None:
        self._signal(signal.SIGCONT)

    def begin_closing(self) -> None:
        self._signal(signal.SIGCONT)
        self._signal(signal.SIGTERM)

    def close(self) -> None:
        self._wait_until_gone()

    def _signal(self, number: signal.Signals) -> None:
        pid = self.pid
        if pid is not None:
            os.kill(pid, number)

    def _wait_until_gone(self) -> None:
        self._wait_until(lambda: not self.running, "stopped")
        self.pid_file.unlink(missing_ok=True)

    def _wait_until(self, so: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + STOP_PATIENCE_S
        while not so():
            if time.monotonic() > deadline:
                raise NodeFailed(f"{self} had not {what} after {STOP_PATIENCE_S:.0f} s")
            time.sleep(0.02)

    def _printed(self) -> str:
        with self.log_file.open("rb") as log:
            log.seek(self._log_before)
            return log.read().decode("utf-8", "replace")


class LocalCluster:
    """The nodes of one directory."""

    def __init__(self, directory: pathlib.Path) -> None:
        self._directory = directory
        self.nodes: dict[int, DetachedNode] = {}

    @classmethod
    def find(cls, directory: pathlib.Path) -> LocalCluster:
        """The cluster that was made there; NoSuchCluster if none was."""
        cluster = cls(directory)
        for path in sorted(directory.glob("node-*/server.properties")):
            node_id = int(path.parent.name.partition("-")[2])
            node = DetachedNode(node_id, "", path.parent, HOST, ports=(0, 0))
            settings = node.settings()
            node.roles = settings["process.roles"]
            node.port, node.controller_port = _ports_of(settings["listeners"])
            cluster.nodes[node_id] = node
        if not cluster.nodes:
            raise NoSuchCluster(f"There is no cluster in {directory}.")
        return cluster

    @classmethod
    def make(
        cls, directory: pathlib.Path, *, brokers: int, first_port: int, properties: Mapping[str, str]
    ) -> LocalCluster:
        """A new cluster, formatted and not started; brokers listen on `first_port` and those behind it.

        NodeFailed, and nothing made, if somebody else listens there.
        """
        cluster = cls(directory)
        for node_id, roles in node_roles(brokers=brokers, controllers=0).items():
            port = first_port + node_id - 1
            ports = (port, port + CONTROLLER_PORT_DISTANCE)
            cluster.nodes[node_id] = DetachedNode(node_id, roles, directory / f"node-{node_id}", HOST, ports=ports)
        _check_free(cluster.nodes.values())
        for node in cluster.nodes.values():
            node.directory.mkdir(parents=True)
        configure(cluster.nodes.values(), cluster_id=uuid_text(random_uuid(SystemEntropy())), properties=properties)
        return cluster

    @property
    def bootstrap_servers(self) -> str:
        return ",".join(node.bootstrap_server for node in self.nodes.values())

    def start(self) -> None:
        """Start all that do not run, at the same time; if one cannot be started, none of these is left running."""
        starting = [node for node in self.nodes.values() if not node.running]
        _check_free(starting)
        try:
            start_all(starting)
        except NodeFailed:
            close_all(starting)
            raise

    def stop(self) -> None:
        """Stop all, at the same time."""
        close_all(self.nodes.values())


def _check_free(nodes: Iterable[DetachedNode]) -> None:
    """NodeFailed if somebody listens where nodes are to listen: better told before any of them has started."""
    taken = []
    for node in nodes:
        for role, port, wanted in (
            ("broker", node.port, node.is_broker),
            ("controller", node.controller_port, node.is_controller),
        ):
            if wanted and port and not _is_free(port):
                taken.append(f"{HOST}:{port} ({role} of {node})")
    if taken:
        raise NodeFailed(f"Other processes listen on {', '.join(taken)}; nothing is started.")


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        # As a node binds: connections of an earlier one that linger are in nobody's way.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
    return True


def _ports_of(listeners: str) -> tuple[int, int]:
    """A broker's and a controller's, 0 where the node is not one."""
    ports = {
        name: int(rest.rpartition(":")[2]) for name, _, rest in (each.partition(":") for each in listeners.split(","))
    }
    return ports.get("PLAINTEXT", 0), ports.get("CONTROLLER", 0)


def _command_of(pid: int) -> str:
    """The command line of a process, empty if there is no such process: its number may be another's by now."""
    try:
        return pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", "replace")
    except FileNotFoundError:
        return "" if pathlib.Path("/proc/self").exists() else _asked_of_ps(pid, "command=")


def _is_held(pid: int) -> bool:
    try:
        status = pathlib.Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        return _asked_of_ps(pid, "stat=").startswith("T")
    return status.rpartition(")")[2].split()[0] == "T"


def _asked_of_ps(pid: int, what: str) -> str:
    """For systems without /proc."""
    run = subprocess.run(["ps", "-o", what, "-p", str(pid)], capture_output=True, text=True, check=False)
    return run.stdout.strip()
