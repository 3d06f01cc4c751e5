"""Who may change an ISR, to what, and what the one who asked is told."""

from __future__ import annotations

from dataclasses import replace

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
    with_topic,
)

from odradek.metadata.controller.alter_partition import alter_partition
from odradek.metadata.image import Image
from odradek.metadata.image.topics import RECOVERED, RECOVERING, partition_record
from odradek.metadata.records import BrokerRegistrationChangeRecord
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.messages.alter_partition import (
    AlterPartitionRequest,
    BrokerState,
    PartitionData,
    RequestedPartitionData,
    RequestedTopicData,
)

CLUSTER = cluster(broker(1), broker(2), broker(3), broker(4, fenced=True), broker(5, shutting_down=True))
IMAGE = with_topic(CLUSTER, led_by(1, [1, 2, 3, 4, 5], [1, 2]))


def ask(
    image: Image,
    isr: list[int],
    *,
    broker_id: int = 1,
    epochs: dict[int, int] | None = None,
    api_version: int = 3,
    topic: int = 201,
    **more: int,
) -> tuple[PartitionData, Image]:
    fields = {"partition_index": 0, "leader_epoch": 4, "partition_epoch": 6, **more}
    members = [BrokerState(broker_id=each, broker_epoch=(epochs or {}).get(each, each)) for each in isr]
    partition = RequestedPartitionData(
        new_isr=isr if api_version < 3 else [], new_isr_with_epochs=members if api_version >= 3 else [], **fields
    )
    request = AlterPartitionRequest(
        broker_id=broker_id,
        broker_epoch=broker_id,
        topics=[RequestedTopicData(topic_id=uuid(topic), partitions=[partition])],
    )
    decision = alter_partition(image, request, api_version=api_version, rules=rules(image))
    ((_, response),) = decision.answers
    return response.topics[0].partitions[0], replayed(image, decision.records)


@pytest.mark.parametrize("api_version", [2, 3])
def test_the_leader_changes_the_isr(api_version: int) -> None:
    answer, after = ask(IMAGE, [1, 2, 3], api_version=api_version)
    assert (answer.error_code, answer.leader_id, answer.leader_epoch) == (0, 1, 4)
    assert (answer.isr, answer.partition_epoch) == ([1, 2, 3], 7)
    assert the_partition(after).isr == (1, 2, 3)


def test_what_stays_the_same_is_no_record() -> None:
    answer, after = ask(IMAGE, [1, 2])
    assert (answer.error_code, answer.partition_epoch) == (0, 6)
    assert the_partition(after).partition_epoch == 6


@pytest.mark.parametrize(
    ("code", "isr", "more"),
    [
        (ErrorCode.UNKNOWN_TOPIC_ID, [1], {"topic": 999}),
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, [1], {"partition_index": 1}),
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, [1], {"partition_index": -1}),
        (ErrorCode.NOT_CONTROLLER, [1], {"leader_epoch": 5}),
        (ErrorCode.NOT_CONTROLLER, [1, 2], {"broker_id": 2, "partition_epoch": 7}),
        (ErrorCode.FENCED_LEADER_EPOCH, [1], {"leader_epoch": 3}),
        (ErrorCode.INVALID_REQUEST, [1, 2], {"broker_id": 2}),
        (ErrorCode.INVALID_UPDATE_VERSION, [1], {"partition_epoch": 5}),
        (ErrorCode.INVALID_REQUEST, [1, 9], {}),
        (ErrorCode.INVALID_REQUEST, [1, 1], {}),
        (ErrorCode.INVALID_REQUEST, [2], {}),
        (ErrorCode.INVALID_REQUEST, [], {}),
        (ErrorCode.INVALID_REQUEST, [1, 2], {"leader_recovery_state": RECOVERING}),
        (ErrorCode.INVALID_REQUEST, [1], {"leader_recovery_state": RECOVERING}),
        (ErrorCode.INVALID_REQUEST, [1], {"leader_recovery_state": 9}),
        (ErrorCode.INELIGIBLE_REPLICA, [1, 4], {}),
        (ErrorCode.INELIGIBLE_REPLICA, [1, 5], {}),
        (ErrorCode.INELIGIBLE_REPLICA, [1, 3], {"epochs": {3: 2}}),
        (ErrorCode.INELIGIBLE_REPLICA, [1, 3], {"epochs": {3: 4}}),
    ],
)
def test_what_is_refused(code: ErrorCode, isr: list[int], more: dict[str, int]) -> None:
    answer, after = ask(IMAGE, isr, **more)  # type: ignore[arg-type]
    assert ErrorCode(answer.error_code) is code
    assert after.topics == IMAGE.topics


