"""What transactions of the client library must do with any broker, whichever `transaction.version` the cluster is at.

Run in `tests/compat` against Apache Kafka, too. Each case uses topics, groups and transactional ids of its own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from tests.integration.client_cases import new_topic, numbers, read, reader

from odradek.client import Client, GroupMetadata, Producer, ProducerIdentity, TopicPartition
from odradek.client.admin.cluster import UpgradeType
from odradek.client.errors import Misused, ProducerFailed, TransactionFailed
from odradek.client.offsets import Membership
from odradek.client.producer.transactions import FEATURE
from odradek.protocol.errors import ErrorCode, KafkaError

Case = Callable[[Client, str], Awaitable[None]]
CASES: list[Case] = []


def case(test: Case) -> Case:
    CASES.append(test)
    return test


async def lower_transaction_version(client: Client, level: int) -> None:
    """Come back when the cluster has the feature at that level; 2 is where it begins."""
    async with client.admin() as admin:
        if level < 2:
            outcomes = await admin.update_features({FEATURE: level}, upgrade_type=UpgradeType.SAFE_DOWNGRADE)
            assert outcomes == {FEATURE: None}
        for _ in range(200):
            finalized = (await admin.describe_features()).finalized_features
            if sum(each.max_version_level for each in finalized if each.name == FEATURE) == level:
                return
            await asyncio.sleep(0.05)
        raise AssertionError(f"{FEATURE} did not become {level}")


def transactional(client: Client, name: str, **more: object) -> Producer:
    settings = {"transactional.id": name, "linger.ms": 0}
    return client.producer(settings | {key.replace("_", "."): str(given) for key, given in more.items()})


async def send(producer: Producer, topic: str, *values: int) -> None:
    receipts = [await producer.submit(topic, b"%d" % number, partition=number % 3) for number in values]
    await asyncio.gather(*receipts)


async def seen(client: Client, partitions: list[TopicPartition], *, committed: bool = True) -> list[int]:
    """All that is there now, for a reader of either kind: up to the ends that it is told."""
    isolation = "read_committed" if committed else "read_uncommitted"
    records = []
    async with reader(client, isolation_level=isolation) as consumer:
        consumer.assign(partitions)
        ends = await consumer.end_offsets(partitions)
        while any([await consumer.position(each) < end for each, end in ends.items()]):
            records += await consumer.poll(500)
    return numbers(records)


@case
async def commits_are_seen_and_aborts_are_not(client: Client, name: str) -> None:
    partitions = await new_topic(client, name)
    async with transactional(client, name) as producer:
        await producer.init_transactions()
        for begin in range(0, 60, 6):
            producer.begin_transaction()
            await send(producer, name, *range(begin, begin + 6))
            if begin % 12:
                await producer.abort_transaction()
            else:
                await producer.commit_transaction()
        producer.begin_transaction()
        await producer.commit_transaction()  # One that is empty.
        producer.begin_transaction()
        await producer.abort_transaction()
    assert await seen(client, partitions) == [number for number in range(60) if number % 12 < 6]
    assert await seen(client, partitions, committed=False) == list(range(60))


@case
async def an_open_transaction_holds_back_readers_of_what_is_committed(client: Client, name: str) -> None:
    (first, *_) = partitions = await new_topic(client, name)
    async with transactional(client, name) as producer, client.producer({"linger.ms": 0}) as plain:
        await producer.init_transactions()
        await send(plain, name, 0)
        producer.begin_transaction()
        await send(producer, name, 3)
        await send(plain, name, 6)
        async with reader(client, isolation_level="read_committed") as consumer:
            consumer.assign(partitions)
            assert await consumer.end_offsets([first]) == {first: 1}
            assert numbers(await read(consumer, 1)) == [0]
            assert await consumer.poll(300) == []
            await producer.commit_transaction()
            assert numbers(await read(consumer, 2)) == [3, 6]


async def fail_within(producer: Producer, topic: str) -> None:
    async with producer.transaction():
        await producer.send(topic, b"2")
        raise ZeroDivisionError


@case
async def the_block_commits_or_aborts(client: Client, name: str) -> None:
    partitions = await new_topic(client, name)
    async with transactional(client, name) as producer:
        await producer.init_transactions()
        async with producer.transaction():
            await producer.submit(name, b"1")
        with pytest.raises(ZeroDivisionError):
            await fail_within(producer, name)
        async with producer.transaction():
            await producer.submit(name, b"3")
    assert await seen(client, partitions) == [1, 3]


@case
async def a_later_producer_of_the_name_fences_the_earlier_one(client: Client, name: str) -> None:
    partitions = await new_topic(client, name)
    async with transactional(client, name) as zombie, transactional(client, name) as heir:
        await zombie.init_transactions()
        zombie.begin_transaction()
        await send(zombie, name, 1)
        await heir.init_transactions()  # Aborts what the other has left open.
        receipt = await zombie.submit(name, b"2", partition=1)
        with pytest.raises(KafkaError) as refused:
            await receipt
        assert refused.value.code is ErrorCode.INVALID_PRODUCER_EPOCH
        with pytest.raises(TransactionFailed):
            await zombie.commit_transaction()
        with pytest.raises(ProducerFailed, match="PRODUCER_FENCED"):
            await zombie.abort_transaction()
        with pytest.raises(ProducerFailed):
            zombie.begin_transaction()
        async with heir.transaction():
            await send(heir, name, 3)
    assert await seen(client, partitions) == [3]


@case
async def what_is_closed_open_is_aborted(client: Client, name: str) -> None:
    partitions = await new_topic(client, name)
    async with transactional(client, name) as producer:
        await producer.init_transactions()
        producer.begin_transaction()
        await send(producer, name, 1)
    assert await seen(client, partitions) == []
    assert await seen(client, partitions, committed=False) == [1]


@case
async def offsets_are_part_of_the_transaction(client: Client, name: str) -> None:
    """Consume, transform, produce: output and position come together, or neither does."""
    inputs = await new_topic(client, f"{name}-in")
    outputs = await new_topic(client, f"{name}-out")
    async with client.producer() as plain:
        await send(plain, f"{name}-in", *range(30))
    committed: list[int] = []
    async with transactional(client, name) as producer:
        await producer.init_transactions()
        for turn in range(4):
            async with reader(client, name, isolation_level="read_committed", max_poll_records=10) as consumer:
                consumer.subscribe([f"{name}-in"])
                records = await read(consumer, 1)
                producer.begin_transaction()
                for record in records:
                    await producer.submit(f"{name}-out", record.value, partition=record.partition)
                offsets = {each: await consumer.position(each) for each in consumer.assignment}
                await producer.send_offsets_to_transaction(offsets, consumer.group_metadata())
                if turn % 2:
                    await producer.abort_transaction()
                else:
                    await producer.commit_transaction()
                    committed += numbers(records)
                held = await consumer.committed(inputs)
                assert sum(each.offset for each in held.values() if each is not None) == len(committed)
    assert await seen(client, outputs) == sorted(committed)
    assert 2 <= len(committed) <= 20


@case
async def offsets_of_a_former_member_are_refused(client: Client, name: str) -> None:
    await new_topic(client, name)
    member_of = reader(client, name, isolation_level="read_committed")
    async with transactional(client, name) as producer, member_of as consumer:
        await producer.init_transactions()
        consumer.subscribe([name])
        while not consumer.assignment:
            await consumer.poll(200)
        member = consumer.group_metadata().member
        producer.begin_transaction()
        stale = Membership(member.member_id, member.generation_id - 1)
        with pytest.raises(TransactionFailed, match="ILLEGAL_GENERATION"):
            await producer.send_offsets_to_transaction({TopicPartition(name, 0): 1}, GroupMetadata(name, stale))
        with pytest.raises(TransactionFailed):
            await producer.submit(name, b"1")
        with pytest.raises(TransactionFailed):
            await producer.commit_transaction()
        await producer.abort_transaction()
        async with producer.transaction():
            await producer.send_offsets_to_transaction({TopicPartition(name, 0): 2}, consumer.group_metadata())
        held = (await consumer.committed([TopicPartition(name, 0)]))[TopicPartition(name, 0)]
        assert held is not None
        assert held.offset == 2


@case
async def a_record_that_is_refused_fails_its_transaction_alone(client: Client, name: str) -> None:
    partitions = await new_topic(client, name)
    async with client.admin() as admin:
        await admin.create_topic(f"{name}-small", partitions=1, configs={"max.message.bytes": "1000"})
    async with transactional(client, name) as producer:
        await producer.init_transactions()
        producer.begin_transaction()
        await send(producer, name, 0, 1, 2)
        with pytest.raises(KafkaError) as refused:
            await producer.send(f"{name}-small", bytes(2_000))
        assert refused.value.code is ErrorCode.MESSAGE_TOO_LARGE
        with pytest.raises(TransactionFailed, match="it has failed"):
            await producer.commit_transaction()
        await producer.abort_transaction()
        async with producer.transaction():
            await send(producer, name, 3, 4, 5)
    assert await seen(client, partitions) == [3, 4, 5]


@case
async def guests_write_in_the_transaction(client: Client, name: str) -> None:
    """As executors do for their driver: each to a partition of its own, in one transaction after another."""
    partitions = await new_topic(client, name)

    async def work(identity: ProducerIdentity, *values: int) -> list[TopicPartition]:
        async with client.producer({"linger.ms": 0}, guest_of=identity) as guest:
            await send(guest, name, *values)
            with pytest.raises(Misused):
                await guest.commit_transaction()
            return await guest.hand_back()

    async with transactional(client, name) as owner:
        await owner.init_transactions()
        async with owner.transaction():
            await send(owner, name, 0, 1, 2)  # Their sequences do not disturb those of later guests.
        for begin in (3, 9, 15):
            owner.begin_transaction()
            identity = await owner.share_transaction()
            for written in await asyncio.gather(*(work(identity, begin + n, begin + n + 3) for n in range(3))):
                owner.include(written)
            if begin == 9:
                await owner.abort_transaction()
            else:
                await owner.commit_transaction()
        owner.begin_transaction()
        identity = await owner.share_transaction()
        await work(identity, 21)  # It is never told of, so it does not count.
        await owner.commit_transaction()
        with pytest.raises((KafkaError, TransactionFailed)):
            await work(identity, 24)
        async with owner.transaction():
            await send(owner, name, 27)
    assert await seen(client, partitions) == [0, 1, 2, *range(3, 9), *range(15, 21), 27]


@case
async def a_transaction_that_takes_too_long_is_aborted(client: Client, name: str) -> None:
    partitions = await new_topic(client, name)
    async with transactional(client, name, transaction_timeout_ms=1_000) as producer:
        await producer.init_transactions()
        producer.begin_transaction()
        await send(producer, name, 1)
        async with reader(client, isolation_level="read_committed") as consumer:
            consumer.assign(partitions)
            for _ in range(200):  # Its coordinator looks for such every 10 s unless told otherwise.
                if await consumer.end_offsets([partitions[1]]) == {partitions[1]: 2}:
                    break
                await asyncio.sleep(0.1)
        with pytest.raises(ProducerFailed):
            await producer.commit_transaction()
    assert await seen(client, partitions) == []
