"""Members of a group in processes of their own, watched by what they say."""

from __future__ import annotations

import functools
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

from tests.compat.go_programs import go_command
from tests.compat.java_programs import java_command
from tests.compat.node_programs import node_command

ROOT = Path(__file__).parents[2]
PATIENCE_S = 40.0
QUICK_GROUPS = {
    "group.initial.rebalance.delay.ms": "200",
    "group.min.session.timeout.ms": "1000",
    "offsets.topic.replication.factor": "1",
}
"""Settings of a broker whose rebalances do not keep tests waiting."""

QUICK_CONSUMER_GROUPS = QUICK_GROUPS | {
    "group.consumer.min.heartbeat.interval.ms": "300",
    "group.consumer.heartbeat.interval.ms": "300",
    "group.consumer.min.session.timeout.ms": "8000",
    "group.consumer.session.timeout.ms": "8000",
    "group.consumer.assignment.interval.ms": "0",
}
"""The same for the protocol in which the broker says how long members may be silent."""

PROGRAMS: dict[str, Callable[..., list[str]]] = {
    "kafkajs": functools.partial(node_command, "kafkajs"),
    "platformatic": functools.partial(node_command, "platformatic"),
    "franz-go": functools.partial(go_command, "franz"),
    "kafka-go": functools.partial(go_command, "segmentio"),
}
"""Clients for Node.js and Go: what runs the program that is written with each, given its words."""

_JAVA_ASSIGNORS = {
    "range": "org.apache.kafka.clients.consumer.RangeAssignor",
    "roundrobin": "org.apache.kafka.clients.consumer.RoundRobinAssignor",
    "sticky": "org.apache.kafka.clients.consumer.StickyAssignor",
    "cooperative-sticky": "org.apache.kafka.clients.consumer.CooperativeStickyAssignor",
}


class Member:
    """One consumer process."""

    def __init__(self, client: str, bootstrap: str, group: str, topic: str, **settings: str) -> None:
        settings = {"strategy": "range", "session_ms": "2000"} | settings
        command = [
            *(sys.executable, "-m", "tests.compat.group_member"),
            *(client, bootstrap, group, topic),
            *(f"{name}={text}" for name, text in settings.items()),
        ]
        if client == "java":
            properties = {
                "group.protocol": "classic",
                "session.timeout.ms": settings["session_ms"],
                "heartbeat.interval.ms": "300",
                "partition.assignment.strategy": _JAVA_ASSIGNORS[settings["strategy"]],
                **({"group.instance.id": settings["instance"]} if "instance" in settings else {}),
            }
            if settings.get("protocol") == "consumer":
                properties = {"group.protocol": "consumer", "group.instance.id": settings.get("instance", "")}
            words = [f"{name}={text}" for name, text in properties.items() if text]
            command = java_command("GroupMember", bootstrap, group, topic, *words)
        elif client in PROGRAMS:
            words = [f"{name}={text}" for name, text in settings.items()]
            command = PROGRAMS[client]("member", bootstrap, group, topic, *words)
        self.client = client
        self.group = group
        self.owned: set[int] | None = None
        self.changes: list[set[int]] = []
        self.read: list[tuple[int, int]] = []
        self.said: list[str] = []
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            cwd=ROOT,
            text=True,
        )
        self._reader = threading.Thread(target=self._listen, daemon=True)
        self._reader.start()

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self.said.append(line.rstrip())
            words = line.split()
            if words[:1] == ["owns"]:
                self.owned = {int(index) for index in words[1].split(",")} if len(words) > 1 else set()
                self.changes.append(self.owned)
            elif words[:1] == ["read"]:
                self.read.append((int(words[1]), int(words[2])))

    def leave(self) -> None:
        """Politely: the group hears of it at once."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        assert self._process.wait(PATIENCE_S) == 0, self
        self._let_go()

    def kill(self) -> None:
        """The group finds out when the session ends."""
        self._process.kill()
        self._process.wait(PATIENCE_S)
        self._let_go()

    def _let_go(self) -> None:
        self._reader.join(PATIENCE_S)
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            pipe.close()

    def __repr__(self) -> str:
        last = "\n  ".join(self.said[-30:])
        return f"{self.client} owns {self.owned}, was killed or left: {self._process.poll()}, said:\n  {last}"


def until(holds: object, *members: Member, patience_s: float = PATIENCE_S) -> None:
    """Wait for it; fails with all that the members said."""
    assert callable(holds)
    deadline = time.monotonic() + patience_s
    while not holds():
        assert time.monotonic() < deadline, "\n".join(map(repr, members))
        time.sleep(0.02)


def share(partitions: int, *members: Member) -> None:
    """Wait until each partition is owned by one of the members, and each of them owns one at least."""

    def shared() -> bool:
        owned = [index for member in members for index in member.owned or ()]
        return sorted(owned) == list(range(partitions)) and all(member.owned for member in members)

    until(shared, *members)


def come_and_go(partitions: int, join: Callable[[], Member]) -> Member:
    """One joins, a second shares, leaves politely, a third shares and is killed; the first is left with everything."""
    first = join()
    share(partitions, first)
    second = join()
    share(partitions, first, second)
    second.leave()
    share(partitions, first)
    third = join()
    share(partitions, first, third)
    third.kill()
    share(partitions, first)
    return first
