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

    def at(self, provenance: Provenance) -> Image:
        """The same after records that change nothing."""
        return Image(
            provenance,
            self.features,
            self.cluster,
            self.topics,
            self.configs,
            self.client_quotas,
            self.next_producer_id,
            self.acls,
            self.scram,
        )

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
        self._in_place = in_place
        self._features: FeaturesDelta | None = None
        self._cluster: ClusterDelta | None = None
        self._topics: TopicsDelta | None = None
        self._configs: ConfigsDelta | None = None
        self._client_quotas: ClientQuotasDelta | None = None
        self._next_producer_id = base.next_producer_id
        self._acls: AclsDelta | None = None
        self._scram: ScramDelta | None = None

    # Most deltas change one part of the image: those of the others are not even made.

    def _of_features(self) -> FeaturesDelta:
        if self._features is None:
            self._features = FeaturesDelta(self._base.features)
        return self._features

    def _of_cluster(self) -> ClusterDelta:
        if self._cluster is None:
            self._cluster = ClusterDelta(self._base.cluster)
        return self._cluster

    def _of_topics(self) -> TopicsDelta:
        if self._topics is None:
            self._topics = TopicsDelta(self._base.topics, in_place=self._in_place)
        return self._topics

    def _of_configs(self) -> ConfigsDelta:
        if self._configs is None:
            self._configs = ConfigsDelta(self._base.configs, in_place=self._in_place)
        return self._configs

    def _of_client_quotas(self) -> ClientQuotasDelta:
        if self._client_quotas is None:
            self._client_quotas = ClientQuotasDelta(self._base.client_quotas, in_place=self._in_place)
        return self._client_quotas

    def _of_acls(self) -> AclsDelta:
        if self._acls is None:
            self._acls = AclsDelta(self._base.acls, in_place=self._in_place)
        return self._acls

    def _of_scram(self) -> ScramDelta:
        if self._scram is None:
            self._scram = ScramDelta(self._base.scram, in_place=self._in_place)
        return self._scram

    def replay(self, record: Message) -> None:
        """Take one committed record in. Transaction markers are the loader's business and never come here."""
        match record:
            case kinds.PartitionRecord():
                self._of_topics().replay_partition(record)
            case kinds.PartitionChangeRecord():
                self._of_topics().replay_partition_change(record)
            case kinds.TopicRecord():
                self._of_topics().replay_topic(record)
            case kinds.RemoveTopicRecord():
                self._of_configs().forget_topic(self._of_topics().replay_remove_topic(record))
            case kinds.ClearElrRecord():
                self._of_topics().replay_clear_elr(record)
            case kinds.ConfigRecord():
                self._of_configs().replay(record)
            case kinds.FeatureLevelRecord():
                self._of_features().replay(record)
            case kinds.ProducerIdsRecord():
                self._next_producer_id = record.next_producer_id
            case kinds.NoOpRecord():
                pass
            case _:
                self._replay_registration(record)

    def _replay_registration(self, record: Message) -> None:
        match record:
            case kinds.RegisterBrokerRecord():
                self._of_cluster().replay_register_broker(record)
            case kinds.BrokerRegistrationChangeRecord():
                self._of_cluster().replay_registration_change(record)
            case kinds.RegisterControllerRecord():
                self._of_cluster().replay_register_controller(record)
            case kinds.UnregisterBrokerRecord():
                self._of_cluster().replay_unregister_broker(record)
            case kinds.FenceBrokerRecord():
                self._of_cluster().replay_fence(record)
            case kinds.UnfenceBrokerRecord():
                self._of_cluster().replay_unfence(record)
            case _:
                self._replay_security(record)

    def _replay_security(self, record: Message) -> None:
        match record:
            case kinds.ClientQuotaRecord():
                self._of_client_quotas().replay(record)
            case kinds.AccessControlEntryRecord():
                self._of_acls().replay(record)
            case kinds.RemoveAccessControlEntryRecord():
                self._of_acls().replay_remove(record)
            case kinds.UserScramCredentialRecord():
                self._of_scram().replay(record)
            case kinds.RemoveUserScramCredentialRecord():
                self._of_scram().replay_remove(record)
            case _:
                raise UnknownRecord(f"this node does not support the metadata record {type(record).__name__}")

    def apply(self, provenance: Provenance) -> tuple[Image, Changes]:
        """The next image, and what is different in it."""
        base = self._base
        topics, topic_changes = (base.topics, NO_CHANGES.topics) if self._topics is None else self._topics.apply()
        cluster = base.cluster if self._cluster is None else self._cluster.apply()
        image = Image(
            provenance,
            base.features if self._features is None else self._features.apply(),
            cluster,
            topics,
            base.configs if self._configs is None else self._configs.apply(),
            base.client_quotas if self._client_quotas is None else self._client_quotas.apply(),
            self._next_producer_id,
            base.acls if self._acls is None else self._acls.apply(),
            base.scram if self._scram is None else self._scram.apply(),
        )
        changes = Changes(
            topic_changes,
            () if self._configs is None else self._configs.changed_resources(),
            cluster is not base.cluster,
        )
        return image, changes
