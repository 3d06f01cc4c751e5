"""Whatever raises, in a handler, a chore, a timer, an opening or a replay, harms nothing beside it (STYLE.md, 6)."""

from __future__ import annotations

import asyncio
import random
import struct
from typing import Any

import pytest
from tests.unit.server.net.one_node import ASK
from tests.unit.server.rig import Client, Rig, framed

from odradek.metadata.controller import topics as topic_decisions
from odradek.metadata.image.configs import BROKER_RESOURCE, TOPIC_RESOURCE
from odradek.metadata.image.topics import PartitionsOf, TopicChanges
from odradek.protocol.api import ApiKey, request_header_version
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.messages.delete_topics import DeleteTopicsRequest
from odradek.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from odradek.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from odradek.replication.broker_liveness import BrokerLiveness
from odradek.replication.partition import Partition
from odradek.server import node as node_module
from odradek.server.access.authorizer import Authorizer
from odradek.server.access.quotas import Quotas
from odradek.server.containment import MAX_PLACES_TOLD, Containment, Cost
from odradek.server.controller.controller import Controller
from odradek.server.coordinators.groups import GroupCoordinator
from odradek.server.following.fetchers import Fetchers
from odradek.server.membership.lifecycle import BrokerLifecycle, ControllerRegistrar
from odradek.server.metrics import exposition
from odradek.server.partitions.departures import Departures
from odradek.server.partitions.directory_choices import DirectoryChoices
from odradek.server.partitions.hosting import Hosting
from odradek.server.partitions.log_chores import LogChores
from odradek.server.partitions.replicas import Replicas
from odradek.server.partitions.throttles import Throttles
from odradek.storage.directories import LogDirectory

STANDARD_AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
CHORES = {
    "log.initial.task.delay.ms": "0",
    "log.retention.check.interval.ms": "1000",
    "log.flush.offset.checkpoint.interval.ms": "1000",
    "log.flush.start.offset.checkpoint.interval.ms": "1000",
    "log.flush.scheduler.interval.ms": "1000",
    "replica.high.watermark.checkpoint.interval.ms": "1000",
    "producer.id.expiration.check.interval.ms": "1000",
    "replica.lag.time.max.ms": "1000",
}


class Planted(Exception):
    """Nobody expects it."""


def surprise(draw: random.Random) -> Exception:
    kinds = [Planted, AssertionError, IndexError, KeyError, OverflowError, ValueError, ZeroDivisionError]
    return draw.choice(kinds)("planted")


@pytest.mark.parametrize("port", [9092, 9093])
@pytest.mark.parametrize("wait", [False, True])
def test_any_handler_that_raises_costs_its_request(port: int, wait: bool) -> None:
    rig = Rig()
    draw = random.Random(f"{port} {wait}")

    async def raising(*args: object) -> None:
        if wait:
            await asyncio.sleep(0.01)
        raise surprise(draw)

    def raising_at_once(*args: object) -> None:
        raise surprise(draw)

    async def test() -> None:
        await rig.create_topic("t")
        endpoints = rig.node.rooms.listeners.by_name["PLAINTEXT" if port == 9092 else "CONTROLLER"].scope.endpoints
        bystander = rig.connect()
        planted = 0
        for key in endpoints.routes:
            version = endpoints.announced[key].max_version
            endpoint = endpoints.compile(key, version)
            kept = endpoint.handle, endpoint.decode, endpoint.fast_path, endpoint.plan_of
            endpoint.handle = raising
            endpoint.decode = lambda frame, position: (None, position)
            endpoint.fast_path = raising_at_once if draw.random() < 0.5 and endpoint.fast_path is not None else None
            endpoint.plan_of = lambda request, version: request
            client = rig.connect(port)
            client.wire.feed(framed(_bare_request(key, version)))
            planted += 1
            await asyncio.sleep(0.1)
            assert client.wire.closed or client.answered, key
            endpoint.handle, endpoint.decode, endpoint.fast_path, endpoint.plan_of = kept
            assert (await bystander.ask(ASK, 9)).topics[0].error_code == 0
        assert rig.node.rooms.containment.counts[Cost.REQUEST] == planted
        await rig.restart()
        assert (await rig.connect().ask(ASK, 9)).topics[0].error_code == 0

    rig.run(test)


def _bare_request(key: ApiKey, version: int) -> bytes:
    body = struct.pack(">hhih", key, version, 1, 0)
    return body + b"\0" if request_header_version(key, version) >= 2 else body


