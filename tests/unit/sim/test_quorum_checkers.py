"""The checkers of what nodes agree on, each by itself: a history that keeps its promise passes, one that breaks it is
told."""

from __future__ import annotations

from odradek.ids import LeaderEpoch, Offset, Uuid
from odradek.metadata.image import EMPTY_IMAGE, Delta, Image, Provenance
from odradek.metadata.records import (
    BrokerRegistrationChangeRecord,
    ClientQuotaRecord,
    ConfigRecord,
    EntityData,
    PartitionChangeRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RegisterBrokerRecord,
    TopicRecord,
    UnregisterBrokerRecord,
)
from odradek.protocol.codec import Message
from odradek.sim import facts
from odradek.sim.checkers import (
    answered_kept,
    check,
    committed_same,
    epochs_forward,
    fenced_leads_nothing,
    living_keep_sessions,
    one_leader,
    one_vote,
    own_epoch_first,
    producer_ids_once,
    quorum_settles,
    unfenced_knows_itself,
)
from odradek.sim.history import (
    Batch,
    ChangeAnswered,
    ChangeSent,
    Committed,
    Event,
    Fact,
    History,
    LeaderKnown,
    NodeView,
    PowerLost,
    ProducerIdGiven,
    Promised,
    QuorumSettled,
    TakenForDead,
    Truncated,
)
from odradek.values import replace

TOPIC_ID = Uuid(b"0123456789abcdef")
RETENTION = Fact(facts.TOPIC_CONFIG, "t", "retention.ms")


def history(*events: Event) -> History:
    told = History(())
    for event in events:
        told.add(event)
    return told


def image(offset: int, *records: Message, base: Image = EMPTY_IMAGE) -> Image:
    delta = Delta(base)
    for record in records:
        delta.replay(record)
    return delta.apply(Provenance(Offset(offset), LeaderEpoch(1), 0))[0]


def committed(node_id: int, offset: int, *records: Message, life: int = 1, crc: int = 7, epoch: int = 1) -> Committed:
    batches = (Batch(offset, offset, epoch, crc),)
    return Committed(node_id, life, batches, image(offset, *records), incarnation(node_id))


def incarnation(node_id: int) -> Uuid:
    return Uuid(bytes([node_id]) * 16)


def leader(node_id: int, epoch: int, leader_id: int, *, life: int = 1) -> LeaderKnown:
    return LeaderKnown(node_id, life, epoch, leader_id)


def broker(broker_id: int, epoch: int, *, fenced: bool = False) -> RegisterBrokerRecord:
    return RegisterBrokerRecord(
        broker_id=broker_id,
        incarnation_id=incarnation(broker_id),
        broker_epoch=epoch,
        fenced=fenced,
        end_points=[],
        features=[],
        rack=None,
    )


def topic(leader_id: int, *, leader_epoch: int = 0) -> tuple[Message, Message]:
    return (
        TopicRecord(name="t", topic_id=TOPIC_ID),
        PartitionRecord(
            partition_id=0,
            topic_id=TOPIC_ID,
            replicas=[1, 2],
            isr=[1, 2],
            removing_replicas=[],
            adding_replicas=[],
            leader=leader_id,
            leader_epoch=leader_epoch,
            partition_epoch=0,
        ),
    )


def setting(value: str | None) -> ConfigRecord:
    return ConfigRecord(resource_type=2, resource_name="t", name="retention.ms", value=value)


def test_an_epoch_has_one_leader() -> None:
    good = (leader(1, 4, -1), leader(1, 4, 2), leader(2, 4, 2), leader(3, 5, 3), leader(1, 5, 3))
    assert one_leader.check(history(*good)) == []
    assert one_leader.check(history(*good, leader(2, 5, 1))) == [
        "epoch 5 is led by 3, as node 3 has it, and by 1, as node 2 has it"
    ]


def test_a_node_remembers_the_epoch_it_wrote_down_and_while_it_lives_the_one_it_knows() -> None:
    good = (leader(1, 4, -1), Promised(1, 4, 2), leader(1, 5, -1), leader(9, 4, 1), PowerLost("n1"))
    assert epochs_forward.check(history(*good, leader(1, 4, -1, life=2), leader(9, 3, -1, life=2))) == []
    assert epochs_forward.check(history(*good, leader(1, 3, -1, life=2))) == ["node 1 went back from epoch 4 to 3"]
    assert epochs_forward.check(history(*good, leader(9, 3, -1))) == ["node 9 went back from epoch 4 to 3"]


def test_a_node_votes_once_in_an_epoch() -> None:
    good = (Promised(1, 4, -1), Promised(1, 4, 2), Promised(1, 4, -1), Promised(1, 5, 3), Promised(2, 4, 3))
    assert one_vote.check(history(*good, Promised(1, 4, 2))) == []
    assert one_vote.check(history(*good, Promised(1, 4, 3))) == ["node 1 voted for 2 and for 3 in epoch 4"]


