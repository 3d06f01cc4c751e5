"""Commands that look at a cluster of which nodes are dead: they tell what can be known, and soon.

One story on one cluster, killed node by node: it is started once.
"""

from __future__ import annotations

import json
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from tests.integration.cli import Cli, Ran
from tests.integration.cluster_asking import eventually

from odradek.testing.cluster import running_cluster

SOON_S = 12.0
"""Four seconds of patience, and what a loaded machine needs to run a command; without a bound it was 30 or more."""

PROPERTIES = {"offsets.topic.replication.factor": "1", "offsets.topic.num.partitions": "3"}


def test_what_can_be_known_is_told_soon(tmp_path: Path) -> None:
    with running_cluster(brokers=3, properties=PROPERTIES) as cluster:
        cli = Cli(cluster.nodes[1].bootstrap_server, tmp_path / "cli")
        cli.ok("topic", "create", "t", "--replica-assignment", "3,1,2")
        cli.ok("produce", "t", "--partition", 1, stdin="a\n")
        cluster.nodes[3].kill()
        look_right_after_a_kill(cli)
        look_without_a_leader(cli)
        move_to_who_is_away(cli)
        cluster.nodes[2].kill()
        look_without_a_quorum(cli)


def look_right_after_a_kill(cli: Cli) -> None:
    (topic,) = told(cli, "topic", "describe", "t")
    assert topic["partitions"][1]["end_offset"] == 1
    assert topic["partitions"][0]["end_offset"] is None
    told(cli, "group", "list")
    told(cli, "group", "describe")


def look_without_a_leader(cli: Cli) -> None:
    eventually(lambda: leaders(cli)[0] is None, "the dead broker leads no more")
    shown = soon(cli, "topic", "describe", "t")
    assert shown.code == 0, shown
    assert shown.err == ""
    assert ["0", "none"] in [row[:2] for row in shown.rows]
    (topic,) = told(cli, "topic", "describe", "t")
    assert [each["end_offset"] for each in topic["partitions"]] == [None, 1, 0]
    assert [each["size_bytes"] is None for each in topic["partitions"]] == [True, False, False]


def move_to_who_is_away(cli: Cli) -> None:
    """A fenced broker is registered, so partitions may move to it."""
    plan = cli.home / "plan.json"
    plan.write_text(json.dumps({"partitions": [{"topic": "t", "partition": 1, "replicas": [1, 3]}]}))
    moves = soon(cli, "reassign", "execute", plan, "--throttle", 1_000_000)
    assert moves.code == 0, moves
    assert "partition t-1 moves." in moves.out
    assert "broker 3 is not there and gets no throttle" in moves.err
    plan.write_text(json.dumps({"partitions": [{"topic": "t", "partition": 1, "replicas": [9]}]}))
    assert cli.refused("reassign", "execute", plan).startswith("there is no broker 9; there are 1, 2, 3.")
    plan.write_text(json.dumps({"partitions": [{"topic": "t", "partition": 1, "replicas": [1, 3]}]}))
    assert "stays where it was" in cli.ok("reassign", "cancel", plan).out


def look_without_a_quorum(cli: Cli) -> None:
    """Nobody notices that node 2 is dead: it still leads what it led, as far as the survivor knows."""
    # If it was the active controller, it takes a moment until it knows that it is none.
    eventually(lambda: controller(cli) is None, "no controller answers")
    with ThreadPoolExecutor() as pool:  # At the same time: each uses up its patience.
        shown, lacking, groups, ill = pool.map(
            lambda words: soon(cli, *words.split()),
            (
                "topic describe t --format json",
                "topic describe --unavailable-partitions --format json",
                "group list",
                "cluster health",
            ),
        )
    assert shown.code == 0, shown
    (topic,) = json.loads(shown.out)
    assert [each["leader"] for each in topic["partitions"]] == [None, 1, 2]
    assert [each["end_offset"] for each in topic["partitions"]] == [None, 1, None]
    assert shown.err == "odradek: broker 2 does not answer: offsets and sizes of what it leads are not known.\n"
    assert [each["partition"] for each in json.loads(lacking.out) if each["topic"] == "t"] == [0]
    assert lacking.err == "odradek: no controller answers: which partitions move is not known.\n"
    assert (groups.code, groups.err) == (0, "odradek: broker 2 does not answer: its groups are left out.\n"), groups
    assert ill.code == 1, ill
    assert ["Health", "NOT", "HEALTHY"] in ill.rows
    assert ["Active", "controller", "none", "answers"] in ill.rows
    assert ["Without", "leader", "t-0"] in ill.rows


def soon(cli: Cli, *arguments: object) -> Ran:
    started = time.monotonic()
    ran = cli.run(*arguments)
    assert time.monotonic() - started < SOON_S, ran
    return ran


def told(cli: Cli, *arguments: object) -> list[dict[str, Any]]:
    ran = soon(cli, *arguments, "--format", "json")
    assert ran.code == 0, ran
    found: list[dict[str, Any]] = json.loads(ran.out)
    return found


def controller(cli: Cli) -> int | None:
    told = json.loads(soon(cli, "cluster", "health", "--format", "json").out)
    assert not told["healthy"]
    active: int | None = told["active_controller"]
    return active


def leaders(cli: Cli) -> list[int | None]:
    return [each["leader"] for each in told(cli, "topic", "describe", "t")[0]["partitions"]]
