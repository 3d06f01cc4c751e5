"""The consumer against a broker that answers by script: errors of fetches, positions, limits."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from tests.unit.client.scripted import HOST, PORT, Ports, ScriptedBroker, play, settings

from odradek.client.cluster import TopicPartition
from odradek.client.consumer import Consumer
from odradek.client.errors import Misused, NoOffsetForPartition
from odradek.ids import Uuid
from odradek.protocol.api import ApiKey
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.messages.fetch import FetchableTopicResponse, FetchRequest, FetchResponse, PartitionData
from odradek.protocol.messages.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse
from odradek.protocol.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from odradek.protocol.messages.metadata import MetadataRequest, MetadataResponse
from odradek.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)
from odradek.protocol.records.batch import build_batch
from odradek.protocol.records.record import Record

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
ANOTHER_ID = Uuid(b"another topic id")
LENGTH = 10
FIRST = 2


class Log:
    """Two partitions with offsets 2 to 9, one record a batch; `refuse` may give an error for a fetch."""

    def __init__(self, broker: ScriptedBroker) -> None:
        self.refuse: Callable[[int, int], ErrorCode | None] = lambda partition, offset: None
        broker.topics = {"t": 2}
        broker.answers[ApiKey.FETCH] = self.fetch
        broker.answers[ApiKey.LIST_OFFSETS] = self.list_offsets

    async def fetch(self, request: FetchRequest) -> FetchResponse:
        (topic,) = request.topics
        answers = []
        for asked in topic.partitions:
            code = self.refuse(asked.partition, asked.fetch_offset)
            if code is None and not FIRST <= asked.fetch_offset <= LENGTH:
                code = ErrorCode.OFFSET_OUT_OF_RANGE
            records = b"" if code else b"".join(_batch(offset) for offset in range(asked.fetch_offset, LENGTH))
            answers.append(
                PartitionData(
                    partition_index=asked.partition,
                    error_code=code or 0,
                    high_watermark=LENGTH,
                    last_stable_offset=LENGTH,
                    aborted_transactions=None,
                    records=records,
                )
            )
        if not any(answer.records or answer.error_code for answer in answers):
            await asyncio.sleep(request.max_wait_ms / 1000)
        return FetchResponse(responses=[FetchableTopicResponse(topic_id=topic.topic_id, partitions=answers)])

    def list_offsets(self, request: ListOffsetsRequest) -> ListOffsetsResponse:
        return ListOffsetsResponse(
            topics=[
                ListOffsetsTopicResponse(
                    name=topic.name,
                    partitions=[
                        ListOffsetsPartitionResponse(
                            partition_index=each.partition_index, offset=FIRST if each.timestamp == -2 else LENGTH
                        )
                        for each in topic.partitions
                    ],
                )
                for topic in request.topics
            ]
        )


def _batch(offset: int) -> bytes:
    return bytes(build_batch([Record(None, b"%d" % offset)], base_offset=offset, timestamp=1))


async def drain(consumer: Consumer) -> list[tuple[int, int]]:
    """Partition and offset of all that comes within two seconds of the broker's time."""
    found = []
    for _ in range(20):
        found += [(record.partition, record.offset) for record in await consumer.poll(100)]
    return sorted(found)


ALL = [(partition, offset) for partition in range(2) for offset in range(FIRST, LENGTH)]


@pytest.mark.parametrize(("reset", "seen"), [("earliest", ALL), ("latest", [])])
def test_without_a_position_the_reset_policy_decides(reset: str, seen: list[tuple[int, int]]) -> None:
    async def test(broker: ScriptedBroker, ports: Ports) -> None:
        Log(broker)
        async with Consumer(ports, settings(auto_offset_reset=reset)) as consumer:
            consumer.assign([T0, T1])
            assert await drain(consumer) == seen
            assert await consumer.position(T0) == LENGTH
            consumer.seek(T1, 500)
            assert await drain(consumer) == [each for each in seen if each[0] == 1], "out of range, so reset"

    play(test)


