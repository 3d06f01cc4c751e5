"""What a topic's configuration says about its leaders, from where Kafka's controller reads it."""

from __future__ import annotations

from collections.abc import Mapping

from odradek.ids import NodeId
from odradek.metadata.image import Image
from odradek.metadata.image.configs import ALL_BROKERS, BROKER_RESOURCE
from odradek.metadata.image.topics import TopicImage
from odradek.values import value

MIN_INSYNC_REPLICAS = "min.insync.replicas"
UNCLEAN_ELECTION = "unclean.leader.election.enable"


@value
class StaticRules:
    """What the controller's own file says, for topics that nobody configured."""

    node_id: NodeId
    min_insync_replicas: int
    unclean_leader_election: bool


class TopicRules:
    """The rules in force for an image: the topic's, then the controller's own, then all brokers', then the file's."""

    def __init__(self, image: Image, static: StaticRules) -> None:
        self._configs = image.configs
        defaults: Mapping[str, str] = {
            MIN_INSYNC_REPLICAS: str(static.min_insync_replicas),
            UNCLEAN_ELECTION: str(static.unclean_leader_election),
        }
        self._defaults = {
            **defaults,
            **image.configs.of(BROKER_RESOURCE, ALL_BROKERS),
            **image.configs.of(BROKER_RESOURCE, str(static.node_id)),
        }

    def min_isr(self, topic: TopicImage) -> int:
        """As it is set; of a partition with fewer replicas all are asked for (`PartitionChange`)."""
        return int(self._of(topic.name, MIN_INSYNC_REPLICAS))

    def unclean(self, topic: TopicImage) -> bool:
        return self._of(topic.name, UNCLEAN_ELECTION).strip().lower() == "true"

    def _of(self, topic: str, name: str) -> str:
        return self._configs.of_topic(topic).get(name) or self._defaults[name]
