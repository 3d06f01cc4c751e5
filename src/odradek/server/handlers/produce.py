"""Produce, versions 3 to 13 (announced from 0, as Kafka does; 0 to 2 close the connection).

Each partition's batch is appended while it still lies in the receive buffer. acks=0 is not answered, and an error there
closes the connection, which is all that such a client can notice. acks=1 is answered once appended, acks=all once every
in-sync replica has it. Who asks the wrong node is told the right one (KIP-951). Not done yet: transactional batches.
"""

from __future__ import annotations

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
from odradek.protocol.records.check import TakesLong
from odradek.security.acl import Operation
from odradek.server.access.authorizer import topic_check
from odradek.server.handlers.cached_produce import cached_produce
from odradek.server.handlers.context import Context
from odradek.server.handlers.fast_produce_one import fast_produce_one
from odradek.server.handlers.leader_hints import LeaderHints
from odradek.server.handlers.produce_answers import accepted, is_too_new, is_transactional, name_leaders, refused
from odradek.server.net.routes import Role, serves
from odradek.server.partitions.acks import Acknowledgements, PendingAck
from odradek.server.partitions.hosted_partition import HostedPartition
from odradek.storage.log import AppendInfo

ALL = -1
TOPIC_ID_VERSION = 13
ADMIN_CLIENT_ID = "__admin_client"
"""Who calls itself that may write to the cluster's own topics, as with Kafka."""


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
    if appends.take_long:
        await appends.append_those_that_take_long()
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
        "_by_id",
        "_ctx",
        "_may_write",
        "_now_ms",
        "_refusal",
        "failed",
        "take_long",
        "to_flush",
        "unacknowledged",
    )

    def __init__(self, ctx: Context, request: ProduceRequest) -> None:
        self._ctx = ctx
        self._by_id = ctx.api_version >= TOPIC_ID_VERSION
        self._now_ms = ctx.now_ms
        self._refusal = _refusal(request)
        self._may_write = topic_check(ctx.caller, Operation.WRITE)
        self.failed: KafkaError | None = None
        self.to_flush: list[tuple[HostedPartition, PartitionProduceResponse]] = []
        self.unacknowledged: list[tuple[PendingAck, PartitionProduceResponse]] = []
        self._acks_all = request.acks == ALL
        self._acknowledgements = Acknowledgements()
        self.take_long: list[_LongLook] = []

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
            try:
                info = replicas.append(hosted, records, now_ms=self._now_ms, acks_all=self._acks_all)
            except TakesLong:
                # Copied, since the buffer it lies in is used again once something is awaited.
                answer = PartitionProduceResponse(index=part.index, base_offset=NO_OFFSET)
                self.take_long.append(_LongLook(hosted, bytes(records), answer))
                return answer
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

    async def append_those_that_take_long(self) -> None:
        """A worker looks into them first; meanwhile the connection begins nothing else, so that order holds."""
        connection = self._ctx.listener.connections[self._ctx.caller.connection_id]
        connection.hold()
        try:
            for look in self.take_long:
                await self._append_after_a_long_look(look)
        finally:
            connection.go_on()

    async def _append_after_a_long_look(self, look: _LongLook) -> None:
        rooms, hosted = self._ctx.rooms, look.hosted
        while True:
            batch = memoryview(bytearray(look.batch))
            now_ms = self._ctx.now_ms
            log = hosted.partition.log
            try:
                examined = await rooms.world.workers.run(partial(log.examine, batch, now_ms))
                if rooms.replicas.find_by_id(hosted.topic_id, hosted.index) is not hosted:
                    raise KafkaError(rooms.replicas.why_missing(hosted.topic_id, hosted.index))
                info = rooms.replicas.append(hosted, batch, now_ms=now_ms, acks_all=self._acks_all, examined=examined)
            except TakesLong:
                continue  # The topic's settings are others by now.
            except KafkaError as error:
                self.failed = error
                _tell(look.answer, refused(look.answer.index, error))
            else:
                _tell(look.answer, accepted(look.answer.index, info))
                self._appended(hosted, info, look.answer)
            return

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


class _LongLook:
    """A batch that was not appended yet, and where its answer goes."""

    __slots__ = ("answer", "batch", "hosted")

    def __init__(self, hosted: HostedPartition, batch: bytes, answer: PartitionProduceResponse) -> None:
        self.hosted = hosted
        self.batch = batch
        self.answer = answer


def _tell(answer: PartitionProduceResponse, told: PartitionProduceResponse) -> None:
    """An answer that has its place in the response already."""
    answer.error_code, answer.error_message = told.error_code, told.error_message
    answer.record_errors = told.record_errors
    answer.base_offset, answer.log_start_offset = told.base_offset, told.log_start_offset
    answer.log_append_time_ms = told.log_append_time_ms


def _refusal(request: ProduceRequest) -> KafkaError | None:
    if request.acks not in (-1, 0, 1):
        return KafkaError(ErrorCode.INVALID_REQUIRED_ACKS)
    if request.transactional_id is not None:
        return KafkaError(ErrorCode.INVALID_TXN_STATE, "Transactions are not served by this node")
    if any(
        isinstance(part.records, memoryview) and is_transactional(part.records)
        for topic in request.topic_data
        for part in topic.partition_data
    ):
        # Nobody would ever end such a transaction, and readers of committed records would wait for it forever.
        return KafkaError(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    return None
