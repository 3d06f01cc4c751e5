"""Apache Kafka's tools that move partitions and leaders, as they come, against three nodes."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from bench.apache_kafka import tool
from bench.clusters import Cluster
from confluent_kafka import Producer
from tests.compat.brokers import new_cluster
from tests.compat.patience import eventually
from tests.integration.cli import Cli

pytestmark = [pytest.mark.compat, pytest.mark.java]

REASSIGN = "org.apache.kafka.tools.reassign.ReassignPartitionsCommand"
ELECT = "org.apache.kafka.tools.LeaderElectionCommand"
TOPICS = "org.apache.kafka.tools.TopicCommand"
CLUSTER = "org.apache.kafka.tools.ClusterTool"
CONFIGS = "kafka.admin.ConfigCommand"
SIDES = ("leader", "follower")
OWN = ("torn-", "short-", "single-", "whole-")
TOPIC = "wandering"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Three nodes, each broker and controller, and a topic on the first two."""
    with new_cluster(tmp_path_factory.mktemp("leaders")) as running:
        tool(
            TOPICS, "--bootstrap-server", running.bootstrap, "--create", "--topic", TOPIC, "--replica-assignment", "1:2"
        )
        yield running


def described(cluster: Cluster) -> tuple[str, str]:
    """Leader and replicas of the partition."""
    said = tool(TOPICS, "--bootstrap-server", cluster.servers[0].bootstrap, "--describe", "--topic", TOPIC)
    found = re.search(r"Partition: 0\s+Leader: (\S+)\s+Replicas: (\S+)", said)
    assert found is not None, said
    return found.group(1), found.group(2)


def reassign(cluster: Cluster, place: Path, replicas: list[int], *options: str) -> str:
    plan = {"version": 1, "partitions": [{"topic": TOPIC, "partition": 0, "replicas": replicas}]}
    file = place / "plan.json"
    file.write_text(json.dumps(plan))
    address = ("--bootstrap-server", cluster.servers[0].bootstrap)
    return tool(REASSIGN, *address, "--reassignment-json-file", file, *options, check=False)


def lines(said: str) -> list[str]:
    """What a tool said, but for blank lines and the places of logs."""
    said = re.sub(r'"log_dirs":\[[^]]*\]', '"log_dirs":[]', said)
    return [line.strip() for line in said.splitlines() if line.strip()]


def throttles(cluster: Cluster) -> dict[str, str]:
    """What kafka-configs shows of them: those of the topic, and those of the brokers."""
    found: dict[str, str] = {}
    address = ("--bootstrap-server", cluster.bootstrap)
    said = tool(CONFIGS, *address, "--describe", "--entity-type", "topics", "--entity-name", "slow")
    found.update(re.findall(r"^  (\S+\.throttled\.\S+)=(\S+) sensitive", said, re.M))
    for broker in (1, 2, 3):
        said = tool(CONFIGS, *address, "--describe", "--entity-type", "brokers", "--entity-name", broker)
        rates = re.findall(r"^  (\S+\.throttled\.rate)=(\S+) sensitive", said, re.M)
        found.update({f"{name} of {broker}": rate for name, rate in rates})
    return found


def isr(cluster: Cluster, topic: str) -> list[int]:
    said = tool(TOPICS, "--bootstrap-server", cluster.server(1).bootstrap, "--describe", "--topic", topic)
    found = re.search(r"Isr: ([\d,]*)", said)
    assert found is not None, said
    return [int(each) for each in found.group(1).split(",") if each]


def lacking(cluster: Cluster, cli: Cli) -> dict[str, list[str]]:
    """What both tools say lacks something, which must be the same."""
    found: dict[str, list[str]] = {}
    for kind in ("under-replicated", "under-min-isr", "at-min-isr", "unavailable"):
        said = tool(
            TOPICS, "--bootstrap-server", cluster.server(1).bootstrap, "--describe", f"--{kind}-partitions", check=False
        )
        found[kind] = sorted(
            f"{topic}-{index}" for topic, index in re.findall(r"Topic: (\S+)\s+Partition: (\d+)", said)
        )
        ours = cli.json("topic", "describe", f"--{kind}-partitions")
        assert sorted(f"{each['topic']}-{each['partition']}" for each in ours) == found[kind], (kind, said)
    health = json.loads(cli.run("cluster", "health", "--format", "json").out)
    assert sorted(health["under_replicated"]) == found["under-replicated"]
    assert sorted(health["without_leader"]) == found["unavailable"]
    return {kind: [name for name in names if name.startswith(OWN)] for kind, names in found.items()}


