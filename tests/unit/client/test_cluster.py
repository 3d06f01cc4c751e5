"""The cluster as a client sees it: who can be reached, what they speak, who leads, who coordinates."""

from __future__ import annotations

import asyncio
from itertools import pairwise

import pytest
from tests.unit.client.scripted import HOST, PORT, Ports, ScriptedBroker, play, settings

from odradek.client.cluster import Cluster, TopicPartition
from odradek.client.errors import ConnectionLost, NoBrokerAnswers
from odradek.client.leaders import LATEST, FoundOffset, list_offsets
from odradek.client.settings import ADMIN_TABLE, Settings
from odradek.protocol.api import ApiKey
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.messages.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse
from odradek.protocol.messages.find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from odradek.protocol.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from odradek.protocol.messages.metadata import MetadataRequest, MetadataResponse
from odradek.protocol.messages.produce import ProduceRequest


def cluster_on(ports: Ports, **more: object) -> Cluster:
    return Cluster(ports, Settings(ADMIN_TABLE, settings(**more)))


def test_nobody_there_is_told_in_one_sentence() -> None:
    async def test(broker: ScriptedBroker, ports: Ports) -> None:
        broker.is_up = False
        cluster = cluster_on(ports, bootstrap_servers=f"{HOST}:{PORT},elsewhere:1")
        with pytest.raises(NoBrokerAnswers) as told:
            await cluster.ask(MetadataRequest(topics=[]), MetadataResponse)
        assert str(told.value) == (
            "no broker answers: broker:9092: Connection refused; elsewhere:1: Connection refused"
        )
        await cluster.close()

    play(test)


def test_the_highest_common_version_is_spoken() -> None:
    async def test(broker: ScriptedBroker, ports: Ports) -> None:
        def served(request: ApiVersionsRequest) -> ApiVersionsResponse:
            return ApiVersionsResponse(
                api_keys=[
                    ApiVersion(api_key=ApiKey.METADATA, min_version=0, max_version=7),
                    ApiVersion(api_key=ApiKey.PRODUCE, min_version=90, max_version=99),
                ]
            )

        broker.answers[ApiKey.API_VERSIONS] = served
        cluster = cluster_on(ports)
        await cluster.refresh(())
        assert [version for key, version, _ in broker.seen if key is ApiKey.METADATA] == [7]
        connection = await cluster.connection(1)
        with pytest.raises(KafkaError, match="serves versions 90 to 99 of PRODUCE"):
            cluster.version_for(connection, ProduceRequest)
        with pytest.raises(KafkaError, match="does not serve FIND_COORDINATOR"):
            cluster.version_for(connection, FindCoordinatorRequest)
        await cluster.close()

    play(test)


def test_retries_wait_longer_each_time_and_end() -> None:
    async def test(broker: ScriptedBroker, ports: Ports) -> None:
        cluster = cluster_on(ports)
        tries: list[int] = []

        async def attempt() -> None:
            tries.append(ports.clock.monotonic_ms())
            raise ConnectionLost("gone")

        with pytest.raises(ConnectionLost):
            await cluster.retrying(attempt, timeout_ms=5_000)
        pauses = [after - before for before, after in pairwise(tries)]
        assert 80 <= pauses[0] <= 120
        assert 160 <= pauses[1] <= 240
        assert all(800 <= pause <= 1_200 for pause in pauses[4:])
        assert 4_000 <= tries[-1] <= 5_000

        async def refused() -> None:
            tries.append(0)
            raise KafkaError(ErrorCode.TOPIC_ALREADY_EXISTS)

        tries.clear()
        with pytest.raises(KafkaError):
            await cluster.retrying(refused)
        assert len(tries) == 1, "what cannot pass is not tried again"

    play(test)


