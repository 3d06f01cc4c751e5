"""With an authorizer nobody may do what no rule allows: every handler asks, in Kafka's terms."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pytest
from tests.unit.server.asking import fetch, fetched, produce, produced, values, wanted
from tests.unit.server.rig import Client, Rig

from odradek.protocol.codec import Message
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from odradek.protocol.messages.alter_client_quotas import AlterClientQuotasRequest, EntityData, RequestedEntryData
from odradek.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
)
from odradek.protocol.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from odradek.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from odradek.protocol.messages.create_acls import AclCreation, CreateAclsRequest
from odradek.protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from odradek.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from odradek.protocol.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from odradek.protocol.messages.delete_groups import DeleteGroupsRequest
from odradek.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from odradek.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from odradek.protocol.messages.describe_acls import DescribeAclsRequest
from odradek.protocol.messages.describe_client_quotas import DescribeClientQuotasRequest
from odradek.protocol.messages.describe_cluster import DescribeClusterRequest
from odradek.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from odradek.protocol.messages.describe_groups import DescribeGroupsRequest
from odradek.protocol.messages.describe_log_dirs import DescribeLogDirsRequest
from odradek.protocol.messages.describe_producers import DescribeProducersRequest, TopicRequest
from odradek.protocol.messages.describe_quorum import DescribeQuorumRequest
from odradek.protocol.messages.describe_topic_partitions import DescribeTopicPartitionsRequest
from odradek.protocol.messages.describe_topic_partitions import TopicRequest as TopicToDescribe
from odradek.protocol.messages.describe_transactions import DescribeTransactionsRequest
from odradek.protocol.messages.describe_user_scram_credentials import DescribeUserScramCredentialsRequest
from odradek.protocol.messages.find_coordinator import FindCoordinatorRequest
from odradek.protocol.messages.heartbeat import HeartbeatRequest
from odradek.protocol.messages.incremental_alter_configs import (
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from odradek.protocol.messages.init_producer_id import InitProducerIdRequest
from odradek.protocol.messages.join_group import JoinGroupRequest
from odradek.protocol.messages.leave_group import LeaveGroupRequest
from odradek.protocol.messages.list_config_resources import ListConfigResourcesRequest
from odradek.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from odradek.protocol.messages.list_transactions import ListTransactionsRequest
from odradek.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from odradek.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from odradek.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from odradek.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from odradek.protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from odradek.protocol.messages.sync_group import SyncGroupRequest
from odradek.protocol.messages.update_features import UpdateFeaturesRequest
from odradek.security.acl import AccessRules, Acl, Operation, PatternType, Permission, ResourceType

CLOSED = {"authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer"}
TOPIC, GROUP, CLUSTER = ResourceType.TOPIC, ResourceType.GROUP, ResourceType.CLUSTER
TRANSACTIONAL_ID = ResourceType.TRANSACTIONAL_ID
NO_TOPIC, NO_GROUP, NO_CLUSTER = (
    ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
)


async def allow(rig: Rig, operation: Operation, kind: ResourceType, name: str, **more: int | str) -> None:
    """As the controller itself would: nobody's permission is asked."""
    creation = AclCreation(
        resource_type=kind,
        resource_name=name,
        resource_pattern_type=more.get("pattern", PatternType.LITERAL),  # type: ignore[arg-type]
        principal="User:ANONYMOUS",
        host=more.get("host", "*"),  # type: ignore[arg-type]
        operation=operation,
        permission_type=more.get("permission", Permission.ALLOW),  # type: ignore[arg-type]
    )
    response = await rig.node.rooms.controller.create_acls(CreateAclsRequest(creations=[creation]))
    assert response.results[0].error_code == 0, response


def _everything() -> dict[str, Any]:
    return {
        "resource_type_filter": 1,
        "resource_name_filter": None,
        "pattern_type_filter": 1,
        "principal_filter": None,
        "host_filter": None,
        "operation": 1,
        "permission_type": 1,
    }


def _new_topic(name: str) -> CreateTopicsRequest:
    topic = CreatableTopic(name=name, num_partitions=1, replication_factor=1, assignments=[], configs=[])
    return CreateTopicsRequest(topics=[topic])


