"""OffsetCommit, versions 2 to 10: a group's offsets, by topic name or (from 10 on) by topic id.

Partitions that do not exist are refused one by one; what is left goes to the group's coordinator as one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from odradek.coordinator.group.offsets import BROKERS_RETENTION
from odradek.coordinator.group.topic_commits import TopicCommit
from odradek.metadata.controller.quotas import REQUEST_PERCENTAGE
from odradek.protocol.api import ApiKey
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.fast.offset_commit import (
    TOPIC_IDS_SINCE,
    OffsetCommitPlan,
    Outcome,
    plan_of,
    read_offset_commit,
    response_of,
    write_offset_commit,
)
from odradek.protocol.messages.offset_commit import (
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from odradek.security.acl import Operation, ResourceType
from odradek.server.access.authorizer import allowed, topic_check
from odradek.server.access.caller import Caller
from odradek.server.net.routes import Role, serves
from odradek.server.rooms import Rooms
from odradek.server.waiting.deferred import Deferred, Translated

if TYPE_CHECKING:
    from odradek.server.coordinators.groups import GroupRunner


@serves(
    ApiKey.OFFSET_COMMIT,
    on=Role.BROKER,
    read=read_offset_commit,
    plan_of=plan_of,
    write=write_offset_commit,
    quota_use=lambda plan, outcome, request_bytes: (REQUEST_PERCENTAGE, 0),
)
def handle(rooms: Rooms, caller: Caller, plan: OffsetCommitPlan) -> Outcome | Deferred[Outcome]:
    """Put it to the group's coordinator. (Hot: most are of one topic, and are written together.)"""
    if caller.authorizer is not None and not allowed(caller, Operation.READ, ResourceType.GROUP, plan.group_id):
        return response_of(plan, ErrorCode.GROUP_AUTHORIZATION_FAILED)
    runner = rooms.groups.runner(plan.group_id)
    if runner is not None and len(plan.topics) == 1:
        commit = _of_one_topic(rooms, caller, plan)
        if commit is not None:
            written = _Written(plan)
            if runner.gather(commit, written):
                return written
    return _commit_topics(rooms, caller, plan, runner)


class _Written(Deferred[Outcome]):
    """A commit that is written with others; a refusal of them is a result like any other."""

    __slots__ = ("_plan",)

    def __init__(self, plan: OffsetCommitPlan) -> None:
        Deferred.__init__(self)
        self._plan = plan

    def fail(self, failure: Exception) -> None:
        if isinstance(failure, KafkaError):
            self.complete(response_of(self._plan, failure.code))
        else:
            Deferred.fail(self, failure)


def _of_one_topic(rooms: Rooms, caller: Caller, plan: OffsetCommitPlan) -> TopicCommit | None:
    """What is written together with others; None if some of it is to be refused here, or it is of another kind."""
    key, partitions = plan.topics[0], plan.partitions[0]
    topics = rooms.image.topics
    topic = topics.by_id.get(key) if plan.version >= TOPIC_IDS_SINCE else topics.by_name.get(key)
    if topic is None or not partitions or not caller.may(Operation.READ, topic.name):
        return None
    if plan.retention_ms != BROKERS_RETENTION:
        return None  # Written with a time of its own.
    count = len(topic.partitions)
    for part in partitions:
        if not 0 <= part[0] < count:
            return None
    return TopicCommit(
        plan.group_id,
        plan.member_id,
        plan.instance_id,
        plan.generation_id,
        plan.version,
        topic.name,
        topic.topic_id,
        partitions,
    )


def _commit_topics(
    rooms: Rooms, caller: Caller, plan: OffsetCommitPlan, runner: GroupRunner | None
) -> Outcome | Deferred[Outcome]:
    """What exists goes to the coordinator as one, what does not is refused partition by partition."""
    version = plan.version
    request = plan.request()
    known, refused = sort_topics(rooms, caller, request.topics, by_id=version >= TOPIC_IDS_SINCE)
    if not known and refused:
        return OffsetCommitResponse(topics=refused)
    request.topics = known

    def answer(response: OffsetCommitResponse | None, error: KafkaError | None) -> OffsetCommitResponse:
        if error is not None:
            response = OffsetCommitResponse(
                topics=[refused_topic(topic, topic.partitions, error.code) for topic in known]
            )
        assert response is not None
        return OffsetCommitResponse(topics=merge_topics(refused, response.topics)) if refused else response

    if runner is None:
        return answer(None, KafkaError(ErrorCode.NOT_COORDINATOR))
    try:
        answered = runner.put(lambda shard, ticket, now: shard.commit(ticket, request, version, now))
    except KafkaError as error:
        return answer(None, error)
    if isinstance(answered, Deferred):
        return Translated(answered, answer)
    return answer(cast("OffsetCommitResponse", answered), None)


def sort_topics(
    rooms: Rooms, caller: Caller, wanted: list[OffsetCommitRequestTopic], *, by_id: bool
) -> tuple[list[OffsetCommitRequestTopic], list[OffsetCommitResponseTopic]]:
    """What exists, with its name and id; and the answer about what does not."""
    topics = rooms.image.topics
    known: list[OffsetCommitRequestTopic] = []
    refused: list[OffsetCommitResponseTopic] = []
    may_read = topic_check(caller, Operation.READ)
    for topic in wanted:
        image = topics.by_id.get(topic.topic_id) if by_id else topics.by_name.get(topic.name)
        name = topic.name if image is None else image.name
        if may_read is not None and not (by_id and image is None) and not may_read(name):
            refused.append(refused_topic(topic, topic.partitions, ErrorCode.TOPIC_AUTHORIZATION_FAILED))
            continue
        if image is None:
            code = ErrorCode.UNKNOWN_TOPIC_ID if by_id else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            refused.append(refused_topic(topic, topic.partitions, code))
            continue
        topic.name, topic.topic_id = image.name, image.topic_id
        count = len(image.partitions)
        good = [part for part in topic.partitions if 0 <= part.partition_index < count]
        if len(good) < len(topic.partitions):
            bad = [part for part in topic.partitions if not 0 <= part.partition_index < count]
            refused.append(refused_topic(topic, bad, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
            topic.partitions = good
        if good:
            known.append(topic)
    return known, refused


def refused_topic(
    topic: OffsetCommitRequestTopic, partitions: list[OffsetCommitRequestPartition], code: ErrorCode
) -> OffsetCommitResponseTopic:
    return OffsetCommitResponseTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        partitions=[
            OffsetCommitResponsePartition(partition_index=part.partition_index, error_code=code) for part in partitions
        ],
    )


def merge_topics(
    refused: list[OffsetCommitResponseTopic], committed: list[OffsetCommitResponseTopic]
) -> list[OffsetCommitResponseTopic]:
    """One entry a topic, as clients expect that read the answer into a map; in Kafka's order."""
    merged = {(topic.name, topic.topic_id): topic for topic in refused}
    for topic in committed:
        held = merged.setdefault((topic.name, topic.topic_id), topic)
        if held is not topic:
            held.partitions += topic.partitions
    return list(merged.values())
