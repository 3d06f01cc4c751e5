"""`odradek cluster`: brokers, controller, features, and whether all partitions are well."""

from __future__ import annotations

import argparse
from typing import Any

from odradek.apps.cli.options import add_actions, add_remote_action
from odradek.apps.cli.output import emit, fields, table
from odradek.client.admin import Admin


def declare(parser: argparse.ArgumentParser) -> None:
    actions = add_actions(parser, "Look at a cluster as a whole.")
    add_remote_action(actions, "info", "show brokers, controller, features and the state of partitions", info)


async def info(admin: Admin, options: argparse.Namespace) -> int:
    """What any broker knows of all."""
    topics = await admin.list_topics()
    described = await admin.describe_cluster()
    versions = await admin.describe_features()
    partitions = [(topic.name, each) for topic in topics for each in topic.partitions]
    leading = {broker.broker_id: 0 for broker in described.brokers}
    for _, each in partitions:
        leading[each.leader] = leading.get(each.leader, 0) + 1
    data: dict[str, Any] = {
        "cluster_id": described.cluster_id,
        "controller": described.controller_id if described.controller_id >= 0 else None,
        "brokers": [
            {
                "id": broker.broker_id,
                "host": broker.host,
                "port": broker.port,
                "rack": broker.rack,
                "leads": leading[broker.broker_id],
                "replicas": sum(broker.broker_id in each.replicas for _, each in partitions),
            }
            for broker in sorted(described.brokers, key=lambda broker: broker.broker_id)
        ],
        "features": {
            each.name: each.max_version_level
            for each in sorted(versions.finalized_features, key=lambda feature: feature.name)
        },
        "topics": len(topics),
        "partitions": len(partitions),
        "under_replicated": [
            f"{name}-{each.partition}" for name, each in partitions if len(each.isr) < len(each.replicas)
        ],
        "without_leader": [f"{name}-{each.partition}" for name, each in partitions if each.leader < 0],
    }
    emit(options, data, _lines(data))
    return 0


def _lines(data: dict[str, Any]) -> list[str]:
    head = fields(
        [
            ("Cluster", data["cluster_id"]),
            ("Controller", data["controller"]),
            ("Features", ", ".join(f"{name}={level}" for name, level in data["features"].items()) or None),
            ("Topics", data["topics"]),
            ("Partitions", data["partitions"]),
            ("Under-replicated", data["under_replicated"] or "none"),
            ("Without leader", data["without_leader"] or "none"),
        ]
    )
    rows = [
        (each["id"], f"{each['host']}:{each['port']}", each["rack"], each["leads"], each["replicas"])
        for each in data["brokers"]
    ]
    return [*head, "", *table(("BROKER", "ADDRESS", "RACK", "LEADS", "REPLICAS"), rows)]