def _configs(kind: int, name: str) -> DescribeConfigsRequest:
    return DescribeConfigsRequest(
        resources=[DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=None)]
    )


def _alter(kind: int, name: str) -> IncrementalAlterConfigsRequest:
    resource = AlterConfigsResource(resource_type=kind, resource_name=name, configs=[])
    return IncrementalAlterConfigsRequest(resources=[resource], validate_only=True)


_PRODUCE = produce("t", b"x")
_FETCH = fetch("t", wanted())
_OFFSETS = ListOffsetsRequest(
    replica_id=-1,
    topics=[
        ListOffsetsTopic(
            name="t", partitions=[ListOffsetsPartition(partition_index=0, timestamp=-1, current_leader_epoch=-1)]
        )
    ],
)
_EPOCHS = OffsetForLeaderEpochRequest(
    topics=[
        OffsetForLeaderTopic(
            topic="t", partitions=[OffsetForLeaderPartition(partition=0, current_leader_epoch=-1, leader_epoch=0)]
        )
    ]
)
_DELETE_RECORDS = DeleteRecordsRequest(
    topics=[DeleteRecordsTopic(name="t", partitions=[DeleteRecordsPartition(partition_index=0, offset=0)])],
    timeout_ms=1000,
)
_MORE_PARTITIONS = CreatePartitionsRequest(
    topics=[CreatePartitionsTopic(name="t", count=3, assignments=None)], timeout_ms=1000, validate_only=True
)
_COMMIT = OffsetCommitRequest(
    group_id="g",
    member_id="",
    topics=[
        OffsetCommitRequestTopic(
            name="t",
            partitions=[OffsetCommitRequestPartition(partition_index=0, committed_offset=1, committed_metadata=None)],
        )
    ],
)
_JOIN = JoinGroupRequest(
    group_id="g",
    session_timeout_ms=10_000,
    rebalance_timeout_ms=10_000,
    member_id="",
    protocol_type="consumer",
    protocols=[],
)
_SYNC = SyncGroupRequest(
    group_id="g", generation_id=1, member_id="m", protocol_type="consumer", protocol_name="range", assignments=[]
)
_QUOTAS = AlterClientQuotasRequest(
    entries=[RequestedEntryData(entity=[EntityData(entity_type="user", entity_name="x")], ops=[])],
    validate_only=True,
)
_SCRAM = AlterUserScramCredentialsRequest(
    deletions=[ScramCredentialDeletion(name="nobody", mechanism=1)], upsertions=[]
)
_ONE_OFFSET = OffsetDeleteRequest(
    group_id="g",
    topics=[OffsetDeleteRequestTopic(name="t", partitions=[OffsetDeleteRequestPartition(partition_index=0)])],
)

