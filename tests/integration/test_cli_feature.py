"""`odradek feature`, against a node and a cluster that is older than its nodes."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.integration.cli import Cli

from odradek.metadata.features import SUPPORTED_FEATURES
from odradek.testing import running_node

NEWEST = {each.name: each.default for each in SUPPORTED_FEATURES} | {"kraft.version": 1}
"""What a lone node begins with: its quorum can grow."""


def levels(cli: Cli) -> dict[str, int]:
    return {each["feature"]: each["level"] for each in cli.json("feature", "describe")["features"]}


def test_levels_in_use_and_supported(cli: Cli) -> None:
    told = cli.json("feature", "describe")
    assert {(each["feature"], each["min_supported"], each["max_supported"]) for each in told["features"]} == {
        (each.name, each.minimum, each.maximum) for each in SUPPORTED_FEATURES
    }
    assert levels(cli) == NEWEST
    assert told["epoch"] > 0
    shown = cli.ok("feature", "describe", "--node", 1)
    assert ["metadata.version", "30", "(4.3-IV0)", "7", "(3.3-IV3)", "30", "(4.3-IV0)"] in shown.rows
    assert cli.refused("feature", "describe", "--node", 7) == "there is no broker 7 (BROKER_NOT_AVAILABLE)."


def test_a_level_is_lowered_and_raised_again(cli: Cli) -> None:
    lower = ("feature", "downgrade", "--feature", "group.version=0")
    assert cli.ok(*lower, "--dry-run").out == "group.version could be downgraded from 1 to 0.\n"
    assert cli.json(*lower, "--dry-run") == [
        {"feature": "group.version", "from": 1, "to": 0, "done": False, "error": None}
    ]
    assert levels(cli)["group.version"] == 1
    assert cli.ok(*lower).out == "group.version downgraded from 1 to 0.\n"
    assert levels(cli)["group.version"] == 0
    assert cli.ok(*lower).out == "group.version is at 0 already.\n"
    raised = cli.json("feature", "upgrade", "--feature", "group.version=1")
    assert raised == [{"feature": "group.version", "from": 0, "to": 1, "done": True, "error": None}]
    assert levels(cli)["group.version"] == 1


@pytest.mark.parametrize(
    ("arguments", "code", "sentence"),
    [
        (["upgrade"], 2, "name levels, as in --feature group.version=1, or a --release-version."),
        (
            ["upgrade", "-f", "group.version=1", "-r", "4.3"],
            2,
            "name levels, as in --feature group.version=1, or a --release-version.",
        ),
        (["upgrade", "-f", "group.version"], 2, "--feature takes KEY=VALUE, not 'group.version'."),
        (["upgrade", "-f", "group.version=one"], 2, "the level of group.version is a number, not 'one'."),
        (["upgrade", "-f", "group.version=65536"], 2, "the level of group.version is a number, not '65536'."),
        (
            ["upgrade", "-f", "metadata.version=9.9"],
            2,
            "Unknown release version '9.9'. Supported versions are: 3.3-IV3 to 4.3-IV0.",
        ),
        (["upgrade", "-f", "gruop.version=1"], 1, "there is no feature gruop.version. Did you mean group.version?"),
        (
            ["upgrade", "-f", "group.version=9"],
            1,
            "The update failed for all features since the following feature had an error: Invalid update version 9 "
            "for feature group.version. The controller only supports versions 0-1 (INVALID_UPDATE_VERSION).",
        ),
        (
            ["upgrade", "-f", "metadata.version=4.1"],
            1,
            "metadata.version is at 30 (4.3-IV0): to set 27 (4.1-IV1) say `odradek feature downgrade`.",
        ),
        (
            ["downgrade", "-f", "eligible.leader.replicas.version=2"],
            1,
            "eligible.leader.replicas.version is at 1: to set 2 say `odradek feature upgrade`.",
        ),
    ],
)
def test_levels_that_cannot_be(cli: Cli, arguments: list[str], code: int, sentence: str) -> None:
    before = levels(cli)
    assert cli.refused("feature", *arguments, code=code) == sentence
    assert levels(cli) == before


def test_metadata_that_may_be_lost_is_kept(cli: Cli) -> None:
    lower = ("feature", "downgrade", "--release-version", "4.0")
    assert "Refusing to perform the requested downgrade" in cli.refused(*lower)
    assert "Unsafe metadata downgrade is not supported" in cli.refused(*lower, "--unsafe")
    assert levels(cli) == NEWEST


def test_all_features_get_the_levels_of_a_release(tmp_path: Path) -> None:
    """Of a directory that was formatted as an earlier release would have done it."""
    data = tmp_path / "data"
    properties = tmp_path / "server.properties"
    properties.write_text(
        "node.id=1\nprocess.roles=broker,controller\ncontroller.listener.names=CONTROLLER\n"
        "listeners=PLAINTEXT://127.0.0.1:0,CONTROLLER://127.0.0.1:0\n"
        f"controller.quorum.bootstrap.servers=127.0.0.1:9093\nlog.dirs={data}\n"
    )
    formatting = ("storage", "format", "--standalone", "-t", "4L6g3nShT-eMCtK--X86sw", "-c", properties)
    Cli("", tmp_path).ok(*formatting, "--release-version", "3.9")
    with running_node(data_directory=str(data)) as node:
        cli = Cli(node.bootstrap_servers, tmp_path)
        assert levels(cli) == dict.fromkeys(NEWEST, 0) | {"kraft.version": 1, "metadata.version": 21}
        raised = cli.ok("feature", "upgrade", "-r", "4.0-IV0").out.splitlines()
        assert "eligible.leader.replicas.version is at 0 already." in raised
        assert "group.version upgraded from 0 to 1." in raised
        assert "metadata.version upgraded from 21 (3.9-IV0) to 22 (4.0-IV0)." in raised
        cli.ok("feature", "upgrade", "-r", "4.3")
        assert levels(cli) == NEWEST
