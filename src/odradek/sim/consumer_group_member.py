"""A member of a KIP-848 group: heartbeats, offsets and commits, and nothing else."""

from __future__ import annotations

import asyncio

from odradek.ids import Uuid, uuid_text
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.consumer_group_heartbeat import (
    Assignment,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from odradek.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from odradek.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from odradek.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
)
from odradek.sim.cluster import Cluster
from odradek.sim.group_member import (
    HEARTBEAT_INTERVAL_MS,
    REBALANCE_TIMEOUT_MS,
    SESSION_TIMEOUT_MS,
    GroupPlan,
    Member,
)
from odradek.sim.history import OffsetRead, Partition
from odradek.sim.loop import Life
from odradek.sim.workload import Client, TryAgain

JOIN_EPOCH, LEAVE_EPOCH, STATIC_LEAVE_EPOCH = 0, -1, -2
GROUP_KEY = 0
BY_NAME = 9
"""The last version of OffsetCommit and OffsetFetch that names topics."""

_BEGIN_AGAIN = (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.GROUP_ID_NOT_FOUND)
_PASSES = (
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.UNRELEASED_INSTANCE_ID,
    ErrorCode.UNKNOWN_SERVER_ERROR,
)


class CoordinatorClient(Client):
    """A connection to the coordinator of a group."""

    def __init__(self, cluster: Cluster, name: str, life: Life, *, group: str) -> None:
        super().__init__(cluster, name, life)
        self._group = group

    async def place(self) -> tuple[str, int]:
        """Whom one of the brokers names; the only one there is need not be asked."""
        brokers = self.cluster.brokers
        if len(brokers) == 1:
            return brokers[0]
        connection = await self.connect(*self.draw.choice(brokers))
        try:
            request = FindCoordinatorRequest(key_type=GROUP_KEY, coordinator_keys=[self._group])
            response = await self.wait(connection.ask(request, FindCoordinatorResponse, 4))
        finally:
            connection.close()
        (found,) = response.coordinators
        if found.error_code:
            raise TryAgain
        return found.host, found.port


