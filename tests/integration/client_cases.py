"""What the client library must do with any broker: run here against a node, in `tests/compat` against Apache Kafka.

Each case uses topics and groups of its own, so that all can share a broker.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Awaitable, Callable

import pytest

from odradek.client import Client, Consumer, ConsumerRecord, TopicPartition
from odradek.client.admin.cluster import ConfigChange, ConfigOperation, ConfigResource, ResourceType
from odradek.client.admin.topics import NewTopic
from odradek.client.leaders import EARLIEST, LATEST, MAX_TIMESTAMP, FoundOffset
from odradek.client.offsets import CommittedOffset
from odradek.client.producer.partitioners import partition_of_key
from odradek.protocol.errors import ErrorCode, KafkaError

Case = Callable[[Client], Awaitable[None]]
CASES: list[Case] = []

POLL_MS = 500
PATIENCE_POLLS = 60


def case(test: Case) -> Case:
    CASES.append(test)
    return test


async def new_topic(client: Client, name: str, partitions: int = 3) -> list[TopicPartition]:
    async with client.admin() as admin:
        await admin.create_topic(name, partitions=partitions, replication_factor=1)
        for _ in range(PATIENCE_POLLS):
            (described,) = (await admin.describe_topics([name])).values()
            if not isinstance(described, KafkaError) and all(each.leader >= 0 for each in described.partitions):
                return [TopicPartition(name, index) for index in range(partitions)]
            await asyncio.sleep(0.05)
    raise AssertionError(f"{name} has no leaders")


async def fill(client: Client, topic: str, count: int) -> None:
    async with client.producer() as producer:
        for number in range(count):
            await producer.submit(topic, b"%d" % number, key=b"key-%d" % number)


async def read(consumer: Consumer, count: int) -> list[ConsumerRecord]:
    records: list[ConsumerRecord] = []
    for _ in range(PATIENCE_POLLS):
        records += await consumer.poll(POLL_MS)
        if len(records) >= count:
            return records
    raise AssertionError(f"{len(records)} records instead of {count}")


def reader(client: Client, group: str | None = None, **more: object) -> Consumer:
    settings = {"group.id": group, "auto.offset.reset": "earliest", "enable.auto.commit": False}
    return client.consumer(settings | {name.replace("_", "."): str(given) for name, given in more.items()})


def numbers(records: list[ConsumerRecord]) -> list[int]:
    return sorted(int(record.value or b"-1") for record in records)


@case
async def records_arrive_as_they_were_sent(client: Client) -> None:
    partitions = await new_topic(client, "as-sent")
    async with client.producer({"compression.type": "gzip"}) as producer:
        sent = await producer.send(
            "as-sent", b"v", key=b"k", headers=[("a", b"1"), ("a", None)], timestamp_ms=1_700_000_000_000
        )
        await producer.send("as-sent", None, key=b"k")
        await producer.send("as-sent", b"", partition=sent.partition)
    assert sent.partition == partition_of_key(b"k", 3)
    async with reader(client) as consumer:
        consumer.assign(partitions)
        first, second, third = await read(consumer, 3)
        assert (first.key, first.value, first.offset) == (b"k", b"v", sent.offset)
        assert (first.headers, first.timestamp) == ((("a", b"1"), ("a", None)), 1_700_000_000_000)
        assert (second.value, third.value, third.key) == (None, b"", None)


@case
async def positions_can_be_moved_and_asked_for(client: Client) -> None:
    (partition,) = await new_topic(client, "moving", 1)
    start_ms = int(time.time() * 1000) - 1_000
    async with client.producer() as producer:
        receipts = [await producer.submit("moving", b"%d" % n, timestamp_ms=start_ms + n) for n in range(50)]
        await asyncio.gather(*receipts)
    async with reader(client) as consumer:
        consumer.assign([partition])
        assert await consumer.position(partition) == 0
        consumer.seek(partition, 40)
        assert numbers(await read(consumer, 10)) == list(range(40, 50))
        consumer.seek_to_beginning(partition)
        assert len(await read(consumer, 50)) == 50
        assert await consumer.position(partition) == 50
        assert consumer.lag(partition) == 0
        consumer.seek_to_end()
        assert await consumer.poll(100) == []
        assert await consumer.beginning_offsets([partition]) == {partition: 0}
        assert await consumer.end_offsets([partition]) == {partition: 50}
        found = await consumer.offsets_for_times({partition: start_ms + 30})
        assert found[partition] is not None
        assert found[partition] == FoundOffset(30, start_ms + 30, found[partition].leader_epoch)
        assert await consumer.offsets_for_times({partition: start_ms + 50}) == {partition: None}
        consumer.seek(partition, 1_000_000)  # Out of range: `auto.offset.reset` decides.
        assert len(await read(consumer, 50)) == 50


@case
async def polls_are_limited_and_partitions_can_be_paused(client: Client) -> None:
    partitions = await new_topic(client, "paused")
    await fill(client, "paused", 300)
    async with reader(client, max_poll_records=7) as consumer:
        consumer.assign(partitions)
        consumer.pause(partitions[0])
        records = []
        for _ in range(PATIENCE_POLLS):
            some = await consumer.poll(100)
            assert len(some) <= 7
            records += some
        assert consumer.paused == [partitions[0]]
        kept_back = 300 - len(records)
        assert 0 < kept_back < 300
        assert partitions[0].partition not in {record.partition for record in records}
        consumer.resume(partitions[0])
        rest = await read(consumer, kept_back)
        assert numbers(records + rest) == list(range(300))


@case
async def a_lone_member_reads_commits_and_goes_on_where_it_was(client: Client) -> None:
    await new_topic(client, "resumed")
    await fill(client, "resumed", 100)
    async with reader(client, "resuming") as consumer:
        consumer.subscribe(["resumed"])
        await read(consumer, 100)
        await consumer.commit()
        committed = await consumer.committed(consumer.assignment)
        assert sum(held.offset for held in committed.values() if held is not None) == 100
    async with client.producer() as producer:
        await producer.send("resumed", b"100")
    async with reader(client, "resuming") as consumer:
        consumer.subscribe(["resumed"])
        assert numbers(await read(consumer, 1)) == [100]


@case
async def automatic_commits_cover_what_was_returned(client: Client) -> None:
    await new_topic(client, "automatic", 1)
    await fill(client, "automatic", 20)
    auto = {"group.id": "automatic", "auto.offset.reset": "earliest"}
    async with client.consumer(auto) as consumer:
        consumer.subscribe(["automatic"])
        taken = [await anext(consumer) for _ in range(5)]
    assert numbers(taken) == [0, 1, 2, 3, 4]
    async with client.consumer(auto) as consumer:
        consumer.subscribe(["automatic"])
        assert numbers(await read(consumer, 15)) == list(range(5, 20)), "what was fetched but not returned comes again"


async def share(client: Client, topic: str, group: str, strategy: str) -> None:
    """Two members come one after the other, then the first leaves; all along every record is read once."""
    partitions = await new_topic(client, topic, 6)
    told: list[tuple[str, str, list[int]]] = []

    def member(name: str) -> Consumer:
        consumer = reader(
            client, group, partition_assignment_strategy=strategy, heartbeat_interval_ms=200, session_timeout_ms=10_000
        )
        consumer.subscribe(
            [topic],
            on_assigned=lambda some: told.append((name, "+", [each.partition for each in some])),
            on_revoked=lambda some: told.append((name, "-", [each.partition for each in some])),
        )
        return consumer

    async def until(*members: Consumer, shares: list[int]) -> None:
        for _ in range(PATIENCE_POLLS):
            await asyncio.gather(*[each.poll(POLL_MS) for each in members])
            if sorted(len(each.assignment) for each in members) == shares:
                owned = [partition for each in members for partition in each.assignment]
                assert sorted(owned) == partitions
                return
        raise AssertionError(f"{[each.assignment for each in members]} instead of {shares}: {told}")

    async with member("b") as second:
        async with member("a") as first:
            await until(first, shares=[6])
            await until(first, second, shares=[3, 3])
            await fill(client, topic, 60)
            halves = await asyncio.gather(read(first, 1), read(second, 1))
            records = halves[0] + halves[1]
            while len(records) < 60:
                records += await first.poll(POLL_MS) + await second.poll(POLL_MS)
            assert numbers(records) == list(range(60))
            await first.commit()
            await second.commit()
        await until(second, shares=[6])
        assert await second.poll(POLL_MS) == [], "all was committed"
    if strategy == "cooperative-sticky":
        gone = [given_up for name, what, given_up in told if (name, what) == ("a", "-")]
        assert len(gone[0]) == 3, "a cooperative member keeps what it can"


@case
async def range_members_share(client: Client) -> None:
    await share(client, "shared-range", "sharing-range", "range")


@case
async def round_robin_members_share(client: Client) -> None:
    await share(client, "shared-robin", "sharing-robin", "roundrobin")


@case
async def cooperative_members_share(client: Client) -> None:
    await share(client, "shared-coop", "sharing-coop", "cooperative-sticky")


@case
async def a_static_member_keeps_its_place(client: Client) -> None:
    await new_topic(client, "static", 2)
    for _ in range(2):
        told: list[TopicPartition] = []
        async with reader(client, "static", group_instance_id="one") as consumer:
            consumer.subscribe(["static"], on_assigned=told.extend)
            while not told:
                await consumer.poll(POLL_MS)
        assert len(told) == 2
    async with client.admin() as admin:
        (described,) = (await admin.describe_groups(["static"])).values()
        assert not isinstance(described, KafkaError)
        assert [each.group_instance_id for each in described.members] == ["one"]
        assert len(described.members[0].assignment) == 2


@case
async def a_pattern_finds_its_topics(client: Client) -> None:
    for name in ("pattern-a", "pattern-b", "other-pattern-c"):
        await new_topic(client, name, 1)
        await fill(client, name, 5)
    async with reader(client, "patterned") as consumer:
        consumer.subscribe(re.compile("pattern-.*"))
        assert {record.topic for record in await read(consumer, 10)} == {"pattern-a", "pattern-b"}


@case
async def a_commit_of_a_member_that_was_thrown_out_is_refused(client: Client) -> None:
    await new_topic(client, "thrown-out", 1)
    await fill(client, "thrown-out", 3)
    slow = reader(client, "thrown-out", max_poll_interval_ms=6_000, heartbeat_interval_ms=500, session_timeout_ms=6_000)
    lost: list[TopicPartition] = []
    async with slow as consumer:
        consumer.subscribe(["thrown-out"], on_lost=lost.extend)
        await read(consumer, 3)
        await asyncio.sleep(7.5)
        with pytest.raises(KafkaError) as refused:
            await consumer.commit()
        assert refused.value.code is ErrorCode.UNKNOWN_MEMBER_ID
        again = await read(consumer, 3)
        assert numbers(again) == [0, 1, 2], "nothing was committed, so it comes again"
    assert lost == [TopicPartition("thrown-out", 0)]


@case
async def topics_are_administered(client: Client) -> None:
    async with client.admin() as admin:
        topics = [NewTopic("administered", 1, 1, (("retention.ms", "1000000"),)), NewTopic("bad name", 1, 1)]
        outcomes = await admin.create_topics(topics)
        assert outcomes["administered"] is None
        assert outcomes["bad name"] is not None
        assert outcomes["bad name"].code is ErrorCode.INVALID_TOPIC_EXCEPTION
        with pytest.raises(KafkaError) as twice:
            await admin.create_topic("administered")
        assert twice.value.code is ErrorCode.TOPIC_ALREADY_EXISTS
        assert await admin.create_topics([NewTopic("only-tried")], validate_only=True) == {"only-tried": None}
        assert await admin.create_partitions({"administered": 4}) == {"administered": None}
        names = [topic.name for topic in await admin.list_topics()]
        assert "administered" in names
        assert "only-tried" not in names
        await fill(client, "administered", 40)
        partition = TopicPartition("administered", 0)
        found = await admin.list_offsets({partition: LATEST})
        end = found[partition]
        assert isinstance(end, FoundOffset)
        assert await admin.delete_records({partition: end.offset - 1}) == {partition: end.offset - 1}
        first = (await admin.list_offsets({partition: EARLIEST}))[partition]
        assert isinstance(first, FoundOffset)
        assert first.offset == end.offset - 1
        youngest = (await admin.list_offsets({partition: MAX_TIMESTAMP}))[partition]
        assert isinstance(youngest, FoundOffset)
        assert 0 <= youngest.offset < end.offset
        missing = (await admin.list_offsets({TopicPartition("administered", 9): LATEST})).values()
        assert [type(each) for each in missing] == [KafkaError]
        gone = await admin.delete_topics(["administered", "never-was"])
        assert gone["administered"] is None
        assert gone["never-was"] is not None


@case
async def configs_are_described_and_altered(client: Client) -> None:
    await new_topic(client, "configured", 1)
    topic = ConfigResource(ResourceType.TOPIC, "configured")
    async with client.admin() as admin:
        node_id = (await admin.describe_cluster()).brokers[0].broker_id
        broker = ConfigResource(ResourceType.BROKER, str(node_id))
        change = [
            ConfigChange("retention.ms", "5000"),
            ConfigChange("cleanup.policy", "compact", ConfigOperation.APPEND),
        ]
        assert await admin.alter_configs({topic: change}) == {topic: None}
        await asyncio.sleep(0.3)
        described = await admin.describe_configs([topic, broker], synonyms=True)
        held = described[topic]
        assert not isinstance(held, KafkaError)
        values = {each.name: each.value for each in held}
        assert values["retention.ms"] == "5000"
        assert values["cleanup.policy"] == "delete,compact"
        assert not isinstance(described[broker], KafkaError)
        wrong = await admin.alter_configs({topic: [ConfigChange("retention.ms", "soon")]})
        assert wrong[topic] is not None
        assert wrong[topic].code is ErrorCode.INVALID_CONFIG


@case
async def groups_are_administered(client: Client) -> None:
    partitions = await new_topic(client, "grouped", 2)
    await fill(client, "grouped", 10)
    async with client.admin() as admin:
        async with reader(client, "grouped") as consumer:
            consumer.subscribe(["grouped"])
            await read(consumer, 10)
            await consumer.commit()
            (described,) = (await admin.describe_groups(["grouped"])).values()
            assert not isinstance(described, KafkaError)
            assert (described.type, described.state, described.assignor) == ("classic", "Stable", "range")
            assert described.members[0].assignment == tuple(partitions)
            busy = await admin.delete_groups(["grouped"])
            assert busy["grouped"] is not None
            assert busy["grouped"].code is ErrorCode.NON_EMPTY_GROUP
        assert "grouped" in [group.group_id for group in await admin.list_groups()]
        offsets = await admin.group_offsets("grouped")
        assert sorted(offsets) == partitions
        moved = CommittedOffset(1, metadata="by hand")
        assert await admin.alter_group_offsets("grouped", {partitions[0]: moved}) == {partitions[0]: None}
        assert (await admin.group_offsets("grouped", partitions[:1])) == {partitions[0]: moved}
        assert await admin.delete_group_offsets("grouped", partitions[1:]) == {partitions[1]: None}
        assert sorted(await admin.group_offsets("grouped")) == partitions[:1]
        assert await admin.delete_groups(["grouped"]) == {"grouped": None}
        (gone,) = (await admin.describe_groups(["grouped"])).values()
        assert isinstance(gone, KafkaError) or gone.state == "Dead"


@case
async def the_cluster_tells_about_itself(client: Client) -> None:
    await new_topic(client, "told-about", 1)
    async with client.admin() as admin:
        cluster = await admin.describe_cluster()
        assert len(cluster.brokers) == 1
        features = await admin.describe_features()
        assert "metadata.version" in [feature.name for feature in features.finalized_features]
        partition, _ = await admin.describe_quorum()
        assert partition.leader_id in [voter.replica_id for voter in partition.current_voters]
        ((directory,),) = (await admin.describe_log_dirs()).values()  # type: ignore[misc]
        assert "told-about" in [topic.name for topic in directory.topics]
        quota = {"client-id": "told-about"}
        await admin.alter_client_quotas(quota, {"producer_byte_rate": 1e9})
        await asyncio.sleep(0.3)
        (entry,) = [each for each in await admin.describe_client_quotas() if each.entity[0].entity_name == "told-about"]
        assert [(each.key, each.value) for each in entry.values] == [("producer_byte_rate", 1e9)]
        await admin.alter_client_quotas(quota, {"producer_byte_rate": None})
        async with client.producer() as producer:
            await producer.send("told-about", b"x")
        (producers,) = (await admin.describe_producers([TopicPartition("told-about", 0)])).values()
        assert not isinstance(producers, KafkaError)
        assert len(producers) == 1
