"""The checkers of replication are worth something: brokers with a planted fault are found out within a few seeds."""

from __future__ import annotations

from typing import Any

import pytest

from odradek.ids import NO_PRODUCER_ID, NodeId, Offset
from odradek.metadata.controller.alter_partition import _Alteration
from odradek.metadata.controller.elections import PartitionChange
from odradek.metadata.image import Image
from odradek.protocol.errors import ErrorCode
from odradek.replication import follower
from odradek.replication.broker_liveness import BrokerLiveness
from odradek.replication.isr import InSync, IsrProposal
from odradek.replication.leader import Leadership
from odradek.replication.partition import Partition
from odradek.server import node
from odradek.server.coordinators.shard_runner import ShardRunner
from odradek.server.membership import identity as server_directories
from odradek.server.membership.last_lives import LastLives
from odradek.server.partitions import reads
from odradek.sim import replication_cluster
from odradek.sim.disk import SimulatedDisk
from odradek.sim.replication_faults import ReplicationFaults
from odradek.sim.run import play
from odradek.storage import directories
from odradek.storage.checkpoints import RECOVERY_POINT_CHECKPOINT
from odradek.storage.directories import LogDirectory
from odradek.storage.last_life import NOBODY, LastLife, common_life
from odradek.storage.log import Log
from odradek.storage.producer_state import Producers

SEEDS = range(300, 360)


def caught(*expected: str, aims: tuple[str, ...] = (), **options: Any) -> bool:
    """Whether some seed breaks a promise in these words, or in some of them; stops with the first that does.

    `aims` are the faults that are drawn, where only few of all kinds lead to where the planted one shows.
    """
    make = ReplicationFaults.__init__

    def aimed(self: ReplicationFaults, *arguments: Any, **given: Any) -> None:
        make(self, *arguments, **given)
        if aims:
            self.kinds = [(1, getattr(self, aim)) for aim in aims]

    with pytest.MonkeyPatch.context() as aiming:
        aiming.setattr(ReplicationFaults, "__init__", aimed)
        return any(
            words in broken
            for seed in SEEDS
            for broken in play(seed, "replication", **options).broken
            for words in expected
        )


LOST = ("was acknowledged", "was read at", "became", "is not the same on", "stands ")
"""A record is gone, or another one stands in its place."""


@pytest.mark.slow
def test_a_log_that_is_cut_to_its_watermark(monkeypatch: pytest.MonkeyPatch) -> None:
    """As before KIP-101: a follower cuts what its leader may have committed already."""
    apply = Partition.apply

    def cut(self: Partition, state: Any, *, now_ms: int) -> None:
        epoch = self.state.leader_epoch
        apply(self, state, now_ms=now_ms)
        if not self.is_leader and self.state.leader_epoch != epoch:
            self.log.truncate_to(self.log.high_watermark)

    monkeypatch.setattr(Partition, "apply", cut)
    assert caught(*LOST, aims=("strike_successor",))


def test_an_acknowledgement_before_the_isr_has_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Partition, "outcome", lambda self, end_offset: ErrorCode.NONE)
    assert caught(*LOST, "ends at")


def test_a_watermark_of_the_leader_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    def hasty(self: Leadership, current: Offset, leader_end: Offset, *_: Any) -> Offset:
        return leader_end

    monkeypatch.setattr(Leadership, "high_watermark", hasty)
    monkeypatch.setattr(Leadership, "note_append", lambda *_: True)
    assert caught(*LOST)


@pytest.mark.slow
def test_a_follower_that_never_compares_histories(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reads, "divergence", lambda log, **_: None)
    assert caught(
        *LOST,
        "was refused without a reason",
        "not all replicas came in sync",
        aims=("strike_last_in_sync", "_isolate"),
    )


@pytest.mark.slow
def test_a_replica_that_comes_in_before_the_epochs_start(monkeypatch: pytest.MonkeyPatch) -> None:
    def early(self: Leadership, *, liveness: BrokerLiveness, **_: Any) -> IsrProposal | None:
        ready = tuple(
            replica
            for replica, progress in self.followers.items()
            if replica not in self.in_sync.committed
            and liveness.may_join(replica, progress.broker_epoch, progress.directory)
        )
        if self.in_sync.proposal is not None or not ready:
            return None
        return self._propose((*self.in_sync.committed, *ready), liveness.broker_epoch)

    monkeypatch.setattr(Leadership, "expansion", early)
    assert caught(*LOST, aims=("strike_while_isr_grows",))


