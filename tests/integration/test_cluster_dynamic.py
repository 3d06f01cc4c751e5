"""A dynamic quorum: formatted with its first controllers, found by bootstrap servers, joined later by more nodes."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.integration.cluster_asking import ask, create_topic, eventually, topics

from odradek.configdef import format_properties
from odradek.testing.ports import free_ports
from odradek.testing.process import NodeProcess

CLUSTER_ID = "4L6g3nShT-eMCtK--X86sw"
FIRST = (1, 2, 3)


def odradek(*arguments: str) -> str:
    ran = subprocess.run([sys.executable, "-m", "odradek", *arguments], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran
    return ran.stdout


class Dynamic:
    """Nodes made as a person makes them: a file each, `storage format`, `start`."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.ports = dict(zip(range(1, 6), zip(free_ports(5), free_ports(5), strict=True), strict=True))
        self.processes: dict[int, NodeProcess] = {}
        self.voters = ",".join(
            f"{number}@127.0.0.1:{self.ports[number][1]}:{odradek('storage', 'random-uuid').strip()}"
            for number in FIRST
        )

    def broker(self, number: int) -> Any:
        """What `ask` needs."""
        return SimpleNamespace(bootstrap_server=f"127.0.0.1:{self.ports[number][0]}")

    def start(self, number: int, *formatting: str, roles: str = "broker,controller", **changes: str) -> NodeProcess:
        port, controller_port = self.ports[number]
        listeners = [f"PLAINTEXT://127.0.0.1:{port}"] if "broker" in roles else []
        listeners += [f"CONTROLLER://127.0.0.1:{controller_port}"] if "controller" in roles else []
        settings = {
            "node.id": str(number),
            "process.roles": roles,
            "listeners": ",".join(listeners),
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.bootstrap.servers": ",".join(f"127.0.0.1:{self.ports[each][1]}" for each in FIRST),
            "log.dirs": str(self.directory / str(number)),
        }
        settings |= {key.replace("_", "."): text for key, text in changes.items()}
        file = self.directory / f"{number}.properties"
        file.write_text(format_properties(settings))
        odradek("storage", "format", "--config", str(file), "--cluster-id", CLUSTER_ID, *formatting)
        process = self.processes[number] = NodeProcess(f"node {number}")
        process.begin([str(file)])
        return process


@pytest.fixture(scope="module")
def dynamic(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Dynamic]:
    made = Dynamic(tmp_path_factory.mktemp("dynamic"))
    try:
        for number in FIRST:
            made.start(number, "--initial-controllers", made.voters)
        for process in made.processes.values():
            process.wait_until_ready()
        yield made
    finally:
        for process in made.processes.values():
            process.kill()
            process.close()


def voters_and_observers(dynamic: Dynamic) -> tuple[list[int], list[int]]:
    partition, _ = ask(dynamic.broker(1), lambda admin: admin.describe_quorum())
    return (
        sorted(each.replica_id for each in partition.current_voters),
        sorted(each.replica_id for each in partition.observers),
    )


def test_the_first_controllers_vote_with_their_directories(dynamic: Dynamic) -> None:
    partition, response = ask(dynamic.broker(2), lambda admin: admin.describe_quorum())
    assert [each.replica_id for each in partition.current_voters] == [1, 2, 3]
    assert len({each.replica_directory_id for each in partition.current_voters}) == 3
    assert bytes(16) not in [each.replica_directory_id for each in partition.current_voters]
    assert response.error_code == 0
    create_topic(dynamic.broker(3), "agreed")


def test_a_broker_joins_by_asking_bootstrap_servers(dynamic: Dynamic) -> None:
    dynamic.start(4, roles="broker").wait_until_ready()
    assert "agreed" in topics(dynamic.broker(4))
    eventually(lambda: voters_and_observers(dynamic) == ([1, 2, 3], [4]), "the broker observes")


def test_a_controller_makes_itself_a_voter(dynamic: Dynamic) -> None:
    joining = dynamic.start(
        5, "--no-initial-controllers", roles="controller", controller_quorum_auto_join_enable="true"
    )
    joining.wait_until_ready()
    eventually(lambda: 5 in voters_and_observers(dynamic)[0], "the new controller votes")
    create_topic(dynamic.broker(1), "with-four-voters")


def test_it_goes_on_without_one_of_them(dynamic: Dynamic) -> None:
    dynamic.processes[2].kill()
    create_topic(dynamic.broker(3), "without-the-second")
    assert "without-the-second" in topics(dynamic.broker(3))
