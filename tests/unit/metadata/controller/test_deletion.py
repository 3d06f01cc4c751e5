from __future__ import annotations

from tests.unit.metadata.building import cluster, replayed, uuid

from odradek.ids import ZERO_UUID, Uuid
from odradek.metadata.controller.deletion import delete_topics
from odradek.metadata.image import Image
from odradek.metadata.records import TopicRecord
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState

IMAGE = replayed(cluster(), [TopicRecord(name=name, topic_id=uuid(number)) for number, name in enumerate("abc", 201)])


def delete(
    *topics: str | Uuid | tuple[str | None, Uuid], names: tuple[str, ...] = (), version: int = 6, enabled: bool = True
) -> tuple[list[tuple[str | None, Uuid, str, str | None]], Image]:
    states = []
    for topic in topics:
        name, topic_id = (
            topic if isinstance(topic, tuple) else (topic, ZERO_UUID) if isinstance(topic, str) else (None, topic)
        )
        states.append(DeleteTopicState(name=name, topic_id=topic_id))
    request = DeleteTopicsRequest(topics=states, topic_names=list(names), timeout_ms=0)
    decision = delete_topics(IMAGE, request, api_version=version, enabled=enabled)
    ((_, response),) = decision.answers
    results = [
        (each.name, each.topic_id, ErrorCode(each.error_code).name, each.error_message) for each in response.responses
    ]
    return results, replayed(IMAGE, decision.records)


def test_by_name_and_by_id() -> None:
    results, image = delete("a", uuid(202))
    assert results == [("b", uuid(202), "NONE", None), ("a", uuid(201), "NONE", None)]
    assert list(image.topics.by_name) == ["c"]


def test_by_name_as_before_version_6() -> None:
    results, image = delete(names=("a", "nope"), version=5)
    assert [(name, code) for name, _, code, _ in results] == [("nope", "UNKNOWN_TOPIC_OR_PARTITION"), ("a", "NONE")]
    assert list(image.topics.by_name) == ["b", "c"]


def test_what_is_not_there() -> None:
    results, image = delete("nope", uuid(999))
    assert [(name, code) for name, _, code, _ in results] == [
        (None, "UNKNOWN_TOPIC_ID"),
        ("nope", "UNKNOWN_TOPIC_OR_PARTITION"),
    ]
    assert image.topics is IMAGE.topics


def test_questions_that_make_no_sense() -> None:
    results, image = delete((None, ZERO_UUID), ("a", uuid(201)), "b", "b", uuid(203), uuid(203))
    assert [(name, code, message) for name, _, code, message in results] == [
        (None, "INVALID_REQUEST", "Neither topic name nor id were specified."),
        ("a", "INVALID_REQUEST", "You may not specify both topic name and topic id."),
        (None, "INVALID_REQUEST", "Duplicate topic id."),
        ("b", "INVALID_REQUEST", "Duplicate topic name."),
    ]
    assert image.topics is IMAGE.topics


def test_a_topic_by_both_its_names_is_not_deleted() -> None:
    results, image = delete(uuid(201), "a")
    assert results == [
        ("a", uuid(201), "INVALID_REQUEST", "The provided topic name maps to an ID that was already supplied.")
    ]
    assert "a" in image.topics.by_name


def test_deletion_may_be_disabled() -> None:
    results, image = delete("a", enabled=False)
    assert [code for _, _, code, _ in results] == ["TOPIC_DELETION_DISABLED"]
    assert image.topics is IMAGE.topics
    results, _ = delete(names=("a",), version=2, enabled=False)
    assert [(code, message) for _, _, code, message in results] == [("INVALID_REQUEST", "Topic deletion is disabled.")]
