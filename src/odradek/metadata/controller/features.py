"""Levels of features raised and lowered: all of a request's, or none of them."""

from __future__ import annotations

from collections.abc import Iterator
from enum import IntEnum

from odradek.decisions import Decision
from odradek.metadata.controller import decided
from odradek.metadata.controller.leadership import forgotten_eligible_leaders
from odradek.metadata.controller.topic_rules import MIN_INSYNC_REPLICAS
from odradek.metadata.features import (
    ELIGIBLE_LEADER_REPLICAS,
    KRAFT_VERSION,
    METADATA_VERSION,
    changes_metadata,
    supported_feature,
    supports_eligible_leaders,
)
from odradek.metadata.image import Image
from odradek.metadata.image.configs import ALL_BROKERS, BROKER_RESOURCE
from odradek.metadata.records import ConfigRecord, FeatureLevelRecord
from odradek.protocol.codec import Message
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.messages.update_features import (
    FeatureUpdateKey,
    UpdatableFeatureResult,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)

_UPGRADE_TYPES_SINCE = 1
_ONE_RESULT_SINCE = 2


class UpgradeType(IntEnum):
    """What the one who asks agrees to."""

    UPGRADE = 1
    SAFE_DOWNGRADE = 2
    UNSAFE_DOWNGRADE = 3


def update_features(
    image: Image, request: UpdateFeaturesRequest, *, api_version: int, kraft_version: int, min_insync_replicas: int
) -> Decision[Message, UpdateFeaturesResponse]:
    """Nothing changes unless every level can be had.

    `min_insync_replicas` is the file's: with eligible leaders one value must count for the whole cluster.
    """
    records: list[Message] = []
    try:
        for update in request.feature_updates:
            records += _update(image, update, api_version=api_version, kraft_version=kraft_version)
        _check_dependencies(image, records)
    except KafkaError as refused:
        message = "The update failed for all features since the following feature had an error: " + refused.message
        return decided((), UpdateFeaturesResponse(error_code=refused.code, error_message=message))
    results = []
    if api_version < _ONE_RESULT_SINCE:
        results = [UpdatableFeatureResult(feature=update.feature) for update in request.feature_updates]
    if any(_enables_elr(record) for record in records):
        # Who was eligible when the feature was on before has missed all that was acknowledged since.
        forgotten = forgotten_eligible_leaders(image.topics.by_id.values())
        records = [*_one_min_isr_for_all(image, min_insync_replicas), *forgotten, *records]
    response = UpdateFeaturesResponse(error_message=None, results=results)
    return decided(() if request.validate_only else records, response)


def _update(image: Image, update: FeatureUpdateKey, *, api_version: int, kraft_version: int) -> list[Message]:
    name, level = update.feature, update.max_version_level
    kind = update.upgrade_type
    if api_version < _UPGRADE_TYPES_SINCE:
        kind = UpgradeType.SAFE_DOWNGRADE if update.allow_downgrade else UpgradeType.UPGRADE
    current = kraft_version if name == KRAFT_VERSION else image.features.level(name)
    wrong = _wrong_with(image, update, kind, current)
    if wrong is not None:
        raise KafkaError(
            ErrorCode.INVALID_UPDATE_VERSION, f"Invalid update version {level} for feature {name}. {wrong}"
        )
    if level == current or name == KRAFT_VERSION:
        return []  # kraft.version is the quorum's own, and stands in its control records.
    if name == METADATA_VERSION and level < current and changes_metadata(above=level, up_to=current):
        if kind == UpgradeType.UNSAFE_DOWNGRADE:
            why = "Unsafe metadata downgrade is not supported in this version."
        else:
            why = "Refusing to perform the requested downgrade because it might delete metadata information."
        raise KafkaError(
            ErrorCode.INVALID_UPDATE_VERSION,
            f"Unsupported metadata.version downgrade from {current} to {level}. {why}",
        )
    return [FeatureLevelRecord(name=name, feature_level=level)]


