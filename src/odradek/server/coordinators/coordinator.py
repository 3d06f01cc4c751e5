"""Coordinators of one kind: a shard for each partition of their topic that this node leads.

Cores decide (`coordinator`); this shell makes the topic when it is first needed, loads shards from their logs, appends
what they decide, answers, and keeps one timer a shard. A shard whose leadership goes is dropped whole.
"""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from odradek.coordinator.record_format import partition_for
from odradek.coordinator.shard import Effect, Moment, Shard
from odradek.metadata.image import EMPTY_IMAGE, Changes, Image
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
from odradek.server.coordinators.load_times import LoadTimes
from odradek.server.partitions.hosted_partition import HostedPartition
from odradek.server.partitions.replicas import Replicas
from odradek.values import value

if TYPE_CHECKING:
    from odradek.server.coordinators.shard_runner import Decide, ShardRunner
    from odradek.storage.log import Transaction

ShardT = TypeVar("ShardT", bound=Shard)

log = logging.getLogger(__name__)

LOAD_CHUNK_BYTES = 256 * 1024
"""Read of a log at a time; larger pieces would keep the loop for longer than clients should notice."""

LOAD_SLICE_MS = 2
"""After so long loads give way to the rest of the node: a millisecond that the clock does not show, and a step more."""


class TopicCreator(Protocol):
    """Whoever has topics made: in a cluster that is another node."""

    async def create_topics(self, request: CreateTopicsRequest) -> CreateTopicsResponse:
        """KafkaError if nobody answers."""


@value
class StateTopic:
    """The internal topic in which coordinators of one kind keep what they know, and what it is made with."""

    name: str
    num_partitions: int
    replication_factor: int
    is_factor_given: bool
    """Whether somebody chose it."""
    configs: Mapping[str, str]


