"""What the active controller knows of brokers and does not put on record: when each was heard of, and how far it is.

Gone with the controller: the next one grants every unfenced broker a whole session before it takes it for dead.
"""

from __future__ import annotations

from collections.abc import Iterable

from odradek.ids import NO_NODE, NO_OFFSET, NodeId, Offset
from odradek.metadata.image.cluster import BrokerRegistration


class _Session:
    __slots__ = ("broker_epoch", "heard_ms", "heartbeats", "metadata_offset", "shutdown_offset")

    def __init__(self, broker_epoch: int, heard_ms: int) -> None:
        self.broker_epoch = broker_epoch
        self.heard_ms = heard_ms
        self.heartbeats = 0
        self.metadata_offset = NO_OFFSET
        self.shutdown_offset: Offset | None = None


class BrokerSessions:
    """One session a broker id; a heartbeat of another epoch than the registered one never prolongs it."""

    def __init__(self, timeout_ms: int) -> None:
        self._timeout_ms = timeout_ms
        self._sessions: dict[NodeId, _Session] = {}
        self._myself = NO_NODE

    def start(self, brokers: Iterable[BrokerRegistration], *, myself: NodeId, now_ms: int) -> None:
        """A new active controller: nobody is forgotten for what the last one knew.

        The broker of this very process (`myself`) does not hold its id before it has spoken: a process that starts
        after a crash finds its own last incarnation on record, which is surely dead.
        """
        self._myself = myself
        self._sessions = {
            broker.broker_id: _Session(broker.broker_epoch, now_ms) for broker in brokers if not broker.fenced
        }

    def heard(self, broker_id: NodeId, broker_epoch: int, *, now_ms: int) -> None:
        """From a broker whose epoch is the registered one."""
        session = self._sessions.get(broker_id)
        if session is None or session.broker_epoch != broker_epoch:
            session = self._sessions[broker_id] = _Session(broker_epoch, now_ms)
        session.heard_ms = max(session.heard_ms, now_ms)
        session.heartbeats += 1

    def reached(self, broker_id: NodeId, offset: Offset) -> None:
        """How much of the metadata log the broker has."""
        session = self._sessions.get(broker_id)
        if session is not None:
            session.metadata_offset = max(session.metadata_offset, offset)

    def end(self, broker_id: NodeId) -> None:
        """The broker has said that it stops, or is known to be dead: its id is free."""
        self._sessions.pop(broker_id, None)

    def alive(self, broker_id: NodeId, broker_epoch: int, *, now_ms: int) -> bool:
        """Whether that incarnation was heard of within its session."""
        session = self._sessions.get(broker_id)
        if session is None or session.broker_epoch != broker_epoch:
            return False
        holds_id = session.heartbeats > 0 or broker_id != self._myself
        return holds_id and now_ms - session.heard_ms <= self._timeout_ms

    def heartbeats(self, broker_id: NodeId, broker_epoch: int) -> int:
        """How often this very controller has heard of that incarnation in its session."""
        session = self._sessions.get(broker_id)
        return 0 if session is None or session.broker_epoch != broker_epoch else session.heartbeats

    def heard_ms(self, broker_id: NodeId) -> int | None:
        """When the broker was heard of last; None if it has no session."""
        session = self._sessions.get(broker_id)
        return None if session is None else session.heard_ms

    def is_young(self, since_ms: int | None, *, now_ms: int) -> bool:
        """Whether that is less than half a session ago."""
        return since_ms is not None and 2 * (now_ms - since_ms) < self._timeout_ms

    # Controlled shutdown.

    def shutting_down(self, broker_id: NodeId, broker_epoch: int) -> Offset | None:
        """The offset that all others must have reached before the broker may stop."""
        session = self._sessions.get(broker_id)
        if session is None or session.broker_epoch != broker_epoch:
            return None
        return session.shutdown_offset

    def shut_down_after(self, broker_id: NodeId, offset: Offset) -> None:
        """The broker's leaders have moved as of that offset; the first word counts."""
        session = self._sessions.get(broker_id)
        if session is not None and session.shutdown_offset is None:
            session.shutdown_offset = offset

    def all_reached(self, offset: Offset, active: Iterable[BrokerRegistration]) -> bool:
        """Whether every active broker that is not about to stop itself has the log up to that offset."""
        for broker in active:
            session = self._sessions.get(broker.broker_id)
            if session is None or session.broker_epoch != broker.broker_epoch:
                return False
            if session.shutdown_offset is None and session.metadata_offset < offset:
                return False
        return True

    # Time.

    def next_deadline_ms(self) -> int | None:
        """When to ask for `expired` next."""
        earliest = min((session.heard_ms for session in self._sessions.values()), default=None)
        return None if earliest is None else earliest + self._timeout_ms + 1

    def expired(self, *, now_ms: int) -> list[tuple[NodeId, int]]:
        """Brokers (and their epochs) not heard of for a whole session; their sessions end here."""
        silent = [
            (broker_id, session.broker_epoch)
            for broker_id, session in sorted(self._sessions.items())
            if now_ms - session.heard_ms > self._timeout_ms
        ]
        for broker_id, _ in silent:
            del self._sessions[broker_id]
        return silent

    def begin_anew(self, *, now_ms: int) -> None:
        """This node itself stood still and heard nobody: that is nobody's fault."""
        for session in self._sessions.values():
            session.heard_ms = now_ms
