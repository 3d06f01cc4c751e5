"""Forged requests, and files that are foreign or damaged, on real processes: clear errors, and the rest goes on."""

from __future__ import annotations

import asyncio
import pathlib
import shutil
from collections.abc import Iterator
from typing import Any

import pytest
from tests.integration.cluster_asking import active_controller, ask, create_topic, eventually, topics

from odradek.adapters.world import real_world
from odradek.client.connection import Connection
from odradek.client.facade import Client
from odradek.ids import ZERO_UUID, LeaderEpoch, NodeId, Offset, Uuid
from odradek.metadata.raft import wire
from odradek.metadata.raft.voters import ReplicaKey, Voter
from odradek.protocol.api import ApiKey, response_class
from odradek.protocol.codec import Message
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ReplicaState
from odradek.protocol.records.batch import build_batch, iter_batches, read_header
from odradek.protocol.records.record import Record
from odradek.testing.cluster import ClusterNode, ProcessNode, RunningCluster, running_cluster

TOPIC = "ledger"
NEVER_ISSUED = 999


@pytest.fixture(scope="module")
def cluster() -> Iterator[RunningCluster]:
    with running_cluster(properties={"metadata.log.max.record.bytes.between.snapshots": "2000"}) as running:
        ask(running.brokers[0], lambda admin: admin.create_topic(TOPIC, partitions=1, replication_factor=3))
        write(running, b"first", b"second")
        yield running


def write(cluster: RunningCluster, *values: bytes) -> None:
    async def writing() -> None:
        settings = {"bootstrap.servers": cluster.bootstrap_servers, "acks": "all"}
        async with Client(real_world(), settings).producer() as producer:
            for value in values:
                await producer.send(TOPIC, value)

    asyncio.run(writing())


def request(port: int, message: Message, version: int | None = None) -> Any:
    """The answer of whoever listens there, in the newest version both know."""

    async def asking() -> Any:
        connection = await Connection.open(
            real_world().network, host="127.0.0.1", port=port, client_id="forger", timeout_ms=10_000
        )
        try:
            wanted = message.max_stable_version if version is None else version
            return await connection.ask(message, response_class(ApiKey(message.api_key)), wanted, timeout_ms=10_000)
        finally:
            connection.close()

    return asyncio.run(asking())


def partition_error(answer: Any) -> ErrorCode:
    """The error of the one partition that was asked for, or of the whole."""
    told = answer.error_code or (answer.topics if hasattr(answer, "topics") else answer.responses)[0].partitions[0]
    return ErrorCode(told if isinstance(told, int) else told.error_code)


# The quorum.


def test_forged_votes_and_fetches_change_nothing(cluster: RunningCluster) -> None:
    leader = cluster.nodes[active_controller(cluster.brokers[0])]
    partition, _ = ask(leader, lambda admin: admin.describe_quorum())
    epoch = LeaderEpoch(partition.leader_epoch)
    other = next(node for node in cluster.nodes.values() if node is not leader)

    def vote(candidate: int, cluster_id: str = cluster.cluster_id, to: ClusterNode = other) -> Message:
        return wire.vote_request(
            cluster_id,
            me=ReplicaKey(NodeId(candidate), ZERO_UUID),
            to=Voter(NodeId(to.node_id), to.host, to.controller_port),
            epoch=LeaderEpoch(epoch + 5),
            last_epoch=LeaderEpoch(epoch + 4),
            end_offset=Offset(1 << 40),
            pre_vote=False,
        )

    def fetch(replica_id: int, *, offset: int, in_epoch: int = epoch, last_epoch: int = epoch) -> Message:
        return wire.fetch_request(
            cluster.cluster_id,
            me=ReplicaKey(NodeId(replica_id), ZERO_UUID),
            epoch=LeaderEpoch(in_epoch),
            end_offset=Offset(offset),
            last_epoch=LeaderEpoch(last_epoch),
            high_watermark=Offset(-1),
            max_wait_ms=0,
            max_bytes=1000,
        )

    assert partition_error(request(other.controller_port, vote(55))) is ErrorCode.INCONSISTENT_VOTER_SET
    assert partition_error(request(other.controller_port, vote(other.node_id))) is ErrorCode.INVALID_REQUEST
    answer = request(other.controller_port, vote(leader.node_id, "AAAAAAAAAAAAAAAAAAAAAA"))
    assert partition_error(answer) is ErrorCode.INCONSISTENT_CLUSTER_ID
    port = leader.controller_port
    assert partition_error(request(port, fetch(2, offset=-1))) is ErrorCode.INVALID_REQUEST
    assert partition_error(request(port, fetch(2, offset=1, last_epoch=epoch + 1))) is ErrorCode.INVALID_REQUEST
    assert partition_error(request(port, fetch(2, offset=1, in_epoch=epoch + 1))) is ErrorCode.UNKNOWN_LEADER_EPOCH
    ahead = request(port, fetch(other.node_id, offset=1 << 40))
    assert ahead.responses[0].partitions[0].diverging_epoch.epoch == epoch
    assert active_controller(other) == leader.node_id
    create_topic(other, "after-forgeries")


