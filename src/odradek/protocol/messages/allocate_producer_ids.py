"""AllocateProducerIds: a block of producer ids for a broker."""

from __future__ import annotations

from odradek.protocol.codec import Message
from odradek.protocol.primitives import BrokerId, ProducerId, int16, int32, int64


class AllocateProducerIdsRequest(Message, api_key=67, versions="0", flexible="0+"):
    broker_id: BrokerId
    broker_epoch: int64 = -1


class AllocateProducerIdsResponse(Message, api_key=67, versions="0", flexible="0+"):
    throttle_time_ms: int32 = 0
    error_code: int16 = 0
    producer_id_start: ProducerId = 0
    producer_id_len: int32 = 0
