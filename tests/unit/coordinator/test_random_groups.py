"""A shard under random members, clocks, refused appends and restarts: what must hold whatever happens.

Everyone who asks is answered in the end, counts are what they count, one member owns a thing in a generation, and what
a new coordinator finds in the log is what the old one had told its clients.
"""

from __future__ import annotations

import random

import pytest
from tests.unit.coordinator.logs import load

from odradek.coordinator.group.classic import ClassicGroup, State
from odradek.coordinator.group.joining import Joiner
from odradek.coordinator.group.rebalance import JOIN, SESSION, SYNC
from odradek.coordinator.group.settings import GroupSettings
from odradek.coordinator.group.shard import GroupShard
from odradek.coordinator.record_format import encode_batch
from odradek.coordinator.shard import CoordinatorDecision, Moment
from odradek.decisions import Ticket
from odradek.protocol.codec import Struct
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from odradek.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from odradek.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from odradek.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from odradek.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment, SyncGroupResponse

STEPS = 400
GROUPS = ("g", "h")
PROTOCOLS = (("range",), ("range", "sticky"), ("sticky", "range"), ("sticky",))
SUBSCRIPTION = b"\0\0\0\0\0\1\0\1t\xff\xff\xff\xff"
SETTINGS = GroupSettings(
    max_size=4, initial_rebalance_delay_ms=500, new_member_join_timeout_ms=20_000, offsets_retention_ms=1 << 50
)


class Consumer:
    """A client that does what clients do, more or less."""

    def __init__(self, name: str, group_id: str, instance_id: str | None) -> None:
        self.name = name
        self.group_id = group_id
        self.instance_id = instance_id
        self.member_id = ""
        self.generation_id = -1
        self.leads: list[str] = []
        self.waits = False

    def forget(self) -> None:
        self.member_id, self.generation_id, self.leads = "", -1, []


