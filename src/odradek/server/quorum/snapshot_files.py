"""The snapshot files beside the metadata log; `quorum.py` says when to write one and what may go."""

from __future__ import annotations

import logging

from odradek.metadata.raft.snapshot import (
    BadSnapshot,
    HeldSnapshot,
    Snapshot,
    SnapshotId,
    read_snapshot,
    snapshot_id_of,
    superseded,
)
from odradek.ports import World

log = logging.getLogger(__name__)

_PART_SUFFIX = ".part"
"""Kafka's name for a snapshot that is being written; one that is left over was never finished."""


class SnapshotFiles:
    """The snapshots of one directory."""

    def __init__(self, world: World, directory: str) -> None:
        self._world = world
        self._directory = directory
        self._held: list[HeldSnapshot] = []
        """Oldest first."""

    @property
    def newest(self) -> SnapshotId | None:
        return self._held[-1].id if self._held else None

    @property
    def oldest(self) -> SnapshotId | None:
        """The log may begin where it ends, and not later."""
        return self._held[0].id if self._held else None

    def size_of(self, snapshot_id: SnapshotId) -> int | None:
        """None if there is no such snapshot."""
        for held in self._held:
            if held.id == snapshot_id:
                return held.size_bytes
        return None

    async def read(self, snapshot_id: SnapshotId, position: int, length: int) -> bytes:
        """A piece of one that is held."""
        file = self._world.disk.open(f"{self._directory}/{snapshot_id.file_name}")
        try:
            return await self._world.workers.run(lambda: file.read(position, length))
        finally:
            file.close()

    def load(self) -> tuple[SnapshotId, Snapshot] | None:
        """The newest snapshot that is whole; a damaged one is passed over, an unfinished one removed."""
        disk = self._world.disk
        found = []
        for name in disk.list(self._directory):
            if name.endswith(_PART_SUFFIX):
                disk.unlink(f"{self._directory}/{name}")
            snapshot_id = snapshot_id_of(name)
            if snapshot_id is not None:
                found.append(snapshot_id)
        newest: tuple[SnapshotId, Snapshot] | None = None
        for snapshot_id in sorted(found, key=lambda each: (each.end_offset, each.epoch), reverse=True):
            path = f"{self._directory}/{snapshot_id.file_name}"
            content = disk.read_file(path)
            try:
                snapshot = read_snapshot(content)
            except BadSnapshot as damaged:
                log.error("Ignoring the damaged snapshot %s: %s", path, damaged)
                continue
            self._held.insert(0, HeldSnapshot(snapshot_id, len(content), snapshot.last_contained_timestamp_ms))
            if newest is None:
                newest = snapshot_id, snapshot
        return newest

    async def write(self, snapshot_id: SnapshotId, content: bytes | bytearray, *, timestamp_ms: int) -> None:
        """Whole and on the device under its name, or not there at all."""
        disk, path = self._world.disk, f"{self._directory}/{snapshot_id.file_name}"
        part = path + _PART_SUFFIX
        try:
            disk.write_file(part, bytes(content))
            file = disk.open(part)
            try:
                await self._world.workers.run(file.sync)
            finally:
                file.close()
        except OSError:
            if disk.exists(part):
                disk.unlink(part)
            raise
        disk.rename(part, path)
        await self._world.workers.run(lambda: disk.sync_directory(self._directory))
        self._held.append(HeldSnapshot(snapshot_id, len(content), timestamp_ms))
        self._held.sort(key=lambda held: (held.id.end_offset, held.id.epoch))
        log.info("Wrote the metadata snapshot %s (%d bytes)", snapshot_id.file_name, len(content))

    def remove_superseded(self, *, log_bytes: int, now_ms: int, max_bytes: int, max_age_ms: int) -> None:
        """Remove what newer snapshots replace, never the newest."""
        for held in superseded(
            self._held, log_bytes=log_bytes, now_ms=now_ms, max_bytes=max_bytes, max_age_ms=max_age_ms
        ):
            self._held.remove(held)
            self._world.disk.unlink(f"{self._directory}/{held.id.file_name}")
