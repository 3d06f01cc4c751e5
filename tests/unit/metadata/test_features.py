"""Record versions by metadata.version, as Apache Kafka 4.3.1 reports them for every level."""

from __future__ import annotations

import pytest
from tests.unit.metadata.building import uuid

from odradek.ids import ZERO_UUID
from odradek.metadata.features import (
    METADATA_VERSION,
    RELEASES,
    metadata_version_of,
    record_version,
    supported_feature,
    supports_controller_registration,
    supports_transactions,
)
from odradek.metadata.image.features import FeaturesImage
from odradek.metadata.records import (
    BrokerRegistrationChangeRecord,
    PartitionChangeRecord,
    RegisterBrokerRecord,
    TopicRecord,
)

REGISTRATION = RegisterBrokerRecord(
    broker_id=1, incarnation_id=ZERO_UUID, broker_epoch=0, end_points=[], features=[], rack=None
)
CHANGE = PartitionChangeRecord(topic_id=ZERO_UUID)


@pytest.mark.parametrize("level", RELEASES)
def test_record_versions(level: int) -> None:
    registration = 1 if level == 7 else 2 if level < 17 else 3 if level < 30 else 4
    partition = 0 if level < 17 else 1 if level < 23 else 2
    assert record_version(REGISTRATION, level) == registration
    assert record_version(CHANGE, level) == partition
    assert record_version(TopicRecord(name="t", topic_id=ZERO_UUID), level) == 0


@pytest.mark.parametrize(
    ("record", "version"),
    [
        (BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=1, fenced=-1), 0),
        (BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=1, in_controlled_shutdown=1), 1),
        (BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=1, log_dirs=[uuid(1)]), 2),
        (BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=1, cordoned_log_dirs=[]), 3),
    ],
)
def test_a_registration_change_takes_the_lowest_version_that_can_say_it(
    record: BrokerRegistrationChangeRecord, version: int
) -> None:
    assert record_version(record, 30) == version


def test_releases_by_name() -> None:
    assert metadata_version_of("4.3-IV0") == 30
    assert metadata_version_of("4.0") == 25
    assert metadata_version_of("3.3-IV3") == 7
    with pytest.raises(
        ValueError, match=r"Unknown release version '5\.0'\. Supported versions are: 3\.3-IV3 to 4\.3-IV0"
    ):
        metadata_version_of("5.0")


def test_what_older_levels_cannot() -> None:
    assert [supports_transactions(level) for level in (11, 12)] == [False, True]
    assert [supports_controller_registration(level) for level in (13, 14)] == [False, True]


def test_only_served_features_are_announced() -> None:
    image = FeaturesImage(metadata_version=30, finalized={"share.version": 1, "group.version": 1})
    assert image.served(kraft_version=0) == {"group.version": 1, METADATA_VERSION: 30}
    assert image.served(kraft_version=1) == {"group.version": 1, "kraft.version": 1, METADATA_VERSION: 30}
    assert image.level("share.version") == 1
    assert supported_feature("share.version") is None
