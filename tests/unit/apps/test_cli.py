"""The command line: where settings come from, kafka-storage's words, and one sentence where something is wrong."""

from __future__ import annotations

import logging
import subprocess
import sys
from pathlib import Path

import pytest

from odradek import __version__
from odradek.apps.cli.logs import KafkaLayout
from odradek.apps.cli.main import main
from odradek.apps.cli.settings import environment_keys, gather
from odradek.apps.terminal.sentence import Sentence
from odradek.ids import parse_uuid
from odradek.protocol.records.native import in_use

CLUSTER = "4L6g3nShT-eMCtK--X86sw"


@pytest.fixture
def properties(tmp_path: Path) -> str:
    """A file for a lone node with two directories."""
    file = tmp_path / "server.properties"
    file.write_text(
        "node.id=1\nprocess.roles=broker,controller\ncontroller.listener.names=CONTROLLER\n"
        "controller.quorum.bootstrap.servers=localhost:9093\n"
        "listeners=PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093\n"
        f"log.dirs={tmp_path}/a,{tmp_path}/b\n"
    )
    return str(file)


class TestSettings:
    def test_nothing_configured(self) -> None:
        config = gather(None, {}).load()
        assert [str(one) for one in config.listeners] == ["PLAINTEXT://127.0.0.1:9092", "CONTROLLER://127.0.0.1:0"]
        assert config.log_dirs == ("odradek-data",)
        assert config.warnings == ()

    def test_the_later_source_counts(self, properties: str) -> None:
        environment = {"KAFKA_NUM_PARTITIONS": "2", "KAFKA_LOG_DIRS": "/env", "KAFKA_NODE_ID": "3"}
        sources = gather(properties, environment, data="/data", overrides=["num.partitions=4", "a.b = c=d "])
        assert sources.properties["node.id"] == "3"
        assert sources.properties["log.dirs"] == "/data"
        assert sources.properties["num.partitions"] == "4"
        assert sources.properties["a.b"] == "c=d"
        assert sources.properties["controller.quorum.bootstrap.servers"] == "localhost:9093"

    def test_environment_variables_follow_the_rule_of_the_image(self) -> None:
        environment = {
            "KAFKA_LOG_DIRS": "",
            "KAFKA_LISTENER_NAME_A__B_X___Y": "",
            "KAFKA_HEAP_OPTS": "",
            "KAFKA_LOG4J_ROOT_LOGLEVEL": "",
            "KAFKA_": "",
            "PATH": "",
        }
        assert environment_keys(environment) == {
            "KAFKA_LISTENER_NAME_A__B_X___Y": "listener.name.a_b.x-y",
            "KAFKA_LOG_DIRS": "log.dirs",
        }

    def test_a_wrong_setting_says_where_it_came_from(self) -> None:
        with pytest.raises(Sentence) as wrong:
            gather(None, {"KAFKA_NUM_PARTITIONS": "many"}).load()
        assert str(wrong.value) == (
            "Invalid value many for configuration num.partitions: Not a number of type INT "
            "(num.partitions is set by the environment variable KAFKA_NUM_PARTITIONS.)"
        )

    def test_a_variable_that_is_no_key_is_a_warning(self) -> None:
        assert gather(None, {"KAFKA_HOME": "/opt"}).load().warnings == (
            "Unknown configuration home (set by the environment variable KAFKA_HOME) is ignored.",
        )

    def test_a_port_and_a_file_do_not_go_together(self, properties: str) -> None:
        with pytest.raises(Sentence, match="--port goes without a FILE"):
            gather(properties, {}, port=1)


