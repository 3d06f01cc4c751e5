"""What control batches hold: ends of transactions, and what raft tells itself in its own log."""

from __future__ import annotations

from odradek.ids import ZERO_UUID
from odradek.protocol.codec import Message, Struct, field
from odradek.protocol.primitives import BrokerId, int16, int32, int64, string, uint16, uuid


class ControlRecordTypeSchema(Message, versions="0"):
    type: int16


class EndTxnMarker(Message, versions="0"):
    coordinator_epoch: int32


class LeaderChangeVoter(Struct):
    voter_id: int32
    voter_directory_id: uuid = field(versions="1+", default=ZERO_UUID)


class LeaderChangeMessage(Message, versions="0-1", flexible="0+"):
    version: int16
    leader_id: BrokerId
    voters: list[LeaderChangeVoter]
    granting_voters: list[LeaderChangeVoter]


class SnapshotHeaderRecord(Message, versions="0", flexible="0+"):
    version: int16
    last_contained_log_timestamp: int64


class SnapshotFooterRecord(Message, versions="0", flexible="0+"):
    version: int16


class KRaftVersionRecord(Message, versions="0", flexible="0+"):
    version: int16
    kraft_version: int16


class Endpoint(Struct):
    name: string
    host: string
    port: uint16


class KRaftVersionFeature(Struct):
    min_supported_version: int16
    max_supported_version: int16


class Voter(Struct):
    voter_id: BrokerId
    voter_directory_id: uuid
    endpoints: list[Endpoint]
    kraft_version_feature: KRaftVersionFeature


class VotersRecord(Message, versions="0", flexible="0+"):
    version: int16
    voters: list[Voter]
