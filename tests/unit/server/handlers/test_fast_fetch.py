"""A follower that is in step is answered by the fast path, byte for byte as by the generic one."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from tests.unit.server.replica_rig import LEADER, ReplicaRig

from odradek.client.connection import Connection, decode_answer
from odradek.ids import NodeId, Offset, Uuid
from odradek.protocol.api import ApiKey
from odradek.protocol.codec import encode
from odradek.protocol.errors import ErrorCode
from odradek.protocol.frame import RequestHead
from odradek.protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
    ReplicaState,
)
from odradek.replication.partition import FetchStateUpdate, Partition
from odradek.server.rooms import Rooms

VERSION = 18
HEAD = RequestHead(ApiKey.FETCH, VERSION, "tester")
NOT_LEADER = ErrorCode.NOT_LEADER_OR_FOLLOWER


class Follower:
    """The test in the place of broker 2, whose own fetcher stands still."""

    def __init__(self, rig: ReplicaRig, *, fast: bool) -> None:
        self.rig = rig
        self.answered: list[bytes] = []
        self.by_fast_path: dict[bytes, bool] = {}
        """By request, of which no two are the same."""
        self._fast = fast
        self.session_id = self.session_epoch = 0

    async def begin(self, *topics: str, partitions: int = 2) -> None:
        """With those topics, of which broker 1 leads all partitions and broker 2 follows; nothing is in them."""
        rig = self.rig
        rig.brokers[2].fetchers.close()
        for name in topics:
            await rig.create_topic(name, [[1, 2]] * partitions)
        endpoint = rig.brokers[1].listener.scope.endpoints.compile(ApiKey.FETCH, VERSION)
        known = endpoint.fast_path
        assert known is not None

        def fast(rooms: Rooms, frame: memoryview, position: int, correlation_id: int) -> Any:
            answer = known(rooms, frame, position, correlation_id) if self._fast else None
            self.by_fast_path[bytes(frame[position:])] = answer is not None
            return answer

        endpoint.fast_path = fast
        self.connection = await rig.connect(1, machine="host-2")
        everything = [(name, index, 0) for name in topics for index in range(partitions)]
        answer = await self.ask(*everything, last_epoch=-1)
        self.session_id, self.session_epoch = answer.session_id, 1

    def request(
        self, *wanted: tuple[str, int, int], last_epoch: int = 0, leader_epoch: int = 0, **more: Any
    ) -> FetchRequest:
        rig = self.rig
        broker_epoch = rig.image.cluster.brokers[rig.brokers[2].node_id].broker_epoch
        topics: dict[Uuid, FetchTopic] = {}
        for name, index, offset in wanted:
            topic_id = rig.image.topics.by_name[name].topic_id
            topic = topics.setdefault(topic_id, FetchTopic(topic_id=topic_id, partitions=[]))
            topic.partitions.append(
                FetchPartition(
                    partition=index,
                    current_leader_epoch=leader_epoch,
                    fetch_offset=offset,
                    last_fetched_epoch=last_epoch,
                    log_start_offset=0,
                    partition_max_bytes=1_000_000,
                )
            )
        fields = {
            "replica_state": ReplicaState(replica_id=2, replica_epoch=broker_epoch),
            "max_wait_ms": 0,
            "min_bytes": 1,
            "session_id": self.session_id,
            "session_epoch": self.session_epoch,
            "topics": list(topics.values()),
        }
        return FetchRequest(**{**fields, **more})

    def send(self, request: FetchRequest, connection: Connection | None = None) -> asyncio.Future[memoryview]:
        body = encode(request, VERSION)
        answer: asyncio.Future[memoryview] = asyncio.get_running_loop().create_future()
        connection = connection or self.connection
        connection.ask_with(HEAD.before(len(body), connection.next_correlation_id) + body, answer, 60_000)
        self.session_epoch += 1
        return answer

    async def ask(self, *wanted: tuple[str, int, int], **more: Any) -> FetchResponse:
        return await self.hear(self.send(self.request(*wanted, **more)))

    async def hear(self, answer: Awaitable[memoryview]) -> FetchResponse:
        frame = await answer
        self.answered.append(bytes(frame))
        return decode_answer(frame, FetchResponse, VERSION)


Story = Callable[[Follower], Awaitable[None]]


def both_ways(story: Story, **rig: Any) -> list[bool]:
    """Tell it twice, and compare what is answered; which requests were answered by the fast path."""
    told: list[Follower] = []
    for fast in (False, True):
        follower = Follower(ReplicaRig(2, **rig), fast=fast)

        async def whole(follower: Follower = follower) -> None:
            await story(follower)

        follower.rig.run(whole)
        told.append(follower)
    generic, by_fast_path = told
    assert by_fast_path.answered == generic.answered
    assert not any(generic.by_fast_path.values())
    return list(by_fast_path.by_fast_path.values())


def found(answer: FetchResponse) -> dict[tuple[bytes, int], tuple[int, int, int]]:
    """Error, high watermark and size of the records, by topic and partition."""
    assert answer.error_code == 0
    return {
        (topic.topic_id, data.partition_index): (data.error_code, data.high_watermark, len(data.records or b""))
        for topic in answer.responses
        for data in topic.partitions
    }


async def first_records(follower: Follower) -> None:
    """Both replicas of `t-0` have one record then; of a new epoch the generic path hears first."""
    await follower.begin("t")
    await follower.rig.produce(1, "t", b"a", acks=LEADER)
    answer = await follower.ask()
    ((error, high_watermark, size),) = found(answer).values()
    assert (error, high_watermark) == (0, 0)
    assert size


async def one_that_waits(follower: Follower, *, max_wait_ms: int) -> asyncio.Future[memoryview]:
    """A request of a follower that has all there is, when it has reached the leader."""
    await first_records(follower)
    waiting = follower.send(follower.request(("t", 0, 1), max_wait_ms=max_wait_ms))
    await asyncio.sleep(0.1)
    assert not waiting.done()
    return waiting


@pytest.mark.parametrize("fast", [False, True])
@pytest.mark.parametrize("fenced", [False, True])
def test_what_a_follower_has_is_noted_when_it_asks_and_not_again_when_it_is_answered(
    fast: bool, fenced: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is heard of it while it waits: it may be gone, and must not count as one that keeps up."""
    noted: list[int] = []
    update = Partition.update_follower_fetch_state

    def noting(self: Partition, replica_id: NodeId, fetch_offset: Offset, *more: Any) -> FetchStateUpdate:
        noted.append(fetch_offset)
        return update(self, replica_id, fetch_offset, *more)

    monkeypatch.setattr(Partition, "update_follower_fetch_state", noting)
    follower = Follower(ReplicaRig(2), fast=fast)

    async def story() -> None:
        waiting = await one_that_waits(follower, max_wait_ms=400)
        assert noted[-1] == 1
        asked = len(noted)
        if fenced:  # Whatever its fast path had to say, it takes the generic one then.
            leadership = follower.rig.hosted(1, "t").partition.leadership
            assert leadership is not None
            leadership.in_sync.committed = frozenset({follower.rig.brokers[1].node_id})
        await follower.rig.produce(1, "t", b"b", acks=LEADER)
        ((error, _, size),) = found(await follower.hear(waiting)).values()
        assert (error, bool(size)) == (0, True)
        assert len(noted) == asked

    follower.rig.run(story)


