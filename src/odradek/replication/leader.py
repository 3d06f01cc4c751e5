"""A partition seen by its leader: how far each follower is, and what follows from it."""

from __future__ import annotations

from odradek.ids import NO_OFFSET, ZERO_UUID, LeaderEpoch, NodeId, Offset, Uuid
from odradek.replication.broker_liveness import NO_BROKER_EPOCH, BrokerLiveness
from odradek.replication.isr import InSync, IsrProposal

LONG_AGO_MS = -(1 << 62)
SILENT_MS = 2_000
"""A follower asks again as soon as it has an answer, and waits for none longer than half a second by default."""


class FollowerProgress:
    """How far one follower is, which its fetches tell."""

    __slots__ = (
        "broker_epoch",
        "directory",
        "last_caught_up_ms",
        "last_fetch_ms",
        "leader_end_at_last_fetch",
        "log_end_offset",
        "log_start_offset",
    )

    def __init__(self, *, last_caught_up_ms: int) -> None:
        self.log_end_offset = NO_OFFSET
        """Not known to this leader before the first fetch."""
        self.log_start_offset = NO_OFFSET
        self.broker_epoch = NO_BROKER_EPOCH
        self.directory = ZERO_UUID
        """Where its broker keeps it, as the cluster knows."""
        self.last_caught_up_ms = last_caught_up_ms
        """When it last held all that there was."""
        self.last_fetch_ms = LONG_AGO_MS
        self.leader_end_at_last_fetch = NO_OFFSET

    def update_fetch_state(
        self, fetch_offset: Offset, log_start_offset: Offset, broker_epoch: int, leader_end: Offset, now_ms: int
    ) -> None:
        """It asks for what comes behind `fetch_offset`, so it holds everything before.

        A follower under steady load never sees the end, but it is in time if it has reached what was the end when it
        last asked: it was caught up then.
        """
        if fetch_offset >= leader_end:
            if now_ms > self.last_caught_up_ms:
                self.last_caught_up_ms = now_ms
        elif fetch_offset >= self.leader_end_at_last_fetch and self.last_fetch_ms > self.last_caught_up_ms:
            self.last_caught_up_ms = self.last_fetch_ms
        self.log_end_offset = fetch_offset
        self.log_start_offset = log_start_offset
        self.broker_epoch = broker_epoch
        self.leader_end_at_last_fetch = leader_end
        self.last_fetch_ms = now_ms

    def is_caught_up(self, *, leader_end: Offset, now_ms: int, max_lag_ms: int) -> bool:
        return self.log_end_offset == leader_end or now_ms - self.last_caught_up_ms <= max_lag_ms


