"""What every kind of group answers, so that offsets, lists and deletions need not know the kind."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

from odradek.coordinator.shard import CoordinatorRecord


class Group(ABC):
    """One group of members, or only of offsets."""

    type_name: ClassVar[str]
    """As ListGroups says it: `classic` or `consumer`."""

    group_id: str

    @property
    @abstractmethod
    def state_name(self) -> str:
        """As ListGroups and the describing APIs say it."""

    @property
    @abstractmethod
    def protocol_type_name(self) -> str:
        """As ListGroups says it; empty where the group has never had members."""

    @property
    @abstractmethod
    def is_empty(self) -> bool:
        """Whether it may be deleted, or replaced by a group of another kind."""

    @property
    @abstractmethod
    def awaits_members(self) -> bool:
        """Whether somebody was told an id to join with, so that an empty group must not go yet."""

    @abstractmethod
    def check_offset_commit(
        self, *, member_id: str, instance_id: str | None, generation_id: int, api_version: int, transactional: bool
    ) -> None:
        """KafkaError unless this member may commit.

        In a transaction it need not say who it is, since old producers could not (KIP-447); if it does, it is checked.
        """

    @abstractmethod
    def check_offset_fetch(self, *, member_id: str | None, member_epoch: int) -> None:
        """KafkaError unless this member may read the group's offsets."""

    @abstractmethod
    def check_offset_delete(self) -> None:
        """KafkaError unless offsets of topics that nobody is subscribed to may be deleted."""

    @abstractmethod
    def check_delete(self) -> None:
        """KafkaError (NON_EMPTY_GROUP) while there are members."""

    @abstractmethod
    def is_subscribed_to(self, topic: str) -> bool:
        """Whether offsets of the topic are in use."""

    @abstractmethod
    def offsets_unused_since_ms(self, commit_timestamp_ms: int) -> int | None:
        """From when on the retention of an offset counts; None while it may not expire at all."""

    @abstractmethod
    def tombstones(self) -> list[CoordinatorRecord]:
        """What deletes the group from the log."""
