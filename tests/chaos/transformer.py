"""A worker of a consume-transform-produce job, which starts anew from what is committed whenever it is refused.

`python -m tests.chaos.transformer BOOTSTRAP GROUP TRANSACTIONAL_ID SOURCE TARGET [TURN]`: with a turn, it stops itself
(SIGSTOP) in its transaction of that number.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import signal
import sys
from collections.abc import Iterator

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

PATIENCE_S = 60.0
OFFSETS_PATIENCE_S = 3.0
"""librdkafka waits for the coordinator of the group that it knew, and asks for no other before that one is back."""

BATCH = 20
TRANSACTION_TIMEOUT_MS = 4_000
SESSION_TIMEOUT_MS = 3_000


def main(bootstrap: str, group: str, transactional_id: str, source: str, target: str, turn: str = "-1") -> None:
    turns = itertools.count()
    while True:
        try:
            work(bootstrap, group, transactional_id, source, target, turns=turns, stops_in=int(turn))
        except KafkaException as failure:
            print("refused", failure.args[0].name(), flush=True)


def work(
    bootstrap: str, group: str, transactional_id: str, source: str, target: str, *, turns: Iterator[int], stops_in: int
) -> None:
    """Until something is refused: the transaction is aborted, and read again what was read in it."""
    common = {"bootstrap.servers": bootstrap, "reconnect.backoff.max.ms": 200, "log_level": 0}
    producer = Producer(
        common
        | {
            "transactional.id": transactional_id,
            "transaction.timeout.ms": TRANSACTION_TIMEOUT_MS,
            "message.timeout.ms": TRANSACTION_TIMEOUT_MS,
        }
    )
    producer.init_transactions(PATIENCE_S)
    consumer = Consumer(
        common
        | {
            "group.id": group,
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "session.timeout.ms": SESSION_TIMEOUT_MS,
            "heartbeat.interval.ms": 500,
        }
    )
    # With a callback the group's generation changes while this thread consumes, and at no other time: what was read in
    # one generation is not committed in the name of another.
    consumer.subscribe([source], on_assign=note, on_revoke=note)
    try:
        while True:
            messages = [message for message in consumer.consume(BATCH, 0.5) if message.error() is None]
            if not messages:
                continue
            producer.begin_transaction()
            for message in messages:
                producer.produce(target, message.value(), partition=message.partition())
            producer.flush(PATIENCE_S)
            read = {message.partition(): message.offset() + 1 for message in messages}
            offsets = [TopicPartition(source, index, offset) for index, offset in read.items()]
            producer.send_offsets_to_transaction(offsets, consumer.consumer_group_metadata(), OFFSETS_PATIENCE_S)
            if next(turns) == stops_in:
                os.kill(os.getpid(), signal.SIGSTOP)
            producer.commit_transaction(PATIENCE_S)
            print("committed", flush=True)
    except KafkaException as failure:
        if not failure.args[0].fatal():
            with contextlib.suppress(KafkaException):
                producer.abort_transaction(PATIENCE_S)
        raise
    finally:
        consumer.close()


def note(_: Consumer, partitions: list[TopicPartition]) -> None:
    print("partitions", *sorted(each.partition for each in partitions), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
