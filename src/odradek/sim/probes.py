"""What a node comes to know of the quorum, noted in the history as it does: hooks that exist in the simulation only."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from odradek.ids import NodeId, Offset, Uuid
from odradek.metadata.image import Changes, Image
from odradek.metadata.image.cluster import BrokerRegistration
from odradek.metadata.raft.quorum_state import QuorumState
from odradek.metadata.raft.voters import Membership
from odradek.ports import World
from odradek.protocol.messages.vote import VoteRequest, VoteResponse
from odradek.server.configs.node_config import NodeConfig
from odradek.server.controller.controller import Controller
from odradek.server.membership.identity import Identity
from odradek.server.node import Node
from odradek.server.quorum.quorum import Quorum
from odradek.sim.history import Batch, Committed, LeaderKnown, Promised, TakenForDead, Truncated
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


class WatchProbe:
    """Looks over the shoulder of one controller: whom does it take for dead, and how long was that one silent?"""

    def __init__(self, machine: Machine, controller: Controller, *, node_id: int, session_ms: int) -> None:
        self._machine = machine
        self._node_id = node_id
        self._session_ms = session_ms
        self._began_ms = 0
        self._heard_ms: dict[int, int] = {}
        watch, sessions = controller._watch, controller._sessions
        self._fence, self._is_succeeded = watch._fence, watch.is_succeeded
        self._start, self._heard = sessions.start, sessions.heard
        watch._fence = self._fencing
        watch.is_succeeded = self._succeeded  # type: ignore[method-assign]
        sessions.start = self._started  # type: ignore[method-assign]
        sessions.heard = self._has_heard  # type: ignore[method-assign]

    def _started(self, brokers: Iterable[BrokerRegistration], *, myself: NodeId, now_ms: int) -> None:
        self._began_ms = now_ms
        self._heard_ms.clear()
        self._start(brokers, myself=myself, now_ms=now_ms)

    def _has_heard(self, broker_id: NodeId, broker_epoch: int, *, now_ms: int) -> None:
        self._heard_ms[broker_id] = now_ms
        self._heard(broker_id, broker_epoch, now_ms=now_ms)

    async def _fencing(self, broker_id: NodeId, broker_epoch: int, why: str, holds: Callable[[], bool]) -> None:
        def looks() -> bool:
            if not holds():
                return False
            if not found:
                found.append(self._taken_for_dead(broker_id, broker_epoch))
            return True

        found: list[TakenForDead] = []
        await self._fence(broker_id, broker_epoch, why, looks)
        for event in found:
            self._machine.history.add(event)
            if event.silent_ms <= self._session_ms:
                self._machine.trace.mark("dead broker fenced early")

    def _succeeded(self, broker: BrokerRegistration, previous_epoch: int, log_dirs: list[Uuid]) -> bool:
        succeeded = self._is_succeeded(broker, previous_epoch, log_dirs)
        if succeeded:
            self._machine.history.add(self._taken_for_dead(broker.broker_id, broker.broker_epoch))
            self._machine.trace.mark("dead broker succeeded early")
        return succeeded

    def _taken_for_dead(self, broker_id: NodeId, broker_epoch: int) -> TakenForDead:
        silent_ms = self._machine.clock.monotonic_ms() - self._heard_ms.get(broker_id, self._began_ms)
        alive = any(
            isinstance(node := machine.node, ProbedNode) and node.is_broker_of(broker_id, broker_epoch)
            for machine in self._machine.everybody
            if machine.life is not None and machine.life.alive
        )
        return TakenForDead(self._node_id, broker_id, broker_epoch, silent_ms, self._session_ms, alive)


class ProbedNode(Node):
    """A node whose quorum is looked at."""

    def __init__(self, machine: Machine, known_as: int, config: NodeConfig, world: World) -> None:
        """`known_as` is the node id in the history: two processes may have the same one."""
        super().__init__(config, world, poison_buffers=True)
        self._machine = machine
        self._known_as = known_as
        self._ending = False

    def _open_quorum(self, identity: Identity) -> None:
        super()._open_quorum(identity)
        QuorumProbe(self._machine, self.rooms.quorum, node_id=self._known_as, incarnation=self._incarnation)
        if self.config.is_controller:
            session_ms = self.config.broker_session_timeout_ms
            WatchProbe(self._machine, self.rooms.controller, node_id=self._known_as, session_ms=session_ms)

    def is_broker_of(self, broker_id: int, broker_epoch: int) -> bool:
        """Whether this is that life of that broker, and not about to end by itself."""
        is_broker = self.config.is_broker and self.node_id == broker_id and hasattr(self.rooms, "lifecycle")
        return is_broker and self.rooms.lifecycle.broker_epoch == broker_epoch and not self._ending

    async def stop(self) -> None:
        self._ending = True
        await super().stop()

    async def _abandon(self) -> None:
        self._ending = True
        await super()._abandon()

    def _incarnation(self) -> Uuid | None:
        return self.rooms.lifecycle.incarnation_id if self.config.is_broker else None