class TestSentences:
    """Wrong input ends in one line on stderr and no traceback."""

    @pytest.mark.parametrize(
        ("arguments", "code", "message"),
        [
            (["start", "/does/not/exist"], 1, "odradek: cannot read /does/not/exist: no such file or directory."),
            (["start", "--override", "x"], 2, "odradek: --override takes KEY=VALUE, not 'x'."),
            (
                ["start", "--override", "ssl.client.auth=required"],
                1,
                "odradek: ssl.client.auth asks for TLS, which this node does not offer yet; it does not start rather "
                "than serve open what was meant to be closed. (ssl.client.auth is set by --override.)",
            ),
        ],
    )
    def test_one_line(self, arguments: list[str], code: int, message: str, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(arguments) == code
        shown = capsys.readouterr()
        assert shown.err == message + "\n"
        assert shown.out == ""

    def test_bytes_that_are_no_text(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        (tmp_path / "x").write_bytes(b"\xff\xfe")
        assert main(["start", str(tmp_path / "x")]) == 1
        assert capsys.readouterr().err == f"odradek: cannot read {tmp_path}/x: it is not a text in UTF-8.\n"

    @pytest.mark.parametrize("arguments", [[], ["fly"], ["start", "--port", "70000"], ["storage"], ["storage", "info"]])
    def test_a_wrong_command_line_is_exit_code_2(
        self, arguments: list[str], capsys: pytest.CaptureFixture[str]
    ) -> None:
        with pytest.raises(SystemExit) as left:
            main(arguments)
        assert left.value.code == 2
        assert "usage: odradek" in capsys.readouterr().err


class TestStorage:
    def run(self, capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str]:
        code = main(["storage", *arguments])
        shown = capsys.readouterr()
        return code, shown.out + shown.err

    def test_random_uuid(self, capsys: pytest.CaptureFixture[str]) -> None:
        code, shown = self.run(capsys, "random-uuid")
        assert code == 0
        assert len(parse_uuid(shown.strip())) == 16

    def test_format_then_info(self, properties: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        missing = f"Found problems:\n  {tmp_path}/a does not exist\n  {tmp_path}/b does not exist\n\n"
        assert self.run(capsys, "info", "-c", properties) == (1, missing)
        assert self.run(capsys, "format", "-t", CLUSTER, "-c", properties, "--standalone") == (
            0,
            f"Formatting dynamic metadata voter directory {tmp_path}/a with metadata.version 4.3-IV0.\n"
            f"Formatting data directory {tmp_path}/b with metadata.version 4.3-IV0.\n",
        )
        code, shown = self.run(capsys, "info", "-c", properties)
        assert code == 0
        assert shown.startswith(
            f"Found log directories:\n  {tmp_path}/a\n  {tmp_path}/b\n\nFound metadata: {{cluster.id="
        )

    def test_formatting_twice(self, properties: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        arguments = ["format", "-c", properties, "-s", "-t"]
        self.run(capsys, *arguments, CLUSTER)
        code, shown = self.run(capsys, *arguments, CLUSTER)
        assert (code, shown.split(".")[0]) == (1, f"odradek: Log directory {tmp_path}/a is already formatted")
        assert self.run(capsys, *arguments, CLUSTER, "-g") == (0, "All of the log directories are already formatted.\n")
        for words in (["another", "-g"], ["another"]):
            code, shown = self.run(capsys, *arguments, *words)
            assert (code, f"Expected another, but read {CLUSTER}" in shown) == (1, True)

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            ([], "you must specify one of the following: --standalone, --initial-controllers, or"),
            (["-s", "-f", "nonsense=1"], "Unsupported feature: nonsense."),
            (["-s", "-f", "nonsense"], "equals sign not found"),
            (["-s", "-f", "metadata.version=x"], "the level is not a number"),
            (["-s", "-r", "9.9"], "9.9"),
            (["-I", "1@h:9"], "--initial-controllers"),
        ],
    )
    def test_what_cannot_be_formatted(
        self, arguments: list[str], message: str, properties: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        code, shown = self.run(capsys, "format", "-t", CLUSTER, "-c", properties, *arguments)
        assert code == 1
        assert message in shown
        assert shown.count("\n") == 1
        assert not (tmp_path / "a/meta.properties").exists()

    def test_a_static_quorum_needs_no_option(
        self, properties: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        Path(properties).write_text(Path(properties).read_text() + "controller.quorum.voters=1@localhost:9093\n")
        code, shown = self.run(capsys, "format", "-t", CLUSTER, "-c", properties)
        assert (code, shown.splitlines()[0]) == (
            0,
            f"Formatting metadata directory {tmp_path}/a with metadata.version 4.3-IV0.",
        )
        code, shown = self.run(capsys, "format", "-t", CLUSTER, "-c", properties, "-s")
        assert (code, "already formatted" in shown) == (1, True)


def test_the_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["version"]) == 0
    said = capsys.readouterr().out
    assert said == f"odradek {__version__} (a Kafka 4.3 node; {in_use()})\n"
    with pytest.raises(SystemExit):
        main(["--version"])
    assert capsys.readouterr().out == said


def test_log_lines_have_kafkas_layout() -> None:
    record = logging.LogRecord("kafka.log", logging.WARNING, "", 0, "Rolled %s", ("a-0",), None)
    record.created, record.msecs = 0.0, 7.9
    shown = KafkaLayout().format(record)
    assert shown.endswith(",007] WARN Rolled a-0 (kafka.log)")
    assert shown.startswith("[19")


def imported(*arguments: str) -> list[str]:
    """The modules that a command has imported when it ends."""
    script = "import sys\nfrom odradek.apps.cli.main import main\ntry: main(sys.argv[1:])\nexcept SystemExit: pass\n"
    script += "print(*sys.modules)"
    command = [sys.executable, "-c", script, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()[-1].split()


def test_help_imports_next_to_nothing() -> None:
    """`odradek --help` must answer at once, so no command's own imports may be paid for."""
    modules = ["odradek", "odradek.apps", "odradek.apps.cli", "odradek.apps.terminal", "odradek.apps.terminal.sentence"]
    modules += ["odradek.apps.cli.main", "odradek.apps.terminal.parser"]
    dear = ("odradek", "asyncio", "logging", "dataclasses")
    assert [name for name in imported("--help") if name.startswith(dear)] == modules


@pytest.mark.parametrize(
    ("arguments", "unneeded"),
    [
        (
            ["topic", "list", "-b", "127.0.0.1:1"],
            ("server", "storage", "metadata", "client.producer", "client.consumer"),
        ),
        (["profile", "list"], ("server", "storage", "metadata", "client", "protocol")),
        (["log", "dump", "/does/not/exist"], ("server", "metadata", "client")),
        (["completion", "bash"], ("server", "storage", "metadata", "client", "protocol")),
    ],
    ids=lambda given: given[0],
)
def test_a_command_imports_what_it_needs(arguments: list[str], unneeded: tuple[str, ...]) -> None:
    """Commands start at once because none pays for another's rooms (`bench/cli_start.py` measures it)."""
    rooms = tuple(f"odradek.{room}" for room in unneeded)
    assert [name for name in imported(*arguments) if name.startswith(rooms)] == []
