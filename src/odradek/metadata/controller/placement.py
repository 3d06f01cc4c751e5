"""Where replicas go: striped over brokers, and over racks first, as Kafka's default placer does it.

Leaders rotate over all live brokers, followers over the other racks, so that load and the followers of a lost broker's
partitions spread evenly. Fenced brokers take replicas only where live ones do not suffice, and never the first.
"""

from __future__ import annotations

from collections.abc import Iterable, MutableSequence
from typing import TypeVar

from odradek.ids import NodeId
from odradek.metadata.image.cluster import BrokerRegistration
from odradek.ports import Entropy
from odradek.protocol.errors import ErrorCode, KafkaError

ItemT = TypeVar("ItemT")


def place(
    brokers: Iterable[BrokerRegistration], *, partition_count: int, replication_factor: int, entropy: Entropy
) -> list[tuple[NodeId, ...]]:
    """Replicas of that many new partitions, preferred leader first; INVALID_REPLICATION_FACTOR where it cannot be."""
    candidates = [broker for broker in brokers if not _is_leaving(broker) and has_uncordoned_directory(broker)]
    if replication_factor <= 0:
        raise _impossible(f"Invalid replication factor {replication_factor}: the replication factor must be positive.")
    if all(broker.fenced for broker in candidates):
        raise _impossible("All brokers are currently fenced.")
    if replication_factor > len(candidates):
        raise _impossible(
            f"The target replication factor of {replication_factor} cannot be reached because only "
            f"{len(candidates)} broker(s) are registered or some brokers have all their log directories cordoned."
        )
    if len(candidates) == 1:
        return [(candidates[0].broker_id,)] * partition_count
    racks = _Racks(candidates, entropy)
    return [racks.place(replication_factor) for _ in range(partition_count)]


def _is_leaving(broker: BrokerRegistration) -> bool:
    """One that has left, and is fenced for it, is as good as one that was lost: it may come back."""
    return broker.in_controlled_shutdown and not broker.fenced


def has_uncordoned_directory(broker: BrokerRegistration) -> bool:
    """Whether the broker takes new replicas anywhere (KIP-1066)."""
    cordoned = broker.cordoned_log_dirs
    return not cordoned or any(directory not in cordoned for directory in broker.log_dirs)


def _impossible(why: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REPLICATION_FACTOR, why)


class _Ring:
    """Brokers handed out in turn; each partition starts one further than the one before."""

    def __init__(self, brokers: list[NodeId], entropy: Entropy) -> None:
        self.brokers = sorted(brokers)
        self._start = entropy.below(len(brokers)) if brokers else 0
        self._given = 0
        self._partition = 0

    def next(self, partition: int) -> NodeId | None:
        """The next broker for this partition, or None when it has had all of them."""
        count = len(self.brokers)
        if not count:
            return None
        if self._partition != partition:
            self._partition = partition
            self._given = 0
            self._start = (self._start + 1) % count
        if self._given >= count:
            return None
        broker = self.brokers[(self._given + self._start) % count]
        self._given += 1
        return broker


class _Rack:
    def __init__(self, brokers: list[BrokerRegistration], entropy: Entropy) -> None:
        self.live = _Ring([broker.broker_id for broker in brokers if not broker.fenced], entropy)
        self.fenced = _Ring([broker.broker_id for broker in brokers if broker.fenced], entropy)

    def next(self, partition: int) -> NodeId | None:
        live = self.live.next(partition)
        return self.fenced.next(partition) if live is None else live


class _Racks:
    def __init__(self, brokers: list[BrokerRegistration], entropy: Entropy) -> None:
        by_name: dict[str | None, list[BrokerRegistration]] = {}
        for broker in brokers:
            by_name.setdefault(broker.rack, []).append(broker)
        names = sorted(by_name, key=lambda name: (name is not None, name or ""))
        self._racks = [_Rack(by_name[name], entropy) for name in names]
        self._live_count = sum(not broker.fenced for broker in brokers)
        self._entropy = entropy
        self._partition = 0
        self._first = entropy.below(len(self._racks))

    def place(self, replication_factor: int) -> tuple[NodeId, ...]:
        if self._partition == self._live_count and self._live_count > 1:
            self._shuffle()
        count = len(self._racks)
        leader_rack = self._first
        while (leader := self._racks[leader_rack].live.next(self._partition)) is None:
            leader_rack = (leader_rack + 1) % count
        replicas = [leader]
        rack = self._first
        skipped_leader_rack = False
        while len(replicas) < replication_factor:
            if rack == leader_rack and not skipped_leader_rack:
                skipped_leader_rack = True
            else:
                follower = self._racks[rack].next(self._partition)
                if follower is not None:
                    replicas.append(follower)
            rack = (rack + 1) % count
        self._partition += 1
        self._first = (self._first + 1) % count
        return tuple(replicas)

    def _shuffle(self) -> None:
        """All live brokers have led once: another order now, lest a leader always have the same followers."""
        _shuffle_in_place(self._racks, self._entropy)
        for rack in self._racks:
            _shuffle_in_place(rack.live.brokers, self._entropy)
            _shuffle_in_place(rack.fenced.brokers, self._entropy)
        self._partition = 0


def _shuffle_in_place(items: MutableSequence[ItemT], entropy: Entropy) -> None:
    for index in range(len(items) - 1, 0, -1):
        other = entropy.below(index + 1)
        items[index], items[other] = items[other], items[index]
