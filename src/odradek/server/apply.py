"""What the cluster agreed on is carried out on this node."""

from __future__ import annotations

from odradek.metadata.image import Changes, Image
from odradek.metadata.image.configs import BROKER_RESOURCE, TOPIC_RESOURCE
from odradek.metadata.image.topics import PartitionsOf, TopicChanges
from odradek.server.replicas import Replicas


def apply_changes(replicas: Replicas, image: Image, changes: Changes) -> None:
    """Make the hosted partitions what the newest image says, at the cost of what changed."""
    topics = changes.topics
    if topics.created or topics.changed or topics.deleted:
        replicas.apply_topics(topics)
    new = {created.topic.name: None for created in topics.created if created.before is None}
    for resource_type, name in changes.configs:
        if resource_type == TOPIC_RESOURCE and name in image.topics.by_name and name not in new:
            replicas.apply_topic_config(name)
        elif resource_type == BROKER_RESOURCE:
            for topic in image.topics.by_name:
                replicas.apply_topic_config(topic)


def whole_image(image: Image) -> TopicChanges:
    """An image as if all of it were new: what a node that starts has to open."""
    created = [
        PartitionsOf(topic, tuple(range(len(topic.partitions))), None) for topic in image.topics.by_name.values()
    ]
    return TopicChanges(created=tuple(created), changed=(), deleted=())
