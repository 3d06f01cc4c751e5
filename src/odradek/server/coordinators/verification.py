"""What leaders ask the coordinator of a transaction before it begins in one of their partitions (KIP-890).

Either whether the partition is part of it, or, for producers that leave that to brokers, to make it so. What goes to
one coordinator goes in one request at a time, that of all producers together.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, TypeAlias

from odradek.coordinator.transaction.state import EPOCH_RISES, TopicPartition
from odradek.ids import NO_NODE, NodeId
from odradek.metadata.topic_names import TRANSACTION_TOPIC
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from odradek.server.containment import Containment, Cost
from odradek.server.net.latency import Latencies
from odradek.storage.producer_state import Verification
from odradek.values import value

if TYPE_CHECKING:
    from odradek.metadata.image import Image
    from odradek.ports import Clock
    from odradek.server.configs.node_config import NodeConfig
    from odradek.server.coordinators.transactions import TransactionCoordinator
    from odradek.server.partitions.hosted_partition import HostedPartition
    from odradek.server.peers.broker_channels import BrokerChannels

MAX_TRANSACTIONS_PER_REQUEST = 1_000
_FROM_BROKERS_SINCE = 4

Codes: TypeAlias = "dict[TopicPartition, ErrorCode]"
"""What is wrong; a partition that is not in it is part of the transaction."""

Proof: TypeAlias = "Verification | KafkaError | None"
"""None where the transaction is open already."""

Asked: TypeAlias = "tuple[AddPartitionsToTxnTransaction, asyncio.Future[Codes]]"


@value
class TransactionalProducer:
    """Who writes in a transaction."""

    transactional_id: str
    producer_id: int
    producer_epoch: int


class TransactionVerifier:
    """The questions of one broker."""

    def __init__(
        self,
        config: NodeConfig,
        clock: Clock,
        image: Callable[[], Image],
        coordinators: TransactionCoordinator,
        channels: BrokerChannels,
        containment: Containment,
    ) -> None:
        self._node_id = NodeId(config.node_id)
        self._config = config
        self._clock = clock
        self._image = image
        self._coordinators = coordinators
        self._channels = channels
        self._containment = containment
        self.asked = 0
        """How often coordinators were asked,"""
        self.latencies = Latencies()
        """how long it took,"""
        self.unverified = 0
        """and in how many partitions a transaction could not begin."""
        self._queues: dict[NodeId, list[Asked]] = {}
        self._senders: dict[NodeId, asyncio.Task[None]] = {}

    async def prove(
        self, producer: TransactionalProducer, firsts: Mapping[HostedPartition, int], *, adds_partitions: bool
    ) -> dict[HostedPartition, Proof]:
        """What an append has to bring that begins the producer's transaction in a partition, or why it may not begin.

        With each the first sequence that is to be written; `adds_partitions` says who makes them part of it.

        The transaction before may not have reached all its partitions yet: who begins the next one then has to wait a
        little here, since it would otherwise come again at once. Its proofs are made anew, for the marker of the one
        before takes those away that were made until then.
        """
        patience_ms = min(self._config.add_partitions_to_txn_retry_backoff_max_ms, self._config.request_timeout_ms)
        give_up_ms = self._clock.monotonic_ms() + patience_ms
        while True:
            proofs = self._begin(producer, firsts, adds_partitions=adds_partitions)
            unproven = [hosted for hosted, proof in proofs.items() if isinstance(proof, Verification)]
            if not unproven:
                return proofs
            began_ms = self._clock.monotonic_ms()
            codes = await self._ask(_question(producer, unproven, verify_only=not adds_partitions))
            self._count(began_ms, codes)
            too_early = adds_partitions and ErrorCode.CONCURRENT_TRANSACTIONS in codes.values()
            if not too_early or self._clock.monotonic_ms() >= give_up_ms:
                break
            await asyncio.sleep(self._config.add_partitions_to_txn_retry_backoff_ms / 1000)
        for hosted in unproven:
            code = codes.get((hosted.topic, hosted.index))
            if code is not None:
                proofs[hosted] = KafkaError(code)
        return proofs

    def _begin(
        self, producer: TransactionalProducer, firsts: Mapping[HostedPartition, int], *, adds_partitions: bool
    ) -> dict[HostedPartition, Proof]:
        """What will be proofs if the coordinator agrees."""
        now_ms = self._clock.now_ms()
        proofs: dict[HostedPartition, Proof] = {}
        for hosted, first_sequence in firsts.items():
            try:
                proofs[hosted] = hosted.partition.log.producers.verify(
                    producer.producer_id,
                    producer.producer_epoch,
                    first_sequence,
                    supports_epoch_bump=adds_partitions,
                    now_ms=now_ms,
                )
            except KafkaError as refused:
                proofs[hosted] = refused
        return proofs

    def _count(self, began_ms: int, codes: Codes) -> None:
        self.asked += 1
        self.unverified += len(codes)
        waited_ms = self._clock.monotonic_ms() - began_ms
        if waited_ms:
            self.latencies.note(waited_ms)

    async def _ask(self, asked: AddPartitionsToTxnTransaction) -> Codes:
        topic = self._image().topics.by_name.get(TRANSACTION_TOPIC)
        coordinator = NO_NODE
        if topic is not None:
            coordinator = topic.partitions[self._coordinators.partition_of(asked.transactional_id)].leader
        if coordinator == NO_NODE:
            return _all(asked, ErrorCode.COORDINATOR_NOT_AVAILABLE)
        if coordinator == self._node_id:
            return _codes(await self._coordinators.partitions(asked, client_version=EPOCH_RISES))
        answer: asyncio.Future[Codes] = asyncio.get_running_loop().create_future()
        self._queues.setdefault(coordinator, []).append((asked, answer))
        if coordinator not in self._senders:
            self._senders[coordinator] = asyncio.create_task(self._send_to(coordinator))
        return await answer

    async def _send_to(self, coordinator: NodeId) -> None:
        """All there is for one broker."""
        queue = self._queues[coordinator]
        try:
            while queue:
                sent = _take(queue)
                try:
                    answers = await self._send(coordinator, [asked for asked, _ in sent.values()])
                except Exception as failure:  # noqa: BLE001 - whatever breaks costs these requests
                    self._containment.note(Cost.TASK, f"questions for broker {coordinator}", failure)
                    answers = {}
                for transactional_id, (asked, answer) in sent.items():
                    if not answer.done():
                        unanswered = _all(asked, ErrorCode.NETWORK_EXCEPTION)
                        answer.set_result(answers.get(transactional_id, unanswered))
        finally:
            del self._senders[coordinator]

    async def _send(self, coordinator: NodeId, asked: list[AddPartitionsToTxnTransaction]) -> dict[str, Codes]:
        """By transactional id."""
        request = AddPartitionsToTxnRequest(transactions=asked)
        try:
            response = await self._channels.ask(
                coordinator, request, AddPartitionsToTxnResponse, oldest=_FROM_BROKERS_SINCE
            )
        except KafkaError as refused:
            return {each.transactional_id: _unanswered(each, refused.code) for each in asked}
        if response.error_code:
            # That brokers do not trust each other is nothing that a producer could mend.
            hidden = response.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
            code = ErrorCode.INVALID_TXN_STATE if hidden else ErrorCode(response.error_code)
            return {each.transactional_id: _all(each, code) for each in asked}
        return {each.transactional_id: _codes(each) for each in response.results_by_transaction}

    def close(self) -> None:
        for task in self._senders.values():
            task.cancel()
        self._channels.close()


def _question(
    producer: TransactionalProducer, partitions: Iterable[HostedPartition], *, verify_only: bool
) -> AddPartitionsToTxnTransaction:
    topics: dict[str, list[int]] = {}
    for hosted in partitions:
        topics.setdefault(hosted.topic, []).append(hosted.index)
    return AddPartitionsToTxnTransaction(
        transactional_id=producer.transactional_id,
        producer_id=producer.producer_id,
        producer_epoch=producer.producer_epoch,
        verify_only=verify_only,
        topics=[AddPartitionsToTxnTopic(name=name, partitions=indexes) for name, indexes in topics.items()],
    )


def _take(queue: list[Asked]) -> dict[str, Asked]:
    """For one request, which speaks of a transactional id once; the rest stays."""
    sent: dict[str, Asked] = {}
    left: list[Asked] = []
    for each in queue:
        transactional_id = each[0].transactional_id
        if transactional_id in sent or len(sent) == MAX_TRANSACTIONS_PER_REQUEST:
            left.append(each)
        else:
            sent[transactional_id] = each
    queue[:] = left
    return sent


def _unanswered(asked: AddPartitionsToTxnTransaction, code: ErrorCode) -> Codes:
    """A coordinator that is too old to be asked is not asked, as before KIP-890."""
    return {} if code is ErrorCode.UNSUPPORTED_VERSION and asked.verify_only else _all(asked, code)


def _all(asked: AddPartitionsToTxnTransaction, code: ErrorCode) -> Codes:
    return {(topic.name, index): code for topic in asked.topics for index in topic.partitions}


def _codes(result: AddPartitionsToTxnResult) -> Codes:
    return {
        (topic.name, part.partition_index): _known_code(part.partition_error_code)
        for topic in result.topic_results
        for part in topic.results_by_partition
        if part.partition_error_code
    }


def _known_code(code: int) -> ErrorCode:
    """Who writes without having asked its coordinator does not know yet that others may be told they are fenced."""
    return ErrorCode.INVALID_PRODUCER_EPOCH if code == ErrorCode.PRODUCER_FENCED else ErrorCode(code)
