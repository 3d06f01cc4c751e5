"""Markers reach every partition, whoever leads it by then, and the shard hears of it once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from tests.unit.metadata.building import led_by, with_topic
from tests.unit.server.brokers import HERE, Brokers, among_brokers

from odradek.coordinator.transaction.state import State, Transaction, new_transaction
from odradek.ids import ProducerId
from odradek.metadata.image import Image
from odradek.protocol.api import ApiKey
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from odradek.server.containment import Containment
from odradek.server.coordinators.marker_sender import MarkerSender
from odradek.values import replace

Partition = tuple[str, int]
KEY = ApiKey.WRITE_TXN_MARKERS


class Runner:
    """Of a shard that has ended transactions, as far as markers need it."""

    leader_epoch = 7

    def __init__(self) -> None:
        self.state = ErrorCode.NONE
        self.told = 0

    def tell(self, decide: object) -> bool:
        self.told += 1
        return True


def ended(producer_id: int, *partitions: Partition, commit: bool = True) -> Transaction:
    begun = new_transaction(f"tx-{producer_id}", producer_id=ProducerId(producer_id), timeout_ms=1_000, now_ms=0)
    begun = begun.with_partitions(partitions, client_version=0, now_ms=0)
    return replace(begun, state=State.PREPARE_COMMIT if commit else State.PREPARE_ABORT)


def results(markers: list[WritableTxnMarker], code: Callable[[Partition], int]) -> list[WritableTxnMarkerResult]:
    return [
        WritableTxnMarkerResult(
            producer_id=marker.producer_id,
            topics=[
                WritableTxnMarkerTopicResult(
                    name=topic.name,
                    partitions=[
                        WritableTxnMarkerPartitionResult(partition_index=index, error_code=code((topic.name, index)))
                        for index in topic.partition_indexes
                    ],
                )
                for topic in marker.topics
            ],
        )
        for marker in markers
    ]


class Writer:
    """This broker's own partitions."""

    def __init__(self) -> None:
        self.requests: list[list[WritableTxnMarker]] = []

    async def write(self, markers: list[WritableTxnMarker]) -> list[WritableTxnMarkerResult]:
        self.requests.append(markers)
        await asyncio.sleep(0.01)
        return results(markers, lambda each: ErrorCode.NONE)


class Scene:
    """A coordinator here among brokers, each of which answers with a code by partition, NONE unless a test says so."""

    def __init__(self, brokers: Brokers) -> None:
        self.brokers = brokers
        self.runner = Runner()
        self.writer = Writer()
        self.codes: dict[Partition, int] = {}
        self.heard: dict[int, list[WriteTxnMarkersRequest]] = {2: [], 3: []}
        for number in (2, 3):
            brokers.script(number, KEY, self._answers_of(number))
        self.sender = MarkerSender(
            HERE,
            lambda: brokers.image,
            self.writer,  # type: ignore[arg-type]
            brokers.channels,
            Containment(),
        )

    def _answers_of(self, number: int) -> Callable[[WriteTxnMarkersRequest], Coroutine[Any, Any, Any]]:
        async def answer(request: WriteTxnMarkersRequest) -> WriteTxnMarkersResponse:
            self.heard[number].append(request)
            await asyncio.sleep(0.01)
            return WriteTxnMarkersResponse(markers=results(request.markers, lambda each: self.codes.get(each, 0)))

        return answer

    def send(self, transaction: Transaction) -> None:
        self.sender.send(self.runner, transaction)  # type: ignore[arg-type]


def play(test: Callable[[Scene], Coroutine[Any, Any, None]]) -> None:
    async def run(brokers: Brokers) -> None:
        scene = Scene(brokers)
        await test(scene)
        scene.sender.close()

    among_brokers(run)


def test_every_leader_is_told_once_and_the_shard_when_all_of_them_know() -> None:
    async def test(scene: Scene) -> None:
        scene.send(ended(5, ("t", 0), ("t", 1), ("t", 2)))
        await asyncio.sleep(0.005)
        assert scene.runner.told == 0
        await asyncio.sleep(1)
        assert scene.runner.told == 1
        ((mine,),) = scene.writer.requests
        (his,) = scene.heard[2][0].markers
        assert (mine.producer_id, mine.transaction_result, mine.coordinator_epoch) == (5, True, 7)
        assert (his.topics[0].name, his.topics[0].partition_indexes) == ("t", [1])
        assert (len(scene.heard[2]), len(scene.heard[3])) == (1, 1)

    play(test)


