"""Produce, versions 3 to 13 (announced from 0, as Kafka does; 0 to 2 close the connection).

Each partition's batch is appended while it still lies in the receive buffer. acks=0 is not answered, and an error there
closes the connection, which is all that such a client can notice. acks=1 is answered once appended, acks=all once every
in-sync replica has it. Who asks the wrong node is told the right one (KIP-951).

Before a transaction begins in a partition its coordinator is asked (KIP-890): up to version 11 whether the partition is
part of it, from version 12 on to make it so.
"""

from __future__ import annotations

from collections.abc import Coroutine, Mapping
from functools import partial
from struct import Struct
from typing import Any, TypeAlias

from odradek.ids import Uuid
from odradek.metadata.controller.quotas import PRODUCER_BYTE_RATE
from odradek.metadata.topic_names import is_internal
from odradek.protocol.api import ApiKey
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.fast.cached_produce import cached_produce
from odradek.protocol.fast.produce import (
    FIRST_VERSION_BY_ID,
    FLAGS_POSITION,
    LeaderHint,
    Outcome,
    ProducePlan,
    Refused,
    plan_of,
    read_produce,
    write_produce,
)
from odradek.protocol.records.batch import (
    COMPRESSION_MASK,
    HEADER_SIZE,
    LENGTH_OVERHEAD,
    MAGIC,
    TRANSACTIONAL_BIT,
)
from odradek.protocol.records.check import TakesLong
from odradek.protocol.records.compression import Compression
from odradek.replication.partition import SOLE_REPLICA
from odradek.security.acl import Operation, ResourceType
from odradek.server.access.authorizer import allowed
from odradek.server.access.caller import Caller
from odradek.server.coordinators.verification import Proof, TransactionalProducer
from odradek.server.handlers.leader_hints import leader_hint
from odradek.server.net.routes import Role, serves
from odradek.server.partitions.acks import AckWait
from odradek.server.partitions.hosted_partition import HostedPartition
from odradek.server.rooms import Rooms
from odradek.server.waiting.deferred import Deferred, of_task
from odradek.storage.log import AppendInfo
from odradek.storage.producer_state import Verification
from odradek.storage.validation import Examined, Origin

Outcomes: TypeAlias = list[Outcome]

ADMIN_CLIENT_ID = "__admin_client"
"""Who calls itself that may write to the cluster's own topics, as with Kafka."""

_ZSTD_VERSION = 7
_ABORTABLE_VERSION = 11
"""From which on clients know TRANSACTION_ABORTABLE."""
_ADDS_PARTITIONS_VERSION = 12
"""From which on partitions need not be added to a transaction by its producer."""

_ASK_AGAIN = (
    ErrorCode.NETWORK_EXCEPTION,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
)

_PRODUCER = Struct(">qhi")
_PRODUCER_POSITION = 43
_MAGIC_POSITION = 16

_NOT_YET = Refused(ErrorCode.UNKNOWN_SERVER_ERROR)
"""In the place of a batch that was not appended yet."""


