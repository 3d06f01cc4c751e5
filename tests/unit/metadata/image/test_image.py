"""Images: what records make of them, what they share, and that a snapshot of one makes the same one again."""

from __future__ import annotations

import pytest
from tests.unit.metadata.building import broker, cluster, replayed, uuid

from odradek.ids import LeaderEpoch, NodeId, Offset
from odradek.metadata.image import EMPTY_IMAGE, Delta, Image, Provenance, UnknownRecord
from odradek.metadata.image.acls import acl_record
from odradek.metadata.image.client_quotas import quota_record
from odradek.metadata.image.topics import MIGRATING_DIRECTORY
from odradek.metadata.records import (
    BrokerRegistrationChangeRecord,
    ClearElrRecord,
    ConfigRecord,
    FeatureLevelRecord,
    FenceBrokerRecord,
    NoOpRecord,
    PartitionChangeRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RemoveAccessControlEntryRecord,
    RemoveDelegationTokenRecord,
    RemoveTopicRecord,
    RemoveUserScramCredentialRecord,
    TopicRecord,
    UnfenceBrokerRecord,
    UnregisterBrokerRecord,
    UserScramCredentialRecord,
)
from odradek.metadata.serde import decode_record, encode_record
from odradek.protocol.codec import Message
from odradek.security.acl import Acl

PLACE = Provenance(Offset(9), LeaderEpoch(2), 5)


def partition(topic: int, index: int, *replicas: int, **more: object) -> PartitionRecord:
    fields: dict[str, object] = {
        "partition_id": index,
        "topic_id": uuid(topic),
        "replicas": list(replicas),
        "isr": list(replicas),
        "removing_replicas": [],
        "adding_replicas": [],
        "leader": replicas[0],
        "leader_epoch": 0,
        "partition_epoch": 0,
        "directories": [uuid(1)] * len(replicas),
    }
    return PartitionRecord(**{**fields, **more})  # type: ignore[arg-type]


def topic(number: int, name: str, partitions: int = 1) -> list[Message]:
    return [
        TopicRecord(name=name, topic_id=uuid(number)),
        *(partition(number, index, 1) for index in range(partitions)),
    ]


def rich_image() -> Image:
    """Something of everything that a snapshot must keep."""
    return replayed(
        cluster(broker(1, rack="a"), broker(2, fenced=True, log_dirs=2)),
        [
            *topic(500, "one.two", 3),
            *topic(501, "plain"),
            partition(501, 1, 1, 2, eligible_leader_replicas=[2], last_known_elr=[1], leader_recovery_state=1),
            ConfigRecord(resource_type=2, resource_name="plain", name="retention.ms", value="5"),
            ConfigRecord(resource_type=4, resource_name="", name="min.insync.replicas", value="2"),
            FeatureLevelRecord(name="group.version", feature_level=1),
            ProducerIdsRecord(broker_id=1, broker_epoch=1, next_producer_id=3000),
            PartitionChangeRecord(partition_id=0, topic_id=uuid(500), leader=-1, isr=[]),
            quota_record((("client-id", "app"), ("user", None)), "producer_byte_rate", 5.0),
            acl_record(uuid(900), Acl(2, "plain", 3, "User:alice", "*", 3, 3)),
            UserScramCredentialRecord(
                name="alice", mechanism=1, salt=b"s", stored_key=b"k", server_key=b"v", iterations=4096
            ),
        ],
    )


def test_a_snapshot_makes_the_same_image_again() -> None:
    image = rich_image()
    frames = [encode_record(record, image.features.metadata_version) for record in image.records()]
    again = replayed(EMPTY_IMAGE, [decode_record(frame) for frame in frames])
    assert again == image


def test_the_order_of_a_snapshot_is_kafkas() -> None:
    kinds = list(dict.fromkeys(type(record).__name__ for record in rich_image().records()))
    assert kinds == [
        "FeatureLevelRecord",
        "RegisterBrokerRecord",
        "TopicRecord",
        "PartitionRecord",
        "ConfigRecord",
        "ClientQuotaRecord",
        "ProducerIdsRecord",
        "AccessControlEntryRecord",
        "UserScramCredentialRecord",
    ]


def test_what_a_delta_does_not_touch_is_shared() -> None:
    before = rich_image()
    after = replayed(before, topic(502, "new"))
    assert after.cluster is before.cluster
    assert after.configs is before.configs
    assert after.topics.by_name["plain"] is before.topics.by_name["plain"]
    assert "new" not in before.topics.by_name


