"""A compacted log keeps the last value of every key, on every replica, for whoever reads it at whatever pace."""

from __future__ import annotations

from odradek.sim.history import History, Partition, TableFollowed, TableHeld, TablePut

_Last = tuple[int, bytes | None]
"""An offset, and a value, or None where the key was deleted."""


def check(history: History) -> list[str]:
    put: dict[Partition, dict[int, tuple[bytes, bytes | None]]] = {}
    tables: dict[Partition, tuple[str, dict[bytes, bytes]]] = {}
    broken: list[str] = []
    for event in history.events:
        history.forget_lost(put, event)
        if isinstance(event, TablePut) and event.offset >= 0:
            put.setdefault(event.partition, {}).update(enumerate(event.pairs, event.offset))
        elif isinstance(event, TableHeld):
            broken += _wrong_in(event, put.get(event.partition, {}))
            broken += _compare(tables, event.partition, event.node, _table(event))
        elif isinstance(event, TableFollowed):
            broken += _compare(tables, event.partition, event.reader, dict(event.values))
    return broken


def _wrong_in(held: TableHeld, put: dict[int, tuple[bytes, bytes | None]]) -> list[str]:
    where = f"{held.partition} on {held.node}"
    broken = []
    last: dict[bytes, _Last] = {}
    above = -1
    for offset, key, content in held.records:
        if offset <= above:
            broken.append(f"{where}: offset {offset} comes after {above}")
        if put.get(offset, (key, content)) != (key, content):
            broken.append(f"{where}: offset {offset} was acknowledged as {put[offset][0]!r} and is {key!r}")
        above, last[key] = offset, (offset, content)
    owed: dict[bytes, _Last] = {}
    for offset in sorted(put):
        key, content = put[offset]
        owed[key] = (offset, content)
    for key, (offset, content) in owed.items():
        there, _ = last.get(key, (-1, None))
        if there < offset and (content is not None or there >= 0):
            broken.append(f"{where}: the last value of {key!r}, acknowledged at {offset}, is not there")
    return broken


def _table(held: TableHeld) -> dict[bytes, bytes]:
    last = {key: content for _, key, content in held.records}
    return {key: content for key, content in last.items() if content is not None}


def _compare(
    tables: dict[Partition, tuple[str, dict[bytes, bytes]]], partition: Partition, who: str, table: dict[bytes, bytes]
) -> list[str]:
    other, expected = tables.setdefault(partition, (who, table))
    differing = [key for key in sorted(expected.keys() | table.keys()) if expected.get(key) != table.get(key)]
    return [f"{partition} is not the same for {other} and {who}: {differing[0]!r}"] if differing else []
