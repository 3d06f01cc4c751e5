"""Brokers write, lag, stop, die and lose their tails in every order, and min.insync.replicas changes: a clean election
loses nothing acknowledged.

A model beside the controller: each broker holds a log of some length, and an acknowledgement covers what every member
of the ISR holds while there are enough of them.
"""

from __future__ import annotations

import random

import pytest
from tests.unit.metadata.building import (
    NodeDescription,
    cluster,
    led_by,
    replayed,
    rules,
    the_partition,
    uuid,
    with_config,
    with_elr,
    with_topic,
)

from odradek.configdef import ConfigKey, ConfigTable, ConfigType
from odradek.ids import NO_NODE, NodeId, Offset
from odradek.metadata.controller.alter_partition import alter_partition
from odradek.metadata.controller.brokers import Registrar, fence, register_broker
from odradek.metadata.controller.configs import ConfigRules, Operation, incremental_alter_configs
from odradek.metadata.controller.elect_leaders import elect_leaders
from odradek.metadata.controller.heartbeats import broker_heartbeat
from odradek.metadata.controller.leadership import preferred_leaders
from odradek.metadata.controller.sessions import BrokerSessions
from odradek.metadata.controller.topic_rules import MIN_INSYNC_REPLICAS
from odradek.metadata.features import SUPPORTED_FEATURES
from odradek.metadata.image.cluster import Endpoint, FeatureRange
from odradek.metadata.image.configs import TOPIC_RESOURCE
from odradek.metadata.image.topics import RECOVERED, RECOVERING, PartitionRegistration
from odradek.protocol.codec import Message
from odradek.protocol.messages.alter_partition import (
    AlterPartitionRequest,
    BrokerState,
    RequestedPartitionData,
    RequestedTopicData,
)
from odradek.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest
from odradek.protocol.messages.elect_leaders import ElectLeadersRequest
from odradek.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)

BROKERS = (NodeId(1), NodeId(2), NodeId(3))
MIN_ISR = 2
RULES = ConfigRules(
    {TOPIC_RESOURCE: ConfigTable([ConfigKey(MIN_INSYNC_REPLICAS, ConfigType.INT, 1, "A number.")])},
    lambda resource, configs: None,
)
STEPS = 120


