"""A producer's transactions: its identity, which state they are in, and what is asked of coordinators."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from enum import Enum, auto
from typing import Protocol, TypeVar

from odradek.client.cluster import Cluster, CoordinatorKind, TopicPartition, by_topic
from odradek.client.errors import (
    ClientError,
    Misused,
    ProducerFailed,
    RequestTimedOut,
    TransactionFailed,
    may_pass,
)
from odradek.client.offsets import CommittedOffset, GroupMetadata
from odradek.client.producer.transaction_errors import Verdict, fenced, verdict, verdict_on_batch
from odradek.protocol.api import ApiKey
from odradek.protocol.codec import Message
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from odradek.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
)
from odradek.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from odradek.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from odradek.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)
from odradek.values import value

ResponseT = TypeVar("ResponseT", bound=Message)
ResultT = TypeVar("ResultT")

FEATURE = "transaction.version"
EPOCH_RISES_AT_END = 2
"""From this `transaction.version` on writing to a partition adds it, and every end brings a new epoch (KIP-890)."""

LAST_BEFORE = {ApiKey.PRODUCE: 11, ApiKey.ADD_PARTITIONS_TO_TXN: 3, ApiKey.TXN_OFFSET_COMMIT: 4, ApiKey.END_TXN: 4}
"""The last versions of what is not meant that way; a coordinator takes higher ones for it."""

CONCURRENT_BACKOFF_MS = 20
"""The pause while markers of the transaction before are still on their way: a short one, since they are soon there."""

NO_PRODUCER = (-1, -1)


@value
class ProducerIdentity:
    """Under which name, id and epoch an open transaction is written to; plain data, for other processes."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    transaction_version: int


class State(Enum):
    """Where a transactional producer is."""

    UNINITIALIZED = auto()
    INITIALIZING = auto()
    READY = auto()
    OPEN = auto()
    COMMITTING = auto()
    ABORTING = auto()
    ABORTABLE = auto()
    """Something failed: nothing more is taken before the transaction has been aborted."""
    FAILED = auto()


_NEXT: dict[State, tuple[State, ...]] = {
    State.UNINITIALIZED: (State.INITIALIZING,),
    State.INITIALIZING: (State.READY, State.UNINITIALIZED, State.FAILED),
    State.READY: (State.OPEN, State.FAILED),
    State.OPEN: (State.COMMITTING, State.ABORTING, State.ABORTABLE, State.FAILED),
    State.COMMITTING: (State.READY, State.ABORTABLE, State.FAILED),
    State.ABORTING: (State.READY, State.ABORTABLE, State.FAILED),
    State.ABORTABLE: (State.ABORTING, State.FAILED),
    State.FAILED: (),
}


class Batches(Protocol):
    """What transactions ask of the sender."""

    def use(self, producer_id: int, producer_epoch: int) -> None:
        """Send under this identity from now on, every partition from sequence 0; nothing is unsettled."""

    def give_up_waiting(self, failure: Exception, *, sent_before: bool) -> None:
        """Fail what was never sent; and what waits to be sent again, though its sequence will be missing, if told."""

    async def settle(self) -> None:
        """Wait until nothing is unsettled; nothing lingers meanwhile."""

    def wake(self) -> None:
        """Partitions may be written to now that could not."""


