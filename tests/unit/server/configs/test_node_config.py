"""`server.properties` as Kafka reads it, what is passed over with a warning, and what stops the start."""

from __future__ import annotations

import pytest

from odradek.configdef import ConfigError, parse_properties, value_text
from odradek.server.configs.node_config import ListenerSetting, NodeConfig, VoterSetting, load
from odradek.server.configs.settings import NODE_CONFIGS
from odradek.server.configs.unsupported import NO_EFFECT
from odradek.storage.config import TOPIC_CONFIGS

LONE_NODE = {
    "node.id": "1",
    "process.roles": "broker,controller",
    "listeners": "PLAINTEXT://:9092,CONTROLLER://:9093",
    "controller.listener.names": "CONTROLLER",
}

SHIPPED = """
# What Kafka 4's own config/server.properties sets
process.roles=broker,controller
node.id=1
controller.quorum.bootstrap.servers=localhost:9093
listeners=PLAINTEXT://:9092,CONTROLLER://:9093
inter.broker.listener.name=PLAINTEXT
advertised.listeners=PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT,SASL_SSL:SASL_SSL
num.network.threads=3
num.io.threads=8
socket.send.buffer.bytes=102400
socket.receive.buffer.bytes=102400
socket.request.max.bytes=104857600
log.dirs=/tmp/kraft-combined-logs
num.partitions=1
num.recovery.threads.per.data.dir=1
offsets.topic.replication.factor=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
log.retention.hours=168
log.segment.bytes=1073741824
log.retention.check.interval.ms=300000
"""


def load_with(**changes: str | None) -> NodeConfig:
    """The lone node with some keys changed; an underscore stands for a dot, None takes the key away."""
    properties: dict[str, str | None] = {**LONE_NODE, **{k.replace("_", "."): v for k, v in changes.items()}}
    return load({name: text for name, text in properties.items() if text is not None})


def test_the_file_that_kafka_ships_loads_as_it_is() -> None:
    config = load(parse_properties(SHIPPED))
    assert config.node_id == 1
    assert config.broker_listeners == (ListenerSetting("PLAINTEXT", "", 9092),)
    assert config.controller_listeners == (ListenerSetting("CONTROLLER", "", 9093),)
    assert config.advertised_listeners == (ListenerSetting("PLAINTEXT", "localhost", 9092),)
    assert config.controller_advertised_listeners == (ListenerSetting("CONTROLLER", "localhost", 9093),)
    assert config.inter_broker_listener_name == "PLAINTEXT"
    assert config.log_dirs == ("/tmp/kraft-combined-logs",)
    assert config.metadata_log_dir == "/tmp/kraft-combined-logs"
    assert config.log_defaults.retention_ms == 168 * 3_600_000
    assert config.warnings == (
        "num.network.threads, num.io.threads, num.recovery.threads.per.data.dir have no effect: "
        "one event loop does the work that Kafka gives to its threads.",
        "socket.send.buffer.bytes, socket.receive.buffer.bytes have no effect: "
        "buffers and back-pressure are sized by the node itself.",
        "share.coordinator.state.topic.replication.factor, share.coordinator.state.topic.min.isr have no effect: "
        "share groups are not there yet.",
    )


def test_a_misspelt_key_is_a_warning_that_names_the_nearest() -> None:
    config = load_with(num_partition="3", something_else_entirely="x")
    assert config.warnings == (
        "Unknown configuration num.partition is ignored. Did you mean num.partitions?",
        "Unknown configuration something.else.entirely is ignored.",
    )
    assert config.num_partitions == 1


def test_settings_have_types_and_defaults() -> None:
    config = load_with(auto_create_topics_enable="false", log_dirs=" /a , /b,/a ", log_retention_ms="5")
    assert config.auto_create_topics_enable is False
    assert config.delete_topic_enable is True
    assert config.log_dirs == ("/a", "/b")
    assert config.socket_request_max_bytes == 104_857_600
    assert config.log_defaults.retention_ms == 5
    assert load_with().log_dirs == ("/tmp/kafka-logs",)
    assert load_with(metadata_log_dir="/m").metadata_log_dir == "/m"


def test_a_listener_without_a_host_is_advertised_under_the_given_name() -> None:
    config = load(LONE_NODE, host_name="box")
    assert config.advertised_listeners == (ListenerSetting("PLAINTEXT", "box", 9092),)
    assert config.controller_advertised_listeners == (ListenerSetting("CONTROLLER", "box", 9093),)


def test_ipv6_and_own_listener_names() -> None:
    config = load_with(
        listeners="inside://127.0.0.1:9092,OUTSIDE://[::1]:9092,CONTROLLER://:0",
        listener_security_protocol_map="INSIDE:PLAINTEXT,OUTSIDE:PLAINTEXT,CONTROLLER:PLAINTEXT",
    )
    assert [str(one) for one in config.advertised_listeners] == ["INSIDE://127.0.0.1:9092", "OUTSIDE://[::1]:9092"]
    assert config.inter_broker_listener_name == "INSIDE"


