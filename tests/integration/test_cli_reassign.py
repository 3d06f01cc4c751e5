"""`odradek reassign` and `odradek leader`, against three brokers."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.integration.cli import Cli

from odradek.testing.cluster import running_cluster


@pytest.fixture(scope="module")
def cli(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cli]:
    """A cluster inside of this process: it starts sooner. Followers fetch a batch at a time."""
    properties = {"auto.leader.rebalance.enable": "false", "replica.fetch.max.bytes": "1000"}
    with running_cluster(brokers=3, in_process=True, properties=properties) as cluster:
        yield Cli(cluster.bootstrap_servers, tmp_path_factory.mktemp("cli"))


def replicas(cli: Cli, topic: str) -> list[list[int]]:
    (told,) = cli.json("topic", "describe", topic)
    return [each["replicas"] for each in told["partitions"]]


def throttles(cli: Cli, topic: str) -> list[str]:
    return [each["name"] for each in cli.json("config", "describe", "topic", topic) if "throttled" in each["name"]]


def rates(cli: Cli, broker: int) -> int:
    told = cli.json("config", "describe", "broker", broker)
    return sum(each["name"].endswith("replication.throttled.rate") for each in told)


def write_plan(cli: Cli, name: str, topic: str, *assignments: list[int]) -> Path:
    file = cli.home / name
    partitions = [{"topic": topic, "partition": index, "replicas": each} for index, each in enumerate(assignments)]
    file.write_text(json.dumps({"version": 1, "partitions": partitions}))
    return file


def test_a_plan_is_made_executed_and_verified(cli: Cli) -> None:
    cli.ok("topic", "create", "spread", "--replica-assignment", "1:2,1:2,1:2")
    shown = cli.ok("reassign", "plan", "spread", "--brokers", "2,3")
    assert shown.rows[0] == ["PARTITION", "REPLICAS", "PLANNED"]
    assert [row[:2] for row in shown.rows[1:]] == [[f"spread-{index}", "1,2"] for index in range(3)]
    plan = cli.home / "spread.json"
    plan.write_text(cli.ok("reassign", "plan", "spread", "--brokers", "2,3", "--format", "json").out)
    started = cli.ok("reassign", "execute", plan, "--throttle", 50_000_000, "--rollback", "back.json")
    assert started.out.splitlines() == [
        *[f"partition spread-{index} moves." for index in range(3)],
        "The throttle is in force until `odradek reassign verify` finds that all is done.",
    ]
    assert "leader.replication.throttled.replicas" in throttles(cli, "spread")
    told = cli.json("reassign", "verify", plan, "--wait", "--timeout", 30)
    assert (told["done"], told["throttles_removed"]) == (True, True)
    assert [each["state"] for each in told["partitions"]] == ["done"] * 3
    assert throttles(cli, "spread") == []
    assert all(1 not in each for each in replicas(cli, "spread"))
    cli.ok("reassign", "execute", "-", stdin=(cli.home / "back.json").read_text())
    cli.ok("reassign", "verify", "back.json", "--wait", "--timeout", 30)
    assert replicas(cli, "spread") == [[1, 2]] * 3


def test_a_move_is_taken_back(cli: Cli) -> None:
    cli.ok("topic", "create", "stuck", "--replica-assignment", "1,1")
    cli.ok("produce", "stuck", "--partition", 0, stdin=10 * ("x" * 99_000 + "\n"))
    plan = write_plan(cli, "stuck.json", "stuck", [2], [3])
    cli.ok("reassign", "execute", plan, "--throttle", 10)
    (moving,) = [each for each in cli.json("reassign", "list") if each["partition"] == 0]
    assert (moving["replicas"], moving["adding"], moving["removing"]) == ([2, 1], [2], [1])
    assert cli.json("topic", "describe", "stuck", "--under-replicated-partitions") == []  # What comes is not missed.
    assert cli.json("cluster", "health")["healthy"]
    waited = cli.run("reassign", "verify", plan, "--wait", "--timeout", 0.1)
    assert waited.code == 1
    assert ["stuck-0", "moving", "2,1", "2"] in waited.rows
    assert "still" in cli.refused("reassign", "execute", plan)
    assert cli.ok("reassign", "cancel", plan).out == "partition stuck-0 stays where it was.\n"
    (after,) = cli.json("topic", "describe", "stuck")
    assert [each["replicas"] for each in after["partitions"]] == [[1], [3]]
    assert after["configs"] == {}
    assert cli.ok("reassign", "list").out == "No partition moves.\n"
    nothing = "Nothing of that plan is under way.\n"
    assert cli.ok("reassign", "cancel", plan).out == f"{nothing}Throttles are removed.\n"
    assert cli.ok("reassign", "cancel", plan, "--preserve-throttles").out == nothing


@pytest.mark.parametrize("action", ["verify", "cancel"])
def test_a_throttle_goes_when_the_topic_was_deleted_on_its_way(cli: Cli, action: str) -> None:
    topic = f"deleted-{action}"
    cli.ok("topic", "create", topic, "--replica-assignment", "1")
    cli.ok("produce", topic, stdin=10 * ("x" * 99_000 + "\n"))
    plan = write_plan(cli, f"{topic}.json", topic, [2])
    cli.ok("reassign", "execute", plan, "--throttle", 10)
    cli.ok("topic", "delete", topic)
    assert [rates(cli, broker) for broker in (1, 2)] == [2, 2]
    if action == "verify":
        ran = cli.run("reassign", "verify", plan)
        assert ran.code == 1, ran
        assert [f"{topic}-0", "gone", "-", "2"] in ran.rows
        assert ran.err == ""
    else:
        ran = cli.ok("reassign", "cancel", plan)
    assert ran.out.endswith("Throttles are removed.\n")
    assert [rates(cli, broker) for broker in (1, 2, 3)] == [0, 0, 0]


def test_what_cannot_be_moved_is_refused_in_one_sentence(cli: Cli) -> None:
    cli.ok("topic", "create", "stays")
    for arguments, code, sentence in (
        (["plan", "stay"], 1, "there is no topic stay. Did you mean stays?"),
        (["plan", "stays", "--brokers", "1,9"], 1, "there is no broker 9; there are 1, 2, 3."),
        (
            ["plan", "stays", "--replication-factor", 4],
            1,
            "4 replicas of a partition need as many brokers: there are 3.",
        ),
        (["execute", "missing.json"], 1, "cannot read missing.json: no such file or directory."),
        (["execute", write_plan(cli, "a.json", "stays", [1], [1])], 1, "there is no partition stays-1."),
        (["execute", write_plan(cli, "b.json", "stays", [7])], 1, "there is no broker 7; there are 1, 2, 3."),
        (
            ["execute", write_plan(cli, "c.json", "nobody", [1])],
            1,
            "there is no topic nobody. `odradek topic list` shows",
        ),
    ):
        assert cli.refused("reassign", *arguments, code=code).startswith(sentence)


def test_preferred_replicas_lead(cli: Cli) -> None:
    cli.ok("topic", "create", "led", "--replica-assignment", "1:2,2:1,3:1")
    plan = write_plan(cli, "led.json", "led", [2, 1], [2, 1], [3, 1])
    cli.ok("reassign", "execute", plan)
    cli.ok("reassign", "verify", plan, "--wait", "--timeout", 30)
    assert [each["leader"] for each in cli.json("topic", "describe", "led")[0]["partitions"]] == [1, 2, 3]
    assert cli.ok("leader", "elect", "led:1").out == "Preferred replicas lead already.\n"
    shown = cli.ok("leader", "elect", "led")
    assert shown.rows == [["PARTITION", "LEADER"], ["led-0", "2"], ["2", "partitions", "needed", "no", "election."]]
    assert cli.ok("leader", "elect", "--all", "--unclean").out == "Nothing to do: everywhere somebody leads.\n"


def test_elections_of_what_is_not_there(cli: Cli) -> None:
    cli.ok("topic", "create", "one")
    for arguments, code, sentence in (
        ([], 2, "name topics, as in orders or orders:0,1; or say --all."),
        (["one:x"], 2, "leader elect takes TOPIC or TOPIC:PARTITION,..., not 'one:x'."),
        (["one:3"], 1, "one has 1 partition: 3 is not there."),
    ):
        assert cli.refused("leader", "elect", *arguments, code=code).startswith(sentence)
