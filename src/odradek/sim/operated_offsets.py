"""Somebody commits offsets of topics that come and go: whoever has a topic's name next inherits none of them.

Each commit names the topic it means by its id, and is an event of that topic. In the end offsets are asked for by name,
as most clients do, so that one that a predecessor left there is one that nobody committed (`checkers/offsets_kept.py`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable

from odradek.client.admin import Admin
from odradek.client.errors import ClientError
from odradek.ids import uuid_text
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from odradek.sim.cluster import Cluster
from odradek.sim.consumer_group_member import CoordinatorClient
from odradek.sim.history import NO_GENERATION, CommitAcknowledged, CommitSent, OffsetRead, Partition
from odradek.sim.loop import Life
from odradek.sim.workload import TryAgain

GROUP = "keeper"
BY_ID = 10
LONGEST_PAUSE_S = 1.5
COMMITTED = 0.5
"""Of all partitions; what is found for others can only be a predecessor's."""

STATES = ("offset of a topic that was deleted",)
"""Committed, and told so; for the topic's successor to inherit."""


class OffsetKeeper(CoordinatorClient):
    """No member of its group, which has offsets alone."""

    def __init__(self, cluster: Cluster, partitions: Callable[[], Iterable[Partition]]) -> None:
        """`partitions` are those that there are now, with their topics' ids."""
        super().__init__(cluster, GROUP, Life(GROUP), group=GROUP)
        self._there = partitions
        self._is_committed: dict[Partition, bool] = {}
        self._offsets: dict[Partition, int] = {}
        self._commits = 0
        self._acknowledged: dict[Partition, None] = {}

    async def run(self) -> None:
        while True:
            await self.persist(self._commit)
            await asyncio.sleep(self.draw.random() * LONGEST_PAUSE_S)

    async def _commit(self) -> None:
        there = list(self._there())
        for partition in there:
            if partition not in self._is_committed:
                self._is_committed[partition] = self.draw.random() < COMMITTED
        there = [partition for partition in there if self._is_committed[partition]]
        if not there:
            return
        partition = self.draw.choice(there)
        assert partition.topic_id is not None
        offset = self._offsets[partition] = self._offsets.get(partition, 0) + self.draw.randrange(1, 10)
        self._commits += 1
        name = f"{GROUP}/{self._commits} of {uuid_text(partition.topic_id)}"
        history = self.cluster.history
        history.add(CommitSent(GROUP, partition, offset, name))
        part = OffsetCommitRequestPartition(
            partition_index=partition.index, committed_offset=offset, committed_metadata=name
        )
        topic = OffsetCommitRequestTopic(topic_id=partition.topic_id, partitions=[part])
        request = OffsetCommitRequest(group_id=GROUP, member_id="", topics=[topic])
        response = await self.ask(request, OffsetCommitResponse, BY_ID)
        code = response.topics[0].partitions[0].error_code
        if code == ErrorCode.NONE:
            history.add(CommitAcknowledged(GROUP, self.name, NO_GENERATION, partition, offset, name))
            self._acknowledged[partition] = None
        elif ErrorCode(code).retriable and code not in (
            ErrorCode.UNKNOWN_TOPIC_ID,
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ):
            raise TryAgain

    async def judge(self, admin: Admin) -> None:
        """What is there under the names that topics have now."""
        there = list(self._there())
        names = {partition.topic for partition in there}
        if any(partition.topic in names and partition not in there for partition in self._acknowledged):
            self.cluster.trace.mark(STATES[0])
        while True:
            asked_at = len(self.cluster.history.events)
            try:
                held = await admin.group_offsets(GROUP)
                break
            except (KafkaError, ClientError):
                await asyncio.sleep(0.2)
        found = {(each.topic, each.partition): offset for each, offset in held.items()}
        for partition in there:
            offset = found.get((partition.topic, partition.index))
            if offset is None:
                self.cluster.history.add(OffsetRead(GROUP, partition, -1, "", asked_at))
            elif not isinstance(offset, KafkaError):
                self.cluster.history.add(OffsetRead(GROUP, partition, offset.offset, offset.metadata, asked_at))