def load(cluster: Cluster, topic: str, size: int) -> None:
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all", "log_level": 0})
    for _ in range(size // 50_000):
        producer.produce(topic, bytes(50_000), partition=0)
    assert producer.flush(60) == 0


def test_partitions_and_leaders_move(cluster: Cluster, tmp_path: Path) -> None:
    started = reassign(cluster, tmp_path, [3, 1], "--execute", "--throttle", "10000000")
    assert f"Successfully started partition reassignment for {TOPIC}-0" in started
    eventually(
        lambda: f"Reassignment of partition {TOPIC}-0 is completed" in reassign(cluster, tmp_path, [3, 1], "--verify"),
        True,
        timeout_s=60,
    )
    assert "No partition reassignments found" in tool(REASSIGN, "--bootstrap-server", cluster.bootstrap, "--list")
    assert described(cluster) == ("1", "3,1")
    everywhere = ("--bootstrap-server", cluster.bootstrap, "--election-type", "preferred", "--all-topic-partitions")
    assert f"Successfully completed leader election (PREFERRED) for partitions {TOPIC}-0" in tool(ELECT, *everywhere)
    eventually(lambda: described(cluster), ("3", "3,1"))
    one = ("--election-type", "preferred", "--topic", TOPIC, "--partition", "0")
    assert "Valid replica already elected" in tool(ELECT, "--bootstrap-server", cluster.bootstrap, *one)


def test_a_throttle_is_set_honoured_changed_and_removed(cluster: Cluster, tmp_path: Path) -> None:
    address = ("--bootstrap-server", cluster.bootstrap)
    plan = tmp_path / "plan.json"
    moves = [{"topic": "slow", "partition": 0, "replicas": [3, 2], "log_dirs": ["any", "any"]}]
    plan.write_text(json.dumps({"version": 1, "partitions": moves}))
    planned = (*address, "--reassignment-json-file", plan)
    tool(TOPICS, *address, "--create", "--topic", "slow", "--replica-assignment", "1:2")
    load(cluster, "slow", 20_000_000)  # Whatever the rate, a fetch's worth (1 MiB) goes through every 11 seconds.

    assert lines(tool(REASSIGN, *planned, "--execute", "--throttle", "1000")) == [
        "Current partition replica assignment",
        '{"version":1,"partitions":[{"topic":"slow","partition":0,"replicas":[1,2],"log_dirs":[]}]}',
        "Save this to use as the --reassignment-json-file option during rollback",
        "Warning: You must run --verify periodically, until the reassignment completes, to ensure the throttle "
        "is removed.",
        "The inter-broker throttle limit was set to 1000 B/s",
        "Successfully started partition reassignment for slow-0",
    ]
    assert throttles(cluster) == {
        "leader.replication.throttled.replicas": "0:1,0:2",
        "follower.replication.throttled.replicas": "0:3",
        **{f"{side}.replication.throttled.rate of {broker}": "1000" for side in SIDES for broker in (1, 2, 3)},
    }
    assert lines(tool(REASSIGN, *planned, "--verify")) == [
        "Status of partition reassignment:",
        "Reassignment of partition slow-0 is still in progress.",
    ]
    assert lines(tool(REASSIGN, *address, "--list")) == [
        "Current partition reassignments:",
        "slow-0: replicas: 3,2,1. adding: 3. removing: 1.",
    ]
    assert "Cannot execute because there is an existing partition assignment" in tool(
        REASSIGN, *planned, "--execute", check=False
    )

    assert lines(tool(REASSIGN, *planned, "--cancel")) == [
        "Successfully cancelled partition reassignment for: slow-0",
        "None of the specified partition moves are active.Clearing broker-level throttles on brokers 1,2,3",
        "Clearing topic-level throttles on topic slow",
    ]
    assert throttles(cluster) == {}
    assert lines(tool(REASSIGN, *planned, "--verify")) == [
        "Status of partition reassignment:",
        "There is no active reassignment of partition slow-0, but replica set is 2,1 rather than 3,2.",
        "Clearing broker-level throttles on brokers 1,2,3",
        "Clearing topic-level throttles on topic slow",
    ]

    tool(REASSIGN, *planned, "--execute", "--throttle", "1000")
    assert throttles(cluster)["leader.replication.throttled.rate of 2"] == "1000"
    tool(REASSIGN, *planned, "--execute", "--additional", "--throttle", "100000000")
    assert throttles(cluster)["leader.replication.throttled.rate of 2"] == "100000000"
    eventually(lambda: "is completed" in tool(REASSIGN, *planned, "--verify", "--preserve-throttles"), True)
    assert throttles(cluster)["follower.replication.throttled.replicas"] == "0:3"
    assert lines(tool(REASSIGN, *planned, "--verify")) == [
        "Status of partition reassignment:",
        "Reassignment of partition slow-0 is completed.",
        "Clearing broker-level throttles on brokers 1,2,3",
        "Clearing topic-level throttles on topic slow",
    ]
    assert throttles(cluster) == {}


def test_what_partitions_lack_and_an_unclean_election(cluster: Cluster, tmp_path: Path) -> None:
    """Kafka's tool and `odradek` see the same partitions lack the same, on either kind of server."""
    address = ("--bootstrap-server", cluster.server(1).bootstrap)
    for topic, replicas, least in (("torn", "2:3", 1), ("short", "1:2:3", 3), ("single", "1", 2), ("whole", "1:2", 1)):
        placed = ("--replica-assignment", replicas, "--config", f"min.insync.replicas={least}")
        tool(TOPICS, *address, "--create", "--topic", topic, *placed)
    cli = Cli(cluster.server(1).bootstrap, tmp_path / "cli")
    assert lacking(cluster, cli) == {
        "under-replicated": [],
        "under-min-isr": ["single-0"],
        "at-min-isr": ["short-0"],
        "unavailable": [],
    }

    cluster.server(3).kill()
    eventually(lambda: isr(cluster, "torn"), [2], timeout_s=60)
    assert lacking(cluster, cli) == {
        "under-replicated": ["short-0", "torn-0"],
        "under-min-isr": ["short-0", "single-0"],
        "at-min-isr": ["torn-0"],
        "unavailable": [],
    }
    load(cluster, "torn", 100_000)
    cluster.server(2).kill()
    cluster.server(3).spawn()
    cluster.server(3).wait_until_ready()
    eventually(lambda: "torn-0" in lacking(cluster, cli)["unavailable"], True, timeout_s=60)
    assert lacking(cluster, cli)["under-min-isr"] == ["short-0", "single-0", "torn-0"]

    one = ("--topic", "torn", "--partition", "0")
    assert "Successfully completed leader election (UNCLEAN) for partitions torn-0" in tool(
        ELECT, *address, "--election-type", "unclean", *one
    )
    eventually(lambda: lacking(cluster, cli)["unavailable"] == [], True)
    cluster.server(2).spawn()
    cluster.server(2).wait_until_ready()
    eventually(lambda: sorted(isr(cluster, "torn")), [2, 3], timeout_s=60)
    eventually(lambda: lacking(cluster, cli)["under-replicated"] == [], True, timeout_s=60)


def test_a_node_is_forgotten(cluster: Cluster) -> None:
    gone = next(node for node in (2, 3) if node != cluster.controller())
    cluster.server(gone).stop()
    address = ("--bootstrap-server", cluster.servers[0].bootstrap)
    assert f"Broker {gone} is no longer registered" in tool(CLUSTER, "unregister", *address, "--id", gone)

    def known() -> list[str]:
        return re.findall(r"^(\d)\s", tool(CLUSTER, "list-endpoints", *address, "--include-fenced-brokers"), re.M)

    eventually(known, sorted(map(str, (1, 5 - gone))))
