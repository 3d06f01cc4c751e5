"""Where histories part, told by a leader of every place that a follower could say it is at."""

from __future__ import annotations

import pytest
from tests.unit.storage.worlds import Machine, append, open_log

from odradek.ids import LeaderEpoch, Offset
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.replication.truncation import divergence
from odradek.storage.leader_epochs import EpochEnd

ENDS = {2: 3, 5: 4}
"""What the leader has: three records of epoch 2, then one of epoch 5."""


@pytest.mark.parametrize("fetch_offset", range(7))
@pytest.mark.parametrize("epoch", range(-1, 8))
def test_where_a_followers_history_leaves_the_leaders(epoch: int, fetch_offset: int) -> None:
    log = open_log(Machine().disk)
    append(log, b"a", b"b", b"c", leader_epoch=2)
    append(log, b"d", leader_epoch=5)
    found: EpochEnd | ErrorCode | None
    try:
        found = divergence(log, fetch_offset=Offset(fetch_offset), last_fetched_epoch=LeaderEpoch(epoch))
    except KafkaError as refused:
        found = refused.code

    expected: EpochEnd | ErrorCode | None
    if epoch < 0:
        expected = None  # It does not say, so it cannot be told.
    elif epoch > max(ENDS):
        expected = ErrorCode.OFFSET_OUT_OF_RANGE  # Nothing is known of that time.
    elif epoch < min(ENDS):
        expected = EpochEnd(LeaderEpoch(epoch), Offset(0)) if fetch_offset > 0 else None
    else:
        known = max(each for each in ENDS if each <= epoch)
        agrees = known == epoch and fetch_offset <= ENDS[known]
        expected = None if agrees else EpochEnd(LeaderEpoch(known), Offset(ENDS[known]))
    assert found == expected
