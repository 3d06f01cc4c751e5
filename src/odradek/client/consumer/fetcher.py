"""Fetches ahead of the reader: at most one request to a broker at a time, for the partitions that have nothing left."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from odradek.client.cluster import Cluster, Lane, TopicPartition
from odradek.client.consumer.positions import NOWHERE, PartitionState, Positions
from odradek.client.consumer.records import ConsumerRecord, FetchedRecords
from odradek.client.errors import ClientError, NoOffsetForPartition, may_pass
from odradek.client.leaders import EARLIEST, LATEST
from odradek.ids import ZERO_UUID
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)

NAMES_NOT_IDS = 12
"""The last version of Fetch that speaks of topics by name."""

RESETS = {"earliest": EARLIEST, "latest": LATEST}


class Fetcher:
    """Keeps buffers filled; says through `wake` that there is something to look at."""

    def __init__(self, cluster: Cluster, positions: Positions, wake: Callable[[], None]) -> None:
        settings = cluster.settings
        self.failure: Exception | None = None
        """What the next poll raises."""
        self._cluster = cluster
        self._positions = positions
        self._wake = wake
        self._requests: dict[int, asyncio.Task[None]] = {}
        self._refreshing: asyncio.Task[None] | None = None
        self._check_crcs = settings.flag("check.crcs")
        self._read_committed = settings.text("isolation.level") == "read_committed"
        self._reset = settings.text("auto.offset.reset")
        self._max_wait_ms = settings.number("fetch.max.wait.ms")
        self._min_bytes = settings.number("fetch.min.bytes")
        self._max_bytes = settings.number("fetch.max.bytes")
        self._partition_bytes = settings.number("max.partition.fetch.bytes")
        self._timeout_ms = settings.number("request.timeout.ms")
        self._rack = settings.text("client.rack")

    def take(self, count: int) -> list[ConsumerRecord]:
        """Up to that many records from the buffers; positions move past them."""
        taken: list[ConsumerRecord] = []
        for partition, state in self._positions.items():
            if state.buffer is None or state.is_paused or state.position == NOWHERE:
                continue
            try:
                some = state.buffer.take(count - len(taken))
            except KafkaError:
                if taken:
                    break  # They have been taken from their buffers: the error comes with the next call.
                raise
            state.position = state.buffer.next_offset
            if some:
                state.leader_epoch = some[-1].leader_epoch
                taken += some
            else:
                state.buffer = None
            if len(taken) == count:
                self._positions.rotate(partition)
                break
        return taken

    def send(self) -> None:
        """Ask every broker that is not being asked for the partitions that have nothing buffered."""
        now_ms = self._cluster.ports.clock.monotonic_ms()
        wanted: dict[int, list[tuple[TopicPartition, PartitionState]]] = {}
        stale: dict[str, None] = {}
        for partition, state in self._positions.items():
            if self._cluster.is_stale(partition.topic):
                stale[partition.topic] = None
            self._check_topic(partition, state)
            if state.position == NOWHERE or state.is_paused or state.buffer is not None or state.is_fetching:
                continue
            if state.retry_at_ms > now_ms:
                continue
            node_id = self._node_for(partition, state)
            if node_id is None:
                stale[partition.topic] = None
            elif node_id not in self._requests:
                wanted.setdefault(node_id, []).append((partition, state))
        for node_id, partitions in wanted.items():
            for _, state in partitions:
                state.is_fetching = True
            self._requests[node_id] = asyncio.ensure_future(self._fetch(node_id, partitions))
        if stale and self._refreshing is None:
            self._refreshing = asyncio.ensure_future(self._refresh(list(stale)))

    async def close(self) -> None:
        tasks = list(self._requests.values())
        if self._refreshing is not None:
            tasks.append(self._refreshing)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    def _check_topic(self, partition: TopicPartition, state: PartitionState) -> None:
        """A topic that was made anew under its name is read from where `auto.offset.reset` says."""
        known = self._cluster.topics.get(partition.topic)
        if known is None or state.position == NOWHERE or state.topic_id == known.topic_id:
            return
        if ZERO_UUID in (known.topic_id, state.topic_id):
            state.topic_id = known.topic_id
        else:
            self._begin_anew(partition, state, f"{partition.topic} was deleted and made anew")

    def _begin_anew(self, partition: TopicPartition, state: PartitionState, why: str) -> None:
        """The position is none, or not one of this topic's."""
        if self._reset in RESETS:
            state.reset(RESETS[self._reset])
        else:
            self.failure = NoOffsetForPartition(f"{partition}: {why}, and auto.offset.reset is none")

    def _node_for(self, partition: TopicPartition, state: PartitionState) -> int | None:
        if state.preferred_replica in self._cluster.brokers:
            return state.preferred_replica
        leader = self._cluster.leader(partition)
        return None if leader is None else leader.leader

    async def _refresh(self, topics: list[str]) -> None:
        try:
            await self._cluster.refresh(topics)
            if any(topic not in self._cluster.topics for topic in topics):
                await asyncio.sleep(self._cluster.backoff_ms(0) / 1000)
        except (ClientError, KafkaError):
            await asyncio.sleep(self._cluster.backoff_ms(1) / 1000)
        finally:
            self._refreshing = None
            self._wake()

    async def _fetch(self, node_id: int, partitions: list[tuple[TopicPartition, PartitionState]]) -> None:
        asked = {partition: state.position for partition, state in partitions}
        try:
            response = await self._exchange(node_id, partitions)
            failure: KafkaError | ClientError | None = None
            if response.error_code:
                failure = KafkaError(ErrorCode(response.error_code))
            for topic in response.responses:
                name = topic.topic or self._cluster.topic_names.get(topic.topic_id, "")
                for data in topic.partitions:
                    partition = TopicPartition(name, data.partition_index)
                    if partition in asked:
                        self._received(partition, data, asked.pop(partition))
        except (ClientError, KafkaError) as lost:
            failure = lost
        finally:
            del self._requests[node_id]
            for _, state in partitions:
                state.is_fetching = False
            self._wake()
        if failure is not None:
            # A broker that is gone: ask who leads now, and do not ask again at once.
            if not may_pass(failure):
                self.failure = failure
            for partition, state in partitions:
                self._try_later(partition, state)

    async def _exchange(self, node_id: int, partitions: list[tuple[TopicPartition, PartitionState]]) -> FetchResponse:
        topics: dict[str, FetchTopic] = {}
        max_version = FetchRequest.max_stable_version
        for partition, state in partitions:
            name = partition.topic
            if name not in topics:
                known = self._cluster.topics.get(name)
                topic_id = ZERO_UUID if known is None else known.topic_id
                max_version = NAMES_NOT_IDS if topic_id == ZERO_UUID else max_version
                topics[name] = FetchTopic(topic=name, topic_id=topic_id, partitions=[])
            leader = self._cluster.leader(partition)
            topics[name].partitions.append(
                FetchPartition(
                    partition=partition.partition,
                    current_leader_epoch=-1 if leader is None else leader.leader_epoch,
                    fetch_offset=state.position,
                    partition_max_bytes=self._partition_bytes,
                )
            )
        request = FetchRequest(
            max_wait_ms=self._max_wait_ms,
            min_bytes=self._min_bytes,
            max_bytes=self._max_bytes,
            isolation_level=int(self._read_committed),
            topics=list(topics.values()),
            rack_id=self._rack,
        )
        return await self._cluster.ask(
            request,
            FetchResponse,
            node_id=node_id,
            lane=Lane.FETCH,
            timeout_ms=self._timeout_ms + self._max_wait_ms,
            max_version=max_version,
        )

    def _received(self, partition: TopicPartition, data: PartitionData, from_offset: int) -> None:
        state = self._positions.get(partition)
        if state is None or state.position != from_offset:
            return  # Given up, or moved elsewhere, while the request was under way.
        if data.error_code:
            self._refused(partition, state, KafkaError(ErrorCode(data.error_code)))
            return
        state.high_watermark = data.high_watermark
        state.last_stable_offset = data.last_stable_offset
        if data.preferred_read_replica >= 0:
            state.preferred_replica = data.preferred_read_replica
        records = data.records
        if isinstance(records, memoryview) and len(records):
            state.buffer = FetchedRecords(
                partition,
                records,
                from_offset=from_offset,
                aborted=data.aborted_transactions if self._read_committed else None,
                check_crcs=self._check_crcs,
            )

    def _refused(self, partition: TopicPartition, state: PartitionState, refusal: KafkaError) -> None:
        if refusal.code is ErrorCode.OFFSET_OUT_OF_RANGE:
            if state.preferred_replica is not None:
                state.preferred_replica = None  # A follower may lag behind; the leader knows.
            else:
                self._begin_anew(partition, state, f"there is no offset {state.position}")
        elif may_pass(refusal):
            self._try_later(partition, state)
        else:
            self.failure = refusal

    def _try_later(self, partition: TopicPartition, state: PartitionState) -> None:
        self._cluster.mark_stale(partition.topic)
        state.preferred_replica = None
        pause_ms = self._cluster.backoff_ms(0)
        state.retry_at_ms = self._cluster.ports.clock.monotonic_ms() + pause_ms
        asyncio.get_running_loop().call_later(pause_ms / 1000, self._wake)
