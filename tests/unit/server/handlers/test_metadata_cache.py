"""Encoded topics are what the codec makes of described ones, are kept for as long as they are true, and no longer."""

from __future__ import annotations

import asyncio

import pytest
from tests.unit.metadata.building import broker, cluster, replayed, uuid

from odradek.metadata.image import Image
from odradek.metadata.image.topics import new_partition, partition_record
from odradek.metadata.records import BrokerRegistrationChangeRecord, PartitionChangeRecord, TopicRecord
from odradek.protocol.codec import decode, encode
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.metadata import MetadataResponse, MetadataResponseBroker, MetadataResponseTopic
from odradek.server.handlers.listener_view import ListenerView
from odradek.server.handlers.metadata_cache import (
    PARTITIONS_A_SLICE,
    EncodedTopics,
    MetadataCache,
    answer_encoder,
    describe_topic,
)

VERSIONS = range(14)
LISTENER = "PLAINTEXT"


def image_of(**topics: int) -> Image:
    """Topics with so many partitions each, on two brokers."""
    image = cluster(broker(1), broker(2))
    brokers = tuple(image.cluster.brokers)
    for number, (name, count) in enumerate(topics.items()):
        topic_id = uuid(300 + number)
        partition = new_partition(brokers, directories=(uuid(1001), uuid(2001)), isr=brokers)
        records = [partition_record(topic_id, index, partition) for index in range(count)]
        image = replayed(image, [TopicRecord(name=name, topic_id=topic_id), *records])
    return image


def response(topics: list[MetadataResponseTopic], version: int) -> MetadataResponse:
    return MetadataResponse(
        throttle_time_ms=7 if version >= 3 else 0,
        brokers=[MetadataResponseBroker(node_id=1, host="node", port=9092)],
        cluster_id="cluster" if version >= 2 else None,
        controller_id=1 if version else -1,
        topics=topics,
        error_code=3 if version >= 13 else 0,
    )


def all_topics(answers: MetadataCache, image: Image, version: int, listener_name: str = LISTENER) -> EncodedTopics:
    return asyncio.run(answers.all_topics(image, listener_name=listener_name, version=version))


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("topics", [{}, {"a": 1}, {"a": 1, "__consumer_offsets": 3}, {"a": 200, "b": 0}])
def test_the_bytes_are_those_of_the_codec(version: int, topics: dict[str, int]) -> None:
    image = image_of(**topics)
    view = ListenerView(image.cluster, LISTENER)
    plain = response([describe_topic(view, topic, version) for topic in image.topics.by_name.values()], version)
    encoded = answer_encoder(version)(response(all_topics(MetadataCache(), image, version), version))
    assert b"".join(encoded) == encode(plain, version)  # type: ignore[arg-type]
    assert answer_encoder(version)(plain) == [encode(plain, version)]


@pytest.mark.parametrize("version", VERSIONS)
def test_errors_stand_between_topics(version: int) -> None:
    image = image_of(a=1)
    missing = MetadataResponseTopic(error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, name="b", partitions=[])
    entries = [missing, image.topics.by_name["a"], missing]
    topics = asyncio.run(
        MetadataCache().some_topics(image, entries, listener_name=LISTENER, version=version)  # type: ignore[arg-type]
    )
    told = decode(MetadataResponse, version, b"".join(answer_encoder(version)(response(topics, version))))  # type: ignore[arg-type]
    assert [(topic.name, topic.error_code, len(topic.partitions)) for topic in told.topics] == [
        ("b", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, 0),
        ("a", 0, 1),
        ("b", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, 0),
    ]


def test_what_has_not_changed_is_not_encoded_again() -> None:
    answers = MetadataCache()
    image = image_of(a=1, b=2)
    first = all_topics(answers, image, 12)
    assert all_topics(answers, image, 12).pieces[0] is first.pieces[0]
    later = replayed(image, [TopicRecord(name="c", topic_id=uuid(400))])
    (a,) = asyncio.run(
        answers.some_topics(image, [image.topics.by_name["a"]], listener_name=LISTENER, version=12)
    ).pieces
    (again,) = asyncio.run(
        answers.some_topics(later, [later.topics.by_name["a"]], listener_name=LISTENER, version=12)
    ).pieces
    assert again is a
    assert all_topics(answers, later, 12).total == 3


def test_a_changed_partition_a_fenced_broker_and_another_listener_are_seen() -> None:
    answers = MetadataCache()
    image = image_of(a=1)

    def told(image: Image, listener_name: str = LISTENER) -> tuple[int, list[int], list[int]]:
        topics = all_topics(answers, image, 12, listener_name)
        decoded = decode(MetadataResponse, 12, b"".join(answer_encoder(12)(response(topics, 12))))  # type: ignore[arg-type]
        partition = decoded.topics[0].partitions[0]
        return partition.leader_id, partition.isr_nodes, partition.offline_replicas

    assert told(image) == (1, [1, 2], [])
    assert told(image, "ELSEWHERE") == (-1, [1, 2], [1, 2])
    moved = replayed(image, [PartitionChangeRecord(partition_id=0, topic_id=uuid(300), leader=2, isr=[2])])
    assert told(moved) == (2, [2], [])
    fenced = replayed(moved, [BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=1, fenced=1)])
    assert told(fenced) == (2, [2], [1])


def test_topics_that_are_gone_are_forgotten() -> None:
    answers = MetadataCache()
    all_topics(answers, image_of(a=1, b=1), 12)
    fewer = image_of(a=1)
    assert all_topics(answers, fewer, 12).total == 1
    topics = all_topics(answers, fewer, 12)
    told = decode(MetadataResponse, 12, b"".join(answer_encoder(12)(response(topics, 12))))  # type: ignore[arg-type]
    assert [topic.name for topic in told.topics] == ["a"]


def test_others_get_their_turn_while_much_is_built() -> None:
    image = image_of(a=PARTITIONS_A_SLICE * 3, b=PARTITIONS_A_SLICE)
    turns = 0

    async def build() -> None:
        nonlocal turns
        building = asyncio.ensure_future(MetadataCache().all_topics(image, listener_name=LISTENER, version=12))
        while not building.done():
            turns += 1
            await asyncio.sleep(0)

    asyncio.run(build())
    assert turns >= 4
