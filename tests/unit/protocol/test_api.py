"""The registry of APIs: every announced one is declared, in the announced versions, with the right headers."""

from __future__ import annotations

import pkgutil

import pytest

import odradek.protocol.messages
from odradek.protocol.api import (
    NAMES_ALONE,
    ApiKey,
    request_class,
    request_header_version,
    response_class,
    response_header_version,
)

BROKER = """
Produce:0-13 Fetch:4-18 ListOffsets:1-11 Metadata:0-13 OffsetCommit:2-10 OffsetFetch:1-10 FindCoordinator:0-6
JoinGroup:0-9 Heartbeat:0-4 LeaveGroup:0-5 SyncGroup:0-5 DescribeGroups:0-6 ListGroups:0-5 SaslHandshake:0-1
ApiVersions:0-4 CreateTopics:2-7 DeleteTopics:1-6 DeleteRecords:0-2 InitProducerId:0-5 OffsetForLeaderEpoch:2-4
AddPartitionsToTxn:0-5 AddOffsetsToTxn:0-4 EndTxn:0-5 WriteTxnMarkers:1-2 TxnOffsetCommit:0-5 DescribeAcls:1-3
CreateAcls:1-3 DeleteAcls:1-3 DescribeConfigs:1-4 AlterConfigs:0-2 AlterReplicaLogDirs:1-2 DescribeLogDirs:1-5
SaslAuthenticate:0-2 CreatePartitions:0-3 CreateDelegationToken:1-3 RenewDelegationToken:1-2 ExpireDelegationToken:1-2
DescribeDelegationToken:1-3 DeleteGroups:0-2 ElectLeaders:0-2 IncrementalAlterConfigs:0-1
AlterPartitionReassignments:0-1 ListPartitionReassignments:0-0 OffsetDelete:0-0 DescribeClientQuotas:0-1
AlterClientQuotas:0-1 DescribeUserScramCredentials:0-0 AlterUserScramCredentials:0-0 DescribeQuorum:0-2
UpdateFeatures:0-2 DescribeCluster:0-2 DescribeProducers:0-0 UnregisterBroker:0-0 DescribeTransactions:0-0
ListTransactions:0-2 ConsumerGroupHeartbeat:0-1 ConsumerGroupDescribe:0-1 ListConfigResources:0-1
DescribeTopicPartitions:0-0 ShareGroupHeartbeat:1-1 ShareGroupDescribe:1-1 ShareFetch:1-2 ShareAcknowledge:1-2
AddRaftVoter:0-1 RemoveRaftVoter:0-0 InitializeShareGroupState:0-0 ReadShareGroupState:0-0 WriteShareGroupState:0-1
DeleteShareGroupState:0-0 ReadShareGroupStateSummary:0-1 StreamsGroupHeartbeat:0-0 StreamsGroupDescribe:0-0
DescribeShareGroupOffsets:0-1 AlterShareGroupOffsets:0-0 DeleteShareGroupOffsets:0-0
"""
"""What Apache Kafka 4.3.1 announced on a broker's listener, recorded from a running one."""

CONTROLLER = """
Fetch:4-18 SaslHandshake:0-1 ApiVersions:0-4 CreateTopics:2-7 DeleteTopics:1-6 DescribeAcls:1-3 CreateAcls:1-3
DeleteAcls:1-3 DescribeConfigs:1-4 AlterConfigs:0-2 SaslAuthenticate:0-2 CreatePartitions:0-3
CreateDelegationToken:1-3 RenewDelegationToken:1-2 ExpireDelegationToken:1-2 DescribeDelegationToken:1-3
ElectLeaders:0-2 IncrementalAlterConfigs:0-1 AlterPartitionReassignments:0-1 ListPartitionReassignments:0-0
AlterClientQuotas:0-1 DescribeUserScramCredentials:0-0 AlterUserScramCredentials:0-0 Vote:0-2 BeginQuorumEpoch:0-1
EndQuorumEpoch:0-1 DescribeQuorum:0-2 AlterPartition:2-3 UpdateFeatures:0-2 Envelope:0-0 FetchSnapshot:0-1
DescribeCluster:0-2 BrokerRegistration:0-4 BrokerHeartbeat:0-2 UnregisterBroker:0-0 AllocateProducerIds:0-0
ControllerRegistration:0-0 AssignReplicasToDirs:0-0 AddRaftVoter:0-1 RemoveRaftVoter:0-0 UpdateRaftVoter:0-0
"""
"""The same on a controller's listener."""

ANNOUNCED_BELOW_WHAT_IS_SERVED = {"Produce": 3}
"""Kafka announces Produce from 0, for old librdkafka, and serves it from 3."""

ANNOUNCED = [
    announced
    for announced in sorted({*BROKER.split(), *CONTROLLER.split()})
    if announced.partition(":")[0] not in {key.name.title().replace("_", "") for key in NAMES_ALONE}
]

NOT_APIS = {"consumer_protocol", "control_records", "default_principal", "quorum_state"}


@pytest.mark.parametrize("announced", ANNOUNCED)
def test_announced_versions_are_declared(announced: str) -> None:
    name, _, versions = announced.partition(":")
    low, _, high = versions.partition("-")
    key = next(key for key in ApiKey if key.name.title().replace("_", "") == name)
    request, response = request_class(key), response_class(key)
    assert request.min_version == response.min_version == ANNOUNCED_BELOW_WHAT_IS_SERVED.get(name, int(low))
    assert request.max_stable_version == int(high)
    assert response.versions == request.versions


@pytest.mark.parametrize("key", [key for key in ApiKey if key not in NAMES_ALONE])
def test_each_api_is_declared_under_its_own_key(key: ApiKey) -> None:
    assert request_class(key).api_key == response_class(key).api_key == key
    assert request_class(key) is request_class(key)
    assert (request_class(key).flexible, request_class(key).versions) == (
        response_class(key).flexible,
        response_class(key).versions,
    )


def test_every_module_of_messages_is_an_api_or_named_here() -> None:
    modules = {module.name for module in pkgutil.iter_modules(odradek.protocol.messages.__path__)}
    assert modules == {key.name.lower() for key in ApiKey if key not in NAMES_ALONE} | NOT_APIS


@pytest.mark.parametrize(
    ("key", "version", "request_header", "response_header"),
    [
        (ApiKey.PRODUCE, 8, 1, 0),
        (ApiKey.PRODUCE, 9, 2, 1),
        (ApiKey.API_VERSIONS, 2, 1, 0),
        (ApiKey.API_VERSIONS, 3, 2, 0),
        (ApiKey.API_VERSIONS, 4, 2, 0),
        (ApiKey.API_VERSIONS, 5, 2, 0),
        (ApiKey.SASL_HANDSHAKE, 1, 1, 0),
        (ApiKey.CONTROLLED_SHUTDOWN, 0, 0, 0),
        (ApiKey.CONTROLLED_SHUTDOWN, 3, 2, 1),
        (ApiKey.VOTE, 0, 2, 1),
    ],
)
def test_header_versions(key: ApiKey, version: int, request_header: int, response_header: int) -> None:
    assert request_header_version(key, version) == request_header
    assert response_header_version(key, version) == response_header
