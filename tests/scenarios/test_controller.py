"""The controller's decisions over the life of a small cluster, told as records; see controller.txt."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.scenarios.transcripts import play
from tests.unit.metadata.building import SETTINGS, entropy, uuid

from odradek.decisions import Decision
from odradek.ids import LeaderEpoch, NodeId, Offset, Uuid
from odradek.metadata.controller.brokers import NodeDescription, fence, register_broker, unfence
from odradek.metadata.controller.deletion import delete_topics
from odradek.metadata.controller.partitions import create_partitions
from odradek.metadata.controller.producer_ids import allocate_producer_ids
from odradek.metadata.controller.topics import create_topics
from odradek.metadata.image import EMPTY_IMAGE, Provenance
from odradek.metadata.image.cluster import Endpoint
from odradek.metadata.loader import Loader
from odradek.metadata.records import FeatureLevelRecord
from odradek.protocol.codec import Message
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from odradek.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from odradek.protocol.messages.delete_topics import DeleteTopicsRequest


class Story:
    """A cluster without disks: what is decided is committed at once."""

    def __init__(self) -> None:
        self._loader = Loader(EMPTY_IMAGE)
        self._offset = 0
        self._entropy = entropy(7)
        self._names: dict[Uuid, str] = {}
        self._commit([FeatureLevelRecord(name="metadata.version", feature_level=30)])

    def run(self, name: str, words: dict[str, str]) -> list[str]:
        image = self._loader.image
        match name:
            case "register":
                node = _node(int(words["0"]), words.get("rack"))
                return self._commit(register_broker(image, node, broker_epoch=Offset(self._offset)))
            case "unfence":
                return self._commit(unfence(image, NodeId(int(words["0"]))))
            case "fence":
                return self._commit(fence(image, NodeId(int(words["0"]))))
            case "create":
                topic = CreatableTopic(
                    name=words["0"],
                    num_partitions=int(words.get("partitions", "-1")),
                    replication_factor=int(words.get("replicas", "-1")),
                    assignments=[],
                    configs=[],
                )
                request = CreateTopicsRequest(topics=[topic])
                return self._answer(create_topics(image, request, settings=SETTINGS, entropy=self._entropy))
            case "grow":
                more = CreatePartitionsTopic(name=words["0"], count=int(words["partitions"]), assignments=None)
                grown = CreatePartitionsRequest(topics=[more], timeout_ms=0, validate_only=False)
                return self._answer(create_partitions(image, grown, entropy=self._entropy))
            case "delete":
                gone = DeleteTopicsRequest(topic_names=[words["0"]], timeout_ms=0)
                return self._answer(delete_topics(image, gone, api_version=5, enabled=True))
            case "producer-ids":
                return self._allocate(NodeId(int(words["0"])), int(words["epoch"]))
            case _:
                raise AssertionError(f"no such command: {name}")

    def _allocate(self, broker_id: NodeId, epoch: int) -> list[str]:
        try:
            decision = allocate_producer_ids(self._loader.image, broker_id=broker_id, broker_epoch=epoch)
        except KafkaError as refused:
            return [f"! {refused.code.name}: {refused.message}"]
        block = decision.answers[0][1]
        return [*self._commit(decision.records), f"ids from {block.first}"]

    def _answer(self, decision: Decision[Message, object]) -> list[str]:
        ((_, response),) = decision.answers
        lines = self._commit(decision.records)
        for field in ("topics", "results", "responses"):
            for result in getattr(response, field, ()):
                if result.error_code:
                    lines.append(f"! {ErrorCode(result.error_code).name}: {result.error_message}")
        return lines

    def _commit(self, records: list[Message] | tuple[Message, ...]) -> list[str]:
        lines = []
        for record in records:
            lines.append(f"{self._offset}: {self._told(record)}")
            self._offset += 1
        self._loader.replay(records, Provenance(Offset(self._offset - 1), LeaderEpoch(1), 0))
        return lines

    def _told(self, record: Message) -> str:
        """The record's kind and what is worth knowing of it: ids by name, nothing that is at its default."""
        parts = []
        for declared in record.FIELDS:
            field, given = declared.name, getattr(record, declared.name)
            if field == "topic_id":
                self._names.setdefault(given, getattr(record, "name", "?"))
                parts.append(f"topic={self._names[given]}")
            elif field in _TOLD and (declared.required or given != declared.default) and given is not None:
                parts.append(f"{field}={given}")
        return " ".join([type(record).__name__.removesuffix("Record"), *parts])


_TOLD = (
    "broker_id",
    "broker_epoch",
    "rack",
    "fenced",
    "cordoned_log_dirs",
    "partition_id",
    "replicas",
    "isr",
    "leader",
    "leader_epoch",
    "next_producer_id",
)


def _node(number: int, rack: str | None) -> NodeDescription:
    return NodeDescription(
        node_id=NodeId(number),
        incarnation_id=uuid(700 + number),
        broker_endpoints=(Endpoint("PLAINTEXT", f"host-{number}", 9092, 0),),
        controller_endpoints=(),
        features=(),
        rack=rack,
        log_dirs=(uuid(800 + number),),
    )


def test_the_story_of_a_small_cluster(request: pytest.FixtureRequest) -> None:
    story = Path(__file__).with_name("controller.txt")
    play(story, Story().run, rewrite=request.config.getoption("--rewrite"))
