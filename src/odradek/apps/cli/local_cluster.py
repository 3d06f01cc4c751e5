"""`odradek cluster start` and its neighbours: a cluster of processes on this machine, and what may happen to one."""

from __future__ import annotations

import argparse
import contextlib
import pathlib
import shutil
from collections.abc import Callable
from typing import Any

from odradek.apps.terminal.options import pairs
from odradek.apps.terminal.output import emit, table
from odradek.apps.terminal.sentence import Sentence
from odradek.configdef import ConfigError
from odradek.testing.local import CONTROLLER_PORT_DISTANCE, DetachedNode, LocalCluster, NoSuchCluster
from odradek.testing.process import NodeFailed

LARGEST_PORT = 65_535


def start(options: argparse.Namespace) -> int:
    """Make the cluster if there is none in the directory, and start what does not run of it."""
    directory = pathlib.Path(options.data).absolute()
    try:
        cluster = LocalCluster.find(directory)
    except NoSuchCluster:
        cluster = _make(directory, options)
    else:
        _check_same(cluster, directory, options)
    _or_sentence(cluster.start)
    data = {"nodes": list(cluster.nodes), "bootstrap_servers": cluster.bootstrap_servers, "data": str(directory)}
    line = f"A cluster of {len(cluster.nodes)} is ready: {cluster.bootstrap_servers} (data in {directory})"
    emit(options, data, [line])
    return 0


def _make(directory: pathlib.Path, options: argparse.Namespace) -> LocalCluster:
    brokers, port = options.brokers or 3, options.port or 9092
    if port + brokers - 1 + CONTROLLER_PORT_DISTANCE > LARGEST_PORT:
        raise Sentence(
            f"Controllers listen {CONTROLLER_PORT_DISTANCE} above their brokers, so --port may be at most "
            f"{LARGEST_PORT - CONTROLLER_PORT_DISTANCE - brokers + 1}.",
            2,
        )
    if directory.exists() and any(directory.iterdir()):
        raise Sentence(f"{directory} is not empty and holds no cluster; say another place with --data.")
    properties = pairs(options.override, "--override")
    try:
        return LocalCluster.make(directory, brokers=brokers, first_port=port, properties=properties)
    except NodeFailed as taken:
        raise Sentence(f"{taken} Say another first port with --port.") from taken
    except ConfigError as wrong:
        shutil.rmtree(directory)
        raise Sentence(f"{wrong} ({wrong.key} is set by --override.)") from wrong


def _check_same(cluster: LocalCluster, directory: pathlib.Path, options: argparse.Namespace) -> None:
    if options.brokers not in (None, len(cluster.nodes)) or options.port not in (None, cluster.nodes[1].port):
        raise Sentence(
            f"The cluster in {directory} has {len(cluster.nodes)} nodes from port {cluster.nodes[1].port} on. "
            "Start it without --brokers and --port, or say another place with --data."
        )
    if options.override:
        raise Sentence(f"The cluster in {directory} has its settings in node-*/server.properties; change them there.")


def status(options: argparse.Namespace) -> int:
    """Every node, and whether its process runs."""
    cluster = _found(options)
    nodes: list[dict[str, Any]] = [
        {
            "id": node.node_id,
            "roles": node.roles,
            "address": node.bootstrap_server,
            "state": node.state,
            "pid": node.pid,
            "log": str(node.log_file),
        }
        for node in cluster.nodes.values()
    ]
    rows = [(each["id"], each["roles"], each["address"], each["state"], each["pid"], each["log"]) for each in nodes]
    emit(options, {"nodes": nodes}, table(("NODE", "ROLES", "ADDRESS", "STATE", "PID", "LOG"), rows))
    return 0


def stop(options: argparse.Namespace) -> int:
    """One node, whose leaders move first, or all of them."""
    cluster = _found(options)
    if options.node is None:
        _or_sentence(cluster.stop)
        emit(options, {"nodes": list(cluster.nodes), "state": "stopped"}, ["All nodes have stopped."])
        return 0
    return _do(options, DetachedNode.stop, "has stopped", needs="running")


def kill(options: argparse.Namespace) -> int:
    return _do(options, DetachedNode.kill, "was killed", needs="running")


def pause(options: argparse.Namespace) -> int:
    return _do(options, DetachedNode.pause, "stands still", needs="running")


def resume(options: argparse.Namespace) -> int:
    return _do(options, DetachedNode.resume, "goes on", needs="paused")


def restart(options: argparse.Namespace) -> int:
    """Stop it the orderly way if it runs, and start it."""

    def stop_and_start(node: DetachedNode) -> None:
        node.stop()
        node.start()

    return _do(options, stop_and_start, "is ready again")


def remove(options: argparse.Namespace) -> int:
    """Stop all nodes, and remove all that they kept."""
    cluster = _found(options)
    _or_sentence(cluster.stop)
    for node in cluster.nodes.values():
        shutil.rmtree(node.directory)
    with contextlib.suppress(OSError):  # Something else is kept there, too.
        pathlib.Path(options.data).rmdir()
    emit(options, {"nodes": list(cluster.nodes), "state": "removed"}, [f"The cluster in {options.data} is gone."])
    return 0


def _found(options: argparse.Namespace) -> LocalCluster:
    try:
        return LocalCluster.find(pathlib.Path(options.data).absolute())
    except NoSuchCluster as nothing:
        raise Sentence(f"{nothing} Start one with odradek cluster start, or say where it is with --data.") from None


def _node(cluster: LocalCluster, node_id: int) -> DetachedNode:
    node = cluster.nodes.get(node_id)
    if node is None:
        raise Sentence(f"There is no node {node_id}; there are {', '.join(map(str, cluster.nodes))}.")
    return node


def _do(
    options: argparse.Namespace, deed: Callable[[DetachedNode], None], done: str, *, needs: str | None = None
) -> int:
    """Do something to the node that the options name, which must not be stopped if it has to be something else."""
    node = _node(_found(options), options.node)
    state = node.state
    if (needs is not None and state == "stopped") or (needs == "paused" and state != "paused"):
        raise Sentence(f"Node {node.node_id} is {state}.")
    _or_sentence(lambda: deed(node))
    emit(options, {"node": node.node_id, "state": node.state}, [f"Node {node.node_id} {done}."])
    return 0


def _or_sentence(work: Callable[[], None]) -> None:
    try:
        work()
    except NodeFailed as failed:
        raise Sentence(str(failed)) from failed
