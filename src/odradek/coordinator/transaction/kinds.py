"""The kinds of records in `__transaction_state`, by the number their keys begin with."""

from __future__ import annotations

from odradek.coordinator.shard import RecordKinds
from odradek.coordinator.transaction.records import TransactionLogKey, TransactionLogValue

TRANSACTION_RECORDS: RecordKinds = {0: (TransactionLogKey, TransactionLogValue)}