def test_a_forged_candidate_costs_an_election_at_most(cluster: RunningCluster) -> None:
    leader = cluster.nodes[active_controller(cluster.brokers[0])]
    partition, _ = ask(leader, lambda admin: admin.describe_quorum())
    others = [node for node in cluster.nodes.values() if node is not leader]
    for node, candidate in zip(others, reversed(others), strict=True):
        forged = wire.vote_request(
            cluster.cluster_id,
            me=ReplicaKey(NodeId(candidate.node_id), ZERO_UUID),
            to=Voter(NodeId(node.node_id), node.host, node.controller_port),
            epoch=LeaderEpoch(partition.leader_epoch + 7),
            last_epoch=LeaderEpoch(partition.leader_epoch + 6),
            end_offset=Offset(1 << 40),
            pre_vote=False,
        )
        request(node.controller_port, forged)
    create_topic(others[0], "after-a-forged-candidate")
    eventually(lambda: all("after-a-forged-candidate" in topics(node) for node in cluster.brokers), "all agree")


# Replicas.


def replica_fetch(cluster: RunningCluster, *, replica_id: int, broker_epoch: int, **partition: int) -> Any:
    """What the leader says to somebody who claims to be a replica."""
    described = ask(cluster.brokers[0], lambda admin: admin.describe_topics([TOPIC]))[TOPIC]
    leader = cluster.nodes[described.partitions[0].leader]  # type: ignore[union-attr]
    wanted = FetchPartition(partition=0, partition_max_bytes=1000, **{"fetch_offset": 0, **partition})
    message = FetchRequest(
        replica_state=ReplicaState(replica_id=replica_id, replica_epoch=broker_epoch),
        max_wait_ms=0,
        min_bytes=0,
        max_bytes=1000,
        topics=[FetchTopic(topic_id=Uuid(described.topic_id), partitions=[wanted])],  # type: ignore[union-attr]
    )
    return request(leader.port, message).responses[0].partitions[0]


def test_a_client_that_claims_to_be_a_replica_is_told_that_it_is_none(cluster: RunningCluster) -> None:
    stranger = replica_fetch(cluster, replica_id=77, broker_epoch=1)
    assert stranger.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    impostor = replica_fetch(cluster, replica_id=2, broker_epoch=1 << 40, fetch_offset=1 << 40)
    assert impostor.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    write(cluster, b"still acknowledged by those who are")


def test_epochs_that_were_never_issued_are_refused(cluster: RunningCluster) -> None:
    ahead = replica_fetch(cluster, replica_id=-1, broker_epoch=-1, current_leader_epoch=NEVER_ISSUED)
    assert ahead.error_code == ErrorCode.UNKNOWN_LEADER_EPOCH
    beyond = replica_fetch(cluster, replica_id=-1, broker_epoch=-1, last_fetched_epoch=NEVER_ISSUED, fetch_offset=2)
    assert beyond.error_code == ErrorCode.OFFSET_OUT_OF_RANGE


def test_more_replicas_than_brokers_are_refused(cluster: RunningCluster) -> None:
    with pytest.raises(KafkaError, match="replication factor of 4 cannot be reached"):
        ask(cluster.brokers[0], lambda admin: admin.create_topic("too-many", partitions=1, replication_factor=4))
    assert "too-many" not in topics(cluster.brokers[0])


# Files.


def restart_after(node: ClusterNode, change: Any) -> None:
    node.stop()
    change()
    node.start()


def test_a_follower_with_a_foreign_log_sets_it_aside_and_fetches_its_own(cluster: RunningCluster) -> None:
    node = follower(cluster)
    own, foreign = node.data_directory / f"{TOPIC}-0", node.data_directory / "foreign-0"

    def swap() -> None:
        shutil.copytree(own, foreign)
        log = next(own.glob("*.log"))
        log.write_bytes(log.read_bytes() * 3)  # It would be ahead of everybody.
        (own / "partition.metadata").write_text("version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ")

    restart_after(node, swap)
    eventually(lambda: in_sync(cluster, node), "it is in sync again")
    assert list(node.data_directory.glob(f"{TOPIC}-0.*-stray"))
    assert list(node.data_directory.glob("foreign-0.*-stray"))
    leader = next(each for each in cluster.brokers if each.node_id == leader_id(cluster))
    contents = [log_bytes(each.data_directory / f"{TOPIC}-0") for each in (leader, node)]
    assert contents[0] == contents[1]