@serves(
    ApiKey.PRODUCE,
    on=Role.BROKER,
    announced_min_version=0,
    overlaps=True,
    read=read_produce,
    cached_reader=cached_produce,
    plan_of=plan_of,
    write=write_produce,
    quota_use=lambda plan, outcomes, request_bytes: (PRODUCER_BYTE_RATE, request_bytes),
)
def handle(
    rooms: Rooms, caller: Caller, plan: ProducePlan
) -> Outcomes | Deferred[Outcomes] | Coroutine[Any, Any, Outcomes | Deferred[Outcomes]]:
    """Append each batch to its partition. (Hot: a lone one costs as much as there is code on its way.)"""
    acks = plan.acks
    if not -1 <= acks <= 1 or plan.is_transactional:
        refusal = _refusal(caller, plan)
        if refusal is not None:
            return _told(plan, [Refused(refusal.code, refusal.message) for _ in plan.indexes])
    replicas = rooms.replicas
    version = plan.version
    now_ms = rooms.world.clock.now_ms()
    known = plan.place
    if known is not None and known.partition.role is SOLE_REPLICA and not known.partition.log.flushes_on_append:
        (batch,) = plan.batches
        assert batch is not None, "what is read by hand is there"
        # A shortcut, no other rule: what is looked at below would be found to be as it was.
        try:
            return [replicas.append(known, batch, now_ms)]
        except TakesLong:
            pass
        except KafkaError as error:
            return _told(plan, [_refused(rooms, caller, plan, 0, error)])
    is_guarded = caller.authorizer is not None or version < _ZSTD_VERSION
    topics, batches = plan.topics, plan.batches
    hosts: list[HostedPartition | None] = []
    outcomes: Outcomes = []
    held: list[_HeldBack] | None = None
    waits = False
    for number, index in enumerate(plan.indexes):
        topic, batch = topics[number], batches[number]
        hosted = replicas.find_by_id(topic, index) if version >= FIRST_VERSION_BY_ID else replicas.find(topic, index)
        hosts.append(hosted)
        try:
            if hosted is None or batch is None or hosted.is_internal or is_guarded:
                hosted, batch = _checked(rooms, caller, plan, topic, index, hosted, batch)
            if plan.is_transactional and _begins_transaction(plan, hosted, batch):
                held = held or []
                held.append(_HeldBack(number, hosted, batch, begins_transaction=True))
                outcomes.append(_NOT_YET)
                continue
            outcomes.append(replicas.append(hosted, batch, now_ms, Origin.CLIENT, acks < 0))
        except TakesLong:
            assert hosted is not None
            assert batch is not None
            held = held or []
            held.append(_HeldBack(number, hosted, batch, takes_long=True))
            outcomes.append(_NOT_YET)
        except KafkaError as error:
            outcomes.append(_refused(rooms, caller, plan, number, error))
            waits = waits or acks < 1
        else:
            partition = hosted.partition
            if partition.log.flushes_on_append or (acks < 0 and partition.role is not SOLE_REPLICA):
                waits = True
    if not waits and held is None:
        if len(hosts) == 1 and hosted is not None and not (hosted.is_internal or is_guarded):
            plan.place = hosted
        return outcomes
    wait = _Wait(rooms, caller, plan, outcomes)
    for number, hosted in enumerate(hosts):
        wait.note(number, hosted)
    if held is None:
        return wait.all_appended(hosts)
    plan.drop()
    return _append_held_back(wait, rooms, hosts, held)


# What most appends need not be asked.


def _refusal(caller: Caller, plan: ProducePlan) -> KafkaError | None:
    """Why none of it can be appended."""
    if plan.is_transactional:
        transactional_id = plan.transactional_id
        if transactional_id is None or not allowed(
            caller, Operation.WRITE, ResourceType.TRANSACTIONAL_ID, transactional_id
        ):
            return KafkaError(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
        whole = [batch for batch in plan.batches if batch is not None and len(batch) >= HEADER_SIZE]
        if len({_producer_of(batch)[:2] for batch in whole if _is_transactional(batch)}) > 1:
            return KafkaError(
                ErrorCode.INVALID_PRODUCER_ID_MAPPING, "Transactional records contained more than one producer ID"
            )
    return None if -1 <= plan.acks <= 1 else KafkaError(ErrorCode.INVALID_REQUIRED_ACKS)


def _checked(
    rooms: Rooms,
    caller: Caller,
    plan: ProducePlan,
    topic: str | Uuid,
    index: int,
    hosted: HostedPartition | None,
    batch: memoryview | None,
) -> tuple[HostedPartition, memoryview]:
    """Partition and batch, if they are there and the client may bring them together."""
    if caller.authorizer is not None:
        name = _name_of(rooms, topic)
        if name is not None and not caller.may(Operation.WRITE, name):
            raise KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    replicas = rooms.replicas
    if hosted is None:
        error = KafkaError(replicas.why_missing(topic, index))
        if batch is not None:
            replicas.refused_batches.note(topic, index, batch, error)
        raise error
    if is_internal(hosted.topic) and caller.client_id != ADMIN_CLIENT_ID:
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Cannot append to internal topic {hosted.topic}")
    if batch is None:
        raise KafkaError(ErrorCode.INVALID_RECORD, "The request holds no records for this partition")
    if plan.version < _ZSTD_VERSION and _is_zstd(batch):
        raise KafkaError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"Produce version {plan.version} does not know zstd")
    return hosted, batch


def _name_of(rooms: Rooms, topic: str | Uuid) -> str | None:
    """None where nobody knows a topic of that id, and nothing is to be guarded."""
    if isinstance(topic, str):
        return topic
    known = rooms.image.topics.by_id.get(Uuid(topic))
    return None if known is None else known.name