class Transactions:
    """One transaction after another, under one `transactional.id`.

    A call that takes longer than `max.block.ms` goes on behind the caller's back, as nobody knows how it will end:
    called again it waits for the same end. `guest_of` makes this part of a transaction that somebody else began and
    will end.
    """

    def __init__(self, cluster: Cluster, batches: Batches, *, guest_of: ProducerIdentity | None = None) -> None:
        settings = cluster.settings
        self._cluster = cluster
        self._batches = batches
        self._max_block_ms = settings.number("max.block.ms")
        self._timeout_ms = settings.number("transaction.timeout.ms")
        self._producer = NO_PRODUCER
        self._version = 0
        self._failure: Exception | None = None
        self.state = State.UNINITIALIZED
        self.number = 0
        """How many were begun: who waited in between can tell whether it is still the same one."""
        self._is_guest = guest_of is not None
        if guest_of is None:
            self.transactional_id = settings.optional_text("transactional.id") or ""
        else:
            self.transactional_id = guest_of.transactional_id
            self._version = guest_of.transaction_version
            self._producer = guest_of.producer_id, guest_of.producer_epoch
            batches.use(*self._producer)
            self.state = State.OPEN
        self._needs_bump = False
        self._is_shared = False
        self._is_begun = False
        """Whether the coordinator knows of the open transaction."""
        self._may_be_begun = False
        """The same, where an answer is missing, or others may have written."""
        self._is_epoch_used = False
        self._partitions: dict[TopicPartition, None] = {}
        self._to_add: dict[TopicPartition, None] = {}
        self._adding: asyncio.Task[None] | None = None
        self._sharing: asyncio.Task[None] | None = None
        self._offsets: list[asyncio.Task[None]] = []
        self._call: tuple[str, asyncio.Task[None]] | None = None

    # What the user calls.

    async def init(self) -> None:
        """Get an id and an epoch that fence all earlier producers of this name; their open transaction is aborted."""
        await self._run("init_transactions", self._init, begun_from=(State.UNINITIALIZED,), now=State.INITIALIZING)

    def begin(self) -> None:
        self._check_state("begin_transaction", State.READY)
        self._version = self._cluster.feature_level(FEATURE)
        self.number += 1
        self._move(State.OPEN)

    async def commit(self) -> None:
        await self._run("commit_transaction", self._commit, begun_from=(State.OPEN,), now=State.COMMITTING)

    async def abort(self) -> None:
        begun_from = (State.OPEN, State.ABORTABLE)
        await self._run("abort_transaction", self._abort, begun_from=begun_from, now=State.ABORTING)

    async def send_offsets(self, offsets: Mapping[TopicPartition, CommittedOffset], group: GroupMetadata) -> None:
        """Make a group's offsets part of the open transaction."""
        self._check_state("send_offsets_to_transaction", State.OPEN)
        if not offsets:
            return
        sending = asyncio.ensure_future(self._send_offsets(dict(offsets), group))
        self._offsets.append(sending)
        sending.add_done_callback(self._offsets.remove)
        sending.add_done_callback(_hear)
        await self._wait("send_offsets_to_transaction", sending)
        sending.result()

    async def share(self) -> ProducerIdentity:
        """What others need to write in the open transaction, to which nothing may have been sent yet.

        Their sequences begin at 0. So the epoch must be one that nothing was written under, and none of theirs may
        outlive this transaction: the next one has an epoch of its own.
        """
        self._check_state("share_transaction", State.OPEN)
        if self._partitions or self._offsets or self._is_begun:
            raise Misused("share a transaction before anything is sent in it")
        if self._is_epoch_used and self._sharing is None:
            self._sharing = asyncio.ensure_future(self._init())
            self._sharing.add_done_callback(_hear)
        if self._sharing is not None:
            await self._wait("share_transaction", self._sharing)
            sharing, self._sharing = self._sharing, None
            sharing.result()
        self._is_shared = self._may_be_begun = True
        return ProducerIdentity(self.transactional_id, *self._producer, self._version)

    def include(self, partitions: Iterable[TopicPartition]) -> None:
        """Others have written to these under the identity that was shared."""
        self._check_state("include", State.OPEN)
        for partition in partitions:
            self._partitions[partition] = None
            self._is_begun = True

    @property
    def written(self) -> list[TopicPartition]:
        """The partitions of the open transaction so far."""
        return list(self._partitions)

    @property
    def can_be_aborted(self) -> bool:
        """Whether there is a transaction whose end has not been decided."""
        return self.state in (State.OPEN, State.ABORTABLE) and not self._is_guest

    async def close(self) -> None:
        tasks = [task for task in (self._adding, self._sharing, *self._offsets) if task is not None]
        if self._call is not None:
            tasks.append(self._call[1])
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    # What the sender asks and tells.

    def check_open(self) -> None:
        """Raise why records cannot be taken now, if they cannot."""
        if self.state is not State.OPEN:
            self._check_state("send", State.OPEN)
        elif self._sharing is not None:
            raise Misused("share_transaction is still under way: call it again to wait for its end")

    def may_write(self, partition: TopicPartition) -> bool:
        """Whether batches may go to a partition; if not, it is on its way into the transaction."""
        if partition in self._partitions:
            return self.state is not State.FAILED
        if self.state not in (State.OPEN, State.COMMITTING):
            return False
        self._is_epoch_used = True
        if self._version >= EPOCH_RISES_AT_END:
            self._partitions[partition] = None
            self._is_begun = True
            return True
        self._to_add[partition] = None
        if self._adding is None:
            self._adding = asyncio.ensure_future(self._add_partitions())
            self._adding.add_done_callback(self._added)
        return False

    def max_version(self, api: ApiKey) -> int | None:
        """The highest version that means what the transaction's version means; None if all do."""
        return None if self._version >= EPOCH_RISES_AT_END else LAST_BEFORE.get(api)

    def batch_failed(self, failure: Exception) -> None:
        """A batch was given up. While the transaction is being aborted, that is what should happen."""
        if self.state in (State.OPEN, State.COMMITTING, State.ABORTABLE):
            self._fail(verdict_on_batch(failure), failure)
        elif self.state is State.ABORTING:
            self._needs_bump = True

    # States.

    def _move(self, state: State) -> None:
        assert state in _NEXT[self.state], f"{self.state} does not become {state}"
        self.state = state

    def _check_state(self, call: str, *allowed: State) -> None:
        if self.state is State.FAILED:
            raise self._failed()
        if self.state is State.ABORTABLE and State.ABORTABLE not in allowed:
            raise TransactionFailed(f"{call}: abort the transaction first; it has failed: {self._failure}") from (
                self._failure
            )
        if self.state not in allowed:
            raise Misused(f"{call} makes no sense now: the producer's transaction is {self.state.name}")

    def _failed(self) -> ProducerFailed:
        failed = ProducerFailed(f"the producer of {self.transactional_id!r} can do nothing more: {self._failure}")
        failed.__cause__ = self._failure
        return failed

    def _fail(self, how: Verdict, failure: Exception) -> None:
        """The transaction, or the producer, has failed; what was not sent yet never will be."""
        self._needs_bump |= how is Verdict.ABORT_AND_BUMP
        if self.state in (State.ABORTABLE, State.FAILED) and how is not Verdict.FATAL:
            return  # Also what might be tried again, and is not, since the transaction has failed already.
        assert how is not Verdict.RETRY
        if self.state is not State.FAILED:
            self._failure = fenced(failure) if how is Verdict.FATAL else failure
            self._move(State.FAILED if how is Verdict.FATAL else State.ABORTABLE)
        self._to_add.clear()
        self._batches.give_up_waiting(failure, sent_before=self.state is State.FAILED)

    async def _run(
        self, name: str, job: Callable[[], Awaitable[None]], *, begun_from: tuple[State, ...], now: State
    ) -> None:
        if self._is_guest:
            raise Misused(f"{name}: the transaction belongs to the producer that began it")
        if self._call is None:
            self._check_state(name, *begun_from)
            self._move(now)
            call = name, asyncio.ensure_future(job())
            call[1].add_done_callback(_hear)
            self._call = call
        elif self._call[0] != name:
            raise Misused(f"{self._call[0]} is still under way: call it again to wait for its end")
        call = self._call
        await self._wait(name, call[1])
        if self._call is call:
            self._call = None
        call[1].result()

    async def _wait(self, name: str, task: asyncio.Task[None]) -> None:
        await asyncio.wait([task], timeout=self._max_block_ms / 1000)
        if not task.done():
            raise RequestTimedOut(f"{name} took longer than max.block.ms={self._max_block_ms}; it still goes on")

    # Jobs, each of which leaves the state that it came with.

    async def _init(self) -> None:
        request = InitProducerIdRequest(
            transactional_id=self.transactional_id,
            transaction_timeout_ms=self._timeout_ms,
            producer_id=self._producer[0],
            producer_epoch=self._producer[1],
        )

        async def attempt() -> InitProducerIdResponse:
            response = await self._ask(request, InitProducerIdResponse)
            self._check(response.error_code)
            return response

        try:
            response = await self._insist(attempt)
        except (KafkaError, ClientError) as failure:
            # No right to the name may be given still; there is nothing to abort, so `init` may be called again.
            if self.state is State.INITIALIZING and _is_authorization(failure):
                self._move(State.UNINITIALIZED)
                raise
            raise self._given_up(ApiKey.INIT_PRODUCER_ID, failure) from failure
        self._become(response.producer_id, response.producer_epoch)
        if self.state is State.INITIALIZING:
            self._move(State.READY)

    async def _commit(self) -> None:
        await self._settle()
        if self.state is State.FAILED:
            raise self._failed()
        if self.state is State.ABORTABLE:
            raise TransactionFailed(f"not committed: {self._failure}") from self._failure
        if self._is_begun:
            await self._end(committed=True)
        elif self._may_be_begun:
            await self._end(committed=False)  # Nothing counts, and nobody may come with it later.
        await self._complete()

    async def _abort(self) -> None:
        self._to_add.clear()
        aborted = TransactionFailed("the transaction was aborted before the record was sent")
        self._batches.give_up_waiting(aborted, sent_before=False)
        await self._settle()
        if self.state is State.FAILED:
            raise self._failed()
        if (self._is_begun or self._may_be_begun) and not _is_forgotten(self._failure):
            await self._end(committed=False)
        await self._complete()

    async def _settle(self) -> None:
        """Until the outcome is known of all that was sent."""
        await self._batches.settle()
        pending = [*self._offsets, *([] if self._adding is None else [self._adding])]
        if pending:
            await asyncio.wait(pending)

    async def _end(self, *, committed: bool) -> None:
        request = EndTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=self._producer[0],
            producer_epoch=self._producer[1],
            committed=committed,
        )

        async def attempt() -> EndTxnResponse:
            response = await self._ask(request, EndTxnResponse, api=ApiKey.END_TXN)
            self._check(response.error_code)
            return response

        try:
            response = await self._insist(attempt)
        except (KafkaError, ClientError) as failure:
            if not committed and isinstance(failure, KafkaError):
                if failure.code is ErrorCode.INVALID_TXN_STATE and not self._is_begun:
                    return  # It had not been begun after all.
                if _is_forgotten(failure):
                    self._failure = failure
                    return
            raise self._given_up(ApiKey.END_TXN, failure) from failure
        if response.producer_id >= 0:
            self._become(response.producer_id, response.producer_epoch)

    async def _complete(self) -> None:
        """The transaction is over; the next one may need another epoch."""
        is_bumped_at_end = self._version >= EPOCH_RISES_AT_END
        if _is_forgotten(self._failure) or ((self._needs_bump or self._is_shared) and not is_bumped_at_end):
            await self._init()
        self._failure = None
        self._needs_bump = self._is_shared = self._is_begun = self._may_be_begun = False
        self._partitions.clear()
        self._move(State.READY)

    def _become(self, producer_id: int, producer_epoch: int) -> None:
        if (producer_id, producer_epoch) != self._producer:
            self._producer = producer_id, producer_epoch
            self._is_epoch_used = False
            self._batches.use(producer_id, producer_epoch)

    async def _add_partitions(self) -> None:
        """Take partitions into the transaction, all that have come up at once."""
        while self._to_add:
            partitions = list(self._to_add)
            request = AddPartitionsToTxnRequest(
                v3_and_below_transactional_id=self.transactional_id,
                v3_and_below_producer_id=self._producer[0],
                v3_and_below_producer_epoch=self._producer[1],
                v3_and_below_topics=[
                    AddPartitionsToTxnTopic(name=topic, partitions=indexes)
                    for topic, indexes in by_topic(partitions).items()
                ],
            )

            async def attempt(request: AddPartitionsToTxnRequest = request) -> None:
                response = await self._ask(request, AddPartitionsToTxnResponse, api=ApiKey.ADD_PARTITIONS_TO_TXN)
                codes = [
                    each.partition_error_code
                    for topic in response.results_by_topic_v3_and_below
                    for each in topic.results_by_partition
                ]
                # Of a request of which a part is refused nothing is done, and the other parts say only that.
                worst = [code for code in codes if code not in (ErrorCode.NONE, ErrorCode.OPERATION_NOT_ATTEMPTED)]
                self._check((worst or [code for code in codes if code] or [0])[0])

            self._may_be_begun = True
            try:
                await self._insist(attempt)
            except (KafkaError, ClientError) as failure:
                if self.state in (State.OPEN, State.COMMITTING, State.ABORTABLE):
                    self._fail(verdict(ApiKey.ADD_PARTITIONS_TO_TXN, failure), failure)
                return
            self._is_begun = True
            for partition in partitions:
                self._partitions[partition] = None
                self._to_add.pop(partition, None)
            self._batches.wake()

    def _added(self, task: asyncio.Task[None]) -> None:
        self._adding = None
        if not task.cancelled() and task.exception() is not None:
            task.result()

    async def _send_offsets(self, offsets: dict[TopicPartition, CommittedOffset], group: GroupMetadata) -> None:
        if self._version >= EPOCH_RISES_AT_END:
            self._is_begun = self._is_epoch_used = True
        else:
            await self._add_offsets(group.group_id)

        async def attempt() -> None:
            response = await self._commit_offsets(offsets, group)
            refused: int = ErrorCode.NONE
            for topic in response.topics:
                for each in topic.partitions:
                    if each.error_code == ErrorCode.NONE:
                        offsets.pop(TopicPartition(topic.name, each.partition_index), None)
                    elif refused == ErrorCode.NONE or may_pass(KafkaError(ErrorCode(refused))):
                        refused = each.error_code
            if refused == ErrorCode.REQUEST_TIMED_OUT:
                self._cluster.forget_coordinator(group.group_id)
            self._cluster.check_coordinated(group.group_id, refused)

        await self._offsets_step(ApiKey.TXN_OFFSET_COMMIT, attempt)

    async def _add_offsets(self, group_id: str) -> None:
        request = AddOffsetsToTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=self._producer[0],
            producer_epoch=self._producer[1],
            group_id=group_id,
        )

        async def attempt() -> None:
            self._check((await self._ask(request, AddOffsetsToTxnResponse)).error_code)

        self._may_be_begun = True
        await self._offsets_step(ApiKey.ADD_OFFSETS_TO_TXN, attempt)
        self._is_begun = True

    async def _commit_offsets(
        self, offsets: Mapping[TopicPartition, CommittedOffset], group: GroupMetadata
    ) -> TxnOffsetCommitResponse:
        request = TxnOffsetCommitRequest(
            transactional_id=self.transactional_id,
            group_id=group.group_id,
            producer_id=self._producer[0],
            producer_epoch=self._producer[1],
            generation_id=group.member.generation_id,
            member_id=group.member.member_id,
            group_instance_id=group.member.group_instance_id,
            topics=[
                TxnOffsetCommitRequestTopic(
                    name=topic,
                    partitions=[
                        TxnOffsetCommitRequestPartition(
                            partition_index=index,
                            committed_offset=offsets[TopicPartition(topic, index)].offset,
                            committed_leader_epoch=offsets[TopicPartition(topic, index)].leader_epoch,
                            committed_metadata=offsets[TopicPartition(topic, index)].metadata,
                        )
                        for index in indexes
                    ],
                )
                for topic, indexes in by_topic(offsets).items()
            ],
        )
        max_version = self.max_version(ApiKey.TXN_OFFSET_COMMIT)
        return await self._cluster.ask_coordinator(
            group.group_id, request, TxnOffsetCommitResponse, max_version=max_version
        )

    async def _offsets_step(self, api: ApiKey, attempt: Callable[[], Awaitable[None]]) -> None:
        try:
            await self._insist(attempt)
        except (KafkaError, ClientError) as failure:
            if self.state in (State.OPEN, State.COMMITTING, State.ABORTABLE):
                self._fail(verdict(api, failure), failure)
                self._check_state("send_offsets_to_transaction", State.OPEN)
            raise

    # Asking.

    async def _ask(self, request: Message, response: type[ResponseT], *, api: ApiKey | None = None) -> ResponseT:
        return await self._cluster.ask_coordinator(
            self.transactional_id,
            request,
            response,
            kind=CoordinatorKind.TRANSACTION,
            max_version=None if api is None else self.max_version(api),
        )

    def _check(self, code: int) -> None:
        self._cluster.check_coordinated(self.transactional_id, code, kind=CoordinatorKind.TRANSACTION)

    async def _insist(self, attempt: Callable[[], Awaitable[ResultT]]) -> ResultT:
        """The attempt's result, tried as long as a failure may pass and the transaction has not failed meanwhile."""
        tries = 0
        while True:
            try:
                return await attempt()
            except (KafkaError, ClientError) as failure:
                if not may_pass(failure) or self.state in (State.ABORTABLE, State.FAILED):
                    raise
                pause_ms = self._cluster.backoff_ms(tries)
                if isinstance(failure, KafkaError) and failure.code is ErrorCode.CONCURRENT_TRANSACTIONS:
                    pause_ms = min(pause_ms, CONCURRENT_BACKOFF_MS)
                else:
                    tries += 1
            await asyncio.sleep(pause_ms / 1000)

    def _given_up(self, api: ApiKey, failure: Exception) -> Exception:
        """What is raised in place of a failure that was not passed over."""
        how = verdict(api, failure)
        self._fail(Verdict.FATAL if how is Verdict.RETRY else how, failure)
        if self.state is State.FAILED:
            return self._failed()
        return TransactionFailed(f"abort the transaction: {failure}")


def _hear(task: asyncio.Task[None]) -> None:
    """Whoever wanted to know how it ended may have gone."""
    if not task.cancelled():
        task.exception()


def _is_forgotten(failure: Exception | None) -> bool:
    """Whether the coordinator does not know the producer id any more: there is nothing to end, only a new id to get."""
    return isinstance(failure, KafkaError) and failure.code is ErrorCode.INVALID_PRODUCER_ID_MAPPING


def _is_authorization(failure: Exception) -> bool:
    return isinstance(failure, KafkaError) and failure.code in (
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    )
