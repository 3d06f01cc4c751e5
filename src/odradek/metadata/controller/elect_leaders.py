"""ElectLeaders: elections on demand, back to the preferred replica or, where nobody in sync is left, to any."""

from __future__ import annotations

from odradek.decisions import Decision
from odradek.ids import NO_NODE
from odradek.metadata.controller import decided
from odradek.metadata.controller.elections import Election, Electorate, PartitionChange
from odradek.metadata.controller.topic_rules import TopicRules
from odradek.metadata.image import Image
from odradek.protocol.codec import Message
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.messages.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)

_ELECTIONS = {0: Election.PREFERRED, 1: Election.UNCLEAN}
_IMPOSSIBLE = {
    Election.PREFERRED: ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
    Election.UNCLEAN: ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE,
}


def elect_leaders(
    image: Image, request: ElectLeadersRequest, *, rules: TopicRules
) -> Decision[Message, ElectLeadersResponse]:
    """Elect for the partitions that are named; for all of them where none is, and then only what changes is told."""
    election = _ELECTIONS.get(request.election_type)
    if election is None:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unknown election type {request.election_type}")
    electorate = Electorate(image)
    records: list[Message] = []
    results = []
    for name, indexes in _asked_for(image, request):
        outcomes = []
        for index in indexes:
            code, message = ErrorCode.NONE, None
            try:
                records.append(_elected(image, name, index, election, electorate, rules))
            except KafkaError as refused:
                code, message = refused.code, refused.message
            if request.topic_partitions is not None or code is not ErrorCode.ELECTION_NOT_NEEDED:
                outcomes.append(PartitionResult(partition_id=index, error_code=code, error_message=message))
        results.append(ReplicaElectionResult(topic=name, partition_result=outcomes))
    return decided(records, ElectLeadersResponse(replica_election_results=results))


def _asked_for(image: Image, request: ElectLeadersRequest) -> list[tuple[str, list[int]]]:
    if request.topic_partitions is None:
        return [(topic.name, list(range(len(topic.partitions)))) for topic in image.topics.by_name.values()]
    return [(topic.topic, topic.partitions) for topic in request.topic_partitions]


def _elected(
    image: Image, name: str, index: int, election: Election, electorate: Electorate, rules: TopicRules
) -> Message:
    topic = image.topics.by_name.get(name)
    if topic is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"No such topic as {name}")
    if not 0 <= index < len(topic.partitions):
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"No such partition as {name}-{index}")
    partition = topic.partitions[index]
    preferred = election is Election.PREFERRED
    if (partition.leader == partition.replicas[0]) if preferred else (partition.leader != NO_NODE):
        raise KafkaError(ErrorCode.ELECTION_NOT_NEEDED)
    change = PartitionChange(electorate, topic.topic_id, index, partition, min_isr=rules.min_isr(topic, partition))
    change.election = election
    record = change.record()
    if record is None:
        raise KafkaError(_IMPOSSIBLE[election])
    return record
