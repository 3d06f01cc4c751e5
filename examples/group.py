"""A group of two consumers, its offsets, and a crash: `python examples/group.py`; also a part of `make demo`.

Three offsets tell how far a group is in a partition. The log end is the node's: where the next record goes. The current
offset is the consumer's own: what it reads next. The committed offset is what the consumer has told the node it is done
with, and the only one of the two that outlives the consumer. When it crashes, whoever takes over starts there, so what
was read and not committed is read again: at least once, never lost.

Each consumer is a process of its own, written with `odradek.client`, that reads and commits when it is told to.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from asyncio.subprocess import PIPE, Process
from collections.abc import Sequence
from dataclasses import dataclass, field

from odradek.client import Consumer, ConsumerRecord, TopicPartition
from odradek.clients import connect
from odradek.testing import running_node

TOPIC = "parcels"
GROUP = "couriers"
PARTITIONS = 4
EVERY_PARTITION = [TopicPartition(TOPIC, index) for index in range(PARTITIONS)]
RECORDS = 12
"""In each partition; a record is a square of the table."""
COMMITTED, READ, UNREAD = "■", "▨", "□"
NODE_PROPERTIES = {"group.min.session.timeout.ms": "1000", "group.initial.rebalance.delay.ms": "300"}
"""So that nobody has to wait long for a consumer to be missed, nor for a second one to come."""
PATIENCE_S = 20.0


def main() -> int:
    with running_node(in_process=False, properties=NODE_PROPERTIES) as node:
        return 0 if asyncio.run(show(node.bootstrap_servers)) else 1


async def show(bootstrap: str) -> bool:
    """The whole story; whether everything was read, and no more of it twice than had not been committed."""
    await produce(bootstrap)
    ada, ben = [await Courier.start(name, bootstrap) for name in ("Ada", "Ben")]
    try:
        await share(ada, ben)
        print(f"\n  Two consumers join the group {GROUP!r} and get two partitions each:")
        await table(bootstrap, ada, ben)
        print(f"    (a square is a record: {UNREAD} not read yet, {READ} read, {COMMITTED} committed)")

        await together("read 5", ada, ben)
        await together("commit", ada, ben)
        print("\n  Each reads five records of every partition and commits: the two offsets move together.")
        await table(bootstrap, ada, ben)

        await together("read 4", ada, ben)
        print("\n  Each reads four more, and does not commit yet:")
        await table(bootstrap, ada, ben)

        began = time.monotonic()
        await ben.crash()
        await share(ada)
        print(f"\n  Ben is killed (SIGKILL). {time.monotonic() - began:.1f} s later the group has missed him, and his")
        print("  partitions are Ada's. Nobody knows how far he had read, so she starts where he had committed:")
        await table(bootstrap, ada)

        await together(f"read {RECORDS}", ada)
        await together("commit", ada)
        print("\n  She reads the rest and commits; what Ben had read but not committed has been read again.")
        await table(bootstrap, ada)
        return verdict(ada, ben)
    finally:
        await asyncio.gather(ada.leave(), ben.leave())


def verdict(ada: Courier, ben: Courier) -> bool:
    everything = {(partition, offset) for partition in range(PARTITIONS) for offset in range(RECORDS)}
    seen = ada.read + ben.read
    lost, twice = everything - set(seen), len(seen) - len(set(seen))
    print(f"\n  {len(everything)} records, {len(lost)} lost, {twice} read twice: at least once.")
    return not lost and twice == 4 * 2


async def produce(bootstrap: str) -> None:
    client = connect(bootstrap)
    async with client.admin() as admin:
        await admin.create_topic(TOPIC, partitions=PARTITIONS)
    async with client.producer() as producer:
        for number in range(PARTITIONS * RECORDS):
            await producer.submit(TOPIC, f"parcel {number}".encode(), partition=number % PARTITIONS)
        await producer.flush()
    print(f"  {PARTITIONS * RECORDS} records written to {PARTITIONS} partitions of {TOPIC!r}")


async def table(bootstrap: str, *couriers: Courier) -> None:
    """A line a partition; the node is asked for what it knows, the consumers for what only they know."""
    async with connect(bootstrap).consumer({"group.id": GROUP}) as asking:
        ends = await asking.end_offsets(EVERY_PARTITION)
        committed = await asking.committed(EVERY_PARTITION)
    print(f"    {'partition':<11}{'':{RECORDS + 2}}{'log end':>7}{'current':>9}{'committed':>11}{'lag':>5}  owner")
    for partition in EVERY_PARTITION:
        owner = next(each for each in couriers if partition.partition in each.positions)
        current, stored = owner.positions[partition.partition], committed[partition]
        done = stored.offset if stored is not None else 0
        squares = COMMITTED * done + READ * (current - done) + UNREAD * (ends[partition] - max(current, done))
        known = str(done) if stored is not None else "–"
        name, lag = f"{TOPIC}-{partition.partition}", ends[partition] - done
        print(
            f"    {name:<11}{squares:<{RECORDS + 2}}{ends[partition]:>7}{current:>9}{known:>11}{lag:>5}  {owner.name}"
        )


async def all_committed(bootstrap: str) -> bool:
    """Whether the node knows that the group is done with everything."""
    async with connect(bootstrap).consumer({"group.id": GROUP}) as asking:
        committed = await asking.committed(EVERY_PARTITION)
    return all(each is not None and each.offset == RECORDS for each in committed.values())


# --- the consumers, seen from here ------------------------------------------------------------------------------------


@dataclass
class Courier:
    """A consumer in a process of its own, and what it has told so far."""

    name: str
    process: Process
    positions: dict[int, int] = field(default_factory=dict)
    """The partitions that it owns, and the current offset in each."""
    read: list[tuple[int, int]] = field(default_factory=list)

    @classmethod
    async def start(cls, name: str, bootstrap: str) -> Courier:
        command = [sys.executable, __file__, "courier", name, bootstrap]
        return cls(name, await asyncio.create_subprocess_exec(*command, stdin=PIPE, stdout=PIPE))

    async def do(self, order: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{order}\n".encode())
        while await self.hear() != order:
            pass

    async def hear(self) -> str:
        """Take one report in; which order it answers, if any."""
        assert self.process.stdout is not None
        report = json.loads(await asyncio.wait_for(self.process.stdout.readline(), PATIENCE_S))
        self.positions = {int(partition): offset for partition, offset in report["positions"].items()}
        self.read += [(partition, offset) for partition, offset in report["read"]]
        return str(report["order"])

    async def crash(self) -> None:
        self.process.kill()
        await self.process.wait()

    async def leave(self) -> None:
        """End of orders: it leaves the group and ends."""
        if self.process.returncode is None:
            assert self.process.stdin is not None
            self.process.stdin.close()
            await self.process.communicate()


async def share(*couriers: Courier) -> None:
    """Until these own everything, each of them something."""
    while sum(len(each.positions) for each in couriers) != PARTITIONS or not all(each.positions for each in couriers):
        await asyncio.gather(*(each.hear() for each in couriers))


async def together(order: str, *couriers: Courier) -> None:
    await asyncio.gather(*(each.do(order) for each in couriers))


# --- one consumer, in its own process ---------------------------------------------------------------------------------


async def courier(name: str, bootstrap: str) -> None:
    settings = {
        "client.id": name,
        "group.id": GROUP,
        "auto.offset.reset": "earliest",
        "enable.auto.commit": "false",
        "session.timeout.ms": "1500",
        "heartbeat.interval.ms": "300",
        # Whoever stays in the group keeps what it has, and how far it is there.
        "partition.assignment.strategy": "cooperative-sticky",
    }
    async with connect(bootstrap).consumer(settings) as consumer:
        # Paused partitions are owned but not read: polling keeps the group together until an order comes.
        consumer.subscribe([TOPIC], on_assigned=lambda partitions: consumer.pause(*partitions))
        while True:
            order = asyncio.ensure_future(asyncio.to_thread(sys.stdin.readline))
            while not order.done():
                await consumer.poll(100)
                await report(consumer)
            match order.result().split():
                case ["read", count]:
                    read = [await read_from(consumer, each, int(count)) for each in consumer.assignment]
                    await report(consumer, f"read {count}", [record for records in read for record in records])
                case ["commit"]:
                    await consumer.commit()
                    await report(consumer, "commit")
                case _:
                    return


async def read_from(consumer: Consumer, partition: TopicPartition, count: int) -> list[ConsumerRecord]:
    """So many records of one partition, fewer where it ends before."""
    end = (await consumer.end_offsets([partition]))[partition]
    read: list[ConsumerRecord] = []
    consumer.resume(partition)
    while len(read) < count and await consumer.position(partition) < end:
        read += await consumer.poll(1_000, max_records=count - len(read))
    consumer.pause(partition)
    return read


async def report(consumer: Consumer, order: str = "", read: Sequence[ConsumerRecord] = ()) -> None:
    positions = {each.partition: await consumer.position(each) for each in consumer.assignment}
    offsets = [(record.partition, record.offset) for record in read]
    print(json.dumps({"order": order, "positions": positions, "read": offsets}), flush=True)


if __name__ == "__main__":
    if sys.argv[1:2] == ["courier"]:
        asyncio.run(courier(*sys.argv[2:]))
    else:
        sys.exit(main())
