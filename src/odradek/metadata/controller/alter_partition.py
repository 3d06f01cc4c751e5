"""AlterPartition: the leader of a partition asks for another ISR, and is believed only as the leader it says it is."""

from __future__ import annotations

from dataclasses import replace

from odradek.decisions import Decision
from odradek.ids import NodeId
from odradek.metadata.controller import decided
from odradek.metadata.controller.brokers import registered
from odradek.metadata.controller.elections import Election, Electorate, PartitionChange
from odradek.metadata.controller.topic_rules import TopicRules
from odradek.metadata.image import Image
from odradek.metadata.image.topics import (
    NO_LEADER_CHANGE,
    RECOVERED,
    RECOVERING,
    PartitionRegistration,
    TopicImage,
    merged,
    partition_record,
)
from odradek.protocol.codec import Message
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    BrokerState,
    PartitionData,
    RequestedPartitionData,
    RequestedTopicData,
    TopicData,
)

_EPOCHS_OF_MEMBERS_SINCE = 3
_ANY_EPOCH = -1


def alter_partition(
    image: Image, request: AlterPartitionRequest, *, api_version: int, rules: TopicRules
) -> Decision[Message, AlterPartitionResponse]:
    """Every partition on its own; STALE_BROKER_EPOCH for the whole request of a broker that another has replaced."""
    registered(image, NodeId(request.broker_id), request.broker_epoch)
    alteration = _Alteration(image, NodeId(request.broker_id), rules, api_version)
    topics = [alteration.of_topic(topic) for topic in request.topics]
    return decided(alteration.records, AlterPartitionResponse(topics=topics))


class _Alteration:
    """One request on its way to its answer."""

    def __init__(self, image: Image, broker_id: NodeId, rules: TopicRules, api_version: int) -> None:
        self._image = image
        self._broker_id = broker_id
        self._rules = rules
        self._with_epochs = api_version >= _EPOCHS_OF_MEMBERS_SINCE
        self._electorate = Electorate(image)
        self.records: list[Message] = []

    def of_topic(self, asked: RequestedTopicData) -> TopicData:
        topic = self._image.topics.by_id.get(asked.topic_id)
        if topic is None:
            refusals = [_refusal(each.partition_index, ErrorCode.UNKNOWN_TOPIC_ID) for each in asked.partitions]
            return TopicData(topic_id=asked.topic_id, partitions=refusals)
        answers = [self._of_partition(topic, each) for each in asked.partitions]
        return TopicData(topic_id=asked.topic_id, partitions=answers)

    def _of_partition(self, topic: TopicImage, asked: RequestedPartitionData) -> PartitionData:
        index = asked.partition_index
        if not 0 <= index < len(topic.partitions):
            return _refusal(index, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        members = asked.new_isr_with_epochs
        if not self._with_epochs:
            members = [BrokerState(broker_id=each, broker_epoch=_ANY_EPOCH) for each in asked.new_isr]
        partition = topic.partitions[index]
        if self._counts_differently(partition, asked):
            partition = replace(partition, partition_epoch=asked.partition_epoch + 1)
            self.records.append(partition_record(topic.topic_id, index, partition))
            return _refusal(index, ErrorCode.INVALID_UPDATE_VERSION)
        wrong = self._wrong_with(partition, asked, members)
        if wrong is not ErrorCode.NONE:
            return _refusal(index, wrong)
        change = PartitionChange(
            self._electorate, topic.topic_id, index, partition, min_isr=self._rules.min_isr(topic, partition)
        )
        if self._rules.unclean(topic):
            change.election = Election.UNCLEAN
        change.isr = tuple(NodeId(each.broker_id) for each in members)
        change.leader_recovery_state = asked.leader_recovery_state
        record = change.record()
        if record is not None:
            self.records.append(record)
            partition = merged(partition, record)
            if record.leader not in (self._broker_id, NO_LEADER_CHANGE):
                # The last replica of a reassignment has come into sync, and the one who asks is not among those who
                # stay: it did what it should, and leads no more.
                return _refusal(index, ErrorCode.NEW_LEADER_ELECTED)
        return PartitionData(
            partition_index=index,
            error_code=ErrorCode.NONE,
            leader_id=partition.leader,
            leader_epoch=partition.leader_epoch,
            isr=list(partition.isr),
            leader_recovery_state=partition.leader_recovery_state,
            partition_epoch=partition.partition_epoch,
        )

    def _counts_differently(self, partition: PartitionRegistration, asked: RequestedPartitionData) -> bool:
        """Whether the leader of this very epoch is ahead in partition epochs.

        Earlier versions of Odradek replayed a ClearElrRecord without raising it, and their snapshots stay; all changes
        since only add to what each node has. The whole partition on record, with an epoch of its own, makes all nodes
        agree again (ADR 14). A controller that is none any more gets nothing on record.
        """
        return (
            self._broker_id == partition.leader
            and asked.leader_epoch == partition.leader_epoch
            and asked.partition_epoch > partition.partition_epoch
        )

    def _wrong_with(
        self, partition: PartitionRegistration, asked: RequestedPartitionData, members: list[BrokerState]
    ) -> ErrorCode:
        """Kafka's checks in Kafka's order.

        A leader that knows more than this controller has heard of a newer one: it shall look for it.
        """
        if asked.leader_epoch > partition.leader_epoch or asked.partition_epoch > partition.partition_epoch:
            return ErrorCode.NOT_CONTROLLER
        if asked.leader_epoch < partition.leader_epoch:
            return ErrorCode.FENCED_LEADER_EPOCH
        if self._broker_id != partition.leader:
            return ErrorCode.INVALID_REQUEST
        if asked.partition_epoch < partition.partition_epoch:
            return ErrorCode.INVALID_UPDATE_VERSION
        isr = [member.broker_id for member in members]
        if len(dict.fromkeys(isr)) < len(isr) or any(replica not in partition.replicas for replica in isr):
            return ErrorCode.INVALID_REQUEST
        if partition.leader not in isr or asked.leader_recovery_state not in (RECOVERED, RECOVERING):
            return ErrorCode.INVALID_REQUEST
        recovering = asked.leader_recovery_state == RECOVERING
        if recovering and (len(isr) > 1 or partition.leader_recovery_state == RECOVERED):
            return ErrorCode.INVALID_REQUEST
        if not all(self._eligible(partition, member) for member in members):
            return ErrorCode.INELIGIBLE_REPLICA
        return ErrorCode.NONE

    def _eligible(self, partition: PartitionRegistration, member: BrokerState) -> bool:
        """Whether a broker may be in sync: it is active, still the incarnation that the leader saw (KIP-903), and has
        not lost the log directory that the partition is in."""
        broker = self._image.cluster.brokers.get(NodeId(member.broker_id))
        if broker is None or not broker.active:
            return False
        if not broker.has_online_directory(partition.directory(broker.broker_id)):
            return False
        return member.broker_epoch in (_ANY_EPOCH, broker.broker_epoch)


def _refusal(index: int, code: ErrorCode) -> PartitionData:
    return PartitionData(partition_index=index, error_code=code, leader_id=0, leader_epoch=0, isr=[], partition_epoch=0)
