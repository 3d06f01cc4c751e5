"""The transactional producer against a coordinator and a partition leader that answer as they are told."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from tests.unit.client.scripted import HOST, PORT, Ports, ScriptedBroker, play, settings
from tests.unit.client.test_producer import Log, Refuse

from odradek.client import GroupMetadata, ProducerIdentity, TopicPartition
from odradek.client.errors import Misused, ProducerFailed, RequestTimedOut, TransactionFailed
from odradek.client.producer import Producer
from odradek.configdef import ConfigError
from odradek.protocol.api import ApiKey, request_class
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnResponse
from odradek.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopicResult,
)
from odradek.protocol.messages.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse
from odradek.protocol.messages.api_versions import FinalizedFeatureKey as Feature
from odradek.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from odradek.protocol.messages.find_coordinator import Coordinator as Found
from odradek.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from odradek.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from odradek.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)

NONE = ErrorCode.NONE
P0 = TopicPartition("t", 0)


class Coordinator:
    """Notes what it is asked, in words, and answers each with the next of the codes that a test has put there."""

    def __init__(self, broker: ScriptedBroker, version: int = 2, refuse: Refuse = lambda header: None) -> None:
        self.log = Log(broker, refuse)
        self.version = version
        self.epoch = -1
        self.heard: list[str] = []
        self.codes: dict[str, list[ErrorCode]] = {}
        self._broker = broker
        broker.answers |= {
            ApiKey.API_VERSIONS: self.api_versions,
            ApiKey.FIND_COORDINATOR: self.find,
            ApiKey.INIT_PRODUCER_ID: self.init,
            ApiKey.ADD_PARTITIONS_TO_TXN: self.add_partitions,
            ApiKey.ADD_OFFSETS_TO_TXN: self.add_offsets,
            ApiKey.TXN_OFFSET_COMMIT: self.commit_offsets,
            ApiKey.END_TXN: self.end,
        }

    def code(self, what: str) -> ErrorCode:
        self.heard.append(what)
        waiting = self.codes.get(what.split()[0])
        return waiting.pop(0) if waiting else NONE

    def api_versions(self, request: ApiVersionsRequest) -> ApiVersionsResponse:
        served = [(key, request_class(key)) for key in self._broker.answers]
        return ApiVersionsResponse(
            api_keys=[
                ApiVersion(api_key=key, min_version=cls.min_version, max_version=cls.max_stable_version)
                for key, cls in served
            ],
            finalized_features_epoch=1,
            finalized_features=[
                Feature(name="transaction.version", max_version_level=self.version, min_version_level=self.version)
            ],
        )

    def find(self, request: FindCoordinatorRequest) -> FindCoordinatorResponse:
        (key,) = request.coordinator_keys
        code = self.code(f"find {key}")
        found = Found(key=key, node_id=1, host=HOST, port=PORT, error_code=code)
        return FindCoordinatorResponse(coordinators=[found])

    def init(self, request: InitProducerIdRequest) -> InitProducerIdResponse:
        code = self.code(f"init {request.producer_id}/{request.producer_epoch}")
        self.epoch += code == NONE
        return InitProducerIdResponse(error_code=code, producer_id=7, producer_epoch=self.epoch)

    def add_partitions(self, request: AddPartitionsToTxnRequest) -> AddPartitionsToTxnResponse:
        (topic,) = request.v3_and_below_topics
        code = self.code(f"add {sorted(topic.partitions)}")
        results = [
            AddPartitionsToTxnPartitionResult(partition_index=index, partition_error_code=code)
            for index in topic.partitions
        ]
        topics = [AddPartitionsToTxnTopicResult(name=topic.name, results_by_partition=results)]
        return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=topics)

    def add_offsets(self, request: Any) -> AddOffsetsToTxnResponse:
        return AddOffsetsToTxnResponse(error_code=self.code(f"add-offsets {request.group_id}"))

    def commit_offsets(self, request: TxnOffsetCommitRequest) -> TxnOffsetCommitResponse:
        topics = []
        for topic in request.topics:
            answers = [
                TxnOffsetCommitResponsePartition(
                    partition_index=each.partition_index,
                    error_code=self.code(f"offset {each.partition_index}:{each.committed_offset}"),
                )
                for each in topic.partitions
            ]
            topics.append(TxnOffsetCommitResponseTopic(name=topic.name, partitions=answers))
        return TxnOffsetCommitResponse(topics=topics)

    def end(self, request: EndTxnRequest) -> EndTxnResponse:
        code = self.code(f"end {'commit' if request.committed else 'abort'} {request.producer_epoch}")
        if code or self.version < 2:
            return EndTxnResponse(error_code=code)
        self.epoch += 1
        return EndTxnResponse(producer_id=7, producer_epoch=self.epoch)

    def asked(self) -> list[str]:
        """Since the last time, without the search for coordinators."""
        heard, self.heard = self.heard, []
        return [what for what in heard if not what.startswith("find")]


def transactional(ports: Ports, **more: Any) -> Producer:
    return Producer(ports, settings(transactional_id="tx", **{"linger_ms": 0, **more}))


async def started(ports: Ports, coordinator: Coordinator, **more: Any) -> Producer:
    producer = transactional(ports, **more)
    await producer.init_transactions()
    coordinator.asked()
    return producer


async def one_transaction(producer: Producer) -> None:
    async with producer.transaction():
        await producer.send("t", b"x", partition=0)
        await producer.send_offsets_to_transaction({P0: 5}, GroupMetadata("g"))


@pytest.mark.parametrize("version", [0, 1])
def test_the_older_way_adds_partitions_first_and_keeps_its_epoch(version: int) -> None:
    async def test(broker: ScriptedBroker, ports: Ports) -> None:
        coordinator = Coordinator(broker, version)
        async with await started(ports, coordinator) as producer:
            for _ in range(2):
                async with producer.transaction():
                    await asyncio.gather(*[await producer.submit("t", b"x", partition=n) for n in (0, 1)])
                    await producer.send("t", b"y", partition=0)
                    await producer.send_offsets_to_transaction({P0: 5}, GroupMetadata("g"))
        added = ["add [0]", "add [1]", "add-offsets g", "offset 0:5", "end commit 0"]
        assert coordinator.asked() == added * 2
        stamps = [(header.producer_epoch, header.base_sequence) for header in coordinator.log.batches]
        assert stamps == [(0, sequence) for sequence in (0, 0, 1, 2, 1, 3)]
        assert all(header.is_transactional for header in coordinator.log.batches)
        spoken = {key: version for key, version, _ in broker.seen}
        assert (spoken[ApiKey.PRODUCE], spoken[ApiKey.END_TXN], spoken[ApiKey.TXN_OFFSET_COMMIT]) == (11, 4, 4)
        assert spoken[ApiKey.ADD_PARTITIONS_TO_TXN] == 3

    play(test)


def test_the_newer_way_adds_nothing_and_every_end_brings_an_epoch() -> None:
    async def test(broker: ScriptedBroker, ports: Ports) -> None:
        coordinator = Coordinator(broker)
        async with await started(ports, coordinator) as producer:
            for _ in range(2):
                await one_transaction(producer)
            producer.begin_transaction()
            await producer.send("t", b"x", partition=0)
            await producer.abort_transaction()
        assert coordinator.asked() == ["offset 0:5", "end commit 0", "offset 0:5", "end commit 1", "end abort 2"]
        headers = coordinator.log.batches
        assert [(header.producer_epoch, header.base_sequence) for header in headers] == [(0, 0), (1, 0), (2, 0)]

    play(test)


def test_an_empty_transaction_is_the_producers_own_affair() -> None:
    async def test(broker: ScriptedBroker, ports: Ports) -> None:
        coordinator = Coordinator(broker)
        async with await started(ports, coordinator) as producer:
            async with producer.transaction():
                await producer.send_offsets_to_transaction({}, GroupMetadata("g"))
            producer.begin_transaction()
            await producer.abort_transaction()
        assert coordinator.asked() == []

    play(test)


def test_calls_that_make_no_sense() -> None:
    async def test(broker: ScriptedBroker, ports: Ports) -> None:
        Coordinator(broker)
        with pytest.raises(ConfigError, match="must not be empty"):
            Producer(ports, settings(transactional_id=""))
        with pytest.raises(ConfigError, match="idempotence"):
            transactional(ports, acks="1")
        async with Producer(ports, settings()) as plain:
            with pytest.raises(Misused, match=r"transactional\.id"):
                plain.begin_transaction()
        async with transactional(ports) as producer:
            with pytest.raises(Misused, match="UNINITIALIZED"):
                producer.begin_transaction()
            await producer.init_transactions()
            with pytest.raises(Misused, match="READY"):
                await producer.init_transactions()
            with pytest.raises(Misused):
                await producer.submit("t", b"x")
            with pytest.raises(Misused):
                await producer.commit_transaction()
            producer.begin_transaction()
            with pytest.raises(Misused, match="OPEN"):
                producer.begin_transaction()

    play(test)


def test_what_may_pass_is_tried_again() -> None:
    async def test(broker: ScriptedBroker, ports: Ports) -> None:
        coordinator = Coordinator(broker, 0)
        moved = [ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS]
        busy = [ErrorCode.CONCURRENT_TRANSACTIONS] * 3
        coordinator.codes = {"find": [ErrorCode.COORDINATOR_NOT_AVAILABLE], "init": moved.copy(), "add": busy}
        coordinator.codes |= {"add-offsets": moved.copy(), "end": moved.copy()}
        coordinator.codes["offset"] = [NONE, ErrorCode.NOT_COORDINATOR, ErrorCode.REQUEST_TIMED_OUT]
        async with transactional(ports) as producer:
            await producer.init_transactions()
            assert coordinator.heard[:2] == ["find tx"] * 2
            assert coordinator.asked() == ["init -1/-1"] * 3
            before = ports.clock.monotonic_ms()
            async with producer.transaction():
                await producer.send("t", b"x", partition=0)
                assert ports.clock.monotonic_ms() - before < 100, "the markers before are soon written"
                await producer.send_offsets_to_transaction({P0: 5, TopicPartition("t", 1): 6}, GroupMetadata("g"))
            assert coordinator.heard.count("find g") == 3
            offsets = ["offset 0:5", "offset 1:6", "offset 1:6", "offset 1:6"]
            expected = ["add [0]"] * 4 + ["add-offsets g"] * 3 + offsets + ["end commit 0"] * 3
            assert coordinator.asked() == expected

    play(test)


def test_a_call_that_takes_too_long_goes_on_and_can_be_waited_for_again() -> None:
    async def test(broker: ScriptedBroker, ports: Ports) -> None:
        coordinator = Coordinator(broker)
        async with await started(ports, coordinator, max_block_ms=1_000) as producer:
            producer.begin_transaction()
            await producer.send("t", b"x", partition=0)
            coordinator.codes["end"] = [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS] * 6
            with pytest.raises(RequestTimedOut, match="commit_transaction"):
                await producer.commit_transaction()
            with pytest.raises(Misused, match="commit_transaction is still under way"):
                await producer.abort_transaction()
            for _ in range(5):
                try:
                    await producer.commit_transaction()
                    break
                except RequestTimedOut:
                    continue
            assert set(coordinator.asked()) == {"end commit 0"}
            producer.begin_transaction()

    play(test)


FENCED = [ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH]
FATAL = [*FENCED, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, ErrorCode.INVALID_TXN_STATE]
ABORTABLE = [ErrorCode.TRANSACTION_ABORTABLE]


@pytest.mark.parametrize(
    ("call", "code", "fatal"),
    [(call, code, True) for call in ("add", "add-offsets", "end") for code in FATAL]
    + [(call, code, False) for call in ("add", "add-offsets", "offset", "end") for code in ABORTABLE]
    + [("offset", code, True) for code in (*FENCED, ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT)]
    + [("offset", code, False) for code in (ErrorCode.ILLEGAL_GENERATION, ErrorCode.FENCED_INSTANCE_ID)]
    + [("add", ErrorCode.TOPIC_AUTHORIZATION_FAILED, False), ("add", ErrorCode.INVALID_PRODUCER_ID_MAPPING, False)]
    + [("add-offsets", ErrorCode.GROUP_AUTHORIZATION_FAILED, False)],
)
def test_what_a_coordinators_refusal_means(call: str, code: ErrorCode, fatal: bool) -> None:
    async def test(broker: ScriptedBroker, ports: Ports) -> None:
        coordinator = Coordinator(broker, 1)
        async with await started(ports, coordinator) as producer:
            coordinator.codes[call] = [code]
            with pytest.raises((TransactionFailed, ProducerFailed, KafkaError)) as raised:
                await one_transaction(producer)
            heard = coordinator.asked()
            if fatal:
                name = "PRODUCER_FENCED" if code in FENCED else code.name
                with pytest.raises(ProducerFailed, match=name):
                    producer.begin_transaction()
                assert "end abort 0" not in heard, "whatever it did would disturb its heir"
            else:
                assert code.name in str(raised.value)
                async with producer.transaction():
                    await producer.send("t", b"y", partition=0)
                forgotten = code is ErrorCode.INVALID_PRODUCER_ID_MAPPING
                assert ("init 7/0" in heard, "end abort 0" in heard) == (forgotten, not forgotten)

    play(test)


@pytest.mark.parametrize("code", [ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, ErrorCode.PRODUCER_FENCED])
def test_initialization_that_is_refused(code: ErrorCode) -> None:
    """A right that is missing may be given yet."""

    async def test(broker: ScriptedBroker, ports: Ports) -> None:
        coordinator = Coordinator(broker)
        coordinator.codes["init"] = [code]
        async with transactional(ports) as producer:
            with pytest.raises((KafkaError, ProducerFailed), match=code.name):
                await producer.init_transactions()
            if code is ErrorCode.PRODUCER_FENCED:
                with pytest.raises(ProducerFailed):
                    await producer.init_transactions()
            else:
                await producer.init_transactions()

    play(test)


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        ErrorCode.UNKNOWN_PRODUCER_ID,
        ErrorCode.INVALID_TXN_STATE,
        ErrorCode.MESSAGE_TOO_LARGE,
    ],
)
def test_a_batch_that_is_refused_costs_its_transaction_and_the_epoch(code: ErrorCode, version: int) -> None:
    """Nothing of the transaction is sent under a newer epoch: the gap could not be told from what is complete."""

    async def test(broker: ScriptedBroker, ports: Ports) -> None:
        coordinator = Coordinator(broker, version)
        async with await started(ports, coordinator, batch_size=1) as producer:
            producer.begin_transaction()
            await producer.send("t", b"0", partition=0)
            coordinator.log.refuse = lambda header: code if header.producer_epoch == 0 else None
            receipts = [await producer.submit("t", b"1", partition=0) for _ in range(3)]
            with pytest.raises(KafkaError, match=code.name):
                await receipts[0]
            with pytest.raises(TransactionFailed, match=code.name):
                await producer.commit_transaction()
            await producer.abort_transaction()
            outcomes = await asyncio.gather(*receipts, return_exceptions=True)
            assert all(isinstance(outcome, Exception) for outcome in outcomes)
            async with producer.transaction():
                await producer.send("t", b"2", partition=0)
        heard = [what for what in coordinator.asked() if not what.startswith("add")]
        assert heard == ["end abort 0", *(["init 7/0"] if version < 2 else []), "end commit 1"]
        assert coordinator.log.written[0] == [b"0", b"2"]
        assert (coordinator.log.batches[-1].producer_epoch, coordinator.log.batches[-1].base_sequence) == (1, 0)

    play(test)


@pytest.mark.parametrize("busy", ["add-offsets", "offset"])
def test_what_would_be_tried_again_is_not_once_the_transaction_has_failed(busy: str) -> None:
    """The coordinator is not there yet when a batch is given up, which is why the transaction can only be aborted."""

    async def test(broker: ScriptedBroker, ports: Ports) -> None:
        coordinator = Coordinator(broker, 1)
        async with await started(ports, coordinator, batch_size=1) as producer:
            producer.begin_transaction()
            await producer.send("t", b"0", partition=0)
            coordinator.log.refuse = lambda header: ErrorCode.INVALID_PRODUCER_EPOCH
            coordinator.codes[busy] = [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS] * 50
            other = await producer.submit("t", b"1", partition=1)
            refused = await producer.submit("t", b"1", partition=0)
            with pytest.raises(TransactionFailed, match="INVALID_PRODUCER_EPOCH"):
                await producer.send_offsets_to_transaction({P0: 5}, GroupMetadata("g"))
            await producer.abort_transaction()
            outcomes = await asyncio.gather(refused, other, return_exceptions=True)
            assert isinstance(outcomes[0], KafkaError)
            coordinator.log.refuse, coordinator.codes = lambda header: None, {}
            await one_transaction(producer)

    play(test)


def test_what_was_not_sent_yet_is_dropped_by_an_abort() -> None:
    async def test(broker: ScriptedBroker, ports: Ports) -> None:
        coordinator = Coordinator(broker, 1)
        async with await started(ports, coordinator, linger_ms=10_000) as producer:
            producer.begin_transaction()
            receipt = await producer.submit("t", b"x", partition=0)
            await producer.abort_transaction()
            with pytest.raises(TransactionFailed, match="before the record was sent"):
                await receipt
        assert coordinator.asked() == []
        assert coordinator.log.batches == []

    play(test)


def test_an_open_transaction_is_aborted_by_close() -> None:
    async def test(broker: ScriptedBroker, ports: Ports) -> None:
        coordinator = Coordinator(broker)
        producer = await started(ports, coordinator)
        producer.begin_transaction()
        await producer.send("t", b"x", partition=0)
        await producer.close()
        assert coordinator.asked() == ["end abort 0"]

    play(test)


def test_a_record_does_not_slip_into_the_next_transaction() -> None:
    async def test(broker: ScriptedBroker, ports: Ports) -> None:
        coordinator = Coordinator(broker)
        async with await started(ports, coordinator) as producer:
            producer.begin_transaction()
            late = asyncio.ensure_future(producer.submit("soon", b"x"))
            await asyncio.sleep(0.1)
            await producer.commit_transaction()
            producer.begin_transaction()
            broker.topics["soon"] = 1
            with pytest.raises(Misused, match="ended before"):
                await late

    play(test)


@pytest.mark.parametrize("version", [1, 2])
def test_a_guest_writes_and_the_owner_ends(version: int) -> None:
    async def test(broker: ScriptedBroker, ports: Ports) -> None:
        coordinator = Coordinator(broker, version)
        async with await started(ports, coordinator) as owner:
            async with owner.transaction():
                await owner.send("t", b"0", partition=0)
            coordinator.asked()
            owner.begin_transaction()
            identity = await owner.share_transaction()
            assert identity == ProducerIdentity("tx", 7, 1, version), "an epoch that nothing was written under"
            async with Producer(ports, settings(linger_ms=0), guest_of=identity) as guest:
                await guest.send("t", b"1", partition=0)
                for call in (guest.init_transactions, guest.commit_transaction, guest.abort_transaction):
                    with pytest.raises(Misused, match="belongs to"):
                        await call()
                written = await guest.hand_back()
            assert written == [P0]
            owner.include(written)
            await owner.commit_transaction()
            owner.begin_transaction()
            await owner.send("t", b"2", partition=0)
            with pytest.raises(Misused, match="before anything"):
                await owner.share_transaction()
        heard = [what for what in coordinator.asked() if not what.startswith("add")]
        expected = {1: ["init 7/0", "end commit 1", "init 7/1", "end abort 2"], 2: ["end commit 1", "end abort 2"]}
        assert heard == expected[version]
        stamps = [(header.producer_epoch, header.base_sequence) for header in coordinator.log.batches]
        assert stamps == [(0, 0), (1, 0), (2, 0)]

    play(test)


@pytest.mark.parametrize("end", [Producer.commit_transaction, Producer.abort_transaction])
@pytest.mark.parametrize("version", [1, 2])
def test_a_guest_of_whom_nothing_is_heard_can_write_no_more(version: int, end: Callable[..., Any]) -> None:
    """What it may have written does not count, and must not become part of the next transaction."""

    async def test(broker: ScriptedBroker, ports: Ports) -> None:
        coordinator = Coordinator(broker, version)
        async with await started(ports, coordinator) as owner:
            owner.begin_transaction()
            await owner.share_transaction()
            if version < 2:
                coordinator.codes["end"] = [ErrorCode.INVALID_TXN_STATE]  # It has written nothing.
            await end(owner)
            owner.begin_transaction()
        assert coordinator.asked() == ["end abort 0", *(["init 7/0"] if version < 2 else [])]

    play(test)


def test_a_guest_that_fails_says_so() -> None:
    async def test(broker: ScriptedBroker, ports: Ports) -> None:
        Coordinator(broker, refuse=lambda header: ErrorCode.INVALID_PRODUCER_EPOCH)
        async with Producer(ports, settings(linger_ms=0), guest_of=ProducerIdentity("tx", 7, 0, 2)) as guest:
            receipt = await guest.submit("t", b"1", partition=0)
            with pytest.raises(TransactionFailed, match="INVALID_PRODUCER_EPOCH"):
                await guest.hand_back()
            with pytest.raises(KafkaError):
                await receipt

    play(test)
