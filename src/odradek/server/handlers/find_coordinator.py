"""FindCoordinator, versions 0 to 6: which broker coordinates a group or a transactional id; from 4 on for several.

The topic behind the coordinators is created when it is first asked for. Kafka answers COORDINATOR_NOT_AVAILABLE
meanwhile and the client asks again; here the controller is at hand, so the answer waits for the topic.
Share partitions are answered with INVALID_REQUEST, as a broker without share groups does.
"""

from __future__ import annotations

from typing import Any, TypeAlias

from odradek.metadata.image import Image
from odradek.protocol.api import ApiKey
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.messages.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse
from odradek.security.acl import Operation, ResourceType
from odradek.server.access.authorizer import require
from odradek.server.coordinators.coordinator import Coordinator as CoordinatorOf
from odradek.server.handlers.context import Context
from odradek.server.net.routes import Role, serves

GROUP, TRANSACTION, SHARE = 0, 1, 2
BATCHED_SINCE = 4
_NOBODY, _NO_PORT = -1, -1

AnyCoordinator: TypeAlias = CoordinatorOf[Any]


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
    rooms = ctx.rooms
    coordinators: AnyCoordinator
    if key_type == GROUP:
        coordinators = rooms.groups
    elif key_type == TRANSACTION:
        coordinators = rooms.transactions
    else:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Coordinators of type {key_type} are not served by this cluster")
    if coordinators.topic.name not in rooms.image.topics.by_name:
        await _create_topic(coordinators, rooms.image)
    image = rooms.image
    topic = image.topics.by_name.get(coordinators.topic.name)
    if topic is not None:
        partition = topic.partitions[coordinators.partition_of(key)]
        broker = image.cluster.brokers.get(partition.leader)
        endpoint = None if broker is None or broker.fenced else broker.endpoint(ctx.caller.listener)
        if endpoint is not None:
            return Coordinator(
                key=key, node_id=partition.leader, host=endpoint.host, port=endpoint.port, error_message=""
            )
    raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE)


async def _create_topic(coordinators: AnyCoordinator, image: Image) -> None:
    try:
        await coordinators.create_topic(image)
    except KafkaError as refused:
        raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, refused.message) from refused
