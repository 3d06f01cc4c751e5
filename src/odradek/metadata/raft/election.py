"""One election: who was asked, who has answered what, and when somebody who could not be reached is asked again."""

from __future__ import annotations

from collections.abc import Sequence

from odradek.ids import NodeId
from odradek.metadata.raft.voters import ReplicaKey, Voter

FIRST_RETRY_MS = 20
LONGEST_RETRY_MS = 500


class Ballot:
    """The votes of one epoch, or the answers to the question whether there should be one (pre-vote, KIP-996)."""

    def __init__(self, voters: Sequence[Voter], me: ReplicaKey, *, pre_vote: bool) -> None:
        self.pre_vote = pre_vote
        self.others = tuple(voter for voter in voters if not voter.key.matches(me))
        self._majority = len(voters) // 2 + 1
        self._voters = len(voters)
        self._votes: dict[NodeId, bool] = {me.node_id: True} if len(self.others) < len(voters) else {}
        self._tries: dict[NodeId, int] = {}
        self._again_ms: dict[NodeId, int] = {}

    @property
    def granting(self) -> list[NodeId]:
        return sorted(voter for voter, granted in self._votes.items() if granted)

    @property
    def won(self) -> bool:
        return len(self.granting) >= self._majority

    @property
    def lost(self) -> bool:
        """Whether those who have not answered yet could not make it a majority any more."""
        return self._voters - list(self._votes.values()).count(False) < self._majority

    def record(self, voter: NodeId, now_ms: int, *, granted: bool) -> None:
        """An answer; somebody who is no voter has none. A vote stays, but who saw no need for one may yet see it."""
        if any(other.node_id == voter for other in self.others):
            self._votes[voter] = granted
            self._again_ms.pop(voter, None)
            if self.pre_vote and not granted:
                self._ask_again(voter, now_ms)

    def unreachable(self, voter: NodeId, now_ms: int) -> None:
        """Ask it again, each time a little later."""
        if voter not in self._votes:
            self._ask_again(voter, now_ms)

    def _ask_again(self, voter: NodeId, now_ms: int) -> None:
        tries = self._tries[voter] = self._tries.get(voter, 0) + 1
        self._again_ms[voter] = now_ms + min(FIRST_RETRY_MS << min(tries - 1, 10), LONGEST_RETRY_MS)

    def due(self, now_ms: int) -> list[Voter]:
        """Whom to ask again now."""
        voters = [voter for voter in self.others if self._again_ms.get(voter.node_id, now_ms + 1) <= now_ms]
        for voter in voters:
            del self._again_ms[voter.node_id]
        return voters

    @property
    def next_due_ms(self) -> int | None:
        return min(self._again_ms.values(), default=None)