class World:
    """Three brokers, one partition on all of them, and what each really holds."""

    def __init__(self, seed: int, *, elr: bool) -> None:
        self.draw = random.Random(seed)
        self.elr = elr
        self.image = cluster()
        self.offset = 100
        self.sessions = BrokerSessions(9_000)
        self.up = dict.fromkeys(BROKERS, False)
        self.clean_epoch = dict.fromkeys(BROKERS, -1)
        """The broker epoch that a clean stop left on disk; -1 after any other end."""
        self.held = dict.fromkeys(BROKERS, 0)
        self.acknowledged = 0
        self.incarnations = 0
        self.min_isr = MIN_ISR
        self.image = with_elr(self.image) if elr else self.image
        for broker in BROKERS:
            self.start(broker)
        self.image = with_config(
            with_topic(self.image, led_by(1, [1, 2, 3], leader_epoch=0, partition_epoch=0, directories=self._places())),
            min_insync_replicas=str(MIN_ISR),
        )
        self.led = (self.partition.leader, self.partition.leader_epoch)

    def _places(self) -> list[bytes]:
        return [self.image.cluster.brokers[broker].log_dirs[0] for broker in BROKERS]

    @property
    def partition(self) -> PartitionRegistration:
        return the_partition(self.image)

    # What happens.

    def start(self, broker: NodeId) -> None:
        """Register, and be unfenced."""
        self.incarnations += 1
        node = NodeDescription(
            node_id=broker,
            incarnation_id=uuid(50_000 + self.incarnations),
            broker_endpoints=(Endpoint("PLAINTEXT", "host", 9092, 0),),
            controller_endpoints=(),
            features=tuple(FeatureRange(each.name, each.minimum, each.maximum) for each in SUPPORTED_FEATURES),
            rack=None,
            log_dirs=(uuid(1000 * broker + 1),),
        )
        registrar = Registrar(
            cluster_id="c", kraft_version=0, alive=False, next_epoch=Offset(self.offset), api_version=4
        )
        request = node.as_broker("c", previous_broker_epoch=self.clean_epoch[broker])
        decision = register_broker(self.image, request, registrar=registrar, rules=rules(self.image))
        self.commit(decision.records)
        self.clean_epoch[broker] = -1
        self.up[broker] = True
        self.sessions.heard(broker, self.image.cluster.brokers[broker].broker_epoch, now_ms=0)
        self.heartbeat(broker)

    def heartbeat(self, broker: NodeId, *, stop: bool = False) -> bool:
        self.sessions.reached(broker, Offset(self.offset))
        request = BrokerHeartbeatRequest(
            broker_id=broker,
            broker_epoch=self.image.cluster.brokers[broker].broker_epoch,
            current_metadata_offset=self.offset,
            want_fence=False,
            want_shut_down=stop,
        )
        decision = broker_heartbeat(
            self.image, request, sessions=self.sessions, rules=rules(self.image), registered_at=Offset(0)
        )
        self.commit(decision.records)
        ((_, response),) = decision.answers
        if stop and not response.should_shut_down:
            self.sessions.shut_down_after(broker, Offset(self.offset))
        return bool(response.should_shut_down)

    def stop(self, broker: NodeId) -> None:
        """In order: others lead first, and its log is closed whole."""
        epoch = self.image.cluster.brokers[broker].broker_epoch
        while not self.heartbeat(broker, stop=True):
            for other in BROKERS:
                self.sessions.reached(other, Offset(self.offset))
        self.sessions.end(broker)
        self.up[broker] = False
        self.clean_epoch[broker] = epoch

    def die(self, broker: NodeId) -> None:
        """Without a word, and perhaps with the end of its log; the controller notices now or later.

        Without eligible leaders (KIP-966) the last one in sync is believed whatever became of it: it loses nothing.
        """
        self.up[broker] = False
        self.clean_epoch[broker] = -1
        if self.elr and self.draw.random() < 0.5:
            self.held[broker] = self.draw.randrange(self.held[broker] + 1)
        if self.draw.random() < 0.5:
            self.sessions.end(broker)
            self.commit(fence(self.image, broker, rules(self.image)))

    def write(self) -> None:
        """Followers in sync take it; it is acknowledged if there are enough of them and all live."""
        partition = self.partition
        if partition.leader == NO_NODE or not self.up[partition.leader]:
            return
        self.held[partition.leader] += 1
        end = self.held[partition.leader]
        for member in partition.isr:
            if self.up[member] and self.draw.random() < 0.8:
                self.held[member] = end
        if len(partition.isr) >= self.min_isr and all(
            self.held[member] == end and self.up[member] for member in partition.isr
        ):
            self.acknowledged = max(self.acknowledged, end)

    def change_isr(self) -> None:
        """The leader drops who lags or is dead, and takes in who has caught up."""
        partition = self.partition
        leader = partition.leader
        if leader == NO_NODE or not self.up[leader]:
            return
        for other in BROKERS:
            if other != leader and self.up[other] and self.draw.random() < 0.7:
                self.held[other] = self.held[leader]  # Cut to the leader's log, then caught up with it.
        live = [other for other in BROKERS if self.up[other] and self.held[other] == self.held[leader]]
        kept = [other for other in live if other == leader or other in partition.isr or self.draw.random() < 0.7]
        asked = RequestedPartitionData(
            partition_index=0,
            leader_epoch=partition.leader_epoch,
            partition_epoch=partition.partition_epoch,
            new_isr_with_epochs=[
                BrokerState(broker_id=each, broker_epoch=self.image.cluster.brokers[each].broker_epoch) for each in kept
            ],
        )
        topic = self.image.topics.by_name["t"]
        request = AlterPartitionRequest(
            broker_id=leader,
            broker_epoch=self.image.cluster.brokers[leader].broker_epoch,
            topics=[RequestedTopicData(topic_id=topic.topic_id, partitions=[asked])],
        )
        decision = alter_partition(self.image, request, api_version=3, rules=rules(self.image))
        self.commit(decision.records)

    def change_minimum(self) -> None:
        """An operator wants more or fewer in sync."""
        self.min_isr = self.draw.choice((1, 2, 3))
        config = AlterableConfig(name=MIN_INSYNC_REPLICAS, config_operation=Operation.SET, value=str(self.min_isr))
        resource = AlterConfigsResource(resource_type=TOPIC_RESOURCE, resource_name="t", configs=[config])
        request = IncrementalAlterConfigsRequest(resources=[resource], validate_only=False)
        self.commit(incremental_alter_configs(self.image, request, rules=RULES).records)

    def step(self) -> None:
        broker = self.draw.choice(BROKERS)
        chance = self.draw.random()
        if chance < 0.35:
            self.write()
        elif chance < 0.65:
            self.change_isr()
        elif chance < 0.70:
            self.commit(preferred_leaders(self.image, rules(self.image)))
        elif self.elr and chance < 0.74:
            self.change_minimum()
        elif chance < 0.76:
            request = ElectLeadersRequest(election_type=1, topic_partitions=None)
            self.commit(elect_leaders(self.image, request, rules=rules(self.image)).records)
        elif not self.up[broker]:
            self.start(broker)
        elif chance < 0.86:
            self.die(broker)
        else:
            self.stop(broker)

    # What must hold.

    def commit(self, records: list[Message] | tuple[Message, ...]) -> None:
        for record in records:
            self.offset += 1
            self.image = replayed(self.image, [record], offset=self.offset)
        if "t" in self.image.topics.by_name:
            self.look()

    def look(self) -> None:
        partition, brokers = self.partition, self.image.cluster.brokers
        leader, epoch = self.led
        assert partition.leader_epoch >= epoch
        assert set(partition.isr).isdisjoint(partition.elr)
        assert {*partition.isr, *partition.elr} <= set(partition.replicas)
        if partition.leader != NO_NODE:
            assert partition.leader in partition.isr
            assert brokers[partition.leader].active
        if (partition.leader, partition.leader_epoch) == self.led:
            return
        assert partition.leader_epoch > epoch or partition.leader == leader
        self.led = (partition.leader, partition.leader_epoch)
        if partition.leader == NO_NODE:
            return
        if partition.leader_recovery_state == RECOVERING:
            self.acknowledged = min(self.acknowledged, self.held[partition.leader])  # Asked for, or the last resort.
        elif self.up[partition.leader]:
            assert partition.leader_recovery_state == RECOVERED
            assert self.held[partition.leader] >= self.acknowledged, "a clean election lost what was acknowledged"
        if self.up[partition.leader]:  # One that died unnoticed cuts nobody's log.
            for follower in BROKERS:
                self.held[follower] = min(self.held[follower], self.held[partition.leader])


@pytest.mark.parametrize("elr", [True, False])
def test_a_clean_election_loses_nothing(elr: bool) -> None:
    elections = unclean = 0
    for seed in range(300):
        world = World(seed, elr=elr)
        for _ in range(STEPS):
            before = world.partition
            world.step()
            after = world.partition
            if after.leader != before.leader and after.leader != NO_NODE:
                elections += 1
                unclean += after.leader_recovery_state == RECOVERING
    assert elections > 300
    assert unclean > 0
