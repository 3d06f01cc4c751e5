"""Group coordinators: one shard for each partition of `__consumer_offsets` that this node leads.

Cores decide (`coordinator.group`); this shell makes the topic when it is first needed, loads shards from their logs,
appends what they decide, answers, and keeps one timer a shard. A shard whose leadership goes is dropped whole.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, Protocol, TypeAlias

from odradek.coordinator.group.kinds import GROUP_RECORDS
from odradek.coordinator.group.settings import GroupSettings
from odradek.coordinator.group.shard import GroupShard
from odradek.coordinator.runtime import Newest, client_error, encode_batch, partition_for
from odradek.coordinator.shard import CoordinatorDecision, Moment
from odradek.decisions import Ticket
from odradek.ids import LeaderEpoch, NodeId
from odradek.metadata.image import EMPTY_IMAGE, Changes, Image
from odradek.metadata.topic_names import GROUP_TOPIC
from odradek.ports import FileSlice, World
from odradek.protocol.codec import Struct
from odradek.protocol.errors import ErrorCode, KafkaError, MalformedFrame
from odradek.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from odradek.protocol.records.compression import Compression
from odradek.server.config import NodeConfig
from odradek.server.housekeeping import LONGEST_WAIT_MS
from odradek.server.replicas import Hosted, Replicas
from odradek.storage.validation import Origin

log = logging.getLogger(__name__)

Decide: TypeAlias = Callable[[GroupShard, Ticket, Moment], CoordinatorDecision]
"""A request, put to the shard of its group."""

MAX_EXPIRIES_PER_TURN = 100
"""Decisions that one firing of a shard's timer makes before others get their turn."""

LOAD_CHUNK_BYTES = 256 * 1024
"""Read between two turns of the loop; larger ones would keep it for longer than clients should notice."""


