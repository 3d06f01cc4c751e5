"""`odradek transaction` against a cluster, whose brokers share the coordination."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

pytest.register_assert_rewrite("tests.integration.cli_transaction_cases")

from tests.integration.cli import PATIENCE_S, Cli  # noqa: E402
from tests.integration.cli_transaction_cases import CASES, Case, begin, producer  # noqa: E402
from tests.integration.cluster_asking import ask  # noqa: E402

from odradek.client.admin import Admin  # noqa: E402
from odradek.protocol.messages.describe_producers import (  # noqa: E402
    DescribeProducersRequest,
    DescribeProducersResponse,
    TopicRequest,
)
from odradek.testing.cluster import RunningCluster, running_cluster  # noqa: E402


@pytest.fixture(scope="module")
def cluster() -> Iterator[RunningCluster]:
    properties = {"transaction.state.log.num.partitions": "6", "group.initial.rebalance.delay.ms": "0"}
    with running_cluster(in_process=True, properties=properties) as running:
        yield running


@pytest.fixture(scope="module")
def cli(cluster: RunningCluster, tmp_path_factory: pytest.TempPathFactory) -> Cli:
    return Cli(cluster.bootstrap_servers, tmp_path_factory.mktemp("home"))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_case(case: Case, cli: Cli) -> None:
    case(cli, case.__name__.replace("_", "-"))


def test_all_coordinators_are_asked(cli: Cli) -> None:
    names = [f"spread-{number}" for number in range(12)]
    for name in names:
        producer(cli, name)
    listed = cli.json("transaction", "list", "--pattern", "spread-.*")
    assert sorted(each["transactional_id"] for each in listed) == sorted(names)
    assert len({each["coordinator"] for each in listed}) == 3


def test_every_replica_tells_of_its_producers(cluster: RunningCluster, cli: Cli) -> None:
    """As kafka-transactions asks with --broker-id."""
    cli.ok("topic", "create", "copied", "--replication-factor", 3)
    held = begin(cli, "copied", "copied")
    (told,) = cli.json("transaction", "describe", "copied")
    request = DescribeProducersRequest(topics=[TopicRequest(name="copied", partition_indexes=[0])])

    async def look(admin: Admin) -> dict[int, list[tuple[int, int]]]:
        await admin.list_topics()
        told = {}
        for node_id in cluster.nodes:
            response = await admin.cluster.ask(request, DescribeProducersResponse, node_id=node_id)
            (partition,) = response.topics[0].partitions
            assert partition.error_code == 0, partition
            told[node_id] = [(each.producer_id, each.current_txn_start_offset) for each in partition.active_producers]
        return told

    assert ask(cluster.nodes[1], look) == {node_id: [(told["producer_id"], 0)] for node_id in cluster.nodes}
    held.abort_transaction(PATIENCE_S)
