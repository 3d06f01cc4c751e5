"""Committed records become images, one after another."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from odradek.metadata.image import EMPTY_IMAGE, NO_CHANGES, Changes, Delta, Image, Provenance
from odradek.metadata.records import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    EndTransactionRecord,
    NoOpRecord,
)
from odradek.protocol.codec import Message


class Loader:
    """Holds the newest image and replays what was committed.

    Records between the markers of a metadata transaction (KIP-868) wait here until its end: no image shows half of it.
    """

    def __init__(self, image: Image = EMPTY_IMAGE) -> None:
        self.image = image
        self._held: list[Message] | None = None

    @property
    def in_transaction(self) -> bool:
        """Whether a transaction was begun and neither ended nor aborted; only a leader that died leaves one so."""
        return self._held is not None

    def replay(self, records: Sequence[Message], provenance: Provenance) -> Changes:
        """Take one committed batch in; the image carries `provenance`, the batch's last record, afterwards."""
        if self._held is None and (not records or (len(records) == 1 and type(records[0]) is NoOpRecord)):
            self.image = self.image.at(provenance)  # All that an idle leader writes.
            return NO_CHANGES
        delta = Delta(self.image)
        for record in records:
            match record:
                case BeginTransactionRecord():
                    assert self._held is None, "a metadata transaction begins inside another"
                    self._held = []
                case EndTransactionRecord():
                    assert self._held is not None, "a metadata transaction ends that never began"
                    for held in self._held:
                        delta.replay(held)
                    self._held = None
                case AbortTransactionRecord():
                    assert self._held is not None, "a metadata transaction is aborted that never began"
                    self._held = None
                case _ if self._held is not None:
                    self._held.append(record)
                case _:
                    delta.replay(record)
        self.image, changes = delta.apply(provenance)
        return changes


class Draft:
    """What the image will be once all that was decided so far is committed: for the next decision, and for nobody else.

    The first change copies the image once; those after it cost what they change.
    """

    def __init__(self, image: Image) -> None:
        self.image = image
        self._copied = False

    def replay(self, records: Iterable[Message], provenance: Provenance) -> None:
        """Take one decision in. A metadata transaction begins and ends within one, so its markers mean nothing here."""
        if not self._copied:
            self.image = self.image.private_copy()
            self._copied = True
        delta = Delta(self.image, in_place=True)
        for record in records:
            if not isinstance(record, _MARKERS):
                delta.replay(record)
        self.image, _ = delta.apply(provenance)


_MARKERS = (BeginTransactionRecord, EndTransactionRecord, AbortTransactionRecord)
