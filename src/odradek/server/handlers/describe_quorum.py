"""DescribeQuorum, versions 0 to 2: the metadata log's leader, voters and observers, and how far each has come.

Only the leader knows; a broker passes the question on to it.
"""

from __future__ import annotations

from odradek.metadata.raft.progress import NEVER_MS, Replica
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
from odradek.server.access.authorizer import require
from odradek.server.handlers.context import Context
from odradek.server.net.routes import Role, serves


@serves(ApiKey.DESCRIBE_QUORUM, on=Role.BROKER | Role.CONTROLLER, forwarded=True)
async def handle(ctx: Context, request: DescribeQuorumRequest) -> DescribeQuorumResponse:
    require(ctx.caller, Operation.DESCRIBE, ResourceType.CLUSTER)
    topics = []
    described = False
    for topic in request.topics:
        partitions = []
        for wanted in topic.partitions:
            if topic.topic_name != METADATA_TOPIC or wanted.partition_index != 0:
                partitions.append(_failed(wanted.partition_index, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
            elif ctx.rooms.quorum.raft.progress is None:
                partitions.append(_failed(0, ErrorCode.NOT_LEADER_OR_FOLLOWER))
            else:
                partitions.append(_describe(ctx))
                described = True
        topics.append(TopicData(topic_name=topic.topic_name, partitions=partitions))
    return DescribeQuorumResponse(topics=topics, nodes=_nodes(ctx) if described else [])


def _describe(ctx: Context) -> PartitionData:
    quorum = ctx.rooms.quorum
    progress = quorum.raft.progress
    assert progress is not None
    monotonic_ms = ctx.rooms.world.clock.monotonic_ms()
    return PartitionData(
        partition_index=0,
        leader_id=quorum.leader_id,
        leader_epoch=quorum.epoch,
        high_watermark=quorum.high_watermark,
        current_voters=[_state(ctx, voter) for voter in progress.voters],
        observers=[_state(ctx, observer) for observer in progress.observers(monotonic_ms)],
    )


def _state(ctx: Context, replica: Replica) -> ReplicaState:
    quorum = ctx.rooms.quorum
    if replica.key.node_id == quorum.me.node_id:
        return ReplicaState(
            replica_id=replica.key.node_id,
            replica_directory_id=replica.key.directory_id,
            log_end_offset=quorum.next_offset,
            last_fetch_timestamp=ctx.now_ms,
            last_caught_up_timestamp=ctx.now_ms,
        )
    since_ms = ctx.now_ms - ctx.rooms.world.clock.monotonic_ms()
    return ReplicaState(
        replica_id=replica.key.node_id,
        replica_directory_id=replica.key.directory_id,
        log_end_offset=replica.end_offset,
        last_fetch_timestamp=_wall_ms(replica.last_fetch_ms, since_ms),
        last_caught_up_timestamp=_wall_ms(replica.last_caught_up_ms, since_ms),
    )


def _wall_ms(monotonic_ms: int, since_ms: int) -> int:
    return -1 if monotonic_ms == NEVER_MS else monotonic_ms + since_ms


def _failed(index: int, code: ErrorCode) -> PartitionData:
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
    quorum = ctx.rooms.quorum
    nodes = []
    for voter in quorum.voters:
        listeners = voter.listeners or ((quorum.listener_name, voter.host, voter.port),)
        named = [Listener(name=name, host=host, port=port) for name, host, port in listeners]
        nodes.append(Node(node_id=voter.node_id, listeners=named))
    return nodes