def test_epochs_on_record_do_not_go_back() -> None:
    batches = (Batch(5, 6, 3, 0), Batch(7, 7, 2, 0))
    assert epochs_forward.check(history(Committed(1, 1, batches, image(7)))) == [
        "node 1 has epoch 3 at 5 and epoch 2 behind it"
    ]
    first = (
        *topic(1, leader_epoch=4),
        broker(1, 3),
        ProducerIdsRecord(broker_id=1, broker_epoch=3, next_producer_id=1000),
    )
    assert epochs_forward.check(history(committed(1, 5, *first), committed(2, 6, *first))) == []
    later = (
        *topic(1, leader_epoch=3),
        broker(1, 2),
        ProducerIdsRecord(broker_id=1, broker_epoch=3, next_producer_id=0),
    )
    broken = epochs_forward.check(history(committed(1, 5, *first), committed(2, 6, *later)))
    assert [line.split(" went back ")[1] for line in broken] == [
        "from 3 to 2 at offset 6",
        "from 1000 to 0 at offset 6",
        "from 4 to 3 at offset 6",
    ]


def test_what_is_committed_is_the_same_everywhere() -> None:
    good = (committed(1, 5), committed(2, 5), committed(1, 6), committed(1, 5, life=2))
    assert committed_same.check(history(*good)) == []
    (told,) = committed_same.check(history(*good, committed(3, 6, crc=8)))
    assert told.startswith("offset 6 was committed as offsets 6 to 6 of epoch 1, CRC 00000007 on node 1 and as ")
    (told,) = committed_same.check(history(*good, committed(1, 6, life=2, epoch=2)))
    assert "of epoch 2" in told


def test_a_leader_commits_something_of_its_own_first() -> None:
    def of_epoch(node_id: int, offset: int, epoch: int) -> Committed:
        return Committed(
            node_id, 1, (), replace(image(0), provenance=Provenance(Offset(offset), LeaderEpoch(epoch), 0))
        )

    good = (of_epoch(2, 5, 1), leader(1, 3, 1), of_epoch(1, 5, 1), of_epoch(1, 7, 3), of_epoch(2, 7, 3))
    assert own_epoch_first.check(history(*good, leader(1, 4, 2), of_epoch(1, 9, 3))) == []
    assert own_epoch_first.check(history(leader(1, 3, 1), of_epoch(1, 5, 1))) == [
        "node 1, which leads epoch 3, commits up to offset 5 with nothing newer than epoch 1"
    ]


def test_what_is_known_to_be_committed_is_not_cut() -> None:
    good = (committed(1, 5), committed(2, 9), Truncated(1, 6))
    assert committed_same.check(history(*good)) == []
    assert committed_same.check(history(*good, Truncated(1, 5))) == [
        "node 1 cut its log to 5, and knew that everything up to 5 is committed"
    ]


def test_images_of_one_offset_are_the_same() -> None:
    whole, cut = (setting("1"), broker(1, 0)), (setting("1"),)
    assert committed_same.check(history(committed(1, 5, *whole), committed(2, 5, *whole))) == []
    broken = committed_same.check(history(committed(1, 5, *whole), committed(1, 6, *whole), committed(2, 5, *cut)))
    assert broken
    assert broken[0].startswith("nodes 1 and 2 have different images at offset 5: image.cluster.brokers is ")


def test_an_answered_change_is_in_every_later_image() -> None:
    asked = (committed(1, 4), ChangeSent("c", 1, RETENTION, "10"))
    done = (*asked, committed(1, 5, setting("10")), ChangeAnswered("c", 1))
    assert answered_kept.check(history(*done, committed(2, 4), committed(2, 5, setting("10")))) == []
    assert answered_kept.check(history(*done, committed(2, 5))) == [
        "c was told that config t retention.ms is 10, and it is None on node 2 at offset 5"
    ]
    assert answered_kept.check(history(*asked, committed(2, 5))) == []
    forgotten = (*done, committed(1, 6, setting("10")), committed(1, 7))
    assert answered_kept.check(history(*forgotten)) == [
        "c was told that config t retention.ms is 10, and it is None on node 1 at offset 7"
    ]


def test_later_changes_and_those_of_unknown_outcome_may_replace_an_answered_one() -> None:
    given_up = ChangeSent("c", 1, RETENTION, "10")
    answered = (ChangeSent("c", 2, RETENTION, "20"), committed(1, 5, setting("20")), ChangeAnswered("c", 2))
    assert answered_kept.check(history(given_up, *answered, committed(1, 6, setting("10")))) == []
    removed = (*answered, ChangeSent("c", 3, RETENTION, None), committed(1, 7))
    assert answered_kept.check(history(*removed)) == []
    (told,) = answered_kept.check(history(*removed, ChangeAnswered("c", 3), committed(1, 8, setting("20"))))
    assert told == "c was told that config t retention.ms is None, and it is 20 on node 1 at offset 8"