class ConsumerGroupMember(Member):
    """Believes it owns what it was told for one session timeout after the heartbeat that was last answered."""

    def __init__(self, cluster: Cluster, plan: GroupPlan, name: str, instance_id: str | None) -> None:
        super().__init__(cluster, plan, name, instance_id)
        self._client = CoordinatorClient(cluster, name, self.life, group=plan.name)
        self._member_id = uuid_text(Uuid(self.draw.randbytes(16)))
        self._epoch = JOIN_EPOCH
        self._positions: dict[Partition, int] = {}
        self._says_all = True
        """Because it joins, or an answer was lost and with it what the coordinator knows of this member."""
        self._reported: tuple[Partition, ...] | None = None
        self._is_fenced = False

    async def work(self) -> bool:
        await self._client.persist(self._take_part)
        return not self._is_fenced and self.instance_id is None

    async def _take_part(self) -> None:
        self._says_all = True
        if not self._client.topic_ids:
            await self._client.learn_topic_ids(self.plan.topics)
        while not self.is_leaving:
            stall_s, self.stall_s = self.stall_s, 0.0
            if stall_s:
                await asyncio.sleep(stall_s)
                if self._positions:  # It does not know yet what it has missed.
                    await self._commit()
            await self._beat()
            if self._is_fenced:
                return
            if self._epoch != JOIN_EPOCH:
                await self._locate()
                if self._positions and self.draw.random() < 0.5:
                    await self._commit()
            if self._reported == self.owned:  # Else whoever waits for what was given up is told so at once.
                await asyncio.sleep(HEARTBEAT_INTERVAL_MS / 1000 * self.draw.random() * self.plan.pace)
        await self._leave()

    # Heartbeats.

    async def _beat(self) -> None:
        owned = self.owned
        says_all = self._says_all or self._epoch == JOIN_EPOCH
        request = ConsumerGroupHeartbeatRequest(
            group_id=self.plan.name, member_id=self._member_id, member_epoch=self._epoch, instance_id=self.instance_id
        )
        if says_all:
            request.rebalance_timeout_ms = REBALANCE_TIMEOUT_MS
            request.subscribed_topic_names = list(self.plan.topics)
            request.server_assignor = self.plan.server_assignor
        if says_all or owned != self._reported:
            request.topic_partitions = self._by_topic(owned)
        # Who was replaced and does not know it answers from memory, as Kafka's coordinators do: that is no lease.
        leased = not self.cluster.has_deposed_coordinator()
        lease_ms = self.cluster.clock.monotonic_ms() + SESSION_TIMEOUT_MS if leased else 0
        self._says_all = True
        response = await self._client.ask(request, ConsumerGroupHeartbeatResponse, 1)
        code = ErrorCode(response.error_code)
        if code in _BEGIN_AGAIN:
            self._give_up()
        elif code is ErrorCode.FENCED_INSTANCE_ID:
            self._give_up()
            self._is_fenced = True
        elif code in _PASSES:
            raise TryAgain
        else:
            assert code is ErrorCode.NONE, f"{code.name}: {response.error_message}"
            self._says_all = False
            self._reported = owned
            self._take(response.member_epoch, response.assignment, lease_ms)

    def _take(self, epoch: int, assignment: Assignment | None, lease_ms: int) -> None:
        owned = self.owned
        if assignment is not None:
            names = {topic_id: name for name, topic_id in self._client.topic_ids.items()}
            owned = tuple(
                Partition(names[each.topic_id], index)
                for each in assignment.topic_partitions
                for index in each.partitions
            )
        self._epoch = epoch
        self._positions = {each: offset for each, offset in self._positions.items() if each in owned}
        self.note_owned(owned, epoch, lease_ms=lease_ms)

    def _give_up(self) -> None:
        self._epoch = JOIN_EPOCH
        self._reported = None
        self._positions.clear()
        self.note_owned((), self.generation_id)

    def _by_topic(self, partitions: tuple[Partition, ...]) -> list[TopicPartitions]:
        return [
            TopicPartitions(
                topic_id=self._client.topic_ids[topic],
                partitions=[each.index for each in partitions if each.topic == topic],
            )
            for topic in self.plan.topics
            if any(each.topic == topic for each in partitions)
        ]

    async def _leave(self) -> None:
        """A static member says that it comes back."""
        self._give_up()
        epoch = LEAVE_EPOCH if self.instance_id is None else STATIC_LEAVE_EPOCH
        request = ConsumerGroupHeartbeatRequest(
            group_id=self.plan.name, member_id=self._member_id, member_epoch=epoch, instance_id=self.instance_id
        )
        response = await self._client.ask(request, ConsumerGroupHeartbeatResponse, 1)
        if response.error_code in _PASSES:
            raise TryAgain

    # Offsets.

    async def _locate(self) -> None:
        """Find out where to go on in partitions that are new."""
        missing = [each for each in self.owned if each not in self._positions]
        if not missing:
            return
        asked_at = len(self.cluster.history.events)
        topics = [
            OffsetFetchRequestTopics(
                name=topic, partition_indexes=[each.index for each in missing if each.topic == topic]
            )
            for topic in self.plan.topics
        ]
        group = OffsetFetchRequestGroup(
            group_id=self.plan.name, member_id=self._member_id, member_epoch=self._epoch, topics=topics
        )
        response = await self._client.ask(OffsetFetchRequest(groups=[group]), OffsetFetchResponse, BY_NAME)
        (answer,) = response.groups
        if answer.error_code in _PASSES:
            raise TryAgain
        if answer.error_code:
            return  # Fenced, as the next heartbeat will tell.
        for found in answer.topics:
            for part in found.partitions:
                partition = Partition(found.name, part.partition_index)
                read = OffsetRead(self.plan.name, partition, part.committed_offset, part.metadata or "", asked_at)
                self.cluster.history.add(read)
                self._positions[partition] = max(part.committed_offset, 0)

    async def _commit(self) -> None:
        partition = self.draw.choice(list(self._positions))
        further = self._positions[partition] + self.draw.randrange(1, 10)
        offset = self._positions[partition] = min(further, self.plan.records)
        name = self.note_commit({partition: offset})
        part = OffsetCommitRequestPartition(
            partition_index=partition.index, committed_offset=offset, committed_metadata=name
        )
        request = OffsetCommitRequest(
            group_id=self.plan.name,
            generation_id_or_member_epoch=self._epoch,
            member_id=self._member_id,
            group_instance_id=self.instance_id,
            topics=[OffsetCommitRequestTopic(name=partition.topic, partitions=[part])],
        )
        response = await self._client.ask(request, OffsetCommitResponse, BY_NAME)
        code = response.topics[0].partitions[0].error_code
        if code == ErrorCode.NONE:
            self.note_acknowledged(partition, offset, name)
        elif code in _PASSES:
            raise TryAgain
