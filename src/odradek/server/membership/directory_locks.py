"""A directory belongs to one process at a time: what keeps a second one out."""

from __future__ import annotations

from collections.abc import Callable

from odradek.ports import Disk
from odradek.server.configs.node_config import NodeConfig
from odradek.server.membership.identity import all_directories

LOCK_FILE = ".lock"


class DirectoryLocks:
    """Of one node."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self._locks: list[Callable[[], None]] = []

    def take(self, config: NodeConfig) -> dict[str, OSError]:
        """Take all directories for this process; those that cannot be, and why. That of the metadata log must be."""
        failed: dict[str, OSError] = {}
        for path in all_directories(config):
            try:
                self._disk.make_directory(path)
                self._locks.append(self._disk.lock(f"{path}/{LOCK_FILE}"))
            except OSError as failure:
                if path == config.metadata_log_dir:
                    raise
                failed[path] = failure
        return failed

    def release(self) -> None:
        for release in self._locks:
            release()
        self._locks.clear()