class Leadership:
    """One leader epoch of a partition with followers."""

    __slots__ = (
        "began_ms",
        "epoch_start_offset",
        "followers",
        "in_sync",
        "inherits",
        "leader_epoch",
        "node_id",
        "partition_epoch",
    )

    def __init__(
        self,
        node_id: NodeId,
        *,
        leader_epoch: LeaderEpoch,
        partition_epoch: int,
        replicas: tuple[NodeId, ...],
        directories: tuple[Uuid, ...],
        isr: tuple[NodeId, ...],
        epoch_start_offset: Offset,
        inherits: bool,
        now_ms: int,
    ) -> None:
        self.node_id = node_id
        self.leader_epoch = leader_epoch
        self.epoch_start_offset = epoch_start_offset
        """The end of the log when this node took over: all before it is of earlier leaders."""
        self.inherits = inherits
        """Whether somebody led before, and all that was acknowledged then is in this leader's log."""
        self.began_ms = now_ms
        self.followers: dict[NodeId, FollowerProgress] = {}
        self.apply_state(
            partition_epoch=partition_epoch, replicas=replicas, directories=directories, isr=isr, now_ms=now_ms
        )

    def apply_state(
        self,
        *,
        partition_epoch: int,
        replicas: tuple[NodeId, ...],
        directories: tuple[Uuid, ...],
        isr: tuple[NodeId, ...],
        now_ms: int,
    ) -> None:
        """Take over what the cluster agreed on within this leader epoch; what is known of followers stays.

        A replica that is in sync by agreement has its time from now on to show it.
        """
        self.partition_epoch = partition_epoch
        self.in_sync = InSync(isr)
        known = self.followers
        self.followers = {}
        directory_of = dict(zip(replicas, directories, strict=False))
        for replica in replicas:
            if replica != self.node_id:
                progress = known.get(replica)
                if progress is None:
                    progress = FollowerProgress(last_caught_up_ms=now_ms if replica in isr else LONG_AGO_MS)
                progress.directory = directory_of.get(replica, ZERO_UUID)
                self.followers[replica] = progress

    def may_be_deposed(self, leader_end: Offset, now_ms: int) -> bool:
        """Whether somebody who is in sync lacks what this leader has, and has not asked for a while: this leader may be
        cut off, and another one in its place."""
        return any(
            progress.log_end_offset < leader_end and now_ms - progress.last_fetch_ms > SILENT_MS
            for replica, progress in self.followers.items()
            if replica in self.in_sync.committed
        )

    # What happens.

    def note_append(self, previous_end: int, high_watermark: Offset, now_ms: int) -> bool:
        """The log has grown: who held all of it until now is behind from now on.

        Whether the watermark might move by it: it cannot while somebody in sync does not hold what it would pass, which
        is so at nearly every append.
        """
        maximal = self.in_sync.maximal
        might_move = True
        for replica, progress in self.followers.items():
            end = progress.log_end_offset
            if end == previous_end:
                progress.last_caught_up_ms = now_ms
            if end <= high_watermark and replica in maximal:
                might_move = False
        return might_move

    # What follows from it.

    def high_watermark(
        self, current: Offset, leader_end: Offset, min_insync: int, liveness: BrokerLiveness, now_ms: int
    ) -> Offset:
        """Where the watermark may be now: at the least end of the leader and of all who count, and never further back.

        It stays while fewer are in sync than `min.insync.replicas` (KIP-966): what it passes then could be lost with
        replicas that an election may do without. It also waits for a replica outside of the ISR that has caught up and
        is about to come in, or it would be kept out by every further append.
        """
        in_sync = self.in_sync
        followers = self.followers
        all_in_sync = len(in_sync.committed) > len(followers)
        if not all_in_sync and self.are_too_few(in_sync.committed, min_insync):
            return current
        least = leader_end
        for replica, progress in followers.items():
            end = progress.log_end_offset
            if end < least and (
                all_in_sync
                or replica in in_sync.maximal
                or (
                    liveness.may_join(replica, progress.broker_epoch, progress.directory)
                    and progress.is_caught_up(leader_end=leader_end, now_ms=now_ms, max_lag_ms=liveness.max_lag_ms)
                )
            ):
                least = end
        return least if least > current else current

    def are_too_few(self, in_sync: tuple[NodeId, ...], min_insync: int) -> bool:
        """A topic with fewer replicas than `min.insync.replicas` needs all it has."""
        return len(in_sync) < min_insync and len(in_sync) <= len(self.followers)

    def expansion(
        self,
        *,
        high_watermark: Offset,
        leader_end: Offset,
        liveness: BrokerLiveness,
        now_ms: int,
        fetched: NodeId | None = None,
    ) -> IsrProposal | None:
        """The ISR with all followers that belong there now, if there are any which are not in it.

        They must hold all that is committed, and all of earlier epochs: what those have committed is not known here
        before the watermark has reached this epoch's start. One that has not just `fetched` must not lag, either: it
        may have fallen silent.
        """
        in_sync = self.in_sync
        if in_sync.proposal is not None or len(in_sync.committed) > len(self.followers):
            return None
        needed = max(high_watermark, self.epoch_start_offset)
        ready = tuple(
            replica
            for replica, progress in self.followers.items()
            if replica not in in_sync.committed
            and progress.log_end_offset >= needed
            and liveness.may_join(replica, progress.broker_epoch, progress.directory)
            and (
                replica == fetched
                or progress.is_caught_up(leader_end=leader_end, now_ms=now_ms, max_lag_ms=liveness.max_lag_ms)
            )
        )
        return self._propose((*in_sync.committed, *ready), liveness.broker_epoch) if ready else None

    def shrinking(self, *, leader_end: Offset, liveness: BrokerLiveness, now_ms: int) -> IsrProposal | None:
        """The ISR without those who lag, if there are any."""
        if self.in_sync.proposal is not None:
            return None
        max_lag_ms = liveness.max_lag_ms
        kept = tuple(
            replica
            for replica in self.in_sync.committed
            if replica == self.node_id
            or replica not in self.followers
            or self.followers[replica].is_caught_up(leader_end=leader_end, now_ms=now_ms, max_lag_ms=max_lag_ms)
        )
        return None if kept == self.in_sync.committed else self._propose(kept, liveness.broker_epoch)

    def _propose(self, isr: tuple[NodeId, ...], own_broker_epoch: int) -> IsrProposal:
        proposal = IsrProposal(
            isr=isr,
            broker_epochs=tuple(self._broker_epoch(replica, own_broker_epoch) for replica in isr),
            leader_epoch=self.leader_epoch,
            partition_epoch=self.partition_epoch,
        )
        self.in_sync.propose(proposal)
        return proposal

    def _broker_epoch(self, replica: NodeId, own: int) -> int:
        """-1 for one in the ISR that has not fetched from this leader yet: the controller then takes any."""
        if replica == self.node_id:
            return own
        progress = self.followers.get(replica)
        return NO_BROKER_EPOCH if progress is None else progress.broker_epoch

    def low_watermark(self, log_start_offset: Offset, liveness: BrokerLiveness) -> Offset:
        """Where the log starts on every replica that is alive: nobody can read anything before."""
        starts = (progress.log_start_offset for node, progress in self.followers.items() if node in liveness.active)
        return min((log_start_offset, *starts))

    def is_fully_in_sync(self, leader_end: Offset) -> bool:
        """Whether everybody is in sync and has everything: then there is nothing to look after."""
        return len(self.in_sync.committed) > len(self.followers) and all(
            progress.log_end_offset >= leader_end for progress in self.followers.values()
        )
