"""KIP-848 groups told as stories, alone and on their way from and to the classic protocol: consumer_groups/*.txt."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.scenarios import test_groups as classic
from tests.scenarios.transcripts import play
from tests.unit.metadata.building import cluster, uuid

from odradek.coordinator.group import records as kinds
from odradek.coordinator.group.joining import Joiner
from odradek.coordinator.shard import CoordinatorDecision, CoordinatorRecord
from odradek.decisions import Ticket
from odradek.ids import LeaderEpoch, Offset, Uuid
from odradek.metadata.image import Provenance
from odradek.metadata.loader import Loader
from odradek.metadata.records import ConfigRecord, PartitionRecord, RemoveTopicRecord, TopicRecord
from odradek.protocol.codec import Message, Struct, decode, encode
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.consumer_group_describe import Assignment, DescribedGroup
from odradek.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from odradek.protocol.messages.consumer_protocol import AssignmentTopicPartition, ConsumerProtocolAssignment
from odradek.protocol.messages.list_groups import ListGroupsResponse
from odradek.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from odradek.protocol.messages.offset_fetch import OffsetFetchRequestGroup
from odradek.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment, SyncGroupResponse

Words = classic.Words
GROUP_RESOURCE = 32


class Story(classic.Story):
    """One shard in a cluster whose topics come and go. A member is called what its id is."""

    def __init__(self) -> None:
        super().__init__()
        self._loader = Loader(cluster())
        self._topics: dict[str, Uuid] = {}
        self._epochs: dict[str, int] = {}
        self._shard.learn(self._loader.image, None)

    def run(self, name: str, words: Words) -> list[str]:
        match name:
            case "topic":
                return self._topic(words["0"], int(words["partitions"]))
            case "remove-topic":
                return self._metadata([RemoveTopicRecord(topic_id=self._topics.pop(words["0"]))])
            case "configure":
                (key, text) = next((key, text) for key, text in words.items() if not key.isdigit())
                record = ConfigRecord(
                    resource_type=GROUP_RESOURCE, resource_name=words["0"], name=key.replace("_", "."), value=text
                )
                return self._metadata([record])
            case "policy":
                setattr(self._settings, "consumer_migration_policy", words["0"])  # noqa: B010
                return []
            case "beat":
                return self._ask(words, "heartbeat", self._beat(words))
            case "describe-consumers":
                return self._ask(
                    words, "describe", lambda ticket, now: self._shard.describe_consumer_group(ticket, words["0"])
                )
            case "commit-at":
                return self._ask(words, "commit", self._commit(words))
            case "fetch-at":
                return self._ask(words, "fetch", self._fetch(words))
            case _:
                return super().run(name, words)

    # The cluster.

    def _topic(self, name: str, partitions: int) -> list[str]:
        known = name in self._topics
        topic_id = self._topics.setdefault(name, uuid(900 + len(self._topics)))
        topic = self._loader.image.topics.by_id.get(topic_id)
        records: list[Message] = [] if known else [TopicRecord(name=name, topic_id=topic_id)]
        for index in range(len(topic.partitions) if topic is not None else 0, partitions):
            records.append(
                PartitionRecord(
                    partition_id=index,
                    topic_id=topic_id,
                    replicas=[1],
                    isr=[1],
                    removing_replicas=[],
                    adding_replicas=[],
                    leader=1,
                    leader_epoch=0,
                    partition_epoch=0,
                    directories=[uuid(1)],
                )
            )
        return self._metadata(records)

    def _metadata(self, records: list[Message]) -> list[str]:
        offset = Offset(self._loader.image.provenance.offset + len(records))
        changes = self._loader.replay(records, Provenance(offset, LeaderEpoch(1), 0))
        self._shard.learn(self._loader.image, changes)
        return []

    def _restart(self, **settings: int) -> list[str]:
        told = super()._restart(**settings)
        self._shard.learn(self._loader.image, None)
        return told

    # Requests.

    def _beat(self, words: Words) -> object:
        who = words["0"]
        epoch = int(words.get("epoch", self._epochs.get(who, 0)))
        joins = epoch == 0
        topics = words.get("topics", "t" if joins and "regex" not in words else None)
        request = ConsumerGroupHeartbeatRequest(
            group_id=words.get("group", classic.GROUP),
            member_id=words.get("id", who).replace("nobody", ""),
            member_epoch=epoch,
            instance_id=words.get("instance"),
            rebalance_timeout_ms=int(words.get("rebalance", "60000" if joins else "-1")),
            subscribed_topic_names=None if topics is None else [each for each in topics.split(",") if each],
            subscribed_topic_regex=words.get("regex"),
            server_assignor=words.get("assignor"),
            topic_partitions=self._owned(words["owns"]) if "owns" in words else [] if joins else None,
        )
        joiner = Joiner(f"client of {who}", "/host", int(words.get("version", "1")), "fresh-id")
        return lambda ticket, now: self._shard.consumer_heartbeat(ticket, request, joiner, now)

    def _owned(self, text: str) -> list[TopicPartitions]:
        """`t:0+1,u:3`, or `nothing`."""
        return [
            TopicPartitions(topic_id=self._topics[name], partitions=[int(index) for index in indexes.split("+")])
            for name, indexes in (each.split(":") for each in text.split(",") if each != "nothing")
        ]

    def _commit(self, words: Words) -> object:
        part = OffsetCommitRequestPartition(
            partition_index=int(words["partition"]), committed_offset=7, committed_metadata=""
        )
        topic = OffsetCommitRequestTopic(name=words["topic"], topic_id=self._topics[words["topic"]], partitions=[part])
        request = OffsetCommitRequest(
            group_id=classic.GROUP,
            generation_id_or_member_epoch=int(words["epoch"]),
            member_id=words["0"],
            topics=[topic],
        )
        version = int(words.get("version", "9"))
        return lambda ticket, now: self._shard.commit(ticket, request, version, now)

    def _fetch(self, words: Words) -> object:
        request = OffsetFetchRequestGroup(
            group_id=classic.GROUP, member_id=words["0"], member_epoch=int(words["epoch"]), topics=None
        )
        return lambda ticket, now: self._shard.fetch_offsets(ticket, request)

    def _sync(self, words: Words) -> object:
        """`gives=a/t:0+1;b/t:2` instead of bytes that only a story knows."""
        if "gives" not in words:
            return super()._sync(words)
        request = SyncGroupRequest(
            group_id=classic.GROUP,
            generation_id=int(words["generation"]),
            member_id=self._member_id(words),
            assignments=[
                SyncGroupRequestAssignment(member_id=self._ids.get(who, who), assignment=_written(what))
                for who, what in (each.split("/") for each in words["gives"].split(";"))
            ],
        )
        return lambda ticket, now: self._shard.sync(ticket, request, now)

    # Telling.

    def _told(self, decision: CoordinatorDecision) -> list[str]:
        return [
            *(f"append {self._record(record)}" for record in decision.records),
            *(self._answer(ticket, answer) for ticket, answer in decision.answers),
        ]

    def _answer(self, ticket: Ticket, answer: Struct) -> str:
        match answer:
            case ConsumerGroupHeartbeatResponse():
                asker = self._tickets.pop(ticket)
                self._epochs[asker.split()[0]] = max(answer.member_epoch, 0)
                told = f"epoch {answer.member_epoch}"
                if answer.assignment is not None:
                    told += f" has {self._partitions(answer.assignment.topic_partitions)}"
                if answer.heartbeat_interval_ms not in (0, 5_000):
                    told += f" every {answer.heartbeat_interval_ms} ms"
                return f"{asker}: {answer.member_id} {told}"
            case DescribedGroup():
                return f"{self._tickets.pop(ticket)}: {_described(answer)}"
            case ListGroupsResponse():
                groups = [f"{each.group_id}:{each.group_type}:{each.group_state}" for each in answer.groups]
                return f"{self._tickets.pop(ticket)}: {' '.join(groups)}"
            case SyncGroupResponse(error_code=ErrorCode.NONE) if answer.assignment[:1] == b"\0":
                return f"{self._tickets.pop(ticket)}: assigned {_assignment(answer.assignment)}"
            case _:
                return super()._answer(ticket, answer)

    def _record(self, record: CoordinatorRecord) -> str:
        key, content = record.key, record.value
        if not hasattr(key, "group_id"):
            if isinstance(content, kinds.GroupMetadataValue) and content.members:
                members = " ".join(f"{each.member_id}:{_assignment(each.assignment)}" for each in content.members)
                return f"group {key.group} generation={content.generation} leader={content.leader} [{members}]"  # type: ignore[attr-defined]
            return classic._record(record)
        what = type(key).__name__.removeprefix("ConsumerGroup").removesuffix("Key")
        about = " ".join(str(getattr(key, name)) for name in ("member_id", "regular_expression") if hasattr(key, name))
        return f"{what} {about} {'gone' if content is None else self._content(content)}".replace("  ", " ")

    def _content(self, content: Message) -> str:
        match content:
            case kinds.ConsumerGroupMetadataValue():
                return f"epoch={content.epoch}{'' if content.metadata_hash else ' without topics'}"
            case kinds.ConsumerGroupMemberMetadataValue():
                spoken = "classic" if content.classic_member_metadata is not None else "consumer"
                regex = f" regex={content.subscribed_topic_regex}" if content.subscribed_topic_regex else ""
                instance = f" instance={content.instance_id}" if content.instance_id else ""
                return f"{spoken} topics={','.join(content.subscribed_topic_names)}{regex}{instance}"
            case kinds.ConsumerGroupTargetAssignmentMetadataValue():
                return f"epoch={content.assignment_epoch}"
            case kinds.ConsumerGroupTargetAssignmentMemberValue():
                return self._partitions(content.topic_partitions)
            case kinds.ConsumerGroupCurrentMemberAssignmentValue():
                state = ("stable", "unrevoked", "unreleased")[content.state]
                pending = content.partitions_pending_revocation
                revoking = f" gives up {self._partitions(pending)}" if pending else ""
                return (
                    f"epoch={content.member_epoch} (was {content.previous_member_epoch}) {state} "
                    f"has {self._partitions(content.assigned_partitions)}{revoking}"
                )
            case kinds.ConsumerGroupRegularExpressionValue():
                return f"= {','.join(content.topics)}"
            case _:
                raise AssertionError(f"no words for {content}")

    def _partitions(
        self, held: list[TopicPartitions] | list[kinds.TopicPartition] | list[kinds.TopicPartitions]
    ) -> str:
        names = {topic_id: name for name, topic_id in self._topics.items()}
        told = [f"{names.get(each.topic_id, '?')}:{'+'.join(map(str, each.partitions))}" for each in held]
        return ",".join(told) or "nothing"


def _described(group: DescribedGroup) -> str:
    members = " ".join(
        f"{each.member_id}({'classic' if each.member_type == 0 else 'consumer'})@{each.member_epoch}:"
        f"{_named(each.assignment)}->{_named(each.target_assignment)}"
        for each in group.members
    )
    return f"{group.group_state} epoch={group.group_epoch}/{group.assignment_epoch} {group.assignor_name} [{members}]"


def _named(held: Assignment) -> str:
    told = [f"{each.topic_name}:{'+'.join(map(str, each.partitions))}" for each in held.topic_partitions]
    return ",".join(told) or "nothing"


def _written(text: str) -> bytes:
    name, indexes = text.split(":")
    some = AssignmentTopicPartition(topic=name, partitions=[int(index) for index in indexes.split("+")])
    return bytes(2) + encode(ConsumerProtocolAssignment(assigned_partitions=[some]), 0)


def _assignment(content: bytes) -> str:
    decoded = decode(ConsumerProtocolAssignment, 0, content[2:])
    told = [f"{each.topic}:{'+'.join(map(str, each.partitions))}" for each in decoded.assigned_partitions]
    return ",".join(told) or "nothing"


STORIES = sorted((Path(__file__).with_name("consumer_groups")).glob("*.txt"))


@pytest.mark.parametrize("story", STORIES, ids=lambda path: path.stem)
def test_story(story: Path, request: pytest.FixtureRequest) -> None:
    play(story, Story().run, rewrite=request.config.getoption("--rewrite"))
