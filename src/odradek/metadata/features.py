"""Features: what a level of metadata.version means for records, and which levels this node serves."""

from __future__ import annotations

from odradek.metadata.records import (
    BrokerRegistrationChangeRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RegisterBrokerRecord,
)
from odradek.protocol.codec import Message
from odradek.values import value

METADATA_VERSION = "metadata.version"
KRAFT_VERSION = "kraft.version"
GROUP_VERSION = "group.version"
"""Level 1: the consumer group protocol of KIP-848."""
TRANSACTION_VERSION = "transaction.version"
"""Level 1: the transaction log holds more; level 2: a producer's epoch rises at every end (KIP-890)."""
ELIGIBLE_LEADER_REPLICAS = "eligible.leader.replicas.version"
"""Level 1: whoever leaves an ISR that is below min.insync.replicas may still be elected (KIP-966)."""

RELEASES = {
    7: "3.3-IV3",
    8: "3.4-IV0",
    9: "3.5-IV0",
    10: "3.5-IV1",
    11: "3.5-IV2",
    12: "3.6-IV0",
    13: "3.6-IV1",
    14: "3.6-IV2",
    15: "3.7-IV0",
    16: "3.7-IV1",
    17: "3.7-IV2",
    18: "3.7-IV3",
    19: "3.7-IV4",
    20: "3.8-IV0",
    21: "3.9-IV0",
    22: "4.0-IV0",
    23: "4.0-IV1",
    24: "4.0-IV2",
    25: "4.0-IV3",
    26: "4.1-IV0",
    27: "4.1-IV1",
    28: "4.2-IV0",
    29: "4.2-IV1",
    30: "4.3-IV0",
}
"""Kafka's name of each level of metadata.version."""

OLDEST_METADATA_VERSION = min(RELEASES)
LATEST_METADATA_VERSION = max(RELEASES)

_SCRAM_SINCE = 11
_TRANSACTIONS_SINCE = 12
_CONTROLLER_REGISTRATION_SINCE = 14
_DIRECTORIES_SINCE = 17
_ELIGIBLE_LEADERS_SINCE = 23
_CORDONED_DIRECTORIES_SINCE = 30
_NEW_RECORDS_AT = (7, 8, _SCRAM_SINCE, 13, 14, 15, _DIRECTORIES_SINCE, _ELIGIBLE_LEADERS_SINCE, 30)


@value
class SupportedRange:
    """The levels of a feature that this node can serve, and the one that formatting a directory chooses."""

    name: str
    minimum: int
    maximum: int
    default: int
    default_since: int = 0
    """The level of metadata.version below which formatting leaves the feature out."""


SUPPORTED_FEATURES = (
    SupportedRange(METADATA_VERSION, OLDEST_METADATA_VERSION, LATEST_METADATA_VERSION, LATEST_METADATA_VERSION),
    SupportedRange(KRAFT_VERSION, 0, 1, 0),
    SupportedRange(GROUP_VERSION, 0, 1, 1, default_since=22),
    SupportedRange(TRANSACTION_VERSION, 0, 2, 2, default_since=24),
    SupportedRange(ELIGIBLE_LEADER_REPLICAS, 0, 1, 1, default_since=26),
)
"""Only what is served: share and streams features come with the coordinators that need them."""


def default_levels(metadata_version: int) -> dict[str, int]:
    """The level of every feature that a cluster of that metadata.version begins with."""
    levels = {
        feature.name: feature.default if metadata_version >= feature.default_since else 0
        for feature in SUPPORTED_FEATURES
    }
    return {**levels, METADATA_VERSION: metadata_version}


def supported_feature(name: str) -> SupportedRange | None:
    for feature in SUPPORTED_FEATURES:
        if feature.name == name:
            return feature
    return None


def metadata_version_of(release: str) -> int:
    """The level that a release such as `4.1` or `4.1-IV0` stands for; ValueError when there is none."""
    levels = [level for level, name in RELEASES.items() if name == release or name.split("-")[0] == release]
    if not levels:
        oldest, latest = RELEASES[OLDEST_METADATA_VERSION], RELEASES[LATEST_METADATA_VERSION]
        raise ValueError(f"Unknown release version '{release}'. Supported versions are: {oldest} to {latest}")
    return max(levels)


def changes_metadata(*, above: int, up_to: int) -> bool:
    """Whether a level in between writes what those below it cannot read, so that there is no way back."""
    return any(above < level <= up_to for level in _NEW_RECORDS_AT)


def supports_eligible_leaders(metadata_version: int) -> bool:
    """Records of partitions can name eligible leaders (KIP-966)."""
    return metadata_version >= _ELIGIBLE_LEADERS_SINCE


def supports_scram(metadata_version: int) -> bool:
    return metadata_version >= _SCRAM_SINCE


def supports_transactions(metadata_version: int) -> bool:
    """KIP-868: several batches that count as one."""
    return metadata_version >= _TRANSACTIONS_SINCE


def supports_controller_registration(metadata_version: int) -> bool:
    return metadata_version >= _CONTROLLER_REGISTRATION_SINCE


def supports_directories(metadata_version: int) -> bool:
    """KIP-858: a partition record says which log directory holds each replica."""
    return metadata_version >= _DIRECTORIES_SINCE


def supports_cordoned_directories(metadata_version: int) -> bool:
    return metadata_version >= _CORDONED_DIRECTORIES_SINCE


def raises_leader_epoch_when_isr_shrinks(metadata_version: int) -> bool:
    """Brokers of those levels miss a follower's leaving otherwise (KAFKA-15021)."""
    return metadata_version < _TRANSACTIONS_SINCE


def record_version(record: Message, metadata_version: int) -> int:
    """The version that Kafka writes a record in at a level of metadata.version, which every node there can read."""
    match record:
        case PartitionRecord() | PartitionChangeRecord():
            if metadata_version >= _ELIGIBLE_LEADERS_SINCE:
                return 2
            return 1 if supports_directories(metadata_version) else 0
        case RegisterBrokerRecord():
            if supports_cordoned_directories(metadata_version):
                return 4
            if supports_directories(metadata_version):
                return 3
            return 2 if metadata_version > OLDEST_METADATA_VERSION else 1
        case BrokerRegistrationChangeRecord():
            # The lowest version that can hold what changed, which is what Kafka chooses.
            if record.cordoned_log_dirs is not None:
                return 3
            if record.log_dirs:
                return 2
            return 1 if record.in_controlled_shutdown else 0
        case _:
            return 0
