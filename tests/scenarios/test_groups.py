"""Classic groups told as stories: requests and the passing of time, records and answers; see groups/*.txt."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.scenarios.transcripts import play
from tests.unit.coordinator.logs import load

from odradek.coordinator.group.joining import Joiner
from odradek.coordinator.group.records import GroupMetadataValue, OffsetCommitKey, OffsetCommitValue
from odradek.coordinator.group.settings import GroupSettings
from odradek.coordinator.group.shard import GroupShard
from odradek.coordinator.record_format import encode_batch
from odradek.coordinator.shard import CoordinatorDecision, CoordinatorRecord, Moment
from odradek.decisions import Ticket
from odradek.ids import ZERO_UUID
from odradek.metadata.image import Changes
from odradek.metadata.image.topics import TopicChanges, TopicImage
from odradek.protocol.codec import Struct
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.messages.delete_groups import DeletableGroupResult
from odradek.protocol.messages.describe_groups import DescribedGroup
from odradek.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from odradek.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from odradek.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity
from odradek.protocol.messages.list_groups import ListGroupsResponse
from odradek.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from odradek.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
)
from odradek.protocol.messages.offset_fetch import (
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponseGroup,
)
from odradek.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment, SyncGroupResponse

Words = dict[str, str]
START_MS = 1_000_000
GROUP = "g"


def deletion_of(topic: str) -> Changes:
    gone = TopicImage(topic, ZERO_UUID, ())
    return Changes(TopicChanges(created=(), changed=(), deleted=(gone,)), configs=(), brokers_changed=False)


class Story:
    """One shard, its log, and clients by the name of their client id."""

    def __init__(self) -> None:
        self._settings = GroupSettings()
        self._shard = GroupShard(self._settings)
        self._log: list[bytes] = []
        self._ms = START_MS
        self._ids: dict[str, str] = {}
        self._tickets: dict[Ticket, str] = {}
        self._last_ticket = 0
        self._given_out = 0
        self._refuse: ErrorCode | None = None
        self._shard.loaded(self._now())

    def run(self, name: str, words: Words) -> list[str]:
        match name:
            case "settings":
                return self._restart(**{key: int(text) for key, text in words.items()})
            case "restart":
                return self._restart()
            case "pass":
                return self._pass(int(words["0"]))
            case "refuse":
                self._refuse = ErrorCode[words["0"]]
                return []
            case "resign":
                return self._told(self._shard.resign())
            case "join":
                return self._ask(words, "JoinGroup", self._join(words))
            case "sync":
                return self._ask(words, "SyncGroup", self._sync(words))
            case "heartbeat" | "leave" | "commit" | "fetch" | "delete-offsets":
                return self._ask(words, name, self._request(name, words))
            case "forget":
                self._shard.learn(self._shard.consumers.image, deletion_of(words["0"]))
                return self._decide(lambda ticket, now: self._shard.expire(now))
            case "describe":
                return self._ask(words, name, lambda ticket, now: self._shard.describe(ticket, words["0"]))
            case "delete":
                return self._ask(words, name, lambda ticket, now: self._shard.delete_group(ticket, words["0"]))
            case "list":
                return self._ask({"0": "list"}, name, lambda ticket, now: self._shard.list_groups(ticket))
            case _:
                raise AssertionError(f"no such command: {name}")

    # Time and life.

    def _now(self) -> Moment:
        return Moment(self._ms, self._ms)

    def _pass(self, passed_ms: int) -> list[str]:
        until_ms = self._ms + passed_ms
        told: list[str] = []
        while (due_ms := self._shard.timers.next_deadline_ms) is not None and due_ms <= until_ms:
            self._ms = max(self._ms, due_ms)
            said = self._decide(lambda ticket, now: self._shard.expire(now))
            told += [f"+{self._ms - (until_ms - passed_ms)} ms: {line}" for line in said]
        self._ms = until_ms
        return told

    def _restart(self, **settings: int) -> list[str]:
        """Another coordinator reads the log, and hears nothing of who waited at this one."""
        for key, number in settings.items():
            setattr(self._settings, key, number)
        self._shard = GroupShard(self._settings)
        newest = load(self._shard, self._log)
        told = self._decide(lambda ticket, now: self._shard.loaded(now))
        return [*told, f"{len(self._log)} batches, {len(newest)} keys"]

    # Deciding.

    def _ask(self, words: Words, what: str, decide: object) -> list[str]:
        self._last_ticket += 1
        ticket = Ticket(self._last_ticket)
        self._tickets[ticket] = f"{words['0']} {what}"
        told = self._decide(decide, ticket)
        return told if ticket not in self._tickets else [*told, f"{words['0']} waits"]

    def _decide(self, decide: object, ticket: Ticket | None = None) -> list[str]:
        assert callable(decide)
        try:
            decision: CoordinatorDecision = decide(ticket, self._now())
        except KafkaError as refused:
            asker = self._tickets.pop(ticket) if ticket is not None else "nobody"
            return [f"{asker}: {refused.code.name}"]
        if decision.records and self._refuse is not None:
            code, self._refuse = self._refuse, None
            told = self._told(self._shard.refused(decision, code, ticket, self._now()))
            if ticket is not None:
                told.append(f"{self._tickets.pop(ticket)}: {code.name}")
            return ["the append is refused", *told]
        if decision.records:
            self._log.append(bytes(encode_batch(decision.records, timestamp_ms=self._ms)))
            for record in decision.records:
                self._shard.replay(record)
        return self._told(decision)

    def _told(self, decision: CoordinatorDecision) -> list[str]:
        return [
            *(f"append {_record(record)}" for record in decision.records),
            *(self._answer(ticket, answer) for ticket, answer in decision.answers),
        ]

    def _answer(self, ticket: Ticket, answer: Struct) -> str:
        asker = self._tickets.pop(ticket)
        if isinstance(answer, JoinGroupResponse):
            known = answer.error_code in (ErrorCode.NONE, ErrorCode.MEMBER_ID_REQUIRED)
            if known:
                self._ids[asker.split()[0]] = answer.member_id
            elif answer.error_code == ErrorCode.UNKNOWN_MEMBER_ID:
                self._ids.pop(asker.split()[0], None)
        return f"{asker}: {_response(answer)}"

    # Requests.

    def _member_id(self, words: Words) -> str:
        return words.get("id", self._ids.get(words["0"], "")).replace("nobody", "")

    def _join(self, words: Words) -> object:
        self._given_out += 1
        names = [name for name in words.get("protocols", "range").split(",") if name]
        said = {words["empty"]: b""} if "empty" in words else {}
        request = JoinGroupRequest(
            group_id=words.get("group", GROUP),
            session_timeout_ms=int(words.get("session", "10000")),
            rebalance_timeout_ms=int(words.get("rebalance", "60000")),
            member_id=self._member_id(words),
            group_instance_id=words.get("instance"),
            protocol_type=words.get("type", "consumer"),
            protocols=[
                JoinGroupRequestProtocol(name=each, metadata=said.get(each, _subscription(words))) for each in names
            ],
        )
        joiner = Joiner(words["0"], "/host", int(words.get("version", "9")), str(self._given_out))
        return lambda ticket, now: self._shard.join(ticket, request, joiner, now)

    def _sync(self, words: Words) -> object:
        pairs = [pair.split(":") for pair in words.get("assign", "").split(",") if pair]
        request = SyncGroupRequest(
            group_id=words.get("group", GROUP),
            generation_id=int(words["generation"]),
            member_id=self._member_id(words),
            group_instance_id=words.get("instance"),
            protocol_type=words.get("type"),
            protocol_name=words.get("protocol"),
            assignments=[
                SyncGroupRequestAssignment(member_id=self._ids.get(who, who), assignment=what.encode())
                for who, what in pairs
            ],
        )
        return lambda ticket, now: self._shard.sync(ticket, request, now)

    def _request(self, name: str, words: Words) -> object:
        member_id, instance_id, group_id = self._member_id(words), words.get("instance"), words.get("group", GROUP)
        shard = self._shard
        match name:
            case "heartbeat":
                beat = HeartbeatRequest(
                    group_id=group_id,
                    generation_id=int(words["generation"]),
                    member_id=member_id,
                    group_instance_id=instance_id,
                )
                return lambda ticket, now: shard.heartbeat(ticket, beat, now)
            case "leave":
                identities = [
                    MemberIdentity(member_id=self._ids.get(who, who), group_instance_id=instance_id)
                    for who in words.get("members", words["0"]).split(",")
                ]
                if instance_id is not None:
                    identities = [MemberIdentity(member_id="", group_instance_id=instance_id)]
                left = LeaveGroupRequest(group_id=group_id, members=identities)
                return lambda ticket, now: shard.leave(ticket, left, now)
            case "commit":
                commit = OffsetCommitRequest(
                    group_id=group_id,
                    generation_id_or_member_epoch=int(words.get("generation", "-1")),
                    member_id=member_id,
                    group_instance_id=instance_id,
                    retention_time_ms=int(words.get("retention", "-1")),
                    topics=[
                        OffsetCommitRequestTopic(
                            name=words["topic"],
                            partitions=[
                                OffsetCommitRequestPartition(
                                    partition_index=int(index),
                                    committed_offset=int(offset),
                                    committed_leader_epoch=3,
                                    committed_metadata="x" * int(words.get("metadata", "0")),
                                )
                                for index, offset in (pair.split(":") for pair in words["offsets"].split(","))
                            ],
                        )
                    ],
                )
                version = int(words.get("version", "9"))
                return lambda ticket, now: shard.commit(ticket, commit, version, now)
            case "fetch":
                topics = None
                if "topic" in words:
                    indexes = [int(index) for index in words["partitions"].split(",")]
                    topics = [OffsetFetchRequestTopics(name=words["topic"], partition_indexes=indexes)]
                fetch = OffsetFetchRequestGroup(group_id=group_id, topics=topics)
                return lambda ticket, now: shard.fetch_offsets(ticket, fetch)
            case _:
                parts = [OffsetDeleteRequestPartition(partition_index=int(i)) for i in words["partitions"].split(",")]
                topic = OffsetDeleteRequestTopic(name=words["topic"], partitions=parts)
                delete = OffsetDeleteRequest(group_id=group_id, topics=[topic])
                return lambda ticket, now: shard.delete_offsets(ticket, delete)


def _subscription(words: Words) -> bytes:
    """Version 0, topics, no user data, as a consumer's bytes begin; `strange` metadata is none of that."""
    if "strange" in words:
        return words["strange"].encode()
    topics = words.get("topics", "t").split(",")
    named = b"".join(len(topic).to_bytes(2) + topic.encode() for topic in topics)
    return bytes(2) + len(topics).to_bytes(4) + named + b"\xff\xff\xff\xff"


