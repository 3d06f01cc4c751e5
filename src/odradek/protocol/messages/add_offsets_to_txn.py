"""AddOffsetsToTxn: a group whose offsets a transaction will commit."""

from __future__ import annotations

from odradek.protocol.codec import Message
from odradek.protocol.primitives import GroupId, ProducerId, TransactionalId, int16, int32


class AddOffsetsToTxnRequest(Message, api_key=25, versions="0-4", flexible="3+"):
    transactional_id: TransactionalId
    producer_id: ProducerId
    producer_epoch: int16
    group_id: GroupId


class AddOffsetsToTxnResponse(Message, api_key=25, versions="0-4", flexible="3+"):
    throttle_time_ms: int32 = 0
    error_code: int16 = 0
