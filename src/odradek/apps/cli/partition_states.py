"""Which partitions something is wrong with: they lack replicas in sync, or a leader."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from odradek.apps.terminal.output import complain
from odradek.apps.terminal.session import LISTING_PATIENCE_MS
from odradek.client.admin import Admin
from odradek.client.admin.cluster import ConfigResource, ResourceType
from odradek.client.admin.reassignment import Reassignment
from odradek.client.cluster import PartitionInfo, TopicPartition
from odradek.client.errors import ClientError, may_pass
from odradek.protocol.errors import ErrorCode, KafkaError

MIN_IN_SYNC = "min.insync.replicas"
_UNTOLD = (ErrorCode.UNSUPPORTED_VERSION, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)


async def least_in_sync(admin: Admin, topics: Collection[str]) -> dict[str, int]:
    """`min.insync.replicas` of topics; one that was deleted meanwhile is left out."""
    resources = [ConfigResource(ResourceType.TOPIC, topic) for topic in topics]
    found = await admin.describe_configs(resources, keys=(MIN_IN_SYNC,)) if resources else {}
    return {
        resource.name: int(config.value or 1)
        for resource, configs in found.items()
        if not isinstance(configs, KafkaError)
        for config in configs
    }


async def moves_under_way(admin: Admin) -> dict[TopicPartition, Reassignment]:
    """Nothing where nobody tells: what a move adds then counts as lacking."""
    try:
        return await admin.list_reassignments(timeout_ms=LISTING_PATIENCE_MS)
    except (KafkaError, ClientError) as failure:
        if may_pass(failure):
            complain("no controller answers: which partitions move is not known.")
        elif not isinstance(failure, KafkaError) or failure.code not in _UNTOLD:
            raise
        return {}


def is_under_replicated(topic: str, partition: PartitionInfo, under_way: Mapping[TopicPartition, Reassignment]) -> bool:
    """Whether replicas are not in sync; those that a move adds are on their way, and not missed yet."""
    move = under_way.get(TopicPartition(topic, partition.partition))
    wanted = len(partition.replicas) if move is None else len(move.replicas) - len(move.adding)
    return len(partition.isr) < wanted
