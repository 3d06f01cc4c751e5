"""Produce, versions 3 to 13 (announced from 0, as Kafka does; 0 to 2 close the connection).

Each partition's batch is appended while it still lies in the receive buffer. acks=0 is not answered, and an error there
closes the connection, which is all that such a client can notice. acks=1 is answered once appended, acks=all once every
in-sync replica has it. Who asks the wrong node is told the right one (KIP-951).

Before a transaction begins in a partition its coordinator is asked (KIP-890): up to version 11 whether the partition is
part of it, from version 12 on to make it so.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from odradek.ids import NO_OFFSET, Uuid
from odradek.metadata.topic_names import is_internal
from odradek.protocol.api import ApiKey
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from odradek.protocol.records.batch import HEADER_SIZE
from odradek.protocol.records.check import TakesLong
from odradek.security.acl import Operation, ResourceType
from odradek.server.access.authorizer import allowed, topic_check
from odradek.server.coordinators.verification import Proof, TransactionalProducer
from odradek.server.handlers.cached_produce import cached_produce
from odradek.server.handlers.context import Context
from odradek.server.handlers.fast_produce_one import fast_produce_one
from odradek.server.handlers.leader_hints import LeaderHints
from odradek.server.handlers.produce_answers import (
    accepted,
    is_too_new,
    is_transactional,
    name_leaders,
    producer_of,
    refused,
)
from odradek.server.net.routes import Role, serves
from odradek.server.partitions.acks import Acknowledgements, PendingAck
from odradek.server.partitions.hosted_partition import HostedPartition
from odradek.storage.log import AppendInfo
from odradek.storage.producer_state import Verification
from odradek.storage.validation import Examined

ALL = -1
TOPIC_ID_VERSION = 13
ADMIN_CLIENT_ID = "__admin_client"
"""Who calls itself that may write to the cluster's own topics, as with Kafka."""

ABORTABLE_VERSION = 11
"""From which on clients know TRANSACTION_ABORTABLE."""
ADDS_PARTITIONS_VERSION = 12
"""From which on partitions need not be added to a transaction by its producer."""

_ASK_AGAIN = (
    ErrorCode.NETWORK_EXCEPTION,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
)


@serves(
    ApiKey.PRODUCE,
    on=Role.BROKER,
    announced_min_version=0,
    overlaps=True,
    fast_path=fast_produce_one,
    cached_request=cached_produce,
)
async def handle(ctx: Context, request: ProduceRequest) -> ProduceResponse | None:
    appends = _Appends(ctx, request)
    responses = [
        TopicProduceResponse(
            name=topic.name,
            topic_id=topic.topic_id,
            partition_responses=[appends.append(topic, part) for part in topic.partition_data],
        )
        for topic in _once_each(request.topic_data)
    ]
    if appends.held_back:
        await appends.append_held_back()
    for hosted, answer in appends.to_flush:
        try:
            await ctx.rooms.replicas.flush([hosted])
        except KafkaError as error:
            appends.failed = error
            answer.error_code, answer.base_offset, answer.error_message = error.code, NO_OFFSET, error.message
    if request.acks == 0:
        if appends.failed is not None:
            raise appends.failed
        return None
    if appends.unacknowledged:
        await appends.wait_for_replicas(request.timeout_ms)
    response = ProduceResponse(responses=responses)
    name_leaders(response, ctx.api_version, LeaderHints(ctx.rooms.image, ctx.caller.listener))
    return response


