"""`odradek cluster`: brokers, controller, features, whether all is well, and a cluster on this machine."""

from __future__ import annotations

import argparse
from typing import Any

from odradek.apps.cli.cluster_health import health
from odradek.apps.terminal.options import Actions, add_actions, add_format_option, add_remote_action, positive, seconds
from odradek.apps.terminal.output import emit, fields, table
from odradek.client.admin import Admin

LOCAL_DIRECTORY = "odradek-cluster"


def declare(parser: argparse.ArgumentParser) -> None:
    actions = add_actions(parser, "Look at a cluster as a whole, or run one on this machine.")
    add_remote_action(actions, "info", "show brokers, controller, features and the state of partitions", info)
    well = add_remote_action(actions, "health", "say whether anything is wrong, by the exit code, too", health)
    well.add_argument("--watch", action="store_true", help="look again every second, until Ctrl-C")
    well.add_argument("--exit-when-healthy", action="store_true", help="wait until nothing is wrong, and end then")
    well.add_argument("--brokers", type=positive, metavar="N", help="less than so many live brokers is wrong")
    well.add_argument("--timeout", type=seconds, metavar="SECONDS", help="end after so long, healthy or not")
    _declare_local(actions)


def _declare_local(actions: Actions) -> None:
    """What a local cluster of processes can be told; a node is named by its number."""
    start = _local_action(actions, "start", "start a cluster of processes on this machine, made if there is none")
    start.add_argument("--brokers", type=positive, metavar="N", help="how many (default: 3)")
    start.add_argument(
        "--port",
        type=positive,
        metavar="N",
        help="of the first broker, the others behind (9092); controllers listen 10000 above (19092)",
    )
    start.add_argument(
        "--override", action="append", default=[], metavar="KEY=VALUE", help="set one key of all; several times"
    )
    _local_action(actions, "status", "show every node of the local cluster and whether it runs")
    stop = _local_action(actions, "stop", "stop a node of the local cluster, or all of them")
    stop.add_argument("node", nargs="?", type=positive, metavar="NODE")
    for name, help_line in (
        ("kill", "kill -9 a node of the local cluster"),
        ("pause", "hold a node of the local cluster: it is there and answers nothing"),
        ("resume", "let a node that is held go on"),
        ("restart", "stop a node of the local cluster if it runs, and start it"),
    ):
        _local_action(actions, name, help_line).add_argument("node", type=positive, metavar="NODE")
    _local_action(actions, "remove", "stop the local cluster and remove its data")


def _local_action(actions: Actions, name: str, help_line: str) -> argparse.ArgumentParser:
    action = actions.add_parser(name, help=help_line, description=help_line)
    action.add_argument(
        "--data", default=LOCAL_DIRECTORY, metavar="DIR", help=f"where the cluster is kept (./{LOCAL_DIRECTORY})"
    )
    add_format_option(action)
    action.set_defaults(run=f"odradek.apps.cli.local_cluster:{name}")
    return action


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