@pytest.mark.parametrize(("kept", "code"), [(3001, ErrorCode.NONE), (3002, ErrorCode.INELIGIBLE_REPLICA)])
def test_who_has_lost_the_directory_of_its_replica_cannot_be_in_sync(kept: int, code: ErrorCode) -> None:
    change = BrokerRegistrationChangeRecord(broker_id=3, broker_epoch=3, log_dirs=[uuid(kept)])
    answer, _ = ask(replayed(IMAGE, [change]), [1, 3])
    assert ErrorCode(answer.error_code) is code


def test_an_epoch_that_the_leader_does_not_know_is_not_held_against_anybody() -> None:
    answer, _ = ask(IMAGE, [1, 3], epochs={3: -1})
    assert answer.error_code == 0


@pytest.mark.parametrize("epoch", [0, 2])
def test_a_leader_that_was_replaced_is_not_heard(epoch: int) -> None:
    request = AlterPartitionRequest(broker_id=1, broker_epoch=epoch, topics=[])
    with pytest.raises(KafkaError) as refused:
        alter_partition(IMAGE, request, api_version=3, rules=rules(IMAGE))
    assert refused.value.code is ErrorCode.STALE_BROKER_EPOCH


def test_a_leader_that_has_recovered_says_so() -> None:
    image = with_topic(CLUSTER, led_by(1, [1, 2], [1], leader_recovery_state=RECOVERING))
    answer, after = ask(image, [1, 2], leader_recovery_state=RECOVERED)
    assert (answer.error_code, answer.leader_recovery_state) == (0, RECOVERED)
    assert the_partition(after).leader_recovery_state == RECOVERED


def test_a_leader_that_completes_its_own_removal_is_told_of_the_new_one() -> None:
    image = with_topic(CLUSTER, led_by(1, [2, 3, 1], [1, 2], removing_replicas=[1], adding_replicas=[3]))
    answer, after = ask(image, [1, 2, 3])
    assert ErrorCode(answer.error_code) is ErrorCode.NEW_LEADER_ELECTED
    assert (the_partition(after).leader, the_partition(after).replicas) == (2, (2, 3))
    assert image.topics.by_id[TOPIC].partitions[0].leader == 1


def test_a_leader_that_is_ahead_and_its_controller_agree_on_an_epoch_again() -> None:
    """One of them replayed a ClearElrRecord as an earlier version does, or has a snapshot of one that did."""
    answer, after = ask(IMAGE, [1, 2, 3], partition_epoch=8)
    assert answer.error_code == ErrorCode.INVALID_UPDATE_VERSION
    before = the_partition(IMAGE)
    assert the_partition(after) == replace(before, partition_epoch=9)
    elsewhere = with_topic(CLUSTER, led_by(1, [1, 2, 3, 4, 5], [1, 2], partition_epoch=8))
    record = partition_record(TOPIC, 0, the_partition(after))
    assert the_partition(replayed(elsewhere, [record])) == the_partition(after)
    answer, after = ask(after, [1, 2, 3], partition_epoch=9)
    assert (answer.error_code, the_partition(after).isr) == (0, (1, 2, 3))
    answer, _ = ask(IMAGE, [2, 1], broker_id=2, partition_epoch=8)
    assert answer.error_code == ErrorCode.NOT_CONTROLLER
