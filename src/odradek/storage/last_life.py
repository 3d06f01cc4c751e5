"""What a broker leaves in each of its log directories, so that the next one knows whether anything is lost.

A clean stop leaves `.kafka_cleanshutdown`, as Kafka's does: all that the broker with that epoch had is on the device. A
broker that runs keeps `.odradek_running`: all that it had written was in the hands of the operating system, which is as
good for as long as that has not stopped, and that one has not while its boot id is the same. A process that was killed
has then lost nothing, whatever it had not synced.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import suppress

from odradek.ids import Uuid, parse_uuid, uuid_text
from odradek.ports import Disk
from odradek.storage.checkpoints import replace_file
from odradek.values import value

CLEAN_SHUTDOWN_FILE = ".kafka_cleanshutdown"
RUNNING_FILE = ".odradek_running"

_MOST_ATTEMPTS = 16
"""So many registrations without a known answer are remembered: a node that fails at every start makes one a start."""


@value
class LastLife:
    """Whose logs a directory holds, to the last record that was written."""

    broker_epoch: int = -1
    """Of the broker that wrote them last; -1 if nobody knows."""
    attempts: tuple[Uuid, ...] = ()
    """Incarnations that have asked to be registered since and may have been: nobody lived to hear the answer."""

    def attempting(self, incarnation_id: Uuid) -> LastLife:
        """As it is while another incarnation asks to be registered."""
        return LastLife(self.broker_epoch, (*self.attempts, incarnation_id)[-_MOST_ATTEMPTS:])

    def once_known(self, incarnation_id: Uuid, broker_epoch: int) -> LastLife:
        """The same, where the cluster has that incarnation of this broker on record, under that epoch."""
        return LastLife(broker_epoch, self.attempts) if incarnation_id in self.attempts else self


NOBODY = LastLife()


def common_life(lives: Sequence[LastLife]) -> LastLife:
    """Of several directories: nobody's unless all are the same broker's."""
    epochs = [life.broker_epoch for life in lives]
    if not epochs or min(epochs) != max(epochs):
        return NOBODY
    return LastLife(epochs[0], tuple(dict.fromkeys(attempt for life in lives for attempt in life.attempts)))


def clean_life(disk: Disk, directory: str) -> LastLife:
    """Of a directory with the mark of a clean stop; older releases left the file empty."""
    return LastLife(_number(_read(disk, f"{directory}/{CLEAN_SHUTDOWN_FILE}"), "brokerEpoch"))


def running_life(disk: Disk, directory: str) -> LastLife:
    """Of a directory whose last process did not stop cleanly: nobody, unless this is still the same boot."""
    found = _read(disk, f"{directory}/{RUNNING_FILE}")
    boot_id = disk.boot_id()
    if not boot_id or found.get("bootId") != boot_id:
        return NOBODY
    try:
        attempts = tuple(parse_uuid(text) for text in found["attempts"])  # type: ignore[attr-defined]
    except (KeyError, TypeError, ValueError, AttributeError):
        return NOBODY
    return LastLife(_number(found, "brokerEpoch"), attempts)


def mark_clean(disk: Disk, directory: str, broker_epoch: int) -> None:
    """On the device, so before anything else is forgotten."""
    _write(disk, f"{directory}/{CLEAN_SHUTDOWN_FILE}", {"version": 0, "brokerEpoch": broker_epoch}, durable=True)


def mark_running(disk: Disk, directory: str, life: LastLife) -> None:
    """Not synced: a power loss may take it or bring an older one back, and makes it worthless anyway.

    Where nobody tells the boot, nothing is written: it could never be trusted.
    """
    boot_id = disk.boot_id()
    if boot_id:
        mark = {
            "version": 0,
            "brokerEpoch": life.broker_epoch,
            "bootId": boot_id,
            "attempts": [uuid_text(attempt) for attempt in life.attempts],
        }
        _write(disk, f"{directory}/{RUNNING_FILE}", mark, durable=False)


def forget_running(disk: Disk, directory: str) -> None:
    """For good: on a disk that is carried elsewhere and back it would be true again."""
    with suppress(FileNotFoundError):
        disk.unlink(f"{directory}/{RUNNING_FILE}")
        disk.sync_directory(directory)


def _read(disk: Disk, path: str) -> dict[str, object]:
    """What a mark says; nothing if it is not there or cannot be read."""
    try:
        found = json.loads(disk.read_file(path))
    except (FileNotFoundError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _write(disk: Disk, path: str, mark: dict[str, object], *, durable: bool) -> None:
    replace_file(disk, path, json.dumps(mark, separators=(",", ":")).encode(), durable=durable)


def _number(found: dict[str, object], key: str) -> int:
    number = found.get(key, -1)
    return number if isinstance(number, int) else -1
