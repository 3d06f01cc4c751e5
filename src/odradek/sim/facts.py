"""Single facts in an image of the metadata, as text, so that a history can say what a change was to bring about."""

from __future__ import annotations

from odradek.ids import uuid_text
from odradek.metadata.image import Image
from odradek.metadata.image.client_quotas import USER
from odradek.sim.history import Fact

TOPIC = "topic"
PARTITIONS = "partitions"
TOPIC_CONFIG = "config"
QUOTA = "quota"


def find(image: Image, fact: Fact) -> str | None:
    """What an image says of a fact; None if nothing."""
    match fact.kind:
        case "topic":
            return "there" if fact.name in image.topics.by_name else None
        case "partitions":
            topic = image.topics.by_name.get(fact.name)
            return None if topic is None else str(len(topic.partitions))
        case "config":
            return image.configs.of_topic(fact.name).get(fact.key)
        case "quota":
            limit = image.client_quotas.of(((USER, fact.name),)).get(fact.key)
            return None if limit is None else f"{limit:.0f}"
        case _:
            raise ValueError(f"no such kind of fact: {fact.kind}")


def epochs(image: Image, *, but_those_of: Image | None = None) -> dict[str, int]:
    """Every number in an image that only ever grows, by name; without what is the same part of another image."""
    other = but_those_of
    numbers: dict[str, int] = {}
    if other is None or image.cluster is not other.cluster:
        for broker in image.cluster.brokers.values():
            numbers[f"epoch of broker {broker.broker_id}"] = broker.broker_epoch
    numbers["next producer id"] = image.next_producer_id
    if other is None or image.topics is not other.topics:
        for topic in image.topics.by_id.values():
            if other is not None and other.topics.by_id.get(topic.topic_id) is topic:
                continue
            for index, partition in enumerate(topic.partitions):
                where = f"{topic.name}-{index} of {uuid_text(topic.topic_id)}"
                numbers[f"leader epoch of {where}"] = partition.leader_epoch
                numbers[f"partition epoch of {where}"] = partition.partition_epoch
    return numbers
