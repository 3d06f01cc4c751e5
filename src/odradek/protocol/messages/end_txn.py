"""EndTxn: a transaction commits or aborts."""

from __future__ import annotations

from odradek.protocol.codec import Message, field
from odradek.protocol.primitives import ProducerId, TransactionalId, boolean, int16, int32


class EndTxnRequest(Message, api_key=26, versions="0-5", flexible="3+"):
    transactional_id: TransactionalId
    producer_id: ProducerId
    producer_epoch: int16
    committed: boolean


class EndTxnResponse(Message, api_key=26, versions="0-5", flexible="3+"):
    throttle_time_ms: int32 = 0
    error_code: int16 = 0
    producer_id: ProducerId = field(versions="5+", default=-1)
    producer_epoch: int16 = field(versions="5+", default=-1)
