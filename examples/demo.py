"""One node from its first start to a crash and back, and three that lose their leader: `make demo`.

It starts a node as a process of its own, writes and reads with a client that knows nothing of Odradek (librdkafka), and
looks at the files. Two consumers share the work as a group until one of them is killed (`group.py`, which also runs on
its own). A worker that reads, transforms and writes is killed in the middle, once without transactions and once with
them, and what it has written is counted (`at_least_once.py`, `exactly_once.py`). Then the node itself is killed in the
middle of a stream of writes, and what it knows afterwards is counted: nothing that was acknowledged is lost, doubled or
out of order. Last, three nodes hold every record and the leader is killed under load (`failover.py`, which also runs on
its own). It ends by itself, with 1 if anything was lost.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import at_least_once
import exactly_once
import failover
import group
from confluent_kafka import Consumer, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from odradek.protocol.records.batch import iter_batches, read_header
from odradek.testing import running_cluster, running_node
from odradek.testing.node import SubprocessNode

RECORDS = 200_000
RECORD = b"x" * 100
PARTITIONS = 3
KILL_AFTER = 30_000
UNTIL = 60_000
"""The stream of the crash: how many acknowledged records there are when the node is killed, and at the end."""


def main() -> int:
    began = time.monotonic()
    with running_node(in_process=False, properties=group.NODE_PROPERTIES) as node:
        assert isinstance(node, SubprocessNode)
        title("1. A node")
        say(node.output().strip().splitlines()[-1])
        say(f"process {node.pid}, {memory_mib(node.pid):.0f} MiB, no JVM")

        title("2. A topic, written and read by librdkafka")
        create_topic(node, "orders", PARTITIONS)
        write_many(node, "orders")
        read_many(node, "orders")

        title("3. What is on the disk: Kafka's own files")
        show_files(Path(node.data_directory), "orders-0")

        title("4. A group of two consumers, and kill -9 of one of them")
        shared = asyncio.run(group.show(node.bootstrap_servers))

        title("5. kill -9 of a worker: at least once")
        repeated = at_least_once.show(node.bootstrap_servers)

        title("6. kill -9 of a worker in a transaction: exactly once")
        once = exactly_once.show(node.bootstrap_servers)

        title("7. kill -9 of the node in the middle of a stream of writes")
        create_topic(node, "ledger", 1)
        whole = crash(node)
        kept = asyncio.run(group.all_committed(node.bootstrap_servers))
        say(f"the offsets that the group had committed are {'still there' if kept else 'LOST'}")

    title("8. Three nodes, and kill -9 of a leader under load")
    with running_cluster() as cluster:
        survived = failover.show(cluster)

    title("The end")
    say(f"stopped cleanly, data removed; all of it took {time.monotonic() - began:.1f} s")
    return 0 if shared and repeated and once and whole and kept and survived else 1


def create_topic(node: SubprocessNode, name: str, partitions: int) -> None:
    admin = AdminClient({"bootstrap.servers": node.bootstrap_servers})
    with timed() as took:
        admin.create_topics([NewTopic(name, partitions, 1)])[name].result()
    say(f"topic {name!r} with {partitions} partition{'s'[: partitions > 1]} created in {took.ms:.0f} ms")


def write_many(node: SubprocessNode, topic: str) -> None:
    """As fast as the client can, every batch acknowledged."""
    producer = Producer({"bootstrap.servers": node.bootstrap_servers, "acks": "all", "linger.ms": 5})
    before = cpu_seconds(node.pid)
    with timed() as took:
        for number in range(RECORDS):
            while True:
                try:
                    producer.produce(topic, RECORD, partition=number % PARTITIONS)
                    break
                except BufferError:  # The client's queue is full: let it send.
                    producer.poll(0.01)
        producer.flush()
    busy = cpu_seconds(node.pid) - before
    say(
        f"{RECORDS:,} records written in {took.s:.2f} s ({RECORDS / took.s:,.0f}/s); "
        f"the node was busy {busy:.2f} s of it"
    )


def read_many(node: SubprocessNode, topic: str) -> None:
    before = cpu_seconds(node.pid)
    with timed() as took:
        count = sum(1 for _ in read_all(node, topic, PARTITIONS, RECORDS))
    busy = cpu_seconds(node.pid) - before
    say(f"{count:,} records read in {took.s:.2f} s ({count / took.s:,.0f}/s); the node was busy {busy:.2f} s of it")


def show_files(data: Path, partition: str) -> None:
    for path in sorted((data / partition).iterdir()):
        meaning = MEANING.get(path.name) or MEANING[path.suffix]
        say(f"{partition}/{path.name:<28} {path.stat().st_size:>12,} bytes  {meaning}")
    segment = (data / partition / "00000000000000000000.log").read_bytes()
    header = read_header(segment)
    batches = sum(1 for _ in iter_batches(segment))
    say(
        f"the log is {batches:,} batches; the first holds offsets {header.base_offset} to "
        f"{header.base_offset + header.last_offset_delta}, magic {header.magic}, CRC {header.crc:08x}"
    )
    say("the indexes of the newest segment are in memory, until it is closed or the node stops")
    beside = [path.name for path in sorted(data.iterdir()) if not path.name.startswith((partition[:-1], "."))]
    offsets = [name for name in beside if name.startswith("__consumer_offsets-")]
    others = ", ".join(name for name in beside if name not in offsets)
    say(f"beside it: {others}, and {len(offsets)} partitions of __consumer_offsets, where groups keep theirs")


MEANING = {
    ".log": "record batches, as they came over the wire",
    ".index": "offset → position, every 4 KiB or so",
    ".timeindex": "timestamp → offset",
    ".snapshot": "producers' sequence numbers",
    "leader-epoch-checkpoint": "which leader began where",
    "partition.metadata": "the topic's id",
}


def crash(node: SubprocessNode) -> bool:
    """Write numbers in order, kill the node on the way, start it again; the client goes on by itself."""
    acknowledged: list[int] = []

    def delivered(error: object, message: Message) -> None:
        if error is None:
            acknowledged.append(int(message.value() or b"-1"))

    producer = Producer(
        {
            "bootstrap.servers": node.bootstrap_servers,
            "enable.idempotence": True,
            "linger.ms": 1,
            "batch.num.messages": 100,
            "reconnect.backoff.max.ms": 200,
            "log_level": 0,
        }
    )
    number = 0
    killed = False
    while len(acknowledged) < UNTIL:
        if len(producer) < 2_000 and number < UNTIL:
            producer.produce("ledger", str(number).encode(), partition=0, on_delivery=delivered)
            number += 1
            producer.poll(0)
        else:
            producer.poll(0.01)
        in_flight = len(producer)
        if not killed and len(acknowledged) >= KILL_AFTER and in_flight > 500:
            killed = True
            node.kill()
            say(f"SIGKILL with {len(acknowledged):,} records acknowledged and {in_flight:,} more on their way")
            with timed() as took:
                node.start()
            say(f"started again in {took.ms:.0f} ms: the tail of the log checked, indexes and sequence numbers rebuilt")
    say(f"the producer went on where it was, until {len(acknowledged):,} records were acknowledged")
    found = [int(message.value() or b"-1") for message in read_all(node, "ledger", 1, UNTIL)]
    lost = len(set(acknowledged) - set(found))
    doubled = len(found) - len(set(found))
    in_order = found == sorted(found)
    say(
        f"read back: {len(found):,} records, {lost} lost, {doubled} doubled, "
        f"{'in order' if in_order else 'OUT OF ORDER'}"
    )
    return lost == doubled == 0 and in_order


def read_all(node: SubprocessNode, topic: str, partitions: int, count: int) -> Iterator[Message]:
    """The first `count` records, without a group: the consumer says itself what it reads."""
    consumer = Consumer(
        {"bootstrap.servers": node.bootstrap_servers, "group.id": "demo", "enable.auto.commit": False, "log_level": 0}
    )
    consumer.assign([TopicPartition(topic, partition, 0) for partition in range(partitions)])
    deadline = time.monotonic() + 20
    seen = 0
    while seen < count and time.monotonic() < deadline:
        for message in consumer.consume(10_000, 0.2):
            if message.error() is None:
                seen += 1
                yield message
    consumer.close()


# --- telling and timing -----------------------------------------------------------------------------------------------


class Took:
    s = 0.0

    @property
    def ms(self) -> float:
        return self.s * 1000


@contextmanager
def timed() -> Iterator[Took]:
    took = Took()
    began = time.monotonic()
    yield took
    took.s = time.monotonic() - began


def title(text: str) -> None:
    print(f"\n{text}\n{'─' * len(text)}", flush=True)


def say(text: str) -> None:
    print(f"  {text}", flush=True)


def memory_mib(pid: int) -> float:
    """What the process holds in memory; 0 where there is no /proc."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0.0
    return int(status.partition("VmRSS:")[2].split()[0]) / 1024


def cpu_seconds(pid: int) -> float:
    """What the process has computed so far; 0 where there is no /proc."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / 100


if __name__ == "__main__":
    sys.exit(main())
