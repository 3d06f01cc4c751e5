"""Brokers tell where they have put their replicas."""

from __future__ import annotations

import pytest
from tests.unit.metadata.building import (
    TOPIC,
    broker,
    cluster,
    led_by,
    replayed,
    rules,
    the_partition,
    uuid,
    with_elr,
    with_topic,
)

from odradek.ids import NO_NODE, NodeId
from odradek.metadata.controller.brokers import unfence
from odradek.metadata.controller.directories import DirectoryAssignment, assign_replicas_to_dirs
from odradek.metadata.image import Image
from odradek.metadata.image.topics import LOST_DIRECTORY, UNASSIGNED_DIRECTORY
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.messages.assign_replicas_to_dirs import (
    AssignReplicasToDirsRequest,
    RequestedDirectoryData,
    RequestedPartitionData,
    RequestedTopicData,
)


def assigned(
    image: Image, *told: DirectoryAssignment, broker_id: int = 1, epoch: int = 1
) -> tuple[list[ErrorCode], Image]:
    request = AssignReplicasToDirsRequest(
        broker_id=broker_id,
        broker_epoch=epoch,
        directories=[
            RequestedDirectoryData(
                id=each.directory,
                topics=[
                    RequestedTopicData(
                        topic_id=each.topic_id, partitions=[RequestedPartitionData(partition_index=each.partition)]
                    )
                ],
            )
            for each in told
        ],
    )
    decision = assign_replicas_to_dirs(image, request, rules=rules(image))
    ((_, response),) = decision.answers
    codes = [
        ErrorCode(partition.error_code)
        for directory in response.directories
        for topic in directory.topics
        for partition in topic.partitions
    ]
    return codes, replayed(image, decision.records)


IMAGE = with_topic(
    cluster(broker(1, log_dirs=2), broker(2)),
    led_by(1, [1, 2], directories=[UNASSIGNED_DIRECTORY, uuid(2001)]),
    led_by(2, [2]),
)


def test_they_are_put_on_record_once() -> None:
    codes, after = assigned(
        IMAGE,
        DirectoryAssignment(TOPIC, 0, uuid(1002)),
        DirectoryAssignment(TOPIC, 9, uuid(1002)),
        DirectoryAssignment(TOPIC, 1, uuid(1002)),
        DirectoryAssignment(uuid(999), 0, uuid(1002)),
    )
    assert codes == [
        ErrorCode.NONE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_TOPIC_ID,
    ]
    partition = the_partition(after)
    assert partition.directories == (uuid(1002), uuid(2001))
    assert (partition.leader, partition.leader_epoch, partition.partition_epoch) == (1, 4, 7)
    _, again = assigned(after, DirectoryAssignment(TOPIC, 0, uuid(1002)))
    assert the_partition(again).partition_epoch == 7


def test_a_replica_in_a_directory_that_is_lost_is_in_sync_no_more() -> None:
    codes, after = assigned(IMAGE, DirectoryAssignment(TOPIC, 0, LOST_DIRECTORY))
    assert codes == [ErrorCode.NONE]
    partition = the_partition(after)
    assert (partition.directories[0], partition.leader, partition.isr) == (LOST_DIRECTORY, 2, (2,))


def test_only_the_broker_that_is_registered_is_heard() -> None:
    for broker_id, epoch in ((1, 2), (9, 9)):
        with pytest.raises(KafkaError) as refused:
            assigned(IMAGE, broker_id=broker_id, epoch=epoch)
        assert refused.value.code is ErrorCode.STALE_BROKER_EPOCH


def test_an_old_cluster_keeps_no_directories() -> None:
    with pytest.raises(KafkaError) as refused:
        assigned(cluster(broker(1), metadata_version=16))
    assert refused.value.code is ErrorCode.UNSUPPORTED_VERSION


@pytest.mark.parametrize("elr", [[], [1]])
def test_the_last_leader_with_a_new_disk_does_not_lead(elr: list[int]) -> None:
    """It is empty; broker 2 has what it had when it fell behind, and would cut all of it."""
    partition = led_by(
        -1,
        [1, 2],
        [],
        eligible_leader_replicas=elr,
        last_known_elr=[1],
        directories=[uuid(1999), uuid(2001)],
    )
    image = with_elr(with_topic(cluster(broker(1, fenced=True), broker(2)), partition))
    _, image = assigned(image, DirectoryAssignment(TOPIC, 0, uuid(1001)))
    image = replayed(image, unfence(image, NodeId(1), rules(image)))
    after = the_partition(image)
    assert (after.leader, after.elr, after.last_known_elr) == (NO_NODE, (), ())
    assert after.directories == (uuid(1001), uuid(2001))


@pytest.mark.parametrize("before", [uuid(1001), UNASSIGNED_DIRECTORY])
def test_the_last_leader_leads_where_it_only_moved_its_log(before: bytes) -> None:
    partition = led_by(-1, [1, 2], [], last_known_elr=[1], directories=[before, uuid(2001)])
    image = with_elr(with_topic(cluster(broker(1, fenced=True, log_dirs=2), broker(2)), partition))
    _, image = assigned(image, DirectoryAssignment(TOPIC, 0, uuid(1002)))
    image = replayed(image, unfence(image, NodeId(1), rules(image)))
    assert the_partition(image).leader == 1


def test_the_only_replica_leads_again_whatever_disk_it_is_on() -> None:
    partition = led_by(-1, [1], [], eligible_leader_replicas=[1], last_known_elr=[1], directories=[uuid(1999)])
    image = with_elr(with_topic(cluster(broker(1, fenced=True)), partition))
    _, image = assigned(image, DirectoryAssignment(TOPIC, 0, uuid(1001)))
    image = replayed(image, unfence(image, NodeId(1), rules(image)))
    assert the_partition(image).leader == 1
