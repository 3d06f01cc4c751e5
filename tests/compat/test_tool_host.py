"""The JVM that runs Kafka's tools: each call is as if it had one of its own."""

from __future__ import annotations

import pytest
from bench.apache_kafka import tool, tool_host, tool_run
from bench.servers import Server

pytestmark = [pytest.mark.compat, pytest.mark.java]

TOPICS = "org.apache.kafka.tools.TopicCommand"


def test_streams_and_exit_codes_are_each_calls_own(server: Server) -> None:
    wrong = tool_run(TOPICS, "--no-such-option", check=False)
    assert (wrong.exit_code, wrong.stdout) == (1, "")
    assert "no-such-option" in wrong.stderr
    well = tool_run(TOPICS, "--bootstrap-server", server.bootstrap, "--list")
    assert (well.exit_code, well.stderr) == (0, "")


def test_nothing_shows_of_what_comes_after_an_exit(server: Server) -> None:
    """kafka-topics catches and prints whatever is thrown: an exit that throws too early would be printed as well."""
    address = ("--bootstrap-server", server.bootstrap)
    for number in range(3):
        made = tool_run(TOPICS, *address, "--create", "--topic", f"hosted-{number}")
        assert (made.stdout, made.stderr) == (f"Created topic hosted-{number}.\n", "")


def test_a_tool_that_fails_raises_what_it_said() -> None:
    with pytest.raises(RuntimeError, match=r"exited with 1:\s.*no-such-option"):
        tool(TOPICS, "--no-such-option")


def test_a_class_that_is_not_there_costs_its_call_alone(server: Server) -> None:
    assert "ClassNotFoundException" in tool("no.such.Tool", check=False)
    tool(TOPICS, "--bootstrap-server", server.bootstrap, "--list")


def test_the_next_call_starts_another_where_the_last_was_ended(server: Server) -> None:
    tool_host().close()
    tool(TOPICS, "--bootstrap-server", server.bootstrap, "--list")
