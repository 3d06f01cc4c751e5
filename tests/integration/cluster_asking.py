"""A test's own questions to the nodes of a cluster, each asked of one broker alone."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

from odradek.adapters.world import real_world
from odradek.client.admin import Admin
from odradek.client.facade import Client
from odradek.testing.cluster import ClusterNode

ResultT = TypeVar("ResultT")

PATIENCE_S = 30.0


def ask(node: ClusterNode, question: Callable[[Admin], Awaitable[ResultT]]) -> ResultT:
    """The answer to what is asked of that broker."""

    async def asking() -> ResultT:
        async with Client(real_world(), {"bootstrap.servers": node.bootstrap_server}).admin() as admin:
            return await question(admin)

    return asyncio.run(asking())


def create_topic(node: ClusterNode, name: str, partitions: int = 1) -> float:
    """Seconds until it was answered."""
    started = time.monotonic()
    ask(node, lambda admin: admin.create_topic(name, partitions=partitions, replication_factor=1))
    return time.monotonic() - started


def topics(node: ClusterNode) -> list[str]:
    return sorted(topic.name for topic in ask(node, lambda admin: admin.list_topics()))


def active_controller(node: ClusterNode) -> int:
    partition, _ = ask(node, lambda admin: admin.describe_quorum())
    return partition.leader_id


def eventually(holds: Callable[[], bool], what: str) -> None:
    """Within what a loaded machine needs; a moment is the rule."""
    deadline = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < deadline, f"{what}: not within {PATIENCE_S:.0f} s"
        time.sleep(0.05)