def test_partitions_that_come_while_offsets_are_asked_for_have_theirs_asked_for_too() -> None:
    """They were read from their beginning, and committed back to it (seed 910902 of groups)."""

    async def test(broker: ScriptedBroker, ports: Ports) -> None:
        Log(broker)
        may_answer = asyncio.Event()

        def find(request: FindCoordinatorRequest) -> FindCoordinatorResponse:
            found = Coordinator(key="g", node_id=1, host=HOST, port=PORT, error_message=None)
            return FindCoordinatorResponse(coordinators=[found])

        async def committed(request: OffsetFetchRequest) -> OffsetFetchResponse:
            await may_answer.wait()
            asked = request.groups[0].topics
            assert asked is not None
            held = [
                OffsetFetchResponsePartitions(partition_index=index, committed_offset=8, metadata="")
                for index in asked[0].partition_indexes
            ]
            topic = OffsetFetchResponseTopics(name="t", partitions=held)
            return OffsetFetchResponse(groups=[OffsetFetchResponseGroup(group_id="g", topics=[topic])])

        broker.answers |= {ApiKey.FIND_COORDINATOR: find, ApiKey.OFFSET_FETCH: committed}
        given = settings(group_id="g", enable_auto_commit=False, auto_offset_reset="earliest")
        async with Consumer(ports, given) as consumer:
            consumer.assign([T0])
            await consumer.poll(100)
            consumer.assign([T0, T1])
            may_answer.set()
            assert await drain(consumer) == [(0, 8), (0, 9), (1, 8), (1, 9)]

    play(test)


def test_without_a_policy_it_is_an_error_until_the_user_says_where() -> None:
    async def test(broker: ScriptedBroker, ports: Ports) -> None:
        Log(broker)
        async with Consumer(ports, settings(auto_offset_reset="none")) as consumer:
            consumer.assign([T0])
            with pytest.raises(NoOffsetForPartition):
                await consumer.poll(1_000)
            consumer.seek(T0, 8)
            assert await drain(consumer) == [(0, 8), (0, 9)]
            consumer.seek(T0, 1)
            with pytest.raises(NoOffsetForPartition, match="no offset 1,"):
                await drain(consumer)

    play(test)


def test_errors_that_pass_are_waited_out_with_new_metadata() -> None:
    async def test(broker: ScriptedBroker, ports: Ports) -> None:
        log = Log(broker)
        refusals = [
            ErrorCode.NOT_LEADER_OR_FOLLOWER,
            ErrorCode.FENCED_LEADER_EPOCH,
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ]
        log.refuse = lambda partition, offset: refusals.pop() if refusals and partition == 1 else None
        async with Consumer(ports, settings(auto_offset_reset="earliest")) as consumer:
            consumer.assign([T0, T1])
            assert await drain(consumer) == ALL
            assert refusals == []
        assert broker.count(ApiKey.METADATA) > 3

    play(test)


def test_errors_that_do_not_pass_are_raised_and_do_not_stop_the_others() -> None:
    async def test(broker: ScriptedBroker, ports: Ports) -> None:
        log = Log(broker)
        log.refuse = lambda partition, offset: ErrorCode.TOPIC_AUTHORIZATION_FAILED if partition == 1 else None
        async with Consumer(ports, settings(auto_offset_reset="earliest")) as consumer:
            consumer.assign([T0, T1])
            with pytest.raises(KafkaError) as refused:
                await drain(consumer)
            assert refused.value.code is ErrorCode.TOPIC_AUTHORIZATION_FAILED
            consumer.assign([T0])
            assert await drain(consumer) == ALL[: LENGTH - FIRST]

    play(test)


def test_a_cut_connection_is_made_anew() -> None:
    async def test(broker: ScriptedBroker, ports: Ports) -> None:
        log = Log(broker)
        cuts = 3

        async def fetch(request: FetchRequest) -> FetchResponse | None:
            nonlocal cuts
            cuts -= 1
            return None if cuts >= 0 else await log.fetch(request)

        broker.answers[ApiKey.FETCH] = fetch
        async with Consumer(ports, settings(auto_offset_reset="earliest")) as consumer:
            consumer.assign([T0, T1])
            assert await drain(consumer) == ALL

    play(test)


def test_polls_return_in_time_whatever_the_broker_does() -> None:
    async def test(broker: ScriptedBroker, ports: Ports) -> None:
        Log(broker)
        broker.is_up = False
        async with Consumer(ports, settings(auto_offset_reset="earliest")) as consumer:
            consumer.assign([T0])
            before = ports.clock.monotonic_ms()
            assert await consumer.poll(250) == []
            assert 250 <= ports.clock.monotonic_ms() - before <= 260
            broker.is_up = True
            assert len(await drain(consumer)) == LENGTH - FIRST

    play(test)


