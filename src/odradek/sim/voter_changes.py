"""Controllers become voters and stop being ones, while everything else goes wrong (KIP-853)."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

from odradek.client import Client
from odradek.client.admin import Admin
from odradek.client.errors import ClientError, check
from odradek.ids import Uuid
from odradek.protocol.errors import KafkaError
from odradek.protocol.messages.add_raft_voter import AddRaftVoterRequest, AddRaftVoterResponse, Listener
from odradek.protocol.messages.remove_raft_voter import RemoveRaftVoterRequest, RemoveRaftVoterResponse
from odradek.sim.client_process import Ports
from odradek.sim.cluster import Cluster
from odradek.sim.entropy import SimulatedEntropy
from odradek.sim.metadata_workload import SETTINGS
from odradek.values import value

LONGEST_PAUSE_S = 10.0
TIMEOUT_MS = 6_000
MOST_VOTERS = 3


@value
class Controller:
    """One that may vote."""

    node_id: int
    host: str
    port: int
    directory_id: Uuid


class VoterChanges:
    """Somebody who keeps adding voters where there are few, and removing them where there are many."""

    def __init__(self, cluster: Cluster, brokers: Sequence[str], controllers: Mapping[int, Controller]) -> None:
        self._cluster = cluster
        self._brokers = brokers
        self._controllers = controllers
        self._draw = cluster.draw("voter changes")
        self._ports = Ports(
            cluster.client_network("voter-changes"), cluster.clock, SimulatedEntropy(cluster.draw("voter entropy"))
        )

    async def run(self) -> None:
        """One change after the other, until cancelled."""
        client = Client(self._ports, {"bootstrap.servers": ",".join(self._brokers)})
        async with client.admin(SETTINGS) as admin:
            while True:
                await asyncio.sleep(self._draw.random() * LONGEST_PAUSE_S)
                try:
                    await self._change(admin)
                except (ClientError, KafkaError) as failure:
                    self._note(f"could not change the voters: {failure}")

    async def _change(self, admin: Admin) -> None:
        partition, _ = await admin.describe_quorum()
        voters = [voter.replica_id for voter in partition.current_voters]
        others = [node_id for node_id in self._controllers if node_id not in voters]
        if others and (len(voters) < MOST_VOTERS or self._draw.random() < 0.5):
            await self._add(admin, self._controllers[self._draw.choice(others)])
        elif len(voters) > 1:
            await self._remove(admin, self._controllers[self._draw.choice(voters)])

    async def _add(self, admin: Admin, controller: Controller) -> None:
        request = AddRaftVoterRequest(
            cluster_id=None,
            timeout_ms=TIMEOUT_MS,
            voter_id=controller.node_id,
            voter_directory_id=controller.directory_id,
            listeners=[Listener(name="CONTROLLER", host=controller.host, port=controller.port)],
        )
        self._note(f"adds the voter {controller.node_id}")
        response = await admin.cluster.ask(request, AddRaftVoterResponse, timeout_ms=2 * TIMEOUT_MS)
        check(response.error_code, response.error_message)
        self._note(f"has added the voter {controller.node_id}")
        self._cluster.trace.mark("voter added")

    async def _remove(self, admin: Admin, controller: Controller) -> None:
        request = RemoveRaftVoterRequest(
            cluster_id=None, voter_id=controller.node_id, voter_directory_id=controller.directory_id
        )
        self._note(f"removes the voter {controller.node_id}")
        response = await admin.cluster.ask(request, RemoveRaftVoterResponse, timeout_ms=2 * TIMEOUT_MS)
        check(response.error_code, response.error_message)
        self._note(f"has removed the voter {controller.node_id}")
        self._cluster.trace.mark("voter removed")

    def _note(self, what: str) -> None:
        self._cluster.trace.note("voters", what)
