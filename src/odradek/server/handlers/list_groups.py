"""ListGroups, versions 0 to 5: the groups that this broker coordinates, by state (from 4 on) and type (from 5 on)."""

from __future__ import annotations

from odradek.protocol.api import ApiKey
from odradek.protocol.errors import KafkaError
from odradek.protocol.messages.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse
from odradek.security.acl import Operation, ResourceType
from odradek.server.access.authorizer import allowed
from odradek.server.handlers.context import Context
from odradek.server.net.routes import Role, serves


@serves(ApiKey.LIST_GROUPS, on=Role.BROKER)
async def handle(ctx: Context, request: ListGroupsRequest) -> ListGroupsResponse:
    states = frozenset(state.lower() for state in request.states_filter)
    types = frozenset(name.lower() for name in request.types_filter)
    listed: list[ListedGroup] = []
    try:
        for response in await ctx.rooms.groups.ask_all(lambda shard, ticket, now: shard.list_groups(ticket)):
            listed += response.groups
    except KafkaError as refused:
        return ListGroupsResponse(error_code=refused.code)
    if not allowed(ctx.caller, Operation.DESCRIBE, ResourceType.CLUSTER):
        listed = [each for each in listed if allowed(ctx.caller, Operation.DESCRIBE, ResourceType.GROUP, each.group_id)]
    return ListGroupsResponse(
        groups=[
            group
            for group in listed
            if (not states or group.group_state.lower() in states) and (not types or group.group_type in types)
        ]
    )