class World:
    """A shard, its log, its clients, and a die."""

    def __init__(self, seed: int) -> None:
        self.draw = random.Random(seed)
        self.shard = GroupShard(SETTINGS)
        self.ms = 0
        self.log: list[bytes] = []
        self.waiting: dict[Ticket, tuple[Consumer, str]] = {}
        self.owned: dict[tuple[str, int, bytes], str] = {}
        """Who was told to own a thing, by group, generation and thing."""
        self.committed: dict[tuple[str, int], int] = {}
        self.consumers = [
            Consumer(f"c{number}", GROUPS[number % 2], f"i{number // 4}" if number % 3 == 0 else None)
            for number in range(14)
        ]
        self._tickets = 0
        self._sequence = 0
        self.shard.loaded(self.now)

    @property
    def now(self) -> Moment:
        return Moment(1_000_000 + self.ms, self.ms)

    # Steps.

    def step(self) -> None:
        chance = self.draw.random()
        if chance < 0.15:
            self.pass_time(self.draw.choice((1, 100, 600, 3_000, 11_000)))
        elif chance < 0.16:
            self.restart()
        else:
            consumer = self.draw.choice(self.consumers)
            if not consumer.waits:
                self.act(consumer)
            elif self.draw.random() < 0.1:
                self.disconnect(consumer)

    def act(self, consumer: Consumer) -> None:
        draw, shard = self.draw, self.shard
        if consumer.generation_id < 0 or draw.random() < 0.15:
            self._sequence += 1
            names = draw.choice(PROTOCOLS)
            request = JoinGroupRequest(
                group_id=consumer.group_id,
                session_timeout_ms=draw.choice((6_000, 10_000)),
                rebalance_timeout_ms=draw.choice((1_000, 8_000)),
                member_id=consumer.member_id,
                group_instance_id=consumer.instance_id,
                protocol_type="consumer",
                protocols=[JoinGroupRequestProtocol(name=name, metadata=SUBSCRIPTION) for name in names],
            )
            joiner = Joiner(consumer.name, "/host", draw.choice((2, 5, 9)), str(self._sequence))
            self.ask(consumer, "join", lambda ticket: shard.join(ticket, request, joiner, self.now))
            return
        generation_id = consumer.generation_id + draw.choice((0, 0, 0, 0, 0, 0, -1, 1))
        who = {"group_id": consumer.group_id, "member_id": consumer.member_id}
        match draw.choice(("sync", "sync", "beat", "beat", "commit", "leave")):
            case "sync":
                assignments = [
                    SyncGroupRequestAssignment(member_id=each, assignment=b"%d" % index)
                    for index, each in enumerate(consumer.leads)
                ]
                sync = SyncGroupRequest(
                    **who,
                    generation_id=generation_id,
                    group_instance_id=consumer.instance_id,
                    assignments=assignments,
                )
                self.ask(consumer, f"sync {generation_id}", lambda ticket: shard.sync(ticket, sync, self.now))
            case "beat":
                beat = HeartbeatRequest(**who, generation_id=generation_id, group_instance_id=consumer.instance_id)
                self.ask(consumer, "beat", lambda ticket: shard.heartbeat(ticket, beat, self.now))
            case "commit":
                self.commit(consumer, generation_id)
            case _:
                identity = MemberIdentity(member_id=consumer.member_id, group_instance_id=consumer.instance_id)
                leave = LeaveGroupRequest(group_id=consumer.group_id, members=[identity])
                self.ask(consumer, "leave", lambda ticket: shard.leave(ticket, leave, self.now))
                consumer.forget()

    def commit(self, consumer: Consumer, generation_id: int) -> None:
        self._sequence += 1
        part = OffsetCommitRequestPartition(
            partition_index=self.draw.randrange(3), committed_offset=self._sequence, committed_metadata=""
        )
        request = OffsetCommitRequest(
            group_id=consumer.group_id,
            generation_id_or_member_epoch=generation_id,
            member_id=consumer.member_id,
            group_instance_id=consumer.instance_id,
            topics=[OffsetCommitRequestTopic(name="t", partitions=[part])],
        )
        answer = self.ask(consumer, "commit", lambda ticket: self.shard.commit(ticket, request, 9, self.now))
        if isinstance(answer, OffsetCommitResponse) and answer.topics[0].partitions[0].error_code == 0:
            self.committed[consumer.group_id, part.partition_index] = self._sequence

    def disconnect(self, consumer: Consumer) -> None:
        """Its connection breaks; the answer will reach nobody."""
        for ticket, (asker, _) in list(self.waiting.items()):
            if asker is consumer:
                del self.waiting[ticket]
        consumer.waits = False
        if self.draw.random() < 0.5:
            consumer.forget()

    def pass_time(self, passed_ms: int) -> None:
        until_ms = self.ms + passed_ms
        while (due_ms := self.shard.timers.next_deadline_ms) is not None and due_ms <= until_ms:
            self.ms = max(self.ms, due_ms)
            self.carry_out(self.shard.expire(self.now), None)
        self.ms = until_ms

    def restart(self) -> None:
        for ticket, answer in self.shard.resign().answers:
            self.deliver(ticket, answer)
        assert self.waiting == {}, "somebody was left waiting at a coordinator that is gone"
        self.shard = GroupShard(SETTINGS)
        load(self.shard, self.log)
        self.carry_out(self.shard.loaded(self.now), None)
        for (group_id, index), offset in self.committed.items():
            assert self.shard.offsets.of(group_id)["t"][index].offset == offset

    # Carrying out.

    def ask(self, consumer: Consumer, what: str, decide: object) -> Struct | None:
        assert callable(decide)
        self._tickets += 1
        ticket = Ticket(self._tickets)
        self.waiting[ticket] = consumer, what
        consumer.waits = True
        try:
            decision: CoordinatorDecision = decide(ticket)
        except KafkaError as refused:
            del self.waiting[ticket]
            self.refused(consumer, refused.code)
            return None
        if not self.carry_out(decision, ticket):
            return None
        return next((answer for told, answer in decision.answers if told == ticket), None)

    def carry_out(self, decision: CoordinatorDecision, asker: Ticket | None) -> bool:
        """Whether the append was not refused, as now and then it is."""
        if decision.records and self.draw.random() < 0.05:
            code = ErrorCode.COORDINATOR_NOT_AVAILABLE
            told = self.shard.refused(decision, code, asker, self.now)
            assert told.records == ()
            if asker is not None:
                self.refused(self.waiting.pop(asker)[0], code)
            for ticket, answer in told.answers:
                assert ticket != asker
                self.deliver(ticket, answer)
            return False
        if decision.records:
            self.log.append(bytes(encode_batch(decision.records, timestamp_ms=self.ms)))
            for record in decision.records:
                self.shard.replay(record)
        for ticket, answer in decision.answers:
            self.deliver(ticket, answer)
        return True

    def deliver(self, ticket: Ticket, answer: Struct) -> None:
        asked = self.waiting.pop(ticket, None)
        if asked is None:
            return
        consumer, what = asked
        consumer.waits = False
        code = ErrorCode(getattr(answer, "error_code", 0))
        if isinstance(answer, JoinGroupResponse) and code in (ErrorCode.NONE, ErrorCode.MEMBER_ID_REQUIRED):
            consumer.member_id = answer.member_id
            consumer.generation_id = answer.generation_id
            consumer.leads = [] if answer.skip_assignment else [member.member_id for member in answer.members]
        elif isinstance(answer, SyncGroupResponse) and code is ErrorCode.NONE:
            if answer.assignment:
                generation_id = int(what.split()[1])
                key = (consumer.group_id, generation_id, answer.assignment)
                # A static member that was restarted owns what it owned.
                owner = consumer.instance_id or consumer.member_id
                assert self.owned.setdefault(key, owner) == owner, f"{key} is owned by two"
        elif isinstance(answer, JoinGroupResponse | SyncGroupResponse | HeartbeatResponse):
            self.refused(consumer, code)

    def refused(self, consumer: Consumer, code: ErrorCode) -> None:
        consumer.waits = False
        if code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID, ErrorCode.GROUP_MAX_SIZE_REACHED):
            consumer.forget()
        elif code in (ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.ILLEGAL_GENERATION):
            consumer.generation_id = -1

    # What must hold.

    def check(self) -> None:
        for group in self.shard.groups.values():
            assert isinstance(group, ClassicGroup)
            members = group.members.values()
            assert group.awaiting_join == sum(member.join_ticket is not None for member in members)
            assert group.static_members == {
                member.instance_id: member.member_id for member in members if member.instance_id is not None
            }
            assert set(group.pending_syncs) <= set(group.members)
            assert not set(group.pending_joins) & set(group.members)
            assert (group.leader_id in group.members) if group.members else (group.leader_id is None)
            support: dict[str, int] = {}
            for member in members:
                for name, _ in member.protocols:
                    support[name] = support.get(name, 0) + 1
            assert group._support == support
            self._check_timers(group)
            if group.state is State.EMPTY:
                assert not group.members
            else:
                assert group.members or group.pending_joins or group.state is State.PREPARING_REBALANCE

    def _check_timers(self, group: ClassicGroup) -> None:
        """Whoever can be silent for ever is watched, and every phase ends by itself."""
        deadline_ms = self.shard.timers.deadline_ms
        for member_id in (*group.members, *group.pending_joins):
            member = group.members.get(member_id)
            if member is None or not member.is_waiting:
                assert deadline_ms((SESSION, group.group_id, member_id)) is not None, member_id
        if group.state is State.PREPARING_REBALANCE:
            assert deadline_ms((JOIN, group.group_id)) is not None
        if group.pending_syncs:
            assert deadline_ms((SYNC, group.group_id)) is not None


@pytest.mark.parametrize("seed", range(60))
def test_whatever_happens(seed: int) -> None:
    world = World(seed)
    for _ in range(STEPS):
        world.step()
        world.check()
    world.pass_time(400_000)  # Nobody says anything any more: everyone is answered, and every group ends up empty.
    assert world.waiting == {}
    assert {group.state_name for group in world.shard.groups.values()} <= {"Empty"}
    world.restart()
