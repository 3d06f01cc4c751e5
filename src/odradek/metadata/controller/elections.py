"""Who leads a partition and who is in sync: every change of a partition is made here, so the rules stand in one place.

A caller says what it wants (`isr`, `replicas`, an election); `PartitionChange.record` works out the rest: a
reassignment that is complete now, the eligible leaders (KIP-966), the leader, and whether its epoch must rise.
"""

from __future__ import annotations

import enum

from odradek.ids import NO_NODE, NodeId, Uuid
from odradek.metadata.features import (
    ELIGIBLE_LEADER_REPLICAS,
    raises_leader_epoch_when_isr_shrinks,
    supports_directories,
)
from odradek.metadata.image import Image
from odradek.metadata.image.cluster import BrokerRegistration
from odradek.metadata.image.topics import (
    MIGRATING_DIRECTORY,
    NO_LEADER_CHANGE,
    RECOVERING,
    UNASSIGNED_DIRECTORY,
    PartitionRegistration,
)
from odradek.metadata.records import PartitionChangeRecord

_RECOVERY_STAYS = -1


class Election(enum.Enum):
    """How far an election may go."""

    ONLINE = enum.auto()
    """The leader stays if it may; else the first replica that is in sync."""
    PREFERRED = enum.auto()
    """The first replica if it is in sync; else as ONLINE."""
    UNCLEAN = enum.auto()
    """As ONLINE, but rather a replica that is not in sync than none: what only others had is lost."""


class Electorate:
    """The brokers of one image as candidates, and what its features say about elections."""

    def __init__(self, image: Image, *, leaving: NodeId = NO_NODE, coming: NodeId = NO_NODE) -> None:
        """`leaving` counts as gone and `coming` as there, for their records are being made now."""
        self._brokers = image.cluster.brokers
        self._active: dict[NodeId, BrokerRegistration] = {
            broker_id: broker
            for broker_id, broker in self._brokers.items()
            if broker_id != leaving and (broker.active or broker_id == coming)
        }
        version = image.features.metadata_version
        self.with_directories = supports_directories(version)
        self.raises_epoch_on_shrink = raises_leader_epoch_when_isr_shrinks(version)
        self.with_elr = image.features.level(ELIGIBLE_LEADER_REPLICAS) > 0

    def accepts(self, partition: PartitionRegistration, replica: NodeId) -> bool:
        """Whether that broker can lead: it is active, and the directory that holds its replica is online."""
        broker = self._active.get(replica)
        if broker is None:
            return False
        return replica not in partition.replicas or broker.has_online_directory(partition.directory(replica))

    def lacks_directory(self, partition: PartitionRegistration, replica: NodeId) -> bool:
        """Whether that broker does not have the directory, alive or not, that its replica was in."""
        broker = self._brokers.get(replica)
        return broker is not None and not broker.has_online_directory(partition.directory(replica))

    def default_directory(self, replica: NodeId) -> Uuid:
        """Where a new replica goes: a broker with several directories chooses and tells later (KIP-858)."""
        return default_directory(self._brokers.get(replica))


def default_directory(broker: BrokerRegistration | None) -> Uuid:
    if broker is None:
        return UNASSIGNED_DIRECTORY
    if not broker.log_dirs:
        return MIGRATING_DIRECTORY
    return broker.log_dirs[0] if len(broker.log_dirs) == 1 else UNASSIGNED_DIRECTORY


