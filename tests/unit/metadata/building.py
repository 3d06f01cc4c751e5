"""Small clusters for tests of the metadata room."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping

from odradek.ids import LeaderEpoch, NodeId, Offset, Uuid
from odradek.metadata.controller.topics import TopicSettings
from odradek.metadata.image import EMPTY_IMAGE, Image, Provenance
from odradek.metadata.image.cluster import BrokerRegistration, Endpoint, register_broker_record
from odradek.metadata.loader import Loader
from odradek.metadata.records import FeatureLevelRecord
from odradek.protocol.codec import Message
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.messages.create_topics import CreatableTopicConfigs
from odradek.sim.entropy import SimulatedEntropy


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
        features=(),
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
