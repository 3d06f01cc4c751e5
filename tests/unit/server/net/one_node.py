"""A node with a topic, and a client of it, for tests of a connection."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from tests.unit.server.rig import Client, Rig

from odradek.protocol.api import ApiKey
from odradek.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from odradek.server.net.dispatch import Endpoint

ASK = MetadataRequest(topics=[MetadataRequestTopic(name="t")])


def on_a_node(test: Callable[[Rig, Client], Coroutine[Any, Any, None]], **properties: str) -> None:
    """Run a test with a node, a client of it, and a topic `t`."""
    rig = Rig(properties={key.replace("_", "."): text for key, text in properties.items()})

    async def run() -> None:
        await rig.create_topic("t")
        await test(rig, rig.connect())

    rig.run(run)


async def answered_ids(client: Client) -> list[int]:
    await asyncio.sleep(1)
    return [correlation_id for correlation_id, _ in client.answered]


def endpoint(rig: Rig, key: ApiKey, version: int) -> Endpoint:
    return rig.node.rooms.listeners.by_name["PLAINTEXT"].scope.endpoints.compile(key, version)
