"""What a table remembers of topics and of deletions, without Spark."""

from __future__ import annotations

from odradek.apps.pipelines.tables import incarnations, next_fence
from odradek.client.cluster import TopicPartition

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


def test_topics_are_known_by_their_ids() -> None:
    assert incarnations({}, {"t": "A"}) == {"t": ["A"]}
    assert incarnations({"t": ["A"]}, {"t": "A", "u": "U"}) == {"t": ["A"], "u": ["U"]}
    assert incarnations({"t": ["A"]}, {"t": "B"}) == {"t": ["A", "B"]}
    assert incarnations({"t": ["A", "B"]}, {}) == {"t": ["A", "B"]}, "a topic that is not read any more"
    assert incarnations({"t": ["#0"]}, {"t": "#1"}) == {"t": ["#0", "#1"]}
    assert incarnations({"t": ["#0", "#1"]}, {"t": "A"}) == {"t": ["#0", "A"]}, "brokers have learnt to tell ids"


def test_deletions_are_forgotten_behind_the_slowest_partition() -> None:
    asked_too_early = {T0: 90, T1: 4}
    assert next_fence(None, -1, number=3, positions={T0: 10, T1: 5}, ends=asked_too_early) == (None, -1)
    assert next_fence(None, -1, number=3, positions={T0: 10, T1: 5}, ends={T0: 90}) == (None, -1), "an end is not known"
    fence, passed = next_fence(None, -1, number=3, positions={T0: 10, T1: 5}, ends={T0: 90, T1: 5})
    assert (fence, passed) == ({"upto": 3, "ends": {"t-0": 90, "t-1": 5}}, -1)
    ends = {T0: 120, T1: 9}
    assert next_fence(fence, passed, number=4, positions={T0: 89, T1: 9}, ends=ends) == (fence, -1)
    assert next_fence(fence, passed, number=4, positions=None, ends=ends) == (None, -1), "nobody knows"
    later, passed = next_fence(fence, passed, number=5, positions={T0: 90, T1: 9}, ends=ends)
    assert (later, passed) == ({"upto": 5, "ends": {"t-0": 120, "t-1": 9}}, 3)
    gone, passed = next_fence(later, passed, number=6, positions={T1: 9}, ends=ends)
    assert passed == 5, "a partition that is not there any more holds nothing back"
    assert gone == {"upto": 6, "ends": {"t-1": 9}}