def test_changes_name_what_is_new_what_is_different_and_what_is_gone() -> None:
    before = replayed(cluster(), [*topic(1, "grows", 2), *topic(2, "goes"), *topic(3, "stays")])
    delta = Delta(before)
    for record in [
        partition(1, 2, 1),
        PartitionChangeRecord(partition_id=0, topic_id=uuid(1), leader=1),
        RemoveTopicRecord(topic_id=uuid(2)),
        *topic(4, "comes", 2),
        *topic(5, "came and went"),
        RemoveTopicRecord(topic_id=uuid(5)),
    ]:
        delta.replay(record)
    image, changes = delta.apply(PLACE)
    assert [(each.topic.name, each.partitions) for each in changes.topics.created] == [
        ("grows", (2,)),
        ("comes", (0, 1)),
    ]
    assert [(each.topic.name, each.partitions) for each in changes.topics.changed] == [("grows", (0,))]
    assert [each.name for each in changes.topics.deleted] == ["goes"]
    assert list(image.topics.by_name) == ["grows", "stays", "comes"]
    assert not changes.brokers_changed
    assert image.provenance == PLACE


def test_a_name_can_be_used_again_within_one_delta() -> None:
    before = replayed(cluster(), topic(1, "same_name"))
    delta = Delta(before)
    for record in [RemoveTopicRecord(topic_id=uuid(1)), *topic(2, "same_name", 2)]:
        delta.replay(record)
    image, changes = delta.apply(PLACE)
    assert image.topics.by_name["same_name"].topic_id == uuid(2)
    assert [each.topic_id for each in changes.topics.deleted] == [uuid(1)]
    assert [each.topic.topic_id for each in changes.topics.created] == [uuid(2)]
    assert image.topics.colliding == {"same_name": ("same_name",)}


def test_naming_a_leader_starts_an_epoch_and_any_change_raises_the_partition_epoch() -> None:
    image = replayed(cluster(), topic(1, "t"))
    image = replayed(image, [PartitionChangeRecord(partition_id=0, topic_id=uuid(1), isr=[1])])
    (changed,) = image.topics.by_name["t"].partitions
    assert (changed.leader_epoch, changed.partition_epoch) == (0, 1)
    image = replayed(image, [PartitionChangeRecord(partition_id=0, topic_id=uuid(1), leader=1)])
    (changed,) = image.topics.by_name["t"].partitions
    assert (changed.leader, changed.leader_epoch, changed.partition_epoch) == (1, 1, 2)


def test_a_partition_of_an_old_release_has_no_directories() -> None:
    image = replayed(cluster(), [TopicRecord(name="t", topic_id=uuid(1)), partition(1, 0, 1, 2, directories=[])])
    assert image.topics.by_name["t"].partitions[0].directories == (MIGRATING_DIRECTORY, MIGRATING_DIRECTORY)


def test_partitions_may_come_in_any_order_but_without_gaps() -> None:
    head = TopicRecord(name="t", topic_id=uuid(1))
    image = replayed(cluster(), [head, partition(1, 1, 2), partition(1, 0, 1)])
    assert [each.leader for each in image.topics.by_name["t"].partitions] == [1, 2]
    with pytest.raises(AssertionError, match="t-1 is missing"):
        replayed(cluster(), [head, partition(1, 0, 1), partition(1, 2, 1)])


def test_a_removed_topic_takes_its_configuration_along() -> None:
    config = ConfigRecord(resource_type=2, resource_name="t", name="retention.ms", value="5")
    image = replayed(cluster(), [*topic(1, "t"), config])
    assert image.configs.of_topic("t") == {"retention.ms": "5"}
    image = replayed(image, [RemoveTopicRecord(topic_id=uuid(1))])
    assert image.configs.by_resource == {}


def test_a_config_without_a_value_is_unset() -> None:
    image = replayed(cluster(), [ConfigRecord(resource_type=2, resource_name="t", name="a", value="1")])
    image = replayed(image, [ConfigRecord(resource_type=2, resource_name="t", name="a", value=None)])
    assert image.configs.by_resource == {}


def test_quotas_rules_and_credentials_go_by_their_records() -> None:
    entity = (("client-id", "app"), ("user", None))
    gone = [
        RemoveAccessControlEntryRecord(id=uuid(900)),
        RemoveUserScramCredentialRecord(name="alice", mechanism=1),
        quota_record(entity, "request_percentage", 7.0),
        quota_record(entity, "producer_byte_rate", None),
    ]
    image = replayed(rich_image(), gone)
    assert (image.acls.by_id, image.scram.credentials) == ({}, {})
    assert image.client_quotas.by_entity == {entity: {"request_percentage": 7.0}}
    image = replayed(image, [quota_record(entity, "request_percentage", None)])
    assert image.client_quotas.by_entity == {}


