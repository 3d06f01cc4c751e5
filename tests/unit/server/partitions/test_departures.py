"""Brokers that went a moment ago are named a little longer."""

from __future__ import annotations

from tests.unit.metadata.building import broker, cluster

from odradek.server.partitions.departures import NAMED_FOR_MS, Departures


class FakeClock:
    """Stands still."""

    def __init__(self) -> None:
        self.now = 1_000

    def now_ms(self) -> int:
        return self.now

    def monotonic_ms(self) -> int:
        return self.now


def test_a_fenced_broker_is_named_for_a_while() -> None:
    clock = FakeClock()
    departures = Departures(clock)
    both = cluster(broker(1), broker(2)).cluster
    one = cluster(broker(1), broker(2, fenced=True)).cluster
    departures.note(both, both)
    assert departures.still_named() == []
    departures.note(both, one)
    assert [each.broker_id for each in departures.still_named()] == [2]
    departures.note(one, one)
    assert [each.fenced for each in departures.still_named()] == [False]
    clock.now += NAMED_FOR_MS
    assert departures.still_named() == []


def test_one_that_is_back_or_was_removed_is_not() -> None:
    departures = Departures(FakeClock())
    both = cluster(broker(1), broker(2)).cluster
    one = cluster(broker(1), broker(2, fenced=True)).cluster
    departures.note(both, one)
    departures.note(one, both)
    assert departures.still_named() == []
    departures.note(both, one)
    departures.note(one, cluster(broker(1)).cluster)
    assert departures.still_named() == []
