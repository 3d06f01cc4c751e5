"""What the cluster agreed on is carried out on this node."""

from __future__ import annotations

from odradek.metadata.image import Changes, Image
from odradek.metadata.image.configs import BROKER_RESOURCE, TOPIC_RESOURCE
from odradek.metadata.image.topics import PartitionsOf, TopicChanges
from odradek.server.containment import Cost
from odradek.server.partitions.hosting import Hosting


async def apply_changes(hosting: Hosting, image: Image, changes: Changes) -> None:
    """Make the hosted partitions what the newest image says, at the cost of what changed.

    A partition whose registration and settings change together takes both over in one step. With one before the other
    a leader could acknowledge alone: under the new ISR and the old min.insync.replicas, or the other way round, though
    the controller made others eligible on the ground that nobody can.
    """
    hosting.replicas.learn(image)
    topics = changes.topics
    if topics.created or topics.changed or topics.deleted:
        await hosting.apply_topics_gradually(topics, changes.configs)
    new = {created.topic.name: None for created in topics.created if created.before is None}
    containment = hosting.replicas.containment
    for resource_type, name in changes.configs:
        if resource_type == TOPIC_RESOURCE and name in image.topics.by_name and name not in new:
            with containment.at_most(Cost.TASK, f"other settings of {name}"):
                hosting.apply_topic_config(name)
        elif resource_type == BROKER_RESOURCE:
            with containment.at_most(Cost.TASK, "other settings of brokers"):
                hosting.apply_broker_config()


def whole_image(image: Image) -> TopicChanges:
    """An image as if all of it were new: what a node that starts has to open."""
    created = [
        PartitionsOf(topic, tuple(range(len(topic.partitions))), None) for topic in image.topics.by_name.values()
    ]
    return TopicChanges(created=tuple(created), changed=(), deleted=())