Case = tuple[Message, int, Callable[[Any], int], ErrorCode, tuple[Operation, ResourceType, str]]
CASES: dict[str, Case] = {
    "produce": (_PRODUCE, 9, lambda r: produced(r).error_code, NO_TOPIC, (Operation.WRITE, TOPIC, "t")),
    "fetch": (_FETCH, 12, lambda r: fetched(r)[0].error_code, NO_TOPIC, (Operation.READ, TOPIC, "t")),
    "list offsets": (
        _OFFSETS,
        7,
        lambda r: r.topics[0].partitions[0].error_code,
        NO_TOPIC,
        (Operation.DESCRIBE, TOPIC, "t"),
    ),
    "epochs": (_EPOCHS, 4, lambda r: r.topics[0].partitions[0].error_code, NO_TOPIC, (Operation.DESCRIBE, TOPIC, "t")),
    "delete records": (
        _DELETE_RECORDS,
        2,
        lambda r: r.topics[0].partitions[0].error_code,
        NO_TOPIC,
        (Operation.DELETE, TOPIC, "t"),
    ),
    "metadata": (
        MetadataRequest(topics=[MetadataRequestTopic(name="t")]),
        9,
        lambda r: r.topics[0].error_code,
        NO_TOPIC,
        (Operation.DESCRIBE, TOPIC, "t"),
    ),
    "partitions described": (
        DescribeTopicPartitionsRequest(topics=[TopicToDescribe(name="t")], response_partition_limit=9, cursor=None),
        0,
        lambda r: r.topics[0].error_code,
        NO_TOPIC,
        (Operation.DESCRIBE, TOPIC, "t"),
    ),
    "create topics": (
        _new_topic("new"),
        7,
        lambda r: r.topics[0].error_code,
        NO_TOPIC,
        (Operation.CREATE, TOPIC, "new"),
    ),
    "create topics anywhere": (
        _new_topic("new"),
        7,
        lambda r: r.topics[0].error_code,
        NO_TOPIC,
        (Operation.CREATE, CLUSTER, "kafka-cluster"),
    ),
    "delete topics": (
        DeleteTopicsRequest(topics=[DeleteTopicState(name="t", topic_id=bytes(16))], timeout_ms=1000),
        6,
        lambda r: r.responses[0].error_code,
        NO_TOPIC,
        (Operation.DELETE, TOPIC, "t"),
    ),
    "create partitions": (
        _MORE_PARTITIONS,
        3,
        lambda r: r.results[0].error_code,
        NO_TOPIC,
        (Operation.ALTER, TOPIC, "t"),
    ),
    "producers": (
        DescribeProducersRequest(topics=[TopicRequest(name="t", partition_indexes=[0])]),
        0,
        lambda r: r.topics[0].partitions[0].error_code,
        NO_TOPIC,
        (Operation.READ, TOPIC, "t"),
    ),
    "configs of a topic": (
        _configs(2, "t"),
        4,
        lambda r: r.results[0].error_code,
        NO_TOPIC,
        (Operation.DESCRIBE_CONFIGS, TOPIC, "t"),
    ),
    "configs of a broker": (
        _configs(4, "1"),
        4,
        lambda r: r.results[0].error_code,
        NO_CLUSTER,
        (Operation.DESCRIBE_CONFIGS, CLUSTER, "kafka-cluster"),
    ),
    "configs of a group": (
        _configs(32, "g"),
        4,
        lambda r: r.results[0].error_code,
        NO_GROUP,
        (Operation.DESCRIBE_CONFIGS, GROUP, "g"),
    ),
    "altered topic": (
        _alter(2, "t"),
        1,
        lambda r: r.responses[0].error_code,
        NO_TOPIC,
        (Operation.ALTER_CONFIGS, TOPIC, "t"),
    ),
    "altered loggers": (
        _alter(8, "1"),
        1,
        lambda r: r.responses[0].error_code,
        NO_CLUSTER,
        (Operation.ALTER_CONFIGS, CLUSTER, "kafka-cluster"),
    ),
    "resources listed": (
        ListConfigResourcesRequest(resource_types=[]),
        1,
        lambda r: r.error_code,
        NO_CLUSTER,
        (Operation.DESCRIBE_CONFIGS, CLUSTER, "kafka-cluster"),
    ),
    "log directories": (
        DescribeLogDirsRequest(topics=None),
        4,
        lambda r: r.error_code,
        NO_CLUSTER,
        (Operation.DESCRIBE, CLUSTER, "kafka-cluster"),
    ),
    "quorum": (
        DescribeQuorumRequest(topics=[]),
        2,
        lambda r: r.error_code,
        NO_CLUSTER,
        (Operation.DESCRIBE, CLUSTER, "kafka-cluster"),
    ),
    "features": (
        UpdateFeaturesRequest(feature_updates=[], validate_only=True),
        2,
        lambda r: r.error_code,
        NO_CLUSTER,
        (Operation.ALTER, CLUSTER, "kafka-cluster"),
    ),
    "quotas": (
        DescribeClientQuotasRequest(components=[], strict=False),
        1,
        lambda r: r.error_code,
        NO_CLUSTER,
        (Operation.DESCRIBE_CONFIGS, CLUSTER, "kafka-cluster"),
    ),
    "quotas altered": (
        _QUOTAS,
        1,
        lambda r: r.entries[0].error_code,
        NO_CLUSTER,
        (Operation.ALTER_CONFIGS, CLUSTER, "kafka-cluster"),
    ),
    "credentials": (
        DescribeUserScramCredentialsRequest(users=None),
        0,
        lambda r: r.error_code,
        NO_CLUSTER,
        (Operation.DESCRIBE, CLUSTER, "kafka-cluster"),
    ),
    "rules": (
        DescribeAclsRequest(**_everything()),
        3,
        lambda r: r.error_code,
        NO_CLUSTER,
        (Operation.DESCRIBE, CLUSTER, "kafka-cluster"),
    ),
    "rules deleted": (
        DeleteAclsRequest(filters=[DeleteAclsFilter(**{**_everything(), "resource_name_filter": "nothing"})]),
        3,
        lambda r: r.filter_results[0].error_code,
        NO_CLUSTER,
        (Operation.ALTER, CLUSTER, "kafka-cluster"),
    ),
    "producer ids": (
        InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1),
        4,
        lambda r: r.error_code,
        NO_CLUSTER,
        (Operation.IDEMPOTENT_WRITE, CLUSTER, "kafka-cluster"),
    ),
    "producer ids for a topic": (
        InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1),
        4,
        lambda r: r.error_code,
        NO_CLUSTER,
        (Operation.WRITE, TOPIC, "anything"),
    ),
    "coordinators": (
        FindCoordinatorRequest(key_type=0, coordinator_keys=["g"]),
        4,
        lambda r: r.coordinators[0].error_code,
        NO_GROUP,
        (Operation.DESCRIBE, GROUP, "g"),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_what_no_rule_allows_is_refused_and_what_one_allows_is_done(name: str) -> None:
    request, version, code, refusal, (operation, kind, resource) = CASES[name]
    rig = Rig(properties=CLOSED)

    async def ask() -> None:
        await rig.create_topic("t")
        client = rig.connect()
        before = rig.node.rooms.image
        assert code(await client.ask(request, version)) == refusal
        assert rig.node.rooms.image is before
        await allow(rig, operation, kind, resource)
        assert code(await client.ask(request, version)) == 0

    rig.run(ask)


GROUP_CASES: dict[str, tuple[Message, int, Callable[[Any], int], Operation]] = {
    "join": (_JOIN, 9, lambda r: r.error_code, Operation.READ),
    "sync": (_SYNC, 5, lambda r: r.error_code, Operation.READ),
    "heartbeat": (
        HeartbeatRequest(group_id="g", generation_id=1, member_id="m"),
        4,
        lambda r: r.error_code,
        Operation.READ,
    ),
    "leave": (LeaveGroupRequest(group_id="g", members=[]), 5, lambda r: r.error_code, Operation.READ),
    "commit": (_COMMIT, 8, lambda r: r.topics[0].partitions[0].error_code, Operation.READ),
    "fetch offsets": (
        OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="g", topics=None)]),
        8,
        lambda r: r.groups[0].error_code,
        Operation.DESCRIBE,
    ),
    "delete offsets": (_ONE_OFFSET, 0, lambda r: r.error_code, Operation.DELETE),
    "describe": (DescribeGroupsRequest(groups=["g"]), 5, lambda r: r.groups[0].error_code, Operation.DESCRIBE),
    "delete": (DeleteGroupsRequest(groups_names=["g"]), 2, lambda r: r.results[0].error_code, Operation.DELETE),
    "describe the new kind": (
        ConsumerGroupDescribeRequest(group_ids=["g"], include_authorized_operations=False),
        1,
        lambda r: r.groups[0].error_code,
        Operation.DESCRIBE,
    ),
}


