"""Blocks of producer ids: each broker asks for one and hands its ids out, so that no id is given twice."""

from __future__ import annotations

from odradek.decisions import Decision
from odradek.ids import NodeId
from odradek.metadata.controller import decided
from odradek.metadata.controller.brokers import registered
from odradek.metadata.image import Image
from odradek.metadata.records import ProducerIdsRecord
from odradek.protocol.codec import Message
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.messages.allocate_producer_ids import AllocateProducerIdsRequest, AllocateProducerIdsResponse

BLOCK_SIZE = 1000
_LAST_PRODUCER_ID = (1 << 63) - 1


def allocate_producer_ids(
    image: Image, request: AllocateProducerIdsRequest
) -> Decision[Message, AllocateProducerIdsResponse]:
    """The next block for a registered broker; a broker of another incarnation gets STALE_BROKER_EPOCH."""
    registered(image, NodeId(request.broker_id), request.broker_epoch)
    first = image.next_producer_id
    if first > _LAST_PRODUCER_ID - BLOCK_SIZE:
        raise KafkaError(
            ErrorCode.UNKNOWN_SERVER_ERROR, "Exhausted all producerIds as the next block's end producerId is too large"
        )
    record = ProducerIdsRecord(
        broker_id=request.broker_id, broker_epoch=request.broker_epoch, next_producer_id=first + BLOCK_SIZE
    )
    return decided([record], AllocateProducerIdsResponse(producer_id_start=first, producer_id_len=BLOCK_SIZE))