def _is_transactional(batch: memoryview) -> bool:
    return batch[FLAGS_POSITION] & TRANSACTIONAL_BIT != 0


def _producer_of(batch: memoryview | bytes) -> tuple[int, int, int]:
    """Its id, its epoch and the batch's first sequence, of a batch that has a header."""
    producer_id, producer_epoch, first_sequence = _PRODUCER.unpack_from(batch, _PRODUCER_POSITION)
    return producer_id, producer_epoch, first_sequence


def _is_zstd(batch: memoryview) -> bool:
    """Whether a batch is compressed in a way that old versions do not know yet (KIP-110)."""
    return (
        len(batch) > FLAGS_POSITION
        and batch[FLAGS_POSITION] & COMPRESSION_MASK == Compression.ZSTD
        and batch[_MAGIC_POSITION] == MAGIC
        and int.from_bytes(batch[8:LENGTH_OVERHEAD]) + LENGTH_OVERHEAD <= len(batch)
    )


def _refused(rooms: Rooms, caller: Caller, plan: ProducePlan, number: int, error: KafkaError) -> Refused:
    leader = _leader(rooms, caller, plan, number, error.code)
    return Refused(error.code, error.message, leader=leader, record_errors=error.record_errors)


def _leader(rooms: Rooms, caller: Caller, plan: ProducePlan, number: int, code: ErrorCode) -> LeaderHint | None:
    if code is not ErrorCode.NOT_LEADER_OR_FOLLOWER:
        return None
    return leader_hint(rooms.image, caller.listener, plan.topics[number], plan.indexes[number])


# What is not done yet when all are appended.


class _HeldBack:
    """A batch that was not appended yet: a copy, for its buffer is used again once something is awaited."""

    __slots__ = ("batch", "begins_transaction", "hosted", "number", "takes_long")

    def __init__(
        self,
        number: int,
        hosted: HostedPartition,
        batch: memoryview,
        *,
        takes_long: bool = False,
        begins_transaction: bool = False,
    ) -> None:
        self.number = number
        self.hosted = hosted
        self.batch = bytes(batch)
        self.takes_long = takes_long
        self.begins_transaction = begins_transaction


def _begins_transaction(plan: ProducePlan, hosted: HostedPartition, batch: memoryview) -> bool:
    """Whether the coordinator has to be asked before the batch is appended."""
    if len(batch) < HEADER_SIZE or not _is_transactional(batch) or not hosted.partition.is_leader:
        return False
    producers = hosted.partition.log.producers
    if not (producers.settings.verifies or plan.version >= _ADDS_PARTITIONS_VERSION):
        return False
    producer_id, producer_epoch, _ = _producer_of(batch)
    return not producers.is_open(producer_id, producer_epoch)


async def _append_held_back(
    wait: _Wait, rooms: Rooms, hosts: list[HostedPartition | None], held_back: list[_HeldBack]
) -> Outcomes | Deferred[Outcomes]:
    """A worker looks into them first, or the coordinator of their transaction is asked.

    Meanwhile the connection begins nothing else, so that order holds.
    """
    plan = wait.plan
    proofs = await _ask_coordinator(rooms, plan, held_back)
    for held in held_back:
        proof = proofs.get(held.hosted) if held.begins_transaction else None
        try:
            if isinstance(proof, KafkaError):
                raise _unverified(proof, plan.version)
            wait.outcomes[held.number] = await _append_copied(rooms, held, proof, acks_all=plan.acks < 0)
        except KafkaError as error:
            wait.outcomes[held.number] = wait.refused(held.number, error)
        wait.note(held.number, held.hosted)
    return wait.all_appended(hosts)


async def _ask_coordinator(
    rooms: Rooms, plan: ProducePlan, held_back: list[_HeldBack]
) -> Mapping[HostedPartition, Proof]:
    """Of the transaction that begins in some of the partitions."""
    beginning = [held for held in held_back if held.begins_transaction]
    if not beginning:
        return {}
    producer_id, producer_epoch, _ = _producer_of(beginning[0].batch)
    return await rooms.verifier.prove(
        TransactionalProducer(plan.transactional_id or "", producer_id, producer_epoch),
        {held.hosted: _producer_of(held.batch)[2] for held in beginning},
        adds_partitions=plan.version >= _ADDS_PARTITIONS_VERSION,
    )


