"""Apache Kafka's tools for administration, as they come, against the node."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from bench.apache_kafka import ApacheKafka, tool
from bench.servers import Server
from tests.compat.brokers import new_server, running
from tests.compat.clients import CONFLUENT, ProducerSettings, Record

pytestmark = [pytest.mark.compat, pytest.mark.java]

CONFIGS = "kafka.admin.ConfigCommand"


@pytest.fixture
def configs(server: Server) -> Callable[..., str]:
    """kafka-configs on the shared broker."""

    def run(*arguments: object, check: bool = True) -> str:
        return tool(CONFIGS, "--bootstrap-server", server.bootstrap, *arguments, check=check)

    return run


def test_kafka_configs_on_a_topic(configs: Callable[..., str], new_topic: Callable[..., str]) -> None:
    entity = ("--entity-type", "topics", "--entity-name", new_topic(1))
    configs("--alter", *entity, "--add-config", "retention.ms=123456,cleanup.policy=[compact,delete]")
    said = configs("--describe", *entity)
    assert re.search(r"retention\.ms=123456 sensitive=false synonyms={DYNAMIC_TOPIC_CONFIG:retention\.ms=123456", said)
    assert "cleanup.policy=compact,delete" in said
    assert "DEFAULT_CONFIG:log.cleanup.policy=delete" in said
    configs("--alter", *entity, "--delete-config", "retention.ms,cleanup.policy")
    assert "retention.ms" not in configs("--describe", *entity)
    everything = configs("--describe", "--all", *entity)
    assert "max.message.bytes=1048588 sensitive=false" in everything
    refused = configs("--alter", *entity, "--add-config", "retention.ms=soon", check=False)
    assert "Invalid value soon for configuration retention.ms" in refused


def test_kafka_configs_on_brokers_reaches_topics(configs: Callable[..., str], new_topic: Callable[..., str]) -> None:
    topic = ("--entity-type", "topics", "--entity-name", new_topic(1))
    everyone = ("--entity-type", "brokers", "--entity-default")
    one = ("--entity-type", "brokers", "--entity-name", 1)
    configs("--alter", *everyone, "--add-config", "log.retention.ms=7200000")
    configs("--alter", *one, "--add-config", "log.retention.ms=3600000")
    try:
        assert "log.retention.ms=7200000" in configs("--describe", *everyone)
        said = configs("--describe", *one)
        assert "DYNAMIC_BROKER_CONFIG:log.retention.ms=3600000" in said
        assert "DYNAMIC_DEFAULT_BROKER_CONFIG:log.retention.ms=7200000" in said
        assert re.search(r"  retention\.ms=3600000 ", configs("--describe", "--all", *topic))
    finally:
        configs("--alter", *everyone, "--delete-config", "log.retention.ms")
        configs("--alter", *one, "--delete-config", "log.retention.ms")
    refused = configs("--alter", *one, "--add-config", "num.partitions=5", check=False)
    assert "Cannot update these configs dynamically" in refused


def test_kafka_configs_on_groups_and_loggers(configs: Callable[..., str]) -> None:
    group = ("--entity-type", "groups", "--entity-name", "tools-group")
    configs("--alter", *group, "--add-config", "consumer.session.timeout.ms=50000")
    assert "DYNAMIC_GROUP_CONFIG:consumer.session.timeout.ms=50000" in configs("--describe", *group)
    assert "tools-group" in configs("--describe", "--entity-type", "groups")
    configs("--alter", *group, "--delete-config", "consumer.session.timeout.ms")
    loggers = ("--entity-type", "broker-loggers", "--entity-name", 1)
    before = configs("--describe", *loggers)
    (level,) = re.findall(r"^  root=(\w+) ", before, re.M)
    configs("--alter", *loggers, "--add-config", "root=ERROR")
    assert "  root=ERROR " in configs("--describe", *loggers)
    configs("--alter", *loggers, "--add-config", f"root={level}")


def test_kafka_configs_sets_quotas_and_credentials(configs: Callable[..., str]) -> None:
    both = ("--entity-type", "users", "--entity-name", "alice", "--entity-type", "clients", "--entity-name", "app")
    configs("--alter", *both, "--add-config", "producer_byte_rate=1048576,request_percentage=90.5")
    said = configs("--describe", *both)
    assert re.search(r"user-principal 'alice', client-id 'app' are .*producer_byte_rate=1048576\.0", said)
    assert "request_percentage=90.5" in said
    configs("--alter", *both, "--delete-config", "producer_byte_rate,request_percentage")
    assert "producer_byte_rate" not in configs("--describe", *both)
    user = ("--entity-type", "users", "--entity-name", "carol")
    configs("--alter", *user, "--add-config", "SCRAM-SHA-256=[iterations=8192,password=carols-secret]")
    said = configs("--describe", *user)
    assert "SCRAM credential configs for user-principal 'carol' are SCRAM-SHA-256=iterations=8192" in said
    configs("--alter", *user, "--delete-config", "SCRAM-SHA-256")
    refused = configs("--alter", *user, "--delete-config", "SCRAM-SHA-256", check=False)
    assert "Attempt to delete a user credential that does not exist" in refused


def test_kafka_log_dirs(server: Server, new_topic: Callable[..., str]) -> None:
    topic = new_topic(2)
    CONFLUENT.produce(server.bootstrap, topic, [Record(0, 1_700_000_000_000, None, bytes(1000))], ProducerSettings())
    said = tool(
        "org.apache.kafka.tools.LogDirsCommand",
        *("--bootstrap-server", server.bootstrap, "--describe", "--topic-list", topic),
    )
    described = json.loads(said.splitlines()[-1])
    (broker,) = described["brokers"]
    (directory,) = broker["logDirs"]
    assert directory["error"] is None
    sizes = {each["partition"]: each["size"] for each in directory["partitions"]}
    assert sizes[f"{topic}-0"] > 1000
    assert sizes[f"{topic}-1"] == 0


def test_kafka_features_and_metadata_quorum(server: Server) -> None:
    features = "org.apache.kafka.tools.FeatureCommand"
    said = tool(features, "--bootstrap-server", server.bootstrap, "describe")
    assert re.search(
        r"Feature: metadata\.version\s+SupportedMinVersion: 3\.3-IV3\s+SupportedMaxVersion: 4\.3-IV0", said
    )
    refused = tool(
        features,
        *("--bootstrap-server", server.bootstrap, "downgrade", "--feature", "metadata.version=22"),
        check=False,
    )
    assert "Refusing to perform the requested downgrade" in refused
    quorum = ("org.apache.kafka.tools.MetadataQuorumCommand", "--bootstrap-server", server.bootstrap, "describe")
    status = tool(*quorum, "--status")
    assert re.search(r"LeaderId:\s+1\b", status)
    assert re.search(r"MaxFollowerLag:\s+0\b", status)
    assert re.search(r"^1\s+\S+\s+\d+\s+0\s+.*Leader", tool(*quorum, "--replication"), re.M)


GUARDED = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow.everyone.if.no.acl.found": "true",
}


@pytest.fixture(scope="module")
def guarded() -> Iterator[Server]:
    """A broker with an authorizer, open where nothing is said."""
    with new_server(properties=GUARDED) as started:
        yield started


def test_kafka_acls(guarded: Server) -> None:
    address = ("--bootstrap-server", guarded.bootstrap)
    topics = "org.apache.kafka.tools.TopicCommand"
    tool(topics, *address, "--create", "--topic", "closed", "--partitions", 1)
    acls = ("org.apache.kafka.tools.AclCommand", *address)
    rule = ("--deny-principal", "User:ANONYMOUS", "--operation", "Write", "--topic", "clos")
    tool(*acls, "--add", *rule, "--resource-pattern-type", "prefixed")
    said = tool(*acls, "--list", "--topic", "closed", "--resource-pattern-type", "match")
    assert "resourceType=TOPIC, name=clos, patternType=PREFIXED" in said
    assert "(principal=User:ANONYMOUS, host=*, operation=WRITE, permissionType=DENY)" in said
    console = ("org.apache.kafka.tools.ConsoleProducer", *address, "--topic", "closed")
    refused = tool(*console, given="one\n", check=False)
    assert "TopicAuthorizationException" in refused
    assert "closed" not in tool(topics, *address, "--list").splitlines(), "seeing it is not allowed either"
    tool(*acls, "--remove", *rule, "--resource-pattern-type", "prefixed", "--force")
    assert "TopicAuthorizationException" not in tool(*console, given="two\n")
    assert "closed" in tool(topics, *address, "--list").splitlines()


@pytest.mark.parametrize("backwards", [False, True], ids=["from Apache Kafka", "to Apache Kafka"])
def test_what_one_broker_was_told_the_other_knows(tmp_path: Path, backwards: bool) -> None:
    """Access rules, quotas, credentials and settings are in the metadata log, in records that both read."""
    kinds: list[Callable[..., Server]] = [ApacheKafka, new_server]
    first, second = reversed(kinds) if backwards else kinds
    user = ("--entity-type", "users", "--entity-name", "alice")
    with running(first(tmp_path, properties=GUARDED)) as server:
        address = ("--bootstrap-server", server.bootstrap)
        tool(CONFIGS, *address, "--alter", *user, "--add-config", "consumer_byte_rate=1048576")
        tool(CONFIGS, *address, "--alter", *user, "--add-config", "SCRAM-SHA-512=[iterations=4096,password=secret]")
        everyone = ("--entity-type", "brokers", "--entity-default")
        tool(CONFIGS, *address, "--alter", *everyone, "--add-config", "log.retention.ms=3600000")
        rule = ("--allow-principal", "User:alice", "--operation", "Read", "--group", "crew")
        tool("org.apache.kafka.tools.AclCommand", *address, "--add", *rule)
    with running(second(tmp_path, properties=GUARDED)) as server:
        address = ("--bootstrap-server", server.bootstrap)
        said = tool(CONFIGS, *address, "--describe", *user)
        assert "consumer_byte_rate=1048576.0" in said
        assert "SCRAM-SHA-512=iterations=4096" in said
        assert "log.retention.ms=3600000" in tool(CONFIGS, *address, "--describe", *everyone)
        rules = tool("org.apache.kafka.tools.AclCommand", *address, "--list")
        assert "resourceType=GROUP, name=crew, patternType=LITERAL" in rules
