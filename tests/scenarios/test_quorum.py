"""How voters agree, step by step: cores that hand each other their requests directly; see quorum.txt."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.scenarios.transcripts import play
from tests.unit.metadata.raft.replicas import Cluster, Replica

from odradek.ids import NO_NODE
from odradek.metadata.raft.state import Role
from odradek.protocol.codec import Message
from odradek.protocol.messages.control_records import LeaderChangeMessage


class Story:
    """A cluster, and what the storyteller does to it."""

    def __init__(self) -> None:
        self._cluster = Cluster(3)
        self._cuts: list[tuple[int, int]] = []
        self._cluster.drop = lambda source, target: (source, target) in self._cuts
        self._cluster.begin()

    def run(self, name: str, words: dict[str, str]) -> list[str]:
        cluster = self._cluster
        match name:
            case "pass":
                cluster.pass_time(int(words["0"].removesuffix("ms")))
            case "stand":
                self._stand(cluster[int(words["0"])])
            case "append":
                replica = cluster[int(words["0"])]
                replica.log.append(replica.raft.epoch)
                replica.raft.synced(replica.log.log_end_offset)
            case "fetch":
                cluster.fetch_once(cluster[int(words["0"])])
                cluster.deliver()
            case "kill":
                cluster.down.append(int(words["0"]))
            case "start":
                self._start(int(words["0"]))
            case "cut":
                first, second = int(words["0"]), int(words["1"])
                self._cuts += [(first, second)] if words.get("ways") == "one" else [(first, second), (second, first)]
            case "heal":
                self._cuts.clear()
            case "resign":
                cluster[int(words["0"])].raft.resign(cluster.now_ms)
                cluster.deliver()
            case _:
                raise AssertionError(f"nobody knows the command {name}")
        return [_line(replica, down=node_id in cluster.down) for node_id, replica in cluster.replicas.items()]

    def _stand(self, replica: Replica) -> None:
        """Its time is up, before anybody else's."""
        replica.raft._deadline_ms = self._cluster.now_ms
        replica.raft.tick(self._cluster.now_ms)
        self._cluster.deliver()

    def _start(self, node_id: int) -> None:
        """From what it had written down."""
        self._cluster.down.remove(node_id)
        replica = self._cluster[node_id]
        replica.outbox.clear()
        replica.begin().begin(self._cluster.now_ms)
        self._cluster.deliver()


def _line(replica: Replica, *, down: bool) -> str:
    raft = replica.raft
    epochs = "".join(
        _mark(epoch, message) for epoch, message in zip(replica.log.epochs, replica.log.messages, strict=True)
    )
    log = f"log={epochs or '-'}"
    if down:
        return f"{raft.me.node_id}: down {log}"
    leader = "" if raft.leader_id == NO_NODE or raft.role is Role.LEADER else f" of {raft.leader_id}"
    voted = "" if raft.voted is None else f" voted={raft.voted.node_id}"
    committed = f"committed={max(raft.high_watermark, 0)}"
    return f"{raft.me.node_id}: {raft.role.value}{leader} epoch={raft.epoch}{voted} {log} {committed}"


def _mark(epoch: int, message: Message | None) -> str:
    """A record is its epoch; a leader's first one stands in brackets."""
    return f"[{epoch}]" if isinstance(message, LeaderChangeMessage) else str(epoch)


@pytest.mark.parametrize("name", ["quorum.txt"])
def test_the_story(name: str, request: pytest.FixtureRequest) -> None:
    play(Path(__file__).parent / name, Story().run, rewrite=request.config.getoption("--rewrite"))
