"""Members of a KIP-848 group come, go, forget and crash at random: nothing is owned twice, and it always settles."""

from __future__ import annotations

import random

import pytest
from tests.scenarios.test_consumer_groups import Story

from odradek.coordinator.group.joining import Joiner
from odradek.decisions import Ticket
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)

TOPICS = {"t": 5, "u": 3, "v": 1}
BEGIN_AGAIN = (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.GROUP_ID_NOT_FOUND)
Owned = set[tuple[bytes, int]]


class Client:
    """What a consumer does: it owns what it was told, until it has let go of what it was not told any more."""

    def __init__(self, member_id: str, draw: random.Random) -> None:
        self.member_id = member_id
        self.epoch = 0
        self.owned: Owned = set()
        self.told: Owned = set()
        self._draw = draw
        self.topics = sorted(draw.sample(sorted(TOPICS), draw.randint(1, 3)))

    def request(self) -> ConsumerGroupHeartbeatRequest:
        self.owned &= self.told if self.epoch else set()
        request = ConsumerGroupHeartbeatRequest(group_id="g", member_id=self.member_id, member_epoch=self.epoch)
        if self.epoch == 0 or self._draw.random() < 0.7:
            by_topic: dict[bytes, list[int]] = {}
            for topic, index in sorted(self.owned):
                by_topic.setdefault(topic, []).append(index)
            request.topic_partitions = [
                TopicPartitions(topic_id=topic, partitions=some) for topic, some in by_topic.items()
            ]
        if self.epoch == 0 or self._draw.random() < 0.1:
            request.rebalance_timeout_ms = 30_000
            request.subscribed_topic_names = self.topics
        return request

    def hear(self, response: ConsumerGroupHeartbeatResponse) -> None:
        self.epoch = response.member_epoch
        if response.assignment is not None:
            self.told = {
                (each.topic_id, index) for each in response.assignment.topic_partitions for index in each.partitions
            }
        # What is gone from it is given up before the next request; what is new may be used at once.
        self.owned |= self.told


class Run(Story):
    """A story that chance tells."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self.draw = random.Random(seed)
        for name, partitions in TOPICS.items():
            self._topic(name, partitions)
        self.clients: list[Client] = []
        self._made = 0

    def step(self) -> None:
        chance = self.draw.random()
        if not self.clients or (chance < 0.08 and len(self.clients) < 6):
            self._made += 1
            self.clients.append(Client(f"m{self._made}", self.draw))
        client = self.draw.choice(self.clients)
        if chance > 0.97:
            self.clients.remove(client)  # Killed: the group hears nothing of it.
        elif chance > 0.94:
            self.beat(client, leaves=True)
            self.clients.remove(client)
        elif chance > 0.92:
            self._restart()
        elif chance > 0.90:
            client.topics = sorted(self.draw.sample(sorted(TOPICS), self.draw.randint(1, 3)))
        elif chance > 0.88:
            self._topic("t", len(self._loader.image.topics.by_name["t"].partitions) + 1)
        else:
            self.beat(client, loses_answer=self.draw.random() < 0.1)
        self._pass(self.draw.choice((0, 10, 700, 3_000)))
        self.check()

    def beat(self, client: Client, *, leaves: bool = False, loses_answer: bool = False) -> None:
        request = client.request()
        if leaves:
            request.member_epoch = -1
        joiner = Joiner("client", "/host", 1, "")
        self._last_ticket += 1
        ticket = Ticket(self._last_ticket)
        self._tickets[ticket] = client.member_id
        try:
            decision = self._shard.consumer_heartbeat(ticket, request, joiner, self._now())
        except KafkaError as refused:
            if refused.code not in BEGIN_AGAIN:
                raise
            client.epoch, client.owned, client.told = 0, set(), set()
            return
        self._decide(lambda ticket, now: decision, ticket)
        ((_, answer),) = decision.answers
        assert isinstance(answer, ConsumerGroupHeartbeatResponse)
        if not leaves and not loses_answer:
            client.hear(answer)

    def check(self) -> None:
        """Nobody who is a member owns what another one does; who was thrown out may not know it yet."""
        group = self._shard.consumers.groups.get("g")
        known = getattr(group, "members", {})
        owners: dict[tuple[bytes, int], str] = {}
        for client in self.clients:
            member = known.get(client.member_id)
            if member is None or client.epoch not in (member.member_epoch, member.previous_member_epoch):
                continue
            for partition in sorted(client.owned):
                assert partition not in owners, (partition, client.member_id, owners[partition])
                owners[partition] = client.member_id


@pytest.mark.parametrize("seed", range(25))
def test_one_owner_and_an_end(seed: int) -> None:
    run = Run(seed)
    for _ in range(300):
        run.step()
    if not run.clients:
        run.clients.append(Client("last", run.draw))
    for _ in range(60):  # Killed members are found out meanwhile, and everyone keeps calling.
        for client in run.clients:
            run.beat(client)
        run._pass(2_000)
        run.check()
    topics = run._loader.image.topics.by_name
    wanted = {name for client in run.clients for name in client.topics}
    everything = sorted(
        (topics[name].topic_id, index) for name in wanted for index in range(len(topics[name].partitions))
    )
    assert sorted(partition for client in run.clients for partition in client.owned) == everything
    for client in run.clients:
        assert {topic for topic, _ in client.owned} <= {topics[name].topic_id for name in client.topics}
