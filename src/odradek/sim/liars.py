"""Members of a group who lie, in both protocols: what they say of topics, partitions and generations is not so.

Nobody promises them anything but an answer. The node has to go on, the groups beside theirs have to keep every promise,
and their own group can be described, joined and deleted once they are gone.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from itertools import cycle

from odradek.client.admin import Admin
from odradek.client.errors import ClientError
from odradek.client.group_assignment import VERSION
from odradek.ids import Uuid, uuid_text
from odradek.protocol.codec import Message, encode
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from odradek.protocol.messages.consumer_protocol import (
    AssignmentTopicPartition,
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    SubscriptionTopicPartition,
)
from odradek.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from odradek.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from odradek.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity
from odradek.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment, SyncGroupResponse
from odradek.sim.cluster import Cluster
from odradek.sim.consumer_group_member import JOIN_EPOCH, LEAVE_EPOCH, CoordinatorClient
from odradek.sim.group_member import REBALANCE_TIMEOUT_MS, SESSION_TIMEOUT_MS
from odradek.sim.loop import Life
from odradek.sim.workload import ResponseT, TryAgain

GROUP = "liars"
SHRUNKEN = "shrunken"
"""A topic that is created again and again, with fewer partitions than its members hold, and with more."""

SIZES = (6, 2)
TOPICS = ("orders", "clicks", SHRUNKEN)
UNKNOWN = "nowhere"
LONGEST_PAUSE_S = 0.6
BETWEEN_S = 0.15
"""After the first have asked to join, and before `group.initial.rebalance.delay.ms` is over."""

QUIET_S = 40.0
"""So long the group may take to be as any other when its liars are gone."""

STATES = (
    "assignment with two owners",
    "assignment of unknown partitions",
    "assignment of a topic that has shrunk",
    "empty metadata of one protocol",
    "metadata that makes no sense",
    "expression that is none",
    "topics named over and over",
    "generation that never was",
    "liar changed its protocol",
)
"""What liars must have done for a set of seeds to prove anything about them."""


class Liars:
    """All of them, and the topic that shrinks under them."""

    def __init__(self, cluster: Cluster, admin: Admin) -> None:
        self._cluster = cluster
        self._admin = admin
        self._draw = cluster.draw("liars")
        self._size = SIZES[0]
        self._all = [_Liar(cluster, number, self._has_shrunk) for number in range(self._draw.choice((2, 3)))]

    async def run(self) -> None:
        """So many lies; then all are gone, some without a word."""
        recreating = asyncio.create_task(self._recreate())
        await asyncio.gather(*(each.lie(self._draw.randrange(5, 12)) for each in self._all))
        recreating.cancel()
        await asyncio.gather(recreating, return_exceptions=True)

    async def _recreate(self) -> None:
        for size in cycle(SIZES):
            with contextlib.suppress(KafkaError, ClientError):
                await self._admin.create_topic(SHRUNKEN, partitions=size)
                self._size = size
            await asyncio.sleep(1 + self._draw.random() * 3)
            with contextlib.suppress(KafkaError, ClientError):
                await self._admin.delete_topics([SHRUNKEN])

    def _has_shrunk(self) -> bool:
        return self._size < max(SIZES)

    async def judge(self) -> None:
        """Their group is like any other now; what is wrong fails the run."""
        honest = _Liar(self._cluster, len(self._all), self._has_shrunk)
        await self._until("can be joined", honest.join_honestly)
        await self._until("can be described", self._is_described)
        await honest.leave()
        await self._until("can be deleted", self._is_deleted)

    async def _until(self, what: str, happens: Callable[[], Awaitable[str]]) -> None:
        loop = self._cluster.loop
        end = loop.time() + QUIET_S
        while why := await happens():
            if loop.time() > end:
                loop.failures.append(f"after {QUIET_S:.0f} quiet seconds no group of liars {what}: {why}")
                return
            await asyncio.sleep(0.5)

    async def _is_described(self) -> str:
        try:
            described = (await self._admin.describe_groups([GROUP]))[GROUP]
        except ClientError as failure:
            return type(failure).__name__
        return described.code.name if isinstance(described, KafkaError) else ""

    async def _is_deleted(self) -> str:
        try:
            refused = (await self._admin.delete_groups([GROUP]))[GROUP]
        except ClientError as failure:
            return type(failure).__name__
        # Nobody is left in it who committed anything: it may have gone by itself, or by a deletion that was not heard.
        return "" if refused is None or refused.code is ErrorCode.GROUP_ID_NOT_FOUND else refused.code.name


class _Liar:
    """One of them; every request it sends must be answered while the connection lasts."""

    def __init__(self, cluster: Cluster, number: int, has_shrunk: Callable[[], bool]) -> None:
        self._cluster = cluster
        self._has_shrunk = has_shrunk
        self._number = number
        self._name = f"{GROUP}-{number}"
        self._client = CoordinatorClient(cluster, self._name, Life(self._name), group=GROUP)
        self._draw = cluster.draw(f"{self._name} lies")
        self._member_id = ""
        self._generation_id = -1
        self._consumer_id = uuid_text(Uuid(self._draw.randbytes(16)))
        self._epoch = JOIN_EPOCH
        self._protocol = ""

    async def lie(self, times: int) -> None:
        kinds = ((5, self._join), (5, self._beat), (1, self._leave), (2, self._mislead))
        weights = [weight for weight, _ in kinds]
        await self._client.persist(self._open)
        for _ in range(times):
            await asyncio.sleep(self._draw.random() * LONGEST_PAUSE_S)
            ((_, happen),) = self._draw.choices(kinds, weights)
            await self._client.persist(happen)

    async def _open(self) -> None:
        """All join at once, in terms that can be read, so that one leads the others; one of them speaks the other
        protocol while they wait, or as soon as they have what their leader gave them."""
        if self._number == 0 and self._draw.random() < 0.5:
            await asyncio.sleep(BETWEEN_S)
            await self._beat("(")
            return
        metadata = _with_version(1, ConsumerProtocolSubscription(topics=list(TOPICS)))
        joined = await self._ask_to_join([JoinGroupRequestProtocol(name="range", metadata=metadata)])
        if not joined.error_code:
            await self._sync(joined, self._assignment())
        if self._number == 1:
            await self._beat()

    async def leave(self) -> None:
        await self._client.persist(self._leave)

    async def join_honestly(self) -> str:
        """Why that was not possible; an empty text if it was."""
        said: list[str] = []

        async def attempt() -> None:
            metadata = _with_version(1, ConsumerProtocolSubscription(topics=["orders"]))
            joined = await self._ask_to_join([JoinGroupRequestProtocol(name="range", metadata=metadata)])
            code = joined.error_code
            if not code:
                code = (await self._sync(joined, b"")).error_code
            said[:] = [ErrorCode(code).name if code else ""]

        await self._client.persist(attempt)
        return said[0]

    async def _ask(self, request: Message, response: type[ResponseT], version: int) -> ResponseT:
        try:
            return await self._client.ask(request, response, version)
        except TimeoutError:
            self._cluster.loop.failures.append(f"{self._name} was never answered: {type(request).__name__}")
            raise

    def _mark(self, what: str) -> None:
        self._cluster.trace.mark(what)

    def _speak(self, protocol: str) -> None:
        if self._protocol not in ("", protocol):
            self._mark("liar changed its protocol")
        self._protocol = protocol

    # The classic protocol.

    async def _join(self) -> None:
        self._speak("classic")
        names = self._draw.choice((("range",), ("range", "roundrobin"), ("roundrobin", "range", "range")))
        joined = await self._ask_to_join(
            [JoinGroupRequestProtocol(name=name, metadata=self._metadata(rank)) for rank, name in enumerate(names)]
        )
        if joined.error_code == ErrorCode.UNKNOWN_MEMBER_ID:
            self._member_id = ""
        elif not joined.error_code:
            await self._sync(joined, self._assignment())

    async def _ask_to_join(self, protocols: list[JoinGroupRequestProtocol]) -> JoinGroupResponse:
        request = JoinGroupRequest(
            group_id=GROUP,
            session_timeout_ms=SESSION_TIMEOUT_MS,
            rebalance_timeout_ms=REBALANCE_TIMEOUT_MS,
            member_id=self._member_id,
            protocol_type="consumer",
            protocols=protocols,
        )
        joined = await self._ask(request, JoinGroupResponse, 3)
        if not joined.error_code:
            self._member_id, self._generation_id = joined.member_id, joined.generation_id
        return joined

    async def _sync(self, joined: JoinGroupResponse, assignment: bytes) -> SyncGroupResponse:
        """Whoever leads gives the same to everybody, or nothing to the others, or something to one who is not there."""
        members = [each.member_id for each in joined.members]
        if self._draw.random() < 0.5:
            members = [joined.member_id, "nobody"]
        elif len(members) > 1:
            self._mark("assignment with two owners")
        assignments = [SyncGroupRequestAssignment(member_id=each, assignment=assignment) for each in members]
        leads = joined.leader == joined.member_id
        request = SyncGroupRequest(
            group_id=GROUP,
            generation_id=joined.generation_id,
            member_id=joined.member_id,
            assignments=assignments if leads else [],
        )
        return await self._ask(request, SyncGroupResponse, 3)

    def _metadata(self, rank: int) -> bytes:
        """Mostly readable for the first protocol, since what nobody can read is refused at once."""
        kind = self._draw.random() / (1 + 2 * rank)
        if kind < 0.05:
            self._mark("empty metadata of one protocol")
            return b""
        if kind < 0.1:
            self._mark("metadata that makes no sense")
            return self._draw.randbytes(self._draw.randrange(1, 40))
        topics = list(TOPICS)
        if kind < 0.25:
            self._mark("topics named over and over")
            topics = [*TOPICS, UNKNOWN] * 50
        owned = [SubscriptionTopicPartition(topic=topic, partitions=[0, 0, 1, 99, -1]) for topic in (*TOPICS, UNKNOWN)]
        owned = owned if self._draw.random() < 0.3 else []
        subscription = ConsumerProtocolSubscription(topics=topics, owned_partitions=owned, generation_id=12345)
        return _with_version(self._draw.choice((0, 1, 2, 3)), subscription)

    def _assignment(self) -> bytes:
        kind = self._draw.random()
        if kind < 0.1:
            return self._draw.randbytes(self._draw.randrange(0, 20))
        partitions = {"orders": [0, 1], SHRUNKEN: list(range(max(SIZES)))}
        if self._has_shrunk():
            self._mark("assignment of a topic that has shrunk")
        if kind < 0.4:
            self._mark("assignment of unknown partitions")
            partitions |= {"clicks": [7, 1000, -1], UNKNOWN: [0]}
        assigned = [AssignmentTopicPartition(topic=topic, partitions=some) for topic, some in partitions.items()]
        return _with_version(self._draw.choice((0, 1, 2, 3)), ConsumerProtocolAssignment(assigned_partitions=assigned))

    # The consumer protocol.

    async def _beat(self, expression: str | None = None) -> None:
        self._speak("consumer")
        if self._draw.random() < 0.3 or "orders" not in self._client.topic_ids:
            with contextlib.suppress(TryAgain):  # One of them may not be there now.
                await self._client.learn_topic_ids(TOPICS)
        request = ConsumerGroupHeartbeatRequest(
            group_id=GROUP, member_id=self._consumer_id, member_epoch=self._epoch, rebalance_timeout_ms=1_000
        )
        request.subscribed_topic_names = list(self._draw.choice((TOPICS, TOPICS, TOPICS, (UNKNOWN,))))
        kind = self._draw.random()
        if kind < 0.2:
            self._mark("topics named over and over")
            request.subscribed_topic_names = [*TOPICS, UNKNOWN] * 50
        elif kind < 0.5:
            expression = self._draw.choice(("(", "*", "(?<"))
        if expression is not None:
            request.subscribed_topic_regex = expression
            self._mark("expression that is none")
        request.topic_partitions = []
        if self._epoch != JOIN_EPOCH and self._draw.random() < 0.5:
            held = [0, 1, 5, 5, 99, -1]
            request.topic_partitions = [
                TopicPartitions(topic_id=topic_id, partitions=held)
                for topic_id in (*self._client.topic_ids.values(), Uuid(self._draw.randbytes(16)))
            ]
        response = await self._ask(request, ConsumerGroupHeartbeatResponse, 1)
        if not response.error_code:
            self._epoch = response.member_epoch
        elif response.error_code not in (ErrorCode.INVALID_REQUEST, ErrorCode.INVALID_REGULAR_EXPRESSION):
            self._epoch = JOIN_EPOCH

    # Both.

    async def _mislead(self) -> None:
        self._mark("generation that never was")
        wrong = self._draw.choice((-1, 0, 1, 1 << 30))
        member_id = self._draw.choice((self._member_id, self._consumer_id, "nobody", ""))
        beat = HeartbeatRequest(group_id=GROUP, generation_id=wrong, member_id=member_id)
        await self._ask(beat, HeartbeatResponse, 3)
        sync = SyncGroupRequest(group_id=GROUP, generation_id=wrong, member_id=member_id, assignments=[])
        await self._ask(sync, SyncGroupResponse, 3)

    async def _leave(self) -> None:
        identity = MemberIdentity(member_id=self._member_id)
        await self._ask(LeaveGroupRequest(group_id=GROUP, members=[identity]), LeaveGroupResponse, 4)
        request = ConsumerGroupHeartbeatRequest(group_id=GROUP, member_id=self._consumer_id, member_epoch=LEAVE_EPOCH)
        await self._ask(request, ConsumerGroupHeartbeatResponse, 1)
        self._member_id, self._epoch = "", JOIN_EPOCH


def _with_version(version: int, message: Message) -> bytes:
    return VERSION.pack(version) + encode(message, version)
