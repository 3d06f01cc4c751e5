"""How long a cluster cannot change its metadata after the active controller was lost, and what the time went to.

Both surviving brokers are asked for a change every few milliseconds, without waiting for earlier answers: a request
that a broker sent to the lost controller may take half a minute to come back, and a user's next one should not.
"""

from __future__ import annotations

import itertools
import selectors
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass

from bench import wire
from bench.clusters import Cluster, QuorumState, hold, let_go, quorum_state
from bench.servers import Server

ASK_EVERY_S = 0.05
WATCH_EVERY_S = 0.002
GIVE_UP_S = 60.0
_values = itertools.count(100_000_000)


@dataclass(frozen=True)
class Loss:
    """Seconds until a survivor acted on the fault, then until one of them led, then until a change was answered."""

    detection: float
    election: float
    load: float

    @property
    def total(self) -> float:
        return self.detection + self.election + self.load


def kill(server: Server) -> None:
    """kill -9: its sockets are reset, its port refuses."""
    server.process.send_signal(signal.SIGKILL)  # type: ignore[union-attr]


def measure(cluster: Cluster, topic: str, fault: Callable[[Server], None]) -> Loss:
    """Lose the active controller that way; the cluster is whole again when this returns."""
    lost = cluster.server(cluster.controller())
    survivors = cluster.others(lost.seat.node_id)
    before = {server.seat.node_id: quorum_state(server) for server in survivors}
    askers = [_Asker(server, topic) for server in survivors]
    try:
        for asker in askers:
            asker.ask_and_wait()
        started = time.monotonic()
        fault(lost)
        loss = _watch(survivors, before, lost.seat.node_id, askers, started)
    finally:
        for asker in askers:
            asker.close()
        _bring_back(lost, fault)
    cluster.wait_until_whole()
    return loss


def _watch(
    survivors: list[Server], before: dict[int, QuorumState | None], lost: int, askers: list[_Asker], started: float
) -> Loss:
    noticed = elected = None
    next_ask = started
    while (now := time.monotonic()) < started + GIVE_UP_S:
        for server in survivors:
            state = quorum_state(server)
            if state is None or state == before[server.seat.node_id]:
                continue
            noticed = noticed or now
            if state.leader not in (-1, lost):
                elected = elected or now
        if now >= next_ask:
            next_ask = now + ASK_EVERY_S
            for asker in askers:
                asker.ask()
        if sum(asker.answers() for asker in askers):
            answered = time.monotonic()
            elected = elected or answered
            noticed = noticed or elected
            return Loss(noticed - started, elected - noticed, answered - elected)
        time.sleep(WATCH_EVERY_S)
    raise RuntimeError(f"no metadata change was answered within {GIVE_UP_S} s:\n{survivors[0].log_tail()}")


def _bring_back(server: Server, fault: Callable[[Server], None]) -> None:
    if fault is hold:
        let_go(server)
        return
    server.kill()
    server.spawn()


class _Asker:
    """One survivor, asked for changes over as many connections as have no answer yet."""

    def __init__(self, server: Server, topic: str) -> None:
        self._server, self._topic = server, topic
        self._selector = selectors.DefaultSelector()
        self._idle: list[wire.Connection] = []

    def ask_and_wait(self, timeout_s: float = 10.0) -> None:
        """One change before the fault, so that the broker's way to the controller is open, as in any used cluster."""
        deadline = time.monotonic() + timeout_s
        self.ask()
        while not self.answers():
            if time.monotonic() > deadline:
                raise RuntimeError("a metadata change before the fault was not answered")
            time.sleep(WATCH_EVERY_S)

    def ask(self) -> None:
        """One more change, if the broker lets us."""
        connection = self._idle.pop() if self._idle else wire.Connection(self._server.port, timeout_s=5)
        body = wire.incremental_alter_body(self._topic, "retention.ms", str(next(_values)))
        connection.send(wire.INCREMENTAL_ALTER_CONFIGS, 0, body)
        self._selector.register(connection.socket, selectors.EVENT_READ, connection)

    def answers(self) -> int:
        """How many changes were made since the last look; refused ones only free their connections."""
        made = 0
        for key, _ in self._selector.select(0):
            connection: wire.Connection = key.data
            self._selector.unregister(connection.socket)
            made += wire.incremental_alter_error(connection.receive()) == 0
            self._idle.append(connection)
        return made

    def close(self) -> None:
        waiting = [key.data for key in self._selector.get_map().values()]
        for connection in [*self._idle, *waiting]:
            connection.socket.close()
        self._selector.close()
