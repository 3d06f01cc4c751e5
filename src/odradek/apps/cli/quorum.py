"""`odradek quorum`: who leads the cluster's metadata, who votes, who follows, and how far each has come."""

from __future__ import annotations

import argparse
from typing import Any

from odradek.apps.terminal.options import add_actions, add_remote_action
from odradek.apps.terminal.output import emit, fields, table
from odradek.client.admin import Admin
from odradek.ids import ZERO_UUID, uuid_text
from odradek.protocol.messages.describe_quorum import DescribeQuorumResponse, PartitionData, ReplicaState


def declare(parser: argparse.ArgumentParser) -> None:
    actions = add_actions(parser, "Look at the quorum that keeps the cluster's metadata.")
    add_remote_action(actions, "describe", "show leader, epoch, voters, observers and their lag", describe)


async def describe(admin: Admin, options: argparse.Namespace) -> int:
    """As the leader sees it; any broker passes the question on."""
    described = await admin.describe_cluster()
    partition, response = await admin.describe_quorum()
    data = _data(described.cluster_id, partition, response)
    emit(options, data, _lines(data))
    return 0


def _data(cluster_id: str, partition: PartitionData, response: DescribeQuorumResponse) -> dict[str, Any]:
    addresses = {
        node.node_id: ", ".join(f"{each.host}:{each.port}" for each in node.listeners) for node in response.nodes
    }
    replicas = [*partition.current_voters, *partition.observers]
    leader = next((each for each in replicas if each.replica_id == partition.leader_id), None)
    voters = [_replica(each, leader, partition.leader_id, addresses) for each in partition.current_voters]
    observers = [_replica(each, leader, partition.leader_id, addresses) for each in partition.observers]
    followers = [each for each in voters if each["id"] != partition.leader_id]
    return {
        "cluster_id": cluster_id,
        "leader": partition.leader_id if partition.leader_id >= 0 else None,
        "epoch": partition.leader_epoch,
        "high_watermark": partition.high_watermark,
        "max_follower_lag": max((each["lag"] for each in followers if each["lag"] is not None), default=0),
        "max_follower_lag_ms": max((each["lag_ms"] for each in followers if each["lag_ms"] is not None), default=0),
        "voters": voters,
        "observers": observers,
    }


def _replica(
    replica: ReplicaState, leader: ReplicaState | None, leader_id: int, addresses: dict[int, str]
) -> dict[str, Any]:
    known = replica.log_end_offset >= 0 and leader is not None
    timed = known and replica.last_caught_up_timestamp >= 0
    return {
        "id": replica.replica_id,
        "role": "leader" if replica.replica_id == leader_id else "follower",
        "address": addresses.get(replica.replica_id),
        "directory_id": uuid_text(replica.replica_directory_id) if replica.replica_directory_id != ZERO_UUID else None,
        "log_end_offset": replica.log_end_offset if replica.log_end_offset >= 0 else None,
        "lag": max(leader.log_end_offset - replica.log_end_offset, 0) if known and leader is not None else None,
        "lag_ms": (
            max(leader.last_caught_up_timestamp - replica.last_caught_up_timestamp, 0)
            if timed and leader is not None
            else None
        ),
    }


def _lines(data: dict[str, Any]) -> list[str]:
    head = fields(
        [
            ("Cluster", data["cluster_id"]),
            ("Leader", data["leader"]),
            ("Epoch", data["epoch"]),
            ("High watermark", data["high_watermark"]),
            ("Max follower lag", data["max_follower_lag"]),
            ("Max follower lag (ms)", data["max_follower_lag_ms"]),
        ]
    )
    rows = [
        (
            each["id"],
            each["role"] if kind == "voters" else "observer",
            each["address"],
            each["log_end_offset"],
            each["lag"],
            each["lag_ms"],
            each["directory_id"],
        )
        for kind in ("voters", "observers")
        for each in data[kind]
    ]
    return [*head, "", *table(("NODE", "ROLE", "ADDRESS", "LOG END", "LAG", "LAG MS", "DIRECTORY"), rows)]
