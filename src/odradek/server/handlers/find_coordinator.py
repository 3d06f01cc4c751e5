"""FindCoordinator, versions 0 to 6: which broker coordinates a group; from 4 on for several at once.

The topic behind the coordinators is created when it is first asked for. Kafka answers COORDINATOR_NOT_AVAILABLE
meanwhile and the client asks again; here the controller is at hand, so the answer waits for the topic.
Not done yet: transactional ids (COORDINATOR_NOT_AVAILABLE, which clients report once they are tired of asking) and
share partitions (INVALID_REQUEST, as a broker without share groups answers).
"""

from __future__ import annotations

from odradek.metadata.topic_names import GROUP_TOPIC
from odradek.protocol.api import ApiKey
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.messages.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse
from odradek.security.acl import Operation, ResourceType
from odradek.server.access.authorizer import require
from odradek.server.handlers.context import Context
from odradek.server.net.routes import Role, serves

GROUP, TRANSACTION, SHARE = 0, 1, 2
BATCHED_SINCE = 4
_NOBODY, _NO_PORT = -1, -1


@serves(ApiKey.FIND_COORDINATOR, on=Role.BROKER)
async def handle(ctx: Context, request: FindCoordinatorRequest) -> FindCoordinatorResponse:
    if ctx.api_version >= BATCHED_SINCE:
        return FindCoordinatorResponse(
            coordinators=[await _find(ctx, request.key_type, key) for key in request.coordinator_keys]
        )
    found = await _find(ctx, request.key_type, request.key)
    return FindCoordinatorResponse(
        error_code=found.error_code,
        error_message=found.error_message or ErrorCode.NONE.name,  # As Kafka says that all is well.
        node_id=found.node_id,
        host=found.host,
        port=found.port,
    )


async def _find(ctx: Context, key_type: int, key: str) -> Coordinator:
    try:
        return await _coordinator(ctx, key_type, key)
    except KafkaError as refused:
        return Coordinator(
            key=key,
            node_id=_NOBODY,
            host="",
            port=_NO_PORT,
            error_code=refused.code,
            error_message=refused.message,
        )


async def _coordinator(ctx: Context, key_type: int, key: str) -> Coordinator:
    protected = ResourceType.TRANSACTIONAL_ID if key_type == TRANSACTION else ResourceType.GROUP
    require(ctx.caller, Operation.DESCRIBE, protected, key)
    if key_type == TRANSACTION:
        raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "Transactions are not served by this cluster")
    if key_type != GROUP:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Coordinators of type {key_type} are not served by this cluster")
    rooms = ctx.rooms
    if GROUP_TOPIC not in rooms.image.topics.by_name:
        await _create_topic(ctx)
    image = rooms.image
    topic = image.topics.by_name.get(GROUP_TOPIC)
    if topic is not None:
        partition = topic.partitions[rooms.groups.partition_of(key)]
        broker = image.cluster.brokers.get(partition.leader)
        endpoint = None if broker is None or broker.fenced else broker.endpoint(ctx.caller.listener)
        if endpoint is not None:
            return Coordinator(
                key=key, node_id=partition.leader, host=endpoint.host, port=endpoint.port, error_message=""
            )
    raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE)


async def _create_topic(ctx: Context) -> None:
    try:
        await ctx.rooms.groups.create_topic(ctx.rooms.image)
    except KafkaError as refused:
        raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, refused.message) from refused
