"""The way of a broker from its registration to its end, heartbeat by heartbeat."""

from __future__ import annotations

import pytest
from tests.unit.metadata.building import (
    broker,
    cluster,
    led_by,
    replayed,
    rules,
    the_partition,
    uuid,
    with_topic,
)

from odradek.ids import NO_NODE, NodeId, Offset
from odradek.metadata.controller.heartbeats import broker_heartbeat, unchanged
from odradek.metadata.controller.sessions import BrokerSessions
from odradek.metadata.image import Image
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse

REGISTERED_AT = Offset(20)


class Cluster:
    """An image that follows what is decided."""

    def __init__(self, image: Image) -> None:
        self.image = image
        self.sessions = BrokerSessions(9_000)
        self.sessions.start(image.cluster.brokers.values(), myself=NO_NODE, now_ms=0)

    def heartbeat(self, broker_id: int, *, offset: int = 20, **wants: object) -> BrokerHeartbeatResponse:
        asked = heartbeat(broker_id, offset=offset, **wants)
        self.sessions.heard(NodeId(broker_id), broker_id, now_ms=0)
        self.sessions.reached(NodeId(broker_id), Offset(offset))
        decision = broker_heartbeat(
            self.image, asked, sessions=self.sessions, rules=rules(self.image), registered_at=REGISTERED_AT
        )
        quick = unchanged(self.image, asked, sessions=self.sessions, registered_at=REGISTERED_AT)
        assert quick is None or (quick == decision.answers[0][1] and not decision.records)
        self.image = replayed(self.image, decision.records)
        return decision.answers[0][1]


def heartbeat(broker_id: int, *, offset: int = 20, epoch: int | None = None, **wants: object) -> BrokerHeartbeatRequest:
    fields: dict[str, object] = {"want_fence": False, "want_shut_down": False, **wants}
    return BrokerHeartbeatRequest(
        broker_id=broker_id,
        broker_epoch=broker_id if epoch is None else epoch,
        current_metadata_offset=offset,
        **fields,  # type: ignore[arg-type]
    )


def outcome(response: BrokerHeartbeatResponse) -> tuple[bool, bool, bool]:
    return response.is_caught_up, response.is_fenced, response.should_shut_down


def test_a_broker_is_unfenced_once_it_wants_to_be_and_has_caught_up() -> None:
    known = Cluster(with_topic(cluster(broker(1, fenced=True)), led_by(-1, [1])))
    assert outcome(known.heartbeat(1, offset=19)) == (False, True, False)
    assert outcome(known.heartbeat(1, want_fence=True)) == (True, True, False)
    assert outcome(known.heartbeat(1)) == (True, False, False)
    assert the_partition(known.image).leader == 1
    assert unchanged(known.image, heartbeat(1), sessions=known.sessions, registered_at=REGISTERED_AT) is not None


def test_a_broker_of_another_epoch_is_sent_away() -> None:
    known = Cluster(cluster(broker(1)))
    for wrong in (heartbeat(1, epoch=0), heartbeat(1, epoch=2), heartbeat(9)):
        for ask in (
            lambda wrong=wrong: broker_heartbeat(
                known.image, wrong, sessions=known.sessions, rules=rules(known.image), registered_at=REGISTERED_AT
            ),
            lambda wrong=wrong: unchanged(known.image, wrong, sessions=known.sessions, registered_at=REGISTERED_AT),
        ):
            with pytest.raises(KafkaError) as refused:
                ask()
            assert refused.value.code is ErrorCode.STALE_BROKER_EPOCH


def test_leaders_move_before_a_broker_stops() -> None:
    known = Cluster(with_topic(cluster(broker(1), broker(2)), led_by(1, [1, 2]), led_by(1, [1])))
    assert outcome(known.heartbeat(1, want_shut_down=True)) == (True, False, False)
    assert [each.leader for each in known.image.topics.by_name["t"].partitions] == [2, NO_NODE]
    assert known.image.cluster.brokers[NodeId(1)].in_controlled_shutdown
    known.sessions.shut_down_after(NodeId(1), Offset(30))
    assert outcome(known.heartbeat(1, want_shut_down=True)) == (True, False, False)
    known.heartbeat(2, offset=30)
    assert outcome(known.heartbeat(1, want_shut_down=True)) == (True, True, True)
    assert known.image.cluster.brokers[NodeId(1)].fenced


def test_a_broker_that_leads_nothing_stops_at_once() -> None:
    known = Cluster(with_topic(cluster(broker(1), broker(2)), led_by(2, [1, 2])))
    assert outcome(known.heartbeat(1, want_shut_down=True)) == (True, True, True)
    assert the_partition(known.image).isr == (2,)
    assert outcome(known.heartbeat(1, want_shut_down=True)) == (True, True, True)


def test_a_broker_may_ask_to_be_fenced() -> None:
    known = Cluster(with_topic(cluster(broker(1), broker(2)), led_by(1, [1, 2])))
    assert outcome(known.heartbeat(1, want_fence=True)) == (True, True, False)
    assert the_partition(known.image).leader == 2
    known = Cluster(cluster(broker(1)))
    assert outcome(known.heartbeat(1, want_fence=True, want_shut_down=True)) == (True, True, True)


def test_a_lost_directory_takes_its_replicas_out() -> None:
    known = Cluster(
        with_topic(
            cluster(broker(1, log_dirs=2), broker(2)),
            led_by(1, [1, 2], directories=[uuid(1001), uuid(2001)]),
            led_by(1, [1, 2], directories=[uuid(1002), uuid(2001)]),
        )
    )
    known.heartbeat(1, offline_log_dirs=[uuid(1002), uuid(7)])
    assert [(each.leader, each.isr) for each in known.image.topics.by_name["t"].partitions] == [(1, (1, 2)), (2, (2,))]
    assert known.image.cluster.brokers[NodeId(1)].log_dirs == (uuid(1001),)
    before = known.image
    known.heartbeat(1, offline_log_dirs=[uuid(1002)])
    assert known.image.cluster.brokers == before.cluster.brokers


def test_cordoned_directories_are_put_on_record_where_the_cluster_can() -> None:
    known = Cluster(cluster(broker(1)))
    known.heartbeat(1, cordoned_log_dirs=[uuid(9), uuid(8)])
    assert known.image.cluster.brokers[NodeId(1)].cordoned_log_dirs == (uuid(8), uuid(9))
    old = Cluster(cluster(broker(1), metadata_version=29))
    old.heartbeat(1, cordoned_log_dirs=[uuid(8)])
    assert old.image.cluster.brokers[NodeId(1)].cordoned_log_dirs is None
