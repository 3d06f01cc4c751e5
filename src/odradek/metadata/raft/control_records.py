"""Control records of the metadata log and its snapshots: what the quorum says about itself."""

from __future__ import annotations

from collections.abc import Sequence

from odradek.ids import NodeId
from odradek.metadata.raft.voters import Voter
from odradek.protocol.codec import Message, decode, encode
from odradek.protocol.errors import MalformedFrame
from odradek.protocol.messages.control_records import (
    Endpoint,
    KRaftVersionFeature,
    KRaftVersionRecord,
    LeaderChangeMessage,
    LeaderChangeVoter,
    SnapshotFooterRecord,
    SnapshotHeaderRecord,
    VotersRecord,
)
from odradek.protocol.messages.control_records import Voter as RecordedVoter
from odradek.protocol.records.control import ControlType, control_key, control_type
from odradek.protocol.records.record import Record

_CLASSES: dict[int, type[Message]] = {
    ControlType.LEADER_CHANGE: LeaderChangeMessage,
    ControlType.SNAPSHOT_HEADER: SnapshotHeaderRecord,
    ControlType.SNAPSHOT_FOOTER: SnapshotFooterRecord,
    ControlType.KRAFT_VERSION: KRaftVersionRecord,
    ControlType.KRAFT_VOTERS: VotersRecord,
}
_TYPES = {message: ControlType(kind) for kind, message in _CLASSES.items()}
_VERSION_BYTES = 2


def control_record(message: Message) -> Record:
    """The record that carries one of the messages above; all are written in version 0, as Kafka 4.3 does."""
    return Record(key=control_key(_TYPES[type(message)]), value=encode(message, 0))


def read_control_record(record: Record) -> Message | None:
    """The message inside, whose value starts with its version; None for a kind that means nothing to this log."""
    message = _CLASSES.get(control_type(record.key))
    if message is None or record.value is None:
        return None
    return decode(message, int.from_bytes(record.value[:_VERSION_BYTES], signed=True), record.value)


def leader_change(leader: NodeId, voters: Sequence[NodeId], granting: Sequence[NodeId]) -> LeaderChangeMessage:
    """A leader, who could vote, and who voted for it."""
    return LeaderChangeMessage(
        version=0,
        leader_id=leader,
        voters=[LeaderChangeVoter(voter_id=voter) for voter in voters],
        granting_voters=[LeaderChangeVoter(voter_id=voter) for voter in granting],
    )


def voters_record(voters: Sequence[Voter], listener_name: str) -> VotersRecord:
    """The voter set of a dynamic quorum (KIP-853)."""
    return VotersRecord(version=0, voters=[_recorded(voter, listener_name) for voter in voters])


def recorded_voters(record: VotersRecord, listener_name: str = "") -> tuple[Voter, ...]:
    """What `voters_record` wrote; of several endpoints the one of that name is used, else the first."""
    voters = []
    for voter in record.voters:
        if not voter.endpoints:
            raise MalformedFrame(f"voter {voter.voter_id} is recorded without an endpoint")
        named = [each for each in voter.endpoints if each.name == listener_name]
        endpoint = (named or voter.endpoints)[0]
        several = tuple((each.name, each.host, each.port) for each in voter.endpoints)
        versions = voter.kraft_version_feature
        voters.append(
            Voter(
                NodeId(voter.voter_id),
                endpoint.host,
                endpoint.port,
                voter.voter_directory_id,
                several if len(several) > 1 else (),
                (versions.min_supported_version, versions.max_supported_version),
            )
        )
    return tuple(voters)


def _recorded(voter: Voter, listener_name: str) -> RecordedVoter:
    lowest, highest = voter.kraft_versions
    listeners = voter.listeners or ((listener_name, voter.host, voter.port),)
    return RecordedVoter(
        voter_id=voter.node_id,
        voter_directory_id=voter.directory_id,
        endpoints=[Endpoint(name=name, host=host, port=port) for name, host, port in listeners],
        kraft_version_feature=KRaftVersionFeature(min_supported_version=lowest, max_supported_version=highest),
    )
