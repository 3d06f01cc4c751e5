"""DescribeQuorum, versions 0 to 2: the metadata log's leader, voters and observers, and how far each has come.

The one voter is this node, which always has all of the log.
"""

from __future__ import annotations

from odradek.ids import ZERO_UUID
from odradek.metadata.topic_names import METADATA_TOPIC
from odradek.protocol.api import ApiKey
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    Listener,
    Node,
    PartitionData,
    ReplicaState,
    TopicData,
)
from odradek.security.acl import Operation, ResourceType
from odradek.server.authorizer import require
from odradek.server.context import Context
from odradek.server.routes import Role, serves


@serves(ApiKey.DESCRIBE_QUORUM, on=Role.BROKER | Role.CONTROLLER, forwarded=True)
async def handle(ctx: Context, request: DescribeQuorumRequest) -> DescribeQuorumResponse:
    require(ctx, Operation.DESCRIBE, ResourceType.CLUSTER)
    topics = []
    described = False
    for topic in request.topics:
        partitions = []
        for wanted in topic.partitions:
            if topic.topic_name == METADATA_TOPIC and wanted.partition_index == 0:
                partitions.append(_describe(ctx))
                described = True
            else:
                partitions.append(_unknown(wanted.partition_index))
        topics.append(TopicData(topic_name=topic.topic_name, partitions=partitions))
    return DescribeQuorumResponse(topics=topics, nodes=_nodes(ctx) if described else [])


def _describe(ctx: Context) -> PartitionData:
    quorum = ctx.node.quorum
    me = ReplicaState(
        replica_id=ctx.node.node_id,
        replica_directory_id=quorum.directory_id if quorum.kraft_version else ZERO_UUID,
        log_end_offset=quorum.next_offset,
        last_fetch_timestamp=ctx.now_ms,
        last_caught_up_timestamp=ctx.now_ms,
    )
    return PartitionData(
        partition_index=0,
        leader_id=quorum.leader_id,
        leader_epoch=quorum.epoch,
        high_watermark=quorum.high_watermark,
        current_voters=[me],
        observers=[],
    )


def _unknown(index: int) -> PartitionData:
    code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return PartitionData(
        partition_index=index,
        error_code=code,
        error_message=code.default_message,
        leader_id=0,
        leader_epoch=0,
        high_watermark=0,
        current_voters=[],
        observers=[],
    )


def _nodes(ctx: Context) -> list[Node]:
    return [
        Node(
            node_id=controller.controller_id,
            listeners=[Listener(name=each.name, host=each.host, port=each.port) for each in controller.endpoints],
        )
        for controller in ctx.node.image.cluster.controllers.values()
    ]
