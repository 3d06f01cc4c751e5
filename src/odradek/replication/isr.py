"""The in-sync replicas of a partition: those the cluster agreed on, and those its leader has asked for (KIP-497)."""

from __future__ import annotations

from odradek.ids import LeaderEpoch, NodeId
from odradek.values import value


@value
class IsrProposal:
    """Another ISR, as the leader asks the controller for it; valid for one partition epoch only."""

    isr: tuple[NodeId, ...]
    broker_epochs: tuple[int, ...]
    """Of each of them, as it fetched last: the controller refuses one that has started anew since (KIP-903)."""
    leader_epoch: LeaderEpoch
    partition_epoch: int


class InSync:
    """The ISR as its leader has to see it while an answer of the controller may be on its way."""

    __slots__ = ("_leaving", "committed", "maximal", "proposal")

    def __init__(self, committed: tuple[NodeId, ...]) -> None:
        self.committed = committed
        self.maximal = committed
        """All who may be in it: whoever is asked in counts at once, whoever is asked out counts until it is out.

        The controller may have agreed already, and may elect any of them as the next leader.
        """
        self.proposal: IsrProposal | None = None
        self._leaving: tuple[NodeId, ...] = ()

    def propose(self, proposal: IsrProposal) -> None:
        assert self.proposal is None, "one proposal at a time"
        self.proposal = proposal
        self._count()

    def agree(self, isr: tuple[NodeId, ...]) -> None:
        """The controller's answer, which may be here before the image that says the same.

        Who leaves counts until `learn`: the controller may have made it eligible under a min.insync.replicas that this
        leader does not know yet, and then nothing may be acknowledged without it.
        """
        self._leaving = tuple(replica for replica in self.maximal if replica not in isr)
        self.committed = isr
        self.proposal = None
        self._count()

    def learn(self) -> None:
        """The image says now what the controller has answered, and has all the settings from before."""
        self._leaving = ()
        self._count()

    def withdraw(self) -> None:
        """The controller has refused and will not change its mind: what was asked for is not the case."""
        self.proposal = None
        self._count()

    def _count(self) -> None:
        proposed = () if self.proposal is None else self.proposal.isr
        self.maximal = tuple(dict.fromkeys((*self.committed, *proposed, *self._leaving)))