def test_metadata_is_remembered_until_it_is_old_or_refuted() -> None:
    async def test(broker: ScriptedBroker, ports: Ports) -> None:
        broker.topics = {"t": 2}
        cluster = cluster_on(ports, metadata_max_age_ms=60_000)
        for _ in range(3):
            assert len((await cluster.topic("t", timeout_ms=1_000)).partitions) == 2
        assert broker.count(ApiKey.METADATA) == 1
        broker.topics["t"] = 3
        await asyncio.sleep(61)
        assert len((await cluster.topic("t", timeout_ms=1_000)).partitions) == 3
        cluster.mark_stale("t")
        await asyncio.gather(*[cluster.topic("t", timeout_ms=1_000) for _ in range(10)])
        assert broker.count(ApiKey.METADATA) == 3, "all who ask at once share an answer"
        await cluster.close()

    play(test)


def test_an_older_leader_is_not_believed() -> None:
    async def test(broker: ScriptedBroker, ports: Ports) -> None:
        broker.topics = {"t": 1}
        broker.leader_epoch = 5
        cluster = cluster_on(ports)
        await cluster.refresh(("t",))
        broker.leader_epoch = 4
        await cluster.refresh(("t",))
        assert cluster.topics["t"].partitions[0].leader_epoch == 5
        broker.leader_epoch = 6
        await cluster.refresh(("t",))
        assert cluster.topics["t"].partitions[0].leader_epoch == 6
        await cluster.close()

    play(test)


def test_a_coordinator_is_looked_up_once_and_again_when_refuted() -> None:
    async def test(broker: ScriptedBroker, ports: Ports) -> None:
        def find(request: FindCoordinatorRequest) -> FindCoordinatorResponse:
            (key,) = request.coordinator_keys
            return FindCoordinatorResponse(coordinators=[Coordinator(key=key, node_id=1, host=HOST, port=PORT)])

        broker.answers[ApiKey.FIND_COORDINATOR] = find
        cluster = cluster_on(ports)
        assert [await cluster.coordinator("g") for _ in range(3)] == [1, 1, 1]
        assert broker.count(ApiKey.FIND_COORDINATOR) == 1
        with pytest.raises(KafkaError):
            cluster.check_coordinated("g", ErrorCode.NOT_COORDINATOR)
        await cluster.coordinator("g")
        assert broker.count(ApiKey.FIND_COORDINATOR) == 2
        await cluster.close()

    play(test)


def test_a_leader_that_has_moved_is_asked_again() -> None:
    async def test(broker: ScriptedBroker, ports: Ports) -> None:
        broker.topics = {"t": 2}
        asked: list[list[int]] = []

        def offsets(request: ListOffsetsRequest) -> ListOffsetsResponse:
            (topic,) = request.topics
            indexes = [each.partition_index for each in topic.partitions]
            asked.append(indexes)
            moved = len(asked) <= 2
            return ListOffsetsResponse(
                topics=[
                    ListOffsetsTopicResponse(
                        name="t",
                        partitions=[
                            ListOffsetsPartitionResponse(
                                partition_index=index,
                                error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER if moved and index == 1 else 0,
                                offset=10 + index,
                            )
                            for index in indexes
                        ],
                    )
                ]
            )

        broker.answers[ApiKey.LIST_OFFSETS] = offsets
        cluster = cluster_on(ports)
        wanted = {TopicPartition("t", index): LATEST for index in range(2)} | {TopicPartition("gone", 0): LATEST}
        found = await list_offsets(cluster, wanted, timeout_ms=5_000)
        assert asked == [[0, 1], [1], [1]]
        assert [found[TopicPartition("t", index)] for index in range(2)] == [
            FoundOffset(10, -1, -1),
            FoundOffset(11, -1, -1),
        ]
        assert isinstance(found[TopicPartition("gone", 0)], KafkaError), "is not waited for"
        await cluster.close()

    play(test)


def test_a_lost_connection_is_made_anew_and_all_share_it() -> None:
    async def test(broker: ScriptedBroker, ports: Ports) -> None:
        cluster = cluster_on(ports)
        await cluster.refresh(())
        first = await cluster.connection(1)
        first.close()
        connections = await asyncio.gather(*[cluster.connection(1) for _ in range(5)])
        assert all(connection is connections[0] for connection in connections)
        assert connections[0] is not first
        assert broker.count(ApiKey.API_VERSIONS) == 2
        await cluster.close()
        assert connections[0].is_lost

    play(test)
