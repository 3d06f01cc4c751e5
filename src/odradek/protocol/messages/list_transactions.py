"""ListTransactions: the transactional ids a broker coordinates."""

from __future__ import annotations

from odradek.protocol.codec import Message, Struct, field
from odradek.protocol.primitives import ProducerId, TransactionalId, int16, int32, int64, string


class ListTransactionsRequest(Message, api_key=66, versions="0-2", flexible="0+"):
    state_filters: list[string]
    producer_id_filters: list[ProducerId]
    duration_filter: int64 = field(versions="1+", default=-1)
    transactional_id_pattern: string | None = field(versions="2+", nullable="2+", default=None)


class TransactionState(Struct):
    transactional_id: TransactionalId
    producer_id: ProducerId
    transaction_state: string


class ListTransactionsResponse(Message, api_key=66, versions="0-2", flexible="0+"):
    throttle_time_ms: int32 = 0
    error_code: int16 = 0
    unknown_state_filters: list[string] = field(default_factory=list)
    transaction_states: list[TransactionState] = field(default_factory=list)