@pytest.mark.slow
def test_a_read_beyond_the_watermark(monkeypatch: pytest.MonkeyPatch) -> None:
    def all_of_it(self: reads.Collector, hosted: Any) -> Offset:
        end: Offset = hosted.partition.log.log_end_offset
        return end

    monkeypatch.setattr(reads.Collector, "_readable_end", all_of_it)
    assert caught(*LOST, aims=("strike_last_in_sync", "_isolate"))


@pytest.mark.slow
def test_a_new_leader_that_tells_its_end_too_early(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Partition, "knows_its_end", True)
    assert caught("was told to end at", "ends at", aims=("strike_successor",))


def test_producers_that_a_follower_forgets(monkeypatch: pytest.MonkeyPatch) -> None:
    write = Log._write_replicated

    def forgetful(self: Log, data: memoryview, headers: list[Any], *given: int) -> None:
        write(self, data, [(*header[:8], NO_PRODUCER_ID, *header[9:]) for header in headers], *given)

    monkeypatch.setattr(Log, "_write_replicated", forgetful)
    assert caught("stands ", "was refused without a reason")


@pytest.mark.slow
def test_a_follower_that_skips_what_it_did_not_get(monkeypatch: pytest.MonkeyPatch) -> None:
    take = follower.take

    def generous(log: Log, records: memoryview, fetch_offset: Offset, high_watermark: int, *given: int) -> bool:
        return take(log, records, fetch_offset, high_watermark + 1_000, *given)

    monkeypatch.setattr(follower, "take", generous)
    assert caught(*LOST, aims=("strike_successor",))


@pytest.mark.slow
def test_an_isr_change_that_does_not_count_before_it_is_agreed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A watermark that ignores a pending expansion, and replicas that are about to come in."""

    def narrow(self: InSync, proposal: IsrProposal) -> None:
        self.proposal = proposal

    def committed_only(self: Leadership, current: Offset, leader_end: Offset, min_insync: int, *_: Any) -> Offset:
        in_sync = self.in_sync.maximal
        if self.are_too_few(in_sync, min_insync):
            return current
        ends = [progress.log_end_offset for replica, progress in self.followers.items() if replica in in_sync]
        return max(current, min([leader_end, *ends]))

    monkeypatch.setattr(InSync, "propose", narrow)
    monkeypatch.setattr(Leadership, "high_watermark", committed_only)
    assert caught(*LOST, aims=("strike_while_isr_grows",))


@pytest.mark.slow
def test_fetches_of_epochs_that_are_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """A leader that was replaced unawares counts whoever asks, and whoever asks does not say which epoch it means."""

    def anyone(self: Partition, current_leader_epoch: int = -1) -> None:
        pass

    def still(self: Partition, replica_id: NodeId, broker_epoch: int, current_leader_epoch: int) -> Leadership | None:
        return self.leadership

    monkeypatch.setattr(Partition, "require_leader", anyone)
    monkeypatch.setattr(Partition, "require_follower", still)
    monkeypatch.setattr(reads, "divergence", lambda log, **_: None)
    assert caught(*LOST, "NoneType", "gave up", aims=("_hold", "_isolate", "strike_successor"))


@pytest.mark.slow
def test_a_checkpoint_ahead_of_the_data(monkeypatch: pytest.MonkeyPatch) -> None:
    """Recovery trusts what was never written to the device."""

    def ahead(self: LogDirectory, *, durable: bool = False) -> None:
        points = {key: int(log.log_end_offset) for key, log in self._open.items()}
        self._write(RECOVERY_POINT_CHECKPOINT, points, durable=True)

    monkeypatch.setattr(Log, "recovery_point", property(lambda self: self.log_end_offset, lambda self, value: None))
    monkeypatch.setattr(LogDirectory, "checkpoint_recovery_points", ahead)
    assert caught(*LOST, "gave up", "damaged", power=True, aims=("_kill", "_strike_anywhere"))


@pytest.mark.slow
def test_duplicates_of_which_nobody_knows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Producers, "check", lambda self, *_, **__: None)
    assert caught("stands ", aims=("strike_successor", "_isolate", "_split"))


@pytest.mark.slow
def test_an_alter_partition_of_an_older_partition_epoch(monkeypatch: pytest.MonkeyPatch) -> None:
    """A request that was given up comes late, and lets in who has left again."""
    wrong_with = _Alteration._wrong_with

    def of_any_epoch(self: _Alteration, partition: Any, asked: Any, members: Any) -> ErrorCode:
        if asked.partition_epoch < partition.partition_epoch:
            asked.partition_epoch = partition.partition_epoch
        return wrong_with(self, partition, asked, members)

    monkeypatch.setattr(_Alteration, "_wrong_with", of_any_epoch)
    assert caught(*LOST, aims=("deliver_late",))


@pytest.mark.slow
def test_an_alter_partition_that_lets_in_another_incarnation(monkeypatch: pytest.MonkeyPatch) -> None:
    """As before KIP-903: who comes in has lost its tail since its leader last heard of it."""

    def any_epoch(self: _Alteration, member: Any) -> bool:
        broker = self._image.cluster.brokers.get(NodeId(member.broker_id))
        return broker is not None and broker.active

    monkeypatch.setattr(_Alteration, "_eligible", any_epoch)
    assert caught(*LOST, power=True, aims=("restart_newcomer",))


def test_an_acknowledgement_before_the_sync(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where power may be lost on all nodes at once."""
    monkeypatch.setattr(Log, "flush_due", lambda self, now_ms: False)
    assert caught(*LOST, power=True, aims=("_kill_all",))


