"""Nodes register, come back as other incarnations, and are forgotten: what is on record then."""

from __future__ import annotations

import pytest
from tests.unit.metadata.building import (
    NodeDescription,
    broker,
    cluster,
    entropy,
    led_by,
    replayed,
    rules,
    the_partition,
    uuid,
    with_elr,
    with_topic,
)

from odradek.ids import NO_NODE, NodeId, Offset
from odradek.metadata.controller.brokers import (
    Registrar,
    live_controller,
    register_broker,
    register_controller,
    unregister_broker,
)
from odradek.metadata.controller.producer_ids import allocate_producer_ids
from odradek.metadata.image import EMPTY_IMAGE, Image
from odradek.metadata.image.cluster import Endpoint, FeatureRange
from odradek.metadata.records import FeatureLevelRecord
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.messages.allocate_producer_ids import AllocateProducerIdsRequest
from odradek.protocol.messages.broker_registration import BrokerRegistrationRequest
from odradek.protocol.messages.unregister_broker import UnregisterBrokerRequest
from odradek.values import replace

NODE = NodeDescription(
    node_id=NodeId(1),
    incarnation_id=uuid(900),
    broker_endpoints=(Endpoint("PLAINTEXT", "localhost", 9092, 0),),
    controller_endpoints=(Endpoint("CONTROLLER", "localhost", 9093, 0),),
    features=(
        FeatureRange("metadata.version", 7, 30),
        FeatureRange("kraft.version", 0, 1),
        FeatureRange("eligible.leader.replicas.version", 0, 1),
    ),
    rack="r",
    log_dirs=(uuid(1001), uuid(1002)),
)
REGISTRAR = Registrar(cluster_id="c", kraft_version=1, alive=False, next_epoch=Offset(70), api_version=4)
EMPTY = replayed(EMPTY_IMAGE, [FeatureLevelRecord(name="metadata.version", feature_level=30)])


def registered(
    image: Image, node: NodeDescription = NODE, registrar: Registrar = REGISTRAR, *, previous: int = -1
) -> Image:
    request = node.as_broker("c", previous_broker_epoch=previous)
    decision = register_broker(image, request, registrar=registrar, rules=rules(image))
    return replayed(image, decision.records)


def refusal(image: Image, request: BrokerRegistrationRequest, registrar: Registrar = REGISTRAR) -> ErrorCode:
    with pytest.raises(KafkaError) as refused:
        register_broker(image, request, registrar=registrar, rules=rules(image))
    return refused.value.code


def test_a_broker_comes_in_fenced() -> None:
    (known,) = registered(EMPTY).cluster.brokers.values()
    assert (known.broker_epoch, known.incarnation_id, known.rack) == (70, uuid(900), "r")
    assert (known.fenced, known.in_controlled_shutdown, known.cordoned_log_dirs) == (True, False, None)
    assert known.log_dirs == (uuid(1001), uuid(1002))
    assert known.endpoint("PLAINTEXT") == Endpoint("PLAINTEXT", "localhost", 9092, 0)
    assert known.features == NODE.features


def test_an_old_cluster_keeps_no_directories_and_no_controllers() -> None:
    old = cluster(broker(2), metadata_version=13)
    assert registered(old).cluster.brokers[NodeId(1)].log_dirs == ()
    with pytest.raises(KafkaError) as refused:
        register_controller(old, NODE.as_controller())
    assert refused.value.code is ErrorCode.UNSUPPORTED_VERSION


def test_a_controller_is_put_on_record() -> None:
    image = replayed(EMPTY, register_controller(EMPTY, NODE.as_controller()).records)
    (known,) = image.cluster.controllers.values()
    assert (known.controller_id, known.incarnation_id, known.features) == (1, uuid(900), NODE.features)
    assert known.endpoint("CONTROLLER") == Endpoint("CONTROLLER", "localhost", 9093, 0)


def test_a_duplicate_is_refused_while_the_first_is_alive() -> None:
    image = registered(EMPTY)
    alive = replace(REGISTRAR, alive=True, next_epoch=Offset(90))
    second = replace(NODE, incarnation_id=uuid(901))
    assert refusal(image, second.as_broker("c"), alive) is ErrorCode.DUPLICATE_BROKER_REGISTRATION
    assert registered(image, NODE, alive).cluster.brokers[NodeId(1)].broker_epoch == 70
    dead = replace(alive, alive=False)
    assert registered(image, second, dead).cluster.brokers[NodeId(1)].broker_epoch == 90


def test_the_same_incarnation_may_tell_other_addresses_and_stays_what_it_is() -> None:
    image = cluster(broker(1))
    moved = replace(NODE, incarnation_id=image.cluster.brokers[NodeId(1)].incarnation_id)
    known = registered(image, moved, replace(REGISTRAR, alive=True)).cluster.brokers[NodeId(1)]
    assert (known.broker_epoch, known.fenced) == (1, False)
    assert known.endpoints == NODE.broker_endpoints


@pytest.mark.parametrize(
    ("code", "given"),
    [
        (ErrorCode.INCONSISTENT_CLUSTER_ID, {"cluster_id": "another"}),
        (ErrorCode.BROKER_ID_NOT_REGISTERED, {"is_migrating_zk_broker": True}),
        (ErrorCode.INVALID_REGISTRATION, {"log_dirs": []}),
        (ErrorCode.INVALID_REGISTRATION, {"log_dirs": [uuid(100)]}),
        (ErrorCode.INVALID_REGISTRATION, {"log_dirs": [uuid(1001), uuid(1001)]}),
        (ErrorCode.INVALID_REGISTRATION, {"log_dirs": [uuid(2001)]}),
        (ErrorCode.INVALID_REGISTRATION, {"features": []}),
    ],
)
def test_what_is_refused(code: ErrorCode, given: dict[str, object]) -> None:
    request = NODE.as_broker("c")
    for name, text in given.items():
        setattr(request, name, text)
    assert refusal(cluster(broker(2)), request) is code


