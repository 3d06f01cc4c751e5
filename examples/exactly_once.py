"""Work that is done once, whatever happens: `python examples/exactly_once.py`; also a part of `make demo`.

A worker reads orders and writes a bill for each, as in `at_least_once.py`. Here the bills and the offsets up to
where it has read are one transaction: both count, or neither does. When something fails, it aborts and rolls back; when
it is killed, its next life, which has the same `transactional.id`, shuts it out and aborts what it has left open.
Whoever reads with `isolation.level=read_committed` sees one bill for every order.
"""

from __future__ import annotations

import sys
from pathlib import Path

from at_least_once import (
    BILLS,
    ORDERS,
    RECORDS,
    all_is_well,
    behind,
    bill,
    count,
    next_orders,
    read_all,
    reading,
    roll_back,
    say,
    with_a_failure_and_a_crash,
)
from confluent_kafka import Consumer, KafkaException, Message, Producer

from odradek.testing import running_node


def main(arguments: list[str]) -> int:
    if arguments:
        work(*arguments)
        return 0
    with running_node(in_process=False) as node:
        return 0 if show(node.bootstrap_servers) else 1


# --- the worker -------------------------------------------------------------------------------------------------------


def work(bootstrap: str, run: str) -> None:
    consumer = Consumer(reading(bootstrap, run))
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": f"worker-1-{run}", "log_level": 0})
    producer.init_transactions()  # Waits until what an earlier life has left open is aborted.
    consumer.subscribe([f"{ORDERS}-{run}"])
    while True:
        orders = next_orders(consumer)
        try:
            commit(orders, consumer, producer, f"{BILLS}-{run}")
        except (SomethingFailed, KafkaException) as failure:
            if isinstance(failure, KafkaException) and not failure.args[0].txn_requires_abort():
                raise  # Another life of this worker has shut it out, or it may not write there.
            producer.abort_transaction()
            roll_back(consumer)


def commit(orders: list[Message], consumer: Consumer, producer: Producer, bills: str) -> None:
    """All of it, or nothing."""
    producer.begin_transaction()
    for order in orders:
        producer.produce(bills, bill(order), key=order.key())
    producer.flush()
    if not all_is_well(orders):
        raise SomethingFailed
    producer.send_offsets_to_transaction(behind(orders), consumer.consumer_group_metadata())
    producer.commit_transaction()


class SomethingFailed(Exception):
    """Whatever may happen in the middle of the work."""


# --- the one who watches ----------------------------------------------------------------------------------------------


def show(bootstrap: str) -> bool:
    """The whole story; whether every order was billed once."""
    run = "exactly-once"
    bills, aborted = with_a_failure_and_a_crash(bootstrap, Path(__file__), run)
    lost, doubled = count(bills)
    say(f"{len(bills)} bills for {RECORDS} orders: {lost} lost, {doubled} doubled")
    written = sum(1 for _ in read_all(bootstrap, f"{BILLS}-{run}", "read_uncommitted"))
    say(f"({written} were written; the {written - len(bills)} of transactions that were aborted are not shown)")
    return lost == doubled == 0 and written - len(bills) == aborted


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