def test_facts_are_found_in_images() -> None:
    quota = ClientQuotaRecord(
        entity=[EntityData(entity_type="user", entity_name="u")], key="producer_byte_rate", value=5.0, remove=False
    )
    found = image(1, *topic(1), setting("9"), quota)
    assert facts.find(found, Fact(facts.TOPIC, "t")) == "there"
    assert facts.find(found, Fact(facts.PARTITIONS, "t")) == "1"
    assert facts.find(found, RETENTION) == "9"
    assert facts.find(found, Fact(facts.QUOTA, "u", "producer_byte_rate")) == "5"
    nothing = (
        Fact(facts.TOPIC, "x"),
        Fact(facts.PARTITIONS, "x"),
        Fact(facts.TOPIC_CONFIG, "t", "x"),
        Fact(facts.QUOTA, "u", "x"),
    )
    assert [facts.find(found, fact) for fact in nothing] == [None] * 4


def test_a_fenced_broker_leads_nothing() -> None:
    good = committed(1, 5, broker(1, 0), broker(2, 1, fenced=True), *topic(1))
    assert fenced_leads_nothing.check(history(good)) == []
    assert fenced_leads_nothing.check(history(committed(1, 5, broker(1, 0), *topic(-1)))) == []
    wrong = committed(1, 5, broker(1, 0), broker(2, 1, fenced=True), *topic(2))
    assert fenced_leads_nothing.check(history(wrong)) == ["t-0 is led by broker 2, which is fenced at offset 5"]
    gone = committed(1, 6, broker(2, 0), *topic(2), UnregisterBrokerRecord(broker_id=2, broker_epoch=0))
    assert fenced_leads_nothing.check(history(gone)) == ["t-0 is led by broker 2, which is not registered at offset 6"]
    moved = PartitionChangeRecord(partition_id=0, topic_id=TOPIC_ID, leader=2)
    assert fenced_leads_nothing.check(history(committed(1, 7, broker(1, 0), *topic(1), moved))) != []


def test_a_broker_is_unfenced_once_it_has_seen_its_registration() -> None:
    fenced = committed(1, 5, broker(2, 5, fenced=True))
    unfence = BrokerRegistrationChangeRecord(broker_id=2, broker_epoch=5, fenced=-1)
    unfenced = committed(1, 7, broker(2, 5, fenced=True), unfence)
    assert unfenced_knows_itself.check(history(fenced, committed(2, 5), unfenced)) == []
    assert unfenced_knows_itself.check(history(fenced, committed(2, 4), unfenced, unfenced)) == [
        "broker 2 is unfenced at offset 7 in epoch 5, and has itself seen no more than offset 4"
    ]


def test_a_producer_id_is_given_once() -> None:
    good = (ProducerIdGiven("a", 1), ProducerIdGiven("b", 2))
    assert producer_ids_once.check(history(*good)) == []
    assert producer_ids_once.check(history(*good, ProducerIdGiven("b", 1))) == ["producer id 1 was given to a and to b"]


def view(node_id: int, found: Image | None, *, alive: bool = True, leader_id: int = 1, epoch: int = 3) -> NodeView:
    return NodeView(node_id, True, alive, leader_id, epoch, found)


def test_a_cluster_settles() -> None:
    found = image(9, broker(1, 1), broker(2, 2), broker(3, 3, fenced=True))
    settled = (view(1, found), view(2, found), view(3, None, alive=False))
    assert check(history(QuorumSettled(settled, 2.0, True))) == []
    assert quorum_settles.check(history(QuorumSettled(settled, 2.0, False))) == [
        "after 2 quiet seconds no change of metadata is answered"
    ]
    confused = (view(1, found), view(2, found, leader_id=2), view(3, None, alive=False))
    assert quorum_settles.check(history(QuorumSettled(confused, 30.0, True))) == [
        "after 30 quiet seconds there is no leader that all know: node 1 has 1 in epoch 3, node 2 has 2 in epoch 3"
    ]
    leaderless = (view(1, found, leader_id=-1), view(2, found, leader_id=-1), view(3, None, alive=False))
    assert len(quorum_settles.check(history(QuorumSettled(leaderless, 30.0, True)))) == 1
    swapped = (view(1, found), view(2, None, alive=False), view(3, found))
    assert quorum_settles.check(history(QuorumSettled(swapped, 30.0, True))) == [
        "after 30 quiet seconds the dead broker 2 is not fenced, as node 1 has it",
        "after 30 quiet seconds the living broker 3 is fenced or unknown, as node 1 has it",
        "after 30 quiet seconds the dead broker 2 is not fenced, as node 3 has it",
        "after 30 quiet seconds the living broker 3 is fenced or unknown, as node 3 has it",
    ]


def test_who_lives_is_taken_for_dead_after_a_session_only() -> None:
    dead = TakenForDead(1, 2, 8, silent_ms=12, session_ms=4_000, alive=False)
    assert check(history(dead, replace(dead, alive=True, silent_ms=4_001))) == []
    assert living_keep_sessions.check(history(replace(dead, alive=True))) == [
        "broker 2 of epoch 8 lives, and controller 1 took it for dead 12 ms after it was heard of"
    ]
