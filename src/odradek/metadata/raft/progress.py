"""What a leader knows of those who fetch from it: how far each has come, and when it was last heard of."""

from __future__ import annotations

from collections.abc import Sequence

from odradek.ids import NO_OFFSET, NodeId, Offset, Uuid
from odradek.metadata.raft.voters import ReplicaKey, Voter

NEVER_MS = -1

OBSERVER_SESSION_MS = 300_000
"""An observer that has not fetched for so long is forgotten, as in Kafka."""

MAX_OBSERVERS = 10_000
"""Whoever fetches is an observer, so there must be a limit; beyond it the one that fetched longest ago is forgotten."""


class Replica:
    """One that fetches."""

    __slots__ = ("_leader_end_offset", "acknowledged", "end_offset", "key", "last_caught_up_ms", "last_fetch_ms")

    def __init__(self, key: ReplicaKey) -> None:
        self.key = key
        self.end_offset = NO_OFFSET
        """It holds the log below this offset, on its device; -1 until it has fetched in this epoch."""
        self.last_fetch_ms = NEVER_MS
        self.last_caught_up_ms = NEVER_MS
        self.acknowledged = False
        """Whether it knows who leads."""
        self._leader_end_offset = NO_OFFSET

    def fetched(self, end_offset: Offset, *, leader_end_offset: Offset, now_ms: int) -> None:
        """It had caught up when it last fetched if it has now what the log had then."""
        if end_offset >= leader_end_offset:
            self.last_caught_up_ms = now_ms
        elif 0 <= self._leader_end_offset <= end_offset:
            self.last_caught_up_ms = max(self.last_caught_up_ms, self.last_fetch_ms)
        self.end_offset = end_offset
        self.last_fetch_ms = now_ms
        self.acknowledged = True
        self._leader_end_offset = leader_end_offset


class Progress:
    """Everybody's progress in one epoch. Times are monotonic."""

    def __init__(self, me: ReplicaKey, voters: Sequence[Voter], *, epoch_start_offset: Offset, now_ms: int) -> None:
        self._me = me
        self.epoch_start_offset = epoch_start_offset
        self._began_ms = now_ms
        self._replicas: dict[tuple[NodeId, Uuid], Replica] = {}
        self.synced_end_offset = NO_OFFSET
        """How far this node's own log is on its device."""
        self.voters: list[Replica] = []
        self._own: Replica | None = None
        """This node among the voters."""
        self._are_new = True
        """Whether nobody has fetched since these are the voters: another majority may have more."""
        self.set_voters(voters)

    def set_voters(self, voters: Sequence[Voter]) -> None:
        """Whoever was an observer and votes now keeps its progress, and the other way round."""
        replicas = []
        for voter in voters:
            replica = self._replica(voter.key)
            replica.key = voter.key
            replicas.append(replica)
        self.voters = replicas
        self._are_new = True
        self._own = next((replica for replica in replicas if replica.key.matches(self._me)), None)

    def _votes(self, replica: Replica) -> bool:
        return any(voter is replica for voter in self.voters)

    def _replica(self, key: ReplicaKey) -> Replica:
        """A voter that is known by its id alone is whoever fetches under that id."""
        for voter in self.voters:
            if voter.key.node_id == key.node_id and voter.key.matches(key):
                return voter
        place = (key.node_id, key.directory_id)
        found = self._replicas.get(place)
        if found is None:
            self._make_room()
            found = self._replicas[place] = Replica(key)
        return found

    def find(self, key: ReplicaKey) -> Replica | None:
        for voter in self.voters:
            if voter.key.node_id == key.node_id and voter.key.matches(key):
                return voter
        return self._replicas.get((key.node_id, key.directory_id))

    def _make_room(self) -> None:
        if len(self._replicas) >= MAX_OBSERVERS:
            oldest = min(
                (each for each in self._replicas.items() if not self._votes(each[1])),
                key=lambda each: each[1].last_fetch_ms,
            )
            del self._replicas[oldest[0]]

    def fetched(self, key: ReplicaKey, end_offset: Offset, *, leader_end_offset: Offset, now_ms: int) -> bool:
        """Whether more may be committed by it."""
        replica = self._replica(key)
        moves = self._are_new or replica.end_offset != end_offset
        replica.fetched(end_offset, leader_end_offset=leader_end_offset, now_ms=now_ms)
        self._are_new = False
        return moves

    def heard_of(self, key: ReplicaKey, now_ms: int) -> None:
        """It fetches a snapshot: alive, though it gets no further in the log."""
        replica = self._replica(key)
        replica.last_fetch_ms = now_ms
        replica.acknowledged = True

    def observers(self, now_ms: int) -> list[Replica]:
        """Those who fetch and have no vote, by id."""
        found = []
        for place, replica in list(self._replicas.items()):
            if self._votes(replica):
                continue
            if now_ms - replica.last_fetch_ms >= OBSERVER_SESSION_MS:
                del self._replicas[place]
            else:
                found.append(replica)
        return sorted(found, key=lambda replica: (replica.key.node_id, replica.key.directory_id))

    def committed_end_offset(self) -> Offset:
        """What a majority of the voters has on its devices, once that includes a record of this epoch; else -1.

        A record of an older epoch may be on a majority and still be replaced, so it does not count until one of this
        epoch does.
        """
        own, synced_end_offset = self._own, self.synced_end_offset
        ends = [synced_end_offset if voter is own else voter.end_offset for voter in self.voters]
        if not ends:
            return NO_OFFSET
        ends.sort(reverse=True)
        end_offset = ends[len(ends) // 2]
        return end_offset if end_offset > self.epoch_start_offset else NO_OFFSET

    def majority_heard_ms(self, now_ms: int) -> int:
        """When a majority, with this node, was last in touch; a new leader counts from its beginning."""
        own = self._own
        heard = sorted(now_ms if voter is own else max(voter.last_fetch_ms, self._began_ms) for voter in self.voters)
        return heard[(len(heard) - 1) // 2] if heard else now_ms

    def successors(self) -> list[ReplicaKey]:
        """The other voters, the one that has most of the log first."""
        others = [voter for voter in self.voters if voter is not self._own]
        return [voter.key for voter in sorted(others, key=lambda voter: (-voter.end_offset, voter.key.node_id))]
