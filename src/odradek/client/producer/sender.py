"""Takes batches to the leaders of their partitions, and deals with what comes back."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from odradek.client.cluster import Cluster, TopicPartition
from odradek.client.errors import ClientError, DeliveryTimedOut, check, may_pass
from odradek.client.producer.accumulator import MAX_EPOCH, Accumulator, PartitionQueue
from odradek.client.producer.batch import ProducerBatch
from odradek.client.producer.transactions import CONCURRENT_BACKOFF_MS, State, Transactions
from odradek.ids import ZERO_UUID
from odradek.protocol.api import ApiKey
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from odradek.protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from odradek.protocol.records.compression import Compression

NO_ANSWER = 0
"""The value of acks that no broker answers."""

_SEQUENCE_LOST = (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.UNKNOWN_PRODUCER_ID)
_FOREVER_MS = 1 << 60
_IDENTITY = "a producer id"
"""Beside topics, what the sender may have to find out; no topic has blanks in its name."""


class Sender:
    """One task decides what leaves when; each request is a task of its own.

    With idempotence every partition has a producer id, an epoch and a running sequence. A retry carries the sequence it
    had, so the broker knows it again. If the broker says that sequences are missing in front of the first undecided
    batch, then what was before it is lost for good (it was given up here, or the broker lost its memory): the partition
    goes on under the next epoch with sequence 0 (KIP-360). Under the new epoch nothing of the old one can be written.
    """

    def __init__(self, cluster: Cluster, accumulator: Accumulator, *, acks: int, idempotent: bool) -> None:
        settings = cluster.settings
        self._cluster = cluster
        self._accumulator = accumulator
        self._acks = acks
        self._idempotent = idempotent
        self._retries = settings.number("retries")
        self._delivery_timeout_ms = settings.number("delivery.timeout.ms")
        self._request_timeout_ms = settings.number("request.timeout.ms")
        self._max_request_bytes = settings.number("max.request.size")
        self._max_in_flight = settings.number("max.in.flight.requests.per.connection")
        self._compression = Compression[settings.text("compression.type").upper()]
        levels = {Compression.GZIP: "gzip", Compression.LZ4: "lz4", Compression.ZSTD: "zstd"}
        codec = levels.get(self._compression)
        self._level = settings.number(f"compression.{codec}.level") if codec else None
        self._identity: tuple[int, int] | None = None
        self._in_flight: dict[int, int] = {}
        self._wake = asyncio.Event()
        self._timer: asyncio.TimerHandle | None = None
        self._background: dict[str, asyncio.Task[None]] = {}
        self._requests: list[asyncio.Task[None]] = []
        self._failed_tries: dict[str, int] = {}
        self._trouble: Exception | None = None
        self.transactions: Transactions | None = None
        """Those of a transactional producer: then they say under which identity, when, and what a failure means."""
        self._loop = asyncio.get_running_loop()
        self._task = asyncio.ensure_future(self._run())
        self._task.add_done_callback(self._ended)

    def wake(self) -> None:
        """There is something new to look at."""
        self._wake.set()

    async def stop(self) -> None:
        """Send nothing more; what is unsettled fails."""
        if self._timer is not None:
            self._timer.cancel()
        tasks = [self._task, *self._background.values(), *self._requests]
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        for batch in list(self._accumulator.unsettled()):
            self._fail(batch, DeliveryTimedOut("the producer was closed before the record was delivered"))
        self._accumulator.queues.clear()

    def use(self, producer_id: int, producer_epoch: int) -> None:
        """Send under this identity from now on, every partition from sequence 0; nothing may be unsettled."""
        assert not any(self._accumulator.unsettled()), "a batch is stamped with an identity that is replaced"
        self._identity = (producer_id, producer_epoch)
        self._accumulator.queues.clear()

    def give_up_waiting(self, failure: Exception, *, sent_before: bool) -> None:
        """Fail what was never sent; and what waits to be sent again, though its sequence will be missing, if told."""
        for queue in self._accumulator.queues.values():
            for batch in [each for each in queue.waiting if sent_before or not each.attempts]:
                queue.waiting.remove(batch)
                self._fail(batch, failure)

    async def settle(self) -> None:
        """Wait until everything that is there now is through, delivered or not; nothing lingers meanwhile."""
        settled = [batch.settled for batch in self._accumulator.unsettled()]
        if settled:
            self._accumulator.flushes += 1
            self.wake()
            try:
                await asyncio.wait(settled)
            finally:
                self._accumulator.flushes -= 1

    def _ended(self, task: asyncio.Task[None]) -> None:
        """Nobody shall wait for a sender that is gone, whatever broke it."""
        failure = None if task.cancelled() else task.exception()
        if isinstance(failure, Exception):
            self._fail_waiting(failure)

    def _fail_waiting(self, failure: Exception) -> None:
        """Give up all that is not in flight."""
        for queue in self._accumulator.queues.values():
            while queue.waiting:
                self._give_up(queue.waiting.popleft(), failure)

    async def _run(self) -> None:
        while True:
            self._wake.clear()
            due_ms = self._send_what_is_due()
            if due_ms < _FOREVER_MS:
                wait_ms = max(due_ms - self._cluster.ports.clock.monotonic_ms(), 1)
                self._timer = self._loop.call_later(wait_ms / 1000, self._wake.set)
            await self._wake.wait()
            if self._timer is not None:
                self._timer.cancel()

    # What leaves.

    def _send_what_is_due(self) -> int:
        """Send all that may be sent now; when to look again, if nothing happens before."""
        now_ms = self._cluster.ports.clock.monotonic_ms()
        next_ms = _FOREVER_MS
        loads: dict[int, list[ProducerBatch]] = {}
        sizes: dict[int, int] = {}
        for partition, queue in self._accumulator.queues.items():
            if not queue.waiting:
                continue
            next_ms = min(next_ms, self._give_up_late(queue, now_ms))
            if not queue.waiting or not queue.may_send():
                continue
            due_ms = self._accumulator.due_ms(queue)
            if due_ms > now_ms:
                next_ms = min(next_ms, due_ms)
                continue
            node_id = self._node_for(partition, queue)
            if node_id is None or self._in_flight.get(node_id, 0) >= self._max_in_flight:
                continue
            size = sizes.get(node_id, 0) + queue.waiting[0].size_bytes
            if node_id in loads and size > self._max_request_bytes:
                self._wake.set()
                continue
            sizes[node_id] = size
            loads.setdefault(node_id, []).append(self._take(queue))
            if queue.waiting:
                self._wake.set()
        for node_id, batches in loads.items():
            self._in_flight[node_id] = self._in_flight.get(node_id, 0) + 1
            request = asyncio.ensure_future(self._deliver(node_id, batches))
            self._requests.append(request)
            request.add_done_callback(self._requests.remove)
        return next_ms

    def _give_up_late(self, queue: PartitionQueue, now_ms: int) -> int:
        """Fail what has waited beyond `delivery.timeout.ms`; when the next one will have."""
        while queue.waiting:
            first = queue.waiting[0]
            late_ms = first.created_ms + self._delivery_timeout_ms
            if late_ms > now_ms:
                return late_ms
            queue.waiting.popleft()
            why = first.failure or self._trouble or "nobody answered"
            late = f"{first.partition}: not delivered in {self._delivery_timeout_ms} ms; last heard: {why}"
            self._give_up(first, DeliveryTimedOut(late))
        return _FOREVER_MS

    def _node_for(self, partition: TopicPartition, queue: PartitionQueue) -> int | None:
        """Where the partition's batches go now; None, and somebody on the way to find out, if that is not known."""
        if self.transactions is not None and not self.transactions.may_write(partition):
            return None
        if self._idempotent and queue.producer_id < 0:
            if self._identity is None:
                self._start(_IDENTITY, self._acquire_identity)
                return None
            queue.adopt(*self._identity)
        if self._cluster.is_stale(partition.topic):
            self._start(partition.topic, lambda: self._find_leaders(partition.topic))
        leader = self._cluster.leader(partition)
        if leader is None:
            self._cluster.mark_stale(partition.topic)
            self._start(partition.topic, lambda: self._find_leaders(partition.topic))
            return None
        return leader.leader

    def _take(self, queue: PartitionQueue) -> ProducerBatch:
        batch = queue.take()
        if self._idempotent:
            queue.stamp(batch)
        return batch

    def _start(self, what: str, job: Callable[[], Awaitable[None]]) -> None:
        """Let a job run beside the sender, one of a kind at a time, with a pause after each failure."""
        if what not in self._background:
            self._background[what] = asyncio.ensure_future(self._run_beside(what, job))

    async def _run_beside(self, what: str, job: Callable[[], Awaitable[None]]) -> None:
        tries = self._failed_tries.get(what, 0)
        try:
            if tries:
                await asyncio.sleep(self._cluster.backoff_ms(tries - 1) / 1000)
            await job()
            self._failed_tries.pop(what, None)
        except (ClientError, KafkaError) as failure:
            self._failed_tries[what] = tries + 1
            self._trouble = failure
            if what == _IDENTITY and not may_pass(failure):
                self._fail_waiting(failure)  # Without a producer id nothing can be sent, and none will be given.
        finally:
            del self._background[what]
            self._wake.set()

    async def _acquire_identity(self) -> None:
        request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=0x7FFFFFFF)
        response = await self._cluster.ask(request, InitProducerIdResponse)
        check(response.error_code)
        self._identity = (response.producer_id, response.producer_epoch)

    async def _find_leaders(self, topic: str) -> None:
        await self._cluster.refresh((topic,))
        if any(partition.leader < 0 for partition in self._cluster.known_topic(topic).partitions):
            raise KafkaError(ErrorCode.LEADER_NOT_AVAILABLE)

    # What comes back.

    async def _deliver(self, node_id: int, batches: list[ProducerBatch]) -> None:
        try:
            await self._exchange(node_id, batches)
        except (ClientError, KafkaError) as failure:
            for batch in batches:
                self._cluster.mark_stale(batch.partition.topic)
                self._came_back(batch, failure)
        finally:
            self._in_flight[node_id] -= 1
            self._wake.set()

    async def _exchange(self, node_id: int, batches: list[ProducerBatch]) -> None:
        connection = await self._cluster.connection(node_id)
        max_version = None if self.transactions is None else self.transactions.max_version(ApiKey.PRODUCE)
        version = self._cluster.version_for(connection, ProduceRequest, max_version)
        request = self._request(batches)
        if self._acks == NO_ANSWER:
            connection.tell(request, version)
            for batch in batches:
                self._succeed(batch, base_offset=-1, log_append_time_ms=-1)
            return
        response = await connection.ask(request, ProduceResponse, version, timeout_ms=self._request_timeout_ms)
        answers: dict[TopicPartition, PartitionProduceResponse] = {}
        for topic in response.responses:
            name = topic.name or self._cluster.topic_names.get(topic.topic_id, "")
            for each in topic.partition_responses:
                answers[TopicPartition(name, each.index)] = each
        for batch in batches:
            answer = answers.get(batch.partition)
            if answer is None:
                # The topic was deleted and made again meanwhile, so its id means nothing any more.
                self._refused(batch, KafkaError(ErrorCode.UNKNOWN_TOPIC_ID))
            elif answer.error_code in (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
                self._succeed(batch, base_offset=answer.base_offset, log_append_time_ms=answer.log_append_time_ms)
            else:
                self._refused(batch, KafkaError(ErrorCode(answer.error_code), answer.error_message or ""))

    def _request(self, batches: list[ProducerBatch]) -> ProduceRequest:
        topics: dict[str, TopicProduceData] = {}
        for batch in batches:
            name, index = batch.partition
            if name not in topics:
                known = self._cluster.topics.get(name)
                topic_id = ZERO_UUID if known is None else known.topic_id
                topics[name] = TopicProduceData(name=name, topic_id=topic_id, partition_data=[])
            records = batch.encode(self._compression, self._level, transactional=self.transactions is not None)
            topics[name].partition_data.append(PartitionProduceData(index=index, records=records))
        return ProduceRequest(
            transactional_id=None if self.transactions is None else self.transactions.transactional_id,
            acks=self._acks,
            timeout_ms=self._request_timeout_ms,
            topic_data=list(topics.values()),
        )

    def _refused(self, batch: ProducerBatch, refusal: KafkaError) -> None:
        if may_pass(refusal) and refusal.code is not ErrorCode.CONCURRENT_TRANSACTIONS:
            self._cluster.mark_stale(batch.partition.topic)
        self._came_back(batch, refusal)

    def _came_back(self, batch: ProducerBatch, failure: Exception) -> None:
        """A batch that is not through: send it again, or give it up."""
        queue = self._accumulator.queues[batch.partition]
        batch.failure = failure
        sequence_lost = self._idempotent and isinstance(failure, KafkaError) and failure.code in _SEQUENCE_LOST
        begin_anew = sequence_lost and queue.is_first_in_line(batch)
        # In a transaction nothing goes on after a gap: it is aborted, and only the next one has another epoch.
        is_lost = begin_anew and self.transactions is not None
        has_failed = self.transactions is not None and self.transactions.state is State.FAILED
        if batch.attempts > self._retries or is_lost or has_failed or not (may_pass(failure) or sequence_lost):
            queue.settle(batch)
            self._give_up(batch, failure)
            return
        queue.put_back(batch)
        pause_ms = self._cluster.backoff_ms(batch.attempts - 1)
        if isinstance(failure, KafkaError) and failure.code is ErrorCode.CONCURRENT_TRANSACTIONS:
            pause_ms = min(pause_ms, CONCURRENT_BACKOFF_MS)
        batch.retry_at_ms = self._cluster.ports.clock.monotonic_ms() + pause_ms
        if begin_anew:
            self._bump_epoch(queue)

    def _bump_epoch(self, queue: PartitionQueue) -> None:
        """What is in flight behind the refused batch will be refused too, and come back to be stamped anew."""
        for batch in queue.in_flight:
            batch.base_sequence = -1
        if queue.producer_epoch < MAX_EPOCH:
            queue.adopt(queue.producer_id, queue.producer_epoch + 1)
        else:
            self._identity = None
            queue.adopt(-1, -1)

    def _succeed(self, batch: ProducerBatch, *, base_offset: int, log_append_time_ms: int) -> None:
        queue = self._accumulator.queues[batch.partition]
        queue.settle(batch)
        queue.is_known = True
        self._accumulator.release(batch)
        batch.succeed(base_offset, log_append_time_ms)

    def _give_up(self, batch: ProducerBatch, failure: Exception) -> None:
        """A batch that should have been delivered will not be."""
        self._fail(batch, failure)
        if self.transactions is not None:
            self.transactions.batch_failed(failure)

    def _fail(self, batch: ProducerBatch, failure: Exception) -> None:
        self._accumulator.release(batch)
        batch.fail(failure)
