"""ConsumerGroupDescribe, versions 0 and 1: epochs, members and assignments of KIP-848 groups.

A cluster that has not finalized group.version 1 answers UNSUPPORTED_VERSION for every group.
"""

from __future__ import annotations

from odradek.metadata.features import GROUP_VERSION
from odradek.protocol.api import ApiKey
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    DescribedGroup,
)
from odradek.security.acl import Operation, ResourceType
from odradek.server.access.authorized_operations import GROUP_OPERATIONS
from odradek.server.access.authorizer import allowed_operations, require, topic_check
from odradek.server.handlers.context import Context
from odradek.server.net.routes import Role, serves


@serves(ApiKey.CONSUMER_GROUP_DESCRIBE, on=Role.BROKER)
async def handle(ctx: Context, request: ConsumerGroupDescribeRequest) -> ConsumerGroupDescribeResponse:
    groups = [await _describe(ctx, group_id) for group_id in request.group_ids]
    if request.include_authorized_operations:
        for group in groups:
            if group.error_code == ErrorCode.NONE:
                group.authorized_operations = allowed_operations(
                    ctx.caller, ResourceType.GROUP, group.group_id, GROUP_OPERATIONS
                )
    return ConsumerGroupDescribeResponse(groups=groups)


async def _describe(ctx: Context, group_id: str) -> DescribedGroup:
    try:
        if ctx.rooms.image.features.level(GROUP_VERSION) < 1:
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)
        require(ctx.caller, Operation.DESCRIBE, ResourceType.GROUP, group_id)
        group: DescribedGroup = await ctx.rooms.groups.ask(
            group_id, lambda shard, ticket, now: shard.describe_consumer_group(ticket, group_id)
        )
        _check_topics(ctx, group)
    except KafkaError as refused:
        return DescribedGroup(
            error_code=refused.code,
            error_message=refused.message,
            group_id=group_id,
            group_state="",
            group_epoch=0,
            assignment_epoch=0,
            assignor_name="",
            members=[],
        )
    return group


def _check_topics(ctx: Context, group: DescribedGroup) -> None:
    """Whoever may describe the group, but not all of its topics, is told neither."""
    may_see = topic_check(ctx.caller, Operation.DESCRIBE)
    if may_see is None:
        return
    for member in group.members:
        assigned = [*member.assignment.topic_partitions, *member.target_assignment.topic_partitions]
        names = [*member.subscribed_topic_names, *(each.topic_name for each in assigned)]
        if not all(map(may_see, names)):
            raise KafkaError(
                ErrorCode.TOPIC_AUTHORIZATION_FAILED,
                "The group has described topic(s) that the client is not authorized to describe.",
            )