def test_broker_id_is_the_older_name_of_node_id() -> None:
    assert load_with(node_id=None, broker_id="7").node_id == 7
    with pytest.raises(ConfigError, match=r"node\.id.*same value as.*broker\.id"):
        load_with(broker_id="2")


def test_voters_are_where_the_quorum_is_looked_for() -> None:
    config = load_with(controller_quorum_voters="1@[::1]:9093,2@other:9094")
    assert config.controller_quorum_voters == (VoterSetting(1, "::1", 9093), VoterSetting(2, "other", 9094))
    assert config.controller_bootstrap == (("::1", 9093), ("other", 9094))
    assert load_with(controller_quorum_bootstrap_servers="a:1,b:2").controller_bootstrap == (("a", 1), ("b", 2))


@pytest.mark.parametrize(
    ("changes", "alone"),
    [
        ({}, True),
        ({"controller_quorum_voters": "1@localhost:9093"}, True),
        ({"controller_quorum_voters": "1@localhost:9093,2@localhost:9094"}, False),
        ({"controller_quorum_bootstrap_servers": "localhost:9093"}, True),
        ({"controller_quorum_bootstrap_servers": "localhost:9094"}, False),
        ({"controller_quorum_bootstrap_servers": "elsewhere:9093"}, False),
        ({"controller_quorum_bootstrap_servers": "localhost:9093,localhost:9094"}, False),
    ],
)
def test_a_node_is_alone_when_nobody_else_is_named(changes: dict[str, str | None], alone: bool) -> None:
    assert load_with(**changes).is_alone is alone


def test_a_node_may_have_one_role_only() -> None:
    voters = "1@localhost:9093,2@localhost:9094"
    controller = load_with(process_roles="controller", listeners="CONTROLLER://:9093", controller_quorum_voters=voters)
    assert (controller.is_controller, controller.is_broker) == (True, False)
    assert controller.advertised_listeners == ()
    broker = load_with(
        node_id="7", process_roles="broker", listeners="PLAINTEXT://:9092", controller_quorum_voters=voters
    )
    assert (broker.is_controller, broker.is_broker, broker.is_alone) == (False, True, False)
    assert broker.controller_listeners == broker.controller_advertised_listeners == ()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"node_id": None}, 'Missing required configuration "node.id" which has no default value.'),
        (
            {"process_roles": "broker"},
            "must not contain a value appearing in the 'listeners' configuration when running",
        ),
        (
            {"process_roles": "controller"},
            "must only contain KRaft controller listeners from controller.listener.names",
        ),
        (
            {"process_roles": "controller", "listeners": "CONTROLLER://:9093"},
            "If using process.roles, either controller.quorum.bootstrap.servers must contain",
        ),
        (
            {"process_roles": "broker", "listeners": "PLAINTEXT://:9092"},
            "If using process.roles, either controller.quorum.bootstrap.servers must contain",
        ),
        (
            {"process_roles": "broker", "listeners": "PLAINTEXT://:9092", "controller_quorum_voters": "1@a:1,2@b:1"},
            "just the 'broker' role, the node id 1 must not be included in the set of voters",
        ),
        (
            {
                "process_roles": "broker",
                "listeners": "PLAINTEXT://:9092",
                "controller_quorum_voters": "3@a:1",
                "listener_security_protocol_map": "PLAINTEXT:PLAINTEXT",
            },
            "Controller listener with name CONTROLLER defined in controller.listener.names not found in",
        ),
        (
            {
                "process_roles": "broker",
                "listeners": "PLAINTEXT://:9092",
                "controller_quorum_voters": "3@a:1",
                "listener_security_protocol_map": "PLAINTEXT:PLAINTEXT,CONTROLLER:SSL",
            },
            "Listener CONTROLLER asks for SSL",
        ),
        ({"controller_listener_names": "CONTROLLER,OTHER"}, "must only contain values appearing in the 'listeners'"),
        ({"process_roles": "cook"}, "Invalid value cook for configuration process.roles: String must be one of"),
        ({"num_partitions": "0"}, "Invalid value 0 for configuration num.partitions: Value must be at least 1"),
        ({"log_dirs": ""}, "Configuration 'log.dirs' must not be empty."),
        ({"log_retention_hours": "0"}, "log.retention.ms must be unlimited (-1) or, greater than or equal to 1"),
        ({"log_roll_ms": "0"}, "log.roll.ms must be greater than or equal to 1"),
        ({"listeners": "PLAINTEXT:9092"}, "Unable to parse PLAINTEXT:9092 to a broker endpoint"),
        ({"listeners": "PLAINTEXT://:99999"}, "Unable to parse PLAINTEXT://:99999 to a broker endpoint"),
        ({"listeners": "FOO://:9092,CONTROLLER://:9093"}, "No security protocol defined for listener FOO"),
        ({"listeners": "PLAINTEXT://:9092,PLAINTEXT://:9093"}, "Each listener must have a different name"),
        ({"listeners": "PLAINTEXT://:9092,CONTROLLER://:9092"}, "Each listener must have a different port"),
        ({"listeners": "PLAINTEXT://:9092"}, "controller.listener.names must contain at least one value"),
        ({"listeners": "CONTROLLER://:9092"}, "There must be at least one broker advertised listener."),
        ({"listeners": "PLAINTEXT://0.0.0.0:9092,CONTROLLER://:9093"}, "nonroutable meta-address 0.0.0.0"),
        ({"advertised_listeners": "CONTROLLER://h:1"}, "There must be at least one broker advertised listener."),
        ({"advertised_listeners": "SSL://h:1"}, "Listener SSL asks for SSL"),
        ({"inter_broker_listener_name": "X"}, "inter.broker.listener.name must be a listener name defined in"),
        ({"listener_security_protocol_map": "PLAINTEXT"}, "'PLAINTEXT' is not NAME:PROTOCOL"),
        ({"listener_security_protocol_map": "PLAINTEXT:FOO"}, "Invalid security protocol `FOO` defined in"),
        ({"controller_quorum_voters": "2@localhost:9093"}, "the node id 1 must be included in the set of voters"),
        ({"controller_quorum_voters": "1@a:1,2@b:1,1@c:1"}, "controller.quorum.voters names node 1 more than once"),
        ({"controller_quorum_voters": "x@a:1"}, "Failed to parse voter ID from entry x@a:1"),
        ({"controller_quorum_voters": "1@localhost"}, "Failed to parse host name from 1@localhost"),
        ({"controller_quorum_bootstrap_servers": "localhost"}, "Failed to parse host name from localhost"),
    ],
)
def test_a_wrong_file_is_refused_with_a_sentence(changes: dict[str, str | None], message: str) -> None:
    with pytest.raises(ConfigError) as wrong:
        load_with(**changes)
    assert message in str(wrong.value)
    assert wrong.value.key


