"""What `odradek` says when things are not as it needs them: one sentence, an exit code, no traceback."""

from __future__ import annotations

import re
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.integration.cli import PATIENCE_S, Cli

from odradek.testing.ports import free_port

COMMANDS = [
    ["topic", "list"],
    ["topic", "describe", "t"],
    ["produce", "t"],
    ["consume", "t"],
    ["group", "list"],
    ["group", "describe", "g"],
    ["config", "describe", "topic", "t"],
    ["acl", "list"],
    ["quota", "list"],
    ["cluster", "info"],
]


def nobody() -> str:
    """An address where nobody listens."""
    return f"127.0.0.1:{free_port()}"


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_a_broker_that_is_not_there(cli: Cli, command: list[str]) -> None:
    where = nobody()
    began = time.monotonic()
    assert cli.refused(*command, "-b", where) == (
        f"cannot reach the cluster at {where}: Connection refused. "
        "Start a node with `odradek start`, or say where one is with -b."
    )
    assert time.monotonic() - began < 10


def test_a_host_that_does_not_exist(cli: Cli) -> None:
    assert cli.refused("topic", "list", "-b", "no-such-host.invalid:9092").startswith(
        "cannot reach the cluster at no-such-host.invalid:9092: "
    )


@contextmanager
def listening(answer: bytes) -> Iterator[str]:
    """A server that says one thing to everyone, or nothing."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        held: list[socket.socket] = []

        def serve() -> None:
            while True:
                try:
                    connection, _ = listener.accept()
                except OSError:
                    return
                held.append(connection)
                if answer:
                    connection.recv(65536)
                    connection.sendall(answer)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield f"127.0.0.1:{listener.getsockname()[1]}"
        listener.shutdown(socket.SHUT_RDWR)
        thread.join(5)
        for connection in held:
            connection.close()


def test_a_port_that_is_no_brokers(cli: Cli) -> None:
    with listening(b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n") as where:
        assert cli.refused("topic", "list", "-b", where).startswith(f"cannot reach the cluster at {where}: ")


def test_a_port_that_says_nothing(cli: Cli, tmp_path: Path) -> None:
    with listening(b"") as where:
        began = time.monotonic()
        assert cli.refused("topic", "list", "-b", where) == (
            f"{where} takes connections but does not answer: is it a Kafka broker's port?"
        )
        assert time.monotonic() - began < 20


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ("boot.strap=1\n", "Unknown client setting boot.strap."),
        ("request.timeout.mss=1\n", "Unknown client setting request.timeout.mss. Did you mean request.timeout.ms?"),
        (
            "request.timeout.ms=soon\n",
            "Invalid value soon for configuration request.timeout.ms: Not a number of type INT.",
        ),
        ("sasl.mechanism=PLAIN\n", "sasl.mechanism cannot be honoured: this client speaks PLAINTEXT only."),
        ("bootstrap.servers=here\n", "bootstrap.servers: 'here' is not host:port."),
    ],
)
def test_a_properties_file_that_cannot_be_used(cli: Cli, tmp_path: Path, content: str, sentence: str) -> None:
    (tmp_path / "client.properties").write_text(content)
    assert cli.refused("topic", "list", "--command-config", tmp_path / "client.properties") == sentence


def test_one_properties_file_serves_all_commands(cli: Cli, tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text(
        f"bootstrap.servers={cli.bootstrap}\nacks=1\ngroup.id=filed\nclient.id=someone\nmax.poll.records=7\n"
    )
    settings = ("--command-config", file)
    cli.ok("topic", "create", "filed", *settings, ODRADEK_BOOTSTRAP=nobody())
    cli.ok("produce", "filed", *settings, stdin="a\n", ODRADEK_BOOTSTRAP=nobody())
    assert cli.ok("consume", "filed", *settings, ODRADEK_BOOTSTRAP=nobody()).err == "1 record.\n"


def test_no_address_at_all_means_the_usual_port(cli: Cli) -> None:
    ran = cli.run("topic", "list", ODRADEK_BOOTSTRAP="")
    assert ran.code == 0 or "cannot reach the cluster at 127.0.0.1:9092: " in ran.err


def interrupted(cli: Cli, *arguments: str, after: float | re.Pattern[str], stdin: int | None = None) -> tuple[int, str]:
    """Exit code and stderr of a command that gets Ctrl-C after so long, or once it has printed something."""
    process = subprocess.Popen(
        cli.command(*arguments),
        env=cli.environment(),
        stdin=stdin,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    try:
        if isinstance(after, float):
            time.sleep(after)
        else:
            assert process.stdout is not None
            assert after.search(process.stdout.readline().decode())
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=PATIENCE_S)
        return process.returncode, err.decode()
    finally:
        process.kill()
        process.wait()


@pytest.mark.parametrize("group", [[], ["--group", "stopped"]], ids=["alone", "group"])
def test_ctrl_c_while_following(cli: Cli, group: list[str]) -> None:
    cli.ok("topic", "create", "followed", "--if-not-exists")
    cli.ok("produce", "followed", stdin="a\n")
    arguments = ("consume", "followed", "--follow", "--from-beginning", *group)
    code, err = interrupted(cli, *arguments, after=re.compile("offset 0"))
    assert (code, err) == (130, "")


def test_ctrl_c_while_typing(cli: Cli) -> None:
    cli.ok("topic", "create", "typed")
    code, err = interrupted(cli, "produce", "typed", after=1.5, stdin=subprocess.PIPE)
    assert (code, err) == (130, "")


def test_ctrl_c_while_nobody_answers(cli: Cli) -> None:
    with listening(b"") as where:
        code, err = interrupted(cli, "topic", "list", "-b", where, after=1.5)
    assert (code, err) == (130, "")


def test_what_was_typed_before_ctrl_c_is_sent(cli: Cli) -> None:
    cli.ok("topic", "create", "kept")
    process = subprocess.Popen(
        cli.command("produce", "kept"),
        env=cli.environment(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdin is not None
    process.stdin.write(b"typed\nunfinish")
    process.stdin.flush()
    deadline = time.monotonic() + PATIENCE_S
    while not cli.json_lines("consume", "kept"):
        assert time.monotonic() < deadline
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 130
    assert [each["value"] for each in cli.json_lines("consume", "kept")] == ["typed"]


def test_a_reader_that_goes_away(cli: Cli) -> None:
    cli.ok("topic", "create", "piped")
    cli.ok("produce", "piped", stdin="x\n" * 20_000)
    process = subprocess.Popen(
        cli.command("consume", "piped", "--format", "json"),
        env=cli.environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout is not None
    assert process.stderr is not None
    assert process.stdout.readline().startswith(b'{"topic": "piped"')
    process.stdout.close()
    with process.stderr:
        assert process.stderr.read() == b""
    assert process.wait(PATIENCE_S) == 1
