"""Which log directory of a broker holds a partition: told by the broker once it has chosen (KIP-858)."""

from __future__ import annotations

from odradek.decisions import Decision
from odradek.ids import NodeId, Uuid
from odradek.metadata.controller import decided
from odradek.metadata.controller.brokers import registered
from odradek.metadata.controller.elections import Electorate, PartitionChange
from odradek.metadata.controller.leadership import changed_partitions
from odradek.metadata.controller.topic_rules import TopicRules
from odradek.metadata.features import supports_directories
from odradek.metadata.image import Image
from odradek.metadata.image.topics import TopicImage
from odradek.protocol.codec import Message
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.messages.assign_replicas_to_dirs import (
    AssignReplicasToDirsRequest,
    AssignReplicasToDirsResponse,
    DirectoryData,
    PartitionData,
    RequestedTopicData,
    TopicData,
)
from odradek.values import value


@value
class DirectoryAssignment:
    """One replica and where its broker keeps it."""

    topic_id: Uuid
    partition: int
    directory: Uuid


def assign_replicas_to_dirs(
    image: Image, request: AssignReplicasToDirsRequest, *, rules: TopicRules
) -> Decision[Message, AssignReplicasToDirsResponse]:
    """Put on record where a broker keeps its replicas; one that it put into a lost directory is in sync no more."""
    if not supports_directories(image.features.metadata_version):
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, "Directory assignment is not supported yet.")
    broker = registered(image, NodeId(request.broker_id), request.broker_epoch)
    assignment = _Assignment(image, broker.broker_id, rules)
    lost: list[tuple[TopicImage, int]] = []
    answers = []
    for directory in request.directories:
        offline = not broker.has_online_directory(directory.id)
        topics = []
        for asked in directory.topics:
            answer, taken = assignment.of_topic(asked, directory.id)
            topics.append(answer)
            if offline:
                lost += taken
        answers.append(DirectoryData(id=directory.id, topics=topics))
    records = [*assignment.records, *changed_partitions(image, rules, lost, leaving=broker.broker_id)]
    return decided(records, AssignReplicasToDirsResponse(directories=answers))


class _Assignment:
    """One request on its way to its answer."""

    def __init__(self, image: Image, broker_id: NodeId, rules: TopicRules) -> None:
        self._image = image
        self._broker_id = broker_id
        self._rules = rules
        self._electorate = Electorate(image)
        self.records: list[Message] = []

    def of_topic(self, asked: RequestedTopicData, directory: Uuid) -> tuple[TopicData, list[tuple[TopicImage, int]]]:
        """The answer for one topic, and the partitions of it that were taken at their broker's word."""
        topic = self._image.topics.by_id.get(asked.topic_id)
        answers: list[PartitionData] = []
        taken: list[tuple[TopicImage, int]] = []
        for partition in asked.partitions:
            index = partition.partition_index
            code = ErrorCode.UNKNOWN_TOPIC_ID if topic is None else self._assign(topic, index, directory)
            answers.append(PartitionData(partition_index=index, error_code=code))
            if topic is not None and code is ErrorCode.NONE:
                taken.append((topic, index))
        return TopicData(topic_id=asked.topic_id, partitions=answers), taken

    def _assign(self, topic: TopicImage, index: int, directory: Uuid) -> ErrorCode:
        if not 0 <= index < len(topic.partitions):
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        partition = topic.partitions[index]
        if self._broker_id not in partition.replicas:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        if partition.directory(self._broker_id) != directory:
            change = PartitionChange(
                self._electorate, topic.topic_id, index, partition, min_isr=self._rules.min_isr(topic, partition)
            )
            change.directories = {self._broker_id: directory}
            record = change.record()
            if record is not None:
                self.records.append(record)
        return ErrorCode.NONE
