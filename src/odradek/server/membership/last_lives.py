"""Whose logs are in this broker's directories: what the next start, after a kill as well, can rely on."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from odradek.ids import NodeId
from odradek.metadata.image import Image
from odradek.storage.directories import LogDirectory
from odradek.storage.last_life import NOBODY, LastLife, common_life


class LastLives:
    """`configured` says how many directories there should be, `on_error` is told of one that fails."""

    def __init__(
        self,
        node_id: NodeId,
        directories: Sequence[LogDirectory],
        *,
        configured: int,
        on_error: Callable[[LogDirectory, OSError], object],
    ) -> None:
        self._node_id = node_id
        self._directories = directories
        self._configured = configured
        self._on_error = on_error
        self.is_damaged = False
        """Whether a log has less than it must have had, and the cluster takes this broker for one that lost nothing."""

    def last_life(self, image: Image) -> LastLife:
        """Whose logs are in all directories, as far as the image says; nobody's if one is not there or differs.

        Nor if a directory that this broker had last is not configured any more: what was in it is not here. One that
        has come since, and has nothing in it, says nothing about what the others hold.
        """
        known = image.cluster.brokers.get(self._node_id)
        if known is not None and not {each.directory_id for each in self._directories}.issuperset(known.log_dirs):
            return NOBODY
        had = () if known is None else known.log_dirs
        lives = [
            directory.last_life
            for directory in self._whole()
            if not had or directory.directory_id in had or directory.partition_count
        ]
        if known is not None:
            lives = [life.once_known(known.incarnation_id, known.broker_epoch) for life in lives]
        return common_life(lives)

    def mark_running(self, life: LastLife) -> None:
        """Say so in all directories, or in none: what one of them had might be lost."""
        for directory in self._whole():
            try:
                directory.mark_running(life)
            except OSError as failure:
                self._on_error(directory, failure)
                directory.doubt()

    def doubt(self) -> None:
        """Let the next start be one after which everything has to be proven anew."""
        self.is_damaged = True
        for directory in self._directories:
            directory.doubt()

    def _whole(self) -> Sequence[LogDirectory]:
        """All directories, unless one has failed."""
        is_whole = len(self._directories) == self._configured and all(each.online for each in self._directories)
        return self._directories if is_whole else ()
