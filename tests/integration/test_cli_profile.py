"""`odradek profile` and shell completion: what a person sets up once."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tests.integration.cli import Cli


@pytest.fixture
def own(cli: Cli, tmp_path: Path) -> Cli:
    """The command line with no profiles yet."""
    return Cli(cli.bootstrap, tmp_path / "home")


def test_add_use_list_and_remove(own: Cli) -> None:
    assert own.ok("profile", "list").out == "No profiles yet: odradek profile add NAME -b HOST:PORT\n"
    own.ok("profile", "add", "here", "-b", own.bootstrap, "--set", "client.id=me")
    own.ok("profile", "add", "nowhere", "-b", "127.0.0.1:1", "--use")
    assert own.json("profile", "list") == [
        {"name": "here", "bootstrap_servers": own.bootstrap, "settings": 1, "current": False},
        {"name": "nowhere", "bootstrap_servers": "127.0.0.1:1", "settings": 0, "current": True},
    ]
    assert "cannot reach the cluster at 127.0.0.1:1" in own.refused("topic", "list", ODRADEK_BOOTSTRAP="")
    assert ["*", "here", own.bootstrap, "1"] in own.ok("profile", "use", "here").rows
    own.ok("topic", "list", ODRADEK_BOOTSTRAP="")
    own.ok("profile", "remove", "here")
    assert own.json("profile", "list") == [
        {"name": "nowhere", "bootstrap_servers": "127.0.0.1:1", "settings": 0, "current": False}
    ]
    assert not (own.home / "odradek/profiles/here.properties").exists()


def test_a_profile_is_named_by_flag_or_variable(own: Cli) -> None:
    own.ok("profile", "add", "here", "-b", own.bootstrap)
    own.ok("profile", "add", "nowhere", "-b", "127.0.0.1:1")
    own.ok("topic", "list", "--profile", "here", ODRADEK_BOOTSTRAP="127.0.0.1:1")
    own.ok("topic", "list", ODRADEK_BOOTSTRAP="", ODRADEK_PROFILE="here")
    own.ok("topic", "list", "--profile", "nowhere", "-b", own.bootstrap)
    assert "127.0.0.1:1: " in own.refused("topic", "list", "--profile", "nowhere")
    assert "127.0.0.1:1: " in own.refused("topic", "list", "--profile", "nowhere", ODRADEK_PROFILE="here")


def test_a_profile_from_a_file_is_for_its_owner_only(own: Cli, tmp_path: Path) -> None:
    (tmp_path / "client.properties").write_text(f"bootstrap.servers={own.bootstrap}\nacks=1\nclient.id=a b\n")
    own.ok("profile", "add", "filed", "--command-config", tmp_path / "client.properties")
    kept = own.home / "odradek/profiles/filed.properties"
    assert kept.stat().st_mode & 0o777 == 0o600
    assert kept.parent.stat().st_mode & 0o777 == 0o700
    own.ok("topic", "create", "by-profile", "--profile", "filed")


@pytest.mark.parametrize(
    ("arguments", "code", "sentence"),
    [
        (["use", "nobody"], 1, "there is no profile nobody. `odradek profile list` shows those there are."),
        (["remove", "her"], 1, "there is no profile her. Did you mean here?"),
        (["add", "new"], 2, "a profile needs an address: say -b HOST:PORT."),
        (["add", "new", "-b", "nonsense"], 1, "bootstrap.servers: 'nonsense' is not host:port."),
        (["add", "new", "-b", "a:1", "--set", "x"], 2, "--set takes KEY=VALUE, not 'x'."),
        (["add", "new", "-b", "a:1", "--set", "ackz=1"], 1, "Unknown client setting ackz."),
        (["add", "../x", "-b", "a:1"], 2, "'../x' cannot be a profile's name: "),
        (
            ["add", "here", "-b", "a:1"],
            1,
            "there is a profile here already: say --replace to put this one in its place.",
        ),
    ],
)
def test_wrong_input(own: Cli, arguments: list[str], code: int, sentence: str) -> None:
    own.ok("profile", "add", "here", "-b", own.bootstrap)
    assert own.refused("profile", *arguments, code=code).startswith(sentence)
    assert [each["name"] for each in own.json("profile", "list")] == ["here"]


def test_a_place_that_cannot_be_written(own: Cli) -> None:
    (own.home / "odradek").write_text("in the way")
    assert own.refused("profile", "add", "x", "-b", "a:1").startswith(f"cannot read {own.home}/odradek/profiles: ")


class TestCompletion:
    def complete(self, cli: Cli, *words: str, **variables: str) -> list[str]:
        return cli.ok("complete", "--", *words, **variables).out.splitlines()

    def test_commands_actions_and_options(self, own: Cli) -> None:
        assert self.complete(own, "co") == ["consume", "config", "completion"]
        assert "complete" not in self.complete(own, "")
        assert self.complete(own, "topic", "de") == ["describe", "delete"]
        assert self.complete(own, "topic", "describe", "--f") == ["--format"]
        assert self.complete(own, "topic", "describe", "--format", "") == ["table", "json", "yaml"]
        assert self.complete(own, "completion", "") == ["bash", "zsh", "fish"]
        assert self.complete(own, "nonsense", "") == self.complete(own, "")

    def test_names(self, own: Cli) -> None:
        own.ok("topic", "create", "completed-topic")
        own.ok("group", "reset-offsets", "completed-group", "--topic", "completed-topic", "--to-latest", "--execute")
        own.ok("profile", "add", "here", "-b", own.bootstrap)
        assert self.complete(own, "consume", "completed") == ["completed-topic"]
        assert self.complete(own, "topic", "delete", "x", "completed") == ["completed-topic"]
        assert self.complete(own, "config", "describe", "topic", "completed") == ["completed-topic"]
        assert self.complete(own, "consume", "x", "--group", "completed") == ["completed-group"]
        assert self.complete(own, "group", "describe", "--members", "completed") == ["completed-group"]
        assert self.complete(own, "topic", "list", "--profile", "") == ["here"]
        assert self.complete(own, "profile", "use", "h") == ["here"]
        assert self.complete(own, "produce", "--profile", "here", "completed", ODRADEK_BOOTSTRAP="") == [
            "completed-topic"
        ]

    def test_silence_where_nobody_answers(self, own: Cli) -> None:
        assert self.complete(own, "consume", "-b", "127.0.0.1:1", "x") == []
        assert self.complete(own, "consume", "--profile", "nobody", "x") == []

    def test_the_script_for_bash(self, own: Cli, tmp_path: Path) -> None:
        bash = shutil.which("bash")
        if bash is None:
            pytest.skip("there is no bash here")
        own.ok("topic", "create", "in-bash")
        (tmp_path / "odradek").write_text(f'#!/bin/sh\nexec {sys.executable} -m odradek "$@"\n')
        (tmp_path / "odradek").chmod(0o755)
        script = (
            f'PATH={tmp_path}:$PATH; eval "$(odradek completion bash)"; '
            "COMP_WORDS=(odradek topic describe in-b); COMP_CWORD=3; _odradek; echo ${COMPREPLY[@]}"
        )
        shown = subprocess.run([bash, "-c", script], env=own.environment(), capture_output=True, text=True, check=True)
        assert shown.stdout == "in-bash\n"

    @pytest.mark.parametrize("shell", ["zsh", "fish"])
    def test_the_scripts_for_other_shells(self, own: Cli, shell: str) -> None:
        assert "odradek complete -- " in own.ok("completion", shell).out
        assert own.run("completion", "csh").code == 2
