"""`odradek topic`: tables for people, JSON and YAML for programs, and what it says about wrong input."""

from __future__ import annotations

import re

import pytest
from tests.integration.cli import Cli


def test_create_list_and_delete(cli: Cli) -> None:
    assert cli.ok("topic", "create", "life", "death", "--partitions", 2).out == (
        "topic life created.\ntopic death created.\n"
    )
    assert ["life", "2", "1", "no"] in cli.ok("topic", "list").rows
    listed = {each["name"]: each for each in cli.json("topic", "list")}
    assert listed["death"] == {"name": "death", "partitions": 2, "replication_factor": 1, "internal": False}
    assert "- name: life\n  partitions: 2\n  replication_factor: 1\n" in cli.ok("topic", "list", "--format", "yaml").out
    assert cli.json("topic", "delete", "death") == [{"topic": "death", "done": True, "error": None}]
    assert "death" not in [each["name"] for each in cli.json("topic", "list")]


def test_a_topic_that_is_there_already(cli: Cli) -> None:
    cli.ok("topic", "create", "twice")
    assert (
        cli.refused("topic", "create", "twice") == "topic twice: Topic 'twice' already exists (TOPIC_ALREADY_EXISTS)."
    )
    cli.ok("topic", "create", "twice", "--if-not-exists")
    assert cli.run("topic", "create", "twice", "--format", "json").code == 1


def test_describe_tells_partitions_offsets_settings_and_skew(cli: Cli) -> None:
    cli.ok("topic", "create", "described", "--partitions", 3, "--config", "retention.ms=3600000")
    cli.ok("produce", "described", "--partition", 0, stdin="x" * 900 + "\n")
    cli.ok("produce", "described", "--partition", 1, stdin="".join(f"{number}\n" for number in range(5)))
    (told,) = cli.json("topic", "describe", "described")
    assert (told["name"], told["replication_factor"], told["internal"]) == ("described", 1, False)
    assert re.fullmatch(r"[\w-]{22}", told["topic_id"])
    assert [(each["leader"], each["leader_epoch"], each["replicas"], each["isr"]) for each in told["partitions"]] == [
        (1, 0, [1], [1])
    ] * 3
    assert [(each["start_offset"], each["end_offset"], each["records"]) for each in told["partitions"]] == [
        (0, 1, 1),
        (0, 5, 5),
        (0, 0, 0),
    ]
    assert told["records_skew"] == 2.5
    assert told["partitions"][0]["size_bytes"] > 900
    assert told["size_bytes"] == sum(each["size_bytes"] for each in told["partitions"])
    assert 2.0 < told["size_skew"] < 3.0
    shown = cli.ok("topic", "describe", "described").out
    assert shown.startswith("Topic       described\n")
    assert "Skew        the largest partition has " in shown
    assert [line.endswith(" B  ##########") for line in shown.splitlines()[-3:]] == [True, False, False]


def test_describe_of_what_lacks_replicas(cli: Cli) -> None:
    cli.ok("topic", "create", "lacking", "--partitions", 2, "--config", "min.insync.replicas=2")
    shown = cli.ok("topic", "describe", "lacking", "--under-min-isr-partitions", "--under-replicated-partitions")
    assert shown.rows[0] == ["PARTITION", "LEADER", "REPLICAS", "ISR"]
    assert shown.rows[1:] == [["lacking-0", "1", "1", "1"], ["lacking-1", "1", "1", "1"]]
    assert cli.json("topic", "describe", "lacking", "--at-min-isr-partitions", "--unavailable-partitions") == []
    assert cli.ok("topic", "describe", "--unavailable-partitions").out == "There are no such partitions.\n"


def test_describe_of_settings(cli: Cli) -> None:
    cli.ok("topic", "create", "set", "--config", "retention.ms=3600000")
    assert cli.json("topic", "describe", "set")[0]["configs"] == {"retention.ms": "3600000"}
    assert "Settings    retention.ms=3600000\n" in cli.ok("topic", "describe", "set").out


def test_more_partitions_and_never_fewer(cli: Cli) -> None:
    cli.ok("topic", "create", "growing", "--partitions", 2)
    assert cli.refused("topic", "alter", "growing", "--partitions", 2) == (
        "growing has 2 partitions already: they can become more, never fewer."
    )
    assert cli.ok("topic", "alter", "growing", "--partitions", 5, "--dry-run").out == (
        "topic growing could have 5 partitions.\n"
    )
    assert cli.ok("topic", "alter", "growing", "--partitions", 4).out == "topic growing has 4 partitions.\n"
    assert len(cli.json("topic", "describe", "growing")[0]["partitions"]) == 4


def test_trim(cli: Cli) -> None:
    cli.ok("topic", "create", "long", "--partitions", 2)
    lines = "".join(f'{{"value": "{number}", "timestamp": {1000 * number}}}\n' for number in range(10))
    for partition in (0, 1):
        cli.ok("produce", "long", "--json", "--partition", partition, stdin=lines)
    assert cli.ok("topic", "trim", "long", "--before-offset", 3, "--partition", 0).rows[1:] == [["0", "0", "3"]]
    trimmed = cli.json("topic", "trim", "long", "--before", "1970-01-01T00:00:06+00:00")
    assert [(each["start_offset_before"], each["start_offset"]) for each in trimmed] == [(3, 6), (0, 6)]
    assert [each["start_offset"] for each in cli.json("topic", "trim", "long", "--all")] == [10, 10]
    assert cli.run("topic", "trim", "long", "--before-offset", 99).code == 1
    assert cli.refused("topic", "trim", "long", "--all", "--partition", 2) == (
        "long has 2 partitions, from 0 to 1: 2 is not there."
    )


def test_a_misspelt_topic_gets_the_nearest_name(cli: Cli) -> None:
    cli.ok("topic", "create", "greetings")
    for action in (["describe", "greetngs"], ["delete", "greetngs"], ["alter", "greetngs", "--partitions", "9"]):
        assert cli.refused("topic", *action) == "there is no topic greetngs. Did you mean greetings?"
    assert (
        cli.refused("topic", "describe", "qqq") == "there is no topic qqq. `odradek topic list` shows those there are."
    )
    cli.ok("topic", "delete", "greetngs", "--if-exists")


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (
            ["--replica-assignment", "1", "--partitions", "2"],
            "--replica-assignment says it all: leave out --partitions and --replication-factor.",
        ),
        (["--replica-assignment", "1:x"], "--replica-assignment takes broker ids as in 1:2,2:1, not '1:x'."),
        (["--config", "retention.ms"], "--config takes KEY=VALUE, not 'retention.ms'."),
        (["--config", "a=1", "--config", "a=2"], "--config names a twice."),
    ],
)
def test_flags_that_contradict_each_other(cli: Cli, arguments: list[str], sentence: str) -> None:
    assert cli.refused("topic", "create", "never", *arguments, code=2) == sentence


def test_what_the_broker_refuses(cli: Cli) -> None:
    assert "INVALID_REPLICATION_FACTOR" in cli.refused("topic", "create", "never", "--replication-factor", 3)
    assert "INVALID_CONFIG" in cli.refused("topic", "create", "never", "--config", "retention.ms=soon")
    assert "INVALID_TOPIC_EXCEPTION" in cli.refused("topic", "create", "a b")


def test_usage_errors(cli: Cli) -> None:
    for arguments in (["topic"], ["topic", "fly"], ["topic", "create"], ["topic", "create", "x", "--partitions", "0"]):
        ran = cli.run(*arguments)
        assert (ran.code, ran.out) == (2, "")
        assert ran.err.startswith("usage: odradek")