def test_what_ends_meanwhile_goes_together() -> None:
    async def test(scene: Scene) -> None:
        for producer_id in range(10):
            scene.send(ended(producer_id, ("t", 1), commit=producer_id % 2 == 0))
        await asyncio.sleep(1)
        assert scene.runner.told == 10
        counts = [len(request.markers) for request in scene.heard[2]]
        assert (sum(counts), len(counts) <= 2) == (10, True)
        told = {marker.producer_id: marker.transaction_result for r in scene.heard[2] for marker in r.markers}
        assert told == {producer_id: producer_id % 2 == 0 for producer_id in range(10)}

    play(test)


def test_a_transaction_without_partitions_is_over_at_once() -> None:
    async def test(scene: Scene) -> None:
        scene.send(ended(5))
        assert scene.runner.told == 1

    play(test)


def test_who_has_too_few_replicas_or_does_not_answer_is_asked_again() -> None:
    async def test(scene: Scene) -> None:
        scene.codes["t", 1] = ErrorCode.NOT_ENOUGH_REPLICAS
        scene.brokers.scripted["host-3"].is_up = False
        scene.send(ended(5, ("t", 1), ("t", 2)))
        await asyncio.sleep(1)
        assert (scene.runner.told, len(scene.heard[2]) > 5) == (0, True)
        del scene.codes["t", 1]
        await asyncio.sleep(1)
        assert scene.runner.told == 0
        asked = len(scene.heard[2])
        scene.brokers.scripted["host-3"].is_up = True
        await asyncio.sleep(1)
        assert scene.runner.told == 1
        assert len(scene.heard[2]) == asked, "who knows is left alone"

    play(test)


def test_the_leader_of_then_is_told() -> None:
    async def test(scene: Scene) -> None:
        scene.codes["t", 1] = ErrorCode.NOT_LEADER_OR_FOLLOWER
        scene.send(ended(5, ("t", 1)))
        await asyncio.sleep(0.05)
        without, with_another = moved(scene.brokers.image, -1), moved(scene.brokers.image, 3)
        assert scene.sender.without_leader == 0
        scene.brokers.image = without
        await asyncio.sleep(1)
        assert (scene.runner.told, scene.heard[3]) == (0, [])
        assert scene.sender.without_leader == 1
        scene.codes.clear()
        scene.brokers.image = with_another
        await asyncio.sleep(1)
        assert (scene.runner.told, len(scene.heard[3])) == (1, 1)
        assert scene.sender.without_leader == 0

    play(test)


def test_a_partition_that_is_gone_needs_no_marker() -> None:
    async def test(scene: Scene) -> None:
        scene.send(ended(5, ("gone", 0), ("t", 17)))
        assert scene.runner.told == 1

    play(test)


def test_where_a_later_epoch_is_known_another_sends_them() -> None:
    async def test(scene: Scene) -> None:
        for code in (ErrorCode.TRANSACTION_COORDINATOR_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH):
            scene.codes["t", 1] = code
            scene.send(ended(5, ("t", 1), ("t", 2)))
            await asyncio.sleep(1)
        assert (scene.runner.told, len(scene.heard[2])) == (0, 2)

    play(test)


def test_who_resigns_sends_no_more() -> None:
    async def test(scene: Scene) -> None:
        scene.codes["t", 1] = ErrorCode.NOT_ENOUGH_REPLICAS
        scene.send(ended(5, ("t", 1)))
        await asyncio.sleep(0.5)
        scene.runner.state = ErrorCode.NOT_COORDINATOR
        asked = len(scene.heard[2])
        del scene.codes["t", 1]
        await asyncio.sleep(1)
        assert (scene.runner.told, len(scene.heard[2]) <= asked + 1) == (0, True)

    play(test)


def moved(image: Image, leader: int) -> Image:
    """With another leader of `t`'s second partition."""
    return with_topic(image, led_by(1, [1]), led_by(leader, [2, 3]), led_by(3, [3]))
