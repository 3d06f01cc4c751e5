"""Aborted transactions of a segment: `.txnindex` files.

A reader at read_committed gets the list for the range it read and drops those producers' records. The file exists only
where a transaction was aborted, and is appended to when that happens, since aborts are rare.
"""

from __future__ import annotations

import struct

from odradek.ports import Disk
from odradek.storage.checkpoints import sync_file
from odradek.values import value

ENTRY = struct.Struct(">hqqqq")
"""version, producer_id, first_offset, last_offset, last_stable_offset"""

_VERSION = 0


@value
class AbortedTxn:
    """A transaction whose records shall not be seen; `last_offset` is that of its abort marker."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int
    """Where the log was decided up to when the marker was written: later reads need not look before it."""


class TxnIndex:
    """The aborted transactions whose markers lie in one segment, in the order of the markers."""

    __slots__ = ("_aborted", "_disk", "_path", "unsynced")

    def __init__(self, disk: Disk, path: str) -> None:
        self._disk = disk
        self._path = path
        self._aborted: list[AbortedTxn] | None = None
        self.unsynced = False
        """Whether the file has entries, and may have a name, that a power loss could take."""

    def append(self, aborted: AbortedTxn) -> None:
        """Write the entry through to the file."""
        known = self._load()
        self.unsynced = True
        file = self._disk.open(self._path, create=True)
        try:
            file.write(_pack(aborted), len(known) * ENTRY.size)
        finally:
            file.close()
        known.append(aborted)

    def all(self) -> list[AbortedTxn]:
        return list(self._load())

    def between(self, start_offset: int, end_offset: int) -> tuple[list[AbortedTxn], bool]:
        """Those that overlap the range, and whether no later segment can hold one that does."""
        found = []
        for aborted in self._load():
            if aborted.last_offset >= start_offset and aborted.first_offset < end_offset:
                found.append(aborted)
            if aborted.last_stable_offset >= end_offset:
                return found, True
        return found, False

    def truncate(self, *, end_offset: int) -> None:
        """Forget transactions whose marker is at or behind this offset."""
        known = self._load()
        kept = [aborted for aborted in known if aborted.last_offset < end_offset]
        if len(kept) != len(known):
            self.unsynced = True
            self._disk.write_file(self._path, b"".join(map(_pack, kept)))
            self._aborted = kept

    def sync(self) -> None:
        """Block until what was written is on the device; called from a worker thread."""
        if self.unsynced:
            self.unsynced = False  # Before, since more may be written meanwhile.
            try:
                sync_file(self._disk, self._path)
            except OSError:
                self.unsynced = True
                raise

    def is_sound(self, *, base_offset: int) -> bool:
        """Whether the file, if it exists, can be such an index."""
        try:
            data = self._disk.read_file(self._path)
        except FileNotFoundError:
            return True
        if len(data) % ENTRY.size:
            return False
        return all(
            version <= _VERSION and last_offset >= base_offset
            for version, _, _, last_offset, _ in ENTRY.iter_unpack(data)
        )

    def clear(self) -> None:
        """Remove the file, if there is one."""
        self._aborted = []
        self.unsynced = False
        if self._disk.exists(self._path):
            self._disk.unlink(self._path)

    def moved(self, path: str) -> None:
        self._path = path

    def _load(self) -> list[AbortedTxn]:
        if self._aborted is None:
            try:
                data = self._disk.read_file(self._path)
            except FileNotFoundError:
                data = b""
            whole = len(data) - len(data) % ENTRY.size
            self._aborted = [AbortedTxn(*fields) for _, *fields in ENTRY.iter_unpack(data[:whole])]
        return self._aborted


def _pack(aborted: AbortedTxn) -> bytes:
    return ENTRY.pack(
        _VERSION, aborted.producer_id, aborted.first_offset, aborted.last_offset, aborted.last_stable_offset
    )
