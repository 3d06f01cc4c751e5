"""Faults that operators ran into, planted again: each is found out by seeds that have an operator."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from typing import Any

import pytest

from odradek.coordinator.group.shard import GroupShard
from odradek.coordinator.record_format import Newest
from odradek.metadata.controller import configs, reassignment
from odradek.metadata.controller.elections import PartitionChange
from odradek.metadata.image.topics import TopicImage, forgotten_elr
from odradek.ports import FileSlice
from odradek.protocol.codec import Message
from odradek.server.coordinators.shard_runner import ShardRunner
from odradek.sim import operators, replication_cluster
from odradek.sim.replication_faults import ReplicationFaults
from odradek.sim.run import play
from odradek.storage.directories import LogDirectory

SEEDS = range(400, 460)
LOST = ("was acknowledged", "was read at", "became", "is not the same on", "stands ", "ends at")


def caught(*expected: str, steps: tuple[str, ...] = (), aims: tuple[str, ...] = (), **options: Any) -> bool:
    """Whether some seed breaks a promise in these words.

    `steps` are those that the operator takes, and `aims` the faults that are drawn, if not all.
    """
    make, make_faults = operators.Operator.__init__, ReplicationFaults.__init__

    def aimed_faults(self: ReplicationFaults, *arguments: Any, **given: Any) -> None:
        make_faults(self, *arguments, **given)
        if aims:
            self.kinds = [(1, getattr(self, aim)) for aim in aims]

    def aimed(self: operators.Operator, *arguments: Any, **given: Any) -> None:
        make(self, *arguments, **given)
        if steps:
            self._kinds = [(1, getattr(self, step)) for step in steps]

    with pytest.MonkeyPatch.context() as aiming:
        aiming.setattr(operators.Operator, "__init__", aimed)
        aiming.setattr(ReplicationFaults, "__init__", aimed_faults)
        aiming.setattr(replication_cluster, "OPERATED", 1.0)
        aiming.setattr(replication_cluster, "TWO_DIRECTORIES", 0.0)
        return any(
            words in broken
            for seed in SEEDS
            for broken in play(seed, "replication", **options).broken
            for words in expected
        )


@pytest.mark.slow
def test_checkpoints_of_a_predecessor_that_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LogDirectory, "_forget_predecessor", lambda self, key: None)
    assert caught(*LOST, "starts at", "damaged", "gave up", steps=("_recreate", "_recreate", "_set_min_insync"))


def test_a_redirected_move_that_never_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in Kafka: the lists of the first move stay where those of the second are empty."""

    def kept(change: Any, partition: Any, target: Any) -> None:
        change.removing_replicas = tuple(sorted(each for each in partition.replicas if each not in target))
        change.adding_replicas = tuple(sorted(each for each in target if each not in partition.replicas))
        change.replicas = (*target, *change.removing_replicas)
        change.removing_replicas = change.removing_replicas or partition.removing_replicas
        change.adding_replicas = change.adding_replicas or partition.adding_replicas

    monkeypatch.setattr(reassignment, "_redirect", kept)
    assert caught("operated topics are not whole", *LOST, steps=("_redirect",))


@pytest.mark.slow
def test_eligible_leaders_that_outlive_another_minimum(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(configs, "forgotten_eligible_leaders", lambda *_, **__: [])
    assert caught(*LOST, steps=("_set_min_insync",))


@pytest.mark.slow
def test_removed_replicas_that_stay_eligible(monkeypatch: pytest.MonkeyPatch) -> None:
    def settle(self: PartitionChange) -> None:
        candidates = dict.fromkeys(sorted((*self._elr, *self._partition.isr)))
        enough = len(self.isr) >= self._min_isr
        left = [each for each in candidates if each not in self.isr and each != self.unclean_replica]
        self._elr = () if enough else tuple(left)

    monkeypatch.setattr(PartitionChange, "_update_elr", settle)
    assert caught(*LOST, steps=("_move", "_set_min_insync"))


@pytest.mark.slow
def test_another_minimum_that_takes_the_last_candidates(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in Kafka: a partition that nobody leads when it changes has no leader for good."""

    def forgotten(topics: Iterable[TopicImage]) -> Iterator[Message]:
        for topic in topics:
            for index, partition in enumerate(topic.partitions):
                if partition.elr or partition.last_known_elr:
                    yield forgotten_elr(topic.topic_id, index)

    monkeypatch.setattr(configs, "forgotten_eligible_leaders", forgotten)
    aims = ("strike_last_in_sync", "strike_unseen")
    assert caught("operated topics are not whole", *LOST, steps=("_set_min_insync",), aims=aims)


def test_a_load_that_goes_on_when_leadership_has_left(monkeypatch: pytest.MonkeyPatch) -> None:
    async def stubborn(self: ShardRunner[GroupShard], chunk_bytes: int) -> None:
        partition_log, newest = self.hosted.partition.log, Newest()
        offset: int = partition_log.log_start_offset
        while offset < partition_log.log_end_offset:
            read = partition_log.read(
                offset, max_bytes=chunk_bytes, end_offset=partition_log.log_end_offset, minimum_one=True
            )
            for _ in newest.add(read.records.read() if isinstance(read.records, FileSlice) else bytes(read.records)):
                await self._coordinator.give_way()
            if newest.end_offset is None:
                break
            offset = newest.end_offset
        deque(newest.replay_into(self.shard), maxlen=0)
        self.begin()

    monkeypatch.setattr(ShardRunner, "load", stubborn)
    assert caught("began after it had resigned", steps=("_pass_on_coordinator",))


def test_offsets_that_a_recreated_topic_inherits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(GroupShard, "_forget_soon", lambda self: None)
    assert caught("which nobody committed", steps=("_recreate",))


@pytest.mark.slow
def test_offsets_of_a_topic_that_was_deleted_while_nobody_coordinated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(GroupShard, "_may_exist", lambda self, topic_id: True)
    monkeypatch.setattr(operators, "STRIKES", 0.9)
    assert caught("which nobody committed", steps=("_recreate", "_pass_on_coordinator"), aims=("_kill_all", "_kill"))
