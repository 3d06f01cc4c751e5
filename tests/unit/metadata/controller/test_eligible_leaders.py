"""KIP-966 beside elections: the feature, and the one setting that says who is eligible."""

from __future__ import annotations

import pytest
from tests.unit.metadata.building import (
    broker,
    cluster,
    led_by,
    replayed,
    rules,
    the_partition,
    with_elr,
    with_topic,
)

from odradek.configdef import ConfigKey, ConfigTable, ConfigType
from odradek.ids import NO_NODE, NodeId
from odradek.metadata.controller.brokers import fence, unfence
from odradek.metadata.controller.configs import ConfigRules, Operation, incremental_alter_configs
from odradek.metadata.controller.features import update_features
from odradek.metadata.controller.leadership import impossible_eligible_leaders
from odradek.metadata.image import Image
from odradek.metadata.image.configs import ALL_BROKERS, BROKER_RESOURCE, TOPIC_RESOURCE
from odradek.metadata.records import ClearElrRecord, ConfigRecord
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from odradek.protocol.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest

ELR = "eligible.leader.replicas.version"
MIN_ISR = "min.insync.replicas"
TABLE = ConfigTable([ConfigKey(MIN_ISR, ConfigType.INT, 1, "A number.")])
RULES = ConfigRules(dict.fromkeys((TOPIC_RESOURCE, BROKER_RESOURCE), TABLE), lambda resource, configs: None)


def set_min_isr(image: Image, resource_type: int, name: str, text: str | None) -> tuple[ErrorCode, Image]:
    operation = Operation.DELETE if text is None else Operation.SET
    config = AlterableConfig(name=MIN_ISR, config_operation=operation, value=text)
    resource = AlterConfigsResource(resource_type=resource_type, resource_name=name, configs=[config])
    request = IncrementalAlterConfigsRequest(resources=[resource], validate_only=False)
    decision = incremental_alter_configs(image, request, rules=RULES)
    return ErrorCode(decision.answers[0][1].responses[0].error_code), replayed(image, decision.records)


def raise_feature(image: Image, level: int = 1) -> tuple[ErrorCode, Image]:
    update = FeatureUpdateKey(feature=ELR, max_version_level=level, upgrade_type=1 if level else 3)
    request = UpdateFeaturesRequest(feature_updates=[update], validate_only=False)
    decision = update_features(image, request, api_version=2, kraft_version=0, min_insync_replicas=2)
    return ErrorCode(decision.answers[0][1].error_code), replayed(image, decision.records)


def test_with_the_feature_one_minimum_counts_for_the_cluster() -> None:
    own = ConfigRecord(resource_type=BROKER_RESOURCE, resource_name="1", name=MIN_ISR, value="3")
    code, after = raise_feature(replayed(cluster(), [own]))
    assert code is ErrorCode.NONE
    assert after.features.level(ELR) == 1
    assert after.configs.by_resource == {(BROKER_RESOURCE, ALL_BROKERS): {MIN_ISR: "2"}}
    everyones = ConfigRecord(resource_type=BROKER_RESOURCE, resource_name=ALL_BROKERS, name=MIN_ISR, value="1")
    _, after = raise_feature(replayed(cluster(), [everyones]))
    assert after.configs.by_resource == {(BROKER_RESOURCE, ALL_BROKERS): {MIN_ISR: "1"}}


def test_the_feature_needs_records_that_can_hold_it() -> None:
    code, after = raise_feature(cluster(metadata_version=22))
    assert code is ErrorCode.INVALID_UPDATE_VERSION
    assert after.features.level(ELR) == 0


