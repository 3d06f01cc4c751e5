"""What operators do to a broker's log directories while it is down, and what they do when the start is refused.

Some of it takes logs away: whoever asks for that sees to it that the other replicas have what was acknowledged.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine
from typing import Any

from odradek.metadata.bootstrap import FormatError
from odradek.server.configs.node_config import load
from odradek.server.membership.identity import format_directories, survey
from odradek.sim.entropy import SimulatedEntropy
from odradek.sim.loop import Life
from odradek.sim.machine import Machine, SimulatedWorld
from odradek.storage.directories import parse_directory_name
from odradek.values import value

FIRST = "/data"
SECOND = "/more"
ADDED = "/new"
LOG_DIRS = f"{FIRST},{SECOND}"
LONGEST_ABSENCE_S = 6.0

STATES = (
    "log.dirs reordered",
    "directory not mounted",
    "directory lost and formatted",
    "directory dropped",
    "directory back with old files",
    "old copies moved away",
    "directory added",
    "directory of the last lost",
    "start refused",
)
"""What a set of seeds must have met of this."""


@value
class DirectoryChange:
    """One thing an operator does, ending with a node that is up."""

    carry_out: Callable[[Machine], Coroutine[Any, Any, None]]
    loses_logs: bool = False


class DirectoryChanges:
    """The operator; each node's metadata log stays in the first directory."""

    def __init__(self, around: SimulatedWorld) -> None:
        self._around = around
        self._trace = around.trace
        self._draw: random.Random = around.draw("directories")

    def choose(self, machine: Machine) -> DirectoryChange:
        """What may be done with the directories that this machine has now."""
        present = _log_dirs(machine)
        if SECOND not in present:
            return DirectoryChange(self._bring_back)
        choices = [DirectoryChange(self._reorder), DirectoryChange(self._unmount), *self._losses()]
        if ADDED not in present:
            choices.append(DirectoryChange(self._add))
        return self._draw.choice(choices)

    def choose_loss(self, machine: Machine) -> DirectoryChange | None:
        """One that takes logs away; None where there is no directory to lose."""
        return self._draw.choice(self._losses()) if SECOND in _log_dirs(machine) else None

    def _losses(self) -> list[DirectoryChange]:
        return [DirectoryChange(self._lose, loses_logs=True), DirectoryChange(self._drop, loses_logs=True)]

    async def _reorder(self, machine: Machine) -> None:
        """Refused where the metadata log's place goes by the order."""
        before = machine.properties["log.dirs"]
        first, *others = _log_dirs(machine)
        self._configure(machine, [*others, first])
        self._trace.mark("log.dirs reordered")
        await self._refused(machine, "log.dirs is in another order")
        machine.properties["log.dirs"] = before
        await machine.start()

    async def _unmount(self, machine: Machine) -> None:
        taken = machine.device.take_away(SECOND)
        machine.device.provide(SECOND)
        self._trace.mark("directory not mounted")
        await self._refused(machine, f"{SECOND} is not mounted")
        machine.device.take_away(SECOND)
        machine.device.put_back(SECOND, taken)
        await machine.start()

    async def _lose(self, machine: Machine) -> None:
        machine.device.take_away(SECOND)
        machine.device.provide(SECOND)
        format_new(machine, SimulatedEntropy(self._around.draw(f"{machine.name} format {machine.lives}")))
        self._trace.mark("directory lost and formatted")
        await machine.start()

    async def _drop(self, machine: Machine) -> None:
        self._configure(machine, [each for each in _log_dirs(machine) if each != SECOND])
        self._trace.mark("directory dropped")
        await machine.start()
        if self._draw.random() < 0.5:
            await asyncio.sleep(self._draw.random() * LONGEST_ABSENCE_S)
            await machine.crash("process")
            await self._bring_back(machine)

    async def _bring_back(self, machine: Machine) -> None:
        """With what it held when it was dropped: partitions that were filled elsewhere since are there twice."""
        self._configure(machine, [*_log_dirs(machine), SECOND])
        self._trace.mark("directory back with old files")
        copies = self._copies(machine)
        if copies:
            await self._refused(machine, f"{copies[0]} is there twice")
            disk = machine.device.attach(Life("an operator"))
            for name in copies:
                disk.remove_directory(f"{SECOND}/{name}")
            machine.device.settle()
            self._trace.mark("old copies moved away")
        await machine.start()

    async def _add(self, machine: Machine) -> None:
        machine.device.provide(ADDED)
        self._configure(machine, [*_log_dirs(machine), ADDED])
        self._trace.mark("directory added")
        await machine.start()

    async def _refused(self, machine: Machine, why: str) -> None:
        """A start that must not come up."""
        try:
            await machine.start()
        except FormatError as refused:
            self._trace.note(machine.name, f"does not start: {refused}")
            self._trace.mark("start refused")
        else:
            self._around.loop.failures.append(f"{machine.name} started though {why}")
            await machine.crash("process")

    def _configure(self, machine: Machine, log_dirs: list[str]) -> None:
        machine.properties["log.dirs"] = ",".join(log_dirs)
        self._trace.note(machine.name, f"has log.dirs={machine.properties['log.dirs']}")

    def _copies(self, machine: Machine) -> list[str]:
        """Partitions that are in the second directory and in another one."""
        disk = machine.device.attach(Life("an operator"))
        others = [name for each in _log_dirs(machine) if each != SECOND for name in disk.list(each)]
        return [name for name in disk.list(SECOND) if name in others and parse_directory_name(name)]


def format_new(machine: Machine, entropy: SimulatedEntropy) -> None:
    """As an operator formats what is empty, with the cluster's id; no crash takes it back."""
    config = load(machine.properties, host_name=machine.name)
    disk = machine.device.attach(Life("an operator"))
    found = survey(config, disk)
    (cluster_id,) = {meta.cluster_id for meta in found.formatted.values()}
    format_directories(
        config,
        disk,
        entropy,
        now_ms=machine.clock.now_ms(),
        cluster_id=cluster_id,
        unformatted=found.unformatted,
        initial_controllers=None,
    )
    machine.device.settle()


def _log_dirs(machine: Machine) -> list[str]:
    return machine.properties["log.dirs"].split(",")