def _record(record: CoordinatorRecord) -> str:
    key, content = record.key, record.value
    if isinstance(key, OffsetCommitKey):
        where = f"offset {key.group} {key.topic}-{key.partition}"
        if content is None:
            return f"{where} gone"
        assert isinstance(content, OffsetCommitValue)
        expiry = "" if content.expire_timestamp == -1 else f" until +{content.expire_timestamp - START_MS} ms"
        return f"{where} = {content.offset}{expiry}"
    where = f"group {key.group}"  # type: ignore[attr-defined]
    if content is None:
        return f"{where} gone"
    assert isinstance(content, GroupMetadataValue)
    members = " ".join(f"{each.member_id}:{each.assignment.decode()}" for each in content.members)
    return f"{where} generation={content.generation} protocol={content.protocol} leader={content.leader} [{members}]"


def _response(answer: Struct) -> str:
    match answer:
        case JoinGroupResponse(error_code=0):
            members = f" of {' '.join(each.member_id for each in answer.members)}" if answer.members else ""
            skip = " skips the assignment" if answer.skip_assignment else ""
            return (
                f"{answer.member_id} in generation {answer.generation_id} by {answer.protocol_name}, "
                f"leader {answer.leader}{members}{skip}"
            )
        case JoinGroupResponse():
            return f"{ErrorCode(answer.error_code).name} {answer.member_id}".rstrip()
        case SyncGroupResponse(error_code=0):
            return f"assigned {answer.assignment.decode() or 'nothing'} by {answer.protocol_name}"
        case SyncGroupResponse() | HeartbeatResponse() | DeletableGroupResult():
            return ErrorCode(answer.error_code).name
        case LeaveGroupResponse():
            return " ".join(f"{each.member_id}:{ErrorCode(each.error_code).name}" for each in answer.members)
        case OffsetCommitResponse() | OffsetDeleteResponse():
            return " ".join(
                f"{topic.name}-{part.partition_index}:{ErrorCode(part.error_code).name}"
                for topic in answer.topics
                for part in topic.partitions
            )
        case OffsetFetchResponseGroup():
            offsets = [
                f"{topic.name}-{part.partition_index}={part.committed_offset}"
                for topic in answer.topics
                for part in topic.partitions
            ]
            return " ".join(offsets) or "nothing"
        case DescribedGroup():
            members = " ".join(f"{each.member_id}:{each.member_assignment.decode()}" for each in answer.members)
            return f"{answer.group_state} {answer.protocol_type} {answer.protocol_data} [{members}]"
        case ListGroupsResponse():
            return " ".join(f"{each.group_id}:{each.protocol_type}:{each.group_state}" for each in answer.groups)
        case _:
            raise AssertionError(f"no words for {answer}")


STORIES = sorted((Path(__file__).with_name("groups")).glob("*.txt"))


@pytest.mark.parametrize("story", STORIES, ids=lambda path: path.stem)
def test_groups(story: Path, request: pytest.FixtureRequest) -> None:
    play(story, Story().run, rewrite=request.config.getoption("--rewrite"))
