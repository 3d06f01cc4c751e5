"""The checkers of groups are worth something: coordinators with a planted fault are found out within a few seeds."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pytest

from odradek.coordinator.group import (
    committing,
    consumer_classic_members,
    consumer_migration,
    consumer_protocol,
    rebalance,
)
from odradek.coordinator.group.assignors import uniform
from odradek.coordinator.group.classic import ClassicGroup
from odradek.coordinator.group.consumer import ConsumerGroup
from odradek.coordinator.group.consumer_groups import ConsumerGroups
from odradek.coordinator.group.consumer_reconciliation import Reconciliation
from odradek.coordinator.group.rebalance import Rebalances
from odradek.coordinator.group.records import GroupMetadataKey
from odradek.coordinator.group.shard import GroupShard
from odradek.coordinator.last_values import LastValues
from odradek.coordinator.shard import CoordinatorRecord, Moment, Outcome
from odradek.ids import Uuid
from odradek.metadata.image.topics import TopicsImage
from odradek.protocol.messages.sync_group import SyncGroupResponse
from odradek.sim.faults import Faults
from odradek.sim.run import play

SEEDS = range(500, 540)


def caught(expected: str, seeds: Iterable[int] = SEEDS, **options: Any) -> bool:
    """Whether some seed breaks a promise in these words."""
    return any(expected in broken for seed in seeds for broken in play(seed, "groups", **options).broken)


def test_a_disk_that_lies_about_the_syncs_of_commits() -> None:
    assert caught(" is lost, ", power=True, lies_about="/data/__consumer_offsets")


def test_a_coordinator_that_forgets_a_commit_when_it_loads(monkeypatch: pytest.MonkeyPatch) -> None:
    take_out = LastValues.take_out

    def forgetful(self: LastValues) -> Iterator[list[tuple[bytes, bytes]]]:
        forgotten = False
        for entries in map(list, take_out(self)):
            offsets = [entry for entry in entries if entry[0].startswith(b"\0\1")]  # As OffsetCommitKeys do.
            if offsets and not forgotten:
                entries.remove(offsets[0])
                forgotten = True
            yield entries

    monkeypatch.setattr(LastValues, "take_out", forgetful)
    assert caught(" is lost, nothing is there", power=False)


def test_a_coordinator_that_answers_a_commit_which_it_did_not_write(monkeypatch: pytest.MonkeyPatch) -> None:
    offset_record: Callable[..., CoordinatorRecord] = committing.offset_record
    count = [0]

    def stale(*arguments: Any, **options: Any) -> CoordinatorRecord:
        count[0] += 1
        record = offset_record(*arguments, **options)
        if count[0] % 20 == 0:
            record.key.partition = 99  # type: ignore[attr-defined]
        return record

    monkeypatch.setattr(committing, "offset_record", stale)
    assert caught(" is lost, ", power=False)


def test_a_coordinator_that_gives_an_assignment_to_two_members(monkeypatch: pytest.MonkeyPatch) -> None:
    synced: Callable[[ClassicGroup, bytes], SyncGroupResponse] = rebalance._synced
    given: dict[tuple[str, int], bytes] = {}

    def same_for_all(group: ClassicGroup, assignment: bytes) -> SyncGroupResponse:
        return synced(group, given.setdefault((group.group_id, group.generation_id), assignment))

    monkeypatch.setattr(rebalance, "_synced", same_for_all)
    assert caught(" is owned by ", power=False)


def test_a_coordinator_that_does_not_wait_for_partitions_to_be_released(monkeypatch: pytest.MonkeyPatch) -> None:
    init = Reconciliation.__init__

    def impatient(self: Reconciliation, *arguments: Any, **options: Any) -> None:
        init(self, *arguments, **(options | {"is_free": lambda topic, index: True}))

    monkeypatch.setattr(Reconciliation, "__init__", impatient)
    assert caught(" ms, while ", power=False)


def test_a_coordinator_that_takes_commits_of_members_it_threw_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ConsumerGroup, "check_offset_commit", lambda self, **_: None)
    monkeypatch.setattr(ConsumerGroup, "check_committed", lambda self, *_: None)
    assert caught(" went back from ", power=False)


def test_a_coordinator_whose_sessions_never_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Rebalances, "session_timeout", lambda self, group, member_id, out, now: None)
    assert caught(" quiet seconds", power=False)


# Members that lie (`sim/liars.py`).


def _shares_of_anything(monkeypatch: pytest.MonkeyPatch) -> None:
    """The assignor believes what members are said to hold."""
    monkeypatch.setattr(uniform, "_valid", lambda member, topic, partitions, taken: [*member.assigned.get(topic, ())])


def test_an_upgrade_that_believes_in_two_owners(monkeypatch: pytest.MonkeyPatch) -> None:
    _shares_of_anything(monkeypatch)
    monkeypatch.setattr(consumer_migration, "_check_owned_once", lambda group_id, members: None)
    assert caught("gave up: AssertionError", power=False)


def test_an_upgrade_that_believes_in_partitions_which_are_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    def believing(named: Iterable[tuple[str, Iterable[int]]], topics: TopicsImage) -> dict[Uuid, tuple[int, ...]]:
        known = topics.by_name
        return {known[name].topic_id: tuple(sorted(partitions)) for name, partitions in named if name in known}

    _shares_of_anything(monkeypatch)
    for importer in (consumer_migration, consumer_classic_members):
        monkeypatch.setattr(importer, "identified", believing)
    assert caught("gave up: ", power=False)


def test_an_assignment_in_the_version_of_metadata_that_has_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """Met where a member of the new protocol leaves, or a timer throws it out."""
    written = consumer_migration.written_assignment

    def strict(assignment: Any, topics: TopicsImage, like: bytes) -> bytes:
        consumer_protocol.known_version(like)
        return written(assignment, topics, like)

    for importer in (consumer_migration, consumer_classic_members):
        monkeypatch.setattr(importer, "written_assignment", strict)
    assert caught("gave up: MalformedFrame", range(1, 400), power=False)  # A silent protocol is chosen seldom.


def test_a_joiner_who_is_refused_and_swallows_those_who_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """An upgrade ends the joins of classic members before it is certain to come."""
    heartbeat, to_join = ConsumerGroups.heartbeat, ConsumerGroups._group_to_join
    moments: list[Moment] = []

    def at(self: ConsumerGroups, request: Any, joiner: Any, may_see: Any, out: Outcome, now: Moment) -> Any:
        moments[:] = [now]
        return heartbeat(self, request, joiner, may_see, out, now)

    def hasty(self: ConsumerGroups, request: Any, out: Outcome) -> ConsumerGroup:
        classic, group = self.groups.get(request.group_id), to_join(self, request, out)
        if isinstance(classic, ClassicGroup) and not classic.is_empty:
            self._end_waiting(classic, group, out, moments[0])
        return group

    monkeypatch.setattr(ConsumerGroups, "heartbeat", at)
    monkeypatch.setattr(ConsumerGroups, "_group_to_join", hasty)
    assert caught("was never answered: JoinGroupRequest", power=False)


def test_a_group_that_a_refused_deletion_hides(monkeypatch: pytest.MonkeyPatch) -> None:
    refused = GroupShard.refused

    def hiding(self: GroupShard, decision: Any, *arguments: Any) -> Any:
        told = refused(self, decision, *arguments)
        for record in decision.records:
            if isinstance(record.key, GroupMetadataKey) and record.value is None:
                self.groups.pop(record.key.group, None)
        return told

    make = Faults.__init__

    def full(self: Faults, *arguments: Any, **options: Any) -> None:
        make(self, *arguments, **options)
        self._kinds = ((1, self._fill_disk),)

    monkeypatch.setattr(Faults, "__init__", full)
    monkeypatch.setattr(GroupShard, "refused", hiding)
    assert caught(" was deleted, and its offset of ", power=False)