def test_a_seek_drops_what_was_fetched() -> None:
    async def test(broker: ScriptedBroker, ports: Ports) -> None:
        Log(broker)
        async with Consumer(ports, settings(auto_offset_reset="earliest", max_poll_records=2)) as consumer:
            consumer.assign([T0])
            assert [record.offset for record in await consumer.poll(1_000)] == [2, 3]
            consumer.seek(T0, 9)
            assert [record.offset for record in await consumer.poll(1_000)] == [9]
            consumer.seek(T0, 4)
            first = await anext(consumer)
            assert (first.offset, await consumer.position(T0)) == (4, 5)

    play(test)


def test_no_partition_starves_behind_another() -> None:
    async def test(broker: ScriptedBroker, ports: Ports) -> None:
        Log(broker)
        async with Consumer(ports, settings(auto_offset_reset="earliest", max_poll_records=1)) as consumer:
            consumer.assign([T0, T1])
            await asyncio.sleep(0)
            turns = [(await consumer.poll(1_000))[0].partition for _ in range(6)]
            assert sorted(turns) == [0, 0, 0, 1, 1, 1]

    play(test)


def test_a_topic_that_appears_late_is_read_and_one_that_never_does_has_no_position() -> None:
    async def test(broker: ScriptedBroker, ports: Ports) -> None:
        Log(broker)
        broker.topics = {}
        async with Consumer(ports, settings(auto_offset_reset="earliest", default_api_timeout_ms=5_000)) as consumer:
            consumer.assign([T0])
            with pytest.raises(NoOffsetForPartition, match="5000 ms"):
                await consumer.position(T0)
            assert await consumer.poll(3_000) == []
            broker.topics = {"t": 2}
            assert len(await drain(consumer)) == LENGTH - FIRST

    play(test)


def test_calls_that_make_no_sense_say_so() -> None:
    async def test(broker: ScriptedBroker, ports: Ports) -> None:
        async with Consumer(ports, settings()) as consumer:
            with pytest.raises(Misused, match="subscribe to topics or assign"):
                await consumer.poll(0)
            with pytest.raises(Misused, match=r"group\.id"):
                consumer.subscribe(["t"])
            with pytest.raises(Misused, match="t-0 is not assigned"):
                consumer.seek(T0, 1)
            consumer.assign([T0])
            with pytest.raises(Misused, match=r"group\.id"):
                await consumer.commit()
            with pytest.raises(Misused, match="cannot be -5"):
                consumer.seek(T0, -5)
        async with Consumer(ports, settings(group_id="g", enable_auto_commit=False)) as consumer:
            consumer.assign([T0])
            with pytest.raises(Misused, match="exclude each other"):
                consumer.subscribe(["t"])

    play(test)


def made_anew(broker: ScriptedBroker) -> None:
    """The topic was deleted, and there is another one under its name."""
    describe = broker.answers[ApiKey.METADATA]

    def described(request: MetadataRequest) -> MetadataResponse:
        response = describe(request)
        assert isinstance(response, MetadataResponse)
        for topic in response.topics:
            topic.topic_id = ANOTHER_ID
        return response

    broker.answers[ApiKey.METADATA] = described


@pytest.mark.parametrize(("reset", "begins_at"), [("earliest", FIRST), ("latest", LENGTH), ("none", None)])
def test_a_position_in_a_deleted_topic_says_nothing_of_its_successor(reset: str, begins_at: int | None) -> None:
    async def test(broker: ScriptedBroker, ports: Ports) -> None:
        log = Log(broker)
        async with Consumer(ports, settings(auto_offset_reset=reset)) as consumer:
            consumer.assign([T0])
            consumer.seek(T0, 7)
            assert await drain(consumer) == [(0, 7), (0, 8), (0, 9)]
            known = broker.answers[ApiKey.METADATA]
            made_anew(broker)
            refusals = [ErrorCode.UNKNOWN_TOPIC_ID]
            log.refuse = lambda partition, offset: refusals.pop() if refusals else None
            if begins_at is None:
                with pytest.raises(NoOffsetForPartition, match="t was deleted and made anew"):
                    await drain(consumer)
                consumer.seek(T0, 8)
                begins = 8
            else:
                begins = begins_at
            assert await drain(consumer) == [(0, offset) for offset in range(begins, LENGTH)]
            broker.answers[ApiKey.METADATA] = known
            refusals.append(ErrorCode.NOT_LEADER_OR_FOLLOWER)
            assert await drain(consumer) == [], "a broker that lags behind tells of the topic before"
            assert await consumer.position(T0) == LENGTH

    play(test)