class _Appends:
    """The appends of one request, and what they leave to be done."""

    __slots__ = (
        "_acknowledgements",
        "_acks_all",
        "_adds_partitions",
        "_by_id",
        "_ctx",
        "_may_write",
        "_now_ms",
        "_refusal",
        "_transactional_id",
        "failed",
        "held_back",
        "to_flush",
        "unacknowledged",
    )

    def __init__(self, ctx: Context, request: ProduceRequest) -> None:
        self._ctx = ctx
        self._by_id = ctx.api_version >= TOPIC_ID_VERSION
        self._now_ms = ctx.now_ms
        self._refusal = _refusal(ctx, request)
        self._transactional_id = request.transactional_id or ""
        self._adds_partitions = ctx.api_version >= ADDS_PARTITIONS_VERSION
        self._may_write = topic_check(ctx.caller, Operation.WRITE)
        self.failed: KafkaError | None = None
        self.to_flush: list[tuple[HostedPartition, PartitionProduceResponse]] = []
        self.unacknowledged: list[tuple[PendingAck, PartitionProduceResponse]] = []
        self._acks_all = request.acks == ALL
        self._acknowledgements = Acknowledgements()
        self.held_back: list[_HeldBack] = []
        """What has to wait before it is appended."""

    def append(self, topic: TopicProduceData, part: PartitionProduceData) -> PartitionProduceResponse:
        try:
            if self._refusal is not None:
                raise self._refusal
            replicas = self._ctx.rooms.replicas
            if self._by_id:
                hosted = replicas.find_by_id(topic.topic_id, part.index)
            else:
                hosted = replicas.find(topic.name, part.index)
            if self._may_write is not None and not self._may_write(hosted.topic if hosted else topic.name):
                raise KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
            if hosted is None:
                raise self._missing(topic.topic_id if self._by_id else topic.name, part)
            if is_internal(hosted.topic) and self._ctx.caller.client_id != ADMIN_CLIENT_ID:
                raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Cannot append to internal topic {hosted.topic}")
            records = part.records
            if not isinstance(records, memoryview):
                raise KafkaError(ErrorCode.INVALID_RECORD, "The request holds no records for this partition")
            if is_too_new(records, self._ctx.api_version):
                raise KafkaError(
                    ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
                    f"Produce version {self._ctx.api_version} does not know zstd",
                )
            if self._begins_transaction(hosted, records):
                return self._hold_back(hosted, part, records, begins_transaction=True)
            try:
                info = replicas.append(hosted, records, now_ms=self._now_ms, acks_all=self._acks_all)
            except TakesLong:
                return self._hold_back(hosted, part, records, takes_long=True)
        except KafkaError as error:
            self.failed = error
            return refused(part.index, error)
        answer = accepted(part.index, info)
        self._appended(hosted, info, answer)
        return answer

    def _appended(self, hosted: HostedPartition, info: AppendInfo, answer: PartitionProduceResponse) -> None:
        if hosted.partition.log.flush_due(self._now_ms):
            self.to_flush.append((hosted, answer))
        if self._acks_all and hosted.partition.leadership is not None:
            self.unacknowledged.append((self._acknowledgements.expect(hosted, info.last_offset + 1), answer))

    def _begins_transaction(self, hosted: HostedPartition, batch: memoryview) -> bool:
        """Whether the coordinator has to be asked before the batch is appended."""
        if not is_transactional(batch) or len(batch) < HEADER_SIZE or not hosted.partition.is_leader:
            return False
        producers = hosted.partition.log.producers
        if not (producers.settings.verifies or self._adds_partitions):
            return False
        producer_id, producer_epoch, _ = producer_of(batch)
        return not producers.is_open(producer_id, producer_epoch)

    def _hold_back(
        self,
        hosted: HostedPartition,
        part: PartitionProduceData,
        batch: memoryview,
        *,
        takes_long: bool = False,
        begins_transaction: bool = False,
    ) -> PartitionProduceResponse:
        """Copied, since the buffer it lies in is used again once something is awaited."""
        answer = PartitionProduceResponse(index=part.index, base_offset=NO_OFFSET)
        self.held_back.append(
            _HeldBack(hosted, bytes(batch), answer, takes_long=takes_long, begins_transaction=begins_transaction)
        )
        return answer

    async def append_held_back(self) -> None:
        """Meanwhile the connection begins nothing else, so that order holds."""
        connection = self._ctx.listener.connections[self._ctx.caller.connection_id]
        connection.hold()
        try:
            proofs = await self._ask_coordinator()
            for held in self.held_back:
                proof = proofs.get(held.hosted) if held.begins_transaction else None
                if isinstance(proof, KafkaError):
                    self._refuse(held, _unverified(proof, self._ctx.api_version))
                else:
                    await self._append_copied(held, proof)
        finally:
            connection.go_on()

    async def _ask_coordinator(self) -> Mapping[HostedPartition, Proof]:
        """Of the transaction that begins in some of the partitions."""
        beginning = [held for held in self.held_back if held.begins_transaction]
        if not beginning:
            return {}
        producer_id, producer_epoch, _ = producer_of(beginning[0].batch)
        return await self._ctx.rooms.verifier.prove(
            TransactionalProducer(self._transactional_id, producer_id, producer_epoch),
            {held.hosted: producer_of(held.batch)[2] for held in beginning},
            adds_partitions=self._adds_partitions,
        )

    async def _append_copied(self, held: _HeldBack, proof: Verification | None) -> None:
        """After a worker has looked into it, if that takes long."""
        rooms, hosted = self._ctx.rooms, held.hosted
        examined: Examined | None = None
        while True:
            batch = memoryview(bytearray(held.batch))
            now_ms = self._ctx.now_ms
            try:
                if held.takes_long:
                    examined = await rooms.world.workers.run(partial(hosted.partition.log.examine, batch, now_ms))
                if not rooms.replicas.hosts(hosted):
                    raise KafkaError(rooms.replicas.why_missing(hosted.topic_id, hosted.index))
                info = rooms.replicas.append(
                    hosted,
                    batch,
                    now_ms=now_ms,
                    acks_all=self._acks_all,
                    examined=examined,
                    transaction=proof,
                )
            except TakesLong:  # It was not looked into yet, or the topic's settings are others by now.
                held.takes_long = True
                continue
            except KafkaError as error:
                self._refuse(held, error)
            else:
                _tell(held.answer, accepted(held.answer.index, info))
                self._appended(hosted, info, held.answer)
            return

    def _refuse(self, held: _HeldBack, error: KafkaError) -> None:
        self.failed = error
        _tell(held.answer, refused(held.answer.index, error))

    def _missing(self, topic: str | Uuid, part: PartitionProduceData) -> KafkaError:
        replicas = self._ctx.rooms.replicas
        error = KafkaError(replicas.why_missing(topic, part.index))
        if isinstance(part.records, memoryview):
            replicas.refused_batches.note(topic, part.index, part.records, error)
        return error

    async def wait_for_replicas(self, timeout_ms: int) -> None:
        await self._acknowledgements.wait(self._ctx.rooms.purgatory, timeout_ms=timeout_ms)
        for pending, answer in self.unacknowledged:
            if not answer.error_code:
                answer.error_code = pending.outcome