class Coordinator(ABC, Generic[ShardT]):
    """All shards of one kind on this node."""

    compression = Compression.NONE
    commit_timeout_ms: int
    """How long an answer waits for replicas."""
    load_buffer_bytes = LOAD_CHUNK_BYTES
    """Read of a log at a time while it is being loaded, if that is not too much."""

    def __init__(
        self, config: NodeConfig, world: World, replicas: Replicas, topics: TopicCreator, topic: StateTopic
    ) -> None:
        self.topic = topic
        self.replicas = replicas
        self._config = config
        self._clock = world.clock
        self._topics = topics
        self._runners: dict[int, ShardRunner[ShardT]] = {}
        self._to_load: deque[ShardRunner[ShardT]] = deque()
        self._loads: asyncio.Task[None] | None = None
        self._slice_began_ms = 0
        self.on_loaded: Callable[[], None] = lambda: None
        """Told again and again while a log is loaded, of which there may be a million things to keep."""
        self.load_times = LoadTimes(world.clock)
        self._creation: asyncio.Task[None] | None = None
        self._partitions = topic.num_partitions
        self._image = EMPTY_IMAGE

    # What kinds of coordinators differ in.

    @abstractmethod
    def new_shard(self) -> ShardT:
        """One that knows nothing yet."""

    def begin(self, runner: ShardRunner[ShardT], effect: Effect) -> None:
        """What a shard decided is committed, and this is to happen. What comes of it is told to that runner.

        It is not asked again: whatever may fail is tried until the runner's `state` says that it has resigned.
        """
        raise AssertionError(f"coordinators of {self.topic.name} decide on no effects, but one wants {effect}")

    # What shards and handlers use.

    def moment(self) -> Moment:
        clock = self._clock
        return Moment(clock.now_ms(), clock.monotonic_ms())

    def partition_of(self, key: str) -> int:
        """Of a group, a transactional id, or whatever else is coordinated."""
        return partition_for(key, self._partitions)

    def runner(self, key: str) -> ShardRunner[ShardT] | None:
        """The shard of that key, if it is here; it may still be loading."""
        return self._runners.get(partition_for(key, self._partitions))

    def runner_behind(self, hosted: HostedPartition) -> ShardRunner[ShardT] | None:
        """The shard through which goes whatever is appended to a partition; None for those of other topics.

        KafkaError where there has to be one and is none: leadership is on its way.
        """
        if hosted.topic != self.topic.name:
            return None
        runner = self._runners.get(hosted.index)
        if runner is None or runner.hosted is not hosted:
            raise KafkaError(ErrorCode.NOT_COORDINATOR)
        return runner

    async def ask(self, key: str, decide: Decide[ShardT], proof: Transaction = None) -> Any:
        """The answer of the key's coordinator; KafkaError if it refuses, is still loading or is elsewhere."""
        runner = self.runner(key)
        if runner is None:
            raise KafkaError(ErrorCode.NOT_COORDINATOR)
        return await runner.ask(decide, proof)

    async def ask_all(self, decide: Decide[ShardT]) -> list[Any]:
        """The answers of every shard here; one that has failed to load has nothing to say."""
        return [
            await runner.ask(decide)
            for runner in list(self._runners.values())
            if runner.state is not ErrorCode.NOT_COORDINATOR
        ]

    # The topic.

    async def create_topic(self, image: Image) -> None:
        """Make the topic, once, whoever asks; KafkaError if that cannot be."""
        if self._creation is None:
            self._creation = asyncio.create_task(self._create_topic(image))
        try:
            await asyncio.shield(self._creation)
        finally:
            if self._creation is not None and self._creation.done():
                self._creation = None

    async def _create_topic(self, image: Image) -> None:
        wanted = self.topic
        replicas = wanted.replication_factor
        if self._config.is_alone and not wanted.is_factor_given:
            # The default is meant for clusters; a lone node that nobody configured shall just work. In a cluster it is
            # better to wait for the others than to have too few replicas for ever.
            replicas = min(replicas, len(image.cluster.brokers))
        topic = CreatableTopic(
            name=wanted.name,
            num_partitions=wanted.num_partitions,
            replication_factor=replicas,
            assignments=[],
            configs=[CreatableTopicConfig(name=name, value=text) for name, text in wanted.configs.items()],
        )
        response = await self._topics.create_topics(CreateTopicsRequest(topics=[topic]))
        (result,) = response.topics
        if result.error_code not in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
            refused = KafkaError(ErrorCode(result.error_code), result.error_message or "")
            level = logging.INFO if refused.code.retriable else logging.ERROR
            log.log(level, "%s cannot be created: %s", wanted.name, refused)
            raise refused

    # What the cluster agreed on.

    def start(self, image: Image) -> None:
        """Take up what this node leads when it starts."""
        self._image = image
        topic = image.topics.by_name.get(self.topic.name)
        if topic is not None:
            self._partitions = len(topic.partitions)
            self._load_or_drop(range(len(topic.partitions)))

    def apply(self, image: Image, changes: Changes) -> None:
        """Shards hear of it, and come and go with the leadership of their partitions."""
        topics = changes.topics
        self._image = image
        if self.topic.name in (
            topic.name for topic in topics.deleted
        ):  # Before the one that may have been created since takes its place.
            for index in list(self._runners):
                self._drop(index)
        for runner in list(self._runners.values()):
            try:
                runner.learn(image, changes)
            except Exception as failure:  # noqa: BLE001 - whatever breaks costs this shard
                self.give_up(runner, failure)
        for touched in (*topics.created, *topics.changed):
            if touched.topic.name == self.topic.name:
                if touched.before is None:
                    self._partitions = len(touched.topic.partitions)
                self._load_or_drop(touched.partitions)

    def opened(self, hosted: HostedPartition) -> None:
        """A partition is there that the cluster had given to this node before."""
        if hosted.topic == self.topic.name:
            self._load_or_drop((hosted.index,))

    def _load_or_drop(self, partitions: Iterable[int]) -> None:
        for index in partitions:
            hosted = self.replicas.find(self.topic.name, index)
            runner = self._runners.get(index)
            if hosted is None or not hosted.partition.is_leader:
                self._drop(index)
            elif runner is None or runner.leader_epoch != hosted.partition.state.leader_epoch:
                self._drop(index)
                self._load(index, hosted)

    def _load(self, index: int, hosted: HostedPartition) -> None:
        # Loaded when it is needed: a node that starts has no groups yet, and they are a tenth of its code.
        from odradek.server.coordinators.shard_runner import ShardRunner

        runner = ShardRunner(hosted, hosted.partition.state.leader_epoch, self.new_shard(), self)
        self._runners[index] = runner
        partition_log = hosted.partition.log
        try:
            runner.learn(self._image, None)
            if partition_log.log_start_offset == partition_log.log_end_offset:
                runner.begin()
                return
        except Exception as failure:  # noqa: BLE001 - whatever breaks costs this shard
            self.give_up(runner, failure)
            return
        self._to_load.append(runner)
        if self._loads is None:
            self._loads = asyncio.create_task(self._load_all())

    async def _load_all(self) -> None:
        """One after the other: if each had a slice between two turns of the loop, they would keep it for long."""
        try:
            while self._to_load:
                await self._load_in_turns(self._to_load.popleft())
        finally:
            self._loads = None

    def slice_is_over(self) -> bool:
        return self._clock.monotonic_ms() - self._slice_began_ms >= LOAD_SLICE_MS

    async def give_way(self) -> None:
        """Between two slices of a log that is being loaded, others get their turn."""
        self.on_loaded()
        await asyncio.sleep(0)
        self._slice_began_ms = self._clock.monotonic_ms()

    async def _load_in_turns(self, runner: ShardRunner[ShardT]) -> None:
        if runner.state is not ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
            return  # It has resigned while others were loaded.
        self._slice_began_ms = self._clock.monotonic_ms()
        try:
            await runner.load(min(self.load_buffer_bytes, LOAD_CHUNK_BYTES))
            self.load_times.note(began_ms=runner.began_ms)
        except (KafkaError, MalformedFrame) as failure:
            log.error("The coordinator of %s cannot be loaded: %s", runner.hosted, failure)
            runner.resign()
        except Exception as failure:  # noqa: BLE001 - whatever breaks costs this shard, not the node
            self.give_up(runner, failure)

    # What is broken.

    def give_up(self, runner: ShardRunner[ShardT], failure: Exception) -> KafkaError:
        """The shard may not know what its log says: it begins anew with that; what the one who asked is told.

        Where that cannot be loaded, either, nobody coordinates what is its until the partition has another leader.
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
        self._to_load.clear()
        if self._loads is not None:
            self._loads.cancel()
            await asyncio.wait([self._loads])
        for index in list(self._runners):
            self._drop(index)