@pytest.mark.slow
def test_a_mark_of_another_boot_that_is_trusted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who lost power says that it has lost nothing, and may lead as soon as it is back."""
    monkeypatch.setattr(SimulatedDisk, "boot_id", lambda self: "always the same")
    assert caught(*LOST, power=True, aims=("strike_unseen",))


def test_a_killed_process_that_is_taken_for_one_that_lost_something(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in Kafka: who comes back last is all that is left, and it is the one that has lost something."""
    monkeypatch.setattr(directories, "running_life", lambda disk, path: NOBODY)
    assert caught(*LOST, power=True, aims=("strike_unseen",))


@pytest.mark.slow
def test_a_commit_that_is_answered_before_the_isr_has_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ShardRunner, "_is_committed", lambda self: True)
    assert caught("is lost", "went back", "which nobody committed", aims=("strike_last_in_sync", "_isolate"))


def test_a_coordinator_that_begins_with_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Groups and offsets are not read from the log when its leadership moves."""

    async def nothing(self: ShardRunner[Any], chunk_bytes: int) -> None:
        self.begin()

    monkeypatch.setattr(ShardRunner, "load", nothing)
    assert caught("is lost", "went back")


@pytest.fixture
def two_directories(monkeypatch: pytest.MonkeyPatch) -> None:
    """In every cluster."""
    monkeypatch.setattr(replication_cluster, "TWO_DIRECTORIES", 1.0)


def test_a_metadata_directory_by_position(monkeypatch: pytest.MonkeyPatch, two_directories: None) -> None:
    monkeypatch.setattr(server_directories, "_check_metadata_place", lambda *_: None)
    assert caught("started though log.dirs is in another order", *LOST, aims=("change_directories",))


def test_an_empty_directory_that_joins_where_one_is_missing(
    monkeypatch: pytest.MonkeyPatch, two_directories: None
) -> None:
    monkeypatch.setattr(node, "check_joining", lambda *_: None)
    assert caught("started though /more is not mounted", *LOST, aims=("change_directories",))


def test_two_logs_of_one_partition(monkeypatch: pytest.MonkeyPatch, two_directories: None) -> None:
    monkeypatch.setattr(server_directories, "_check_copies", lambda *_: None)
    assert caught("is there twice", *LOST, aims=("change_directories",))


@pytest.mark.slow
def test_a_dropped_directory_that_nobody_misses(monkeypatch: pytest.MonkeyPatch, two_directories: None) -> None:
    """Compared is what is configured, not what the broker last had; and the controller believes in the new log."""

    def forgetful(self: LastLives, image: Image) -> LastLife:
        known = image.cluster.brokers.get(self._node_id)
        lives = [directory.last_life for directory in self._whole()]
        if known is not None:
            lives = [life.once_known(known.incarnation_id, known.broker_epoch) for life in lives]
        return common_life(lives)

    monkeypatch.setattr(LastLives, "last_life", forgetful)
    monkeypatch.setattr(PartitionChange, "_begins_anew", lambda *_: False)
    assert caught(*LOST, aims=("lose_directory_of_last",))