@pytest.mark.parametrize("name", GROUP_CASES)
def test_groups_are_closed_to_whom_no_rule_lets_in(name: str) -> None:
    request, version, code, operation = GROUP_CASES[name]
    rig = Rig(properties=CLOSED)

    async def ask() -> None:
        await rig.create_topic("t")
        client = rig.connect()
        assert code(await client.ask(request, version)) == NO_GROUP
        await allow(rig, operation, GROUP, "g")
        assert code(await client.ask(request, version)) != NO_GROUP

    rig.run(ask)


def test_a_member_needs_to_see_the_topics_it_subscribes_to() -> None:
    rig = Rig(properties=CLOSED)
    request = ConsumerGroupHeartbeatRequest(
        group_id="g",
        member_id="m",
        member_epoch=0,
        rebalance_timeout_ms=10_000,
        subscribed_topic_names=["t"],
        topic_partitions=[],
    )

    async def ask() -> None:
        client = rig.connect()
        await allow(rig, Operation.READ, GROUP, "g")
        assert (await client.ask(request, 0)).error_code == NO_TOPIC

    rig.run(ask)


def test_commits_and_offsets_of_closed_topics_are_left_out() -> None:
    rig = Rig(properties=CLOSED)

    async def ask() -> None:
        await rig.create_topic("t")
        client = rig.connect()
        await allow(rig, Operation.READ, GROUP, "g")
        committed = await client.ask(_COMMIT, 8)
        assert committed.topics[0].partitions[0].error_code == NO_TOPIC

    rig.run(ask)


