"""What one request of one member does to a KIP-848 group: its subscription, the group's epoch, its target and step.

All of it becomes records; the group itself is only read.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Mapping, Sequence

from fastcrc import crc64

from odradek.coordinator.group import consumer_records as records
from odradek.coordinator.group.assignors import ASSIGNORS
from odradek.coordinator.group.assignors.spec import NOTHING, Assignment, GroupSpec, MemberSpec
from odradek.coordinator.group.consumer import ConsumerGroup, assignor_asked_for, count
from odradek.coordinator.group.consumer_member import ConsumerMember
from odradek.coordinator.group.consumer_reconciliation import Reconciliation
from odradek.coordinator.group.subscriptions import check_expression, matching
from odradek.coordinator.shard import CoordinatorRecord
from odradek.ids import Uuid
from odradek.metadata.image.topics import TopicsImage
from odradek.values import value

_UNSIGNED, _SIGNED = struct.Struct(">Q"), struct.Struct(">q")

Owned = Mapping[Uuid, Sequence[int]]


@value
class UpdateContext:
    """What a group's decisions depend on beside the group itself."""

    topics: TopicsImage
    metadata_offset: int
    """Of the last record in the metadata log that the topics contain."""
    assignors: tuple[str, ...]
    assignment_interval_ms: int
    now_ms: int
    may_see: Callable[[str], bool] | None = None
    """Which topics an expression of the member that asks may find; all of them if None."""


