"""The file `quorum-state`: the newest epoch this node has seen, who leads it, and whom it voted for.

Nothing else keeps a node from voting twice in one epoch, so it is synced before anything is sent or appended.
"""

from __future__ import annotations

import json
from typing import Any

from odradek.ids import NO_NODE, ZERO_UUID, LeaderEpoch, NodeId, Uuid, parse_uuid, uuid_text
from odradek.values import value

QUORUM_STATE_FILE = "quorum-state"


@value
class QuorumState:
    """What is written; `voted_directory_id` exists from kraft.version 1 on."""

    leader_id: NodeId = NO_NODE
    leader_epoch: LeaderEpoch = LeaderEpoch(0)
    voted_id: NodeId = NO_NODE
    voted_directory_id: Uuid = ZERO_UUID


class BadQuorumState(Exception):
    """The file is there and makes no sense: guessing an epoch could let two leaders into one."""


def encode_quorum_state(state: QuorumState, *, kraft_version: int, voters: tuple[NodeId, ...]) -> bytes:
    """The file's content, byte for byte as Kafka writes it: version 0 for static voters, 1 for dynamic ones."""
    fields: dict[str, Any]
    if kraft_version == 0:
        fields = {
            "clusterId": "",
            "leaderId": state.leader_id,
            "leaderEpoch": state.leader_epoch,
            "votedId": state.voted_id,
            "appliedOffset": 0,
            "currentVoters": [{"voterId": voter} for voter in voters],
            "data_version": 0,
        }
    else:
        fields = {
            "leaderId": state.leader_id,
            "leaderEpoch": state.leader_epoch,
            "votedId": state.voted_id,
            "votedDirectoryId": uuid_text(state.voted_directory_id),
            "data_version": 1,
        }
    return json.dumps(fields, separators=(",", ":")).encode()


def decode_quorum_state(content: bytes) -> QuorumState:
    """Read either version."""
    try:
        fields = json.loads(content)
        version = fields["data_version"]
        if version not in (0, 1):
            raise BadQuorumState(f"{QUORUM_STATE_FILE} has data_version {version}; 0 and 1 are known")
        return QuorumState(
            leader_id=NodeId(int(fields["leaderId"])),
            leader_epoch=LeaderEpoch(int(fields["leaderEpoch"])),
            voted_id=NodeId(int(fields["votedId"])),
            voted_directory_id=parse_uuid(fields["votedDirectoryId"]) if version else ZERO_UUID,
        )
    except (ValueError, KeyError, TypeError) as wrong:
        raise BadQuorumState(f"{QUORUM_STATE_FILE} cannot be read: {wrong!r}") from wrong
