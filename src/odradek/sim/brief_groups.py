"""Groups of offsets alone that are deleted again and again, also while the disk is full and the deletion is refused.

Whoever is told that a group is deleted, or that there is none, finds none of the offsets that were committed before.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools

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

NAME = "brief"
GROUPS = tuple(f"{NAME}-{number}" for number in range(4))
LONGEST_PAUSE_S = 0.5
PATIENCE_S = 40.0

STATES = ("group deleted",)


class BriefGroups(CoordinatorClient):
    """Their only client."""

    def __init__(self, cluster: Cluster, admin: Admin, topic: str, partitions: int) -> None:
        super().__init__(cluster, NAME, Life(NAME), group=NAME)
        self._admin = admin
        self._topic = topic
        self._partitions = partitions
        self._commits = 0
        self._committed: dict[str, str] = {}
        """The commit that was acknowledged last, of each group that was not deleted since."""

    async def run(self, times: int) -> None:
        for _ in range(times):
            for group in GROUPS:
                await self.persist(functools.partial(self._commit, group))
            for group in GROUPS:
                await asyncio.sleep(self.draw.random() * LONGEST_PAUSE_S)
                if await self._is_deleted(group):
                    with contextlib.suppress(KafkaError, ClientError):
                        await self._look(group)

    async def judge(self) -> None:
        """Nothing is in the way of their deletion any more."""
        loop = self.cluster.loop
        end = loop.time() + PATIENCE_S
        for group in GROUPS:
            while not await self._is_deleted(group):
                if loop.time() > end:
                    loop.failures.append(f"{group} could not be deleted for {PATIENCE_S:.0f} s")
                    return
                await asyncio.sleep(0.2)
            await self._look(group)

    async def _commit(self, group: str) -> None:
        self._commits += 1
        name = f"{group}/{self._commits}"
        parts = [
            OffsetCommitRequestPartition(partition_index=index, committed_offset=1, committed_metadata=name)
            for index in range(self._partitions)
        ]
        topics = [OffsetCommitRequestTopic(name=self._topic, partitions=parts)]
        request = OffsetCommitRequest(group_id=group, member_id="", topics=topics)
        response = await self.ask(request, OffsetCommitResponse, BY_NAME)
        if any(part.error_code for topic in response.topics for part in topic.partitions):
            raise TryAgain
        self._committed[group] = name

    async def _is_deleted(self, group: str) -> bool:
        try:
            refused = (await self._admin.delete_groups([group]))[group]
        except ClientError:
            return False
        if refused is None or refused.code is ErrorCode.GROUP_ID_NOT_FOUND:
            self.cluster.trace.mark(STATES[0])
            return True
        return False

    async def _look(self, group: str) -> None:
        held = await self._admin.group_offsets(group)
        known = self._committed.pop(group, None)
        for partition, offset in held.items():
            if not isinstance(offset, KafkaError) and offset is not None and offset.metadata == known:
                self.cluster.loop.failures.append(f"{group} was deleted, and its offset of {partition} is there")
