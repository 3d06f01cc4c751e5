"""Transactions without records, by hand-written requests: what a coordinator's own work costs.

InitProducerId 1, AddPartitionsToTxn 2, EndTxn 2 and FindCoordinator 2: the last before compact encoding, so of the
older kind of transactions, which add partitions themselves.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Sequence
from contextlib import closing

from bench import wire

FIND_COORDINATOR, ADD_PARTITIONS_TO_TXN, END_TXN = 10, 24, 26
TRANSACTION = 1
TIMEOUT_MS = 60_000
COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR, CONCURRENT_TRANSACTIONS = 15, 16, 51
ASK_AGAIN = (wire.COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR, CONCURRENT_TRANSACTIONS)
GIVE_UP_S = 60.0


class Producers:
    """Several transactional ids of one client, so that none of them waits for the markers of its last transaction."""

    def __init__(self, port: int, names: Sequence[str]) -> None:
        self._connection = wire.Connection(port)
        self._producers = [(name, *self._begin(name)) for name in names]

    def close(self) -> None:
        self._connection.socket.close()

    def _begin(self, name: str) -> tuple[int, int]:
        """Its producer id and epoch."""
        self._ask(FIND_COORDINATOR, 2, wire.string(name) + bytes((TRANSACTION,)))
        answer = self._ask(wire.INIT_PRODUCER_ID, 1, wire.string(name) + struct.pack(">i", TIMEOUT_MS))
        return answer.int64(), answer.int16()

    def run(self, topic: str, transactions: int) -> float:
        """Add one partition and commit, so many times, one after the other; the seconds it took."""
        partitions = wire.array([wire.string(topic) + wire.array([struct.pack(">i", 0)])])
        started = time.monotonic()
        for number in range(transactions):
            name, producer_id, epoch = self._producers[number % len(self._producers)]
            who = wire.string(name) + struct.pack(">qh", producer_id, epoch)
            self._add(who + partitions)
            self._ask(END_TXN, 2, who + b"\1")
        return time.monotonic() - started

    def _add(self, body: bytes) -> None:
        deadline = time.monotonic() + GIVE_UP_S
        code = CONCURRENT_TRANSACTIONS
        while code == CONCURRENT_TRANSACTIONS and time.monotonic() < deadline:
            answer = self._connection.request(ADD_PARTITIONS_TO_TXN, 2, body)
            answer.int32()
            answer.int32()
            answer.string()
            answer.int32()
            answer.int32()
            code = answer.int16()
        if code:
            raise RuntimeError(f"AddPartitionsToTxn answered error {code}")

    def _ask(self, api_key: int, version: int, body: bytes) -> wire.Reader:
        """The answer behind its error code, which is none; asked again where that may help."""
        deadline = time.monotonic() + GIVE_UP_S
        while True:
            answer = self._connection.request(api_key, version, body)
            answer.int32()
            code = answer.int16()
            if not code:
                return answer
            if code not in ASK_AGAIN or time.monotonic() > deadline:
                raise RuntimeError(f"request {api_key} was answered with error {code}")
            time.sleep(0.05)


def empty_transactions(port: int, topic: str, *, names: Sequence[str], transactions: int) -> float:
    """As `Producers.run`, after a few that warm it up."""
    with closing(Producers(port, names)) as producers:
        producers.run(topic, len(names))
        return producers.run(topic, transactions)
