"""A broker as a process of its own: start it on free ports, wait for it, stop or kill it.

Odradek and Apache Kafka get the same `server.properties`, so that everything above this file need not know which one it
talks to.
"""

from __future__ import annotations

import abc
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from bench import wire
from odradek.testing.ports import free_port

START_TIMEOUT_S = 90.0
STOP_TIMEOUT_S = 60.0
CLUSTER_ID = "b2RyYWRlay1iZW5jaC0xMA"
FILES_GO_SOON = {"log.segment.delete.delay.ms": "1000"}
"""Topics of a measurement are deleted after it. Were their files kept for a minute more, the next would have to take
memory for its own that the system has given away long ago, which costs whoever writes ten times as much."""


@dataclass(frozen=True)
class Seat:
    """A node's place in its cluster: who it is, where it listens, and what it does there."""

    node_id: int
    port: int = field(default_factory=free_port)
    controller_port: int = field(default_factory=free_port)
    roles: tuple[str, ...] = ("broker", "controller")

    @property
    def voter(self) -> str:
        """As `controller.quorum.voters` names it."""
        return f"{self.node_id}@127.0.0.1:{self.controller_port}"


class Server(abc.ABC):
    """One node, alone with both roles unless it is given a seat among others. Its directory outlives it, so it can be
    started again."""

    kind = "?"

    def __init__(
        self,
        directory: Path | None = None,
        *,
        properties: dict[str, str] | None = None,
        seat: Seat | None = None,
        voters: Sequence[Seat] = (),
    ) -> None:
        self._owned = directory is None
        self.directory = directory if directory is not None else Path(tempfile.mkdtemp(prefix=f"{self.kind}-"))
        self.directory.mkdir(parents=True, exist_ok=True)
        self.data = self.directory / "data"
        self.log_file = self.directory / f"{self.kind}.log"
        self.seat = seat if seat is not None else Seat(1)
        self.voters = tuple(voters) or (self.seat,)
        self.port, self.controller_port = self.seat.port, self.seat.controller_port
        self.bootstrap = f"127.0.0.1:{self.port}"
        self.process: subprocess.Popen[bytes] | None = None
        self._write_properties(properties or {})

    @abc.abstractmethod
    def command(self) -> list[str]:
        """What runs the broker."""

    @abc.abstractmethod
    def format(self) -> None:
        """Make the data directory of a lone node ready."""

    @abc.abstractmethod
    def run_storage_format(self, *options: str) -> None:
        """Make it ready with these options of the kind's own tool."""

    @property
    def properties_file(self) -> Path:
        return self.directory / "server.properties"

    @property
    def pid(self) -> int:
        assert self.process is not None
        return self.process.pid

    def __enter__(self) -> Server:
        self.format()
        self.spawn()
        self.wait_until_ready()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
        if self._owned:
            shutil.rmtree(self.directory, ignore_errors=True)

    def spawn(self) -> None:
        """Start the process and return at once."""
        with self.log_file.open("ab") as log:
            self.process = self._popen(log)

    def wait_until_ready(self, timeout_s: float = START_TIMEOUT_S) -> None:
        """Until the broker answers Metadata with itself in it."""
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            assert self.process is not None
            if self.process.poll() is not None:
                raise RuntimeError(f"{self.kind} exited with {self.process.returncode}:\n{self.log_tail()}")
            try:
                with wire.Connection(self.port, timeout_s=5) as connection:
                    if wire.brokers_known(connection) > 0:
                        return
            except (OSError, wire.ConnectionClosed):
                pass
            time.sleep(0.02)
        self.kill()
        raise RuntimeError(f"{self.kind} was not ready after {timeout_s} s:\n{self.log_tail()}")

    def stop(self) -> int:
        """SIGTERM, and the exit code."""
        return self._end(signal.SIGTERM)

    def kill(self) -> int:
        """SIGKILL: no time to write anything."""
        return self._end(signal.SIGKILL)

    def log_tail(self, size: int = 4_000) -> str:
        """The last of what the process said."""
        return self.log_file.read_text(errors="replace")[-size:] if self.log_file.exists() else ""

    def _end(self, how: signal.Signals) -> int:
        if self.process is None:
            return 0
        if self.process.poll() is None:
            self.process.send_signal(how)
        try:
            return self.process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise RuntimeError(f"{self.kind} did not stop within {STOP_TIMEOUT_S} s:\n{self.log_tail()}") from None

    def _popen(self, log: IO[bytes]) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            self.command(), stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=self._environment()
        )

    def _environment(self) -> dict[str, str]:
        # KAFKA_* would be settings; and users have bytecode at hand when they start a node, whatever this shell says.
        unwanted = ("KAFKA_", "PYTHONDONTWRITEBYTECODE")
        return {key: value for key, value in os.environ.items() if not key.startswith(unwanted)}

    def _write_properties(self, extra: dict[str, str]) -> None:
        listeners = {
            "broker": f"PLAINTEXT://127.0.0.1:{self.port}",
            "controller": f"CONTROLLER://127.0.0.1:{self.controller_port}",
        }
        settings = {
            "process.roles": ",".join(self.seat.roles),
            "node.id": str(self.seat.node_id),
            "controller.quorum.voters": ",".join(voter.voter for voter in self.voters),
            "listeners": ",".join(listeners[role] for role in self.seat.roles),
            "controller.listener.names": "CONTROLLER",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
            "log.dirs": str(self.data),
            "offsets.topic.replication.factor": "1",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1",
            **extra,
        }
        lines = [f"{key}={value}\n" for key, value in settings.items() if value]
        self.properties_file.write_text("".join(lines))


class OdradekServer(Server):
    """The node under test, started the way a user starts it."""

    kind = "odradek"

    def format(self) -> None:
        """Alone it does so by itself."""

    def run_storage_format(self, *options: str) -> None:
        """`odradek storage format`, the way a user runs it."""
        command = [sys.executable, "-m", "odradek", "storage", "format", "-t", CLUSTER_ID]
        command += ["-c", str(self.properties_file), *options]
        outcome = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
        if outcome.returncode != 0:
            raise RuntimeError(f"odradek storage format exited with {outcome.returncode}: {outcome.stderr}")

    def command(self) -> list[str]:
        return [sys.executable, "-m", "odradek", "start", str(self.properties_file)]
