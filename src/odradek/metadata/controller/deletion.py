"""Deleting topics, named or by id."""

from __future__ import annotations

from odradek.decisions import Decision
from odradek.ids import ZERO_UUID, Uuid
from odradek.metadata.controller import decided, repeated
from odradek.metadata.image import Image
from odradek.metadata.records import RemoveTopicRecord
from odradek.protocol.codec import Message
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.messages.delete_topics import DeletableTopicResult, DeleteTopicsRequest, DeleteTopicsResponse

_DISABLED_ERROR_SINCE = 3
"""Older clients do not know TOPIC_DELETION_DISABLED."""


def delete_topics(
    image: Image, request: DeleteTopicsRequest, *, api_version: int, enabled: bool
) -> Decision[Message, DeleteTopicsResponse]:
    """Remove every topic that is named once and exists; each of the others is told why it stays."""
    if not enabled:
        return decided((), refuse_all(request, _disabled(api_version)))
    deletion = _Deletion(image)
    names = list(request.topic_names)
    for topic in request.topics:
        if topic.name is not None and topic.topic_id == ZERO_UUID:
            names.append(topic.name)
        elif topic.name is not None:
            deletion.refuse(
                topic.name,
                topic.topic_id,
                KafkaError(ErrorCode.INVALID_REQUEST, "You may not specify both topic name and topic id."),
            )
        elif topic.topic_id == ZERO_UUID:
            deletion.refuse(
                None, ZERO_UUID, KafkaError(ErrorCode.INVALID_REQUEST, "Neither topic name nor id were specified.")
            )
    ids = [topic.topic_id for topic in request.topics if topic.name is None and topic.topic_id != ZERO_UUID]
    deletion.by_id(ids)
    deletion.by_name(names)
    return decided(deletion.records(), DeleteTopicsResponse(responses=deletion.results()))


def refuse_all(request: DeleteTopicsRequest, why: KafkaError) -> DeleteTopicsResponse:
    """One answer for every topic that was asked for."""
    named: list[tuple[str | None, Uuid]] = [(name, ZERO_UUID) for name in request.topic_names]
    named += [(topic.name, topic.topic_id) for topic in request.topics]
    return DeleteTopicsResponse(
        responses=[
            DeletableTopicResult(name=name, topic_id=topic_id, error_code=why.code, error_message=why.message)
            for name, topic_id in named
        ]
    )


class _Deletion:
    """One request's topics on their way to a verdict."""

    def __init__(self, image: Image) -> None:
        self._topics = image.topics
        self._refused: list[DeletableTopicResult] = []
        self._going: dict[Uuid, str] = {}
        self._repeated: dict[Uuid, None] = {}

    def by_id(self, ids: list[Uuid]) -> None:
        for topic_id in dict.fromkeys(ids):
            topic = self._topics.by_id.get(topic_id)
            if ids.count(topic_id) > 1:
                self._repeated[topic_id] = None
                self.refuse(None, topic_id, KafkaError(ErrorCode.INVALID_REQUEST, "Duplicate topic id."))
            elif topic is None:
                self.refuse(None, topic_id, KafkaError(ErrorCode.UNKNOWN_TOPIC_ID))
            else:
                self._going[topic_id] = topic.name

    def by_name(self, names: list[str]) -> None:
        twice = repeated(names)
        for name in dict.fromkeys(names):
            topic = self._topics.by_name.get(name)
            if name in twice:
                self.refuse(name, ZERO_UUID, KafkaError(ErrorCode.INVALID_REQUEST, "Duplicate topic name."))
            elif topic is None:
                self.refuse(name, ZERO_UUID, KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
            elif topic.topic_id in self._going or topic.topic_id in self._repeated:
                self._going.pop(topic.topic_id, None)
                self._repeated[topic.topic_id] = None
                self.refuse(
                    name,
                    topic.topic_id,
                    KafkaError(
                        ErrorCode.INVALID_REQUEST, "The provided topic name maps to an ID that was already supplied."
                    ),
                )
            else:
                self._going[topic.topic_id] = name

    def refuse(self, name: str | None, topic_id: Uuid, why: KafkaError) -> None:
        self._refused.append(
            DeletableTopicResult(name=name, topic_id=topic_id, error_code=why.code, error_message=why.message)
        )

    def records(self) -> list[Message]:
        return [RemoveTopicRecord(topic_id=topic_id) for topic_id in self._going]

    def results(self) -> list[DeletableTopicResult]:
        gone = [
            DeletableTopicResult(name=name, topic_id=topic_id, error_code=ErrorCode.NONE)
            for topic_id, name in self._going.items()
        ]
        return [*self._refused, *gone]


def _disabled(api_version: int) -> KafkaError:
    if api_version < _DISABLED_ERROR_SINCE:
        return KafkaError(ErrorCode.INVALID_REQUEST, "Topic deletion is disabled.")
    return KafkaError(ErrorCode.TOPIC_DELETION_DISABLED)
