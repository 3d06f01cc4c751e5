"""What a broker asks the controller for beside its life: blocks of producer ids, and where its partitions are."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.unit.metadata.building import uuid
from tests.unit.server.controllers import Controllers, play

from odradek.ids import NodeId
from odradek.metadata.controller.directories import DirectoryAssignment
from odradek.protocol.api import ApiKey
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.messages.allocate_producer_ids import AllocateProducerIdsResponse
from odradek.protocol.messages.assign_replicas_to_dirs import AssignReplicasToDirsRequest, AssignReplicasToDirsResponse
from odradek.server.containment import Containment
from odradek.server.coordinators.producer_ids import ProducerIds
from odradek.server.partitions.directory_assignments import MAX_ASSIGNMENTS_PER_REQUEST, DirectoryAssignments


def producer_ids(controllers: Controllers) -> ProducerIds:
    return ProducerIds(controllers.channel, NodeId(1), lambda: 7, timeout_ms=2_000)


def test_ids_come_from_blocks_and_none_comes_twice() -> None:
    async def test(controllers: Controllers) -> None:
        blocks = iter(range(0, 100, 10))
        controllers.script(
            1,
            ApiKey.ALLOCATE_PRODUCER_IDS,
            lambda request: AllocateProducerIdsResponse(producer_id_start=next(blocks), producer_id_len=4),
        )
        ids = producer_ids(controllers)
        given = await asyncio.gather(*(ids.next() for _ in range(10)))
        assert sorted(given) == [0, 1, 2, 3, 10, 11, 12, 13, 20, 21]
        assert controllers.by_port[1].count(ApiKey.ALLOCATE_PRODUCER_IDS) == 3
        request: Any = controllers.by_port[1].seen[-1][2]
        assert (request.broker_id, request.broker_epoch) == (1, 7)

    play(test)


@pytest.mark.parametrize(
    ("refused", "told"),
    [
        (ErrorCode.STALE_BROKER_EPOCH, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS),
        (ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.KAFKA_STORAGE_ERROR),
        (None, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS),
    ],
)
def test_a_producer_is_told_to_come_again(refused: ErrorCode | None, told: ErrorCode) -> None:
    async def test(controllers: Controllers) -> None:
        if refused is None:
            controllers.by_port[1].is_up = False
        else:
            controllers.script(
                1, ApiKey.ALLOCATE_PRODUCER_IDS, lambda request: AllocateProducerIdsResponse(error_code=refused)
            )
        ids = producer_ids(controllers)
        for _ in range(2):
            with pytest.raises(KafkaError) as failed:
                await ids.next()
            assert failed.value.code is told

    play(test)


def assignment(partition: int, directory: int) -> DirectoryAssignment:
    return DirectoryAssignment(uuid(1), partition, uuid(directory))


def told(controllers: Controllers) -> list[dict[int, int]]:
    """Partition to directory, of each request."""
    requests = []
    for key, _, request in controllers.by_port[1].seen:
        if key is ApiKey.ASSIGN_REPLICAS_TO_DIRS:
            assert isinstance(request, AssignReplicasToDirsRequest)
            requests.append(
                {
                    partition.partition_index: int.from_bytes(directory.id)
                    for directory in request.directories
                    for topic in directory.topics
                    for partition in topic.partitions
                }
            )
    return requests


def number(directory: int) -> int:
    return int.from_bytes(uuid(directory))


def test_choices_are_told_together_and_again_until_they_are_taken() -> None:
    async def test(controllers: Controllers) -> None:
        answers = [AssignReplicasToDirsResponse(error_code=ErrorCode.STALE_BROKER_EPOCH)]
        controllers.script(
            1,
            ApiKey.ASSIGN_REPLICAS_TO_DIRS,
            lambda request: answers.pop() if answers else AssignReplicasToDirsResponse(),
        )
        assignments = DirectoryAssignments(controllers.channel, NodeId(1), lambda: 7, Containment(), timeout_ms=1_000)
        assignments.tell([assignment(0, 5), assignment(1, 6)])
        assignments.tell([assignment(2, 5)])
        await asyncio.sleep(0.2)
        assignments.tell([assignment(1, 5)])
        await asyncio.sleep(2)
        assert told(controllers) == [
            {0: number(5), 1: number(6), 2: number(5)},
            {0: number(5), 1: number(5), 2: number(5)},
        ]
        assignments.tell([])
        await asyncio.sleep(1)
        assert len(told(controllers)) == 2

    play(test)


def test_many_choices_go_in_several_requests() -> None:
    async def test(controllers: Controllers) -> None:
        controllers.script(1, ApiKey.ASSIGN_REPLICAS_TO_DIRS, lambda request: AssignReplicasToDirsResponse())
        assignments = DirectoryAssignments(controllers.channel, NodeId(1), lambda: 7, Containment(), timeout_ms=1_000)
        assignments.tell([assignment(index, 5) for index in range(MAX_ASSIGNMENTS_PER_REQUEST + 10)])
        await asyncio.sleep(1)
        assert [len(each) for each in told(controllers)] == [MAX_ASSIGNMENTS_PER_REQUEST, 10]

    play(test)


def test_a_choice_that_comes_as_the_last_ones_are_taken_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(controllers: Controllers) -> None:
        controllers.script(1, ApiKey.ASSIGN_REPLICAS_TO_DIRS, lambda request: AssignReplicasToDirsResponse())
        assignments = DirectoryAssignments(controllers.channel, NodeId(1), lambda: 7, Containment(), timeout_ms=1_000)
        ask = controllers.channel.ask

        async def ask_and_choose(request: Any, *, timeout_ms: int) -> Any:
            answer = await ask(request, timeout_ms=timeout_ms)
            if len(told(controllers)) == 1:
                asyncio.get_running_loop().call_soon(assignments.tell, [assignment(1, 6)])
            return answer

        monkeypatch.setattr(controllers.channel, "ask", ask_and_choose)
        assignments.tell([assignment(0, 5)])
        await asyncio.sleep(1)
        assert told(controllers) == [{0: number(5)}, {1: number(6)}]

    play(test)
