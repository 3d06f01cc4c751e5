"""What brokers tell of themselves over HTTP, where they have `odradek.http.listener`: Kafka's protocol has no word for
it.
"""

from __future__ import annotations

import asyncio
import json
import urllib.error
import urllib.request
from collections.abc import Iterable
from urllib.parse import urlsplit

from odradek.apps.terminal.session import LISTING_PATIENCE_MS
from odradek.client.admin import Admin
from odradek.client.admin.cluster import ConfigResource, ResourceType
from odradek.client.errors import ClientError
from odradek.protocol.errors import KafkaError

LISTENER = "odradek.http.listener"
MAX_ANSWER_BYTES = 1 << 16
ANYWHERE = ("", "0.0.0.0", "::")
"""Hosts of listeners that are reached where the broker is."""


async def unexpected_failures(admin: Admin, hosts: Iterable[tuple[int, str]]) -> dict[int, int]:
    """How many of its own errors each broker has contained since it started, of those that tell it."""
    asked = list(hosts)
    told = await asyncio.gather(*(_failures_of(admin, broker_id, host) for broker_id, host in asked))
    return {broker_id: count for (broker_id, _), count in zip(asked, told, strict=True) if count is not None}


async def _failures_of(admin: Admin, broker_id: int, host: str) -> int | None:
    broker = ConfigResource(ResourceType.BROKER, str(broker_id))
    try:
        async with asyncio.timeout(LISTING_PATIENCE_MS / 1000):
            described = (await admin.describe_configs([broker], keys=[LISTENER]))[broker]
            if isinstance(described, KafkaError):
                return None
            listeners = [each.value for each in described if each.name == LISTENER and each.value]
            return await asyncio.to_thread(_ask, listeners[0], host) if listeners else None
    except (ClientError, KafkaError, OSError, ValueError, KeyError):
        return None


def _ask(listener: str, host: str) -> int:
    at = urlsplit(listener)
    name = host if at.hostname is None or at.hostname in ANYWHERE else at.hostname
    url = f"http://{f'[{name}]' if ':' in name else name}:{at.port}/health"
    try:
        answer = urllib.request.urlopen(url, timeout=LISTING_PATIENCE_MS / 1000)
    except urllib.error.HTTPError as unwell:
        answer = unwell  # A node that cannot go on says so, and the same.
    with answer:
        return int(json.loads(answer.read(MAX_ANSWER_BYTES))["unexpected_failures"])
