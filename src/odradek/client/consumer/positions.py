"""Which partitions a consumer reads, and how far it is in each."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from odradek.client.cluster import TopicPartition
from odradek.client.consumer.records import FetchedRecords
from odradek.client.errors import Misused
from odradek.client.offsets import CommittedOffset
from odradek.ids import ZERO_UUID, Uuid

NOWHERE = -1


class PartitionState:
    """One partition that is read."""

    __slots__ = (
        "buffer",
        "high_watermark",
        "is_fetching",
        "is_paused",
        "last_stable_offset",
        "leader_epoch",
        "position",
        "preferred_replica",
        "reset_to",
        "retry_at_ms",
        "topic_id",
    )

    def __init__(self) -> None:
        self.position = NOWHERE
        """The next offset to hand out."""
        self.leader_epoch = -1
        """The epoch of the last record handed out."""
        self.topic_id: Uuid = ZERO_UUID
        """Of the topic in which that is the position: of another one with the same name it says nothing."""
        self.reset_to: int | None = None
        """A timestamp, or what ListOffsets takes in place of one, to start at once it is known."""
        self.is_paused = False
        self.is_fetching = False
        self.retry_at_ms = 0
        self.buffer: FetchedRecords | None = None
        self.high_watermark = NOWHERE
        self.last_stable_offset = NOWHERE
        self.preferred_replica: int | None = None

    def move_to(self, offset: int) -> None:
        """Go on there, whatever was fetched before."""
        self.position = offset
        self.leader_epoch = -1
        self.topic_id = ZERO_UUID
        self.reset_to = None
        self.buffer = None
        self.retry_at_ms = 0

    def reset(self, timestamp: int) -> None:
        """Go on where ListOffsets says."""
        self.move_to(NOWHERE)
        self.reset_to = timestamp


class Positions:
    """The assignment: partitions in the order they were assigned."""

    def __init__(self) -> None:
        self._states: dict[TopicPartition, PartitionState] = {}

    def __iter__(self) -> Iterator[TopicPartition]:
        return iter(self._states)

    def __len__(self) -> int:
        return len(self._states)

    def items(self) -> list[tuple[TopicPartition, PartitionState]]:
        return list(self._states.items())

    def get(self, partition: TopicPartition) -> PartitionState | None:
        return self._states.get(partition)

    def __getitem__(self, partition: TopicPartition) -> PartitionState:
        state = self._states.get(partition)
        if state is None:
            raise Misused(f"{partition} is not assigned to this consumer")
        return state

    def replace(self, partitions: Collection[TopicPartition]) -> None:
        """Read exactly these; those that were read already keep their positions."""
        before = self._states
        self._states = {partition: before.get(partition) or PartitionState() for partition in partitions}

    def rotate(self, partition: TopicPartition) -> None:
        """Let another partition come first next time, so that none starves behind a busy one."""
        state = self._states.pop(partition)
        self._states[partition] = state

    def consumed(self) -> dict[TopicPartition, CommittedOffset]:
        """What a commit without arguments commits."""
        return {
            partition: CommittedOffset(state.position, state.leader_epoch)
            for partition, state in self._states.items()
            if state.position != NOWHERE
        }
