"""Transactional ids and their transactions, as coordinators see them, and means to end what hangs."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence

from odradek.client.admin.base import AdminBase, Outcomes, outcome
from odradek.client.cluster import CoordinatorKind, TopicPartition
from odradek.client.errors import check
from odradek.client.leaders import Answers, ask_leaders
from odradek.client.patience import ask_within
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.messages.describe_transactions import DescribeTransactionsRequest, DescribeTransactionsResponse
from odradek.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from odradek.protocol.messages.list_transactions import (
    ListTransactionsRequest,
    ListTransactionsResponse,
    TransactionState,
)
from odradek.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from odradek.values import value

ALL_DURATIONS = -1

_DURATION_SINCE, _PATTERN_SINCE = 1, 2
"""Versions of ListTransactions: to an earlier one the filter cannot be told."""


@value
class TransactionDescription:
    """A transactional id as its coordinator sees it."""

    transactional_id: str
    coordinator: int
    state: str
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    start_ms: int | None
    """When its last transaction began."""
    partitions: tuple[TopicPartition, ...]
    """Of its transaction, those that have not been told yet how it ended."""


@value
class HangingTransaction:
    """A transaction of one producer in one partition that is to be aborted there."""

    partition: TopicPartition
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    """At least that of the coordinator which wrote the producer's last marker there; 0 if none is known."""


class TransactionAdmin(AdminBase):
    """What can be asked about transactions."""

    async def list_transactions_by_broker(
        self,
        *,
        states: Collection[str] = (),
        producer_ids: Collection[int] = (),
        longer_than_ms: int = ALL_DURATIONS,
        pattern: str | None = None,
        timeout_ms: int | None = None,
    ) -> dict[int, list[TransactionState] | KafkaError]:
        """The transactional ids that each broker coordinates; an error for one that does not tell in time.

        A pattern is a regular expression in RE2's language, for the whole transactional id.
        """
        request = ListTransactionsRequest(
            state_filters=list(states),
            producer_id_filters=list(producer_ids),
            duration_filter=longer_than_ms,
            transactional_id_pattern=pattern,
        )
        needed = _PATTERN_SINCE if pattern is not None else _DURATION_SINCE if longer_than_ms >= 0 else 0

        async def ask(node_id: int, left_ms: int) -> list[TransactionState]:
            response = await ask_within(
                self.cluster, request, ListTransactionsResponse, node_id=node_id, timeout_ms=left_ms
            )
            version = self.cluster.version_for(await self.cluster.connection(node_id), ListTransactionsRequest)
            if version < needed:
                raise KafkaError(
                    ErrorCode.UNSUPPORTED_VERSION,
                    f"broker {node_id} serves version {version} of LIST_TRANSACTIONS, and the filter needs {needed}",
                )
            check(response.error_code)
            if response.unknown_state_filters:
                unknown = ", ".join(response.unknown_state_filters)
                raise KafkaError(ErrorCode.INVALID_REQUEST, f"broker {node_id} knows no state {unknown}")
            return response.transaction_states

        return await self._ask_brokers(None, ask, timeout_ms)

    async def describe_transactions(
        self, transactional_ids: Collection[str]
    ) -> dict[str, TransactionDescription | KafkaError]:
        """State, producer and open partitions of transactional ids."""
        named = list(dict.fromkeys(transactional_ids))
        described = await asyncio.gather(*[self._described(each) for each in named])
        return dict(zip(named, described, strict=True))

    async def fence_producer(self, transactional_id: str, *, transaction_timeout_ms: int) -> tuple[int, int]:
        """Take a transactional id from whoever uses it, and abort what is open; its producer id and epoch from now on.

        The timeout is that of its later transactions, as if a producer had come that wants it.
        """
        request = InitProducerIdRequest(
            transactional_id=transactional_id, transaction_timeout_ms=transaction_timeout_ms
        )

        async def attempt() -> tuple[int, int]:
            response = await self.cluster.ask_coordinator(
                transactional_id, request, InitProducerIdResponse, kind=CoordinatorKind.TRANSACTION
            )
            self.cluster.check_coordinated(transactional_id, response.error_code, kind=CoordinatorKind.TRANSACTION)
            return response.producer_id, response.producer_epoch

        return await self.cluster.retrying(attempt)

    async def abort_transactions(self, hanging: Sequence[HangingTransaction]) -> Outcomes[TopicPartition]:
        """Have markers written that abort transactions of which no coordinator knows; one in a partition at a time.

        Nobody checks that: a transaction that is still open would be torn, aborted in some of its partitions only.
        """
        by_partition = {each.partition: each for each in hanging}

        async def ask(node_id: int, partitions: list[TopicPartition]) -> Answers[None]:
            request = WriteTxnMarkersRequest(
                markers=[
                    WritableTxnMarker(
                        producer_id=by_partition[each].producer_id,
                        producer_epoch=by_partition[each].producer_epoch,
                        transaction_result=False,
                        topics=[WritableTxnMarkerTopic(name=each.topic, partition_indexes=[each.partition])],
                        coordinator_epoch=by_partition[each].coordinator_epoch,
                    )
                    for each in partitions
                ]
            )
            response = await self.cluster.ask(request, WriteTxnMarkersResponse, node_id=node_id)
            return {
                TopicPartition(topic.name, each.partition_index): outcome(each.error_code)
                for marker in response.markers
                for topic in marker.topics
                for each in topic.partitions
            }

        return await ask_leaders(self.cluster, by_partition, ask, timeout_ms=self._timeout_ms)

    async def _described(self, transactional_id: str) -> TransactionDescription | KafkaError:
        try:
            return await self.cluster.retrying(lambda: self._describe(transactional_id))
        except KafkaError as failure:
            return failure

    async def _describe(self, transactional_id: str) -> TransactionDescription:
        request = DescribeTransactionsRequest(transactional_ids=[transactional_id])
        response = await self.cluster.ask_coordinator(
            transactional_id, request, DescribeTransactionsResponse, kind=CoordinatorKind.TRANSACTION
        )
        state = response.transaction_states[0]
        self.cluster.check_coordinated(transactional_id, state.error_code, kind=CoordinatorKind.TRANSACTION)
        return TransactionDescription(
            transactional_id=transactional_id,
            coordinator=await self.cluster.coordinator(transactional_id, CoordinatorKind.TRANSACTION),
            state=state.transaction_state,
            producer_id=state.producer_id,
            producer_epoch=state.producer_epoch,
            timeout_ms=state.transaction_timeout_ms,
            start_ms=state.transaction_start_time_ms if state.transaction_start_time_ms >= 0 else None,
            partitions=tuple(
                TopicPartition(topic.topic, partition) for topic in state.topics for partition in topic.partitions
            ),
        )
