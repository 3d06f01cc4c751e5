"""Work that a crash repeats and never loses: `python examples/at_least_once.py`; also a part of `make demo`.

A worker reads orders, writes a bill for each, and only then commits how far it has come. When something fails in
between, it rolls back to what was committed; when it is killed, its next life begins there. Either way some orders are
billed twice: at least once. Committed before they were billed, they would be lost.

`exactly_once.py` does the same work in transactions.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from odradek.testing import running_node

ORDERS, BILLS = "orders", "bills"
GROUP = "billing"
PARTITIONS = 3
RECORDS = 600
BATCH = 50
PATIENCE_S = 30.0


def main(arguments: list[str]) -> int:
    if arguments:
        work(*arguments)
        return 0
    with running_node(in_process=False) as node:
        return 0 if show(node.bootstrap_servers) else 1


# --- the worker -------------------------------------------------------------------------------------------------------


def work(bootstrap: str, run: str) -> None:
    consumer = Consumer(reading(bootstrap, run))
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, "log_level": 0})
    consumer.subscribe([f"{ORDERS}-{run}"])
    while True:
        orders = next_orders(consumer)
        for order in orders:
            producer.produce(f"{BILLS}-{run}", bill(order), key=order.key())
        producer.flush()
        if all_is_well(orders):
            consumer.commit(offsets=behind(orders), asynchronous=False)
        else:
            roll_back(consumer)


def reading(bootstrap: str, run: str) -> dict[str, object]:
    return {
        "bootstrap.servers": bootstrap,
        "group.id": f"{GROUP}-{run}",
        "group.instance.id": "worker-1",  # The next life takes this one's place at once.
        "enable.auto.commit": False,
        "auto.offset.reset": "earliest",
        "isolation.level": "read_committed",
        "log_level": 0,
    }


def next_orders(consumer: Consumer) -> list[Message]:
    """As many as there are, up to a batch; waits for the first."""
    while True:
        orders = [each for each in consumer.consume(BATCH, timeout=0.5) if each.error() is None]
        if orders:
            return orders


def bill(order: Message) -> bytes:
    """The transformation: of no importance here, as long as it says which order it is for."""
    return b"bill for " + (order.value() or b"")


def behind(orders: list[Message]) -> list[TopicPartition]:
    """Where the group goes on when these are done."""
    offsets = {(order.topic() or "", order.partition() or 0): (order.offset() or 0) + 1 for order in orders}
    return [TopicPartition(topic, partition, offset) for (topic, partition), offset in offsets.items()]


def roll_back(consumer: Consumer) -> None:
    """To where the group has committed: the consumer itself has read on, and would go on from there."""
    for partition in consumer.committed(consumer.assignment(), timeout=PATIENCE_S):
        if partition.offset < 0:
            partition.offset = OFFSET_BEGINNING
        consumer.seek(partition)


def all_is_well(orders: list[Message]) -> bool:
    """Here the one who watches decides whether something goes wrong between the work and the commit."""
    print(len(orders), flush=True)
    answer = sys.stdin.readline()
    if not answer:
        sys.exit("nobody watches any more")
    return answer == "well\n"


# --- the one who watches ----------------------------------------------------------------------------------------------


def show(bootstrap: str) -> bool:
    """The whole story; whether nothing was lost, and only that was done twice which was not committed."""
    bills, repeated = with_a_failure_and_a_crash(bootstrap, Path(__file__), "at-least-once")
    lost, doubled = count(bills)
    say(f"{len(bills)} bills for {RECORDS} orders: {lost} lost, {doubled} doubled, as many as had not been committed")
    return lost == 0 and doubled == repeated


def with_a_failure_and_a_crash(bootstrap: str, program: Path, run: str) -> tuple[list[bytes], int]:
    """What was billed at last, and how many orders were billed again."""
    fill(bootstrap, run)
    with Worker(program, bootstrap, run) as first:
        done = first.does(3)
        failed = first.has_written()
        first.goes_on("badly")
        say(f"{done} orders are billed and committed; the next {failed} fail before the commit: it rolls back")
        first.does(3)
        crashed = first.has_written()
        first.kill()
    left = RECORDS - committed(bootstrap, run)
    say(f"kill -9 with {crashed} more billed and not committed; {left} of {RECORDS} orders are not committed")
    with Worker(program, bootstrap, run) as second:
        while left > 0:
            left -= second.does(1)
        deadline = time.monotonic() + PATIENCE_S
        while committed(bootstrap, run) < RECORDS and time.monotonic() < deadline:
            time.sleep(0.05)
    return [message.value() or b"" for message in read_all(bootstrap, f"{BILLS}-{run}")], failed + crashed


class Worker:
    """A worker in a process of its own, which asks after each batch whether all is well."""

    def __init__(self, program: Path, bootstrap: str, run: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, str(program), bootstrap, run], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def has_written(self) -> int:
        """How many bills, that are not committed yet."""
        assert self._process.stdout is not None
        return int(self._process.stdout.readline())

    def goes_on(self, how: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{how}\n")
        self._process.stdin.flush()

    def does(self, batches: int) -> int:
        """How many orders these are."""
        done = 0
        for _ in range(batches):
            done += self.has_written()
            self.goes_on("well")
        return done

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, *_: object) -> None:
        with self._process:
            self.kill()


def fill(bootstrap: str, run: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for made in admin.create_topics([NewTopic(f"{name}-{run}", PARTITIONS, 1) for name in (ORDERS, BILLS)]).values():
        made.result(PATIENCE_S)
    producer = Producer({"bootstrap.servers": bootstrap})
    for number in range(RECORDS):
        producer.produce(f"{ORDERS}-{run}", str(number).encode(), partition=number % PARTITIONS)
    producer.flush()


def committed(bootstrap: str, run: str) -> int:
    """How many orders the group has committed."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": f"{GROUP}-{run}"})
    partitions = [TopicPartition(f"{ORDERS}-{run}", index) for index in range(PARTITIONS)]
    offsets = [max(each.offset, 0) for each in consumer.committed(partitions, timeout=PATIENCE_S)]
    consumer.close()
    return sum(offsets)


def read_all(bootstrap: str, topic: str, isolation_level: str = "read_committed") -> Iterator[Message]:
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "counting",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": isolation_level,
        }
    )
    consumer.assign([TopicPartition(topic, index, 0) for index in range(PARTITIONS)])
    ends = 0
    while ends < PARTITIONS:
        for message in consumer.consume(1_000, timeout=0.5):
            error = message.error()
            if error is None:
                yield message
            elif error.code() == KafkaError._PARTITION_EOF:
                ends += 1
    consumer.close()


def count(bills: list[bytes]) -> tuple[int, int]:
    """How many are lost, how many are there more than once."""
    return RECORDS - len(set(bills)), len(bills) - len(set(bills))


def say(text: str) -> None:
    print(f"  {text}", flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
