"""Free ports: given once on this machine, and still there for the node that is to listen."""

from __future__ import annotations

import socket
import subprocess
import sys

import pytest

from odradek.testing import ports
from odradek.testing.ports import HOST, free_port, free_ports

ASKS_ELSEWHERE = "from odradek.testing.ports import free_ports; print(*free_ports(200))"


def test_a_node_can_listen_where_it_was_told_and_again_after_a_restart() -> None:
    port = free_port()
    for _ in range(2):
        with socket.create_server((HOST, port)), socket.create_connection((HOST, port), timeout=5):
            pass


def test_nobody_listens_there_yet() -> None:
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((HOST, free_port()), timeout=5)


def test_another_process_is_given_others() -> None:
    here = set(free_ports(200))
    there = subprocess.run(
        [sys.executable, "-c", ASKS_ELSEWHERE], capture_output=True, text=True, check=True, timeout=60
    )
    assert len(here) == 200
    assert here.isdisjoint(map(int, there.stdout.split()))


def test_the_system_gives_it_to_nobody_who_asks_for_any() -> None:
    held = set(free_ports(ports.MOST_HELD))
    asking = [socket.socket() for _ in range(1_000)]
    try:
        for each in asking:
            each.bind((HOST, 0))
        assert held.isdisjoint(each.getsockname()[1] for each in asking)
    finally:
        for each in asking:
            each.close()


def test_only_the_last_are_held() -> None:
    free_ports(ports.MOST_HELD + 10)
    assert len(ports._held) == ports.MOST_HELD
