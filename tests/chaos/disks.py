"""Disks that fill up or are lost under load, in a mount namespace: `unshare --mount python -m tests.chaos.disks`.

Every node has a small file system of its own, in memory. Prints every broken promise, and ends with 1 if there is one.
"""

from __future__ import annotations

import contextlib
import errno
import pathlib
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator

from tests.chaos.load import Load
from tests.chaos.watching import leader_of, partitions_of, until, wait_until_in_sync
from tests.integration.cluster_asking import active_controller

from odradek.testing.cluster import ClusterNode, RunningCluster, running_cluster

TOPIC = "ledger"
PARTITIONS = 6
DISK_MIB = 48
PROPERTIES = {
    "broker.session.timeout.ms": "2000",
    "broker.heartbeat.interval.ms": "300",
    "replica.lag.time.max.ms": "2000",
    "replica.high.watermark.checkpoint.interval.ms": "1000",
    "log.segment.bytes": "1048576",
}


def leader_full(cluster: RunningCluster, load: Load) -> None:
    """Others lead what it cannot write."""
    with full(leader_of(cluster, TOPIC)):
        load.wait_for_acknowledged_everywhere(100)


def follower_full(cluster: RunningCluster, load: Load) -> None:
    """Nobody waits for it for long, and it catches up."""
    follower = next(node for node in cluster.nodes.values() if node is not leader_of(cluster, TOPIC))
    with full(follower):
        load.wait_for_acknowledged_everywhere(100)
        until(lambda: isr_of(cluster, 0), lambda isr: follower.node_id not in isr, "it is not in sync any more")
        load.wait_for_acknowledged_everywhere(100)


def controller_full(cluster: RunningCluster, load: Load) -> None:
    """Another one decides."""
    before = active_controller(cluster.brokers[0])
    other = next(node for node in cluster.brokers if node.node_id != before)
    with full(cluster.nodes[before]):
        until(lambda: active_controller(other), lambda found: found not in (before, -1), "another controller decides")
        load.wait_for_acknowledged_everywhere(100)
        spare = Load(cluster.bootstrap_servers, "made-meanwhile", partitions=1)
        spare.create_topic(replication_factor=2)


def all_full(cluster: RunningCluster, load: Load) -> None:
    """Nothing can be written, nobody gives up, and all goes on once there is room."""
    with contextlib.ExitStack() as filled:
        for node in cluster.nodes.values():
            filled.enter_context(full(node))
        load.pass_time(5)
    assert all(node.running for node in cluster.nodes.values())


def directory_lost(cluster: RunningCluster, load: Load) -> None:
    """Others lead what was in it; an empty disk in its place is filled again."""
    leaders = [(leader_of(cluster, TOPIC, index), index) for index in range(PARTITIONS)]
    node, index = next(each for each in leaders if (second_directory(each[0]) / f"{TOPIC}-{each[1]}").exists())
    directory = second_directory(node)
    shutil.rmtree(directory)
    until(lambda: node.process.output(), lambda said: f"Log directory {directory} is offline" in said, "it says so")
    load.wait_for_acknowledged_everywhere(100)
    assert node.running
    assert leader_of(cluster, TOPIC, index) is not node
    node.stop()
    node.start()
    wait_until_in_sync(cluster, TOPIC)
    assert any((each / f"{TOPIC}-{index}").exists() for each in node.data_directories)


def second_directory(node: ClusterNode) -> pathlib.Path:
    """Not the one with the metadata log."""
    return node.data_directories[1]


def isr_of(cluster: RunningCluster, index: int) -> list[int]:
    return list(partitions_of(cluster, TOPIC)[index].isrs)


@contextlib.contextmanager
def full(node: ClusterNode) -> Iterator[None]:
    """Not a byte is left on its disk."""
    ballast = node.directory / "ballast"
    with ballast.open("wb", buffering=0) as file:
        for size in (1 << 20, 1 << 12):
            fill(lambda size=size: file.write(bytes(size)))
    try:
        yield
    finally:
        ballast.unlink()


def fill(write: Callable[[], object]) -> None:
    try:
        while True:
            write()
    except OSError as refused:
        if refused.errno != errno.ENOSPC:
            raise


STORIES: dict[str, Callable[[RunningCluster, Load], None]] = {
    "leader-full": leader_full,
    "follower-full": follower_full,
    "controller-full": controller_full,
    "all-full": all_full,
    "directory-lost": directory_lost,
}


def main(names: list[str]) -> int:
    broken: list[str] = []
    for name in names or list(STORIES):
        with (
            disks() as directory,
            running_cluster(
                properties=PROPERTIES, data_directory=directory, log_dirs=2 if name == "directory-lost" else 1
            ) as cluster,
        ):
            load = Load(cluster.bootstrap_servers, TOPIC, partitions=PARTITIONS)
            load.create_topic()
            try:
                with load.running():
                    load.wait_for_acknowledged_everywhere(50)
                    STORIES[name](cluster, load)
                    load.wait_for_acknowledged_everywhere(50)
                    wait_until_in_sync(cluster, TOPIC)
                broken += [f"{name}: {line}" for line in load.verdict()]
            finally:
                print("\n".join(f"{node}: {node.process.output()[-4000:]}" for node in cluster.nodes.values()))
    print("\n".join(broken) or "every promise held")
    return int(bool(broken))


@contextlib.contextmanager
def disks() -> Iterator[str]:
    """A directory in which each of three nodes finds a disk of its own."""
    with tempfile.TemporaryDirectory(prefix="odradek-") as directory:
        places = [pathlib.Path(directory) / f"node-{number}" for number in range(1, 4)]
        for place in places:
            place.mkdir()
            subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={DISK_MIB}m", "tmpfs", str(place)], check=True)
        try:
            yield directory
        finally:
            for place in places:
                subprocess.run(["umount", "-l", str(place)], check=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