@pytest.mark.parametrize(("name", "text"), [("1", "2"), ("1", None), (ALL_BROKERS, None)])
def test_no_broker_has_a_minimum_of_its_own(name: str, text: str | None) -> None:
    image = replayed(
        with_elr(cluster()),
        [ConfigRecord(resource_type=BROKER_RESOURCE, resource_name=ALL_BROKERS, name=MIN_ISR, value="1")],
    )
    assert set_min_isr(image, BROKER_RESOURCE, name, text)[0] is ErrorCode.INVALID_CONFIG
    assert set_min_isr(image, BROKER_RESOURCE, ALL_BROKERS, "2")[0] is ErrorCode.NONE
    assert set_min_isr(cluster(), BROKER_RESOURCE, name, text)[0] is ErrorCode.NONE


@pytest.mark.parametrize(("resource_type", "name"), [(TOPIC_RESOURCE, "t"), (BROKER_RESOURCE, ALL_BROKERS)])
def test_another_minimum_makes_everybody_ineligible(resource_type: int, name: str) -> None:
    image = with_topic(with_elr(cluster(broker(1), broker(2))), led_by(1, [1, 2], [1], eligible_leader_replicas=[2]))
    _, after = set_min_isr(image, resource_type, name, "2")
    assert the_partition(image).elr == (2,)
    assert the_partition(after).elr == ()
    assert the_partition(after).partition_epoch == the_partition(image).partition_epoch + 1


def test_every_partition_has_the_minimum_of_its_own_replicas() -> None:
    """Those of the first one are no measure for others: whoever leaves their ISR has all that is acknowledged then."""
    brokers = [broker(number) for number in (1, 2, 3)]
    partitions = [led_by(1, [1]), led_by(1, [1, 2, 3], [1, 3])]
    _, image = set_min_isr(with_topic(with_elr(cluster(*brokers)), *partitions), TOPIC_RESOURCE, "t", "2")
    after = the_partition(replayed(image, fence(image, NodeId(3), rules(image))), 1)
    assert (after.isr, after.elr) == ((1,), (3,))


@pytest.mark.parametrize("least", ["1", "2", "3"])
def test_another_minimum_while_nobody_leads_leaves_those_who_may(least: str) -> None:
    """Nothing is acknowledged meanwhile; forgotten, the partition would have no leader for good."""
    dead = [broker(number, fenced=True) for number in (1, 2, 3)]
    partition = led_by(-1, [1, 2, 3], [], eligible_leader_replicas=[2, 3], last_known_elr=[1])
    _, image = set_min_isr(with_topic(with_elr(cluster(*dead)), partition), TOPIC_RESOURCE, "t", least)
    assert (the_partition(image).leader, the_partition(image).elr) == (NO_NODE, (2, 3))
    after = the_partition(replayed(image, unfence(image, NodeId(2), rules(image))))
    assert (after.leader, after.isr) == (2, (2,))
    assert after.elr == (() if least == "1" else (3,))  # A leader that is enough alone leaves others behind.
    assert (after.last_known_elr, after.leader_recovery_state) == ((), 0)


@pytest.mark.parametrize(("elr", "last_known"), [((2, 3), (1,)), ((), (2,))])
def test_without_the_feature_whoever_was_eligible_leads(elr: tuple[int, ...], last_known: tuple[int, ...]) -> None:
    """Turned off while nobody led, it left a partition without a leader for good (seed 830173)."""
    dead = [broker(number, fenced=True) for number in (1, 2, 3)]
    partition = led_by(-1, [1, 2, 3], [], eligible_leader_replicas=list(elr), last_known_elr=list(last_known))
    _, image = raise_feature(with_topic(with_elr(cluster(*dead)), partition), 0)
    for number in (1, 2):
        image = replayed(image, unfence(image, NodeId(number), rules(image)))
    after = the_partition(image)
    assert (after.leader, after.isr, after.elr) == (2, elr or (2,), ())


