"""What a leader asks the coordinator of a transaction elsewhere, and what it makes of the answers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from types import SimpleNamespace
from typing import Any

import pytest
from tests.unit.server.brokers import HERE, Brokers, among_brokers

from odradek.coordinator.transaction.shard import partition_results
from odradek.protocol.api import ApiKey
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTransaction,
)
from odradek.protocol.messages.api_versions import ApiVersion, ApiVersionsResponse
from odradek.server.containment import Containment
from odradek.server.coordinators.verification import Proof, TransactionalProducer, TransactionVerifier
from odradek.storage.producer_state import Producers, ProducerSettings, Verification

KEY = ApiKey.ADD_PARTITIONS_TO_TXN


class Scene:
    """A broker that hosts partitions, and coordinators elsewhere that answer as `codes` says, in turn."""

    def __init__(self, brokers: Brokers) -> None:
        self.brokers = brokers
        self.heard: list[AddPartitionsToTxnRequest] = []
        self.codes: list[ErrorCode] = []
        self.on_request: Callable[[], None] = lambda: None
        brokers.coordinated_by(2)
        brokers.script(2, KEY, self._answer)
        config: Any = SimpleNamespace(
            node_id=HERE,
            request_timeout_ms=1_000,
            add_partitions_to_txn_retry_backoff_ms=20,
            add_partitions_to_txn_retry_backoff_max_ms=100,
        )
        coordinators: Any = SimpleNamespace(partition_of=lambda transactional_id: 0)
        self.verifier = TransactionVerifier(
            config, brokers.clock, lambda: brokers.image, coordinators, brokers.channels, Containment()
        )

    async def _answer(self, request: AddPartitionsToTxnRequest) -> AddPartitionsToTxnResponse:
        self.heard.append(request)
        self.on_request()
        await asyncio.sleep(0.01)
        code = self.codes.pop(0) if self.codes else ErrorCode.NONE
        return AddPartitionsToTxnResponse(
            results_by_transaction=[partition_results(each, code) for each in request.transactions]
        )

    async def ask(self, name: str = "tx", *, adds: bool = False, hosted: Any = None) -> Proof:
        hosted = hosted or a_partition()
        producer = TransactionalProducer(name, 7, 0)
        return (await self.verifier.prove(producer, {hosted: 0}, adds_partitions=adds))[hosted]

    @property
    def asked(self) -> list[list[AddPartitionsToTxnTransaction]]:
        return [request.transactions for request in self.heard]


class APartition:
    topic, index = "t", 0

    def __init__(self) -> None:
        self.producers = Producers(ProducerSettings(verifies=True))
        self.partition = SimpleNamespace(log=SimpleNamespace(producers=self.producers))


def a_partition() -> Any:
    return APartition()


def play(test: Callable[[Scene], Coroutine[Any, Any, None]]) -> None:
    async def run(brokers: Brokers) -> None:
        scene = Scene(brokers)
        await test(scene)
        scene.verifier.close()

    among_brokers(run)


def code_of(proof: Proof) -> ErrorCode:
    assert isinstance(proof, KafkaError)
    return proof.code


@pytest.mark.parametrize("adds", [False, True])
def test_the_coordinator_is_asked_whether_the_partition_is_part_of_it_or_to_make_it_so(adds: bool) -> None:
    async def test(scene: Scene) -> None:
        assert isinstance(await scene.ask(adds=adds), Verification)
        ((asked,),) = scene.asked
        assert (asked.transactional_id, asked.producer_id, asked.producer_epoch) == ("tx", 7, 0)
        assert (asked.verify_only, asked.topics[0].name, asked.topics[0].partitions) == (not adds, "t", [0])

    play(test)


def test_nobody_is_asked_where_the_transaction_is_open() -> None:
    async def test(scene: Scene) -> None:
        hosted = a_partition()
        hosted.producers.appended(7, 0, 0, 0, 0, 0, True)
        assert await scene.ask(hosted=hosted) is None
        hosted.producers.appended(7, 1, 0, 1, 0, 0, True)
        assert code_of(await scene.ask(hosted=hosted)) is ErrorCode.INVALID_PRODUCER_EPOCH
        assert scene.heard == []

    play(test)


def test_what_is_asked_meanwhile_goes_together_but_one_name_twice_does_not() -> None:
    async def test(scene: Scene) -> None:
        names = ["first", *(f"tx-{number}" for number in range(20)), "tx-3"]
        proofs = await asyncio.gather(*(scene.ask(name) for name in names))
        assert all(isinstance(proof, Verification) for proof in proofs)
        assert [len(transactions) for transactions in scene.asked] in ([21, 1], [1, 20, 1])

    play(test)


@pytest.mark.parametrize(
    ("said", "told"),
    [
        (ErrorCode.TRANSACTION_ABORTABLE, ErrorCode.TRANSACTION_ABORTABLE),
        (ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH),
        (ErrorCode.NOT_COORDINATOR, ErrorCode.NOT_COORDINATOR),
    ],
)
def test_what_it_says_is_told_in_codes_that_producers_know(said: ErrorCode, told: ErrorCode) -> None:
    async def test(scene: Scene) -> None:
        scene.codes = [said]
        assert code_of(await scene.ask()) is told

    play(test)


def test_a_transaction_that_begins_before_the_last_one_has_ended_everywhere_waits_a_little() -> None:
    """And its proof is one that was made after the marker of the one before."""

    async def test(scene: Scene) -> None:
        hosted = a_partition()
        scene.codes = [ErrorCode.CONCURRENT_TRANSACTIONS] * 2

        def marker_comes() -> None:
            if len(scene.heard) == 2:
                hosted.producers.ended(7, 0, coordinator_epoch=0, aborted=False, offset=9, timestamp=0)

        scene.on_request = marker_comes
        proof = await scene.ask(adds=True, hosted=hosted)
        assert len(scene.heard) == 3
        hosted.producers.check_verified(7, 0, proof)
        scene.codes = [ErrorCode.CONCURRENT_TRANSACTIONS] * 100
        assert code_of(await scene.ask("other", adds=True)) is ErrorCode.CONCURRENT_TRANSACTIONS
        assert len(scene.heard) < 15, "it does not wait for long"
        scene.heard.clear()
        assert code_of(await scene.ask("third")) is ErrorCode.CONCURRENT_TRANSACTIONS
        assert len(scene.heard) == 1, "who has added it waits itself"

    play(test)


def test_without_a_coordinator_or_without_its_answer_nothing_begins() -> None:
    async def test(scene: Scene) -> None:
        scene.brokers.scripted["host-2"].is_up = False
        assert code_of(await scene.ask()) is ErrorCode.NETWORK_EXCEPTION
        scene.brokers.coordinated_by(-1)
        assert code_of(await scene.ask()) is ErrorCode.COORDINATOR_NOT_AVAILABLE

    play(test)


def test_that_brokers_do_not_trust_each_other_is_hidden() -> None:
    async def test(scene: Scene) -> None:
        refusal = AddPartitionsToTxnResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
        scene.brokers.script(2, KEY, lambda request: refusal)
        assert code_of(await scene.ask()) is ErrorCode.INVALID_TXN_STATE

    play(test)


def test_a_coordinator_that_is_too_old_to_be_asked_is_not_asked() -> None:
    async def test(scene: Scene) -> None:
        old = ApiVersion(api_key=KEY, min_version=0, max_version=3)
        scene.brokers.script(2, ApiKey.API_VERSIONS, lambda request: ApiVersionsResponse(api_keys=[old]))
        assert isinstance(await scene.ask(), Verification)
        assert code_of(await scene.ask(adds=True)) is ErrorCode.UNSUPPORTED_VERSION
        assert scene.heard == []

    play(test)


def test_questions_are_counted_with_what_they_took_and_what_was_refused() -> None:
    async def test(scene: Scene) -> None:
        verifier = scene.verifier
        assert not isinstance(await scene.ask(), KafkaError)
        assert (verifier.asked, verifier.unverified) == (1, 0)
        assert verifier.latencies.quantile(1.0, verifier.asked) >= 10
        scene.codes = [ErrorCode.INVALID_PRODUCER_ID_MAPPING]
        assert isinstance(await scene.ask(), KafkaError)
        assert (verifier.asked, verifier.unverified) == (2, 1)

    play(test)
