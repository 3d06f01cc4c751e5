"""DeleteTopics: topics to delete, by name or id."""

from __future__ import annotations

from odradek.ids import ZERO_UUID
from odradek.protocol.codec import Message, Struct, field
from odradek.protocol.primitives import TopicName, int16, int32, string, uuid


class DeleteTopicState(Struct):
    name: TopicName | None = field(nullable="6+", default=None)
    topic_id: uuid


class DeleteTopicsRequest(Message, api_key=20, versions="1-6", flexible="4+"):
    topics: list[DeleteTopicState] = field(versions="6+", default_factory=list)
    topic_names: list[TopicName] = field(versions="0-5", default_factory=list)
    timeout_ms: int32


class DeletableTopicResult(Struct):
    name: TopicName | None = field(nullable="6+")
    topic_id: uuid = field(versions="6+", default=ZERO_UUID)
    error_code: int16 = 0
    error_message: string | None = field(versions="5+", nullable="5+", default=None)


class DeleteTopicsResponse(Message, api_key=20, versions="1-6", flexible="4+"):
    throttle_time_ms: int32 = 0
    responses: list[DeletableTopicResult] = field(default_factory=list)