class PartitionChange:
    """One partition on its way to another state: set what shall be different, then ask for the `record`."""

    __slots__ = (
        "_electorate",
        "_elr",
        "_index",
        "_min_isr",
        "_partition",
        "_topic_id",
        "adding_replicas",
        "directories",
        "election",
        "isr",
        "leader_recovery_state",
        "removing_replicas",
        "replicas",
        "unclean_replica",
    )

    def __init__(
        self, electorate: Electorate, topic_id: Uuid, index: int, partition: PartitionRegistration, *, min_isr: int
    ) -> None:
        """`min_isr` is the topic's min.insync.replicas."""
        self._electorate = electorate
        self._topic_id = topic_id
        self._index = index
        self._partition = partition
        self._min_isr = min_isr
        self._elr = partition.elr
        self.isr = partition.isr
        self.replicas = partition.replicas
        self.removing_replicas = partition.removing_replicas
        self.adding_replicas = partition.adding_replicas
        self.leader_recovery_state = partition.leader_recovery_state
        self.directories: dict[NodeId, Uuid] = {}
        """Where some replicas are, if not where the partition's registration says."""
        self.election = Election.ONLINE
        self.unclean_replica = NO_NODE
        """A broker that lost the end of its log: it may be in no ELR (KIP-966)."""

    def record(self) -> PartitionChangeRecord | None:
        """What changes, or None where nothing does."""
        before, electorate = self._partition, self._electorate
        self._complete_reassignment()
        if electorate.with_elr:
            self._update_elr()
        elif not before.isr:
            # The feature was turned off while nobody led; without it whoever may lead is in the ISR.
            self.isr = tuple(each for each in before.elr or before.last_known_elr if each in self.replicas)
        elected, unclean = self._elect()
        leader, recovery = NO_LEADER_CHANGE, _RECOVERY_STAYS
        isr: tuple[NodeId, ...] | None = None
        if elected != before.leader:
            leader = elected
            if elected in self._elr:
                self.isr = (elected,)
                # Where it is enough alone it acknowledges alone: min.insync.replicas was lowered while nobody led.
                alone = self._effective_min_isr() <= 1
                self._elr = () if alone else tuple(replica for replica in self._elr if replica != elected)
            if unclean:
                isr = (elected,)
                if before.leader_recovery_state != RECOVERING:
                    recovery = RECOVERING
        elif any(replica not in self.replicas for replica in before.replicas):
            leader = before.leader  # Whoever is no replica any more must not be taken for one: a new epoch.
        if isr is not None or not electorate.with_elr:
            self._elr = ()
        if isr is None and self.isr != before.isr and (self.isr or electorate.with_elr):
            isr = self.isr
        if leader == NO_LEADER_CHANGE and electorate.raises_epoch_on_shrink and _shrinks(before.isr, isr):
            leader = before.leader
        if self.leader_recovery_state != before.leader_recovery_state:
            recovery = self.leader_recovery_state
        return self._record(leader, isr, recovery)

    def _record(self, leader: NodeId, isr: tuple[NodeId, ...] | None, recovery: int) -> PartitionChangeRecord | None:
        before = self._partition
        elr = _changed(before.elr, self._elr)
        last_known = self._last_known_leader(leader, isr)
        replicas = _changed(before.replicas, self.replicas) if self.replicas else None
        removing = _changed(before.removing_replicas, self.removing_replicas)
        adding = _changed(before.adding_replicas, self.adding_replicas)
        directories = self._changed_directories()
        lists = (isr, elr, last_known, replicas, removing, adding, directories)
        if leader == NO_LEADER_CHANGE and recovery == _RECOVERY_STAYS and all(each is None for each in lists):
            return None
        return PartitionChangeRecord(
            partition_id=self._index,
            topic_id=self._topic_id,
            isr=None if isr is None else list(isr),
            leader=leader,
            replicas=replicas,
            removing_replicas=removing,
            adding_replicas=adding,
            leader_recovery_state=recovery,
            directories=directories,
            eligible_leader_replicas=elr,
            last_known_elr=last_known,
        )

    # Reassignment and eligible leaders.

    def _complete_reassignment(self) -> None:
        """A move is done once all that were added are in sync; where replicas get fewer, once all that stay are."""
        adding, removing = self.adding_replicas, self.removing_replicas
        if not removing and not adding:
            return
        isr = tuple(replica for replica in self.isr if replica not in removing)
        replicas = tuple(replica for replica in self.replicas if replica not in removing)
        if not isr or not replicas or any(replica not in isr for replica in adding):
            return
        if len(adding) < len(removing) and any(replica not in isr for replica in replicas):
            return
        self.isr, self.replicas = isr, replicas
        self.removing_replicas = self.adding_replicas = ()

    def _update_elr(self) -> None:
        """Below min.insync.replicas nothing more is acknowledged, so who leaves the ISR then still has all of it.

        Unless it is a replica no more, which deletes its log: it must not be eligible once it is one again. Whoever
        comes only now has none either, though an older version may have left it in the ELR.
        """
        if len(self.isr) >= self._effective_min_isr():
            self._elr = ()
            return
        before = self._partition
        candidates = dict.fromkeys(sorted((*self._elr, *before.isr)))
        self._elr = tuple(
            replica
            for replica in candidates
            if replica in before.replicas
            and replica in self.replicas
            and replica not in self.isr
            and replica != self.unclean_replica
            and not self._begins_anew(replica)
        )

    def _effective_min_isr(self) -> int:
        """No more than the partition has replicas, as its leader counts. Kafka's controller takes the number of the
        topic's partition 0, which may have been moved to fewer: then others would lose those who are eligible."""
        return min(self._min_isr, len(self.replicas))

    def _begins_anew(self, replica: NodeId) -> bool:
        """Whether it tells of a log in place of one that was in a directory it does not have any more: an empty one.

        The only replica is left as it is: nobody else could have more.
        """
        if replica not in self.directories or len(self.replicas) == 1:
            return False
        return self._electorate.lacks_directory(self._partition, replica)

    def _last_known_leader(self, leader: NodeId, isr: tuple[NodeId, ...] | None) -> list[int] | None:
        """Whoever led last is kept on record while nobody leads: it is the best there is if all the others are gone.

        So is the last one in sync, where the feature was turned on while nobody led. (Kafka puts nobody on record then,
        and the partition has no leader for good.) Not with another disk, though: then whoever has anything has more
        (Kafka lets it lead, ADR 14).
        """
        before = self._partition
        if not self._electorate.with_elr:
            return None
        if leader == NO_NODE and not before.last_known_elr:
            return [before.leader]
        nobody_is_left = isr == () and not self._elr and leader == NO_LEADER_CHANGE and not before.last_known_elr
        if nobody_is_left and len(before.isr) == 1 and not self._begins_anew(before.isr[0]):
            return list(before.isr)
        if before.last_known_elr and (leader >= 0 or any(map(self._begins_anew, before.last_known_elr))):
            return []
        return None

    # The election.

    def _elect(self) -> tuple[NodeId, bool]:
        """The leader, NO_NODE where there can be none, and whether the election was unclean."""
        leader = self._partition.leader
        if self.election is Election.PREFERRED and self._may_lead(self.replicas[0]):
            return self.replicas[0], False
        if self._may_lead(leader):
            return leader, False
        for replica in self.replicas:
            if self._may_lead(replica):
                return replica, False
        if self._last_known_may_lead():
            return self._partition.last_known_elr[0], True
        if self.election is Election.UNCLEAN:
            for replica in self.replicas:
                if self._electorate.accepts(self._partition, replica):
                    return replica, True
        return NO_NODE, False

    def _may_lead(self, replica: NodeId) -> bool:
        in_sync = replica in self.isr if self.isr else replica in self._elr
        return in_sync and self._electorate.accepts(self._partition, replica)

    def _last_known_may_lead(self) -> bool:
        known = self._partition.last_known_elr
        if not self._electorate.with_elr or self.isr or self._elr or len(known) != 1 or known[0] not in self.replicas:
            return False
        return self._electorate.accepts(self._partition, known[0])

    def _changed_directories(self) -> list[Uuid] | None:
        before = self._partition
        if not self._electorate.with_directories or not self.replicas:
            return None
        if self.replicas == before.replicas and not self.directories:
            return None
        known = {**dict(zip(before.replicas, before.directories, strict=True)), **self.directories}
        default = self._electorate.default_directory
        directories = [known[replica] if replica in known else default(replica) for replica in self.replicas]
        return None if tuple(directories) == before.directories else directories


def _changed(before: tuple[NodeId, ...], after: tuple[NodeId, ...]) -> list[int] | None:
    return None if before == after else list(after)


def _shrinks(before: tuple[NodeId, ...], after: tuple[NodeId, ...] | None) -> bool:
    return after is not None and any(replica not in after for replica in before)
