"""How a member gets from what it holds to what it shall hold: give up first, take what is free, wait for the rest.

No partition is ever owned by two members. A member that has to give something up stays at its epoch until it says,
in the partitions it reports, that it has done so; one that waits for others goes on to the new epoch with what is free.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping

from odradek.coordinator.group.assignors.spec import Assignment
from odradek.coordinator.group.consumer_member import HOLDS_NOTHING, NOT_HELD, ConsumerMember, Held, MemberState
from odradek.ids import Uuid
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.values import replace


class Reconciliation:
    """One step of one member towards the target."""

    def __init__(
        self,
        member: ConsumerMember,
        *,
        target_epoch: int,
        target: Assignment,
        subscribed: Collection[Uuid],
        is_free: Callable[[Uuid, int], bool],
        owned: Mapping[Uuid, Iterable[int]] | None,
    ) -> None:
        """`owned` is what the member says it has, None if it does not say; `subscribed` are topics that exist."""
        self._member = member
        self._target_epoch = target_epoch
        self._target = target
        self._subscribed = subscribed
        self._is_free = is_free
        self._owned = owned

    def next(self, *, subscription_changed: bool) -> ConsumerMember:
        member = self._member
        match member.state:
            case MemberState.STABLE:
                if member.member_epoch != self._target_epoch:
                    return self._towards_target(member.member_epoch)
                return self._drop_unsubscribed() if subscription_changed else member
            case MemberState.UNREVOKED_PARTITIONS:
                if self._still_owns(member.pending_revocation):
                    return self._drop_unsubscribed() if subscription_changed else member
                return self._towards_target(member.member_epoch)
            case MemberState.UNRELEASED_PARTITIONS:
                return self._towards_target(member.member_epoch)
            case MemberState.UNKNOWN:
                if self._owned is None or self._owned:
                    raise KafkaError(
                        ErrorCode.FENCED_MEMBER_EPOCH,
                        "The consumer group member is in a unknown state. "
                        "The member must abandon all its partitions and rejoin.",
                    )
                return self._towards_target(self._target_epoch)

    def _towards_target(self, member_epoch: int) -> ConsumerMember:
        kept: dict[Uuid, dict[int, int]] = {}
        revoked: dict[Uuid, dict[int, int]] = {}
        for topic, held in self._member.assigned.items():
            wanted = frozenset(self._target.get(topic, ()) if topic in self._subscribed else ())
            stay = {index: epoch for index, epoch in held.items() if index in wanted}
            go = {index: epoch for index, epoch in held.items() if index not in stay}
            if stay:
                kept[topic] = stay
            if go:
                revoked[topic] = go
        if revoked and self._still_owns(revoked):
            return replace(
                self._member,
                state=MemberState.UNREVOKED_PARTITIONS,
                **_epochs(self._member, member_epoch),
                assigned=kept,
                pending_revocation=revoked,
            )
        all_released = self._take_free(kept)
        return replace(
            self._member,
            state=MemberState.STABLE if all_released else MemberState.UNRELEASED_PARTITIONS,
            **_epochs(self._member, self._target_epoch),
            assigned=kept,
            pending_revocation=HOLDS_NOTHING,
        )

    def _take_free(self, kept: dict[Uuid, dict[int, int]]) -> bool:
        """Add the partitions of the target that nobody has; whether there were no others."""
        all_released = True
        pending = self._member.pending_revocation
        for topic, wanted in self._target.items():
            if topic not in self._subscribed:
                continue
            has = kept.get(topic, NOT_HELD)
            just_revoked = pending.get(topic, NOT_HELD)
            missing = [index for index in wanted if index not in has]
            free = [index for index in missing if index in just_revoked or self._is_free(topic, index)]
            if free:
                kept.setdefault(topic, {}).update(dict.fromkeys(free, self._target_epoch))
            all_released &= len(free) == len(missing)
        return all_released

    def _drop_unsubscribed(self) -> ConsumerMember:
        """Nothing new to be had yet, but what the member does not want any more it shall give up at once."""
        member = self._member
        kept = {topic: held for topic, held in member.assigned.items() if topic in self._subscribed}
        if len(kept) == len(member.assigned):
            return member
        revoked = {topic: dict(held) for topic, held in member.pending_revocation.items()}
        for topic, held in member.assigned.items():
            if topic not in self._subscribed:
                revoked.setdefault(topic, {}).update(held)
        epochs = _epochs(member, member.member_epoch)
        if self._still_owns(revoked):
            return replace(
                member,
                state=MemberState.UNREVOKED_PARTITIONS,
                **epochs,
                assigned=kept,
                pending_revocation=revoked,
            )
        return replace(member, **epochs, assigned=kept)

    def _still_owns(self, revoked: Held) -> bool:
        """A member that does not say what it owns may own all of it."""
        if self._owned is None:
            return True
        return any(index in revoked.get(topic, NOT_HELD) for topic, some in self._owned.items() for index in some)


def _epochs(member: ConsumerMember, member_epoch: int) -> dict[str, int]:
    """The one it leaves is remembered: an answer that got lost makes the member come with it once more."""
    return {"member_epoch": member_epoch, "previous_member_epoch": member.member_epoch}
