"""The controller's queue: one sync for a burst, decisions in order, answers only for what is durable."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Coroutine
from typing import Any

import pytest
from tests.unit.server.metadata_machine import DIRECTORY, Machine, create_request, together

from odradek.metadata.records import ConfigRecord, PartitionChangeRecord
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from odradek.protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from odradek.protocol.messages.delete_topics import DeleteTopicsRequest
from odradek.server.configs.effective_configs import EffectiveConfigs

LOG = f"{DIRECTORY}/00000000000000000000.log"


def booted(**properties: str) -> Machine:
    machine = Machine(**properties)
    machine.boot()
    return machine


def test_a_burst_shares_one_sync_and_one_image() -> None:
    machine = booted()
    machine.committed.clear()
    requests = [machine.controller.create_topics(create_request(f"t{number}")) for number in range(50)]
    responses = machine.run(together(*requests))
    assert {response.topics[0].error_code for response in responses} == {0}
    assert len(machine.committed) == 1
    assert len(machine.quorum.image.topics.by_name) == 50


def test_a_decision_sees_those_before_it() -> None:
    machine = booted()
    controller = machine.controller
    grown = CreatePartitionsRequest(
        topics=[CreatePartitionsTopic(name="t", count=3, assignments=None)], timeout_ms=0, validate_only=False
    )
    first, second, more, gone, again = machine.run(
        together(
            controller.create_topics(create_request("t")),
            controller.create_topics(create_request("t")),
            controller.create_partitions(grown),
            controller.delete_topics(DeleteTopicsRequest(topic_names=["t"], timeout_ms=0), 5),
            controller.create_topics(create_request("t", partitions=2)),
        )
    )
    assert first.topics[0].error_code == 0
    assert second.topics[0].error_code == ErrorCode.TOPIC_ALREADY_EXISTS
    assert more.results[0].error_code == 0
    assert gone.responses[0].error_code == 0
    assert again.topics[0].error_code == 0
    topic = machine.quorum.image.topics.by_name["t"]
    assert topic.topic_id == again.topics[0].topic_id
    assert len(topic.partitions) == 2
    machine.crash("power")
    machine.open()
    assert machine.quorum.image.topics.by_name == {"t": topic}


def test_nobody_sees_what_is_not_durable() -> None:
    machine = booted()
    seen: list[bool] = []

    async def watch() -> None:
        asking = asyncio.ensure_future(machine.controller.create_topics(create_request("t")))
        while not asking.done():
            written = machine.world.disk.file_size(LOG) > size
            seen.append(written and "t" in machine.quorum.image.topics.by_name)
            await asyncio.sleep(0.0001)

    size = machine.world.disk.file_size(LOG)
    machine.run(watch())
    assert len(seen) > 3
    assert not any(seen[:-1])


def test_producer_ids_are_never_given_twice() -> None:
    machine = booted()
    firsts = machine.run(together(*(machine.producer_ids() for _ in range(3))))
    assert firsts == [0, 1000, 2000]
    machine.crash("power")
    machine.boot()
    assert machine.run(machine.producer_ids()) == 3000


def test_one_who_goes_away_disturbs_nobody() -> None:
    machine = booted()

    async def cancel_one() -> None:
        leaving = asyncio.ensure_future(machine.controller.create_topics(create_request("left")))
        staying = asyncio.ensure_future(machine.controller.create_topics(create_request("stayed")))
        await asyncio.sleep(0)
        leaving.cancel()
        assert (await staying).topics[0].error_code == 0

    machine.run(cancel_one())
    assert sorted(machine.quorum.image.topics.by_name) == ["left", "stayed"]


def test_a_full_disk_refuses_a_burst_whole_and_serves_again_when_there_is_room() -> None:
    machine = booted()
    machine.create("before")
    offset = machine.quorum.next_offset
    machine.device.capacity = machine.device.used + 300  # Room for some of them only.
    requests = [machine.controller.create_topics(create_request(f"t{number}")) for number in range(5)]
    outcomes = machine.run(_all_outcomes(*requests))
    assert {outcome.code for outcome in outcomes if isinstance(outcome, KafkaError)} == {ErrorCode.KAFKA_STORAGE_ERROR}
    assert len([outcome for outcome in outcomes if isinstance(outcome, KafkaError)]) == 5
    assert machine.quorum.next_offset == offset
    machine.device.capacity = 1 << 40
    machine.create("after")
    machine.crash("power")
    machine.open()
    assert sorted(machine.quorum.image.topics.by_name) == ["after", "before"]


def test_a_controller_that_could_not_write_its_first_records_decides_nothing() -> None:
    machine = Machine()
    machine.open()
    machine.device.capacity = machine.device.used + 50

    async def begin() -> None:
        machine.controller.activate(machine.quorum.epoch)
        await asyncio.sleep(0.5)
        with pytest.raises(KafkaError) as refused:
            await machine.register()
        assert refused.value.code is ErrorCode.NOT_CONTROLLER
        machine.device.capacity = 1 << 40
        await asyncio.sleep(1)
        await machine.register()

    machine.run(begin())


def test_eligible_leaders_that_an_earlier_release_left_are_forgotten_by_the_next_controller(
    caplog: pytest.LogCaptureFixture,
) -> None:
    machine = booted()
    machine.run(machine.controller.create_topics(create_request("t")))
    topic_id = machine.quorum.image.topics.by_name["t"].topic_id
    ghost = PartitionChangeRecord(partition_id=0, topic_id=topic_id, leader=-2, eligible_leader_replicas=[2])
    machine.run(machine.quorum.append([(ghost,)], epoch=machine.quorum.epoch))
    assert machine.quorum.image.topics.by_name["t"].partitions[0].elr == (2,)

    async def settle() -> None:
        machine.controller.deactivate()
        machine.controller.activate(machine.quorum.epoch)
        await asyncio.sleep(1)

    machine.run(settle())
    assert machine.quorum.image.topics.by_name["t"].partitions[0].elr == ()
    assert "they are forgotten (partitions: 1)" in caplog.text


def test_a_disk_that_fails_stops_the_node_and_tells_those_who_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = booted()
    failures: list[BaseException] = []
    machine.controller.on_failure = failures.append

    async def fail(job: object) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(machine.world.workers, "run", fail)
    with pytest.raises(OSError, match="Input/output error"):
        machine.create("t")
    assert [type(failure) for failure in failures] == [OSError]
    assert "t" not in machine.quorum.image.topics.by_name


def test_topics_may_be_kept_from_deletion() -> None:
    machine = booted(delete_topic_enable="false")
    machine.create("t")
    response = machine.run(machine.controller.delete_topics(DeleteTopicsRequest(topic_names=["t"], timeout_ms=0), 5))
    assert response.responses[0].error_code == ErrorCode.TOPIC_DELETION_DISABLED


def test_the_nodes_configuration_gives_the_defaults() -> None:
    machine = booted(num_partitions="4", log_retention_hours="1", min_insync_replicas="1")
    topic = CreatableTopic(
        name="t",
        num_partitions=-1,
        replication_factor=-1,
        assignments=[],
        configs=[CreatableTopicConfig(name="segment.ms", value="60000")],
    )
    (result,) = machine.run(machine.controller.create_topics(CreateTopicsRequest(topics=[topic]))).topics
    assert (result.num_partitions, result.replication_factor) == (4, 1)
    listed = {config.name: (config.value, config.config_source) for config in result.configs or ()}
    assert listed["segment.ms"] == ("60000", 1)
    assert listed["retention.ms"] == ("3600000", 4)
    assert listed["cleanup.policy"] == ("delete", 5)
    assert listed["leader.replication.throttled.replicas"] == ("", 5)
    assert "internal.segment.bytes" not in listed
    assert list(listed) == sorted(listed)


def test_an_unknown_config_is_refused() -> None:
    machine = booted()
    topic = CreatableTopic(
        name="t",
        num_partitions=1,
        replication_factor=1,
        assignments=[],
        configs=[CreatableTopicConfig(name="no.such.key", value="1")],
    )
    (result,) = machine.run(machine.controller.create_topics(CreateTopicsRequest(topics=[topic]))).topics
    assert result.error_code == ErrorCode.INVALID_CONFIG
    assert result.error_message is not None
    assert result.error_message.startswith("Unknown topic config name: no.such.key")


def test_configs_of_all_brokers_count_before_the_file() -> None:
    machine = booted(min_insync_replicas="1")
    record = ConfigRecord(resource_type=4, resource_name="", name="min.insync.replicas", value="2")
    machine.run(machine.quorum.append([[record]]))
    listed = {
        each.name: (each.value, each.config_source)
        for each in EffectiveConfigs(machine.config).of_topic(machine.quorum.image, {})
    }
    assert listed["min.insync.replicas"] == ("2", 3)


async def _all_outcomes(*work: Coroutine[Any, Any, Any]) -> list[Any]:
    return await asyncio.gather(*work, return_exceptions=True)