def test_a_damaged_snapshot_is_passed_over(cluster: RunningCluster) -> None:
    node = follower(cluster)
    snapshots = node.data_directory / "__cluster_metadata-0"
    for number in range(12):
        create_topic(cluster.brokers[0], f"makes-a-snapshot-{number}")
    eventually(lambda: bool(list(snapshots.glob("*.checkpoint"))), "there is a snapshot")
    node.kill()
    newest = max(snapshots.glob("*.checkpoint"))
    content = bytearray(newest.read_bytes())
    content[len(content) // 2] ^= 0xFF
    newest.write_bytes(content)
    node.start()
    eventually(lambda: "makes-a-snapshot-11" in topics(node), "it knows everything again")
    assert "Traceback" not in printed(node)


def test_a_damaged_quorum_state_stops_the_node_and_nobody_else(cluster: RunningCluster) -> None:
    node = follower(cluster)
    file = node.data_directory / "__cluster_metadata-0" / "quorum-state"
    node.stop()
    content = file.read_bytes()
    file.write_bytes(content[: len(content) // 2])
    assert isinstance(node, ProcessNode)
    node.begin()
    assert node.process.wait_until_ended(30) == 1
    assert "quorum-state" in printed(node)
    assert "Traceback" not in printed(node)
    create_topic(next(each for each in cluster.brokers if each is not node), "without-it")
    file.write_bytes(content)
    node.start()
    eventually(lambda: "without-it" in topics(node), "it is back")


def test_the_directories_of_another_cluster_are_refused(cluster: RunningCluster) -> None:
    node = follower(cluster)
    node.stop()
    meta = node.data_directory / "meta.properties"
    content = meta.read_text()
    meta.write_text(content.replace(cluster.cluster_id, "AAAAAAAAAAAAAAAAAAAAAA"))
    assert isinstance(node, ProcessNode)
    node.begin()
    assert node.process.wait_until_ended(30) == 1
    assert "INCONSISTENT_CLUSTER_ID" in printed(node)
    meta.write_text(content)
    node.start()
    write(cluster, b"all are there")


def test_a_record_that_nobody_knows_ends_the_node_that_reads_it(tmp_path: pathlib.Path) -> None:
    with running_cluster(brokers=1, data_directory=str(tmp_path)) as alone:
        node = alone.nodes[1]
        node.kill()
        log = max((node.data_directory / "__cluster_metadata-0").glob("*.log"))
        content = log.read_bytes()
        header = read_header(list(iter_batches(memoryview(content)))[-1])
        unknown = Record(value=bytes([1, 120, 0, 0]))  # Frame version 1, record type 120, version 0.
        forged = build_batch(
            [unknown], base_offset=header.last_offset + 1, leader_epoch=header.leader_epoch, timestamp=0
        )
        log.write_bytes(content + forged)
        assert isinstance(node, ProcessNode)
        node.begin()
        assert node.process.wait_until_ended(30) == 1
        assert "no metadata record has the kind 120" in printed(node)
        assert "Traceback" not in printed(node)
        log.write_bytes(content)
        node.start()


def follower(cluster: RunningCluster) -> ClusterNode:
    """A node that leads neither the partition nor the quorum."""
    busy = (leader_id(cluster), active_controller(cluster.brokers[0]))
    return next(node for node in cluster.brokers if node.node_id not in busy)


def leader_id(cluster: RunningCluster) -> int:
    described: Any = ask(cluster.brokers[0], lambda admin: admin.describe_topics([TOPIC]))[TOPIC]
    leader: int = described.partitions[0].leader
    return leader


def in_sync(cluster: RunningCluster, node: ClusterNode) -> bool:
    described: Any = ask(cluster.brokers[0], lambda admin: admin.describe_topics([TOPIC]))[TOPIC]
    return node.node_id in described.partitions[0].isr


def log_bytes(directory: pathlib.Path) -> bytes:
    return b"".join(path.read_bytes() for path in sorted(directory.glob("*.log")))


def printed(node: ClusterNode) -> str:
    assert isinstance(node, ProcessNode)
    return node.process.output()