def test_transactions_are_closed_to_whom_no_rule_lets_in() -> None:
    """And of those that may be seen the topics are that may be seen as well."""
    rig = Rig(properties=CLOSED | {"transaction.state.log.num.partitions": "1"})

    async def ask() -> None:
        await rig.create_topic("t")
        await rig.create_topic("u")
        client = rig.connect()
        for name in ("mine", "yours"):
            await allow(rig, Operation.WRITE, TRANSACTIONAL_ID, name)
        await allow(rig, Operation.WRITE, TOPIC, "t")
        await allow(rig, Operation.WRITE, TOPIC, "u")
        for name in ("mine", "yours"):
            await client.ask(FindCoordinatorRequest(key=name, key_type=1), 3)
            made = await client.ask(InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=1_000), 4)
            assert made.error_code == 0
            opened = AddPartitionsToTxnRequest(
                v3_and_below_transactional_id=name,
                v3_and_below_producer_id=made.producer_id,
                v3_and_below_producer_epoch=made.producer_epoch,
                v3_and_below_topics=[AddPartitionsToTxnTopic(name=topic, partitions=[0]) for topic in "tu"],
            )
            await client.ask(opened, 3)
        for kind, name in ((TRANSACTIONAL_ID, "yours"), (TOPIC, "u")):
            await allow(rig, Operation.DESCRIBE, kind, name, permission=Permission.DENY)
        listed = await client.ask(ListTransactionsRequest(state_filters=[], producer_id_filters=[]), 2)
        assert [each.transactional_id for each in listed.transaction_states] == ["mine"]
        request = DescribeTransactionsRequest(transactional_ids=["mine", "yours"])
        mine, yours = (await client.ask(request, 0)).transaction_states
        assert (mine.error_code, [each.topic for each in mine.topics]) == (0, ["t"])
        assert (yours.error_code, yours.topics) == (ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, [])

    rig.run(ask)


