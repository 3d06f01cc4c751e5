"""Where a follower's history leaves its leader's (KIP-101, KIP-279, KIP-595)."""

from __future__ import annotations

from odradek.ids import Offset
from odradek.storage.leader_epochs import EpochEnd, LeaderEpochs


def truncation_offset(epochs: LeaderEpochs, log_end_offset: Offset, leader: EpochEnd) -> Offset:
    """What a follower has to cut, told that the leader's history ends for it at `leader`.

    That is the newest epoch of the leader which is not above the follower's own last one, and where it ended. If the
    follower has no records of that epoch, it cuts back to the end of the newest one below it, and asks again from
    there: the next answer says whether the two agree on that one.
    """
    own = epochs.end_offset_for(leader.epoch, log_end_offset)
    if own.epoch < 0:
        return min(leader.end_offset, log_end_offset)
    if own.epoch != leader.epoch:
        return min(own.end_offset, log_end_offset)
    return min(own.end_offset, leader.end_offset, log_end_offset)
