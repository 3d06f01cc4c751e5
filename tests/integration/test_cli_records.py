"""`odradek produce` and `odradek consume`: what goes in comes out, in every form and from every place."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.integration.cli import PATIENCE_S, Cli

from odradek.client.producer.partitioners import partition_of_key


def test_lines_from_stdin(cli: Cli) -> None:
    cli.ok("topic", "create", "lines")
    ran = cli.ok("produce", "lines", stdin="one\r\n\ntwo")
    assert ran.out.splitlines()[0].startswith("3 records to lines in ")
    assert ran.rows[1:] == [["PARTITION", "RECORDS", "FIRST", "OFFSET", "LAST", "OFFSET"], ["0", "3", "0", "2"]]
    read = cli.json_lines("consume", "lines")
    assert [each["value"] for each in read] == ["one", "", "two"]
    assert [each["offset"] for each in read] == [0, 1, 2]
    assert read[0]["key"] is None


def test_files_and_keys_land_where_the_java_client_puts_them(cli: Cli, tmp_path: Path) -> None:
    cli.ok("topic", "create", "keyed", "--partitions", 5)
    (tmp_path / "a.txt").write_text("".join(f"user-{number}\tvalue {number}\n" for number in range(40)))
    (tmp_path / "b.txt").write_text("user-0\tlast")
    told = cli.json("produce", "keyed", "--key-separator", "\t", tmp_path / "a.txt", tmp_path / "b.txt")
    assert (told["topic"], told["records"]) == ("keyed", 41)
    read = cli.json_lines("consume", "keyed")
    assert len(read) == 41
    assert all(each["partition"] == partition_of_key(each["key"].encode(), 5) for each in read)
    assert [each["value"] for each in read if each["key"] == "user-0"] == ["value 0", "last"]


def test_json_there_and_back_keeps_every_byte(cli: Cli) -> None:
    cli.ok("topic", "create", "origin", "--partitions", 2)
    cli.ok("topic", "create", "copy", "--partitions", 2)
    given: list[dict[str, object]] = [
        {"key": "k", "value": "plain", "headers": {"h": "1"}, "partition": 1, "timestamp": 1234},
        {"key": {"base64": "AP8="}, "value": {"base64": "/w=="}, "partition": 1},
        {"key": "tombstone", "value": None, "partition": 1},
        {"value": {"nested": [1, "ü"]}, "headers": [{"name": "x", "value": None}, {"name": "x", "value": "2"}]},
    ]
    cli.ok("produce", "origin", "--json", stdin="".join(json.dumps(each) + "\n" for each in given))
    first = cli.ok("consume", "origin", "--format", "json").out
    by_value = {json.dumps(each["value"]): each for each in map(json.loads, first.splitlines())}
    assert by_value['"plain"']["timestamp"] == 1234
    assert by_value['"plain"']["headers"] == [{"name": "h", "value": "1"}]
    assert by_value['{"base64": "/w=="}']["key"] == {"base64": "AP8="}
    assert by_value["null"]["key"] == "tombstone"
    (nested,) = [each for each in by_value.values() if each["headers"][:1] == [{"name": "x", "value": None}]]
    assert nested["value"] == '{"nested":[1,"ü"]}'
    cli.ok("produce", "copy", "--json", stdin=first)
    copied = [json.loads(line) for line in cli.ok("consume", "copy", "--format", "json").out.splitlines()]
    originals = [json.loads(line) for line in first.splitlines()]
    for each in (*copied, *originals):
        del each["topic"]
    assert copied == originals


def test_for_people(cli: Cli) -> None:
    cli.ok("topic", "create", "shown")
    record = {"key": "k", "value": '{"a": [1]}', "headers": {"h": "\x1b[31m"}, "timestamp": 0}
    cli.ok("produce", "shown", "--json", stdin=json.dumps(record))
    ran = cli.ok("consume", "shown")
    assert ran.out == (
        'partition 0  offset 0  1970-01-01 00:00:00.000  key k\n  h: \\x1b[31m\n  {\n    "a": [\n      1\n    ]\n  }\n'
    )
    assert ran.err == "1 record.\n"
    assert cli.ok("consume", "shown", "--format", "yaml").out.startswith("---\ntopic: shown\npartition: 0\noffset: 0\n")


def test_settings_of_the_producer(cli: Cli) -> None:
    cli.ok("topic", "create", "settled", "--partitions", 4)
    lines = "".join(f"{number}\n" for number in range(40))
    told = cli.json("produce", "settled", "--partitioner", "round-robin", "--key", "k", stdin=lines)
    assert [each["records"] for each in told["partitions"]] == [10] * 4
    assert len(cli.json("produce", "settled", "--key", "k", "--compression", "gzip", stdin=lines)["partitions"]) == 1
    unheard = cli.json("produce", "settled", "--partition", 2, "--acks", 0, "--header", "a=b", stdin="x\n")
    assert unheard["partitions"] == [{"partition": 2, "records": 1, "first_offset": None, "last_offset": None}]
    slow = cli.json("produce", "settled", "--rate", 20, stdin="x\n" * 10)
    assert slow["seconds"] >= 0.4


def test_where_to_start_and_stop(cli: Cli) -> None:
    cli.ok("topic", "create", "parts", "--partitions", 2)
    lines = "".join(f'{{"value": "{number}", "timestamp": {1000 * number}}}\n' for number in range(10))
    cli.ok("produce", "parts", "--json", "--partition", 1, stdin=lines)

    def values(*arguments: object) -> list[str]:
        return [each["value"] for each in cli.json_lines("consume", "parts", *arguments)]

    assert values("--partition", 0) == []
    assert values("--partition", 1, "--offset", 7) == ["7", "8", "9"]
    assert values("--since", "1970-01-01T00:00:08Z", "--partition", 1) == ["8", "9"]
    assert values("--from-beginning", "--max-messages", 2) == ["0", "1"]
    assert values("--follow", "--from-beginning", "--max-messages", 3) == ["0", "1", "2"]
    assert values("--follow", "--timeout", 0.5) == []
    ran = cli.run("consume", "parts", "--follow", "--timeout", 0.3, "--max-messages", 1)
    assert (ran.code, ran.err.splitlines()[-1]) == (1, "odradek: 0 of 1 record came before there was none for 0.3 s.")


def test_as_a_member_of_a_group(cli: Cli) -> None:
    cli.ok("topic", "create", "shared", "--partitions", 2)
    for partition in (0, 1):
        cli.ok("produce", "shared", "--partition", partition, stdin="a\nb\nc\n")
    first = cli.ok("consume", "shared", "--group", "readers", "--max-messages", 4)
    assert first.out.count("offset") == 4
    assert first.err.startswith("4 records.\n")
    assert "current offset 3, committed 3, end 3." in first.err
    rest = cli.json_lines("consume", "shared", "--group", "readers")
    assert len(rest) == 2
    assert cli.json_lines("consume", "shared", "--group", "readers") == []


def test_what_was_not_written_is_not_committed(cli: Cli) -> None:
    """The reader goes away with more on its way than a pipe holds."""
    cli.ok("topic", "create", "cut")
    cli.ok("produce", "cut", stdin="".join(f"{number:0999}\n" for number in range(400)))
    with subprocess.Popen(
        cli.command("consume", "cut", "--group", "cut off", "--format", "json"),
        env=cli.environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    ) as consuming:
        assert consuming.stdout is not None
        assert json.loads(consuming.stdout.readline())["offset"] == 0
        consuming.stdout.close()
        assert consuming.wait(timeout=PATIENCE_S) == 1
    offsets = [record["offset"] for record in cli.json_lines("consume", "cut", "--group", "cut off")]
    assert offsets == list(range(400))
    assert cli.json_lines("consume", "cut", "--group", "cut off") == []


@pytest.mark.parametrize("count", [1, 400], ids=["held back until it is flushed", "more than is held back"])
def test_a_second_interrupt_ends_it_though_nobody_reads_and_commits_nothing_that_was_not_written(
    cli: Cli, count: int
) -> None:
    """The first one cannot: the pipe is full, and with it the only thread waits."""
    topic = f"impatient-{count}"
    cli.ok("topic", "create", topic)
    cli.ok("produce", topic, stdin="".join(f"{number:0999}\n" for number in range(count)))
    reading_end, writing_end = os.pipe()
    filled = fill(writing_end) if count == 1 else 0
    with open(reading_end, "rb") as reader:
        with subprocess.Popen(
            [*cli.command("consume", topic, "--group", topic, "--format", "json"), "--follow", "--from-beginning"],
            env=cli.environment(),
            stdout=writing_end,
            stderr=subprocess.DEVNULL,
        ) as consuming:
            os.close(writing_end)
            try:
                for _ in range(2):
                    until(lambda: waits_to_write(consuming.pid))
                    consuming.send_signal(signal.SIGINT)
                    until(lambda: not has_pending_signals(consuming.pid))
                assert consuming.wait(timeout=PATIENCE_S) == 130
            finally:
                consuming.kill()
        written = reader.read()[filled:].count(b"\n")
    assert written < count
    (described,) = cli.json("group", "describe", topic)
    assert all((each["committed_offset"] or 0) <= written for each in described["partitions"])


def fill(pipe: int) -> int:
    """To the last byte; how many it took."""
    os.set_blocking(pipe, False)
    filled = 0
    try:
        while True:
            filled += os.write(pipe, b"\n" * 4096)
    except BlockingIOError:
        os.set_blocking(pipe, True)
        return filled


def waits_to_write(pid: int) -> bool:
    """Where in the kernel it waits."""
    return "pipe" in Path(f"/proc/{pid}/wchan").read_text()


def has_pending_signals(pid: int) -> bool:
    """Whether one was sent that it has not caught."""
    status = Path(f"/proc/{pid}/status").read_text()
    return any(line.startswith("ShdPnd:") and int(line.split()[1], 16) for line in status.splitlines())


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.mark.parametrize(
    ("arguments", "code", "sentence"),
    [
        (["produce", "--json", "--key", "k"], 2, "--json says the keys itself: leave out --key and --key-separator."),
        (
            ["produce", "--key", "k", "--key-separator", ":"],
            2,
            "--key gives all records one key, --key-separator each its own: leave out one of them.",
        ),
        (
            ["produce", "--partition", "0", "--partitioner", "key"],
            2,
            "--partition sends all records to one partition: leave out --partitioner.",
        ),
        (["produce", "--rate", "0"], 2, "--rate must be at least 1."),
        (["produce", "--key-separator", ":"], 1, "line 1 of stdin has no ':' between key and value."),
        (["produce", "--partition", "7"], 1, "wrong has 1 partition, counted from 0: 7 is not there."),
        (["produce", "/does/not/exist"], 1, "cannot read /does/not/exist: no such file or directory."),
        (
            ["consume", "--group", "g", "--partition", "0"],
            2,
            "a group shares out the partitions itself: leave out --partition or --group.",
        ),
        (
            ["consume", "--group", "g", "--offset", "0"],
            2,
            "a group goes on where it has committed: leave out --offset and --since, or move it first with "
            "odradek group reset-offsets.",
        ),
        (["consume", "--offset", "5"], 1, "wrong-0 has offsets 0 to 0: 5 is not among them."),
        (["consume", "--partition", "1"], 1, "wrong has 1 partition, counted from 0: 1 is not there."),
    ],
)
def test_wrong_input(cli: Cli, arguments: list[str], code: int, sentence: str) -> None:
    cli.ok("topic", "create", "wrong", "--if-not-exists")
    command, *rest = arguments
    assert cli.refused(command, "wrong", *rest, code=code, stdin="no separator\n") == sentence


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("{", "line 2 of stdin is no JSON: "),
        ("[1]", "line 2 of stdin is no JSON object: "),
        ('{"vaule": 1}', "line 2 of stdin has a field 'vaule' that records do not have. Did you mean value?"),
        ('{"key": {"base64": "?"}}', "the key of line 2 of stdin is no base64: "),
        ('{"partition": -1}', "the partition of line 2 of stdin is no number from 0 on: -1."),
        ('{"headers": 3}', "the headers of line 2 of stdin are neither an object nor a list of objects"),
        ('{"partition": 77}', "topic 'spoilt' has 1 partitions, none is 77"),
    ],
)
def test_spoilt_json(cli: Cli, line: str, sentence: str) -> None:
    cli.ok("topic", "create", "spoilt", "--if-not-exists")
    assert cli.refused("produce", "spoilt", "--json", stdin='{"value": "good"}\n' + line).startswith(sentence)


def test_a_topic_that_is_not_there(cli: Cli) -> None:
    cli.ok("topic", "create", "orders")
    assert cli.refused("consume", "order") == "there is no topic order. Did you mean orders?"
    assert cli.refused("produce", "order", stdin="x") == (
        "there is no topic order. Did you mean orders? --create makes it."
    )
    cli.ok("produce", "order", "--create", stdin="x")
    assert [each["value"] for each in cli.json_lines("consume", "order")] == ["x"]


def test_a_record_that_is_too_large(cli: Cli) -> None:
    cli.ok("topic", "create", "small", "--config", "max.message.bytes=1000")
    assert "MESSAGE_TOO_LARGE" in cli.run("produce", "small", stdin="x" * 2000).err
    assert "MESSAGE_TOO_LARGE" in cli.refused("produce", "small", stdin="x" * 2_000_000)


def test_progress_is_shown_on_a_terminal(cli: Cli, tmp_path: Path) -> None:
    cli.ok("topic", "create", "watched")
    (tmp_path / "many.txt").write_text("line\n" * 50_000)
    terminal, stderr = os.openpty()
    try:
        process = subprocess.Popen(
            cli.command("produce", "watched", tmp_path / "many.txt"),
            env=cli.environment(),
            stdout=subprocess.DEVNULL,
            stderr=stderr,
        )
        assert process.wait(PATIENCE_S) == 0
        shown = os.read(terminal, 65536).decode()
    finally:
        os.close(terminal)
        os.close(stderr)
    assert shown.startswith("\rproducing [#")
    assert shown.rpartition("\r")[2] == ""
