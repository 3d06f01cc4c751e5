"""`odradek group`: offsets, lag and members of groups, and moving offsets with a preview."""

from __future__ import annotations

import itertools
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager

import confluent_kafka
import pytest
from tests.integration.cli import PATIENCE_S, Cli


@contextmanager
def member(cli: Cli, topic: str, group: str) -> Iterator[subprocess.Popen[bytes]]:
    """A consumer that stays in the group for the time of the block."""
    process = subprocess.Popen(
        cli.command("consume", topic, "--group", group, "--follow"),
        env=cli.environment(),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        deadline = time.monotonic() + PATIENCE_S
        while True:
            ran = cli.run("group", "describe", group, "--state")
            if "Stable" in ran.out:
                break
            assert time.monotonic() < deadline, ran
            assert process.poll() is None
        yield process
    finally:
        process.terminate()
        process.wait()


_numbers = itertools.count()


@pytest.fixture
def read(cli: Cli) -> str:
    """A topic of two partitions with ten records each that a group of the same name has read up to its fourth."""
    name = f"read-{next(_numbers)}"
    cli.ok("topic", "create", name, "--partitions", 2)
    lines = "".join(f'{{"value": "{number}", "timestamp": {1000 * number}}}\n' for number in range(10))
    for partition in (0, 1):
        cli.ok("produce", name, "--json", "--partition", partition, stdin=lines)
    cli.ok("group", "reset-offsets", name, "--topic", name, "--to-offset", 4, "--execute")
    return name


def test_describe_tells_committed_end_and_lag(cli: Cli, read: str) -> None:
    (told,) = cli.json("group", "describe", read)
    assert (told["group"], told["type"], told["state"], told["coordinator"], told["member_count"]) == (
        read,
        "classic",
        "Empty",
        1,
        0,
    )
    assert told["partitions"] == [
        {
            "topic": read,
            "partition": partition,
            "committed_offset": 4,
            "log_end_offset": 10,
            "lag": 6,
            "member": None,
            "host": None,
            "client_id": None,
        }
        for partition in (0, 1)
    ]
    shown = cli.ok("group", "describe", read)
    assert ["Lag", "12"] in shown.rows
    assert [read, "0", "4", "10", "6", "-", "-", "-"] in shown.rows


def test_list(cli: Cli, read: str) -> None:
    assert [read, "classic", "Empty"] in cli.ok("group", "list").rows
    assert read in [each["group"] for each in cli.json("group", "list", "--state", "Empty")]
    assert read not in [each["group"] for each in cli.json("group", "list", "--state", "Stable")]


def test_a_group_with_a_member(cli: Cli, read: str) -> None:
    with member(cli, read, read):
        (told,) = cli.json("group", "describe", read)
        assert {each["host"] for each in told["partitions"]} <= {"/127.0.0.1", "127.0.0.1"}
        assert all(each["member"] and each["client_id"] == "odradek" for each in told["partitions"])
        (members,) = cli.json("group", "describe", read, "--members")
        assert [each["assignment"] for each in members["members"]] == [[f"{read}-0", f"{read}-1"]]
        assert f"{read}-0,{read}-1" in cli.ok("group", "describe", read, "--members").out
        assert ["Members", "1"] in cli.ok("group", "describe", "--state", read).rows
        sentence = f"group {read} has members: stop them first (odradek group describe {read} --members)."
        assert cli.refused("group", "delete", read) == sentence
        assert cli.refused("group", "reset-offsets", read, "--all-topics", "--to-latest", "--execute") == (
            f"group {read} has 1 member, whose commits would undo this: stop them first."
        )
        assert "GROUP_SUBSCRIBED_TO_TOPIC" in cli.run("group", "delete-offsets", read, "--topic", read).err


@pytest.mark.parametrize(
    ("target", "offset"),
    [
        (["--to-earliest"], 0),
        (["--to-latest"], 10),
        (["--to-offset", "7"], 7),
        (["--to-offset", "99"], 10),
        (["--shift-by", "-3"], 1),
        (["--shift-by", "-30"], 0),
        (["--to-datetime", "1970-01-01T00:00:05Z"], 5),
        (["--to-datetime", "2001-01-01"], 10),
    ],
    ids=str,
)
def test_reset_is_shown_before_it_is_done(cli: Cli, read: str, target: list[str], offset: int) -> None:
    shown = cli.ok("group", "reset-offsets", read, "--all-topics", *target)
    assert shown.out.endswith("Nothing is changed yet: say --execute to do it.\n")
    assert [read, "0", "4", str(offset), "10", str(10 - offset)] in shown.rows
    assert {each["committed_offset"] for each in cli.json("group", "describe", read)[0]["partitions"]} == {4}
    done = cli.json("group", "reset-offsets", read, "--topic", f"{read}:1", *target, "--execute")
    assert [(each["partition"], each["new_offset"], each["done"]) for each in done] == [(1, offset, True)]
    committed = [each["committed_offset"] for each in cli.json("group", "describe", read)[0]["partitions"]]
    assert committed == [4, offset]


def test_delete_offsets_then_the_group(cli: Cli, read: str) -> None:
    assert cli.ok("group", "delete-offsets", read, "--topic", f"{read}:0").out == (
        f"offset of {read} for {read}-0 deleted.\n"
    )
    assert [each["partition"] for each in cli.json("group", "describe", read)[0]["partitions"]] == [1]
    assert cli.refused("group", "delete-offsets", read, "--topic", "elsewhere") == (
        f"group {read} has committed nothing there: elsewhere."
    )
    assert cli.ok("group", "delete", read).out == f"group {read} deleted.\n"
    assert read not in [each["group"] for each in cli.json("group", "list")]


def test_a_misspelt_group_gets_the_nearest_name(cli: Cli) -> None:
    cli.ok("topic", "create", "any")
    cli.ok("group", "reset-offsets", "billing", "--topic", "any", "--to-latest", "--execute")
    for arguments in (["describe", "biling"], ["delete", "biling"], ["delete-offsets", "biling", "--topic", "any"]):
        assert cli.refused("group", *arguments) == "there is no group biling. Did you mean billing?"
    assert cli.refused("group", "reset-offsets", "billing", "--topic", "amy", "--to-latest").startswith(
        "there is no topic amy."
    )


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--all-topics"], "one of the arguments --to-earliest --to-latest"),
        (["--to-latest"], "one of the arguments --topic --all-topics is required"),
        (["--all-topics", "--to-latest", "--to-earliest"], "not allowed with argument"),
        (["--all-topics", "--to-datetime", "yesterday"], "a moment such as"),
        (["--topic", "t:x", "--to-latest"], "TOPIC or TOPIC:PARTITION"),
    ],
)
def test_usage_errors(cli: Cli, arguments: list[str], complaint: str) -> None:
    ran = cli.run("group", "reset-offsets", "g", *arguments)
    assert ran.code == 2
    assert complaint in ran.err


