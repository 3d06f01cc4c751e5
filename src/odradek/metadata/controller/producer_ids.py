"""Blocks of producer ids: each broker asks for one and hands its ids out, so that no id is given twice."""

from __future__ import annotations

from odradek.decisions import Decision
from odradek.ids import NodeId, ProducerId
from odradek.metadata.controller import decided
from odradek.metadata.image import Image
from odradek.metadata.records import ProducerIdsRecord
from odradek.protocol.codec import Message
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.values import value

BLOCK_SIZE = 1000
_LAST_PRODUCER_ID = (1 << 63) - 1


@value
class ProducerIdBlock:
    """Ids from `first` on, `size` of them."""

    first: ProducerId
    size: int


def allocate_producer_ids(image: Image, *, broker_id: NodeId, broker_epoch: int) -> Decision[Message, ProducerIdBlock]:
    """The next block for a registered broker; a broker of another incarnation gets STALE_BROKER_EPOCH."""
    broker = image.cluster.brokers.get(broker_id)
    if broker is None:
        raise KafkaError(ErrorCode.BROKER_ID_NOT_REGISTERED, f"Broker ID {broker_id} is not currently registered")
    if broker.broker_epoch != broker_epoch:
        raise KafkaError(
            ErrorCode.STALE_BROKER_EPOCH,
            f"Expected broker epoch {broker.broker_epoch}, but got broker epoch {broker_epoch}",
        )
    first = image.next_producer_id
    if first > _LAST_PRODUCER_ID - BLOCK_SIZE:
        raise KafkaError(
            ErrorCode.UNKNOWN_SERVER_ERROR, "Exhausted all producerIds as the next block's end producerId is too large"
        )
    record = ProducerIdsRecord(broker_id=broker_id, broker_epoch=broker_epoch, next_producer_id=first + BLOCK_SIZE)
    return decided([record], ProducerIdBlock(ProducerId(first), BLOCK_SIZE))
