"""Three nodes, and kill -9 of a leader under load: `python examples/failover.py`; also a part of `make demo`.

Every record goes to three replicas. A producer that asks for acks=all hears of a record once all replicas in sync hold
it, and at least two must (`min.insync.replicas=2`). So when the leader dies, whoever takes over has everything that was
acknowledged. The producer here numbers its records; in the end they are read back and counted.
"""

from __future__ import annotations

import itertools
import sys
import time
from collections.abc import Iterator

from confluent_kafka import Consumer, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from odradek.testing import RunningCluster, running_cluster

TOPIC = "ledger"
BEFORE, UNTIL = 20_000, 60_000
"""How many records are acknowledged when the leader is killed, and in the end."""
PATIENCE_S = 30.0
LEADER, IN_SYNC, BEHIND = "●", "○", "·"


def main() -> int:
    with running_cluster() as cluster:
        return 0 if show(cluster) else 1


def show(cluster: RunningCluster) -> bool:
    """The whole story; whether everything that was acknowledged is there, once and in order."""
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers, "log_level": 0})
    new = NewTopic(TOPIC, 1, 3, config={"min.insync.replicas": "2"})
    admin.create_topics([new])[TOPIC].result(PATIENCE_S)
    say(f"{LEADER} leads, {IN_SYNC} in sync, {BEHIND} not in sync")
    leader = picture(admin, "three replicas, one leader")

    acknowledged: list[int] = []
    times: list[float] = []

    def delivered(error: object, message: Message) -> None:
        if error is None:
            acknowledged.append(int(message.value() or b"-1"))
            times.append(time.monotonic())

    producer = Producer(
        {"bootstrap.servers": cluster.bootstrap_servers, "enable.idempotence": True, "linger.ms": 1, "log_level": 0}
    )
    killed = returned = False
    for number in range(UNTIL):
        while len(producer) >= 2_000:
            producer.poll(0.01)
        producer.produce(TOPIC, str(number).encode(), partition=0, on_delivery=delivered)
        producer.poll(0)
        if not killed and len(acknowledged) >= BEFORE:
            killed = True
            cluster.nodes[leader].kill()
            say(f"kill -9 of node {leader}, with {len(acknowledged):,} acknowledged and {len(producer):,} on their way")
        elif killed and not returned and len(acknowledged) >= (BEFORE + UNTIL) // 2:
            returned = True
            picture(admin, "another one leads")
            cluster.nodes[leader].begin()
            say(f"node {leader} is started again, cuts what nobody else has, and catches up")
    producer.flush(PATIENCE_S)
    wait_for_all_in_sync(admin)
    picture(admin, "three replicas in sync again")
    gap = max(later - earlier for earlier, later in itertools.pairwise(times))
    say(f"the longest time without an acknowledgement was {gap * 1000:.0f} ms")
    return judge(cluster, acknowledged)


def judge(cluster: RunningCluster, acknowledged: list[int]) -> bool:
    found = list(read_all(cluster.bootstrap_servers))
    lost = len(set(acknowledged) - set(found))
    doubled = len(found) - len(set(found))
    in_order = found == sorted(found)
    say(
        f"acknowledged {len(acknowledged):,}, read back {len(found):,}: {lost} lost, {doubled} doubled, "
        f"{'in order' if in_order else 'OUT OF ORDER'}"
    )
    return len(acknowledged) == UNTIL and lost == doubled == 0 and in_order


def read_all(bootstrap: str) -> Iterator[int]:
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "judge", "enable.auto.commit": False, "log_level": 0}
    )
    end = consumer.get_watermark_offsets(TopicPartition(TOPIC, 0), timeout=PATIENCE_S)[1]
    consumer.assign([TopicPartition(TOPIC, 0, 0)])
    deadline, position = time.monotonic() + PATIENCE_S, 0
    while position < end and time.monotonic() < deadline:
        for message in consumer.consume(10_000, 0.2):
            if message.error() is None:
                position = (message.offset() or 0) + 1
                yield int(message.value() or b"-1")
    consumer.close()


# --- what the cluster says of itself ----------------------------------------------------------------------------------


def picture(admin: AdminClient, caption: str) -> int:
    """Draw who leads and who is in sync; the leader."""
    partition = admin.list_topics(TOPIC, timeout=PATIENCE_S).topics[TOPIC].partitions[0]
    marks = [
        f"{LEADER if node_id == partition.leader else IN_SYNC if node_id in partition.isrs else BEHIND} node {node_id}"
        for node_id in sorted(partition.replicas)
    ]
    say(f"{'   '.join(marks)}     {caption}")
    return int(partition.leader)


def wait_for_all_in_sync(admin: AdminClient) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        partition = admin.list_topics(TOPIC, timeout=PATIENCE_S).topics[TOPIC].partitions[0]
        if len(partition.isrs) == 3:
            return
        time.sleep(0.05)


def say(text: str) -> None:
    print(f"  {text}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
