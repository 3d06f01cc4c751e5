"""Apache Kafka's tools for the quorum and its files, as they come, against three nodes."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from bench import wire
from bench.apache_kafka import java, tool
from bench.clusters import Cluster, Member, server_class
from bench.servers import Server
from tests.compat.brokers import KIND, new_cluster
from tests.compat.patience import eventually

pytestmark = [pytest.mark.compat, pytest.mark.java]

QUORUM = "org.apache.kafka.tools.MetadataQuorumCommand"
FEATURES = "org.apache.kafka.tools.FeatureCommand"
TOPICS = "org.apache.kafka.tools.TopicCommand"
DUMP = "org.apache.kafka.tools.DumpLogSegments"
SHELL = "org.apache.kafka.shell.MetadataShell"

# A snapshot as soon as a little was written, so that the tools have one to read.
EAGER_SNAPSHOTS = {"metadata.log.max.record.bytes.between.snapshots": "1000"}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Three nodes, each broker and controller, with one topic on all of them."""
    with new_cluster(tmp_path_factory.mktemp("quorum"), properties=EAGER_SNAPSHOTS) as running:
        with wire.Connection(running.servers[0].port) as connection:
            assert wire.create_topic(connection, "everywhere", 6, {"retention.ms": "3600000"}, replicas=3) == 0
        yield running


def addresses(cluster: Cluster) -> list[tuple[str, str]]:
    """Through the brokers, which forward, and straight to the controllers."""
    return [
        ("--bootstrap-server", cluster.bootstrap),
        ("--bootstrap-controller", f"127.0.0.1:{cluster.server(cluster.controller()).controller_port}"),
    ]


def test_kafka_metadata_quorum_describes_three_voters(cluster: Cluster) -> None:
    leader = cluster.controller()
    for address in addresses(cluster):
        status = tool(QUORUM, *address, "describe", "--status")
        assert re.search(rf"LeaderId:\s+{leader}\b", status), status
        assert re.search(r"LeaderEpoch:\s+[1-9]", status), status
        assert re.search(r"HighWatermark:\s+[1-9]", status), status
        voters = re.search(r"CurrentVoters:\s+(\[.*\])", status)
        assert voters is not None, status
        assert sorted(voter["id"] for voter in json.loads(voters.group(1))) == [1, 2, 3]
        assert re.search(r"CurrentObservers:\s+\[\]", status), status
    rows = tool(QUORUM, *addresses(cluster)[0], "describe", "--replication", "--human-readable").splitlines()
    roles = {int(row.split()[0]): row.split()[-1] for row in rows if re.match(r"\d", row)}
    assert roles == {node: "Leader" if node == leader else "Follower" for node in (1, 2, 3)}
    # Followers fetch all the time: an idle cluster writes a record every half a second.
    (row,) = [row for row in rows if row.startswith(str(next(iter({1, 2, 3} - {leader}))))]
    assert re.search(r"\d+ ms ago", row), row


def test_kafka_features_changes_levels_on_all_nodes(cluster: Cluster) -> None:
    def level(address: tuple[str, str]) -> str:
        said = tool(FEATURES, *address, "describe")
        found = re.search(r"Feature: group\.version\s.*FinalizedVersionLevel: (\d+)", said)
        assert found is not None, said
        return found.group(1)

    broker, controller = addresses(cluster)
    assert level(broker) == "1"
    said = tool(FEATURES, *broker, "downgrade", "--feature", "group.version=0")
    assert "group.version was downgraded to 0" in said
    assert level(controller) == "0"
    tool(FEATURES, *controller, "upgrade", "--feature", "group.version=1")
    eventually(lambda: level(("--bootstrap-server", cluster.servers[2].bootstrap)), "1")


def test_kafka_topics_describes_replicas_on_three_nodes(cluster: Cluster) -> None:
    def rows() -> list[tuple[list[int], list[int]]]:
        said = tool(TOPICS, "--bootstrap-server", cluster.servers[1].bootstrap, "--describe", "--topic", "everywhere")
        found = re.findall(r"Partition: \d+\s+Leader: [123]\s+Replicas: (\S+)\s+Isr: (\S+)", said)
        return [tuple(sorted(map(int, ids.split(","))) for ids in row) for row in found]  # type: ignore[misc]

    eventually(rows, [([1, 2, 3], [1, 2, 3])] * 6)


def test_dump_log_segments_decodes_the_log_and_the_snapshot(cluster: Cluster) -> None:
    follower = cluster.others(cluster.controller())[0]
    directory = follower.data / "__cluster_metadata-0"
    said = tool(DUMP, "--cluster-metadata-decoder", "--files", _joined(sorted(directory.glob("*.log"))))
    assert "isvalid: false" not in said.lower(), said
    snapshot = tool(DUMP, "--cluster-metadata-decoder", "--files", _newest_snapshot(directory))
    assert "SnapshotHeader" in snapshot
    assert "SnapshotFooter" in snapshot
    # Both halves together tell everything; how much of it is in the snapshot already depends on the moment.
    assert {str(node) for node in (1, 2, 3)} <= set(
        re.findall(r'"REGISTER_BROKER_RECORD".*?"brokerId":(\d)', said + snapshot)
    )
    assert '"type":"TOPIC_RECORD","version":0,"data":{"name":"everywhere"' in said + snapshot
    assert len(set(re.findall(r'"PARTITION_RECORD".*?"partitionId":(\d)', said + snapshot))) == 6


