"""A member of a classic group: joining, heartbeats, leaving.

The consumer's poll drives it: `step` begins a rebalance when one is due and finishes it when its answers are there, so
the user's callbacks run only inside a poll. Between polls a task sends heartbeats.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Sequence
from typing import Protocol

from odradek.client.cluster import Cluster, TopicPartition
from odradek.client.consumer.assignors import Assignor, assignors
from odradek.client.consumer.embedded import read_subscription, write_assignment, write_subscription
from odradek.client.errors import ClientError, may_pass
from odradek.client.group_assignment import read_assignment
from odradek.client.offsets import Membership
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from odradek.protocol.messages.join_group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
    JoinGroupResponseMember,
)
from odradek.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity
from odradek.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment, SyncGroupResponse

PROTOCOL_TYPE = "consumer"
JOIN_PATIENCE_MS = 5_000
"""What a JoinGroup may take beyond the rebalance timeout, for which the coordinator holds it."""

_MEMBERSHIP_LOST = (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION)


class Owner(Protocol):
    """What the membership asks of the consumer it belongs to."""

    def owned(self) -> Collection[TopicPartition]:
        """The partitions read now."""

    async def before_rejoin(self) -> None:
        """A rebalance begins: the moment to commit."""

    async def assigned(self, partitions: Sequence[TopicPartition], added: Sequence[TopicPartition]) -> None:
        """Read exactly these from now on; tell the user which are new."""

    async def revoked(self, partitions: Sequence[TopicPartition], *, lost: bool) -> None:
        """Stop reading these and tell the user; lost ones may be somebody else's already."""


