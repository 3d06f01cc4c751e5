"""Placement: no broker twice, racks first, leaders spread evenly."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.metadata.building import broker, entropy

from odradek.metadata.controller.placement import place
from odradek.metadata.image.cluster import BrokerRegistration
from odradek.protocol.errors import ErrorCode, KafkaError

brokers = st.lists(st.tuples(st.sampled_from([None, "a", "b", "c"]), st.booleans()), min_size=1, max_size=8).map(
    lambda drawn: [broker(number, rack=rack, fenced=fenced) for number, (rack, fenced) in enumerate(drawn)]
)


@given(brokers, st.integers(1, 8), st.integers(0, 1000))
def test_every_placement_is_sound(registered: list[BrokerRegistration], replication_factor: int, seed: int) -> None:
    live = {each.broker_id for each in registered if not each.fenced}
    possible = bool(live) and replication_factor <= len(registered)
    if not possible:
        with pytest.raises(KafkaError) as impossible:
            place(registered, partition_count=1, replication_factor=replication_factor, entropy=entropy(seed))
        assert impossible.value.code is ErrorCode.INVALID_REPLICATION_FACTOR
        return
    placed = place(registered, partition_count=20, replication_factor=replication_factor, entropy=entropy(seed))
    rack_of = {each.broker_id: each.rack for each in registered}
    rack_count = len(set(rack_of.values()))
    for replicas in placed:
        assert len(set(replicas)) == len(replicas) == replication_factor
        assert replicas[0] in live
        assert len({rack_of[each] for each in replicas}) >= min(replication_factor, rack_count) - 1


def test_leaders_rotate_over_all_live_brokers() -> None:
    registered = [broker(number) for number in range(5)]
    placed = place(registered, partition_count=50, replication_factor=3, entropy=entropy(3))
    assert set(Counter(replicas[0] for replicas in placed).values()) == {10}
    assert max(Counter(each for replicas in placed for each in replicas).values()) <= 35


def test_replicas_are_in_different_racks() -> None:
    registered = [broker(number, rack="abc"[number % 3]) for number in range(6)]
    for replicas in place(registered, partition_count=30, replication_factor=3, entropy=entropy(1)):
        assert {each % 3 for each in replicas} == {0, 1, 2}


def test_brokers_that_shut_down_get_nothing() -> None:
    registered = [broker(1), broker(2, shutting_down=True)]
    assert place(registered, partition_count=4, replication_factor=1, entropy=entropy()) == [(1,)] * 4


def test_brokers_that_have_shut_down_are_registered_all_the_same() -> None:
    registered = [broker(1), broker(2), broker(3, shutting_down=True, fenced=True)]
    for replicas in place(registered, partition_count=4, replication_factor=3, entropy=entropy()):
        assert sorted(replicas) == [1, 2, 3]
        assert replicas[0] != 3


def test_one_draw_one_placement() -> None:
    registered = [broker(number) for number in range(5)]

    def once() -> list[tuple[int, ...]]:
        return list(place(registered, partition_count=20, replication_factor=2, entropy=entropy(9)))

    assert once() == once()