class RunningShard:
    """One shard at work: its log, who waits for its answers, and its timer."""

    def __init__(self, hosted: Hosted, leader_epoch: LeaderEpoch, coordinators: Coordinators) -> None:
        self.hosted = hosted
        self.leader_epoch = leader_epoch
        self.shard = GroupShard(coordinators.settings)
        self.state = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        """What whoever asks is told; NONE once it is loaded."""
        self._coordinators = coordinators
        self._replicas = coordinators.replicas
        self._parked: dict[Ticket, asyncio.Future[Struct]] = {}
        self._asking: Ticket | None = None
        self._answers: dict[Ticket, Struct] = {}
        """Of the request that is being decided, if it need not wait."""
        self._held: deque[tuple[int, Ticket, Struct]] = deque()
        """Answers that leave once the high watermark has reached their offset."""
        self._flush: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._timer_ms = 0

    # Loading and leaving.

    async def load(self, chunk_bytes: int) -> None:
        """Replay the log: what each key was set to last, and nothing that was superseded."""
        partition_log = self.hosted.partition.log
        newest = Newest()
        offset: int = partition_log.log_start_offset
        while offset < partition_log.high_watermark:
            with self._replicas.minding_the_disk(self.hosted):
                read = partition_log.read(
                    offset, max_bytes=chunk_bytes, end_offset=partition_log.high_watermark, minimum_one=True
                )
                records = read.records.read() if isinstance(read.records, FileSlice) else read.records
            end = newest.add(records)
            if end is None:
                break
            offset = end
            await asyncio.sleep(0)
        for record in newest.records(GROUP_RECORDS):
            self.shard.replay(record)
        self.begin()

    def begin(self) -> None:
        """All that is in the log has been replayed."""
        self.state = ErrorCode.NONE
        now = self._coordinators.moment()
        self._carry_out(self.shard.loaded(now), now)

    def resign(self) -> None:
        """Let go of everything; whoever waits is told to look for the coordinator elsewhere."""
        self.state = ErrorCode.NOT_COORDINATOR
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for ticket, answer in self.shard.resign().answers:
            self._hand_over(ticket, answer)
        for future in self._parked.values():
            if not future.done():
                future.set_exception(KafkaError(ErrorCode.NOT_COORDINATOR))
        self._held.clear()

    # Requests.

    async def ask(self, decide: Decide) -> Struct:
        """Decide, append, replay, answer; waits where the shard does not answer at once."""
        if self.state is not ErrorCode.NONE:
            raise KafkaError(self.state)
        ticket = self._asking = self._coordinators.next_ticket()
        now = self._coordinators.moment()
        try:
            self._carry_out(decide(self.shard, ticket, now), now)
        finally:
            self._asking = None
        answer = self._answers.pop(ticket, None)
        if answer is not None:
            return answer
        future: asyncio.Future[Struct] = asyncio.get_running_loop().create_future()
        self._parked[ticket] = future
        try:
            return await future
        finally:
            del self._parked[ticket]

    def tell(self, decide: Callable[[GroupShard, Moment], CoordinatorDecision]) -> bool:
        """Something happened that no request asks for; whether the shard wrote anything because of it."""
        now = self._coordinators.moment()
        decision = decide(self.shard, now)
        try:
            self._carry_out(decision, now)
        except KafkaError as refused:
            log.error("%s could not write what became due: %s", self.hosted, refused)
            return False
        return bool(decision.records)

    def _carry_out(self, decision: CoordinatorDecision, now: Moment) -> None:
        """Append, replay, answer. A refused append changes nothing, and is raised for the one who asked."""
        if decision.records:
            try:
                self._append(decision, now)
            except KafkaError as refused:
                code = client_error(refused.code)
                told = self.shard.refused(decision, code, self._asking, now)
                assert not told.records, "a shard that could not write must not write more"
                self._deliver(told)
                if not self.hosted.directory.online:
                    self.resign()
                raise KafkaError(code, refused.message) from refused
        self._deliver(decision)

    def _append(self, decision: CoordinatorDecision, now: Moment) -> None:
        compression = self._coordinators.compression
        batch = memoryview(encode_batch(decision.records, timestamp_ms=now.wall_ms, compression=compression))
        self._replicas.append(self.hosted, batch, now_ms=now.wall_ms, origin=Origin.COORDINATOR)
        for record in decision.records:
            self.shard.replay(record)

    # Answers.

    def _deliver(self, decision: CoordinatorDecision) -> None:
        """Now, or once everything that was replayed is committed."""
        partition_log = self.hosted.partition.log
        if partition_log.high_watermark == partition_log.log_end_offset:
            for ticket, answer in decision.answers:
                self._hand_over(ticket, answer)
        else:
            end_offset = partition_log.log_end_offset
            self._held.extend((end_offset, ticket, answer) for ticket, answer in decision.answers)
            if self._flush is None:
                self._flush = asyncio.create_task(self._commit())
        if decision.next_deadline_ms is not None:
            self._arm(decision.next_deadline_ms)

    def _hand_over(self, ticket: Ticket, answer: Struct) -> None:
        """To the one who is parked; the one who is asking right now picks its answer up itself."""
        if ticket == self._asking:
            self._answers[ticket] = answer
            return
        future = self._parked.get(ticket)
        if future is not None and not future.done():  # Else its connection is gone.
            future.set_result(answer)

    async def _commit(self) -> None:
        """Sync the log, as `flush.messages` wants, until nothing waits for it."""
        partition_log = self.hosted.partition.log
        try:
            while partition_log.high_watermark < partition_log.log_end_offset:
                await self._replicas.flush([self.hosted])
                while self._held and self._held[0][0] <= partition_log.high_watermark:
                    _, ticket, answer = self._held.popleft()
                    self._hand_over(ticket, answer)
        except KafkaError:
            self.resign()
        finally:
            self._flush = None

    # The timer.

    def _arm(self, deadline_ms: int) -> None:
        """Wake up then, or earlier where that is asked for already; waking up too early costs little."""
        if self._timer is not None:
            if self._timer_ms <= deadline_ms:
                return
            self._timer.cancel()
        self._timer_ms = deadline_ms
        delay_ms = max(0, deadline_ms - self._coordinators.moment().monotonic_ms)
        self._timer = asyncio.get_running_loop().call_later(min(delay_ms, LONGEST_WAIT_MS) / 1000, self._expire)

    def _expire(self) -> None:
        self._timer = None
        try:
            for _ in range(MAX_EXPIRIES_PER_TURN):
                if not self.tell(lambda shard, now: shard.expire(now)):
                    return
        except BaseException as failure:
            self._coordinators.on_failure(failure)
            raise
        self._arm(self._coordinators.moment().monotonic_ms)


class TopicCreator(Protocol):
    """Whoever has topics made: in a cluster that is another node."""

    async def create_topics(self, request: CreateTopicsRequest) -> CreateTopicsResponse:
        """KafkaError if nobody answers."""


