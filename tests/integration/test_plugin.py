"""The pytest plugin, as someone else's project uses it: in a pytest of its own, with warnings as errors."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

SENDS = """
from confluent_kafka import Producer

def send(node, value=b"x", topic="t"):
    producer = Producer({"bootstrap.servers": node.bootstrap_servers, "log_level": 0})
    producer.produce(topic, value)
    assert producer.flush(20) == 0
"""


def run_pytest(directory: Path, tests: str, *arguments: str, ini: str = "") -> subprocess.CompletedProcess[str]:
    (directory / "test_theirs.py").write_text(SENDS + tests)
    (directory / "pytest.ini").write_text(f"[pytest]\nfilterwarnings = error\naddopts = --strict-markers\n{ini}\n")
    command = [sys.executable, "-m", "pytest", "-v", "-p", "no:cacheprovider", *arguments]
    return subprocess.run(command, cwd=directory, capture_output=True, text=True, timeout=120)


def expect(ran: subprocess.CompletedProcess[str], **outcomes: int) -> None:
    summary = ran.stdout.strip().splitlines()[-1]
    for outcome, count in outcomes.items():
        assert f"{count} {outcome}" in summary, ran.stdout + ran.stderr


def test_every_test_gets_a_node_of_its_own(tmp_path: Path) -> None:
    ran = run_pytest(
        tmp_path,
        """
import os

seen = []

def test_one(kafka):
    send(kafka)
    assert "t-0" in os.listdir(kafka.data_directory)
    seen.append(kafka.data_directory)

def test_two(kafka):
    assert "t-0" not in os.listdir(kafka.data_directory)
    assert not os.path.exists(seen[0])
""",
    )
    expect(ran, passed=2)


def test_a_session_shares_one_node(tmp_path: Path) -> None:
    ran = run_pytest(
        tmp_path,
        """
ports = []

def test_one(kafka_session):
    send(kafka_session)
    ports.append(kafka_session.port)

def test_two(kafka_session, kafka):
    assert ports == [kafka_session.port]
    assert kafka.port != kafka_session.port
""",
    )
    expect(ran, passed=2)


def test_markers_say_properties_and_where_the_node_runs(tmp_path: Path) -> None:
    ran = run_pytest(
        tmp_path,
        """
import os
import pytest

pytestmark = pytest.mark.kafka(properties={"num.partitions": 2, "auto.create.topics.enable": True})

def partitions(node):
    return sorted(name for name in os.listdir(node.data_directory) if name.startswith("t-"))

def test_of_the_module(kafka):
    send(kafka)
    assert partitions(kafka) == ["t-0", "t-1"]

@pytest.mark.kafka(properties={"num.partitions": "3"}, in_process=False)
def test_of_its_own(kafka):
    send(kafka)
    assert partitions(kafka) == ["t-0", "t-1", "t-2"]
    kafka.kill()

@pytest.mark.kafka({"num.partitions": "3"})
def test_wrong_marker(kafka):
    pass
""",
    )
    expect(ran, passed=2, error=1)
    assert "@pytest.mark.kafka takes properties" in ran.stdout


@pytest.mark.parametrize(("arguments", "ini"), [(["--kafka-node=subprocess"], ""), ([], "kafka_node = subprocess")])
def test_the_way_to_run_nodes_is_an_option(tmp_path: Path, arguments: list[str], ini: str) -> None:
    ran = run_pytest(
        tmp_path,
        """
import os

def test_elsewhere(kafka):
    assert kafka.pid != os.getpid()
""",
        *arguments,
        ini=ini,
    )
    expect(ran, passed=1)


def test_a_wrong_option_is_told(tmp_path: Path) -> None:
    ran = run_pytest(tmp_path, "def test(): pass", ini="kafka_node = somewhere")
    assert ran.returncode != 0
    assert "kafka_node is 'somewhere'" in ran.stdout + ran.stderr


def test_who_does_not_use_it_does_not_pay_for_it(tmp_path: Path) -> None:
    ran = run_pytest(
        tmp_path,
        """
import sys

def test_light():
    imported = sorted(name for name in sys.modules if name.split(".")[0] == "odradek")
    assert imported == [
        "odradek",
        "odradek.apps",
        "odradek.apps.pipelines",
        "odradek.apps.pipelines.plugin",
        "odradek.testing",
        "odradek.testing.plugin",
    ]
    assert "pyspark" not in sys.modules
""",
    )
    expect(ran, passed=1)


def test_a_cluster_of_three_survives_the_loss_of_one(tmp_path: Path) -> None:
    ran = run_pytest(
        tmp_path,
        """
import pytest
from confluent_kafka.admin import AdminClient, NewTopic

def lose_one(cluster, lose):
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers, "log_level": 0})
    admin.create_topics([NewTopic("t", 3, 3)])["t"].result(20)
    send(cluster)
    lose(cluster.nodes[2])
    send(cluster)
    assert not cluster.nodes[2].running
    cluster.nodes[2].start()
    send(cluster)

def test_stopped(kafka_cluster):
    lose_one(kafka_cluster, lambda node: node.stop())

@pytest.mark.kafka(in_process=False)
def test_killed(kafka_cluster):
    lose_one(kafka_cluster, lambda node: node.kill())
""",
    )
    expect(ran, passed=2)
