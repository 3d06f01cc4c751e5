"""CreateTopics, versions 2 to 7: new topics, by partition count or by hand-made assignment.

The answer leaves once the topics are durable in the metadata log and this node serves their partitions. With
`validate_only` nothing is created, and the answer says what would be.
Not done yet: controller mutation quotas (KIP-599) and create-topic policies.
"""

from __future__ import annotations

from odradek.protocol.api import ApiKey
from odradek.protocol.errors import KafkaError
from odradek.protocol.messages.create_topics import CreatableTopicResult, CreateTopicsRequest, CreateTopicsResponse
from odradek.server.context import Context
from odradek.server.routes import Role, serves


@serves(ApiKey.CREATE_TOPICS, on=Role.BROKER | Role.CONTROLLER)
async def handle(ctx: Context, request: CreateTopicsRequest) -> CreateTopicsResponse:
    try:
        return await ctx.node.controller.create_topics(request)
    except KafkaError as refused:
        return CreateTopicsResponse(
            topics=[
                CreatableTopicResult(name=topic.name, error_code=refused.code, error_message=refused.message)
                for topic in request.topics
            ]
        )
