"""`odradek log` on the files of a node that has stopped, whole and spoilt."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from tests.integration.cli import Cli

from odradek.protocol.records.control import EndTxnMarker, end_txn_batch
from odradek.storage import txn_index
from odradek.testing import running_node

FIRST = "00000000000000000000"
PRODUCER = {"producer_id": 77, "producer_epoch": 3, "timestamp": 1000}


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
        cli.ok("consume", "logged", "--group", "readers", "--max-messages", 7)
        small = ("--config", "cleanup.policy=compact", "--config", "internal.segment.bytes=2000")
        cli.ok("topic", "create", "latest", *small, "--config", "min.cleanable.dirty.ratio=1")
        lines = [json.dumps({"key": f"k{number % 5}", "value": "x" * 100}) + "\n" for number in range(200)]
        for number in range(0, 200, 10):
            cli.ok("produce", "latest", "--json", stdin="".join(lines[number : number + 10]))
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


def test_records_of_internal_topics(made: tuple[Cli, Path]) -> None:
    cli, data = made
    (offsets,) = [path for path in data.glob("__consumer_offsets-*/*.log") if path.stat().st_size]
    records = [each for batch in cli.json_lines("log", "dump", offsets, "--records") for each in batch["records"]]
    committed = [each for each in records if each["kind"] == "OffsetCommit"]
    assert committed[-1]["key"] == {"group": "readers", "topic": "logged", "partition": 0}
    assert committed[-1]["value"]["offset"] == 7
    bare = [
        each
        for batch in cli.json_lines("log", "dump", offsets, "--records", "--decode", "none")
        for each in batch["records"]
    ]
    assert [sorted(each) for each in bare] == [["headers", "key", "offset", "timestamp", "value"]] * len(records)
    metadata = data / "__cluster_metadata-0" / f"{FIRST}.log"
    batches = cli.json_lines("log", "dump", metadata, "--records")
    kinds = [each["kind"] for batch in batches for each in batch["records"]]
    assert {"LEADER_CHANGE", "FeatureLevel", "RegisterBroker", "Topic", "Partition"} <= set(kinds)
    assert next(each["control_type"] for each in batches if each["control"]) == "LEADER_CHANGE"
    (bootstrap, *_) = cli.json_lines("log", "dump", data / "bootstrap.checkpoint")
    assert bootstrap["control_type"] == "SNAPSHOT_HEADER"


def test_markers_of_transactions_and_their_index(cli: Cli, tmp_path: Path) -> None:
    aborted = end_txn_batch(EndTxnMarker(committed=False, coordinator_epoch=4), **PRODUCER)
    committed = end_txn_batch(EndTxnMarker(committed=True, coordinator_epoch=5), **PRODUCER)
    committed[:8] = (1).to_bytes(8)  # Its base offset, which no checksum covers.
    path = tmp_path / f"{FIRST}.log"
    path.write_bytes(aborted + committed)
    (tmp_path / f"{FIRST}.txnindex").write_bytes(txn_index.ENTRY.pack(0, 77, 0, 0, 1))
    told = cli.json_lines("log", "dump", path)
    assert [(each["control_type"], each["coordinator_epoch"]) for each in told] == [("ABORT", 4), ("COMMIT", 5)]
    lines = cli.ok("log", "dump", path).out.splitlines()
    assert lines[0].endswith("  producer 77:3  transactional  control ABORT  coordinator epoch 4")
    assert '"coordinator_epoch": 5' in cli.ok("log", "dump", path, "--records").out
    assert cli.json("log", "dump", tmp_path / f"{FIRST}.txnindex") == [
        {"version": 0, "producer_id": 77, "first_offset": 0, "last_offset": 0, "last_stable_offset": 1}
    ]
    (directory,) = cli.json("log", "dump", tmp_path)
    assert directory["segments"][0]["txn_index_entries"] == 1


def test_producers_at_the_end(made: tuple[Cli, Path]) -> None:
    """Of a clean stop."""
    cli, data = made
    newest = sorted(data.glob("logged-0/*.snapshot"))[-1]
    told = cli.json("log", "dump", newest)
    assert [(each["producer_epoch"], each["transaction_first_offset"]) for each in told] == [(0, None), (0, None)]
    assert max(each["last_offset"] for each in told) == 1500
    shown = cli.ok("log", "dump", newest)
    assert shown.out.startswith("PRODUCER  EPOCH  COORDINATOR EPOCH")
    assert [row[0] for row in shown.rows[1:]] == [str(each["producer_id"]) for each in told]
    (cli.home / newest.name).write_bytes(newest.read_bytes()[:-1] + b"x")
    sentence = cli.refused("log", "dump", cli.home / newest.name)
    assert sentence.endswith("a producer snapshot's checksum does not match its content.")


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


def test_what_compaction_would_leave(made: tuple[Cli, Path]) -> None:
    cli, data = made
    before = {path: path.read_bytes() for path in sorted(data.rglob("*")) if path.is_file()}
    latest = next(each for each in cli.json("log", "compaction", data) if each["topic"] == "latest")
    assert {each["topic"] for each in cli.json("log", "compaction", data)} == {"latest", "__consumer_offsets"}
    assert (latest["min_cleanable_dirty_ratio"], latest["dirty_ratio"], latest["due"]) == (1.0, 1.0, False)
    end_offset = latest["first_uncleanable_offset"]
    assert 100 < end_offset < 200
    would = latest["round"]
    assert (would["records_before"], would["records_after"]) == (end_offset, 5)
    assert (would["keys_before"], would["keys_after"], would["keyless"]) == (5, 5, 0)
    assert "is not compacted" in cli.refused("log", "compaction", data / "logged-0")
    (other,) = cli.json("log", "compaction", data / "logged-0", "--config", "cleanup.policy=compact")
    assert (other["round"]["keys_after"], other["round"]["records_after"]) == (1, 1)
    assert {path: path.read_bytes() for path in sorted(data.rglob("*")) if path.is_file()} == before