class Update:
    """One request of one member. `out` grows by what has to be written."""

    def __init__(self, group: ConsumerGroup, around: UpdateContext, out: list[CoordinatorRecord]) -> None:
        self._group = group
        self._around = around
        self._out = out
        self._regexes = group.regexes
        self._epoch = group.epoch

    def follow(self, before: ConsumerMember, after: ConsumerMember, owned: Owned | None) -> ConsumerMember:
        """The member as it is once all is written: with what it asked for, and one step nearer to the target."""
        is_same = after is before or after == before  # Mostly the first, and then the second costs nothing.
        if not is_same or before.member_id not in self._group.members:
            self._out.append(records.member_record(self._group.group_id, after))
        names_changed = after.topic_names != before.topic_names
        changed = self._follow_expressions(before, after) or names_changed
        if changed or self._group.refresh:
            self._follow_topics(before, after, changed)
        target_epoch, target = self._target(after)
        return self._step(after, owned, target_epoch, target, changed)

    def leave(self, gone: Sequence[ConsumerMember]) -> None:
        """Members are removed, and everyone else gets a new target."""
        group = self._group
        expressions = dict(group.regex_counts)
        names = dict(group.name_counts)
        for member in gone:
            self._out += records.member_tombstones(group.group_id, member.member_id)
            count(names, member.topic_names, -1)
            if member.topic_regex:
                count(expressions, (member.topic_regex,), -1)
        self._drop_expressions(group.regexes, expressions)
        self._bump(self._hash(names, expressions))

    # Subscriptions.

    def _follow_expressions(self, before: ConsumerMember, after: ConsumerMember) -> bool:
        """Whether the member's expression, or what another one describes, is not what it was."""
        group = self._group
        changed = after.topic_regex != before.topic_regex
        if changed and after.topic_regex:
            check_expression(after.topic_regex)
        counts = dict(group.regex_counts)
        if changed:
            count(counts, [each for each in (before.topic_regex,) if each], -1)
            count(counts, [each for each in (after.topic_regex,) if each], 1)
            self._drop_expressions(group.regexes, counts)
        resolved = {expression: self._resolve(expression) for expression in counts}
        for expression, topics in resolved.items():
            if topics != group.regexes.get(expression):
                changed = True
                self._out.append(
                    records.regex_record(
                        group.group_id,
                        expression,
                        topics,
                        version=self._around.metadata_offset,
                        now_ms=self._around.now_ms,
                    )
                )
        self._regexes = resolved
        return changed

    def _resolve(self, expression: str) -> frozenset[str]:
        """What it describes now: where that was known, only topics that came or went are looked at again."""
        group, exist = self._group, self._around.topics.by_name
        known = group.regexes.get(expression)
        if known is None or (group.refresh and group.touched_topics is None):
            return self._seen(expression, exist)
        if not group.refresh or not group.touched_topics:
            return known
        touched = group.touched_topics
        came = self._seen(expression, (name for name in touched if name in exist))
        return frozenset(name for name in known if name not in touched) | came

    def _seen(self, expression: str, topics: Iterable[str]) -> frozenset[str]:
        may_see = self._around.may_see
        return matching(expression, topics if may_see is None else (name for name in topics if may_see(name)))

    def _drop_expressions(self, resolved: Iterable[str], counts: Mapping[str, int]) -> None:
        self._out += [
            records.regex_tombstone(self._group.group_id, expression)
            for expression in resolved
            if expression not in counts
        ]

    def _follow_topics(self, before: ConsumerMember, after: ConsumerMember, changed: bool) -> None:
        group = self._group
        names = dict(group.name_counts)
        count(names, before.topic_names, -1)
        count(names, after.topic_names, 1)
        metadata_hash = self._hash(names, self._regexes)
        if group.has_partition_metadata:
            self._out.append(records.partition_metadata_tombstone(group.group_id))
        if changed or metadata_hash != group.metadata_hash:
            self._bump(metadata_hash)

    def _bump(self, metadata_hash: int) -> None:
        self._epoch = self._group.epoch + 1
        self._out.append(records.group_record(self._group.group_id, self._epoch, metadata_hash))

    def _hash(self, names: Iterable[str], expressions: Iterable[str]) -> int:
        """Of all topics that somebody is subscribed to and that exist; another one means a new assignment."""
        subscribed = dict.fromkeys(names)
        for expression in expressions:
            subscribed.update(dict.fromkeys(self._regexes.get(expression, ())))
        by_name = self._around.topics.by_name
        topics = [by_name[name] for name in sorted(subscribed) if name in by_name]
        if not topics:
            return 0
        told = b"".join(topic.topic_id + len(topic.partitions).to_bytes(4) for topic in topics)
        (signed,) = _SIGNED.unpack(_UNSIGNED.pack(crc64.xz(told)))
        return int(signed)

    # The target.

    def _target(self, after: ConsumerMember) -> tuple[int, Assignment]:
        """The target of the member and its epoch: a new one if the group's epoch asks for it, and not too soon."""
        group, around = self._group, self._around
        last_ms = group.assignment_timestamp_ms
        too_early = last_ms is not None and 0 <= around.now_ms - last_ms < around.assignment_interval_ms
        if self._epoch <= group.assignment_epoch or too_early:
            return group.assignment_epoch, group.target_of(after)
        members = dict(group.members)
        replaced = group.static_member(after.instance_id)
        if replaced is not None and replaced.member_id != after.member_id:
            del members[replaced.member_id]
        members[after.member_id] = after
        targets = ASSIGNORS[assignor_asked_for(members.values(), around.assignors)](self._spec(members.values()))
        for member_id, target in targets.items():
            if target != group.targets.get(member_id):
                self._out.append(records.target_record(group.group_id, member_id, target))
        self._out.append(records.target_epoch_record(group.group_id, self._epoch, now_ms=around.now_ms))
        return self._epoch, targets.get(after.member_id, NOTHING)

    def _spec(self, members: Iterable[ConsumerMember]) -> GroupSpec:
        known: dict[tuple[frozenset[str], str], tuple[Uuid, ...]] = {}
        specs = []
        for member in members:
            subscription = member.topic_names, member.topic_regex
            topics = known.get(subscription)
            if topics is None:
                topics = known[subscription] = tuple(sorted(self._topic_ids(member)))
            specs.append(MemberSpec(member.member_id, member.instance_id, topics, self._group.target_of(member)))
        by_id = self._around.topics.by_id
        counts = {topic: len(by_id[topic].partitions) for topics in known.values() for topic in topics}
        return GroupSpec(tuple(specs), counts)

    def _topic_ids(self, member: ConsumerMember) -> frozenset[Uuid]:
        names = member.topic_names | self._regexes.get(member.topic_regex, frozenset())
        by_name = self._around.topics.by_name
        return frozenset(by_name[name].topic_id for name in names if name in by_name)

    # The member's own step.

    def _step(
        self, member: ConsumerMember, owned: Owned | None, target_epoch: int, target: Assignment, changed: bool
    ) -> ConsumerMember:
        if member.is_reconciled_to(target_epoch) and not changed:
            return member
        stepped = Reconciliation(
            member,
            target_epoch=target_epoch,
            target=target,
            subscribed=self._topic_ids(member),
            is_free=self._group.is_free,
            owned=owned,
        ).next(subscription_changed=changed)
        if stepped != member:
            self._out.append(records.current_record(self._group.group_id, stepped))
        return stepped
