from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from odradek.coordinator.shard import Timers


def test_a_deadline_is_met_once() -> None:
    timers = Timers()
    timers.set("a", 10)
    assert list(timers.due(9)) == []
    assert list(timers.due(10)) == ["a"]
    assert list(timers.due(100)) == []
    assert timers.next_deadline_ms is None


def test_a_deadline_is_put_off_brought_forward_and_cancelled() -> None:
    timers = Timers()
    timers.set("later", 10)
    timers.set("later", 30)
    timers.set("sooner", 30)
    timers.set("sooner", 5)
    timers.set("never", 8)
    timers.cancel("never")
    timers.cancel("unknown")
    assert timers.next_deadline_ms == 5
    assert list(timers.due(20)) == ["sooner"]
    assert timers.deadline_ms("later") == 30
    assert timers.next_deadline_ms is not None
    assert list(timers.due(30)) == ["later"]


def test_putting_off_takes_no_room() -> None:
    timers = Timers()
    for now_ms in range(10_000):
        timers.set("member", now_ms + 10_000)
    assert len(timers._heap) == 1


def test_equal_deadlines_come_in_the_order_they_were_set() -> None:
    timers = Timers()
    for name in "zab":
        timers.set(name, 10)
    assert list(timers.due(10)) == ["z", "a", "b"]


Steps = st.lists(st.tuples(st.sampled_from("abc"), st.one_of(st.none(), st.integers(0, 50)), st.integers(0, 20)))


@given(Steps)
def test_timers_are_a_dictionary_that_forgets_nothing_in_time(steps: list[tuple[str, int | None, int]]) -> None:
    timers = Timers()
    model: dict[str, int] = {}
    now_ms = 0
    for name, delay_ms, passed_ms in steps:
        if delay_ms is None:
            timers.cancel(name)
            model.pop(name, None)
        else:
            timers.set(name, now_ms + delay_ms)
            model[name] = now_ms + delay_ms
        wanted_ms = timers.next_deadline_ms
        assert not model or (wanted_ms is not None and wanted_ms <= min(model.values()))
        now_ms += passed_ms
        due = sorted(map(str, timers.due(now_ms)))
        assert due == sorted(key for key, deadline_ms in model.items() if deadline_ms <= now_ms)
        for key in due:
            del model[key]
