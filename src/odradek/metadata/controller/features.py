"""Levels of features raised and lowered: all of a request's, or none of them."""

from __future__ import annotations

from enum import IntEnum

from odradek.decisions import Decision
from odradek.metadata.controller import decided
from odradek.metadata.features import (
    KRAFT_VERSION,
    METADATA_VERSION,
    changes_metadata,
    supported_feature,
)
from odradek.metadata.image import Image
from odradek.metadata.records import FeatureLevelRecord
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
    image: Image, request: UpdateFeaturesRequest, *, api_version: int, kraft_version: int
) -> Decision[Message, UpdateFeaturesResponse]:
    """Nothing changes unless every level can be had."""
    records: list[Message] = []
    try:
        for update in request.feature_updates:
            records += _update(image, update, api_version=api_version, kraft_version=kraft_version)
    except KafkaError as refused:
        message = "The update failed for all features since the following feature had an error: " + refused.message
        return decided((), UpdateFeaturesResponse(error_code=refused.code, error_message=message))
    results = []
    if api_version < _ONE_RESULT_SINCE:
        results = [UpdatableFeatureResult(feature=update.feature) for update in request.feature_updates]
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
    if level == current:
        return []
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
    for broker in image.cluster.brokers.values():
        ranges = {each.name: each for each in broker.features}
        there = ranges.get(name)
        if name != KRAFT_VERSION and there is not None and not there.minimum <= level <= there.maximum:
            return f"Broker {broker.broker_id} only supports versions {there.minimum}-{there.maximum}"
    if level < current and kind == UpgradeType.UPGRADE:
        return (
            "Can't downgrade the version of this feature without setting the upgrade type to either safe or unsafe "
            "downgrade."
        )
    if level > current and kind != UpgradeType.UPGRADE:
        return "Can't downgrade to a newer version."
    if name == KRAFT_VERSION and level != current:
        return "The way from a static to a dynamic quorum is not there yet."
    return None
