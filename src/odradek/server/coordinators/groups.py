"""Group coordinators: one shard for each partition of `__consumer_offsets` that this node leads.

Cores decide (`coordinator.group`); this shell makes the topic when it is first needed, loads shards from their logs,
appends what they decide, answers, and keeps one timer a shard. A shard whose leadership goes is dropped whole.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Protocol

from odradek.coordinator.group.settings import GroupSettings
from odradek.coordinator.record_format import partition_for
from odradek.coordinator.shard import Moment
from odradek.ids import NodeId
from odradek.metadata.image import EMPTY_IMAGE, Changes, Image
from odradek.metadata.topic_names import GROUP_TOPIC
from odradek.ports import World
from odradek.protocol.errors import ErrorCode, KafkaError, MalformedFrame
from odradek.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from odradek.protocol.records.compression import Compression
from odradek.server.configs.node_config import NodeConfig
from odradek.server.containment import Cost
from odradek.server.partitions.hosted_partition import HostedPartition
from odradek.server.partitions.replicas import Replicas

if TYPE_CHECKING:
    from odradek.server.coordinators.shard_runner import Decide, ShardRunner

log = logging.getLogger(__name__)

LOAD_CHUNK_BYTES = 256 * 1024
"""Read between two turns of the loop; larger ones would keep it for longer than clients should notice."""


class TopicCreator(Protocol):
    """Whoever has topics made: in a cluster that is another node."""

    async def create_topics(self, request: CreateTopicsRequest) -> CreateTopicsResponse:
        """KafkaError if nobody answers."""


class GroupCoordinator:
    """All group coordinators of this node."""

    def __init__(self, config: NodeConfig, world: World, replicas: Replicas, topics: TopicCreator) -> None:
        self.replicas = replicas
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
        self.compression = Compression(config.offsets_topic_compression_codec)
        self.commit_timeout_ms = config.offsets_commit_timeout_ms
        self._config = config
        self._clock = world.clock
        self._topics = topics
        self._node_id = NodeId(config.node_id)
        self._runners: dict[int, ShardRunner] = {}
        self._loads: dict[asyncio.Task[None], None] = {}
        self._creation: asyncio.Task[None] | None = None
        self._partitions = config.offsets_topic_num_partitions
        self._image = EMPTY_IMAGE

    # What shards and handlers use.

    def moment(self) -> Moment:
        clock = self._clock
        return Moment(clock.now_ms(), clock.monotonic_ms())

    def counts(self) -> tuple[int, int]:
        """How many groups and committed offsets this node looks after."""
        shards = [runner.shard for runner in self._runners.values()]
        return sum(len(shard.groups) for shard in shards), sum(len(shard.offsets) for shard in shards)

    def partition_of(self, group_id: str) -> int:
        return partition_for(group_id, self._partitions)

    def runner(self, group_id: str) -> ShardRunner | None:
        """The shard of the group, if it is here; it may still be loading."""
        return self._runners.get(partition_for(group_id, self._partitions))

    async def ask(self, group_id: str, decide: Decide) -> Any:
        """The answer of the group's coordinator; KafkaError if it refuses, is still loading or is elsewhere."""
        runner = self.runner(group_id)
        if runner is None:
            raise KafkaError(ErrorCode.NOT_COORDINATOR)
        return await runner.ask(decide)

    async def delete_group(self, group_id: str) -> Any:
        """As `ask`: the group and all its offsets, in as many batches as that takes."""
        while True:
            runner = self.runner(group_id)
            if runner is None or not runner.tell(lambda shard, now: shard.delete_most_offsets(group_id)):
                break
            await asyncio.sleep(0)
        return await self.ask(group_id, lambda shard, ticket, now: shard.delete_group(ticket, group_id))

    async def ask_all(self, decide: Decide) -> list[Any]:
        """The answers of every shard here; one that has failed to load has nothing to say."""
        return [
            await runner.ask(decide)
            for runner in list(self._runners.values())
            if runner.state is not ErrorCode.NOT_COORDINATOR
        ]

    # The topic.

    async def create_topic(self, image: Image) -> None:
        """Make `__consumer_offsets`, once, whoever asks; KafkaError if that cannot be."""
        if self._creation is None:
            self._creation = asyncio.create_task(self._create_topic(image))
        try:
            await asyncio.shield(self._creation)
        finally:
            if self._creation is not None and self._creation.done():
                self._creation = None

    async def _create_topic(self, image: Image) -> None:
        config = self._config
        replicas = config.offsets_topic_replication_factor
        if config.is_alone and "offsets.topic.replication.factor" not in config.given:
            # The default is meant for clusters; a lone node that nobody configured shall just work. In a cluster it is
            # better to wait for the others than to have too few replicas for ever.
            replicas = min(replicas, len(image.cluster.brokers))
        settings = {
            "cleanup.policy": "compact",
            "compression.type": "producer",
            "segment.bytes": str(config.offsets_topic_segment_bytes),
        }
        topic = CreatableTopic(
            name=GROUP_TOPIC,
            num_partitions=config.offsets_topic_num_partitions,
            replication_factor=replicas,
            assignments=[],
            configs=[CreatableTopicConfig(name=name, value=text) for name, text in settings.items()],
        )
        response = await self._topics.create_topics(CreateTopicsRequest(topics=[topic]))
        (result,) = response.topics
        if result.error_code not in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
            refused = KafkaError(ErrorCode(result.error_code), result.error_message or "")
            level = logging.INFO if refused.code.retriable else logging.ERROR
            log.log(level, "%s cannot be created: %s", GROUP_TOPIC, refused)
            raise refused

    # What the cluster agreed on.

    def start(self, image: Image) -> None:
        """Take up what this node leads when it starts."""
        self._image = image
        topic = image.topics.by_name.get(GROUP_TOPIC)
        if topic is not None:
            self._partitions = len(topic.partitions)
            self._load_or_drop(range(len(topic.partitions)))

    def apply(self, image: Image, changes: Changes) -> None:
        """Shards come and go with the leadership of their partitions; offsets of deleted topics go."""
        topics = changes.topics
        self._image = image
        deleted = [topic.name for topic in topics.deleted]
        if GROUP_TOPIC in deleted:  # Before the one that may have been created since takes its place.
            for index in list(self._runners):
                self._drop(index)
        for runner in list(self._runners.values()):
            try:
                runner.shard.learn(image, topics)
            except Exception as failure:  # noqa: BLE001 - whatever breaks costs this shard
                self.give_up(runner, failure)
        for touched in (*topics.created, *topics.changed):
            if touched.topic.name == GROUP_TOPIC:
                if touched.before is None:
                    self._partitions = len(touched.topic.partitions)
                self._load_or_drop(touched.partitions)
        for runner in list(self._runners.values()):
            runner.forget(deleted)

    def opened(self, hosted: HostedPartition) -> None:
        """A partition is there that the cluster had given to this node before."""
        if hosted.topic == GROUP_TOPIC:
            self._load_or_drop((hosted.index,))

    def _load_or_drop(self, partitions: Iterable[int]) -> None:
        for index in partitions:
            hosted = self.replicas.find(GROUP_TOPIC, index)
            runner = self._runners.get(index)
            if hosted is None or not hosted.partition.is_leader:
                self._drop(index)
            elif runner is None or runner.leader_epoch != hosted.partition.state.leader_epoch:
                self._drop(index)
                self._load(index, hosted)

    def _load(self, index: int, hosted: HostedPartition) -> None:
        # Loaded when it is needed: a node that starts has no groups yet, and they are a tenth of its code.
        from odradek.server.coordinators.shard_runner import ShardRunner

        runner = self._runners[index] = ShardRunner(hosted, hosted.partition.state.leader_epoch, self)
        partition_log = hosted.partition.log
        try:
            runner.shard.learn(self._image, None)
            if partition_log.log_start_offset == partition_log.log_end_offset:
                runner.begin()
                return
        except Exception as failure:  # noqa: BLE001 - whatever breaks costs this shard
            self.give_up(runner, failure)
            return
        task = asyncio.create_task(self._load_in_turns(runner))
        self._loads[task] = None
        task.add_done_callback(self._loads.pop)

    async def give_way(self) -> None:
        """Between two pieces of a log that is being loaded, others get their turn."""
        await asyncio.sleep(0)

    async def _load_in_turns(self, runner: ShardRunner) -> None:
        try:
            await runner.load(min(self._config.offsets_load_buffer_size, LOAD_CHUNK_BYTES))
        except (KafkaError, MalformedFrame) as failure:
            log.error("The coordinator of %s cannot be loaded: %s", runner.hosted, failure)
            runner.resign()
        except Exception as failure:  # noqa: BLE001 - whatever breaks costs this shard, not the node
            self.give_up(runner, failure)

    # What is broken.

    def give_up(self, runner: ShardRunner, failure: Exception) -> KafkaError:
        """The shard may not know what its log says: it begins anew with that; what the one who asked is told.

        Where that cannot be loaded, either, nobody coordinates its groups until the partition has another leader.
        """
        self.replicas.containment.note(Cost.SHARD, f"the coordinator of {runner.hosted}", failure)
        index, hosted = runner.hosted.index, runner.hosted
        was_loaded = runner.state is ErrorCode.NONE
        runner.resign()
        if was_loaded and self._runners.get(index) is runner:
            self._load(index, hosted)
        return KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR)

    def _drop(self, index: int) -> None:
        runner = self._runners.pop(index, None)
        if runner is not None:
            runner.resign()

    async def close(self) -> None:
        """Let everyone go who waits; nothing is written after this."""
        for task in list(self._loads):
            task.cancel()
        if self._loads:
            await asyncio.wait(list(self._loads))
        for index in list(self._runners):
            self._drop(index)
