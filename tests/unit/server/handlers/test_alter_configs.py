"""Settings change while the node runs, show where they come from, and have their effect at once."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from tests.unit.server.asking import produce, produced
from tests.unit.server.rig import Client, Rig

from odradek.metadata.image.configs import (
    BROKER_LOGGER_RESOURCE,
    BROKER_RESOURCE,
    CLIENT_METRICS_RESOURCE,
    GROUP_RESOURCE,
    TOPIC_RESOURCE,
)
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages import alter_configs as whole
from odradek.protocol.messages import incremental_alter_configs as incremental
from odradek.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
)
from odradek.protocol.messages.list_config_resources import ListConfigResourcesRequest
from odradek.replication.throttle import UNLIMITED


async def alter(client: Client, resource_type: int, name: str, **configs: str | None) -> tuple[int, str | None]:
    """Set, or delete what is None; keys come with underscores for dots."""
    request = incremental.IncrementalAlterConfigsRequest(
        resources=[
            incremental.AlterConfigsResource(
                resource_type=resource_type,
                resource_name=name,
                configs=[
                    incremental.AlterableConfig(
                        name=key.replace("_", "."), config_operation=1 if text is None else 0, value=text
                    )
                    for key, text in configs.items()
                ],
            )
        ],
        validate_only=False,
    )
    (answer,) = (await client.ask(request, 1)).responses
    return answer.error_code, answer.error_message


async def describe(
    client: Client, resource_type: int, name: str, *keys: str, **more: Any
) -> dict[str, DescribeConfigsResourceResult]:
    request = DescribeConfigsRequest(
        resources=[
            DescribeConfigsResource(
                resource_type=resource_type, resource_name=name, configuration_keys=list(keys) or None
            )
        ],
        include_synonyms=True,
        **more,
    )
    (result,) = (await client.ask(request, 4)).results
    assert result.error_code == 0, result
    return {each.name: each for each in result.configs}


def sources(entry: DescribeConfigsResourceResult) -> list[tuple[str, str | None, int]]:
    return [(each.name, each.value, each.source) for each in entry.synonyms]


def test_a_topics_settings_reach_its_logs() -> None:
    rig = Rig()

    async def change() -> None:
        (hosted,) = await rig.create_topic("t")
        client = rig.connect()
        assert await alter(client, TOPIC_RESOURCE, "t", max_message_bytes="10") == (0, None)
        assert hosted.partition.log.config.max_message_bytes == 10
        refused = produced(await client.ask(produce("t", b"too much for ten bytes"), 9))
        assert refused.error_code == ErrorCode.MESSAGE_TOO_LARGE
        assert await alter(client, TOPIC_RESOURCE, "t", max_message_bytes=None) == (0, None)
        assert produced(await client.ask(produce("t", b"well"), 9)).error_code == 0

    rig.run(change)


def test_a_brokers_settings_are_in_force_at_once_and_after_a_restart() -> None:
    rig = Rig(properties={"log.retention.hours": "2"})

    async def change() -> None:
        (hosted,) = await rig.create_topic("t")
        client = rig.connect()
        assert hosted.partition.log.config.retention_ms == 2 * 3_600_000
        assert await alter(client, BROKER_RESOURCE, "", log_retention_ms="1000", max_connections="5") == (0, None)
        assert await alter(client, BROKER_RESOURCE, "1", log_retention_ms="2000") == (0, None)
        assert hosted.partition.log.config.retention_ms == 2000
        assert rig.node.config.max_connections == 5
        (later,) = await rig.create_topic("later")
        assert later.partition.log.config.retention_ms == 2000
        await rig.restart()
        client = rig.connect()
        assert rig.node.rooms.replicas.require("t", 0).partition.log.config.retention_ms == 2000
        assert await alter(client, BROKER_RESOURCE, "1", log_retention_ms=None) == (0, None)
        assert rig.node.rooms.replicas.require("t", 0).partition.log.config.retention_ms == 1000
        assert await alter(client, BROKER_RESOURCE, "", log_retention_ms=None, max_connections=None) == (0, None)
        assert rig.node.rooms.replicas.require("t", 0).partition.log.config.retention_ms == 2 * 3_600_000
        assert rig.node.config.max_connections == 2**31 - 1

    rig.run(change)


def test_a_description_tells_every_source_of_a_value() -> None:
    rig = Rig(properties={"message.max.bytes": "4000"})

    async def change() -> None:
        await rig.create_topic("t", 1, {"max.message.bytes": "1000"})
        client = rig.connect()
        await alter(client, BROKER_RESOURCE, "1", message_max_bytes="2000")
        await alter(client, BROKER_RESOURCE, "", message_max_bytes="3000")
        broker_side = [
            ("message.max.bytes", "2000", 2),
            ("message.max.bytes", "3000", 3),
            ("message.max.bytes", "4000", 4),
            ("message.max.bytes", "1048588", 5),
        ]
        of_broker = (await describe(client, BROKER_RESOURCE, "1"))["message.max.bytes"]
        assert (of_broker.value, of_broker.config_source, of_broker.read_only) == ("2000", 2, False)
        assert sources(of_broker) == broker_side
        of_topic = (await describe(client, TOPIC_RESOURCE, "t", include_documentation=True))["max.message.bytes"]
        assert (of_topic.value, of_topic.config_source) == ("1000", 1)
        assert sources(of_topic) == [("max.message.bytes", "1000", 1), *broker_side]
        assert of_topic.documentation
        of_all = await describe(client, BROKER_RESOURCE, "")
        assert {name: sources(entry) for name, entry in of_all.items()} == {
            "message.max.bytes": [("message.max.bytes", "3000", 3)],
            "min.insync.replicas": [("min.insync.replicas", "1", 3)],  # On record where leaders may be eligible.
        }
        assert list(await describe(client, TOPIC_RESOURCE, "t", "retention.ms", "no.such.key")) == ["retention.ms"]

    rig.run(change)


def test_rates_of_replication_are_shown_where_they_are_set_and_not_taken_from_the_file() -> None:
    rig = Rig(properties={"leader.replication.throttled.rate": "777"})
    leader, follower = "leader.replication.throttled.rate", "follower.replication.throttled.rate"

    async def change() -> None:
        client, throttles = rig.connect(), rig.node.rooms.replicas.throttles
        before = await describe(client, BROKER_RESOURCE, "1", leader, follower)
        assert {name: sources(entry) for name, entry in before.items()} == {leader: [(leader, "777", 4)]}
        assert throttles.leader.limit == throttles.follower.limit == UNLIMITED
        assert await alter(client, BROKER_RESOURCE, "1", leader_replication_throttled_rate="1000") == (0, None)
        assert await alter(client, BROKER_RESOURCE, "", follower_replication_throttled_rate="0") == (0, None)
        after = await describe(client, BROKER_RESOURCE, "1", leader, follower)
        assert {name: (each.value, each.config_source, each.read_only) for name, each in after.items()} == {
            leader: ("1000", 2, False),
            follower: ("0", 3, False),
        }
        assert (throttles.leader.limit, throttles.follower.limit) == (1000, 0)
        assert await alter(client, BROKER_RESOURCE, "1", leader_replication_throttled_rate=None) == (0, None)
        assert throttles.leader.limit == UNLIMITED

    rig.run(change)


def test_what_nobody_knows_is_not_shown() -> None:
    rig = Rig(properties={"my.password": "secret"})

    async def look() -> None:
        entry = (await describe(rig.connect(), BROKER_RESOURCE, "1"))["my.password"]
        assert (entry.value, entry.is_sensitive, entry.read_only) == (None, True, True)
        assert sources(entry) == [("my.password", None, 4)]

    rig.run(look)


@pytest.mark.parametrize(
    ("resource_type", "name", "configs", "code", "says"),
    [
        (TOPIC_RESOURCE, "t", {"retention_mss": "1"}, ErrorCode.INVALID_CONFIG, "Did you mean retention.ms?"),
        (BROKER_RESOURCE, "1", {"mesage_max_bytes": "1"}, ErrorCode.INVALID_CONFIG, "Did you mean message.max.bytes?"),
        (GROUP_RESOURCE, "g", {"consumer_sesion_timeout_ms": "1"}, ErrorCode.INVALID_CONFIG, "Did you mean consumer"),
        (BROKER_RESOURCE, "1", {"num_partitions": "3"}, ErrorCode.INVALID_REQUEST, "[num.partitions]"),
        (BROKER_RESOURCE, "1", {"message_max_bytes": "-1"}, ErrorCode.INVALID_REQUEST, "at least 0"),
        (BROKER_RESOURCE, "1", {"leader_replication_throttled_rate": "-1"}, ErrorCode.INVALID_REQUEST, "at least 0"),
        (BROKER_RESOURCE, "", {"follower_replication_throttled_rate": "1.5"}, ErrorCode.INVALID_REQUEST, "type LONG"),
        (TOPIC_RESOURCE, "t", {"leader_replication_throttled_replicas": "0"}, ErrorCode.INVALID_CONFIG, "literal '*'"),
        (BROKER_RESOURCE, "1", {"replication_quota_window_num": "3"}, ErrorCode.INVALID_REQUEST, "dynamically"),
        (BROKER_RESOURCE, "", {"log_retention_ms": "0"}, ErrorCode.INVALID_REQUEST, "unlimited"),
        (BROKER_RESOURCE, "2", {"message_max_bytes": "1"}, ErrorCode.INVALID_REQUEST, "expected 1, but received 2"),
        (BROKER_RESOURCE, "x", {"message_max_bytes": "1"}, ErrorCode.INVALID_REQUEST, "must be an integer"),
        (GROUP_RESOURCE, "g", {"consumer_session_timeout_ms": "1"}, ErrorCode.INVALID_CONFIG, "group.consumer.min."),
        (GROUP_RESOURCE, "g", {"consumer_heartbeat_interval_ms": "99999"}, ErrorCode.INVALID_CONFIG, "less than"),
        (BROKER_LOGGER_RESOURCE, "1", {"no_such": "INFO"}, ErrorCode.INVALID_CONFIG, "does not exist"),
        (BROKER_LOGGER_RESOURCE, "1", {"root": "LOUD"}, ErrorCode.INVALID_CONFIG, "Valid log levels"),
        (BROKER_LOGGER_RESOURCE, "1", {"root": None}, ErrorCode.INVALID_REQUEST, "not allowed"),
        (BROKER_LOGGER_RESOURCE, "2", {"root": "INFO"}, ErrorCode.INVALID_REQUEST, "received 2"),
        (CLIENT_METRICS_RESOURCE, "m", {"metrics": ""}, ErrorCode.INVALID_REQUEST, "Unknown resource type 16"),
    ],
)
def test_wrong_settings_are_refused_with_a_reason(
    resource_type: int, name: str, configs: dict[str, str | None], code: ErrorCode, says: str
) -> None:
    rig = Rig()

    async def change() -> None:
        await rig.create_topic("t")
        before = rig.node.rooms.image.configs
        refused, message = await alter(rig.connect(), resource_type, name, **configs)
        assert refused == code
        assert says in (message or "")
        assert rig.node.rooms.image.configs is before

    rig.run(change)


def test_groups_have_settings_and_are_listed_by_them() -> None:
    rig = Rig()

    async def change() -> None:
        await rig.create_topic("t")
        client = rig.connect()
        assert await alter(client, GROUP_RESOURCE, "g", consumer_session_timeout_ms="50000") == (0, None)
        entry = (await describe(client, GROUP_RESOURCE, "g"))["consumer.session.timeout.ms"]
        assert (entry.value, entry.config_source) == ("50000", 8)
        assert sources(entry)[1:] == [("group.consumer.session.timeout.ms", "45000", 5)]
        for types, expected in (
            ([], [(32, "g"), (8, "1"), (4, "1"), (2, "t")]),
            ([TOPIC_RESOURCE], [(2, "t")]),
            ([GROUP_RESOURCE], [(32, "g")]),
            ([CLIENT_METRICS_RESOURCE], []),
        ):
            listed = await client.ask(ListConfigResourcesRequest(resource_types=types), 1)
            assert [(each.resource_type, each.resource_name) for each in listed.config_resources] == expected
        unknown = await client.ask(ListConfigResourcesRequest(resource_types=[99]), 1)
        assert unknown.error_code == ErrorCode.UNSUPPORTED_VERSION

    rig.run(change)


def test_levels_of_loggers_change_and_are_not_on_record() -> None:
    rig = Rig()
    logger = logging.getLogger("odradek.server.configs.loggers")
    before = logger.level

    async def change() -> None:
        client = rig.connect()
        configs = rig.node.rooms.image.configs
        try:
            assert await alter(client, BROKER_LOGGER_RESOURCE, "1", odradek_server_configs_loggers="FATAL") == (0, None)
            entry = (await describe(client, BROKER_LOGGER_RESOURCE, "1"))["odradek.server.configs.loggers"]
            assert (entry.value, entry.config_source) == ("FATAL", 6)
            assert logger.level == logging.CRITICAL
        finally:
            logger.setLevel(before)
        assert rig.node.rooms.image.configs is configs

    rig.run(change)


def test_answers_come_in_the_order_of_the_resources() -> None:
    rig = Rig()

    async def change() -> None:
        await rig.create_topic("t")
        named = [
            (BROKER_LOGGER_RESOURCE, "1"),
            (TOPIC_RESOURCE, "t"),
            (BROKER_LOGGER_RESOURCE, "9"),
            (TOPIC_RESOURCE, "u"),
        ]
        request = incremental.IncrementalAlterConfigsRequest(
            resources=[
                incremental.AlterConfigsResource(resource_type=kind, resource_name=name, configs=[])
                for kind, name in named
            ],
            validate_only=False,
        )
        answers = (await rig.connect().ask(request, 1)).responses
        assert [(each.resource_type, each.resource_name) for each in answers] == named
        assert [each.error_code for each in answers] == [
            0,
            0,
            ErrorCode.INVALID_REQUEST,
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ]
        request.resources = [request.resources[0], request.resources[0]]
        twice = (await rig.connect().ask(request, 1)).responses
        assert [each.error_code for each in twice] == [ErrorCode.INVALID_REQUEST] * 2

    rig.run(change)


def test_altering_as_a_whole_resets_what_is_not_named() -> None:
    rig = Rig()

    async def change() -> None:
        (hosted,) = await rig.create_topic("t", 1, {"retention.ms": "5", "segment.ms": "7"})
        request = whole.AlterConfigsRequest(
            resources=[
                whole.AlterConfigsResource(
                    resource_type=TOPIC_RESOURCE,
                    resource_name="t",
                    configs=[whole.AlterableConfig(name="retention.ms", value="6")],
                )
            ],
            validate_only=False,
        )
        (answer,) = (await rig.connect().ask(request, 2)).responses
        assert answer.error_code == 0
        assert hosted.partition.log.config.retention_ms == 6
        assert hosted.partition.log.config.segment_ms == 604_800_000

    rig.run(change)