def test_kafkas_own_authorizer_is_honoured() -> None:
    config = load(
        LONE_NODE
        | {
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": "User:admin; User:CN=ops,O=example",
            "allow.everyone.if.no.acl.found": "true",
        }
    )
    assert config.super_users == {"User:admin", "User:CN=ops,O=example"}
    assert config.allow_everyone_if_no_acl_found
    assert config.warnings == ()
    with pytest.raises(ConfigError, match="admin is no principal"):
        load(LONE_NODE | {"super.users": "admin"})


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("ssl.keystore.location", "/keys.jks"),
        ("ssl.client.auth", "required"),
        ("listener.name.plaintext.ssl.keystore.location", "/keys.jks"),
        ("sasl.enabled.mechanisms", "PLAIN"),
        ("listener.name.plaintext.plain.sasl.jaas.config", "…"),
        ("listener.name.plaintext.scram-sha-512.sasl.jaas.config", "…"),
        ("authorizer.class.name", "com.example.Authorizer"),
        ("principal.builder.class", "x"),
        ("security.inter.broker.protocol", "SASL_SSL"),
        ("delegation.token.secret.key", "x"),
        ("password.encoder.secret", "x"),
        ("connections.max.reauth.ms", "1000"),
        ("listeners", "SASL_PLAINTEXT://:9092,CONTROLLER://:9093"),
        ("listener.security.protocol.map", "PLAINTEXT:SSL,CONTROLLER:PLAINTEXT"),
        ("listener.security.protocol.map", "PLAINTEXT:PLAINTEXT,CONTROLLER:SASL_SSL"),
    ],
)
def test_security_that_cannot_be_honoured_stops_the_start(name: str, text: str) -> None:
    with pytest.raises(ConfigError, match="does not start rather than serve open"):
        load({**LONE_NODE, name: text})


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("zookeeper.connect", "localhost:2181"),
        ("remote.log.storage.system.enable", "true"),
        ("config.providers", "file"),
        ("create.topic.policy.class.name", "x"),
    ],
)
def test_what_would_silently_change_meaning_stops_the_start(name: str, text: str) -> None:
    with pytest.raises(ConfigError, match="cannot be honoured"):
        load({**LONE_NODE, name: text})


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("remote.log.storage.system.enable", "false"),
        ("security.inter.broker.protocol", "PLAINTEXT"),
        ("authorizer.class.name", ""),
        ("connections.max.reauth.ms", "0"),
    ],
)
def test_saying_that_nothing_is_wanted_is_fine(name: str, text: str) -> None:
    assert load({**LONE_NODE, name: text}).node_id == 1


def test_no_key_is_both_honoured_and_without_effect() -> None:
    assert [name for name in NODE_CONFIGS if name in NO_EFFECT] == []


def test_a_topics_key_has_the_default_of_the_brokers_key_it_comes_from() -> None:
    loaded = load(LONE_NODE)
    for key in TOPIC_CONFIGS.values():
        if any(name in NODE_CONFIGS for name in key.synonyms) and not key.internal:
            ours = getattr(loaded.log_defaults, key.name.replace(".", "_"))
            assert value_text(ours) == value_text(key.default), key.name
