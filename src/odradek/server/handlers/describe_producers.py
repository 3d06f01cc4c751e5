"""DescribeProducers, version 0: the producers that partitions remember, with their epochs, last sequence numbers and
where their open transactions begin. Any replica answers, for what is in its own log.
"""

from __future__ import annotations

from odradek.protocol.api import ApiKey
from odradek.protocol.errors import KafkaError
from odradek.protocol.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)
from odradek.security.acl import Operation, ResourceType
from odradek.server.access.authorizer import require
from odradek.server.handlers.context import Context
from odradek.server.net.routes import Role, serves


@serves(ApiKey.DESCRIBE_PRODUCERS, on=Role.BROKER)
async def handle(ctx: Context, request: DescribeProducersRequest) -> DescribeProducersResponse:
    return DescribeProducersResponse(
        topics=[
            TopicResponse(
                name=topic.name, partitions=[_describe(ctx, topic.name, index) for index in topic.partition_indexes]
            )
            for topic in request.topics
        ]
    )


def _describe(ctx: Context, topic: str, index: int) -> PartitionResponse:
    try:
        require(ctx.caller, Operation.READ, ResourceType.TOPIC, topic)
        hosted = ctx.rooms.replicas.require(topic, index)
    except KafkaError as refused:
        return PartitionResponse(
            partition_index=index, error_code=refused.code, error_message=refused.message, active_producers=[]
        )
    return PartitionResponse(
        partition_index=index,
        active_producers=[
            ProducerState(
                producer_id=producer_id,
                producer_epoch=producer.epoch,
                last_sequence=producer.last_sequence,
                last_timestamp=producer.last_timestamp,
                coordinator_epoch=producer.coordinator_epoch,
                current_txn_start_offset=producer.txn_first_offset,
            )
            for producer_id, producer in hosted.partition.log.producers
        ],
    )