def _once_each(topics: list[TopicProduceData]) -> list[TopicProduceData]:
    """Of a partition that a request names several times only the last batch counts, and is answered, as with Kafka."""
    merged: dict[tuple[str, Uuid], dict[int, PartitionProduceData]] = {}
    for topic in topics:
        parts = merged.setdefault((topic.name, topic.topic_id), {})
        for part in topic.partition_data:
            parts[part.index] = part
    return [
        TopicProduceData(name=name, topic_id=topic_id, partition_data=list(parts.values()))
        for (name, topic_id), parts in merged.items()
    ]


class _HeldBack:
    """A batch that was not appended yet, and where its answer goes."""

    __slots__ = ("answer", "batch", "begins_transaction", "hosted", "takes_long")

    def __init__(
        self,
        hosted: HostedPartition,
        batch: bytes,
        answer: PartitionProduceResponse,
        *,
        takes_long: bool,
        begins_transaction: bool,
    ) -> None:
        self.hosted = hosted
        self.batch = batch
        self.answer = answer
        self.takes_long = takes_long
        self.begins_transaction = begins_transaction


def _tell(answer: PartitionProduceResponse, told: PartitionProduceResponse) -> None:
    """An answer that has its place in the response already."""
    answer.error_code, answer.error_message = told.error_code, told.error_message
    answer.record_errors = told.record_errors
    answer.base_offset, answer.log_start_offset = told.base_offset, told.log_start_offset
    answer.log_append_time_ms = told.log_append_time_ms


def _refusal(ctx: Context, request: ProduceRequest) -> KafkaError | None:
    """Why none of it can be appended."""
    transactional = [
        part.records
        for topic in request.topic_data
        for part in topic.partition_data
        if isinstance(part.records, memoryview) and is_transactional(part.records)
    ]
    if transactional:
        transactional_id = request.transactional_id
        if transactional_id is None or not allowed(
            ctx.caller, Operation.WRITE, ResourceType.TRANSACTIONAL_ID, transactional_id
        ):
            return KafkaError(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
        if len({producer_of(batch)[:2] for batch in transactional if len(batch) >= HEADER_SIZE}) > 1:
            return KafkaError(
                ErrorCode.INVALID_PRODUCER_ID_MAPPING, "Transactional records contained more than one producer ID"
            )
    if request.acks not in (-1, 0, 1):
        return KafkaError(ErrorCode.INVALID_REQUIRED_ACKS)
    return None


def _unverified(refused: KafkaError, version: int) -> KafkaError:
    """Why a transaction may not begin, as clients of each version know to go on."""
    code = refused.code
    if code is ErrorCode.TRANSACTION_ABORTABLE and version < ABORTABLE_VERSION:
        code = ErrorCode.INVALID_TXN_STATE
    if code is ErrorCode.INVALID_TXN_STATE:
        return KafkaError(code, "Partition was not added to the transaction")
    if code in _ASK_AGAIN or (code is ErrorCode.CONCURRENT_TRANSACTIONS and version < ADDS_PARTITIONS_VERSION):
        # Of the codes that let old clients try again the one that does not make them look for another leader.
        return KafkaError(
            ErrorCode.NOT_ENOUGH_REPLICAS,
            f"Unable to verify the partition has been added to the transaction. Underlying error: {code.name}",
        )
    return refused