class GroupMember:
    """One consumer's place in its group."""

    def __init__(self, cluster: Cluster, owner: Owner, wake: Callable[[], None]) -> None:
        settings = cluster.settings
        group_id = settings.optional_text("group.id")
        assert group_id is not None
        self.group_id = group_id
        self.topics: tuple[str, ...] = ()
        self.needs_join = True
        self.is_leader = False
        self._cluster = cluster
        self._owner = owner
        self._wake = wake
        self._assignors = assignors(settings.words("partition.assignment.strategy"))
        self._is_cooperative = all(assignor.is_cooperative for assignor in self._assignors)
        self._session_timeout_ms = settings.number("session.timeout.ms")
        self._rebalance_timeout_ms = settings.number("max.poll.interval.ms")
        self._heartbeat_ms = settings.number("heartbeat.interval.ms")
        self._instance_id = settings.optional_text("group.instance.id")
        self._rack = settings.text("client.rack") or None
        self._member_id = ""
        self._generation_id = -1
        self._is_lost = False
        self._joining: asyncio.Task[list[TopicPartition]] | None = None
        self._beating: asyncio.Task[None] | None = None
        self._fatal: Exception | None = None
        self._polled_ms = cluster.ports.clock.monotonic_ms()

    def membership(self) -> Membership:
        """As whom to commit; raises UNKNOWN_MEMBER_ID while this is no member, as somebody else may own all by now."""
        if self._generation_id < 0:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, "this consumer is no member of its group now: poll first")
        return Membership(self._member_id, self._generation_id, self._instance_id)

    @property
    def is_stable(self) -> bool:
        """Whether no rebalance is due or under way, as far as this member knows."""
        return self._joining is None and not self.needs_join

    async def step(self) -> bool:
        """Go as far as possible without waiting for the network; whether the assignment is in force now."""
        self._polled_ms = self._cluster.ports.clock.monotonic_ms()
        if self._fatal is not None:
            raise self._fatal
        if self._joining is None and self.needs_join:
            await self._prepare()
            self.needs_join = False
            self._joining = asyncio.ensure_future(self._join_and_sync())
            self._joining.add_done_callback(lambda _: self._wake())
        if self._joining is None:
            return True
        if not self._joining.done():
            return False
        joined, self._joining = self._joining, None
        try:
            partitions = joined.result()
        except (KafkaError, ClientError) as failure:
            self.needs_join = True
            self._not_joined(failure)
            self._wake()
            return False
        if self._is_lost:  # A commit has shown meanwhile that this is no member: it has been assigned nothing.
            self._wake()
            return False
        await self._complete(partitions)
        return not self.needs_join

    def rejoin(self) -> None:
        """Something changed: join again at the next poll."""
        self.needs_join = True
        self._wake()

    def note_commit_failure(self, failure: KafkaError, committed_as: Membership) -> None:
        """A commit was refused: what that says about this member, if it still is who made the commit."""
        if (committed_as.member_id, committed_as.generation_id) != (self._member_id, self._generation_id):
            return  # It has joined again since, which is why the commit was refused.
        if failure.code in _MEMBERSHIP_LOST:
            self._lose()
        elif failure.code is ErrorCode.REBALANCE_IN_PROGRESS:
            self.rejoin()

    async def leave(self) -> None:
        """Give up membership; a static member's place is kept for its return."""
        for task in (self._joining, self._beating):
            if task is not None:
                task.cancel()
                await asyncio.wait([task])
        if self._member_id and self._instance_id is None:
            member_id, self._member_id = self._member_id, ""
            request = LeaveGroupRequest(
                group_id=self.group_id,
                member_id=member_id,
                members=[MemberIdentity(member_id=member_id, reason="the consumer is being closed")],
            )
            try:
                await self._cluster.ask_coordinator(self.group_id, request, LeaveGroupResponse)
            except (ClientError, KafkaError):
                return  # The session will expire; nothing more can be done from here.

    # Before.

    async def _prepare(self) -> None:
        """Commit and give up what must be given up before joining; any step may show that membership is lost."""
        if not self._is_lost:
            await self._owner.before_rejoin()
        if not self._is_lost:
            owned = self._owner.owned()
            keeps = self.topics if self._is_cooperative else ()
            await self._owner.revoked([partition for partition in owned if partition.topic not in keeps], lost=False)
        if self._is_lost:
            await self._owner.revoked(list(self._owner.owned()), lost=True)
            self._is_lost = False

    def _not_joined(self, failure: KafkaError | ClientError) -> None:
        if isinstance(failure, KafkaError) and failure.code in _MEMBERSHIP_LOST:
            self._lose()
        elif not may_pass(failure) and not _is_rebalance(failure):
            self._fatal = failure

    def _lose(self) -> None:
        """The group goes on without this member; what it owned may be somebody else's by now."""
        self._member_id = ""
        self._generation_id = -1
        self._is_lost = True
        self.rejoin()

    # Joining.

    async def _join_and_sync(self) -> list[TopicPartition]:
        tries = 0
        while True:
            try:
                joined = await self._join()
                self._generation_id = joined.generation_id
                self._member_id = joined.member_id
                self.is_leader = joined.leader == joined.member_id
                return await self._sync(joined)
            except (KafkaError, ClientError) as failure:
                if not may_pass(failure) and not _is_rebalance(failure):
                    raise
            await asyncio.sleep(self._cluster.backoff_ms(tries) / 1000)
            tries += 1

    async def _join(self) -> JoinGroupResponse:
        while True:
            request = JoinGroupRequest(
                group_id=self.group_id,
                session_timeout_ms=self._session_timeout_ms,
                rebalance_timeout_ms=self._rebalance_timeout_ms,
                member_id=self._member_id,
                group_instance_id=self._instance_id,
                protocol_type=PROTOCOL_TYPE,
                protocols=[
                    JoinGroupRequestProtocol(name=assignor.name, metadata=self._subscription(assignor))
                    for assignor in self._assignors
                ],
            )
            timeout_ms = self._rebalance_timeout_ms + JOIN_PATIENCE_MS
            response = await self._cluster.ask_coordinator(
                self.group_id, request, JoinGroupResponse, timeout_ms=timeout_ms
            )
            if response.error_code != ErrorCode.MEMBER_ID_REQUIRED:
                self._cluster.check_coordinated(self.group_id, response.error_code)
                return response
            self._member_id = response.member_id

    async def _sync(self, joined: JoinGroupResponse) -> list[TopicPartition]:
        assignments: list[SyncGroupRequestAssignment] = []
        if self.is_leader:
            assignments = await self._assign(joined.protocol_name or "", joined.members)
            if joined.skip_assignment:
                assignments = []  # A static leader that comes back: all stays as it was (KIP-814).
        request = SyncGroupRequest(
            group_id=self.group_id,
            generation_id=self._generation_id,
            member_id=self._member_id,
            group_instance_id=self._instance_id,
            protocol_type=PROTOCOL_TYPE,
            protocol_name=joined.protocol_name,
            assignments=assignments,
        )
        timeout_ms = self._rebalance_timeout_ms + JOIN_PATIENCE_MS
        response = await self._cluster.ask_coordinator(self.group_id, request, SyncGroupResponse, timeout_ms=timeout_ms)
        self._cluster.check_coordinated(self.group_id, response.error_code)
        return read_assignment(response.assignment)

    async def _assign(
        self, protocol: str, members: Sequence[JoinGroupResponseMember]
    ) -> list[SyncGroupRequestAssignment]:
        subscriptions = [read_subscription(member) for member in members]
        topics = sorted({topic for subscription in subscriptions for topic in subscription.topics})
        await self._cluster.refresh(topics)
        counts = {name: len(self._cluster.topics[name].partitions) for name in topics if name in self._cluster.topics}
        (assignor,) = [each for each in self._assignors if each.name == protocol]
        assigned = assignor.assign(counts, subscriptions)
        return [
            SyncGroupRequestAssignment(member_id=member_id, assignment=write_assignment(partitions))
            for member_id, partitions in assigned.items()
        ]

    def _subscription(self, assignor: Assignor) -> bytes:
        return write_subscription(
            self.topics,
            owned=self._owner.owned() if self._is_cooperative else (),
            generation_id=self._generation_id,
            rack=self._rack,
            is_cooperative=assignor.is_cooperative,
        )

    # After.

    async def _complete(self, partitions: list[TopicPartition]) -> None:
        owned = list(self._owner.owned())
        kept = frozenset(partitions)
        given_up = [partition for partition in owned if partition not in kept]
        if given_up:
            # Now that they are free, the next rebalance gives them to others (only a cooperative member has any).
            await self._owner.revoked(given_up, lost=False)
            self.needs_join = True
        before = frozenset(owned)
        added = [partition for partition in partitions if partition not in before]
        await self._owner.assigned(partitions, added)
        if self._beating is None or self._beating.done():
            self._beating = asyncio.ensure_future(self._beat())

    async def _beat(self) -> None:
        while True:
            await asyncio.sleep(self._heartbeat_ms / 1000)
            if self._joining is not None or self._is_lost or self._fatal is not None:
                continue
            silent_ms = self._cluster.ports.clock.monotonic_ms() - self._polled_ms
            if silent_ms > self._rebalance_timeout_ms:
                await self._step_aside()
                continue
            try:
                await self._heartbeat()
            except KafkaError as refusal:
                self._beat_refused(refusal)
            except ClientError:
                continue  # The coordinator is looked up anew at the next beat.

    async def _heartbeat(self) -> None:
        request = HeartbeatRequest(
            group_id=self.group_id,
            generation_id=self._generation_id,
            member_id=self._member_id,
            group_instance_id=self._instance_id,
        )
        generation_id = self._generation_id
        response = await self._cluster.ask_coordinator(self.group_id, request, HeartbeatResponse)
        if generation_id == self._generation_id and self._joining is None:
            self._cluster.check_coordinated(self.group_id, response.error_code)

    def _beat_refused(self, refusal: KafkaError) -> None:
        if refusal.code in _MEMBERSHIP_LOST:
            self._lose()
        elif refusal.code is ErrorCode.REBALANCE_IN_PROGRESS:
            self.rejoin()
        elif not may_pass(refusal):
            self._fatal = refusal
            self._wake()

    async def _step_aside(self) -> None:
        """The user has not polled for too long: others shall have the partitions."""
        member_id = self._member_id
        self._lose()
        request = LeaveGroupRequest(
            group_id=self.group_id,
            member_id=member_id,
            members=[
                MemberIdentity(
                    member_id=member_id,
                    group_instance_id=self._instance_id,
                    reason="max.poll.interval.ms passed without a poll",
                )
            ],
        )
        try:
            await self._cluster.ask_coordinator(self.group_id, request, LeaveGroupResponse)
        except (ClientError, KafkaError):
            return  # The session will expire.


def _is_rebalance(failure: Exception) -> bool:
    return isinstance(failure, KafkaError) and failure.code is ErrorCode.REBALANCE_IN_PROGRESS