@pytest.mark.parametrize(
    ("features", "finalized", "accepted"),
    [
        ((("metadata.version", 7, 29), ("kraft.version", 0, 1)), {}, False),
        ((("metadata.version", 7, 30),), {}, False),  # kraft.version 1 is finalized.
        ((("metadata.version", 7, 30), ("kraft.version", 0, 1)), {"group.version": 1}, False),
        ((("metadata.version", 7, 30), ("kraft.version", 0, 1), ("group.version", 0, 1)), {"group.version": 1}, True),
        ((("metadata.version", 7, 30), ("kraft.version", 0, 1), ("new.version", 1, 2)), {}, False),
        # Finalized by another implementation: nothing that this controller could ask for.
        ((("metadata.version", 7, 30), ("kraft.version", 0, 1)), {"share.version": 1}, True),
    ],
)
def test_every_finalized_level_must_be_one_the_broker_can_work_with(
    features: tuple[tuple[str, int, int], ...], finalized: dict[str, int], accepted: bool
) -> None:
    image = replayed(EMPTY, [FeatureLevelRecord(name=name, feature_level=level) for name, level in finalized.items()])
    node = replace(NODE, features=tuple(FeatureRange(*each) for each in features))
    if accepted:
        assert NodeId(1) in registered(image, node).cluster.brokers
    else:
        assert refusal(image, node.as_broker("c")) is ErrorCode.UNSUPPORTED_VERSION


class TestAnotherIncarnation:
    """It has to prove anew what its predecessor was in sync with."""

    image = with_topic(
        cluster(broker(1), broker(2), broker(3)), led_by(1, [1, 2, 3]), led_by(2, [2, 1]), led_by(1, [1])
    )

    def test_it_leaves_every_isr_and_leads_nothing(self) -> None:
        after = registered(self.image).topics.by_name["t"].partitions
        assert [(each.leader, each.isr) for each in after] == [(2, (2, 3)), (2, (2,)), (NO_NODE, (1,))]

    def test_a_clean_stop_leaves_it_eligible(self) -> None:
        image = with_elr(self.image)
        clean = registered(image, previous=1)
        assert (the_partition(clean, 2).isr, the_partition(clean, 2).elr) == ((), (1,))

    def test_after_an_unclean_one_it_is_neither_in_sync_nor_eligible(self) -> None:
        image = with_elr(
            with_topic(
                cluster(broker(1), broker(2)), led_by(1, [1]), led_by(2, [1, 2], [2], eligible_leader_replicas=[1])
            )
        )
        for registrar, previous in ((REGISTRAR, -1), (REGISTRAR, 2), (replace(REGISTRAR, api_version=2), 1)):
            after = registered(image, registrar=registrar, previous=previous)
            assert (the_partition(after).isr, the_partition(after).elr) == ((), ())
            assert (the_partition(after).leader, the_partition(after).last_known_elr) == (NO_NODE, (1,))
            assert the_partition(after, 1).elr == ()

    def test_the_registration_comes_last(self) -> None:
        decision = register_broker(self.image, NODE.as_broker("c"), registrar=REGISTRAR, rules=rules(self.image))
        assert [type(record).__name__ for record in decision.records][-2:] == [
            "PartitionChangeRecord",
            "RegisterBrokerRecord",
        ]


def test_a_broker_is_forgotten() -> None:
    image = with_topic(cluster(broker(1), broker(2)), led_by(1, [1, 2]))
    decision = unregister_broker(image, UnregisterBrokerRequest(broker_id=1), rules=rules(image))
    after = replayed(image, decision.records)
    assert list(after.cluster.brokers) == [2]
    assert (the_partition(after).leader, the_partition(after).isr) == (2, (2,))
    with pytest.raises(KafkaError) as refused:
        unregister_broker(after, UnregisterBrokerRequest(broker_id=1), rules=rules(after))
    assert refused.value.code is ErrorCode.BROKER_ID_NOT_REGISTERED


def test_clients_are_told_of_a_live_broker_as_controller() -> None:
    assert live_controller(EMPTY, NodeId(2), entropy()) == NO_NODE
    image = cluster(broker(1, fenced=True), broker(2), broker(3))
    assert {live_controller(image, NodeId(9), entropy(seed)) for seed in range(20)} == {2, 3}
    assert {live_controller(image, NodeId(3), entropy(seed)) for seed in range(20)} == {3}


def test_producer_ids_come_in_blocks_that_never_overlap() -> None:
    image = cluster(broker(1))
    firsts = []
    for _ in range(3):
        decision = allocate_producer_ids(image, AllocateProducerIdsRequest(broker_id=1, broker_epoch=1))
        ((_, block),) = decision.answers
        assert block.producer_id_len == 1000
        firsts.append(block.producer_id_start)
        image = replayed(image, decision.records)
    assert firsts == [0, 1000, 2000]


@pytest.mark.parametrize(("broker_id", "epoch"), [(9, 7), (1, 6)])
def test_only_registered_brokers_get_producer_ids(broker_id: int, epoch: int) -> None:
    with pytest.raises(KafkaError) as refused:
        allocate_producer_ids(cluster(broker(1)), AllocateProducerIdsRequest(broker_id=broker_id, broker_epoch=epoch))
    assert refused.value.code is ErrorCode.STALE_BROKER_EPOCH
