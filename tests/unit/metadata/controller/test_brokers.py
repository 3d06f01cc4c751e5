"""A node registers, serves, stops and comes back: what is on record then."""

from __future__ import annotations

import pytest
from tests.unit.metadata.building import broker, cluster, entropy, replayed, uuid

from odradek.ids import NO_NODE, NodeId, Offset
from odradek.metadata.controller.brokers import (
    NodeDescription,
    fence,
    live_controller,
    register_broker,
    register_controller,
    unfence,
)
from odradek.metadata.controller.directories import DirectoryAssignment, assign_directories
from odradek.metadata.controller.producer_ids import allocate_producer_ids
from odradek.metadata.image import EMPTY_IMAGE, Image
from odradek.metadata.image.cluster import Endpoint, FeatureRange
from odradek.metadata.image.topics import RECOVERED, RECOVERING, UNASSIGNED_DIRECTORY
from odradek.metadata.records import FeatureLevelRecord, PartitionChangeRecord, PartitionRecord, TopicRecord
from odradek.protocol.errors import ErrorCode, KafkaError

NODE = NodeDescription(
    node_id=NodeId(1),
    incarnation_id=uuid(900),
    broker_endpoints=(Endpoint("PLAINTEXT", "localhost", 9092, 0),),
    controller_endpoints=(Endpoint("CONTROLLER", "localhost", 9093, 0),),
    features=(FeatureRange("metadata.version", 7, 30),),
    rack="r",
    log_dirs=(uuid(300), uuid(301)),
)


def started(image: Image, *, broker_epoch: int) -> Image:
    image = replayed(image, register_controller(image, NODE))
    image = replayed(image, register_broker(image, NODE, broker_epoch=Offset(broker_epoch)))
    return replayed(image, unfence(image, NODE.node_id))


def empty(level: int = 30) -> Image:
    return replayed(EMPTY_IMAGE, [FeatureLevelRecord(name="metadata.version", feature_level=level)])


def with_partition(image: Image, *, leader: int, isr: list[int], **more: object) -> Image:
    fields: dict[str, object] = {
        "partition_id": 0,
        "topic_id": uuid(201),
        "replicas": [1],
        "isr": isr,
        "removing_replicas": [],
        "adding_replicas": [],
        "leader": leader,
        "leader_epoch": 4,
        "partition_epoch": 6,
        "directories": [UNASSIGNED_DIRECTORY],
    }
    record = PartitionRecord(**{**fields, **more})  # type: ignore[arg-type]
    return replayed(image, [TopicRecord(name="t", topic_id=uuid(201)), record])


def test_a_node_comes_up() -> None:
    image = started(empty(), broker_epoch=7)
    (registered,) = image.cluster.brokers.values()
    assert (registered.broker_epoch, registered.incarnation_id, registered.rack) == (7, uuid(900), "r")
    assert registered.active
    assert registered.cordoned_log_dirs == ()
    assert registered.endpoint("PLAINTEXT") == Endpoint("PLAINTEXT", "localhost", 9092, 0)
    assert registered.endpoint("CONTROLLER") is None
    (controller,) = image.cluster.controllers.values()
    assert controller.endpoint("CONTROLLER") == Endpoint("CONTROLLER", "localhost", 9093, 0)
    assert controller.endpoint("PLAINTEXT") is None


def test_an_old_cluster_keeps_no_controllers_and_no_cordoned_directories() -> None:
    image = started(empty(13), broker_epoch=7)
    assert not image.cluster.controllers
    assert image.cluster.brokers[NodeId(1)].cordoned_log_dirs is None


def test_it_is_fenced_once_when_it_stops() -> None:
    image = started(empty(), broker_epoch=7)
    image = replayed(image, fence(image, NODE.node_id))
    assert not image.cluster.alive_brokers()
    assert fence(image, NODE.node_id) == []
    assert fence(empty(), NODE.node_id) == []


@pytest.mark.parametrize(
    ("leader", "isr", "more"),
    [
        (1, [1], {}),
        (-1, [1], {}),
        (-1, [], {"eligible_leader_replicas": [1], "last_known_elr": [1]}),
        (-1, [], {"last_known_elr": [1]}),
        (-1, [], {"last_known_elr": [1], "leader_recovery_state": RECOVERING}),
    ],
)
def test_a_returning_broker_leads_again_in_a_new_epoch(leader: int, isr: list[int], more: dict[str, object]) -> None:
    image = started(with_partition(empty(), leader=leader, isr=isr, **more), broker_epoch=9)
    (partition,) = image.topics.by_name["t"].partitions
    assert (partition.leader, partition.isr, partition.leader_epoch) == (1, (1,), 5)
    assert (partition.elr, partition.last_known_elr, partition.leader_recovery_state) == ((), (), RECOVERED)


def test_a_broker_that_was_not_in_sync_does_not_lead() -> None:
    image = with_partition(cluster(broker(2, fenced=True)), leader=-1, isr=[2], replicas=[1, 2], directories=[])
    (partition,) = started(image, broker_epoch=9).topics.by_name["t"].partitions
    assert (partition.leader, partition.leader_epoch) == (NO_NODE, 4)


def test_a_broker_epoch_never_goes_back() -> None:
    image = started(empty(), broker_epoch=7)
    with pytest.raises(AssertionError, match="goes back"):
        register_broker(image, NODE, broker_epoch=Offset(7))


def test_clients_are_told_of_a_live_broker_as_controller() -> None:
    assert live_controller(empty(), entropy()) == NO_NODE
    image = cluster(broker(1, fenced=True), broker(2), broker(3))
    assert {live_controller(image, entropy(seed)) for seed in range(20)} == {2, 3}


def test_directories_are_told_once_chosen() -> None:
    image = with_partition(started(empty(), broker_epoch=7), leader=1, isr=[1])
    told = [
        DirectoryAssignment(uuid(201), 0, uuid(300)),
        DirectoryAssignment(uuid(201), 9, uuid(300)),
        DirectoryAssignment(uuid(999), 0, uuid(300)),
    ]
    (record,) = assign_directories(image, NODE.node_id, told)
    assert isinstance(record, PartitionChangeRecord)
    image = replayed(image, [record])
    (partition,) = image.topics.by_name["t"].partitions
    assert partition.directory(NODE.node_id) == uuid(300)
    assert (partition.leader_epoch, partition.partition_epoch) == (4, 7)
    assert assign_directories(image, NODE.node_id, told) == []
    assert assign_directories(with_partition(empty(16), leader=1, isr=[1]), NODE.node_id, told) == []


def test_producer_ids_come_in_blocks_that_never_overlap() -> None:
    image = started(empty(), broker_epoch=7)
    firsts = []
    for _ in range(3):
        decision = allocate_producer_ids(image, broker_id=NODE.node_id, broker_epoch=7)
        firsts.append(decision.answers[0][1].first)
        image = replayed(image, decision.records)
    assert firsts == [0, 1000, 2000]


@pytest.mark.parametrize(
    ("broker_id", "epoch", "code"),
    [(9, 7, ErrorCode.BROKER_ID_NOT_REGISTERED), (1, 6, ErrorCode.STALE_BROKER_EPOCH)],
)
def test_only_registered_brokers_get_producer_ids(broker_id: int, epoch: int, code: ErrorCode) -> None:
    with pytest.raises(KafkaError) as refused:
        allocate_producer_ids(started(empty(), broker_epoch=7), broker_id=NodeId(broker_id), broker_epoch=epoch)
    assert refused.value.code is code
