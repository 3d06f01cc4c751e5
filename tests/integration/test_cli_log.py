"""`odradek log` on the files of a node that has stopped, whole and spoilt."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from tests.integration.cli import Cli

from odradek.testing import running_node

FIRST = "00000000000000000000"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Cli, Path]:
    """A data directory with a partition of several segments, and nobody who uses it."""
    data = tmp_path_factory.mktemp("data")
    with running_node(data_directory=str(data)) as node:
        cli = Cli(node.bootstrap_servers, tmp_path_factory.mktemp("home"))
        settings = ("--config", "segment.bytes=1048576", "--config", "index.interval.bytes=100")
        cli.ok("topic", "create", "logged", *settings)
        record = {"key": "k", "value": "x" * 1000, "headers": {"h": "1"}, "timestamp": 1000}
        cli.ok("produce", "logged", "--json", stdin=(json.dumps(record) + "\n") * 1500)
        cli.ok("produce", "logged", "--compression", "gzip", stdin="last\n")
    return cli, data


@pytest.fixture
def spoilt(made: tuple[Cli, Path], tmp_path: Path) -> tuple[Cli, Path]:
    """A copy of the partition to spoil."""
    shutil.copytree(made[1] / "logged-0", tmp_path / "logged-0")
    return made[0], tmp_path / "logged-0"


def test_a_directory(made: tuple[Cli, Path]) -> None:
    cli, data = made
    (told,) = cli.json("log", "dump", data / "logged-0")
    first, *_, last = told["segments"]
    assert len(told["segments"]) >= 2
    assert (first["base_offset"], last["last_offset"]) == (0, 1500)
    assert sum(each["records"] for each in told["segments"]) == 1501
    assert first["index_entries"] > 10
    assert all(each["problem"] is None for each in told["segments"])
    shown = cli.ok("log", "dump", data / "logged-0")
    assert shown.rows[0] == [str(data / "logged-0")]
    assert shown.rows[1][:4] == ["BASE", "LAST", "BATCHES", "RECORDS"]
    directories = [each["directory"] for each in cli.json("log", "dump", data)]
    assert str(data / "__cluster_metadata-0") in directories


def test_a_segment(made: tuple[Cli, Path]) -> None:
    cli, data = made
    path = data / "logged-0" / f"{FIRST}.log"
    batches = cli.json_lines("log", "dump", path)
    assert (batches[0]["base_offset"], batches[0]["position"], batches[0]["leader_epoch"]) == (0, 0, 0)
    assert all(each["crc_valid"] and each["producer_id"] >= 0 for each in batches)
    assert [each["base_offset"] for each in batches[1:]] == [each["last_offset"] + 1 for each in batches[:-1]]
    line = cli.ok("log", "dump", path).out.splitlines()[0]
    assert line.startswith(
        f"position 0  offsets 0-{batches[0]['last_offset']}  records {batches[0]['records_count']}  "
    )
    (one,) = cli.json_lines("log", "dump", sorted(data.glob("logged-0/*.log"))[-1], "--from-offset", 1500, "--records")
    assert one["compression"] == "gzip"
    assert [(each["offset"], each["value"]) for each in one["records"]] == [(1500, "last")]
    assert (
        "  offset 0  1970-01-01 00:00:01.000  key k\n    h: 1\n    xxxx" in cli.ok("log", "dump", path, "--records").out
    )


def test_indexes(made: tuple[Cli, Path]) -> None:
    cli, data = made
    starts = {each["position"]: each for each in cli.json_lines("log", "dump", data / "logged-0" / f"{FIRST}.log")}
    entries = cli.json("log", "dump", data / "logged-0" / f"{FIRST}.index")
    assert entries
    assert all(starts[each["position"]]["last_offset"] == each["offset"] for each in entries)
    times = cli.json("log", "dump", data / "logged-0" / f"{FIRST}.timeindex")
    assert times[0]["timestamp"] == 1000
    assert cli.ok("log", "dump", data / "logged-0" / f"{FIRST}.index").rows[0] == ["OFFSET", "POSITION"]


def test_what_is_well(made: tuple[Cli, Path]) -> None:
    cli, data = made
    shown = cli.ok("log", "verify", data)
    assert shown.err == ""
    told = {each["directory"]: each for each in cli.json("log", "verify", data)}
    assert told[str(data / "logged-0")]["records"] == 1501
    assert all(each["problems"] == [] for each in told.values())


def problems(cli: Cli, directory: Path) -> list[str]:
    ran = cli.run("log", "verify", directory, "--format", "json")
    assert ran.code == 1, ran
    (told,) = json.loads(ran.out)
    shown = cli.run("log", "verify", directory)
    assert (shown.code, shown.err.count("\n")) == (1, len(told["problems"]))
    return [problem.removeprefix(str(directory / FIRST)) for problem in told["problems"]]


def test_a_flipped_bit(spoilt: tuple[Cli, Path]) -> None:
    cli, directory = spoilt
    path = directory / f"{FIRST}.log"
    content = bytearray(path.read_bytes())
    content[200] ^= 1
    path.write_bytes(content)
    assert problems(cli, directory) == [".log the batch at position 0 (offset 0) does not match its checksum"]
    assert "BAD CHECKSUM" in cli.ok("log", "dump", path).out.splitlines()[0]


def test_a_torn_tail(spoilt: tuple[Cli, Path]) -> None:
    cli, directory = spoilt
    path = sorted(directory.glob("*.log"))[-1]
    whole = path.stat().st_size
    with path.open("ab") as opened:
        opened.write(b"\0" * 70)
    (problem,) = [each for each in problems(cli, directory) if ".log " in each]
    assert problem.endswith(f".log the length 0 at position {whole} is not a batch's")
    assert cli.run("log", "dump", path).err.endswith(f"the length 0 at position {whole} is not a batch's.\n")


def test_a_missing_segment_and_one_twice(spoilt: tuple[Cli, Path]) -> None:
    cli, directory = spoilt
    second = sorted(directory.glob("*.log"))[1]
    shutil.copy(directory / f"{FIRST}.log", second)
    assert any("begins at offset 0, and " in each for each in problems(cli, directory))


def test_indexes_that_lead_astray(spoilt: tuple[Cli, Path]) -> None:
    cli, directory = spoilt
    index, times = directory / f"{FIRST}.index", directory / f"{FIRST}.timeindex"
    index.write_bytes(b"\0\0\0\1\0\0\0\1" + index.read_bytes()[8:])
    times.write_bytes(times.read_bytes() + b"\0\0\0")
    assert problems(cli, directory) == [
        ".index points to offset 1 at position 1, where no such batch is",
        ".timeindex has 3 bytes at its end that are no entry",
    ]


@pytest.mark.parametrize(
    ("arguments", "code", "sentence"),
    [
        (["dump", "/does/not/exist.log"], 1, "cannot read /does/not/exist.log: no such file or directory."),
        (["dump", "{home}"], 1, "there are no segments in {home}: name a partition's directory, or a data directory."),
        (["verify", "{home}/nothing"], 1, "cannot read {home}/nothing: no such file or directory."),
        (["dump", "{home}/x.txt"], 1, "{home}/x.txt is none of a log's files: name a directory, or a file such as "),
        (["dump", "{home}", "--records"], 2, "--records and --from-offset are for a .log file: "),
    ],
)
def test_wrong_input(made: tuple[Cli, Path], arguments: list[str], code: int, sentence: str) -> None:
    cli, _ = made
    filled = [word.format(home=cli.home) for word in arguments]
    assert cli.refused("log", *filled, code=code).startswith(sentence.format(home=cli.home))
