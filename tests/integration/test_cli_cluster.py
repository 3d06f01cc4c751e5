"""`odradek cluster`: a cluster of processes on this machine, what is done to its nodes, and whether it is well."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture
def directory(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path / "cluster"
    odradek("cluster", "remove", "--data", str(tmp_path / "cluster"))


def odradek(*words: str) -> subprocess.CompletedProcess[str]:
    environment = {name: text for name, text in os.environ.items() if not name.startswith("ODRADEK_")}
    command = [sys.executable, "-m", "odradek", *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, env=environment)


def done(*words: str) -> Any:
    ran = odradek(*words, "--format", "json")
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return json.loads(ran.stdout)


def free_port() -> int:
    """The first of three in a row that nobody has, with controllers' ports above them."""
    for port in range(20_000, 50_000, 7):
        wanted = [port + step + above for step in range(3) for above in (0, 10_000)]
        try:
            for each in wanted:
                with socket.socket() as probe:
                    probe.bind(("127.0.0.1", each))
        except OSError:
            continue
        return port
    raise AssertionError("no free ports")


def test_a_node_is_killed_paused_and_brought_back(directory: Path) -> None:
    data = ("--data", str(directory))
    started = done("cluster", "start", "--brokers", "3", "--port", str(free_port()), *data)
    at = ("--bootstrap-server", started["bootstrap_servers"])
    assert [node["state"] for node in done("cluster", "status", *data)["nodes"]] == ["running"] * 3
    done("topic", "create", "t", "--partitions", "3", "--replication-factor", "3", *at)
    assert done("cluster", "health", "--exit-when-healthy", "--brokers", "3", "--timeout", "60", *at)["healthy"]

    assert done("cluster", "kill", "2", *data) == {"node": 2, "state": "stopped"}
    assert "Node 2 is stopped." in odradek("cluster", "pause", "2", *data).stderr
    ill = odradek("cluster", "health", "--brokers", "3", "--format", "json", *at)
    assert ill.returncode == 1
    assert json.loads(ill.stdout)["healthy"] is False

    assert done("cluster", "restart", "2", *data) == {"node": 2, "state": "running"}
    assert done("cluster", "pause", "3", *data) == {"node": 3, "state": "paused"}
    assert "Node 1 is running." in odradek("cluster", "resume", "1", *data).stderr
    assert done("cluster", "resume", "3", *data) == {"node": 3, "state": "running"}
    assert done("cluster", "stop", "1", *data) == {"node": 1, "state": "stopped"}
    done("cluster", "start", *data)
    assert done("cluster", "health", "--exit-when-healthy", "--brokers", "3", "--timeout", "60", *at)["healthy"]

    done("cluster", "stop", *data)
    assert {node["state"] for node in done("cluster", "status", *data)["nodes"]} == {"stopped"}

    with (directory / "node-2" / "server.properties").open("a") as properties:
        properties.write("num.partitions=many\n")
    failed = odradek("cluster", "start", *data)
    assert failed.returncode == 1
    assert "node 2 did not start" in failed.stderr
    assert {node["state"] for node in done("cluster", "status", *data)["nodes"]} == {"stopped"}


def test_what_cannot_be_is_said_in_a_sentence(directory: Path, tmp_path: Path) -> None:
    nowhere = odradek("cluster", "status", "--data", str(directory))
    assert nowhere.returncode == 1
    assert "odradek cluster start" in nowhere.stderr
    too_high = odradek("cluster", "start", "--port", "60000", "--data", str(directory))
    assert too_high.returncode == 2
    assert "at most" in too_high.stderr
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "file").write_text("x")
    not_empty = odradek("cluster", "start", "--data", str(tmp_path / "other"))
    assert not_empty.returncode == 1
    assert "not empty" in not_empty.stderr
    with socket.socket() as other:
        other.bind(("127.0.0.1", free_port() + 10_001))
        other.listen()
        port = other.getsockname()[1] - 10_001
        taken = odradek("cluster", "start", "--port", str(port), "--data", str(directory))
    assert taken.returncode == 1
    assert f"127.0.0.1:{port + 10_001} (controller of node 2); nothing is started" in taken.stderr
    assert not directory.exists()
    wrong = odradek("cluster", "start", "--override", "num.partitions=many", "--data", str(directory))
    assert wrong.returncode == 1
    assert "num.partitions" in wrong.stderr
    assert "Traceback" not in wrong.stderr
