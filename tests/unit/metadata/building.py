"""Small clusters for tests of the metadata room."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping
from typing import Any

from odradek.ids import LeaderEpoch, NodeId, Offset, Uuid
from odradek.metadata.controller.topic_rules import StaticRules, TopicRules
from odradek.metadata.controller.topics import TopicSettings
from odradek.metadata.features import SUPPORTED_FEATURES
from odradek.metadata.image import EMPTY_IMAGE, Image, Provenance
from odradek.metadata.image.cluster import BrokerRegistration, Endpoint, FeatureRange, register_broker_record
from odradek.metadata.image.configs import TOPIC_RESOURCE
from odradek.metadata.image.topics import PartitionRegistration
from odradek.metadata.loader import Loader
from odradek.metadata.records import ConfigRecord, FeatureLevelRecord, PartitionRecord, TopicRecord
from odradek.protocol.codec import Message
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.messages import broker_registration as of_broker
from odradek.protocol.messages import controller_registration as of_controller
from odradek.protocol.messages.broker_registration import BrokerRegistrationRequest
from odradek.protocol.messages.controller_registration import ControllerRegistrationRequest
from odradek.protocol.messages.create_topics import CreatableTopicConfigs
from odradek.sim.entropy import SimulatedEntropy
from odradek.values import value


def entropy(seed: int = 0) -> SimulatedEntropy:
    return SimulatedEntropy(random.Random(seed))


def uuid(number: int) -> Uuid:
    return Uuid(number.to_bytes(16))


def broker(
    broker_id: int, *, rack: str | None = None, fenced: bool = False, log_dirs: int = 1, shutting_down: bool = False
) -> BrokerRegistration:
    return BrokerRegistration(
        broker_id=NodeId(broker_id),
        broker_epoch=broker_id,
        incarnation_id=uuid(7000 + broker_id),
        endpoints=(Endpoint("PLAINTEXT", f"host-{broker_id}", 9092, 0),),
        features=tuple(FeatureRange(each.name, each.minimum, each.maximum) for each in SUPPORTED_FEATURES),
        rack=rack,
        fenced=fenced,
        in_controlled_shutdown=shutting_down,
        log_dirs=tuple(uuid(1000 * broker_id + index) for index in range(1, log_dirs + 1)),
        cordoned_log_dirs=None,
    )


def replayed(image: Image, records: Iterable[Message], *, offset: int = 0) -> Image:
    loader = Loader(image)
    loader.replay(records, Provenance(Offset(offset), LeaderEpoch(1), 0))
    return loader.image


def cluster(*brokers: BrokerRegistration, metadata_version: int = 30) -> Image:
    level = FeatureLevelRecord(name="metadata.version", feature_level=metadata_version)
    return replayed(EMPTY_IMAGE, [level, *map(register_broker_record, brokers or (broker(1),))])


def _check(configs: Mapping[str, str]) -> None:
    if "no.such.key" in configs:
        raise KafkaError(ErrorCode.INVALID_CONFIG, "Unknown topic config name: no.such.key")


def _effective(image: Image, configs: Mapping[str, str]) -> list[CreatableTopicConfigs]:
    return [
        CreatableTopicConfigs(name=name, value=text, read_only=False, config_source=1, is_sensitive=False)
        for name, text in configs.items()
    ]


SETTINGS = TopicSettings(num_partitions=3, replication_factor=1, check_configs=_check, effective_configs=_effective)

STATIC = StaticRules(NodeId(1), min_insync_replicas=1, unclean_leader_election=False)

TOPIC = uuid(201)


def rules(image: Image) -> TopicRules:
    return TopicRules(image, STATIC)


def with_elr(image: Image) -> Image:
    return replayed(image, [FeatureLevelRecord(name="eligible.leader.replicas.version", feature_level=1)])


def with_config(image: Image, topic: str = "t", **configs: str) -> Image:
    records = [
        ConfigRecord(resource_type=TOPIC_RESOURCE, resource_name=topic, name=name.replace("_", "."), value=text)
        for name, text in configs.items()
    ]
    return replayed(image, records)


def with_topic(image: Image, *partitions: PartitionRecord, name: str = "t", topic_id: Uuid = TOPIC) -> Image:
    for index, record in enumerate(partitions):
        record.topic_id, record.partition_id = topic_id, index
    return replayed(image, [TopicRecord(name=name, topic_id=topic_id), *partitions])


def led_by(leader: int, replicas: list[int], isr: list[int] | None = None, **more: Any) -> PartitionRecord:
    """A partition in leader epoch 4 and partition epoch 6, each replica in its broker's first directory."""
    fields: dict[str, Any] = {
        "topic_id": TOPIC,
        "replicas": replicas,
        "isr": replicas if isr is None else isr,
        "removing_replicas": [],
        "adding_replicas": [],
        "leader": leader,
        "leader_epoch": 4,
        "partition_epoch": 6,
        "directories": [uuid(1000 * replica + 1) for replica in replicas],
    }
    return PartitionRecord(**{**fields, **more})


def the_partition(image: Image, index: int = 0, name: str = "t") -> PartitionRegistration:
    return image.topics.by_name[name].partitions[index]


@value
class NodeDescription:
    """What a node says about itself when it registers; a new `incarnation_id` at every start."""

    node_id: NodeId
    incarnation_id: Uuid
    broker_endpoints: tuple[Endpoint, ...]
    controller_endpoints: tuple[Endpoint, ...]
    features: tuple[FeatureRange, ...]
    rack: str | None
    log_dirs: tuple[Uuid, ...]

    def as_broker(self, cluster_id: str, *, previous_broker_epoch: int = -1) -> BrokerRegistrationRequest:
        return BrokerRegistrationRequest(
            broker_id=self.node_id,
            cluster_id=cluster_id,
            incarnation_id=self.incarnation_id,
            listeners=[
                of_broker.Listener(
                    name=each.name, host=each.host, port=each.port, security_protocol=each.security_protocol
                )
                for each in self.broker_endpoints
            ],
            features=[
                of_broker.Feature(
                    name=each.name, min_supported_version=each.minimum, max_supported_version=each.maximum
                )
                for each in self.features
            ],
            rack=self.rack,
            log_dirs=list(self.log_dirs),
            previous_broker_epoch=previous_broker_epoch,
        )

    def as_controller(self) -> ControllerRegistrationRequest:
        return ControllerRegistrationRequest(
            controller_id=self.node_id,
            incarnation_id=self.incarnation_id,
            zk_migration_ready=False,
            listeners=[
                of_controller.Listener(
                    name=each.name, host=each.host, port=each.port, security_protocol=each.security_protocol
                )
                for each in self.controller_endpoints
            ],
            features=[
                of_controller.Feature(
                    name=each.name, min_supported_version=each.minimum, max_supported_version=each.maximum
                )
                for each in self.features
            ],
        )
