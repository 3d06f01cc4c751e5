"""Who votes, as control records in the metadata log say it: voters count from the moment they are in there."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from odradek.ids import Offset
from odradek.metadata.raft.amnesia import AMNESIA_FILE
from odradek.metadata.raft.control_records import read_control_record, recorded_voters
from odradek.metadata.raft.core import Raft
from odradek.metadata.raft.quorum_state import QUORUM_STATE_FILE
from odradek.metadata.raft.voters import BadVoters, Membership
from odradek.protocol.codec import Message
from odradek.protocol.messages.control_records import KRaftVersionRecord, VotersRecord
from odradek.protocol.records.batch import BatchHeader, decode_records
from odradek.server.quorum.log import MetadataLog

log = logging.getLogger(__name__)


class VotersInLog:
    """Tells a node's `Membership` what its log says."""

    def __init__(self, membership: Membership, listener_name: str) -> None:
        self._membership = membership
        self._listener_name = listener_name

    def load(self, metadata_log: MetadataLog, start_offset: Offset) -> None:
        """All of the log from there on is looked through, committed or not."""
        for header, batch in metadata_log.batches(start_offset, metadata_log.log_end_offset):
            if header.is_control:
                self.note_batch(header, batch)

    def note_batch(self, header: BatchHeader, batch: memoryview) -> None:
        """A control batch that is in the log now."""
        for delta, record in enumerate(decode_records(batch)):
            self._note(header.base_offset + delta, read_control_record(record))

    def note_records(self, base_offset: Offset, messages: Sequence[Message]) -> None:
        """Control records that are in the log now, from `base_offset` on."""
        for delta, message in enumerate(messages):
            self._note(base_offset + delta, message)

    def _note(self, offset: int, message: Message | None) -> None:
        match message:
            case KRaftVersionRecord():
                self._membership.level_appended(offset, message.kraft_version)
            case VotersRecord():
                self._membership.voters_appended(offset, recorded_voters(message, self._listener_name))
            case _:
                pass


def check_place(raft: Raft) -> None:
    """Say early what else would only show as a quorum that never comes about: BadVoters, or a warning."""
    membership, me = raft.membership, raft.me
    voters = membership.voters
    if not raft.may_vote:
        return
    if voters and not membership.is_dynamic and not raft.is_voter:
        named = ", ".join(str(voter.node_id) for voter in voters) or "nobody"
        raise BadVoters(f"this node ({me.node_id}) is not among the voters of its quorum: {named}.")
    mine = membership.voter(me.node_id)
    if len(voters) == 1 and mine is not None and not raft.is_voter:
        raise BadVoters(
            f"Voter {me.node_id} of the metadata quorum is another directory than this one: "
            "the log was formatted elsewhere."
        )
    if raft.amnesia is None and raft.has_nothing and raft.epoch > 0 and raft.is_voter and not membership.is_dynamic:
        log.warning(
            "This voter has taken part in elections, and has no metadata log. If its disk was lost, and an earlier "
            "release has started since, it may have forgotten what it promised: stop it, and remove %s "
            "before it starts again, so that it does not help to elect who lacks something.",
            QUORUM_STATE_FILE,
        )
    if raft.amnesia is not None and raft.amnesia.quorum_is_new:
        log.warning(
            "The metadata log was empty at this voter's first start: it is new, or has lost what it had. Until it has "
            "caught up with a leader, it votes only for others whose log is empty too."
        )
    elif raft.amnesia is not None:
        log.warning(
            "This voter has lost what it had. Until it has caught up with a leader, it does not vote (%s).",
            AMNESIA_FILE,
        )
