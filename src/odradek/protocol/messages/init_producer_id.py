"""InitProducerId: a producer id and epoch, for idempotence and transactions."""

from __future__ import annotations

from odradek.protocol.codec import Message, field
from odradek.protocol.primitives import ProducerId, TransactionalId, boolean, int16, int32


class InitProducerIdRequest(Message, api_key=22, versions="0-6", flexible="2+", unstable="6"):
    transactional_id: TransactionalId | None = field(nullable="0+")
    transaction_timeout_ms: int32
    producer_id: ProducerId = field(versions="3+", default=-1)
    producer_epoch: int16 = field(versions="3+", default=-1)
    enable2_pc: boolean = field(versions="6+", default=False)
    keep_prepared_txn: boolean = field(versions="6+", default=False)


class InitProducerIdResponse(Message, api_key=22, versions="0-6", flexible="2+"):
    throttle_time_ms: int32 = 0
    error_code: int16 = 0
    producer_id: ProducerId = -1
    producer_epoch: int16 = 0
    ongoing_txn_producer_id: ProducerId = field(versions="6+", default=-1)
    ongoing_txn_producer_epoch: int16 = field(versions="6+", default=-1)
