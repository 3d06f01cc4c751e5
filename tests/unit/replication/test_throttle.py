"""Replication quotas: what a rate is, when it is exceeded and for how long, and whom a list means."""

from __future__ import annotations

import random

import pytest

from odradek.ids import NodeId
from odradek.replication.throttle import UNLIMITED, ByteRate, ReplicationQuota, throttled_partitions

HERE = NodeId(7)


def quota(limit: int, *, windows: int = 11, window_ms: int = 1_000) -> ReplicationQuota:
    made = ReplicationQuota(windows=windows, window_ms=window_ms)
    made.limit = limit
    return made


def test_a_list_names_partitions_of_this_node() -> None:
    found = throttled_partitions(("0:7", "1:8", "02:07", "11:70", ""), HERE)
    assert [index for index in range(20) if index in found] == [0, 2]


def test_a_star_is_every_replica_and_an_empty_list_is_none() -> None:
    assert all(index in throttled_partitions(("*",), HERE) for index in (0, 5, 10_000))
    assert 0 not in throttled_partitions((), HERE)


def test_a_first_burst_is_measured_over_a_whole_window() -> None:
    rate = ByteRate(windows=11, window_ms=1_000)
    assert rate.per_second(0) == 0
    rate.record(500, 0)
    assert rate.per_second(0) == 500
    assert rate.per_second(999) == 500
    assert rate.per_second(2_000) == 250


def test_what_is_old_does_not_count() -> None:
    rate = ByteRate(windows=3, window_ms=1_000)
    rate.record(900, 0)
    rate.record(100, 2_500)
    assert rate.per_second(2_500) == pytest.approx(1000 / 2.5)
    assert rate.per_second(3_000) == pytest.approx(100)  # Since 2,500, but a window at least.
    assert rate.per_second(5_499) == pytest.approx(100 / 2.999)
    assert rate.per_second(5_500) == 0


def test_a_sample_that_reaches_into_the_windows_counts_as_a_whole() -> None:
    rate = ByteRate(windows=2, window_ms=1_000)
    rate.record(100, 0)
    rate.record(100, 900)
    assert rate.per_second(2_800) == pytest.approx(200 / 2.8)
    assert rate.per_second(2_900) == 0


def test_no_more_samples_than_windows_and_one() -> None:
    rate = ByteRate(windows=3, window_ms=1_000)
    for step in range(999):
        rate.record(100, step * 100)
    assert rate.per_second(99_800) == pytest.approx(3_900 / 3.8)


def test_a_quota_without_a_limit_holds_nobody_back() -> None:
    unlimited = quota(UNLIMITED)
    unlimited.record(1 << 50, 0)
    assert unlimited.excess_ms(0) == 0
    assert unlimited.per_second(0) == 1 << 50


def test_the_limit_itself_is_not_too_much() -> None:
    limited = quota(1_000)
    limited.record(1_000, 0)
    assert limited.excess_ms(0) == 0
    limited.record(1, 0)
    assert limited.excess_ms(0) == 1_000  # 1,001 ms in truth: whoever waits looks again after a window.
    assert limited.excess_ms(1_000) == 1
    assert limited.excess_ms(1_001) == 0


def test_a_limit_of_nothing_lets_something_through_when_all_is_forgotten() -> None:
    """As in Kafka, where a rate of 0 is not above a limit of 0."""
    limited = quota(0, windows=2)
    assert limited.excess_ms(0) == 0
    limited.record(1, 0)
    assert limited.excess_ms(0) == limited.excess_ms(1_999) == 1_000
    assert limited.excess_ms(2_000) == 0


def test_a_higher_limit_counts_at_once() -> None:
    limited = quota(10)
    limited.record(1_000, 0)
    assert limited.excess_ms(500) > 0
    limited.limit = 1_000
    assert limited.excess_ms(500) == 0


@pytest.mark.parametrize("seed", range(20))
def test_who_waits_as_told_stays_at_the_limit(seed: int) -> None:
    """Pieces that are taken whenever the quota allows make the limit, give or take a piece and a window.

    They are at most half of what all windows allow. Larger ones are forgotten before their time is over, as in Kafka.
    """
    draw = random.Random(seed)
    limit, windows, window_ms = draw.randrange(1_000, 1_000_000), draw.randrange(4, 12), draw.choice((100, 1_000))
    largest = max(limit * windows * window_ms // 2_000, 2)
    limited = quota(limit, windows=windows, window_ms=window_ms)
    now_ms = start_ms = draw.randrange(1 << 40)
    taken = 0
    for _ in range(200):
        while excess_ms := limited.excess_ms(now_ms):
            assert 0 < excess_ms <= window_ms
            now_ms += excess_ms
        allowed = limit * (now_ms - start_ms + window_ms) / 1000
        assert taken <= allowed + largest
        size = draw.randrange(largest // 2, largest)
        limited.record(size, now_ms)
        taken += size
    assert taken > 0.5 * limit * (now_ms - start_ms) / 1000