def test_kafka_metadata_shell_reads_a_snapshot(cluster: Cluster, tmp_path: Path) -> None:
    directory = cluster.others(cluster.controller())[0].data / "__cluster_metadata-0"
    eventually(lambda: b"everywhere" in _newest_snapshot(directory).read_bytes(), True, timeout_s=30)
    # The shell locks the log directory it reads from, and a running node has locked it already. The node may also make
    # a newer snapshot and remove this one meanwhile, so it is copied once.
    snapshot = tmp_path / directory.name / _newest_snapshot(directory).name
    snapshot.parent.mkdir()
    shutil.copyfile(directory / snapshot.name, snapshot)
    shown = shell_that_has_read(snapshot, "tree", "/image")
    assert re.search(r"^everywhere:$", shown.replace(" ", ""), re.M), shown
    assert re.search(r"retention\.ms:\s+3600000", shown), shown
    assert shell_that_has_read(snapshot, "ls", "/image/cluster/brokers").split() == ["1", "2", "3"]


def shell_that_has_read(snapshot: Path, *words: str) -> str:
    """It may show its empty image before it has read anything, where the machine is busy: then it is asked again."""
    for _ in range(5):
        shown = shell(snapshot, *words)
        if shown.strip() and "offset -1," not in shown:
            return shown
    return shown


def shell(snapshot: Path, *words: str) -> str:
    """What it printed. It has threads and a lock on the directory that outlive a call, so it gets a JVM of its own."""
    command = java(SHELL, "--snapshot", str(snapshot), *words)
    # What it logs, of the raft client for instance that it makes to read, goes to the other stream.
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=True).stdout


def _newest_snapshot(directory: Path) -> Path:
    return max(directory.glob("*-*.checkpoint"))


def _joined(files: list[Path]) -> str:
    return ",".join(map(str, files))


def test_kafka_metadata_quorum_adds_and_removes_a_controller(tmp_path: Path) -> None:
    """A quorum of one grows and shrinks while it serves; the tool reads the newcomer's own server.properties."""
    members = [Member(server_class(KIND))] * 2
    with Cluster(members, directory=tmp_path, dynamic=True) as cluster:
        address = ("--bootstrap-server", cluster.bootstrap)

        def standing() -> tuple[list[int], list[int]]:
            status = tool(QUORUM, *address, "describe", "--status")
            lists = [re.search(rf"Current{role}s:\s+(\[.*\])", status) for role in ("Voter", "Observer")]
            voters, observers = (sorted(each["id"] for each in json.loads(found.group(1))) for found in lists if found)
            return voters, observers

        eventually(standing, ([1], [2]))
        # Elections are told by control records, which no snapshot keeps: this log has its beginning still.
        log = cluster.server(1).data / "__cluster_metadata-0" / "00000000000000000000.log"
        assert "LeaderChange" in tool(DUMP, "--cluster-metadata-decoder", "--files", log)
        newcomer = cluster.server(2)
        said = tool(QUORUM, "--command-config", newcomer.properties_file, *address, "add-controller")
        directory_id = re.search(r"Added controller 2 with directory id (\S+) and endpoints", said)
        assert directory_id is not None, said
        assert standing() == ([1, 2], [])
        removing = ("--controller-id", "2", "--controller-directory-id", directory_id.group(1))
        said = tool(QUORUM, *address, "remove-controller", *removing)
        assert "KRaft controller 2 with directory id" in said
        assert standing()[0] == [1]
        again = tool(QUORUM, *address, "remove-controller", *removing, check=False)
        assert "VoterNotFoundException" in again, again
        with wire.Connection(newcomer.port) as connection:
            assert wire.create_topic(connection, "afterwards", 2, replicas=2) == 0


def test_kafka_features_makes_a_static_quorum_a_dynamic_one(tmp_path: Path) -> None:
    """kraft.version 1: the voters are in the log with their directory ids, and can be changed from then on."""
    with new_cluster(tmp_path) as cluster:
        address = ("--bootstrap-server", cluster.bootstrap)

        def upgraded() -> bool:
            said = tool(FEATURES, *address, "upgrade", "--feature", "kraft.version=1", check=False)
            return "kraft.version was upgraded to 1" in said

        # Voters tell the leader their directory ids within a few seconds after it began to lead; before, it refuses.
        eventually(upgraded, True)
        status = tool(QUORUM, *address, "describe", "--status")
        voters = re.search(r"CurrentVoters:\s+(\[.*\])", status)
        assert voters is not None, status
        directories = {voter["id"]: voter["directoryId"] for voter in json.loads(voters.group(1))}
        assert directories == {server.seat.node_id: directory_id(server) for server in cluster.servers}
        follower = cluster.others(cluster.controller())[0].seat.node_id
        removing = ("--controller-id", follower, "--controller-directory-id", directories[follower])
        tool(QUORUM, *address, "remove-controller", *removing)
        left = tool(QUORUM, *address, "describe", "--status")
        assert f'"id": {follower}' not in re.findall(r"CurrentVoters:.*", left)[0], left


def directory_id(server: Server) -> str:
    """As the node's meta.properties has it."""
    found = re.search(r"^directory\.id=(\S+)$", (server.data / "meta.properties").read_text(), re.M)
    assert found is not None
    return found.group(1).replace("\\", "")