def test_topics_that_may_not_be_seen_are_not_listed() -> None:
    rig = Rig(properties=CLOSED)

    async def ask() -> None:
        await rig.create_topic("mine")
        await rig.create_topic("theirs")
        client = rig.connect()
        await allow(rig, Operation.READ, TOPIC, "mi", pattern=PatternType.PREFIXED)
        request = MetadataRequest(
            topics=None, include_topic_authorized_operations=True, include_cluster_authorized_operations=True
        )
        response = await client.ask(request, 10)
        assert [topic.name for topic in response.topics] == ["mine"]
        assert response.topics[0].topic_authorized_operations == 1 << Operation.READ | 1 << Operation.DESCRIBE
        assert response.cluster_authorized_operations == 0
        by_id = MetadataRequest(topics=[MetadataRequestTopic(name=None, topic_id=rig.topic_id("theirs"))])
        assert (await client.ask(by_id, 12)).topics[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID
        described = await client.ask(
            DescribeTopicPartitionsRequest(topics=[], response_partition_limit=9, cursor=None), 0
        )
        assert [topic.name for topic in described.topics] == ["mine"]
        cluster = await client.ask(DescribeClusterRequest(include_cluster_authorized_operations=True), 1)
        assert (cluster.error_code, cluster.cluster_authorized_operations) == (0, 0)

    rig.run(ask)


def test_a_topic_is_not_created_by_asking_for_it_without_permission() -> None:
    rig = Rig(properties=CLOSED)

    async def ask() -> None:
        client = rig.connect()
        await allow(rig, Operation.DESCRIBE, TOPIC, "new")
        request = MetadataRequest(topics=[MetadataRequestTopic(name="new")], allow_auto_topic_creation=True)
        assert (await client.ask(request, 9)).topics[0].error_code == NO_TOPIC
        assert "new" not in rig.node.rooms.image.topics.by_name
        await allow(rig, Operation.CREATE, TOPIC, "new")
        assert (await client.ask(request, 9)).topics[0].error_code == 0

    rig.run(ask)


def test_super_users_and_open_resources() -> None:
    for more in ({"super.users": "User:ANONYMOUS"}, {"allow.everyone.if.no.acl.found": "true"}):
        rig = Rig(properties=CLOSED | more)

        async def ask(rig: Rig = rig) -> None:
            await rig.create_topic("t")
            client = rig.connect()
            assert produced(await client.ask(produce("t", b"hello"), 9)).error_code == 0
            assert values(fetched(await client.ask(fetch("t", wanted()), 12))[0]) == [b"hello"]

        rig.run(ask)


def test_a_denied_host_and_a_rule_that_goes() -> None:
    rig = Rig(properties=CLOSED | {"allow.everyone.if.no.acl.found": "true"})

    async def ask() -> None:
        await rig.create_topic("t")
        client = rig.connect()
        await allow(rig, Operation.WRITE, TOPIC, "t")
        await allow(rig, Operation.ALL, TOPIC, "t", host="tester", permission=Permission.DENY)
        assert produced(await client.ask(_PRODUCE, 9)).error_code == NO_TOPIC
        await rig.restart()
        client = rig.connect()
        assert produced(await client.ask(_PRODUCE, 9)).error_code == NO_TOPIC
        denials = DeleteAclsFilter(**{**_everything(), "permission_type": int(Permission.DENY)})
        gone = await rig.node.rooms.controller.delete_acls(DeleteAclsRequest(filters=[denials]))
        assert len(gone.filter_results[0].matching_acls) == 1
        assert produced(await client.ask(_PRODUCE, 9)).error_code == 0
        assert list(rig.node.rooms.image.acls.by_id.values()) == [Acl(2, "t", 3, "User:ANONYMOUS", "*", 4, 3)]

    rig.run(ask)


def test_without_an_authorizer_there_are_no_rules_to_make() -> None:
    rig = Rig()

    async def ask() -> None:
        client: Client = rig.connect()
        assert not rig.node.rooms.guarded
        response = await client.ask(DescribeAclsRequest(**_everything()), 3)
        assert response.error_code == ErrorCode.SECURITY_DISABLED
        creation = AclCreation(
            resource_type=2, resource_name="t", principal="User:x", host="*", operation=3, permission_type=3
        )
        made = await client.ask(CreateAclsRequest(creations=[creation]), 3)
        assert [each.error_code for each in made.results] == [ErrorCode.SECURITY_DISABLED]

    rig.run(ask)


def test_rules_that_cannot_be_applied_grant_nothing_until_they_can(monkeypatch: pytest.MonkeyPatch) -> None:
    """A rule that is gone must not go on granting, and the node must not stop, nor be unable to start."""
    super_user = "User:root"
    rig = Rig(properties={**CLOSED, "super.users": super_user})
    poisoned = False

    class FragileRules(AccessRules):
        def __init__(self, acls: Iterable[Acl], **how: Any) -> None:
            super().__init__(acls, **how)
            if poisoned and list(acls):
                raise ZeroDivisionError

    def may(principal: str) -> bool:
        authorizer = rig.node.rooms.authorizer
        assert authorizer is not None
        return authorizer.rules.allows(principal, "here", Operation.READ, TOPIC, "t")

    async def test() -> None:
        nonlocal poisoned
        await allow(rig, Operation.READ, TOPIC, "t")
        await allow(rig, Operation.DESCRIBE, CLUSTER, "kafka-cluster")
        assert may("User:ANONYMOUS")
        poisoned = True
        await allow(rig, Operation.READ, TOPIC, "u")
        assert not may("User:ANONYMOUS")
        assert may(super_user)
        await rig.restart()
        assert rig.node.failed is None
        assert not may("User:ANONYMOUS")
        assert may(super_user)
        poisoned = False
        await rig.node.rooms.controller.create_topics(_new_topic("another-commit"))
        assert may("User:ANONYMOUS")

    monkeypatch.setattr("odradek.server.access.authorizer.AccessRules", FragileRules)
    rig.run(test)
