"""`odradek start` as people run it: a process, a ready line, signals, and one sentence when it cannot."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

PATIENCE_S = 30.0
READY = re.compile(
    r"Odradek \S+ ready: PLAINTEXT://127\.0\.0\.1:(\d+) \(node 1, cluster (\S{22}), data (.+)\) in \d+\.\d\d s"
)
LOG_LINE = re.compile(r"\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3}\] (?:DEBUG|INFO|WARN|ERROR|FATAL) .+ \([\w.]+\)")


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "odradek", *arguments]


def environment(**more: str) -> dict[str, str]:
    return {**{name: text for name, text in os.environ.items() if not name.startswith("KAFKA_")}, **more}


def run(directory: Path, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """A command that is expected to end by itself."""
    return subprocess.run(
        command(*arguments),
        cwd=directory,
        env=environment(**variables),
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )


class Started:
    """A node that runs, and what it printed."""

    def __init__(self, process: subprocess.Popen[str], output: Path) -> None:
        self.process = process
        self._output = output

    def printed(self) -> str:
        return self._output.read_text()

    def wait_for(self, pattern: re.Pattern[str]) -> re.Match[str]:
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            found = pattern.search(self.printed())
            if found:
                return found
            assert self.process.poll() is None, self.printed()
            time.sleep(0.01)
        raise AssertionError(f"never printed {pattern.pattern}:\n{self.printed()}")

    def stop(self, number: int = signal.SIGTERM) -> int:
        self.process.send_signal(number)
        return self.process.wait(PATIENCE_S)


@contextlib.contextmanager
def started(directory: Path, *arguments: str, **variables: str) -> Iterator[Started]:
    output = directory / "output.txt"
    with output.open("w") as sink:
        process = subprocess.Popen(
            command("start", *arguments),
            cwd=directory,
            env=environment(**variables),
            stdout=sink,
            stderr=subprocess.STDOUT,
            text=True,
        )
    try:
        yield Started(process, output)
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()


def connects(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 5):
        return True
    return False


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_node_with_nothing_configured(tmp_path: Path, number: int) -> None:
    with started(tmp_path, "--port", "0") as node:
        ready = node.wait_for(READY)
        assert connects(int(ready[1]))
        assert ready[3] == "odradek-data"
        assert node.stop(number) == 0
        lines = [line for line in node.printed().splitlines() if not READY.fullmatch(line)]
        assert [line for line in lines if not LOG_LINE.fullmatch(line)] == []
        assert lines[-1].endswith("INFO Stopped cleanly. (odradek)")
    assert (tmp_path / "odradek-data/.kafka_cleanshutdown").exists()


def test_a_restart_is_the_same_cluster(tmp_path: Path) -> None:
    clusters = []
    for _ in range(2):
        with started(tmp_path, "--port", "0") as node:
            clusters.append(node.wait_for(READY)[2])
            assert node.stop() == 0
    assert clusters[0] == clusters[1]


def test_kafkas_file_and_the_environment(tmp_path: Path) -> None:
    (tmp_path / "server.properties").write_text(
        "process.roles=broker,controller\nnode.id=1\ncontroller.listener.names=CONTROLLER\nnum.io.threads=8\n"
        "listeners=PLAINTEXT://127.0.0.1:0,CONTROLLER://127.0.0.1:0\nlog.dirs=somewhere-else\n"
    )
    variables = {"KAFKA_LOG_DIRS": "here", "CLUSTER_ID": "4L6g3nShT-eMCtK--X86sw", "KAFKA_HEAP_OPTS": "-Xmx1G"}
    with started(tmp_path, "server.properties", **variables) as node:
        ready = node.wait_for(READY)
        assert (ready[2], ready[3]) == ("4L6g3nShT-eMCtK--X86sw", "here")
        assert node.stop() == 0
        warned = [line for line in node.printed().splitlines() if " WARN " in line]
        assert len(warned) == 1
        assert "num.io.threads has no effect: one event loop does the work" in warned[0]


def test_a_directory_that_was_formatted_by_hand(tmp_path: Path) -> None:
    (tmp_path / "server.properties").write_text(
        "process.roles=broker,controller\nnode.id=1\ncontroller.listener.names=CONTROLLER\n"
        "listeners=PLAINTEXT://127.0.0.1:0,CONTROLLER://127.0.0.1:0\nlog.dirs=data\n"
    )
    formatted = run(
        tmp_path, "storage", "format", "-t", "4L6g3nShT-eMCtK--X86sw", "-c", "server.properties", "--standalone"
    )
    assert formatted.returncode == 0, formatted.stderr
    with started(tmp_path, "server.properties") as node:
        assert node.wait_for(READY)[2] == "4L6g3nShT-eMCtK--X86sw"
        assert node.stop() == 0


def test_two_nodes_on_one_directory(tmp_path: Path) -> None:
    with started(tmp_path, "--port", "0") as node:
        node.wait_for(READY)
        second = run(tmp_path, "start", "--port", "0")
        assert second.returncode == 1
        assert second.stderr == (
            f"odradek: {tmp_path.resolve()}/odradek-data is in use by another process: "
            "every node needs a directory of its own.\n"
        )
        assert node.stop() == 0


def test_a_port_that_is_taken(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        ended = run(tmp_path, "start", "--port", str(port))
    assert ended.returncode == 1
    assert ended.stderr == f"odradek: cannot listen on PLAINTEXT://127.0.0.1:{port}: address already in use.\n"


def test_a_host_that_is_not_there(tmp_path: Path) -> None:
    override = "listeners=PLAINTEXT://no-such-host.invalid:9092,CONTROLLER://127.0.0.1:0"
    ended = run(tmp_path, "start", "--override", override)
    assert ended.returncode == 1
    assert ended.stderr.startswith("odradek: cannot listen on PLAINTEXT://no-such-host.invalid:9092: ")
    assert ended.stderr.count("\n") == 1


def test_a_directory_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    ended = run(tmp_path, "start", "--port", "0", "--data", "file/data")
    assert ended.returncode == 1
    assert ended.stderr == "odradek: cannot use file/data: not a directory.\n"


def test_another_nodes_directory(tmp_path: Path) -> None:
    with started(tmp_path, "--port", "0") as node:
        node.wait_for(READY)
        assert node.stop() == 0
    ended = run(tmp_path, "start", "--port", "0", "--override", "node.id=2")
    assert ended.returncode == 1
    assert ended.stderr == (
        "odradek: odradek-data belongs to node 1, and this is node 2: "
        "set node.id accordingly, or use another directory.\n"
    )


def test_security_is_not_served_open(tmp_path: Path) -> None:
    override = "listeners=SASL_SSL://127.0.0.1:0,CONTROLLER://127.0.0.1:0"
    ended = run(tmp_path, "start", "--override", override)
    assert ended.returncode == 1
    assert "Listener SASL_SSL asks for SASL_SSL" in ended.stderr
    assert not (tmp_path / "odradek-data").exists()
