"""What became of the transactions that a cleaning comes across, in the order of the log.

Everything it looks at is decided: the records of an aborted transaction go, whatever their keys. A marker stays until
no batch of its transaction is left, and then as long as a tombstone does: a reader in the middle of the transaction
must get to see how it ended.
"""

from __future__ import annotations

from collections.abc import Iterable

from odradek.protocol.records.batch import BatchHeader
from odradek.protocol.records.control import read_end_txn_marker
from odradek.storage.txn_index import AbortedTxn


class CleanedTransactions:
    """Told of every batch once, from the first one that is cleaned to the last."""

    __slots__ = ("_aborted", "_ongoing_aborted", "_ongoing_committed")

    def __init__(self, aborted: Iterable[AbortedTxn]) -> None:
        """Of those that have records or a marker in what is cleaned."""
        self._aborted = sorted(aborted, key=lambda each: each.first_offset, reverse=True)
        self._ongoing_aborted: dict[int, tuple[AbortedTxn, bool]] = {}
        """By producer: the transaction, and whether any batch of it was there."""
        self._ongoing_committed: set[int] = set()

    def is_aborted(self, header: BatchHeader) -> bool:
        """Whether a batch of records is part of a transaction that was aborted."""
        self._begin_up_to(header.last_offset)
        if not header.is_transactional:
            return False
        ongoing = self._ongoing_aborted.get(header.producer_id)
        if ongoing is None:
            self._ongoing_committed.add(header.producer_id)
            return False
        self._ongoing_aborted[header.producer_id] = (ongoing[0], True)
        return True

    def marker(self, header: BatchHeader, batch: bytes | memoryview) -> tuple[bool, AbortedTxn | None]:
        """Whether nothing is left of the transaction that a control batch has ended, so that it may go in time; and
        what the transaction index has to go on telling, if something is."""
        self._begin_up_to(header.last_offset)
        if not header.records_count:
            return True, None  # It was emptied by an earlier cleaning.
        marker = read_end_txn_marker(batch)
        if marker is None:
            return False, None
        if marker.committed:
            was_there = header.producer_id in self._ongoing_committed
            self._ongoing_committed.discard(header.producer_id)
            return not was_there, None
        aborted, was_there = self._ongoing_aborted.pop(header.producer_id, (None, False))
        return not was_there, aborted if was_there else None

    def _begin_up_to(self, offset: int) -> None:
        while self._aborted and self._aborted[-1].first_offset <= offset:
            each = self._aborted.pop()
            self._ongoing_aborted.setdefault(each.producer_id, (each, False))
