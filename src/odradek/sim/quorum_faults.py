"""What goes wrong among several machines: crashes, held and slow processes, cuts, clocks; in turn or at once.

A fault begins, lasts and ends by itself, so that several may last at once. Crashes may take any number of nodes: what
counts was synced before it counted.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

from odradek.metadata.raft.quorum_state import QUORUM_STATE_FILE
from odradek.sim.cluster import Cluster
from odradek.sim.disk import Keep
from odradek.sim.loop import Crashed
from odradek.sim.machine import Gone, Machine

STRIKE_PATIENCE_S = 6.0
VOTE_PATIENCE_S = 15.0
LONGEST_HOLD_S = 14.0
LONGEST_CUT_S = 15.0
LONGEST_DOWN_S = 5.0
REPLACING_S = 12
"""How long a broker may take to be taken for dead, and another to register in its place."""

REPLACING_DISK_S = 4.0
"""Longer than a leader that was deposed meanwhile takes to find out: ADR 18 assumes that."""

UNREACHABLE_BROKERS = 0.3
"""In how many runs with separate controllers these can never reach one of the brokers."""

Way = tuple[str, str]


class Disks(Protocol):
    """Those that voters may lose."""

    def voters(self) -> list[Machine]: ...

    def leads_quorum(self, machine: Machine) -> bool: ...

    def may_lose_disk(self, machine: Machine) -> bool:
        """Whether that voter may lose its disk now: nobody else has lost one and not caught up yet."""

    def replace_disk(self, machine: Machine) -> None:
        """Put an empty one into a machine that does not run, formatted as an operator does it."""


class QuorumFaults:
    """A number of faults, drawn from the seed."""

    def __init__(
        self,
        cluster: Cluster,
        *,
        power: bool,
        leader: Callable[[], Machine | None],
        twins: tuple[Machine, Machine] | None = None,
        disks: Disks | None = None,
    ) -> None:
        """`leader` is who leads the quorum now: it is struck more often than chance would have it. `twins` are a
        broker's machine and one that can take its place. `disks` are those that voters may lose."""
        self._cluster = cluster
        self._trace = cluster.trace
        self._machines = list(cluster.machines.values())
        self._power = power
        self._leader = leader
        self._twins = twins
        self._draw = cluster.draw("faults")
        self._struck: list[Machine] = []
        """Machines that somebody has plans with already."""
        self._released = asyncio.Event()
        self.kinds: list[tuple[int, Callable[[], Awaitable[None]]]] = [
            (5, self._kill),
            (1, self._kill_all),
            (4, self._strike_anywhere),
            (3, self._strike_after_vote),
            (2, self._restart),
            (4, self._hold),
            (2, self._slow_process),
            (1, self._slow_network),
            (3, self._isolate),
            (2, self._split),
            (2, self._cut_one_way),
            (2, self._reset_connections),
            (2, self._stall_connections),
            (1, self._set_clock),
            (2, self._refuse_controllers),
        ]
        if twins is not None:
            self.kinds.append((4, self._replace))
        self._disks = disks
        if disks is not None:
            self.kinds += [(2, self._lose_disk), (2, self._lose_disk_of_few)]
        if self._draw.random() < UNREACHABLE_BROKERS:
            self._turn_controllers_away()

    async def run(self, count: int, longest_s: float) -> None:
        """So many faults, begun within `longest_s` or as soon as there is somebody to strike; over when all are."""
        begun: list[asyncio.Task[None]] = []
        weights = [weight for weight, _ in self.kinds]
        for _ in range(count):
            await asyncio.sleep(self._draw.random() * 2 * longest_s / count)
            if len(self._struck) == len(self._machines):
                self._released.clear()
                await self._released.wait()
            ((_, fault),) = self._draw.choices(self.kinds, weights)
            self._trace.mark("fault")
            begun.append(asyncio.ensure_future(fault()))
        await asyncio.gather(*begun)

    # Nodes go and come back.

    async def _kill(self) -> None:
        machine = self._choose()
        await machine.crash(self._keep(machine))
        await self._bring_back(machine)

    async def _kill_all(self) -> None:
        """All that nobody has plans with, within moments."""
        machines = [machine for machine in self._machines if machine not in self._struck]
        self._struck += machines
        keep = self._keep_of_all()
        for machine in machines:
            await asyncio.sleep(self._draw.random() * 0.02)
            await machine.crash(keep or self._keep(machine))
        self._trace.mark("all nodes crashed")
        if keep == "power":
            self._trace.mark("all nodes lost power")
        await asyncio.gather(*(self._bring_back(machine) for machine in machines))

    async def _strike_anywhere(self) -> None:
        """Let a node die in some change of its disk that is yet to come."""
        left = [self._draw.randrange(1, 40)]

        def strikes(path: str) -> bool:
            left[0] -= 1
            return left[0] <= 0

        await self._strike(self._choose(), strikes, STRIKE_PATIENCE_S)

    async def _strike_after_vote(self) -> None:
        """Let a node die in the first change of its disk after it has promised something to the quorum."""
        promised = [False]

        def strikes(path: str) -> bool:
            writes = QUORUM_STATE_FILE in path
            strike = promised[0] and not writes
            promised[0] |= writes
            return strike

        await self._strike(self._choose(), strikes, VOTE_PATIENCE_S)

    async def _strike(self, machine: Machine, strikes: Callable[[str], bool], patience_s: float) -> None:
        """Let a node die in the change that is chosen, or not if that does not come soon enough."""
        struck = asyncio.Event()

        def on_change(path: str, length: int) -> int | None:
            if not strikes(path):
                return None
            machine.device.on_change = None
            struck.set()
            self._trace.mark("crash inside a write" if length else "crash before a change of names")
            return self._draw.randrange(length + 1)

        machine.device.on_change = on_change
        try:
            async with asyncio.timeout(patience_s):
                await struck.wait()
        except TimeoutError:
            machine.device.on_change = None
            self._release(machine)
            return
        await machine.crash(self._keep(machine))
        await self._bring_back(machine)

    async def _restart(self) -> None:
        machine = self._choose()
        if machine.is_up:
            await machine.stop()
        else:
            await machine.crash("process")
        await self._bring_back(machine)

    async def _lose_disk(self) -> None:
        """A voter comes back without its disk, and is struck again and again before it has caught up."""
        assert self._disks is not None
        machine = self._choose()
        if not self._disks.may_lose_disk(machine):
            self._release(machine)
            return
        await machine.crash("process")
        await self._come_back_without_disk(machine)

    async def _lose_disk_of_few(self) -> None:
        """The same while the others have what was committed between them only in part: one of them has not heard of the
        newest of it, and the one that has is away."""
        assert self._disks is not None
        voters = self._disks.voters()
        if len(voters) != 3 or any(voter in self._struck for voter in voters):
            return
        leader = next((voter for voter in voters if self._disks.leads_quorum(voter)), None)
        if leader is None:
            return
        machine, late = self._draw.sample([voter for voter in voters if voter is not leader], 2)
        if not self._disks.may_lose_disk(machine):
            return
        self._struck += voters
        ways = [way for other in self._machines if other is not late for way in both_ways(late, other)]
        self.cut(ways)
        await asyncio.sleep(1 + self._draw.random() * 2)
        self._trace.mark("voter lost its disk while others are behind")
        for each in (machine, leader):
            await each.crash("process")
        self.heal(ways)
        self._release(late)
        await self._come_back_without_disk(machine)
        await asyncio.sleep(self._draw.random() * LONGEST_DOWN_S)
        await self._bring_back(leader)

    async def _come_back_without_disk(self, machine: Machine) -> None:
        assert self._disks is not None
        self._disks.replace_disk(machine)
        self._trace.mark("voter lost its disk")
        await asyncio.sleep(REPLACING_DISK_S + self._draw.random() * LONGEST_DOWN_S)
        for _ in range(self._draw.randrange(1, 4)):
            self.start(machine)
            await asyncio.sleep(self._draw.random() ** 2 * LONGEST_DOWN_S)
            await machine.crash(self._keep(machine))
            self._trace.mark("voter without its disk struck again")
        await self._bring_back(machine)

    async def _bring_back(self, machine: Machine) -> None:
        """Start it again after a while; it need not be up when this fault is over."""
        await asyncio.sleep(self._draw.random() ** 2 * LONGEST_DOWN_S)
        self.start(machine)
        self._release(machine)

    def start(self, machine: Machine) -> None:
        """Start a node without waiting for it: it may have to wait for others."""
        task = asyncio.ensure_future(machine.start())
        task.add_done_callback(self._started)

    def _started(self, task: asyncio.Task[None]) -> None:
        failure = None if task.cancelled() else task.exception()
        if failure is not None and not isinstance(failure, Gone | Crashed):
            self._cluster.loop.failures.append(f"a start failed: {failure!r}")

    async def _replace(self) -> None:
        """Another process takes the place of a broker that stands still, which then goes on as if nothing had been."""
        assert self._twins is not None
        machine, twin = self._twins
        if machine in self._struck or not machine.is_up:
            return
        self._struck.append(machine)
        machine.may_give_up = (Exception,)
        machine.hold()
        self.start(twin)
        for _ in range(REPLACING_S * 100):
            await asyncio.sleep(0.01)
            lifecycle = getattr(twin.node and twin.node.rooms, "lifecycle", None)
            if lifecycle is not None and lifecycle.broker_epoch >= 0:
                self._trace.mark("broker replaced")
                twin.hold()
                break
        machine.go_on()
        await asyncio.sleep(1 + self._draw.random() * 3)
        twin.go_on()
        await asyncio.sleep(self._draw.random() * 3)
        machine.may_give_up = ()
        for each in (machine, twin):
            await each.crash("process")
        await self._bring_back(machine)

    # Nodes stay, but are not quite there.

    async def _hold(self) -> None:
        machine = self._choose()
        machine.hold()
        self._trace.mark("process held")
        await asyncio.sleep(self._draw.random() ** 2 * LONGEST_HOLD_S)
        machine.go_on()
        self._release(machine)

    async def _slow_process(self) -> None:
        """Let a node run for a few moments at a time only."""
        machine = self._choose()
        self._trace.mark("process slowed")
        end = self._cluster.loop.time() + self._draw.random() * LONGEST_HOLD_S
        while self._cluster.loop.time() < end:
            machine.hold()
            await asyncio.sleep(self._draw.random() * 0.4)
            machine.go_on()
            await asyncio.sleep(self._draw.random() * 0.1)
        self._release(machine)

    async def _slow_network(self) -> None:
        machine = self._draw.choice(self._machines)
        slow_us = self._cluster.internet.slow_us
        if machine.name in slow_us:
            return
        self._trace.mark("network slowed")
        slow_us[machine.name] = self._draw.randrange(20_000, 600_000)
        self._trace.note(machine.name, f"has a slow network: {slow_us[machine.name] / 1000:.0f} ms")
        await asyncio.sleep(self._draw.random() * LONGEST_CUT_S)
        del slow_us[machine.name]
        self._trace.note(machine.name, "has a fast network again")

    async def _set_clock(self) -> None:
        machine = self._draw.choice(self._machines)
        machine.clock.wall_offset_ms += self._draw.randrange(-100_000, 100_000)
        self._trace.note(machine.name, f"has its clock set: {machine.clock.wall_offset_ms} ms off")
        self._trace.mark("clock set")

    # The way between nodes.

    async def _isolate(self) -> None:
        """One node hears from nobody else, or from some only, and nobody of it."""
        machine = self._choose(claim=False)
        others = [other for other in self._machines if other is not machine]
        if self._draw.random() < 0.4 and len(others) > 1:
            others = self._draw.sample(others, self._draw.randrange(1, len(others)))
        await self._cut([way for other in others for way in both_ways(machine, other)], "nodes cut off")

    async def _split(self) -> None:
        """Two sides that do not hear of each other."""
        side = self._draw.sample(self._machines, self._draw.randrange(1, len(self._machines)))
        others = [machine for machine in self._machines if machine not in side]
        ways = [way for one, other in itertools.product(side, others) for way in both_ways(one, other)]
        await self._cut(ways, "cluster split")

    async def _cut_one_way(self) -> None:
        """A node hears the others and is not heard, or the other way round."""
        machine = self._choose(claim=False)
        ways = [(machine.name, other.name) for other in self._machines if other is not machine]
        if self._draw.random() < 0.5:
            ways = [(target, source) for source, target in ways]
        await self._cut(ways, "one way cut")

    async def _cut(self, ways: Sequence[Way], mark: str) -> None:
        self._trace.mark(mark)
        self.cut(ways)
        await asyncio.sleep(self._draw.random() ** 2 * LONGEST_CUT_S)
        self.heal(ways)
        for wire in self._cluster.internet.open_wires():
            if (wire.machine, wire.peer.machine) in ways and self._draw.random() < 0.2:
                wire.reset()  # A firewall on the way has forgotten it.

    def cut(self, ways: Sequence[Way]) -> None:
        self._trace.note("network", f"is cut: {', '.join(f'{source}>{target}' for source, target in ways)}")
        for way in ways:
            self._cluster.internet.cut(*way)

    def heal(self, ways: Sequence[Way]) -> None:
        self._trace.note("network", f"is healed: {', '.join(f'{source}>{target}' for source, target in ways)}")
        for way in ways:
            self._cluster.internet.heal(*way)

    async def _reset_connections(self) -> None:
        for wire in self._cluster.internet.open_wires():
            if self._draw.random() < 0.3:
                wire.reset()
                self._trace.mark("connection cut")

    async def _stall_connections(self) -> None:
        """Packets of some connections are lost for a while; others overtake them."""
        for wire in self._cluster.internet.open_wires():
            if self._draw.random() < 0.3:
                wire.stall(self._draw.randrange(100_000, 6_000_000))
                self._trace.mark("connection stalled")

    # Refusals in the name of others.

    def _turn_controllers_away(self) -> None:
        """One broker lives behind an address that is for brokers and clients alone, for as long as the run lasts."""
        controllers = [machine for machine in self._machines if _is_controller(machine) and not _is_broker(machine)]
        if controllers:
            broker = self._draw.choice([machine for machine in self._machines if _is_broker(machine)])
            self._trace.mark("controllers never reach a broker")
            self._refuse(controllers, broker)

    async def _refuse_controllers(self) -> None:
        """Controllers are told for a while that nobody listens where a broker does; perhaps connections end, too."""
        broker = self._draw.choice([machine for machine in self._machines if _is_broker(machine)])
        controllers = [machine for machine in self._machines if _is_controller(machine) and machine is not broker]
        if not controllers:
            return
        self._trace.mark("listener refuses controllers")
        self._refuse(controllers, broker)
        pause_s = self._draw.random() ** 2 * LONGEST_CUT_S / 3
        for _ in range(3):
            if self._draw.random() < 0.5:
                self._reset_between(controllers, broker)
            await asyncio.sleep(pause_s)
        for controller in controllers:
            self._trace.note(broker.name, f"admits {controller.name} again")
            self._cluster.internet.admit(controller.name, broker.name, _port_of(broker))

    def _refuse(self, controllers: Sequence[Machine], broker: Machine) -> None:
        for controller in controllers:
            self._trace.note(broker.name, f"refuses {controller.name}")
            self._cluster.internet.refuse(controller.name, broker.name, _port_of(broker))

    def _reset_between(self, controllers: Sequence[Machine], broker: Machine) -> None:
        names = [controller.name for controller in controllers]
        for wire in self._cluster.internet.open_wires():
            if wire.machine == broker.name and wire.peer.machine in names:
                wire.reset()

    # Whom.

    def _choose(self, *, claim: bool = True) -> Machine:
        """The leader as often as not; claimed, so that nobody else strikes it meanwhile."""
        free = [machine for machine in self._machines if machine not in self._struck]
        leader = self._leader()
        chosen = leader if leader is not None and leader in free and self._draw.random() < 0.5 else None
        if chosen is None:
            chosen = self._draw.choice(free if claim else free or self._machines)
        if claim:
            self._struck.append(chosen)
        return chosen

    def _release(self, machine: Machine) -> None:
        self._struck.remove(machine)
        self._released.set()

    def _keep(self, machine: Machine) -> Keep:
        """What a machine that crashes now keeps."""
        return self._keep_of_all() or "process"

    def _keep_of_all(self) -> Keep | None:
        """What all machines keep that crash together; None for models in which each has its own luck."""
        return "power" if self._power and self._draw.random() < 0.5 else "process"


def both_ways(one: Machine, other: Machine) -> tuple[Way, Way]:
    return (one.name, other.name), (other.name, one.name)


def _is_broker(machine: Machine) -> bool:
    return "broker" in machine.properties["process.roles"]


def _is_controller(machine: Machine) -> bool:
    return "controller" in machine.properties["process.roles"]


def _port_of(broker: Machine) -> int:
    """Where it serves brokers and clients: the first of its listeners."""
    return int(broker.properties["listeners"].split(",")[0].rpartition(":")[2])
