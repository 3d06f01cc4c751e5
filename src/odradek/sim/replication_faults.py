"""What goes wrong among replicas: all that does in clusters, and faults that are aimed at moments which matter.

What a crash may take is part of the model. A process that is killed keeps what it has written: any number of them, at
any time. A loss of power takes what was not synced: on one replica of a partition, which is one less than
`min.insync.replicas`, whoever else is in sync with it at that moment, and on no other one before its ISR has been full
again. Where every message is synced, any number of nodes may lose power at any time. A directory or a disk that is lost
takes a replica as well, synced or not, and counts like one that lost power.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from odradek.ids import NodeId
from odradek.replication.isr import IsrProposal
from odradek.server.partitions.hosted_partition import HostedPartition
from odradek.sim.directory_changes import DirectoryChange, DirectoryChanges
from odradek.sim.disk import Keep
from odradek.sim.history import Partition
from odradek.sim.machine import Machine
from odradek.sim.quorum_faults import QuorumFaults, Way, both_ways
from odradek.sim.replication_cluster import REPLICAS, ReplicatedNode, ReplicationCluster

PROPOSAL_PATIENCE_S = 10.0
ELECTION_PATIENCE_S = 8.0
STALL_US = 6_500_000
"""More than the session of a broker lasts: one without power is taken for alive until then, and cannot register."""
LATE_US = 9_000_000
"""How late a request may come: its sender has given it up, and the ISR has grown and shrunk since."""
SCENE_PATIENCE_S = 20.0
LAG_S = 6.0
"""Within which a follower that gets nothing is out of the ISR."""


class Scene:
    """A partition whose replicas are all there: its leader, one that a fault makes leave and come back, and others."""

    def __init__(self, partition: Partition, leader: Machine, newcomer: Machine, others: Sequence[Machine]) -> None:
        self.partition = partition
        self.leader = leader
        self.newcomer = newcomer
        self.others = others

    @property
    def everybody(self) -> list[Machine]:
        return [self.leader, self.newcomer, *self.others]


class ReplicationFaults(QuorumFaults):
    """Some faults are aimed: at a replica that comes into the ISR, at a new leader, at the last one in sync."""

    def __init__(self, cluster: ReplicationCluster, *, power: bool) -> None:
        super().__init__(cluster, power=power, leader=cluster.leader, disks=None if cluster.shape.dynamic else self)
        self._replicated = cluster
        self._lossy: dict[Partition, tuple[Machine, int]] = {}
        """Who has lost power, and in which life, by partition, until its ISR has been full since."""
        self.kinds += [
            (4 if cluster.flushed else 1, self._kill_all),
            (3, self.strike_while_isr_grows),
            (3, self.restart_newcomer),
            (3, self.deliver_late),
            (3, self.strike_successor),
            (3, self.strike_last_in_sync),
            (3, self.strike_unseen),
        ]
        self._directory_changes = DirectoryChanges(cluster)
        if cluster.two_directories:
            self.kinds += [(14, self.change_directories), (4, self.lose_directory_of_last)]

    # Power.

    def look(self) -> None:
        """Called now and then: another replica may lose power once the ISR is full again."""
        for partition, (machine, life) in list(self._lossy.items()):
            agreed = self._replicated.registration(partition)
            has_returned = machine.lives > life and self._replicated.is_registered(machine)
            if has_returned and agreed is not None and len(agreed.isr) == len(agreed.replicas):
                del self._lossy[partition]

    def _keep(self, machine: Machine) -> Keep:
        if self._replicated.flushed:
            return super()._keep(machine)
        return "power" if self._draw.random() < 0.5 and self._may_lose_power(machine) else "process"

    def _keep_of_all(self) -> Keep | None:
        return super()._keep_of_all() if self._replicated.flushed else None

    def _may_lose_power(self, machine: Machine) -> bool:
        """To be asked right before: who may, does. One that is only a controller syncs all that counts."""
        if not self._replicated.members[machine.name].is_broker:
            return self._power
        return self._power and self._may_lose_replicas(machine)

    def _may_lose_replicas(self, machine: Machine) -> bool:
        """Whether what a broker holds may go, or some of it; to be asked right before.

        Not beside losses of power that take nothing, of any number: who comes back from one is not eligible either, and
        if the last leader is not there any more, nobody leads until somebody says who shall (ADR 14).
        """
        if self._replicated.flushed and self._power:
            return False
        self.look()
        node_id = self._node_id(machine)
        registrations = {
            partition: self._replicated.registration(partition) for partition in self._replicated.all_partitions
        }
        held = [partition for partition, agreed in registrations.items() if agreed and node_id in agreed.replicas]
        if any(self._lossy.get(partition, (machine,))[0] is not machine for partition in held):
            return False
        self._lossy |= dict.fromkeys(held, (machine, machine.lives))
        return True

    # Disks and directories.

    def voters(self) -> list[Machine]:
        return self._replicated.voters()

    def leads_quorum(self, machine: Machine) -> bool:
        return self._replicated.leads_quorum(machine)

    def may_lose_disk(self, machine: Machine) -> bool:
        if self._replicated.is_operated or not self._replicated.may_lose_disk(machine):
            return False
        return not self._replicated.members[machine.name].is_broker or self._may_lose_replicas(machine)

    def replace_disk(self, machine: Machine) -> None:
        self._replicated.replace_disk(machine)

    async def change_directories(self) -> None:
        """An operator does something to a broker's directories between a stop, of whatever kind, and the next start."""
        machine = self._choose()
        if not self._replicated.members[machine.name].is_broker or not self._replicated.is_registered(machine):
            self._release(machine)
            return
        change = self._directory_changes.choose(machine)
        if not change.loses_logs or self._may_lose_replicas(machine):
            if machine.is_up and self._draw.random() < 0.4:
                await machine.stop()
            else:
                await machine.crash(self._keep(machine))
            await self._carry_out(change, machine)
        else:
            self._release(machine)

    def _machine_of(self, node_id: NodeId) -> Machine:
        return self._replicated.node_named(node_id)

    async def strike_between(self) -> None:
        """Between two steps of somebody else: a node that nobody has plans with is killed or restarted."""
        if len(self._struck) < len(self._machines):
            await self._draw.choice((self._kill, self._kill, self._restart))()

    # A replica comes into the ISR.

    async def strike_while_isr_grows(self) -> None:
        """Who comes in falls behind at once, its leader does not hear that it is in, and dies with all the others."""
        scene = await self._let_one_return()
        if scene is None:
            return
        self._trace.mark("struck while the ISR grew")
        controller = self._replicated.controller()
        ways = list(both_ways(scene.leader, scene.newcomer))
        if controller is not None and controller is not scene.leader:
            ways.append((controller.name, scene.leader.name))
        await asyncio.sleep(self._draw.random() * 0.05)
        self.cut(ways)
        await asyncio.sleep(0.3 + self._draw.random() * 2)
        await self._kill_but_newcomer(scene, ways)

    async def restart_newcomer(self) -> None:
        """Who comes in starts again, perhaps without its tail, while the request that lets it in is on its way."""
        scene = await self._let_one_return(lambda scene: self._stall_requests(scene.leader, STALL_US))
        if scene is None:
            return
        self._trace.mark("newcomer restarted")
        newcomer = scene.newcomer
        ways = list(both_ways(scene.leader, newcomer))
        self.cut(ways)
        if newcomer.life is not None and newcomer.life.alive:
            lossy = self._replicated.flushed or self._may_lose_power(newcomer)
            await newcomer.crash("power" if lossy else "process")
            self.start(newcomer)
        await asyncio.sleep(STALL_US / 1_000_000 + self._draw.random())
        await self._kill_but_newcomer(scene, ways)

    async def deliver_late(self) -> None:
        """A request for a larger ISR was given up and made again, and comes when who came in has left again."""
        scene = await self._let_one_return(lambda scene: self._stall_requests(scene.leader, LATE_US, given_up=True))
        if scene is None:
            return
        self._trace.mark("request delivered late")
        await asyncio.sleep(0.5)
        ways = list(both_ways(scene.leader, scene.newcomer))
        self.cut(ways)
        await asyncio.sleep(LATE_US / 1_000_000 + self._draw.random() * 0.3)
        await self._kill_but_newcomer(scene, ways)

    async def _let_one_return(self, at_once: Callable[[Scene], None] = lambda scene: None) -> Scene | None:
        """Let a follower crash and come back; the scene when its leader asks the controller to let it in.

        `at_once` happens before anything of the request has left.
        """
        scene = await self._scene()
        if scene is None:
            return None
        self._struck += scene.everybody
        asked = asyncio.Event()

        def on_proposal(machine: Machine, hosted: HostedPartition, proposal: IsrProposal) -> None:
            partition = Partition(hosted.topic, hosted.index)
            newcomer = self._node_id(scene.newcomer)
            if machine is scene.leader and partition == scene.partition and newcomer in proposal.isr:
                self._replicated.on_proposal = None
                at_once(scene)
                asked.set()

        await scene.newcomer.crash("process")
        self._replicated.on_proposal = on_proposal
        await asyncio.sleep(self._draw.random())
        self.start(scene.newcomer)
        try:
            async with asyncio.timeout(PROPOSAL_PATIENCE_S):
                await asked.wait()
        except TimeoutError:
            self._replicated.on_proposal = None
            for machine in scene.everybody:
                self._release(machine)
            return None
        return scene

    async def _scene(self) -> Scene | None:
        """A partition with whose replicas nobody has plans; where there is none for long, any node is killed instead.

        Faults that are aimed come one after the other: each of them takes all replicas.
        """
        for _ in range(int(SCENE_PATIENCE_S * 10)):
            scene = self._scene_now()
            if scene is not None:
                return scene
            await asyncio.sleep(0.1)
        if len(self._struck) < len(self._machines):
            await self._kill()
        return None

    def _scene_now(self) -> Scene | None:
        for partition in self._draw.sample(self._replicated.partitions, len(self._replicated.partitions)):
            agreed = self._replicated.registration(partition)
            if agreed is None or agreed.leader < 0 or len(agreed.isr) < REPLICAS:
                continue
            leader = self._machine_of(agreed.leader)
            followers = [self._machine_of(replica) for replica in agreed.replicas if replica != agreed.leader]
            if all(machine.is_up and machine not in self._struck for machine in (leader, *followers)):
                self._draw.shuffle(followers)
                return Scene(partition, leader, followers[0], followers[1:])
        return None

    def _stall_requests(self, leader: Machine, duration_us: int, *, given_up: bool = False) -> None:
        """What a leader asks the controller for does not get there for a while; it may believe it lost."""
        assert isinstance(leader.node, ReplicatedNode)
        wire = leader.node.controller_wire()
        if wire is not None and given_up:
            wire.forsake(duration_us)
        elif wire is not None:
            wire.stall(duration_us)

    async def _kill_but_newcomer(self, scene: Scene, ways: Sequence[Way]) -> None:
        """Let only the newcomer be left, with what it has."""
        killed = [scene.leader, *scene.others]
        for machine in killed:
            await machine.crash("process")
        self.heal(ways)
        self._release(scene.newcomer)
        await asyncio.gather(*(self._bring_back(machine) for machine in killed))

    # Leaders.

    async def strike_successor(self) -> None:
        """A leader dies, and its successor before anybody could fetch from it."""
        scene = await self._scene()
        if scene is None:
            return
        self._struck.append(scene.leader)
        await scene.leader.crash(self._keep(scene.leader))
        successor = await self._successor(scene)
        if successor is not None and successor not in self._struck and successor.is_up:
            self._struck.append(successor)
            self._trace.mark("successor struck")
            ways = [way for other in scene.everybody if other is not successor for way in both_ways(successor, other)]
            self.cut(ways)
            await asyncio.sleep(self._draw.random() ** 2 * 2)
            await successor.crash("process")
            self.heal(ways)
            await asyncio.gather(self._bring_back(scene.leader), self._bring_back(successor))
        else:
            await self._bring_back(scene.leader)

    async def _successor(self, scene: Scene) -> Machine | None:
        for _ in range(int(ELECTION_PATIENCE_S * 200)):
            await asyncio.sleep(0.005)
            agreed = self._replicated.registration(scene.partition)
            if agreed is not None and agreed.leader >= 0 and self._machine_of(agreed.leader) is not scene.leader:
                return self._machine_of(agreed.leader)
        return None

    async def strike_last_in_sync(self) -> None:
        """No follower gets anything, so the leader is alone in the ISR; then it dies."""
        scene = await self._scene()
        if scene is None:
            return
        leader = scene.leader
        self._struck.append(leader)
        controller = self._replicated.controller()
        ways = [
            way
            for other in (scene.newcomer, *scene.others)
            for way in both_ways(leader, other)
            if other is not controller
        ]
        self.cut(ways)
        await asyncio.sleep(LAG_S + self._draw.random())
        self._trace.mark("last in sync struck")
        await leader.crash(self._keep(leader))
        self.heal(ways)
        await self._bring_back(leader)

    async def strike_unseen(self) -> None:
        """One replica loses power, and before anybody has noticed all the others are killed.

        It comes back first or last. First, it must not lead though nobody else is there; last, it must not be all that
        is left.
        """
        scene = await self._scene()
        if scene is None:
            return
        self._struck += scene.everybody
        lossy, *others = self._draw.sample(scene.everybody, len(scene.everybody))
        keep: Keep = "power" if self._replicated.flushed or self._may_lose_power(lossy) else "process"
        await lossy.crash(keep)
        if keep == "power":
            self._trace.mark("power lost unseen")
        for machine in others:
            await asyncio.sleep(self._draw.random() ** 2)
            await machine.crash("process")
        if self._draw.random() < 0.5:
            await self._bring_back(lossy)
            await asyncio.sleep(self._draw.random() * STALL_US / 1_000_000)
            await asyncio.gather(*(self._bring_back(machine) for machine in others))
        else:
            await asyncio.gather(*(self._bring_back(machine) for machine in others))
            await self._bring_back(lossy)

    async def lose_directory_of_last(self) -> None:
        """All replicas are killed one after the other; whoever led last comes back first, without a directory."""
        scene = await self._scene()
        if scene is None:
            return
        last, *others = self._draw.sample(scene.everybody, len(scene.everybody))
        change = self._directory_changes.choose_loss(last)
        if change is None or not self._may_lose_replicas(last):
            return
        self._struck += scene.everybody
        for machine in others:
            await machine.crash("process")
            await asyncio.sleep(0.3 + self._draw.random())
        self._trace.mark("directory of the last lost")
        await last.crash("process")
        returning = asyncio.ensure_future(self._carry_out(change, last))
        await asyncio.sleep(1 + self._draw.random() * LAG_S)
        await asyncio.gather(returning, *(self._bring_back(machine) for machine in others))

    async def _carry_out(self, change: DirectoryChange, machine: Machine) -> None:
        await change.carry_out(machine)
        self._release(machine)

    def _node_id(self, machine: Machine) -> int:
        return self._replicated.members[machine.name].node_id
