"""Members whose end the log refused are not forgotten: it comes later."""

from __future__ import annotations

import pytest

from odradek.coordinator.group.joining import Joiner
from odradek.coordinator.group.settings import GroupSettings
from odradek.coordinator.group.shard import RETRY_MS, GroupShard
from odradek.coordinator.shard import CoordinatorDecision, Moment
from odradek.decisions import Ticket
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest

SESSION_MS = 5_000
LEAVES = -1


class Shard:
    """A shard with one KIP-848 group of two members, over a log that may be full."""

    def __init__(self) -> None:
        self.shard = GroupShard(GroupSettings(consumer_session_timeout_ms=SESSION_MS))
        self.shard.loaded(Moment(0, 0))
        for member_id in ("a", "b"):
            self.carry_out(self.beat(member_id, 0, now_ms=0))

    def beat(self, member_id: str, epoch: int, *, now_ms: int) -> CoordinatorDecision:
        request = ConsumerGroupHeartbeatRequest(
            group_id="g", member_id=member_id, member_epoch=epoch, rebalance_timeout_ms=1_000
        )
        if epoch == 0:
            request.subscribed_topic_names = ["t"]
            request.topic_partitions = []
        joiner = Joiner(client_id="c", client_host="/h", api_version=1, fresh_id=member_id)
        return self.shard.consumer_heartbeat(Ticket(1), request, joiner, Moment(now_ms, now_ms))

    def carry_out(self, decision: CoordinatorDecision) -> None:
        for record in decision.records:
            self.shard.replay(record)

    def refuse(self, decision: CoordinatorDecision, asker: Ticket | None, *, now_ms: int) -> None:
        assert decision.records
        told = self.shard.refused(decision, ErrorCode.KAFKA_STORAGE_ERROR, asker, Moment(now_ms, now_ms))
        assert not told.records
        assert told.next_deadline_ms is not None

    def expire(self, now_ms: int) -> CoordinatorDecision:
        return self.shard.expire(Moment(now_ms, now_ms))

    def members(self) -> list[str]:
        group = self.shard.groups.get("g")
        return sorted(group.members) if group is not None else []  # type: ignore[attr-defined]


@pytest.mark.parametrize("times", [1, 5])
def test_a_session_that_ended_while_the_log_was_full_ends_a_little_later(times: int) -> None:
    tried = Shard()
    tried.carry_out(tried.beat("a", 2, now_ms=SESSION_MS - 1))
    now_ms = SESSION_MS
    for _ in range(times):
        tried.refuse(tried.expire(now_ms), None, now_ms=now_ms)
        assert tried.members() == ["a", "b"]
        assert not tried.expire(now_ms + RETRY_MS - 1).records
        now_ms += RETRY_MS
    tried.carry_out(tried.expire(now_ms))
    assert tried.members() == ["a"]


def test_a_member_that_could_not_leave_and_is_gone_loses_its_session() -> None:
    tried = Shard()
    tried.refuse(tried.beat("b", LEAVES, now_ms=1_000), Ticket(1), now_ms=1_000)
    tried.carry_out(tried.beat("a", 2, now_ms=SESSION_MS))
    assert tried.members() == ["a", "b"]
    tried.carry_out(tried.expire(1_000 + SESSION_MS))
    assert tried.members() == ["a"]
