"""The `quorum-state` file of a raft voter; Kafka writes it as JSON under these names."""

from __future__ import annotations

from odradek.ids import ZERO_UUID
from odradek.protocol.codec import Message, Struct, field
from odradek.protocol.primitives import int32, int64, string, uuid


class Voter(Struct):
    voter_id: int32


class QuorumStateData(Message, versions="0-1", flexible="0+"):
    cluster_id: string = field(versions="0", default="")
    leader_id: int32 = -1
    leader_epoch: int32 = -1
    voted_id: int32 = -1
    voted_directory_id: uuid = field(versions="1+", default=ZERO_UUID)
    applied_offset: int64 = field(versions="0", default=0)
    current_voters: list[Voter] | None = field(versions="0", nullable="0", default_factory=list)