def test_clear_elr_of_one_topic_and_of_all() -> None:
    elr = {"eligible_leader_replicas": [1], "last_known_elr": [1]}
    records: list[Message] = []
    for number, name in ((1, "a"), (2, "b")):
        records += [TopicRecord(name=name, topic_id=uuid(number)), partition(number, 0, 1, **elr)]
    image = replayed(cluster(), records)
    one = replayed(image, [ClearElrRecord(topic_name="a")])
    assert [one.topics.by_name[name].partitions[0].elr for name in "ab"] == [(), (1,)]
    every = replayed(image, [ClearElrRecord(topic_name="")])
    assert [every.topics.by_name[name].partitions[0].last_known_elr for name in "ab"] == [(), ()]


def test_clear_elr_reaches_topics_of_the_same_delta() -> None:
    """A node that starts replays its whole log as one delta: who was cleared before must not be eligible again."""
    elr = {"eligible_leader_replicas": [2], "last_known_elr": [1]}
    created = [TopicRecord(name="a", topic_id=uuid(1)), partition(1, 0, 1, 2, **elr)]
    for cleared in ("a", ""):
        at_once = replayed(cluster(), [*created, ClearElrRecord(topic_name=cleared)])
        in_turn = replayed(replayed(cluster(), created), [ClearElrRecord(topic_name=cleared)])
        the_partition = at_once.topics.by_name["a"].partitions[0]
        assert (the_partition.elr, the_partition.last_known_elr) == ((), ())
        assert at_once.topics == in_turn.topics
    recreated = [
        RemoveTopicRecord(topic_id=uuid(1)),
        TopicRecord(name="a", topic_id=uuid(2)),
        partition(2, 0, 1, **elr),
    ]
    again = replayed(replayed(cluster(), created), [*recreated, ClearElrRecord(topic_name="a")])
    assert again.topics.by_name["a"].partitions[0].elr == ()


def test_clear_elr_raises_the_partition_epoch_where_it_clears_something() -> None:
    """As in Kafka: a leader whose epoch differs from the controller's never has an ISR accepted again."""
    records = [
        TopicRecord(name="a", topic_id=uuid(1)),
        partition(1, 0, 1, partition_epoch=6, eligible_leader_replicas=[2]),
        partition(1, 1, 1, partition_epoch=6, last_known_elr=[2]),
        partition(1, 2, 1, partition_epoch=6),
    ]
    after = replayed(replayed(cluster(), records), [ClearElrRecord(topic_name="")])
    assert [each.partition_epoch for each in after.topics.by_name["a"].partitions] == [7, 7, 6]
    assert [each.leader_epoch for each in after.topics.by_name["a"].partitions] == [0, 0, 0]


def test_brokers_are_fenced_unfenced_and_unregistered() -> None:
    image = cluster(broker(1), broker(2, fenced=True))
    image = replayed(image, [FenceBrokerRecord(id=1, epoch=1), UnfenceBrokerRecord(id=2, epoch=2)])
    assert [each.broker_id for each in image.cluster.alive_brokers()] == [2]
    change = BrokerRegistrationChangeRecord(
        broker_id=2, broker_epoch=2, in_controlled_shutdown=1, log_dirs=[uuid(5)], cordoned_log_dirs=[uuid(5)]
    )
    image = replayed(image, [change])
    second = image.cluster.brokers[NodeId(2)]
    assert not second.active
    assert not second.fenced
    assert (second.log_dirs, second.cordoned_log_dirs) == ((uuid(5),), (uuid(5),))
    image = replayed(image, [UnregisterBrokerRecord(broker_id=2, broker_epoch=2)])
    assert list(image.cluster.brokers) == [1]


def test_a_record_of_another_incarnation_breaks_an_invariant() -> None:
    with pytest.raises(AssertionError, match="epoch"):
        replayed(cluster(), [FenceBrokerRecord(id=1, epoch=77)])


def test_an_idle_controller_changes_nothing() -> None:
    image = cluster()
    again = replayed(image, [NoOpRecord()])
    assert (again.topics, again.cluster, again.configs) == (image.topics, image.cluster, image.configs)


def test_a_kind_that_is_not_supported_is_named() -> None:
    with pytest.raises(UnknownRecord, match="RemoveDelegationTokenRecord"):
        replayed(cluster(), [RemoveDelegationTokenRecord(token_id="t")])
