"""Files and directories of the made-up disk: what programs see, what the device holds, and what lies between."""

from __future__ import annotations

import random
from typing import TypeAlias

from odradek.values import value


@value
class Write:
    """Bytes put at a position."""

    position: int
    data: bytes


@value
class Cut:
    """The file was cut, or extended with zeros."""

    size: int


Change: TypeAlias = Write | Cut


class Inode:
    """A file's content, whatever its names."""

    __slots__ = ("cached", "changes", "data", "device")

    def __init__(self) -> None:
        self.data = bytearray()
        self.device = bytearray()
        self.changes: list[Change] = []
        self.cached = True

    def apply(self, change: Change) -> None:
        _apply(self.data, change)
        self.changes.append(change)

    def sync(self) -> None:
        for change in self.changes:
            _apply(self.device, change)
        self.changes.clear()

    def lose_power(self, draw: random.Random) -> bool:
        """Become what the device holds; says whether something written was lost or torn."""
        changes = self.changes
        kept = draw.randrange(len(changes) + 1)
        for change in changes[:kept]:
            _apply(self.device, change)
        if kept < len(changes) and draw.random() < 0.6:
            self._tear(changes[kept], draw)
        before = bytes(self.data)
        self.data = bytearray(self.device)
        self.changes = []
        self.cached = False
        return before != self.device

    def _tear(self, change: Change, draw: random.Random) -> None:
        """Part of one write: its beginning, perhaps followed by zeros or by rubbish where the rest should be."""
        if not isinstance(change, Write):
            return
        part = draw.randrange(len(change.data) + 1)
        rest = len(change.data) - part
        torn = change.data[:part]
        match draw.randrange(4):
            case 0:
                torn += bytes(rest)
            case 1:
                torn += draw.randbytes(min(rest, 4096))
        _apply(self.device, Write(change.position, torn))


class Directory:
    """Names, and which of them the device surely holds."""

    __slots__ = ("changes", "device", "entries")

    def __init__(self) -> None:
        self.entries: dict[str, Inode | Directory] = {}
        self.device: dict[str, Inode | Directory] = {}
        self.changes: list[tuple[tuple[str, Inode | Directory | None], ...]] = []

    def apply(self, *change: tuple[str, Inode | Directory | None]) -> None:
        """All of the change or none of it: a rename is one change."""
        _rename(self.entries, change)
        self.changes.append(change)

    def sync(self) -> None:
        for change in self.changes:
            _rename(self.device, change)
        self.changes.clear()

    def lose_power(self, draw: random.Random) -> bool:
        kept = draw.randrange(len(self.changes) + 1)
        lost = kept < len(self.changes)
        for change in self.changes[:kept]:
            _rename(self.device, change)
        self.entries = dict(self.device)
        self.changes = []
        return lost


def _apply(content: bytearray, change: Change) -> None:
    if isinstance(change, Cut):
        if change.size < len(content):
            del content[change.size :]
        else:
            content.extend(bytes(change.size - len(content)))
        return
    if change.position > len(content):
        content.extend(bytes(change.position - len(content)))
    content[change.position : change.position + len(change.data)] = change.data


def _rename(names: dict[str, Inode | Directory], change: tuple[tuple[str, Inode | Directory | None], ...]) -> None:
    for name, entry in change:
        if entry is None:
            names.pop(name, None)
        else:
            names[name] = entry