def test_any_chore_that_raises_is_done_again_and_keeps_no_other_from_its_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = Rig(properties=CHORES)
    draw = random.Random(1)
    done: dict[str, int] = {}
    chores = [(LogChores, name) for name in vars(LogChores) if asyncio.iscoroutinefunction(getattr(LogChores, name))]

    def fragile(owner: type, name: str) -> None:
        chore = getattr(owner, name)

        async def run(self: Any) -> None:
            done[name] = done.get(name, 0) + 1
            if draw.random() < 0.5:
                raise surprise(draw)
            await chore(self)

        monkeypatch.setattr(owner, name, run)

    async def test() -> None:
        await rig.create_topic("t")
        await asyncio.sleep(30)
        assert (await rig.connect().ask(ASK, 9)).topics[0].error_code == 0

    for owner, name in [*chores, (Replicas, "check_isrs")]:
        fragile(owner, name)
    rig.run(test)
    assert {name for _, name in chores} | {"check_isrs"} == set(done)
    assert min(done.values()) > 2
    assert rig.node.rooms.containment.counts[Cost.TASK] > len(done)


@pytest.mark.parametrize("at_start", [False, True])
def test_a_partition_that_cannot_be_opened_costs_itself(monkeypatch: pytest.MonkeyPatch, at_start: bool) -> None:
    rig = Rig()
    opening = LogDirectory.open_log
    poisoned = not at_start

    def open_log(self: LogDirectory, topic: str, index: int, **how: Any) -> Any:
        if poisoned and (topic, index) == ("bad", 1):
            raise Planted
        return opening(self, topic, index, **how)

    async def errors(client: Client) -> dict[str, list[int]]:
        asked = MetadataRequest(topics=[MetadataRequestTopic(name=name) for name in ("bad", "t")])
        answer = await client.ask(asked, 9)
        assert {each.error_code for each in answer.topics} == {0}
        return {
            name: [
                0
                if rig.node.rooms.replicas.find(name, index)
                else int(rig.node.rooms.replicas.why_missing(name, index))
                for index in range(3)
            ]
            for name in ("bad", "t")
        }

    async def test() -> None:
        nonlocal poisoned
        if at_start:
            await rig.create_topic("bad", 3)
            await rig.create_topic("t", 3)
            poisoned = True
            await rig.restart()
        else:
            with pytest.raises(KafkaError):
                await rig.create_topic("bad", 3)
            await rig.create_topic("t", 3)
        whole = [0, 0, 0]
        assert await errors(rig.connect()) == {"bad": [0, ErrorCode.KAFKA_STORAGE_ERROR, 0], "t": whole}
        assert rig.node.rooms.containment.counts[Cost.PARTITION] == 1
        poisoned = False
        await rig.restart()
        assert await errors(rig.connect()) == {"bad": whole, "t": whole}
        assert rig.node.rooms.containment.total == 0

    monkeypatch.setattr(LogDirectory, "open_log", open_log)
    rig.run(test)


