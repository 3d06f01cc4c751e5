"""Partitions that move to other brokers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from odradek.client.admin.base import AdminBase, Outcomes, outcome
from odradek.client.cluster import TopicPartition, by_topic
from odradek.client.errors import check
from odradek.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignableTopic,
)
from odradek.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)
from odradek.values import value


@value
class Reassignment:
    """A partition on its way."""

    replicas: tuple[int, ...]
    """All that it has meanwhile: the old ones and the new ones."""
    adding: tuple[int, ...]
    removing: tuple[int, ...]


class ReassignmentAdmin(AdminBase):
    """What can be asked about where partitions are."""

    async def reassign_partitions(
        self, targets: Mapping[TopicPartition, Sequence[int] | None]
    ) -> Outcomes[TopicPartition]:
        """Let partitions move to other brokers, or (None) go back to where they were before the move under way."""
        topics = [
            ReassignableTopic(
                name=topic,
                partitions=[
                    ReassignablePartition(partition_index=index, replicas=None if replicas is None else list(replicas))
                    for index in indexes
                    for replicas in (targets[TopicPartition(topic, index)],)
                ],
            )
            for topic, indexes in by_topic(targets).items()
        ]
        request = AlterPartitionReassignmentsRequest(timeout_ms=self._timeout_ms, topics=topics)
        response = await self._ask(request, AlterPartitionReassignmentsResponse)
        check(response.error_code, response.error_message)
        return {
            TopicPartition(topic.name, each.partition_index): outcome(each.error_code, each.error_message)
            for topic in response.responses
            for each in topic.partitions
        }

    async def list_reassignments(self, *, timeout_ms: int | None = None) -> dict[TopicPartition, Reassignment]:
        """All moves under way, as the controller knows them; a timeout of one's own bounds the wait for one."""
        waits_ms = self._timeout_ms if timeout_ms is None else timeout_ms
        request = ListPartitionReassignmentsRequest(timeout_ms=waits_ms, topics=None)
        response = await self._ask_within(request, ListPartitionReassignmentsResponse, timeout_ms)
        check(response.error_code, response.error_message)
        return {
            TopicPartition(topic.name, each.partition_index): Reassignment(
                tuple(each.replicas), tuple(each.adding_replicas), tuple(each.removing_replicas)
            )
            for topic in response.topics
            for each in topic.partitions
        }
