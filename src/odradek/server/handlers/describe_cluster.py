"""DescribeCluster, versions 0 to 2: the cluster's id and its nodes.

A broker's listener describes brokers (from version 2 on also fenced ones, if asked), a controller's listener describes
controllers (KIP-919).
"""

from __future__ import annotations

from odradek.ids import NO_NODE
from odradek.metadata.controller.brokers import live_controller
from odradek.protocol.api import ApiKey
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.messages.describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)
from odradek.server.access.authorized_operations import NOT_ASKED_FOR
from odradek.server.access.authorizer import cluster_operations
from odradek.server.handlers.context import Context
from odradek.server.net.routes import Role, serves

_BROKERS = 1
_CONTROLLERS = 2
_NAMES = {_BROKERS: "BROKER", _CONTROLLERS: "CONTROLLER"}


@serves(ApiKey.DESCRIBE_CLUSTER, on=Role.BROKER | Role.CONTROLLER)
async def handle(ctx: Context, request: DescribeClusterRequest) -> DescribeClusterResponse:
    here = _CONTROLLERS if ctx.caller.listener in ctx.rooms.config.controller_listener_names else _BROKERS
    try:
        _check_endpoint_type(request.endpoint_type, here=here, api_version=ctx.api_version)
    except KafkaError as refused:
        return DescribeClusterResponse(error_code=refused.code, error_message=refused.message)
    if here == _BROKERS:
        nodes = _brokers(ctx, include_fenced=request.include_fenced_brokers)
        controller_id = live_controller(ctx.rooms.image, ctx.rooms.node_id, ctx.rooms.world.entropy)
    else:
        nodes = _controllers(ctx)
        controller_id = ctx.rooms.quorum.leader_id
    return DescribeClusterResponse(
        endpoint_type=here,
        cluster_id=ctx.rooms.cluster_id,
        controller_id=controller_id if any(node.broker_id == controller_id for node in nodes) else NO_NODE,
        brokers=nodes,
        cluster_authorized_operations=(
            cluster_operations(ctx.caller) if request.include_cluster_authorized_operations else NOT_ASKED_FOR
        ),
    )


def _check_endpoint_type(wanted: int, *, here: int, api_version: int) -> None:
    if wanted not in _NAMES:
        code = ErrorCode.INVALID_REQUEST if api_version == 0 else ErrorCode.UNSUPPORTED_ENDPOINT_TYPE
        raise KafkaError(code, f"Unsupported endpoint type {wanted}")
    if wanted != here:
        code = ErrorCode.INVALID_REQUEST if api_version == 0 else ErrorCode.MISMATCHED_ENDPOINT_TYPE
        raise KafkaError(
            code,
            f"The request was sent to an endpoint of type {_NAMES[here]}, but we wanted an endpoint of type "
            f"{_NAMES[wanted]}",
        )


def _brokers(ctx: Context, *, include_fenced: bool) -> list[DescribeClusterBroker]:
    listed = []
    for broker in ctx.rooms.image.cluster.brokers.values():
        endpoint = broker.endpoint(ctx.caller.listener)
        if endpoint is not None and (include_fenced or not broker.fenced):
            listed.append(
                DescribeClusterBroker(
                    broker_id=broker.broker_id,
                    host=endpoint.host,
                    port=endpoint.port,
                    rack=broker.rack,
                    is_fenced=broker.fenced,
                )
            )
    return listed


def _controllers(ctx: Context) -> list[DescribeClusterBroker]:
    listed = []
    for controller in ctx.rooms.image.cluster.controllers.values():
        endpoint = controller.endpoint(ctx.caller.listener)
        if endpoint is not None:
            listed.append(
                DescribeClusterBroker(broker_id=controller.controller_id, host=endpoint.host, port=endpoint.port)
            )
    return listed
