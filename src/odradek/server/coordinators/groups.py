"""Group coordinators: one shard for each partition of `__consumer_offsets` that this node leads."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, TypeAlias

from odradek.coordinator.group.settings import GroupSettings
from odradek.metadata.topic_names import GROUP_TOPIC
from odradek.ports import World
from odradek.protocol.records.compression import Compression
from odradek.server.configs.node_config import NodeConfig
from odradek.server.coordinators.coordinator import Coordinator, StateTopic, TopicCreator
from odradek.server.partitions.replicas import Replicas

if TYPE_CHECKING:
    from odradek.coordinator.group.shard import GroupShard
    from odradek.server.coordinators.shard_runner import Decide, ShardRunner

GroupRunner: TypeAlias = "ShardRunner[GroupShard]"
DecideOnGroup: TypeAlias = "Decide[GroupShard]"


class GroupCoordinator(Coordinator["GroupShard"]):
    """All group coordinators of this node."""

    def __init__(self, config: NodeConfig, world: World, replicas: Replicas, topics: TopicCreator) -> None:
        topic = StateTopic(
            name=GROUP_TOPIC,
            num_partitions=config.offsets_topic_num_partitions,
            replication_factor=config.offsets_topic_replication_factor,
            is_factor_given="offsets.topic.replication.factor" in config.given,
            configs={
                "cleanup.policy": "compact",
                "compression.type": "producer",
                "segment.bytes": str(config.offsets_topic_segment_bytes),
            },
        )
        super().__init__(config, world, replicas, topics, topic)
        self.compression = Compression(config.offsets_topic_compression_codec)
        self.commit_timeout_ms = config.offsets_commit_timeout_ms
        self.load_buffer_bytes = config.offsets_load_buffer_size
        self.settings = GroupSettings(
            min_session_timeout_ms=config.group_min_session_timeout_ms,
            max_session_timeout_ms=config.group_max_session_timeout_ms,
            max_size=config.group_max_size,
            initial_rebalance_delay_ms=config.group_initial_rebalance_delay_ms,
            broker_id=config.node_id,
            consumer_session_timeout_ms=config.group_consumer_session_timeout_ms,
            consumer_heartbeat_interval_ms=config.group_consumer_heartbeat_interval_ms,
            consumer_migration_policy=config.group_consumer_migration_policy.lower(),
            consumer_max_size=config.group_consumer_max_size,
            consumer_assignors=config.group_consumer_assignors,
            consumer_assignment_interval_ms=config.group_consumer_assignment_interval_ms,
            offset_metadata_max_bytes=config.offset_metadata_max_bytes,
            offsets_retention_ms=config.offsets_retention_minutes * 60_000,
            offsets_retention_check_interval_ms=config.offsets_retention_check_interval_ms,
        )

    def new_shard(self) -> GroupShard:
        from odradek.coordinator.group.shard import GroupShard  # Not before it is needed, as the runner.

        return GroupShard(self.settings)

    def counts(self) -> tuple[int, int]:
        """How many groups and committed offsets this node looks after."""
        shards = [runner.shard for runner in self._runners.values()]
        return sum(len(shard.groups) for shard in shards), sum(len(shard.offsets) for shard in shards)

    async def delete_group(self, group_id: str) -> Any:
        """As `ask`: the group and all its offsets, in as many batches as that takes."""
        while True:
            runner = self.runner(group_id)
            if runner is None or not runner.tell(lambda shard, now: shard.delete_most_offsets(group_id)):
                break
            await asyncio.sleep(0)
        return await self.ask(group_id, lambda shard, ticket, now: shard.delete_group(ticket, group_id))
