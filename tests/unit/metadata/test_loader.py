"""Metadata transactions: all of one is seen, or nothing."""

from __future__ import annotations

from odradek.ids import LeaderEpoch, Offset
from odradek.metadata.image import Provenance
from odradek.metadata.loader import Loader
from odradek.metadata.records import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    ConfigRecord,
    EndTransactionRecord,
)

CONFIG = ConfigRecord(resource_type=2, resource_name="t", name="a", value="1")
PLACE = Provenance(Offset(0), LeaderEpoch(0), 0)


def test_a_transaction_over_two_batches_shows_at_its_end() -> None:
    loader = Loader()
    loader.replay([BeginTransactionRecord(), CONFIG], PLACE)
    assert loader.in_transaction
    assert not loader.image.configs.by_resource
    changes = loader.replay([EndTransactionRecord()], PLACE)
    assert not loader.in_transaction
    assert loader.image.configs.of_topic("t") == {"a": "1"}
    assert changes.configs == ((2, "t"),)


def test_an_aborted_transaction_never_happened() -> None:
    loader = Loader()
    loader.replay([BeginTransactionRecord(), CONFIG, AbortTransactionRecord()], PLACE)
    assert not loader.in_transaction
    assert not loader.image.configs.by_resource