def test_records_and_watermarks() -> None:
    async def story(follower: Follower) -> None:
        await first_records(follower)
        assert [each[:2] for each in found(await follower.ask(("t", 0, 1))).values()] == [(0, 1)]
        for index in (0, 1):
            await follower.rig.produce(1, "t", b"b" * 50, index=index, acks=LEADER)
        await follower.rig.produce(1, "t", b"c" * 50_000, acks=LEADER)
        answer = found(await follower.ask())
        assert len(answer) == 2
        assert follower.rig.ends("t")[1] == (1, 3)
        answer = found(await follower.ask(("t", 0, 3), ("t", 1, 1)))
        assert follower.rig.ends("t")[1] == (3, 3)
        assert sorted(answer.values()) == [(0, 1, 0), (0, 3, 0)]
        assert found(await follower.ask()) == {}

    assert both_ways(story)[2:] == [True, False, True, True]


def test_topics_in_one_answer() -> None:
    async def story(follower: Follower) -> None:
        await follower.begin("t", "u")
        for name in ("t", "u", "t"):
            await follower.rig.produce(1, name, b"a", acks=LEADER)
        await follower.ask()
        await follower.ask(("t", 0, 2), ("u", 0, 1))
        for index in (0, 1, 0):
            for name in ("t", "u"):
                await follower.rig.produce(1, name, b"b", index=index, acks=LEADER)
        await follower.ask(("t", 0, 2), ("u", 0, 1))
        # What of another partition was not told before takes the generic path, as no epoch of it is known.
        await follower.ask(("t", 0, 4), ("u", 0, 3), ("t", 1, 1), ("u", 1, 1))
        for name in ("t", "u"):
            await follower.rig.produce(1, name, b"c", acks=LEADER)
        assert len(found(await follower.ask())) == 2

    assert both_ways(story)[-2:] == [True, True]


def test_a_request_waits_for_records_and_is_answered_with_all_that_one_producer_brought() -> None:
    async def story(follower: Follower) -> None:
        waiting = await one_that_waits(follower, max_wait_ms=400)
        await follower.rig.produce(1, "t", b"b", acks=LEADER)
        assert [each[:2] for each in found(await follower.hear(waiting)).values()] == [(0, 1)]
        assert follower.rig.ends("t")[1] == (1, 2)

    assert both_ways(story)[-1]


def test_a_watermark_alone_waits_until_the_time_is_up() -> None:
    async def story(follower: Follower) -> None:
        await first_records(follower)
        began = follower.rig.loop.time()
        assert list(found(await follower.ask(("t", 0, 1), max_wait_ms=300)).values()) == [(0, 1, 0)]
        assert 0.29 < follower.rig.loop.time() - began < 0.5
        assert found(await follower.ask(max_wait_ms=300)) == {}

    assert both_ways(story)[-2:] == [True, True]