def _unverified(refused: KafkaError, version: int) -> KafkaError:
    """Why a transaction may not begin, as clients of each version know to go on."""
    code = refused.code
    if code is ErrorCode.TRANSACTION_ABORTABLE and version < _ABORTABLE_VERSION:
        code = ErrorCode.INVALID_TXN_STATE
    if code is ErrorCode.INVALID_TXN_STATE:
        return KafkaError(code, "Partition was not added to the transaction")
    if code in _ASK_AGAIN or (code is ErrorCode.CONCURRENT_TRANSACTIONS and version < _ADDS_PARTITIONS_VERSION):
        # Of the codes that let old clients try again the one that does not make them look for another leader.
        return KafkaError(
            ErrorCode.NOT_ENOUGH_REPLICAS,
            f"Unable to verify the partition has been added to the transaction. Underlying error: {code.name}",
        )
    return refused


async def _append_copied(rooms: Rooms, held: _HeldBack, proof: Verification | None, *, acks_all: bool) -> AppendInfo:
    """After a worker has looked into it, if that takes long."""
    replicas, hosted = rooms.replicas, held.hosted
    examined: Examined | None = None
    while True:
        batch = memoryview(bytearray(held.batch))
        now_ms = rooms.world.clock.now_ms()
        if held.takes_long:
            examined = await rooms.world.workers.run(partial(hosted.partition.log.examine, batch, now_ms))
        if not replicas.hosts(hosted):
            raise KafkaError(replicas.why_missing(hosted.topic_id, hosted.index))
        try:
            return replicas.append(hosted, batch, now_ms, Origin.CLIENT, acks_all, examined, proof)
        except TakesLong:  # It was not looked into yet, or the topic's settings are others by now.
            held.takes_long = True


class _Wait(AckWait[Outcome]):
    """What the appends of one request have yet to come to: to be synced, to be on their replicas."""

    __slots__ = ("_caller", "_rooms", "_unsynced", "plan")

    def __init__(self, rooms: Rooms, caller: Caller, plan: ProducePlan, outcomes: Outcomes) -> None:
        AckWait.__init__(self, outcomes)
        self.plan = plan
        self._rooms = rooms
        self._caller = caller
        self._unsynced: list[tuple[int, HostedPartition]] = []

    def note(self, number: int, hosted: HostedPartition | None) -> None:
        """It was appended right now, or refused."""
        info = self.outcomes[number]
        if hosted is None or not isinstance(info, AppendInfo):
            return
        partition = hosted.partition
        log = partition.log
        if log.flushes_on_append and log.flush_due(self._rooms.world.clock.now_ms()):
            self._unsynced.append((number, hosted))
        if self.plan.acks < 0 and partition.role is not SOLE_REPLICA:
            self.expect(hosted, number, info.last_offset + 1)

    def all_appended(self, hosts: list[HostedPartition | None]) -> Outcomes | Deferred[Outcomes]:
        """What to answer by; the batches are not looked at any more."""
        plan, rooms = self.plan, self._rooms
        batches = plan.batches
        plan.drop()
        if self._unsynced:
            return of_task(self._synced())
        if not self.is_pending:
            return _told(plan, self.outcomes)
        self.begin(rooms.purgatory, timeout_ms=plan.timeout_ms)
        if batches:
            rooms.fetch_wakeups.lend(hosts, batches, self.outcomes)
        return self

    async def _synced(self) -> Outcomes:
        for number, hosted in self._unsynced:
            try:
                await self._rooms.replicas.flush([hosted])
            except KafkaError as error:
                self.outcomes[number] = Refused(error.code, error.message)
        if self.is_pending:
            self.begin(self._rooms.purgatory, timeout_ms=self.plan.timeout_ms)
            await self
        return _told(self.plan, self.outcomes)

    def unacknowledged(self, number: int, code: ErrorCode) -> None:
        """Nothing but the code is another than if all were well."""
        info = self.outcomes[number]
        if isinstance(info, AppendInfo):
            self.outcomes[number] = Refused(
                code, appended=info, leader=_leader(self._rooms, self._caller, self.plan, number, code)
            )

    def refused(self, number: int, error: KafkaError) -> Refused:
        return _refused(self._rooms, self._caller, self.plan, number, error)


def _told(plan: ProducePlan, outcomes: Outcomes) -> Outcomes:
    """With acks=0 a closed connection is all that a client can notice."""
    if not plan.acks:
        for outcome in outcomes:
            if isinstance(outcome, Refused):
                raise KafkaError(outcome.code, outcome.message or "")
    return outcomes