class Coordinators:
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
        self.on_failure: Callable[[BaseException], None] = lambda failure: None
        """Told when an invariant is broken: the node must stop."""
        self._config = config
        self._clock = world.clock
        self._topics = topics
        self._node_id = NodeId(config.node_id)
        self._running: dict[int, RunningShard] = {}
        self._loads: dict[asyncio.Task[None], None] = {}
        self._creation: asyncio.Task[None] | None = None
        self._partitions = config.offsets_topic_num_partitions
        self._ticket = 0
        self._image = EMPTY_IMAGE

    # What shards and handlers use.

    def moment(self) -> Moment:
        clock = self._clock
        return Moment(clock.now_ms(), clock.monotonic_ms())

    def counts(self) -> tuple[int, int]:
        """How many groups and committed offsets this node looks after."""
        shards = [running.shard for running in self._running.values()]
        return sum(len(shard.groups) for shard in shards), sum(len(shard.offsets) for shard in shards)

    def next_ticket(self) -> Ticket:
        self._ticket += 1
        return Ticket(self._ticket)

    def partition_of(self, group_id: str) -> int:
        return partition_for(group_id, self._partitions)

    async def ask(self, group_id: str, decide: Decide) -> Any:
        """The answer of the group's coordinator; KafkaError if it refuses, is still loading or is elsewhere."""
        running = self._running.get(partition_for(group_id, self._partitions))
        if running is None:
            raise KafkaError(ErrorCode.NOT_COORDINATOR)
        return await running.ask(decide)

    async def ask_all(self, decide: Decide) -> list[Any]:
        """The answers of every shard here; one that has failed to load has nothing to say."""
        return [
            await running.ask(decide)
            for running in list(self._running.values())
            if running.state is not ErrorCode.NOT_COORDINATOR
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
        if "offsets.topic.replication.factor" not in config.given:
            # The default is meant for clusters; a lone node that nobody configured shall just work.
            replicas = min(replicas, len(image.cluster.alive_brokers()))
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
            log.error("%s cannot be created: %s", GROUP_TOPIC, result.error_message)
            raise KafkaError(ErrorCode(result.error_code), result.error_message or "")

    # What the cluster agreed on.

    def start(self, image: Image) -> None:
        """Take up what this node leads when it starts."""
        self._image = image
        topic = image.topics.by_name.get(GROUP_TOPIC)
        if topic is not None:
            self._partitions = len(topic.partitions)
            self._settle(range(len(topic.partitions)))

    def apply(self, image: Image, changes: Changes) -> None:
        """Shards come and go with the leadership of their partitions; offsets of deleted topics go."""
        topics = changes.topics
        self._image = image
        for running in self._running.values():
            running.shard.learn(image, topics)
        for touched in (*topics.created, *topics.changed):
            if touched.topic.name == GROUP_TOPIC:
                if touched.before is None:
                    self._partitions = len(touched.topic.partitions)
                self._settle(touched.partitions)
        if topics.deleted:
            self._forget([topic.name for topic in topics.deleted if topic.name not in image.topics.by_name])

    def _settle(self, partitions: Iterable[int]) -> None:
        for index in partitions:
            hosted = self.replicas.find(GROUP_TOPIC, index)
            running = self._running.get(index)
            if hosted is None or not hosted.partition.is_leader:
                self._drop(index)
            elif running is None or running.leader_epoch != hosted.partition.state.leader_epoch:
                self._drop(index)
                self._load(index, hosted)

    def _load(self, index: int, hosted: Hosted) -> None:
        running = RunningShard(hosted, hosted.partition.state.leader_epoch, self)
        running.shard.learn(self._image, None)
        self._running[index] = running
        partition_log = hosted.partition.log
        if partition_log.log_start_offset == partition_log.log_end_offset:
            running.begin()
            return
        task = asyncio.create_task(self._load_in_turns(running))
        self._loads[task] = None
        task.add_done_callback(self._loads.pop)

    async def _load_in_turns(self, running: RunningShard) -> None:
        try:
            await running.load(min(self._config.offsets_load_buffer_size, LOAD_CHUNK_BYTES))
        except (KafkaError, MalformedFrame) as failure:
            log.error("The coordinator of %s cannot be loaded: %s", running.hosted, failure)
            running.resign()
        except Exception as failure:
            self.on_failure(failure)
            raise

    def _drop(self, index: int) -> None:
        running = self._running.pop(index, None)
        if running is not None:
            running.resign()

    def _forget(self, topics: list[str]) -> None:
        if GROUP_TOPIC in topics:
            for index in list(self._running):
                self._drop(index)
            return
        for running in self._running.values():
            if running.state is ErrorCode.NONE:
                while running.tell(lambda shard, now: shard.forget_topics(topics)):
                    pass

    async def close(self) -> None:
        """Let everyone go who waits; nothing is written after this."""
        for task in list(self._loads):
            task.cancel()
        if self._loads:
            await asyncio.wait(list(self._loads))
        for index in list(self._running):
            self._drop(index)
