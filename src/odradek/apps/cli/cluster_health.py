"""`odradek cluster health`: whether anything is wrong with a cluster, once or until it is well."""

from __future__ import annotations

import argparse
import asyncio
import time
from typing import Any

from odradek.apps.cli.broker_health import unexpected_failures
from odradek.apps.cli.partition_states import is_under_replicated, least_in_sync, moves_under_way
from odradek.apps.terminal.output import emit, emit_one_of_many, fields
from odradek.apps.terminal.session import LISTING_PATIENCE_MS
from odradek.client.admin import Admin
from odradek.client.cluster import PartitionInfo
from odradek.client.errors import ClientError, may_pass
from odradek.protocol.errors import KafkaError

WATCH_INTERVAL_S = 1.0


async def health(admin: Admin, options: argparse.Namespace) -> int:
    """0 if the cluster is well, 1 if not (or not within `--timeout`)."""
    if not options.watch and not options.exit_when_healthy:
        data = await _look(admin, options)
        emit(options, data, _lines(data))
        return 0 if data["healthy"] else 1
    deadline = None if options.timeout is None else time.monotonic() + options.timeout
    while True:
        data = await _look(admin, options)
        if options.watch:
            emit_one_of_many(options, data, [*_lines(data), ""])
        if data["healthy"] and options.exit_when_healthy:
            if not options.watch:
                emit(options, data, _lines(data))
            return 0
        if deadline is not None and time.monotonic() >= deadline:
            if not options.watch:
                emit(options, data, _lines(data))
            return 0 if data["healthy"] else 1
        await asyncio.sleep(WATCH_INTERVAL_S)


async def _look(admin: Admin, options: argparse.Namespace) -> dict[str, Any]:
    described = await admin.describe_cluster(fenced=True)
    partitions = [(topic.name, each) for topic in await admin.list_topics() for each in topic.partitions]
    lacking = [(name, each) for name, each in partitions if len(each.isr) < len(each.replicas)]
    least = await least_in_sync(admin, sorted({name for name, _ in lacking}))
    controller = await _active_controller(admin)
    under_way = await moves_under_way(admin) if lacking and controller is not None else {}
    living = [(broker.broker_id, broker.host) for broker in described.brokers if not broker.is_fenced]
    contained = await unexpected_failures(admin, sorted(living))
    fenced = sorted(broker.broker_id for broker in described.brokers if broker.is_fenced)
    data: dict[str, Any] = {
        "healthy": False,
        "brokers": sorted(broker_id for broker_id, _ in living),
        "fenced_brokers": fenced,
        "active_controller": controller,
        "partitions": len(partitions),
        "without_leader": [_named(name, each) for name, each in partitions if each.leader < 0],
        "under_replicated": [
            _named(name, each) for name, each in lacking if is_under_replicated(name, each, under_way)
        ],
        "under_min_isr": [
            _named(name, each) for name, each in lacking if len(each.isr) < min(least.get(name, 1), len(each.replicas))
        ],
        "unexpected_failures": {str(broker_id): count for broker_id, count in contained.items()},
    }
    wrong = ("fenced_brokers", "without_leader", "under_replicated", "under_min_isr")
    enough = options.brokers is None or len(data["brokers"]) >= options.brokers
    data["healthy"] = enough and data["active_controller"] is not None and not any(data[key] for key in wrong)
    return data


async def _active_controller(admin: Admin) -> int | None:
    """None if none answers; the rest is then as the broker last heard of it."""
    try:
        quorum, _ = await admin.describe_quorum(timeout_ms=LISTING_PATIENCE_MS)
    except (KafkaError, ClientError) as failure:
        if may_pass(failure):
            return None
        raise
    return quorum.leader_id if quorum.leader_id >= 0 else None


def _named(topic: str, partition: PartitionInfo) -> str:
    return f"{topic}-{partition.partition}"


def _lines(data: dict[str, Any]) -> list[str]:
    contained = data["unexpected_failures"]
    broken = [f"{count} in broker {broker_id}" for broker_id, count in contained.items() if count]
    told = [("Contained failures", ", ".join(broken) or "none")] if contained else []
    return fields(
        [
            ("Health", "healthy" if data["healthy"] else "NOT HEALTHY"),
            ("Brokers", data["brokers"]),
            ("Fenced brokers", data["fenced_brokers"] or "none"),
            ("Active controller", "none answers" if data["active_controller"] is None else data["active_controller"]),
            ("Partitions", data["partitions"]),
            ("Without leader", _shown(data["without_leader"])),
            ("Under-replicated", _shown(data["under_replicated"])),
            ("Under min ISR", _shown(data["under_min_isr"])),
            *told,
        ]
    )


def _shown(names: list[str]) -> str:
    if not names:
        return "none"
    rest = f", … ({len(names)} in all)" if len(names) > 10 else ""
    return ", ".join(names[:10]) + rest