def test_a_minimum_that_makes_no_difference_makes_nobody_ineligible() -> None:
    """The only one in sync may have lost its power unseen; whoever is eligible has everything."""
    partition = led_by(1, [1, 2], [1], eligible_leader_replicas=[2])
    image = with_topic(with_elr(cluster(broker(1), broker(2))), partition)
    two = ConfigRecord(resource_type=TOPIC_RESOURCE, resource_name="t", name=MIN_ISR, value="2")
    for least, eligible in (("3", (2,)), ("1", ())):
        code, after = set_min_isr(replayed(image, [two]), TOPIC_RESOURCE, "t", least)
        assert code is ErrorCode.NONE
        assert the_partition(after).elr == eligible


def test_forgetting_is_written_so_that_every_version_replays_it_alike() -> None:
    """A version before this one does not raise the partition epoch for a ClearElrRecord; for a change all do."""
    partitions = [led_by(1, [1, 2], [1], eligible_leader_replicas=[2]), led_by(1, [1, 2])]
    image = with_topic(with_elr(cluster(broker(1), broker(2))), *partitions)
    config = AlterableConfig(name=MIN_ISR, config_operation=Operation.SET, value="2")
    resource = AlterConfigsResource(resource_type=BROKER_RESOURCE, resource_name=ALL_BROKERS, configs=[config])
    request = IncrementalAlterConfigsRequest(resources=[resource], validate_only=False)
    records = incremental_alter_configs(image, request, rules=RULES).records
    assert len(records) == 2
    assert not any(isinstance(record, ClearElrRecord) for record in records)
    after = replayed(image, records)
    assert [each.partition_epoch for each in after.topics.by_name["t"].partitions] == [7, 6]


def test_the_feature_on_again_finds_nobody_eligible() -> None:
    """While it was off min.insync.replicas was not heeded, and what is acknowledged then the eligible ones miss."""
    partitions = [
        led_by(1, [1, 2], [1], eligible_leader_replicas=[2]),
        led_by(-1, [1, 2], [], eligible_leader_replicas=[2], last_known_elr=[1]),
    ]
    _, after = raise_feature(with_topic(cluster(broker(1), broker(2)), *partitions))
    assert [each.elr for each in after.topics.by_name["t"].partitions] == [(), (2,)]


@pytest.mark.parametrize(
    ("replicas", "isr", "elr", "left"),
    [
        ([1, 2], [1, 2], [3], ()),  # A removed replica stayed eligible.
        ([1, 2, 3], [1, 2], [3], ()),  # ClearElrRecord passed over a topic of its own delta: two are enough.
        ([1, 2], [1], [2, 3], ()),  # 2 was removed like 3, and is a replica again, with nothing.
        ([1, 2], [], [1, 2, 3], (1, 2)),  # Nobody is in sync: one of these has it all.
        ([1, 2, 3], [1], [2, 3], (2, 3)),
        ([1, 2, 3], [], [1, 2], (1, 2)),
    ],
)
def test_what_earlier_versions_left_in_elrs_is_forgotten_before_anybody_is_elected(
    replicas: list[int], isr: list[int], elr: list[int], left: tuple[int, ...]
) -> None:
    leader = isr[0] if isr else -1
    partition = led_by(leader, replicas, isr, eligible_leader_replicas=elr, last_known_elr=[] if isr else [1])
    image = with_topic(with_elr(cluster(*map(broker, (1, 2, 3)))), partition)
    image = replayed(image, [min_isr_of_all("2")])
    records = list(impossible_eligible_leaders(image, rules(image)))
    after = the_partition(replayed(image, records))
    assert (after.elr, after.leader, after.isr) == (left, leader, tuple(isr))
    assert after.leader_epoch == the_partition(image).leader_epoch
    assert after.last_known_elr == the_partition(image).last_known_elr
    assert after.partition_epoch - the_partition(image).partition_epoch == len(records) == (tuple(elr) != left)
    assert not list(impossible_eligible_leaders(replayed(image, records), rules(image)))


def min_isr_of_all(text: str) -> ConfigRecord:
    return ConfigRecord(resource_type=BROKER_RESOURCE, resource_name=ALL_BROKERS, name=MIN_ISR, value=text)