def _check_dependencies(image: Image, records: list[Message]) -> None:
    levels = {record.name: record.feature_level for record in records if isinstance(record, FeatureLevelRecord)}
    elr = levels.get(ELIGIBLE_LEADER_REPLICAS, image.features.level(ELIGIBLE_LEADER_REPLICAS))
    metadata_version = levels.get(METADATA_VERSION, image.features.metadata_version)
    if elr and not supports_eligible_leaders(metadata_version):
        raise KafkaError(
            ErrorCode.INVALID_UPDATE_VERSION,
            f"{ELIGIBLE_LEADER_REPLICAS} {elr} needs a higher {METADATA_VERSION} than {metadata_version}.",
        )


def _enables_elr(record: Message) -> bool:
    return (
        isinstance(record, FeatureLevelRecord) and record.name == ELIGIBLE_LEADER_REPLICAS and record.feature_level > 0
    )


def _one_min_isr_for_all(image: Image, min_insync_replicas: int) -> Iterator[Message]:
    """min.insync.replicas as a setting of the cluster and of no broker: who is eligible depends on it (KIP-966)."""
    if MIN_INSYNC_REPLICAS not in image.configs.of(BROKER_RESOURCE, ALL_BROKERS):
        yield ConfigRecord(
            resource_type=BROKER_RESOURCE,
            resource_name=ALL_BROKERS,
            name=MIN_INSYNC_REPLICAS,
            value=str(min_insync_replicas),
        )
    for (resource_type, name), configs in image.configs.by_resource.items():
        if resource_type == BROKER_RESOURCE and name != ALL_BROKERS and MIN_INSYNC_REPLICAS in configs:
            yield ConfigRecord(resource_type=BROKER_RESOURCE, resource_name=name, name=MIN_INSYNC_REPLICAS, value=None)


def _wrong_with(image: Image, update: FeatureUpdateKey, kind: int, current: int) -> str | None:
    """Why the level cannot be had, in Kafka's words."""
    name, level = update.feature, update.max_version_level
    if not UpgradeType.UPGRADE <= kind <= UpgradeType.UNSAFE_DOWNGRADE:
        return "The controller does not support the given upgrade type."
    if level < 0:
        return "A feature version cannot be less than 0."
    supported = supported_feature(name)
    if supported is None:
        return "The controller does not support this feature."
    if not supported.minimum <= level <= supported.maximum:
        return f"The controller only supports versions {supported.minimum}-{supported.maximum}"
    wrong = _unsupported_by(image, name, level)
    if wrong is not None:
        return wrong
    if level < current and kind == UpgradeType.UPGRADE:
        return (
            "Can't downgrade the version of this feature without setting the upgrade type to either safe or unsafe "
            "downgrade."
        )
    if level > current and kind != UpgradeType.UPGRADE:
        return "Can't downgrade to a newer version."
    if name == KRAFT_VERSION and level < current:
        return "Voters that stand in the log cannot be made static again."
    return None


def _unsupported_by(image: Image, name: str, level: int) -> str | None:
    """The first node that could not work with the level; of kraft.version the quorum itself knows best."""
    if name == KRAFT_VERSION or level == 0:
        return None
    nodes = [(f"Broker {each.broker_id}", each.features) for each in image.cluster.brokers.values()]
    nodes += [(f"Controller {each.controller_id}", each.features) for each in image.cluster.controllers.values()]
    for who, features in nodes:
        there = next((each for each in features if each.name == name), None)
        if there is None:
            return f"{who} does not support this feature."
        if not there.minimum <= level <= there.maximum:
            return f"{who} only supports versions {there.minimum}-{there.maximum}"
    return None


def requested_kraft_version(request: UpdateFeaturesRequest) -> int | None:
    """The level of kraft.version that is asked for, if one is."""
    for update in request.feature_updates:
        if update.feature == KRAFT_VERSION:
            return update.max_version_level
    return None