def test_a_leader_that_is_deposed_meanwhile_says_so() -> None:
    async def story(follower: Follower) -> None:
        waiting = await one_that_waits(follower, max_wait_ms=5_000)
        await follower.rig.elect("t", 2, [2, 1])
        answer = await follower.hear(waiting)
        ((error, _, _),) = found(answer).values()
        assert error in (NOT_LEADER, ErrorCode.FENCED_LEADER_EPOCH)
        assert [node.node_id for node in answer.node_endpoints] == [2]

    assert both_ways(story)[-1]


def test_a_partition_that_goes_meanwhile_is_told() -> None:
    async def story(follower: Follower) -> None:
        waiting = await one_that_waits(follower, max_wait_ms=5_000)
        hosted = follower.rig.hosted(1, "t")
        follower.rig.brokers[1].replicas.remove(hosted)
        hosted.close()
        answers = found(await follower.hear(waiting))
        assert [error for error, _, _ in answers.values()] == [NOT_LEADER]

    assert both_ways(story)[-1]


def test_a_second_request_lets_the_first_go() -> None:
    async def story(follower: Follower) -> None:
        first = await one_that_waits(follower, max_wait_ms=5_000)
        other = await follower.rig.connect(1, machine="host-2")
        second = follower.send(follower.request(max_wait_ms=5_000), other)
        await follower.hear(first)
        assert not second.done()
        await follower.rig.produce(1, "t", b"b", acks=LEADER)
        assert len(found(await follower.hear(second))) == 1

    assert both_ways(story)[-2:] == [True, True]


def test_a_follower_that_hangs_up_while_it_waits_leaves_nothing_behind() -> None:
    async def story(follower: Follower) -> None:
        waiting = await one_that_waits(follower, max_wait_ms=300)
        follower.connection.close()
        assert waiting.exception() is not None
        await follower.rig.produce(1, "t", b"b", acks=LEADER)
        await asyncio.sleep(0.5)
        broker = follower.rig.brokers[1]
        assert [session.waiter for session in broker.fetch_sessions] == [None]
        assert len(broker.purgatory) == 0

    assert both_ways(story)[-1]


async def stale_session(follower: Follower) -> None:
    assert (await follower.ask(session_epoch=9)).error_code == ErrorCode.INVALID_FETCH_SESSION_EPOCH


async def unknown_session(follower: Follower) -> None:
    assert (await follower.ask(session_id=1)).error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


async def old_incarnation(follower: Follower) -> None:
    answer = await follower.ask(("t", 0, 1), replica_state=ReplicaState(replica_id=2, replica_epoch=1))
    assert [error for error, _, _ in found(answer).values()] == [NOT_LEADER]


async def somebody_else(follower: Follower) -> None:
    answer = await follower.ask(("t", 0, 1), replica_state=ReplicaState(replica_id=3, replica_epoch=1))
    assert answer.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


async def epoch_never_issued(follower: Follower) -> None:
    answer = await follower.ask(("t", 0, 1), leader_epoch=4)
    assert [error for error, _, _ in found(answer).values()] == [ErrorCode.UNKNOWN_LEADER_EPOCH]


async def other_history(follower: Follower) -> None:
    answer = await follower.ask(("t", 0, 1), last_epoch=7)
    (data,) = answer.responses[0].partitions
    assert data.error_code == ErrorCode.OFFSET_OUT_OF_RANGE or data.diverging_epoch.epoch >= 0


async def beyond_the_end(follower: Follower) -> None:
    answer = await follower.ask(("t", 0, 100))
    (data,) = answer.responses[0].partitions
    assert data.error_code == ErrorCode.OFFSET_OUT_OF_RANGE or data.diverging_epoch.epoch >= 0


async def new_partition(follower: Follower) -> None:
    await follower.rig.create_topic("u", [[1, 2]])
    assert len(found(await follower.ask(("u", 0, 0), last_epoch=-1))) == 2


async def forgotten_partition(follower: Follower) -> None:
    gone = ForgottenTopic(topic_id=follower.rig.image.topics.by_name["t"].topic_id, partitions=[1])
    await follower.ask(("t", 0, 1), forgotten_topics_data=[gone])


async def not_in_sync(follower: Follower) -> None:
    await follower.rig.change("t", isr=[1])
    await follower.ask(("t", 0, 1))


async def throttled(follower: Follower) -> None:
    follower.rig.hosted(1, "t").leader_throttle = follower.rig.brokers[1].replicas.throttles.leader
    await follower.ask(("t", 0, 1))


@pytest.mark.parametrize(
    "out_of_step",
    [
        stale_session,
        unknown_session,
        old_incarnation,
        somebody_else,
        epoch_never_issued,
        other_history,
        beyond_the_end,
        new_partition,
        forgotten_partition,
        not_in_sync,
        throttled,
    ],
)
def test_whatever_is_out_of_step_takes_the_generic_path(out_of_step: Story) -> None:
    async def story(follower: Follower) -> None:
        await first_records(follower)
        await follower.rig.produce(1, "t", b"b", acks=LEADER)
        await out_of_step(follower)

    assert not both_ways(story)[-1]
