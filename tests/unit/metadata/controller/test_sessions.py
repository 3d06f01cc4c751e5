"""When a broker was heard of last, and what follows from silence."""

from __future__ import annotations

from tests.unit.metadata.building import broker

from odradek.ids import NodeId, Offset
from odradek.metadata.controller.sessions import BrokerSessions

ONE, TWO = NodeId(1), NodeId(2)


def sessions() -> BrokerSessions:
    made = BrokerSessions(9_000)
    made.start([broker(1), broker(2), broker(3, fenced=True)], myself=TWO, now_ms=100)
    return made


def test_a_new_controller_gives_everybody_a_whole_session() -> None:
    known = sessions()
    assert known.next_deadline_ms() == 9_101
    assert known.expired(now_ms=9_100) == []
    assert known.expired(now_ms=9_101) == [(ONE, 1), (TWO, 2)]
    assert known.expired(now_ms=9_200) == []
    assert known.next_deadline_ms() is None


def test_a_heartbeat_prolongs_it() -> None:
    known = sessions()
    known.heard(ONE, 1, now_ms=5_000)
    assert known.expired(now_ms=9_200) == [(TWO, 2)]
    assert known.alive(ONE, 1, now_ms=14_000)
    assert not known.alive(ONE, 1, now_ms=14_001)


def test_only_the_incarnation_that_spoke_is_alive() -> None:
    known = sessions()
    known.heard(ONE, 7, now_ms=200)
    assert known.alive(ONE, 7, now_ms=300)
    assert not known.alive(ONE, 1, now_ms=300)
    known.end(ONE)
    assert not known.alive(ONE, 7, now_ms=300)


def test_the_broker_of_this_process_holds_its_id_only_once_it_has_spoken() -> None:
    known = sessions()
    assert known.alive(ONE, 1, now_ms=200)
    assert not known.alive(TWO, 2, now_ms=200)
    known.heard(TWO, 2, now_ms=200)
    assert known.alive(TWO, 2, now_ms=200)


def test_a_node_that_stood_still_blames_nobody() -> None:
    known = sessions()
    known.begin_anew(now_ms=20_000)
    assert known.expired(now_ms=29_000) == []
    assert known.next_deadline_ms() == 29_001


def test_a_broker_may_stop_once_all_others_have_heard() -> None:
    known = sessions()
    known.shut_down_after(ONE, Offset(50))
    known.shut_down_after(ONE, Offset(90))
    assert known.shutting_down(ONE, 1) == 50
    assert known.shutting_down(ONE, 9) is None
    others = [broker(2)]
    assert not known.all_reached(Offset(50), others)
    known.reached(TWO, Offset(49))
    assert not known.all_reached(Offset(50), others)
    known.reached(TWO, Offset(50))
    assert known.all_reached(Offset(50), others)
    assert not known.all_reached(Offset(50), [*others, broker(4)])
    known.heard(ONE, 2, now_ms=300)
    assert known.shutting_down(ONE, 2) is None


def test_one_that_stops_itself_is_not_waited_for() -> None:
    known = sessions()
    known.shut_down_after(TWO, Offset(60))
    assert known.all_reached(Offset(50), [broker(2)])
