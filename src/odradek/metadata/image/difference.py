"""What is different between two images, where no records tell: a follower that was too far behind gets a snapshot."""

from __future__ import annotations

from odradek.metadata.image import Changes, Image
from odradek.metadata.image.configs import ConfigsImage, Resource
from odradek.metadata.image.topics import PartitionsOf, TopicChanges, TopicImage, TopicsImage


def difference(before: Image, after: Image) -> Changes:
    """The changes that make `after` of `before`; a topic is the same one only under the same id."""
    return Changes(
        topics=_topic_changes(before.topics, after.topics),
        configs=_config_changes(before.configs, after.configs),
        brokers_changed=before.cluster != after.cluster,
    )


def _topic_changes(before: TopicsImage, after: TopicsImage) -> TopicChanges:
    created: list[PartitionsOf] = []
    changed: list[PartitionsOf] = []
    for topic_id, topic in after.by_id.items():
        older = before.by_id.get(topic_id)
        if topic is older:
            continue
        known = len(older.partitions) if older is not None else 0
        new = tuple(range(known, len(topic.partitions)))
        if new or older is None:
            created.append(PartitionsOf(topic, new, older))
        if older is not None:
            different = _different(older, topic)
            if different:
                changed.append(PartitionsOf(topic, different, older))
    deleted = tuple(topic for topic_id, topic in before.by_id.items() if topic_id not in after.by_id)
    return TopicChanges(tuple(created), tuple(changed), deleted)


def _different(before: TopicImage, after: TopicImage) -> tuple[int, ...]:
    pairs = enumerate(zip(before.partitions, after.partitions, strict=False))
    return tuple(index for index, (older, newer) in pairs if older != newer)


def _config_changes(before: ConfigsImage, after: ConfigsImage) -> tuple[Resource, ...]:
    changed = [resource for resource, held in after.by_resource.items() if before.by_resource.get(resource) != held]
    return (*changed, *(resource for resource in before.by_resource if resource not in after.by_resource))
