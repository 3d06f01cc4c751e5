"""Where a follower's history leaves its leader's (KIP-101, KIP-279, KIP-595)."""

from __future__ import annotations

from odradek.ids import LeaderEpoch, Offset
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.storage.leader_epochs import EpochEnd, LeaderEpochs
from odradek.storage.log import Log


def divergence(log: Log, *, fetch_offset: Offset, last_fetched_epoch: LeaderEpoch) -> EpochEnd | None:
    """Where the history of a reader that stands at `fetch_offset` leaves this leader's; None if it does not.

    OFFSET_OUT_OF_RANGE if this log knows nothing of that time.
    """
    if last_fetched_epoch < 0 or (
        last_fetched_epoch == log.leader_epochs.latest and fetch_offset <= log.log_end_offset
    ):
        return None  # It knows no epoch; or the present one, in which it is: by far the most fetches.
    end = log.end_offset_for_epoch(last_fetched_epoch)
    if end.epoch < 0:
        raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE)
    return end if end.epoch < last_fetched_epoch or end.end_offset < fetch_offset else None


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
