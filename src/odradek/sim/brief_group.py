"""A group of offsets alone that is deleted again and again, also while the disk is full and the deletion is refused.

Whoever is told that a group is deleted, or that there is none, finds none of the offsets that were committed before.
"""

from __future__ import annotations

import asyncio
import contextlib

from odradek.client.admin import Admin
from odradek.client.errors import ClientError
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from odradek.sim.cluster import Cluster
from odradek.sim.consumer_group_member import BY_NAME, CoordinatorClient
from odradek.sim.loop import Life
from odradek.sim.workload import TryAgain

GROUP = "brief"
LONGEST_PAUSE_S = 0.5
PATIENCE_S = 40.0

STATES = ("group deleted",)


class BriefGroup(CoordinatorClient):
    """Its only client."""

    def __init__(self, cluster: Cluster, admin: Admin, topic: str, partitions: int) -> None:
        super().__init__(cluster, GROUP, Life(GROUP), group=GROUP)
        self._admin = admin
        self._topic = topic
        self._partitions = partitions
        self._commits = 0
        self._committed: dict[str, None] = {}
        """The names of commits that were acknowledged since the group was deleted last."""

    async def run(self, times: int) -> None:
        for _ in range(times):
            await asyncio.sleep(self.draw.random() * LONGEST_PAUSE_S)
            await self.persist(self._commit)
            await asyncio.sleep(self.draw.random() * LONGEST_PAUSE_S)
            if await self._is_deleted():
                with contextlib.suppress(KafkaError, ClientError):
                    await self._look()

    async def judge(self) -> None:
        """Nothing is in the way of its deletion any more."""
        loop = self.cluster.loop
        began = loop.time()
        while not await self._is_deleted():
            if loop.time() - began > PATIENCE_S:
                loop.failures.append(f"{GROUP} could not be deleted for {PATIENCE_S:.0f} s")
                return
            await asyncio.sleep(0.2)
        await self._look()

    async def _commit(self) -> None:
        self._commits += 1
        name = f"{GROUP}/{self._commits}"
        parts = [
            OffsetCommitRequestPartition(partition_index=index, committed_offset=1, committed_metadata=name)
            for index in range(self._partitions)
        ]
        topics = [OffsetCommitRequestTopic(name=self._topic, partitions=parts)]
        request = OffsetCommitRequest(group_id=GROUP, member_id="", topics=topics)
        response = await self.ask(request, OffsetCommitResponse, BY_NAME)
        codes = [part.error_code for topic in response.topics for part in topic.partitions]
        if any(codes):
            raise TryAgain
        self._committed[name] = None

    async def _is_deleted(self) -> bool:
        try:
            refused = (await self._admin.delete_groups([GROUP]))[GROUP]
        except ClientError:
            refused = KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        if refused is None or refused.code is ErrorCode.GROUP_ID_NOT_FOUND:
            self.cluster.trace.mark("group deleted")
            return True
        return False

    async def _look(self) -> None:
        held = await self._admin.group_offsets(GROUP)
        for partition, offset in held.items():
            if not isinstance(offset, KafkaError) and offset is not None and offset.metadata in self._committed:
                self.cluster.loop.failures.append(f"{GROUP} was deleted, and {offset.metadata} of {partition} is there")
        self._committed.clear()
