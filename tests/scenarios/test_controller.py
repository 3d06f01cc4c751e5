"""The controller's decisions over the life of a small cluster, told as records; see controller.txt."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.scenarios.transcripts import play
from tests.unit.metadata.building import SETTINGS, NodeDescription, entropy, rules, uuid

from odradek.decisions import Decision
from odradek.ids import LeaderEpoch, NodeId, Offset, Uuid
from odradek.metadata.controller.alter_partition import alter_partition
from odradek.metadata.controller.brokers import Registrar, fence, register_broker
from odradek.metadata.controller.deletion import delete_topics
from odradek.metadata.controller.elect_leaders import elect_leaders
from odradek.metadata.controller.heartbeats import broker_heartbeat
from odradek.metadata.controller.partitions import create_partitions
from odradek.metadata.controller.producer_ids import allocate_producer_ids
from odradek.metadata.controller.reassignment import alter_partition_reassignments
from odradek.metadata.controller.sessions import BrokerSessions
from odradek.metadata.controller.topics import create_topics
from odradek.metadata.image import EMPTY_IMAGE, Provenance
from odradek.metadata.image.cluster import Endpoint, FeatureRange
from odradek.metadata.loader import Loader
from odradek.metadata.records import FeatureLevelRecord
from odradek.protocol.codec import Message
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.messages.allocate_producer_ids import AllocateProducerIdsRequest
from odradek.protocol.messages.alter_partition import (
    AlterPartitionRequest,
    BrokerState,
    RequestedPartitionData,
    RequestedTopicData,
)
from odradek.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from odradek.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest
from odradek.protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from odradek.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from odradek.protocol.messages.delete_topics import DeleteTopicsRequest
from odradek.protocol.messages.elect_leaders import ElectLeadersRequest


class Story:
    """A cluster without disks: what is decided is committed at once."""

    def __init__(self) -> None:
        self._loader = Loader(EMPTY_IMAGE)
        self._offset = 0
        self._incarnations = 0
        self._registered_at: dict[NodeId, int] = {}
        self._sessions = BrokerSessions(9_000)
        self._entropy = entropy(7)
        self._names: dict[Uuid, str] = {}
        self._commit([FeatureLevelRecord(name="metadata.version", feature_level=30)])

    def run(self, name: str, words: dict[str, str]) -> list[str]:
        image = self._loader.image
        match name:
            case "register":
                return self._register(int(words["0"]), words)
            case "heartbeat":
                return self._heartbeat(NodeId(int(words["0"])), words)
            case "silence":
                return self._commit(fence(image, NodeId(int(words["0"])), rules(image)))
            case "feature":
                return self._commit([FeatureLevelRecord(name=words["0"], feature_level=int(words["level"]))])
            case "alter":
                return self._alter(words)
            case "elect":
                elect = ElectLeadersRequest(election_type=int(words["0"] == "unclean"), topic_partitions=None)
                return self._answer(elect_leaders(image, elect, rules=rules(image)))
            case "reassign":
                return self._reassign(words)
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

    def _register(self, number: int, words: dict[str, str]) -> list[str]:
        self._incarnations += 1
        node = _node(number, words.get("rack"), self._incarnations)
        image = self._loader.image
        registrar = Registrar(
            cluster_id="c", kraft_version=0, alive="alive" in words, next_epoch=Offset(self._offset), api_version=4
        )
        request = node.as_broker("c", previous_broker_epoch=int(words.get("clean", "-1")))
        try:
            decision = register_broker(image, request, registrar=registrar, rules=rules(image))
        except KafkaError as refused:
            return [f"! {refused.code.name}"]
        lines = self._commit(decision.records)
        self._registered_at[node.node_id] = self._offset - 1
        self._sessions.heard(node.node_id, decision.answers[0][1].broker_epoch, now_ms=0)
        return lines

    def _heartbeat(self, broker_id: NodeId, words: dict[str, str]) -> list[str]:
        at = int(words.get("at", self._offset))
        request = BrokerHeartbeatRequest(
            broker_id=broker_id,
            broker_epoch=int(words.get("epoch", self._loader.image.cluster.brokers[broker_id].broker_epoch)),
            current_metadata_offset=at,
            want_fence=False,
            want_shut_down=words.get("wants") == "stop",
        )
        image = self._loader.image
        self._sessions.reached(broker_id, Offset(at))
        try:
            decision = broker_heartbeat(
                image,
                request,
                sessions=self._sessions,
                rules=rules(image),
                registered_at=Offset(self._registered_at[broker_id]),
            )
        except KafkaError as refused:
            return [f"! {refused.code.name}: {refused.message}"]
        ((_, response),) = decision.answers
        lines = self._commit(decision.records)
        if response.should_shut_down:
            return [*lines, "may stop"]
        if request.want_shut_down:
            self._sessions.shut_down_after(broker_id, Offset(self._offset - 1))
        return [*lines, "fenced" if response.is_fenced else "unfenced"]

    def _alter(self, words: dict[str, str]) -> list[str]:
        image = self._loader.image
        topic, index = image.topics.by_name[words["0"]], int(words["partition"])
        partition = topic.partitions[index]
        leader = image.cluster.brokers[partition.leader]
        members = [int(member) for member in words["isr"].split(",")]
        asked = RequestedPartitionData(
            partition_index=index,
            leader_epoch=int(words.get("epoch", partition.leader_epoch)),
            partition_epoch=partition.partition_epoch,
            new_isr_with_epochs=[
                BrokerState(broker_id=each, broker_epoch=image.cluster.brokers[NodeId(each)].broker_epoch)
                for each in members
            ],
        )
        request = AlterPartitionRequest(
            broker_id=leader.broker_id,
            broker_epoch=leader.broker_epoch,
            topics=[RequestedTopicData(topic_id=topic.topic_id, partitions=[asked])],
        )
        decision = alter_partition(image, request, api_version=3, rules=rules(image))
        code = decision.answers[0][1].topics[0].partitions[0].error_code
        return [*self._commit(decision.records), *([f"! {ErrorCode(code).name}"] if code else [])]

    def _reassign(self, words: dict[str, str]) -> list[str]:
        to = words.get("to")
        asked = ReassignablePartition(
            partition_index=int(words["partition"]),
            replicas=None if to is None else [int(each) for each in to.split(",")],
        )
        request = AlterPartitionReassignmentsRequest(topics=[ReassignableTopic(name=words["0"], partitions=[asked])])
        image = self._loader.image
        decision = alter_partition_reassignments(image, request, rules=rules(image))
        code = decision.answers[0][1].responses[0].partitions[0].error_code
        return [*self._commit(decision.records), *([f"! {ErrorCode(code).name}"] if code else [])]

    def _allocate(self, broker_id: NodeId, epoch: int) -> list[str]:
        try:
            request = AllocateProducerIdsRequest(broker_id=broker_id, broker_epoch=epoch)
            decision = allocate_producer_ids(self._loader.image, request)
        except KafkaError as refused:
            return [f"! {refused.code.name}: {refused.message}"]
        ((_, block),) = decision.answers
        return [*self._commit(decision.records), f"ids from {block.producer_id_start}"]

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
            elif declared.required and given == []:
                continue
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
    "in_controlled_shutdown",
    "removing_replicas",
    "adding_replicas",
    "leader_recovery_state",
    "eligible_leader_replicas",
    "last_known_elr",
    "name",
    "feature_level",
    "next_producer_id",
)


def _node(number: int, rack: str | None, incarnation: int) -> NodeDescription:
    return NodeDescription(
        node_id=NodeId(number),
        incarnation_id=uuid(700 + incarnation),
        broker_endpoints=(Endpoint("PLAINTEXT", f"host-{number}", 9092, 0),),
        controller_endpoints=(),
        features=(FeatureRange("metadata.version", 7, 30), FeatureRange("eligible.leader.replicas.version", 0, 1)),
        rack=rack,
        log_dirs=(uuid(800 + number),),
    )


def test_the_story_of_a_small_cluster(request: pytest.FixtureRequest) -> None:
    story = Path(__file__).with_name("controller.txt")
    play(story, Story().run, rewrite=request.config.getoption("--rewrite"))