def test_a_partition_that_cannot_change_costs_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody knows what state it is in, so it is served no more; other topics come and go beside it."""
    rig = Rig()
    applying = Partition.apply

    def apply(self: Partition, state: Any, *, now_ms: int) -> Any:
        if (self.log.topic_id, self.log.partition) == (rig.topic_id("bad"), 0):
            raise Planted
        return applying(self, state, now_ms=now_ms)

    async def test() -> None:
        hosted = await rig.create_topic("bad", 2)
        topic = rig.node.rooms.image.topics.by_name["bad"]
        monkeypatch.setattr(Partition, "apply", apply)
        await rig.node._hosting.apply_topics_gradually(TopicChanges((), (PartitionsOf(topic, (0, 1), topic),), ()))
        assert [rig.node.rooms.replicas.hosts(each) for each in hosted] == [False, True]
        assert rig.node.rooms.replicas.why_missing("bad", 0) is ErrorCode.KAFKA_STORAGE_ERROR
        await rig.create_topic("t")
        monkeypatch.undo()
        await rig.restart()
        assert rig.node.rooms.replicas.find("bad", 0) is not None

    rig.run(test)


def test_a_decision_that_raises_costs_its_request(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = Rig()
    deciding = topic_decisions.create_topics

    def create_topics(image: Any, request: Any, **how: Any) -> Any:
        if request.topics[0].name == "bad":
            raise Planted
        return deciding(image, request, **how)

    async def test() -> None:
        outcomes = await asyncio.gather(*map(rig.create_topic, ("a", "bad", "t")), return_exceptions=True)
        assert [type(each) for each in outcomes] == [list, KafkaError, list]
        assert isinstance(outcomes[1], KafkaError)
        assert outcomes[1].code is ErrorCode.UNKNOWN_SERVER_ERROR
        await rig.create_topic("again")

    monkeypatch.setattr("odradek.server.controller.controller.create_topics", create_topics)
    rig.run(test)


LISTENERS: tuple[tuple[Any, str], ...] = (
    (node_module, "apply_broker_configs"),
    (GroupCoordinator, "apply"),
    (DirectoryChoices, "tell_changes"),
    (DirectoryChoices, "tell_all"),
    (BrokerLifecycle, "learn"),
    (ControllerRegistrar, "apply"),
    (Controller, "learn"),
    (Hosting, "apply_topic_config"),
    (Hosting, "apply_broker_config"),
    (Hosting, "set_aside_strays"),
    (Replicas, "discard"),
    (Throttles, "learn_rates"),
    (Departures, "note"),
    (BrokerLiveness, "learn"),
    (Fetchers, "_cluster_changed"),
    (Quotas, "apply"),
    (Authorizer, "apply"),
)
"""Who hears of what the cluster has agreed on, while it goes on or at the start."""


@pytest.mark.parametrize(("owner", "name"), LISTENERS, ids=lambda each: getattr(each, "__name__", each))
def test_whoever_raises_at_what_was_committed_costs_a_turn(
    monkeypatch: pytest.MonkeyPatch, owner: Any, name: str
) -> None:
    rig = Rig(properties={"authorizer.class.name": STANDARD_AUTHORIZER, "super.users": "User:ANONYMOUS"})
    draw = random.Random(name)
    kept, poisoned = getattr(owner, name), False

    def hear(*given: Any, **more: Any) -> Any:
        if poisoned:
            raise surprise(draw)
        return kept(*given, **more)

    async def configure(resource_type: int, resource: str, key: str) -> None:
        entry = AlterableConfig(name=key, value="5", config_operation=0)
        asked = AlterConfigsResource(resource_type=resource_type, resource_name=resource, configs=[entry])
        request = IncrementalAlterConfigsRequest(resources=[asked], validate_only=False)
        answer = await rig.connect().ask(request, 1)
        assert [each.error_code for each in answer.responses] == [0]

    async def test() -> None:
        nonlocal poisoned
        await rig.create_topic("t")
        await rig.create_topic("gone")
        poisoned = True
        await rig.create_topic("u")
        await configure(TOPIC_RESOURCE, "t", "flush.messages")
        await configure(BROKER_RESOURCE, "", "log.flush.interval.messages")
        deleted = await rig.connect().ask(DeleteTopicsRequest(topic_names=["gone"], timeout_ms=5_000), 5)
        assert [each.error_code for each in deleted.responses] == [0]
        await asyncio.sleep(1)
        assert rig.node.failed is None
        contained = rig.node.rooms.containment.total
        await rig.restart()
        assert (await rig.connect().ask(ASK, 9)).topics[0].error_code == 0
        assert contained + rig.node.rooms.containment.total > 0
        poisoned = False
        await rig.create_topic("v")
        assert (await rig.connect().ask(ASK, 9)).topics[0].error_code == 0
        await rig.restart()
        assert {"t", "u", "v"} <= set(rig.node.rooms.image.topics.by_name)

    monkeypatch.setattr(owner, name, hear)
    rig.run(test)


def test_tracebacks_are_told_once_a_place_and_everything_is_counted(caplog: pytest.LogCaptureFixture) -> None:
    rig = Rig()

    async def test() -> None:
        containment = rig.node.rooms.containment
        for _ in range(3):
            with containment.at_most(Cost.SHARD, "one"):
                raise Planted
        with containment.at_most(Cost.TASK, "another"):
            raise Planted
        assert 'odradek_unexpectedfailures_total{cost="shard"} 3' in exposition(rig.node.rooms)
        assert containment.total == 4

    rig.run(test)
    assert [record.exc_info is not None for record in caplog.records if "broken" in record.getMessage()] == [
        True,
        False,
        False,
        True,
    ]


def test_there_are_not_more_tracebacks_than_anybody_reads(caplog: pytest.LogCaptureFixture) -> None:
    containment = Containment()
    for number in range(MAX_PLACES_TOLD + 5):
        containment.note(Cost.TASK, "it", type(f"Kind{number}", (Exception,), {})())
    assert sum(record.exc_info is not None for record in caplog.records) == MAX_PLACES_TOLD
