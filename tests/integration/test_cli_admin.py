"""`odradek config`, `acl`, `quota` and `cluster`, against a node."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.integration.cli import Cli

from odradek.testing import running_node


def test_cluster_info(cli: Cli) -> None:
    cli.ok("topic", "create", "counted", "--partitions", 3)
    told = cli.json("cluster", "info")
    host, _, port = cli.bootstrap.partition(":")
    assert [(each["id"], each["host"], str(each["port"]), each["rack"]) for each in told["brokers"]] == [
        (1, host, port, None)
    ]
    assert told["controller"] == 1
    assert len(told["cluster_id"]) == 22
    assert told["features"]["metadata.version"] > 0
    assert told["partitions"] >= 3
    assert told["brokers"][0]["leads"] == told["partitions"]
    assert (told["under_replicated"], told["without_leader"]) == ([], [])
    shown = cli.ok("cluster", "info")
    assert ["Controller", "1"] in shown.rows
    assert ["Under-replicated", "none"] in shown.rows
    assert ["1", cli.bootstrap, "-"] in [row[:3] for row in shown.rows]
    assert f"cluster_id: {told['cluster_id']}" in cli.ok("cluster", "info", "--format", "yaml").out.replace('"', "")


def test_settings_of_a_topic(cli: Cli) -> None:
    cli.ok("topic", "create", "configured")
    assert cli.ok("config", "describe", "topic", "configured").out == (
        "topic configured has no settings of its own; --all shows the defaults.\n"
    )
    assert cli.ok("config", "set", "topic", "configured", "retention.ms=5000", "cleanup.policy=compact").out == (
        "topic configured changed.\n"
    )
    assert cli.ok("config", "describe", "topic", "configured").rows[1:] == [
        ["cleanup.policy", "compact", "topic"],
        ["retention.ms", "5000", "topic"],
    ]
    (one,) = cli.json("config", "describe", "topic", "configured", "retention.ms", "--docs")
    assert (one["value"], one["source"], one["sensitive"], one["read_only"]) == ("5000", "topic", False, False)
    assert one["documentation"]
    everything = cli.json("config", "describe", "topic", "configured", "--all")
    assert {"segment.bytes", "retention.ms"} < {each["name"] for each in everything}
    cli.ok("config", "unset", "topic", "configured", "retention.ms")
    assert [each["name"] for each in cli.json("config", "describe", "topic", "configured")] == ["cleanup.policy"]


def test_a_dry_run_changes_nothing(cli: Cli) -> None:
    cli.ok("topic", "create", "dry")
    assert cli.ok("config", "set", "topic", "dry", "--dry-run", "retention.ms=1").out == "topic dry could be changed.\n"
    assert cli.json("config", "describe", "topic", "dry") == []


def test_settings_of_brokers(cli: Cli) -> None:
    names = [each["name"] for each in cli.json("config", "describe", "broker", "1", "--all")]
    assert "log.retention.ms" in names
    cli.ok("config", "set", "broker", "default", "log.retention.ms=123456")
    (held,) = cli.json("config", "describe", "broker", "1", "log.retention.ms")
    assert (held["value"], held["source"]) == ("123456", "all brokers")
    cli.ok("config", "unset", "broker", "default", "log.retention.ms")


@pytest.mark.parametrize(
    ("arguments", "code", "sentence"),
    [
        (["describe", "topic", "confgured"], 1, "there is no topic confgured. Did you mean configured?"),
        (["set", "topic", "confgured", "retention.ms=1"], 1, "there is no topic confgured. Did you mean configured?"),
        (
            ["describe", "topic", "configured", "retension.ms"],
            1,
            "a topic has no setting retension.ms. Did you mean retention.ms?",
        ),
        (["describe", "broker", "one"], 2, "a broker goes by its broker's id, a number: 'one' is none."),
        (["set", "topic", "configured", "retention.ms"], 2, "config set takes KEY=VALUE, not 'retention.ms'."),
    ],
)
def test_wrong_settings(cli: Cli, arguments: list[str], code: int, sentence: str) -> None:
    cli.ok("topic", "create", "configured", "--if-not-exists")
    assert cli.refused("config", *arguments, code=code) == sentence


def test_values_that_the_broker_refuses(cli: Cli) -> None:
    cli.ok("topic", "create", "refusing")
    assert "INVALID_CONFIG" in cli.refused("config", "set", "topic", "refusing", "retention.ms=soon")
    assert "INVALID_CONFIG" in cli.refused("config", "set", "topic", "refusing", "retension.ms=1")
    assert cli.run("config", "describe", "star", "refusing").code == 2


def test_quotas(cli: Cli) -> None:
    assert cli.ok("quota", "list").out == "No quotas are set.\n"
    assert cli.ok("quota", "set", "--user", "alice", "--client-id", "<default>", "producer_byte_rate=1048576").out == (
        "quota producer_byte_rate of client-id <default>, user alice changed.\n"
    )
    cli.ok("quota", "set", "--user", "bob", "consumer_byte_rate=2000", "request_percentage=12.5")
    assert cli.json("quota", "list", "--user", "alice") == [
        {"entity": {"user": "alice", "client-id": None}, "quotas": {"producer_byte_rate": 1048576.0}}
    ]
    assert [" ".join(row) for row in cli.ok("quota", "list").rows] == [
        "ENTITY QUOTA LIMIT",
        "client-id <default>, user alice producer_byte_rate 1048576",
        "user bob consumer_byte_rate 2000",
        "user bob request_percentage 12.5",
    ]
    cli.ok("quota", "unset", "--user", "bob", "request_percentage")
    assert cli.json("quota", "list", "--user", "bob")[0]["quotas"] == {"consumer_byte_rate": 2000.0}


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["set", "producer_byte_rate=1"], "whose quotas? Say --user, --client-id or --ip."),
        (["set", "--ip", "127.0.0.1", "--user", "a", "x=1"], "there is no quota x. There are producer_byte_rate, "),
        (
            ["set", "--ip", "127.0.0.1", "--user", "a", "connection_creation_rate=1"],
            "--ip goes alone: an address has quotas of its own.",
        ),
        (
            ["set", "--user", "a", "producer_rate=1"],
            "there is no quota producer_rate. Did you mean producer_byte_rate?",
        ),
        (["set", "--user", "a", "producer_byte_rate=lots"], "producer_byte_rate is a number, not 'lots'."),
        (
            ["unset", "--user", "a", "producer_rate"],
            "there is no quota producer_rate. Did you mean producer_byte_rate?",
        ),
    ],
)
def test_wrong_quotas(cli: Cli, arguments: list[str], sentence: str) -> None:
    assert cli.refused("quota", *arguments, code=2).startswith(sentence)


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cli]:
    """The command line with a node that has an authorizer, and everyone as a super user."""
    settings = {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",
    }
    with running_node(properties=settings) as node:
        yield Cli(node.bootstrap_servers, tmp_path_factory.mktemp("home"))


def test_rules(guarded: Cli) -> None:
    assert guarded.ok("acl", "list").out == "No rules match.\n"
    about = ("--topic", "secret-", "--prefixed", "--principal", "User:alice")
    assert guarded.ok("acl", "add", *about, "--operation", "read", "--operation", "describe-configs").out == (
        "rule read of User:alice on secret- added.\nrule describe-configs of User:alice on secret- added.\n"
    )
    guarded.ok(
        "acl", "add", "--cluster", "--principal", "User:*", "--deny", "--operation", "alter", "--host", "10.0.0.1"
    )
    rules = guarded.json("acl", "list", "--topic", "secret-one", "--operation", "read")
    assert rules == [
        {
            "resource_type": "topic",
            "resource_name": "secret-",
            "pattern": "prefixed",
            "principal": "User:alice",
            "host": "*",
            "operation": "read",
            "permission": "allow",
        }
    ]
    assert guarded.json("acl", "list", "--topic", "open") == []
    assert ["cluster", "kafka-cluster", "literal", "User:*", "10.0.0.1", "alter", "deny"] in guarded.ok(
        "acl", "list"
    ).rows
    assert len(guarded.json("acl", "remove", *about, "--dry-run")) == 2
    assert len(guarded.json("acl", "remove", *about)) == 2
    assert guarded.ok("acl", "remove", *about).out == "No rules matched.\n"
    assert len(guarded.json("acl", "list")) == 1


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (
            ["add", "--principal", "User:a", "--operation", "read"],
            "a rule about what? Say --topic, --group, --cluster, ",
        ),
        (["add", "--topic", "t"], "a rule needs --principal and --operation."),
        (["remove"], "that would remove every rule there is: say which, by --topic, --principal or others."),
        (["list", "--prefixed"], "--prefixed goes with a name: say --topic, --group or another as well."),
    ],
)
def test_wrong_rules(guarded: Cli, arguments: list[str], sentence: str) -> None:
    assert guarded.refused("acl", *arguments, code=2).startswith(sentence)


def test_a_broker_without_an_authorizer(cli: Cli) -> None:
    assert "SECURITY_DISABLED" in cli.refused("acl", "list")