def test_a_shift_from_nowhere(cli: Cli) -> None:
    cli.ok("topic", "create", "fresh")
    assert cli.refused("group", "reset-offsets", "new", "--topic", "fresh", "--shift-by", 1) == (
        "--shift-by starts from a committed offset, and there is none for fresh-0: "
        "name the topics it has committed with --topic, or use --to-earliest."
    )
    assert cli.refused("group", "reset-offsets", "new", "--all-topics", "--to-latest") == (
        "group new has committed nothing: name topics with --topic."
    )


def test_a_group_of_the_new_protocol(cli: Cli, read: str) -> None:
    """KIP-848: another API describes it, and its offsets move by its epochs."""
    name = f"{read}-new"
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": cli.bootstrap,
            "group.id": name,
            "group.protocol": "consumer",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    try:
        consumer.subscribe([read])
        deadline = time.monotonic() + PATIENCE_S
        while consumer.poll(0.2) is None or len(consumer.assignment()) < 2:
            assert time.monotonic() < deadline
        (told,) = cli.json("group", "describe", name)
        assert (told["type"], told["state"], told["assignor"], told["member_count"]) == (
            "consumer",
            "Stable",
            "uniform",
            1,
        )
        assert [(each["partition"], each["committed_offset"], each["lag"]) for each in told["partitions"]] == [
            (0, None, None),
            (1, None, None),
        ]
        assert {each["client_id"] for each in told["partitions"]} == {"rdkafka"}
        assert [name, "consumer", "Stable"] in [row[:3] for row in cli.ok("group", "list", "--type", "consumer").rows]
        consumer.poll(0)
    finally:
        consumer.close()
    cli.ok("group", "reset-offsets", name, "--topic", read, "--to-offset", 3, "--execute")
    assert [each["lag"] for each in cli.json("group", "describe", name)[0]["partitions"]] == [7, 7]
    cli.ok("group", "delete", name)
