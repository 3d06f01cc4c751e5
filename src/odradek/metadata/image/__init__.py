"""The immutable image of everything the metadata log says, and the delta that makes the next one.

A delta costs what its records change plus one copy of each dictionary it touches; what it does not touch is shared.
"""

from __future__ import annotations

from collections.abc import Iterator

from odradek.ids import NO_OFFSET, LeaderEpoch, Offset
from odradek.metadata import records as kinds
from odradek.metadata.image.acls import NO_ACLS, AclsDelta, AclsImage
from odradek.metadata.image.client_quotas import NO_CLIENT_QUOTAS, ClientQuotasDelta, ClientQuotasImage
from odradek.metadata.image.cluster import NO_CLUSTER, ClusterDelta, ClusterImage
from odradek.metadata.image.configs import NO_CONFIGS, ConfigsDelta, ConfigsImage, Resource
from odradek.metadata.image.features import NO_FEATURES, FeaturesDelta, FeaturesImage
from odradek.metadata.image.scram import NO_SCRAM, ScramDelta, ScramImage
from odradek.metadata.image.topics import NO_TOPICS, TopicChanges, TopicsDelta, TopicsImage
from odradek.protocol.codec import Message
from odradek.values import value

__all__ = ["EMPTY_IMAGE", "Changes", "Delta", "Image", "Provenance", "UnknownRecord"]


class UnknownRecord(Exception):
    """The metadata log holds a record that this node does not understand, so any image it made would be wrong."""


@value
class Provenance:
    """The last record that an image contains."""

    offset: Offset
    epoch: LeaderEpoch
    timestamp_ms: int


@value
class Image:
    """Everything the cluster agreed on, as of `provenance`."""

    provenance: Provenance
    features: FeaturesImage
    cluster: ClusterImage
    topics: TopicsImage
    configs: ConfigsImage
    client_quotas: ClientQuotasImage
    next_producer_id: int
    acls: AclsImage
    scram: ScramImage

    def private_copy(self) -> Image:
        """One that a delta may change in place; what is in its dictionaries is still shared, and still immutable."""
        return Image(
            provenance=self.provenance,
            features=self.features,
            cluster=self.cluster,
            topics=self.topics.copy(),
            configs=ConfigsImage(self.configs.by_resource.copy()),
            client_quotas=ClientQuotasImage(self.client_quotas.by_entity.copy()),
            next_producer_id=self.next_producer_id,
            acls=AclsImage(self.acls.by_id.copy()),
            scram=ScramImage(self.scram.credentials.copy()),
        )

    def records(self) -> Iterator[Message]:
        """The records that make this image out of an empty one: the body of a snapshot, in Kafka's order."""
        yield from self.features.records()
        yield from self.cluster.records()
        yield from self.topics.records()
        yield from self.configs.records()
        yield from self.client_quotas.records()
        if self.next_producer_id:
            yield kinds.ProducerIdsRecord(broker_id=-1, broker_epoch=-1, next_producer_id=self.next_producer_id)
        yield from self.acls.records()
        yield from self.scram.records()


EMPTY_IMAGE = Image(
    provenance=Provenance(NO_OFFSET, LeaderEpoch(-1), -1),
    features=NO_FEATURES,
    cluster=NO_CLUSTER,
    topics=NO_TOPICS,
    configs=NO_CONFIGS,
    client_quotas=NO_CLIENT_QUOTAS,
    next_producer_id=0,
    acls=NO_ACLS,
    scram=NO_SCRAM,
)


@value
class Changes:
    """What one delta changed, for those who carry it out."""

    topics: TopicChanges
    configs: tuple[Resource, ...]
    brokers_changed: bool


NO_CHANGES = Changes(topics=TopicChanges(created=(), changed=(), deleted=()), configs=(), brokers_changed=False)


class Delta:
    """Replay records, then `apply` once; with `in_place` the base is a private copy, and is changed itself."""

    def __init__(self, base: Image, *, in_place: bool = False) -> None:
        self._base = base
        self._features = FeaturesDelta(base.features)
        self._cluster = ClusterDelta(base.cluster)
        self._topics = TopicsDelta(base.topics, in_place=in_place)
        self._configs = ConfigsDelta(base.configs, in_place=in_place)
        self._client_quotas = ClientQuotasDelta(base.client_quotas, in_place=in_place)
        self._next_producer_id = base.next_producer_id
        self._acls = AclsDelta(base.acls, in_place=in_place)
        self._scram = ScramDelta(base.scram, in_place=in_place)

    def replay(self, record: Message) -> None:
        """Take one committed record in. Transaction markers are the loader's business and never come here."""
        match record:
            case kinds.PartitionRecord():
                self._topics.replay_partition(record)
            case kinds.PartitionChangeRecord():
                self._topics.replay_partition_change(record)
            case kinds.TopicRecord():
                self._topics.replay_topic(record)
            case kinds.RemoveTopicRecord():
                self._configs.forget_topic(self._topics.replay_remove_topic(record))
            case kinds.ClearElrRecord():
                self._topics.replay_clear_elr(record)
            case kinds.ConfigRecord():
                self._configs.replay(record)
            case kinds.FeatureLevelRecord():
                self._features.replay(record)
            case kinds.ProducerIdsRecord():
                self._next_producer_id = record.next_producer_id
            case kinds.NoOpRecord():
                pass
            case _:
                self._replay_registration(record)

    def _replay_registration(self, record: Message) -> None:
        match record:
            case kinds.RegisterBrokerRecord():
                self._cluster.replay_register_broker(record)
            case kinds.BrokerRegistrationChangeRecord():
                self._cluster.replay_registration_change(record)
            case kinds.RegisterControllerRecord():
                self._cluster.replay_register_controller(record)
            case kinds.UnregisterBrokerRecord():
                self._cluster.replay_unregister_broker(record)
            case kinds.FenceBrokerRecord():
                self._cluster.replay_fence(record)
            case kinds.UnfenceBrokerRecord():
                self._cluster.replay_unfence(record)
            case _:
                self._replay_security(record)

    def _replay_security(self, record: Message) -> None:
        match record:
            case kinds.ClientQuotaRecord():
                self._client_quotas.replay(record)
            case kinds.AccessControlEntryRecord():
                self._acls.replay(record)
            case kinds.RemoveAccessControlEntryRecord():
                self._acls.replay_remove(record)
            case kinds.UserScramCredentialRecord():
                self._scram.replay(record)
            case kinds.RemoveUserScramCredentialRecord():
                self._scram.replay_remove(record)
            case _:
                raise UnknownRecord(f"this node does not support the metadata record {type(record).__name__}")

    def apply(self, provenance: Provenance) -> tuple[Image, Changes]:
        """The next image, and what is different in it."""
        topics, topic_changes = self._topics.apply()
        cluster = self._cluster.apply()
        image = Image(
            provenance=provenance,
            features=self._features.apply(),
            cluster=cluster,
            topics=topics,
            configs=self._configs.apply(),
            client_quotas=self._client_quotas.apply(),
            next_producer_id=self._next_producer_id,
            acls=self._acls.apply(),
            scram=self._scram.apply(),
        )
        changes = Changes(
            topics=topic_changes,
            configs=self._configs.changed_resources(),
            brokers_changed=cluster is not self._base.cluster,
        )
        return image, changes
