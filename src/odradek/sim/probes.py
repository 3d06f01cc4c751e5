"""What a node comes to know of the quorum, noted in the history as it does: hooks that exist in the simulation only."""

from __future__ import annotations

from collections.abc import Callable

from odradek.ids import Offset, Uuid
from odradek.metadata.image import Changes, Image
from odradek.metadata.raft.quorum_state import QuorumState
from odradek.metadata.raft.voters import Membership
from odradek.ports import World
from odradek.protocol.messages.vote import VoteRequest, VoteResponse
from odradek.server.config import NodeConfig
from odradek.server.directories import Identity
from odradek.server.node import Node
from odradek.server.quorum import Quorum
from odradek.sim.history import Batch, Committed, LeaderKnown, Promised, Truncated
from odradek.sim.machine import Machine


class QuorumProbe:
    """Looks over the shoulder of one node's quorum, from before it starts to the end of its life."""

    def __init__(
        self, machine: Machine, quorum: Quorum, *, node_id: int, incarnation: Callable[[], Uuid | None]
    ) -> None:
        self._machine = machine
        self._history = machine.history
        self._quorum = quorum
        self._node_id = node_id
        self._incarnation = incarnation
        self._life = machine.lives
        self._known = (-1, -1)
        self._noted_offset = -1
        self._on_commit = quorum.on_commit
        self._on_leader = quorum.on_leader
        self._vote_asked: Callable[[VoteRequest, int], VoteResponse]
        quorum.on_commit = self._committed
        quorum.on_leader = self._leader_known
        self._write_state = quorum.log.write_state
        quorum.log.write_state = self._promised  # type: ignore[method-assign]
        self._truncate_to = quorum.log.truncate_to
        quorum.log.truncate_to = self._truncated  # type: ignore[method-assign]

    def _leader_known(self) -> None:
        quorum = self._quorum
        if self._known == (-1, -1):
            self._vote_asked = quorum.raft.vote_asked
            quorum.raft.vote_asked = self._asked  # type: ignore[method-assign]
        known = quorum.epoch, quorum.leader_id
        if known != self._known:
            if self._known == (quorum.epoch, self._node_id):
                self._machine.trace.mark("leader resigned")
            self._known = known
            self._machine.trace.note(self._machine.name, f"knows epoch {known[0]}, led by {known[1]}")
            self._history.add(LeaderKnown(self._node_id, self._life, *known))
        self._on_leader()

    def _asked(self, request: VoteRequest, now_ms: int) -> VoteResponse:
        response = self._vote_asked(request, now_ms)
        pre_vote = any(partition.pre_vote for topic in request.topics for partition in topic.partitions)
        refused = any(not partition.vote_granted for topic in response.topics for partition in topic.partitions)
        if pre_vote and refused:
            self._machine.trace.mark("pre-vote refused")
        return response

    def _promised(self, state: QuorumState, membership: Membership) -> None:
        self._write_state(state, membership)
        self._history.add(Promised(self._node_id, state.leader_epoch, state.voted_id))

    async def _truncated(self, end_offset: Offset) -> None:
        self._history.add(Truncated(self._node_id, end_offset))
        await self._truncate_to(end_offset)

    async def _committed(self, image: Image, changes: Changes) -> None:
        batches = self._batches(image.provenance.offset)
        name = self._machine.name
        self._machine.trace.note(name, f"has committed up to {image.provenance.offset} of {image.provenance.epoch}")
        self._history.add(Committed(self._node_id, self._life, batches, image, self._incarnation()))
        await self._on_commit(image, changes)

    def _batches(self, last_offset: int) -> tuple[Batch, ...]:
        """Those that the log holds and that were not noted yet, by their headers."""
        log = self._quorum.log
        start_offset = max(self._noted_offset + 1, log.log_start_offset)
        self._noted_offset = last_offset
        batches = log.batches(Offset(start_offset), Offset(last_offset + 1))
        return tuple([Batch(each.base_offset, each.last_offset, each.leader_epoch, each.crc) for each, _ in batches])


class ProbedNode(Node):
    """A node whose quorum is looked at."""

    def __init__(self, machine: Machine, known_as: int, config: NodeConfig, world: World) -> None:
        """`known_as` is the node id in the history: two processes may have the same one."""
        super().__init__(config, world, poison_buffers=True)
        self._machine = machine
        self._known_as = known_as

    def _open_quorum(self, identity: Identity) -> None:
        super()._open_quorum(identity)
        QuorumProbe(self._machine, self.quorum, node_id=self._known_as, incarnation=self._incarnation)

    def _incarnation(self) -> Uuid | None:
        return self.lifecycle.incarnation_id if self.config.is_broker else None
