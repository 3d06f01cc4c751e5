"""The records of `__cluster_metadata`, in the order of their keys; `serde` puts the frame around them."""

from __future__ import annotations

from odradek.protocol.codec import Message, Struct, field
from odradek.protocol.errors import MalformedFrame
from odradek.protocol.primitives import (
    BrokerId,
    TopicName,
    boolean,
    bytes_,
    float64,
    int8,
    int16,
    int32,
    int64,
    string,
    uint16,
    uuid,
)


class BrokerEndpoint(Struct):
    name: string
    host: string
    port: uint16
    security_protocol: int16


class BrokerFeature(Struct):
    name: string
    min_supported_version: int16
    max_supported_version: int16


class RegisterBrokerRecord(Message, api_key=0, versions="0-4", flexible="0+"):
    broker_id: BrokerId
    is_migrating_zk_broker: boolean = field(versions="2+", default=False)
    incarnation_id: uuid
    broker_epoch: int64
    end_points: list[BrokerEndpoint]
    features: list[BrokerFeature]
    rack: string | None = field(nullable="0+")
    fenced: boolean = True
    in_controlled_shutdown: boolean = field(versions="1+", default=False)
    log_dirs: list[uuid] = field(versions="3+", tag=0, default_factory=list)
    cordoned_log_dirs: list[uuid] | None = field(versions="4+", nullable="4+", tag=1, default=None)


class UnregisterBrokerRecord(Message, api_key=1, versions="0", flexible="0+"):
    broker_id: BrokerId
    broker_epoch: int64


class TopicRecord(Message, api_key=2, versions="0", flexible="0+"):
    name: TopicName
    topic_id: uuid


class PartitionRecord(Message, api_key=3, versions="0-2", flexible="0+"):
    partition_id: int32 = -1
    topic_id: uuid
    replicas: list[BrokerId]
    isr: list[int32]
    removing_replicas: list[BrokerId]
    adding_replicas: list[BrokerId]
    leader: BrokerId = -1
    leader_recovery_state: int8 = field(tag=0, default=0)
    leader_epoch: int32 = -1
    partition_epoch: int32 = -1
    directories: list[uuid] = field(versions="1+", default_factory=list)
    eligible_leader_replicas: list[BrokerId] | None = field(versions="2+", nullable="2+", tag=1, default=None)
    last_known_elr: list[BrokerId] | None = field(versions="2+", nullable="2+", tag=2, default=None)


class ConfigRecord(Message, api_key=4, versions="0", flexible="0+"):
    resource_type: int8
    resource_name: string
    name: string
    value: string | None = field(nullable="0+")


class PartitionChangeRecord(Message, api_key=5, versions="0-2", flexible="0+"):
    partition_id: int32 = -1
    topic_id: uuid
    isr: list[BrokerId] | None = field(nullable="0+", tag=0, default=None)
    leader: BrokerId = field(tag=1, default=-2)
    replicas: list[BrokerId] | None = field(nullable="0+", tag=2, default=None)
    removing_replicas: list[BrokerId] | None = field(nullable="0+", tag=3, default=None)
    adding_replicas: list[BrokerId] | None = field(nullable="0+", tag=4, default=None)
    leader_recovery_state: int8 = field(tag=5, default=-1)
    directories: list[uuid] | None = field(versions="1+", nullable="1+", tag=8, default=None)
    eligible_leader_replicas: list[BrokerId] | None = field(versions="2+", nullable="2+", tag=6, default=None)
    last_known_elr: list[BrokerId] | None = field(versions="2+", nullable="2+", tag=7, default=None)


class FenceBrokerRecord(Message, api_key=7, versions="0", flexible="0+"):
    id: BrokerId
    epoch: int64


class UnfenceBrokerRecord(Message, api_key=8, versions="0", flexible="0+"):
    id: BrokerId
    epoch: int64


class RemoveTopicRecord(Message, api_key=9, versions="0", flexible="0+"):
    topic_id: uuid


class DelegationTokenRecord(Message, api_key=10, versions="0", flexible="0+"):
    owner: string
    requester: string
    renewers: list[string]
    issue_timestamp: int64
    max_timestamp: int64
    expiration_timestamp: int64
    token_id: string


class UserScramCredentialRecord(Message, api_key=11, versions="0", flexible="0+"):
    name: string
    mechanism: int8
    salt: bytes_
    stored_key: bytes_
    server_key: bytes_
    iterations: int32


class FeatureLevelRecord(Message, api_key=12, versions="0", flexible="0+"):
    name: string
    feature_level: int16


class EntityData(Struct):
    entity_type: string
    entity_name: string | None = field(nullable="0+")


class ClientQuotaRecord(Message, api_key=14, versions="0", flexible="0+"):
    entity: list[EntityData]
    key: string
    value: float64
    remove: boolean


class ProducerIdsRecord(Message, api_key=15, versions="0", flexible="0+"):
    broker_id: BrokerId
    broker_epoch: int64 = -1
    next_producer_id: int64


class BrokerRegistrationChangeRecord(Message, api_key=17, versions="0-3", flexible="0+"):
    broker_id: BrokerId
    broker_epoch: int64
    fenced: int8 = field(tag=0, default=0)
    in_controlled_shutdown: int8 = field(versions="1+", tag=1, default=0)
    log_dirs: list[uuid] = field(versions="2+", tag=2, default_factory=list)
    cordoned_log_dirs: list[uuid] | None = field(versions="3+", nullable="3+", tag=3, default=None)


class AccessControlEntryRecord(Message, api_key=18, versions="0", flexible="0+"):
    id: uuid
    resource_type: int8
    resource_name: string
    pattern_type: int8
    principal: string
    host: string
    operation: int8
    permission_type: int8


class RemoveAccessControlEntryRecord(Message, api_key=19, versions="0", flexible="0+"):
    id: uuid


class NoOpRecord(Message, api_key=20, versions="0", flexible="0+"):
    """Empty."""


class ZkMigrationStateRecord(Message, api_key=21, versions="0", flexible="0+"):
    zk_migration_state: int8


class RemoveUserScramCredentialRecord(Message, api_key=22, versions="0", flexible="0+"):
    name: string
    mechanism: int8


class BeginTransactionRecord(Message, api_key=23, versions="0", flexible="0+"):
    name: string | None = field(nullable="0+", tag=0, default=None)


class EndTransactionRecord(Message, api_key=24, versions="0", flexible="0+"):
    """Empty."""


class AbortTransactionRecord(Message, api_key=25, versions="0", flexible="0+"):
    reason: string | None = field(nullable="0+", tag=0, default=None)


class RemoveDelegationTokenRecord(Message, api_key=26, versions="0", flexible="0+"):
    token_id: string


class ControllerEndpoint(Struct):
    name: string
    host: string
    port: uint16
    security_protocol: int16


class ControllerFeature(Struct):
    name: string
    min_supported_version: int16
    max_supported_version: int16


class RegisterControllerRecord(Message, api_key=27, versions="0", flexible="0+"):
    controller_id: int32
    incarnation_id: uuid
    zk_migration_ready: boolean
    end_points: list[ControllerEndpoint]
    features: list[ControllerFeature]


class ClearElrRecord(Message, api_key=28, versions="0", flexible="0+"):
    topic_name: TopicName


def record_class(api_key: int) -> type[Message]:
    """The record of that kind; MalformedFrame where this release knows none, since its meaning cannot be guessed."""
    try:
        return _BY_KEY[api_key]
    except KeyError:
        raise MalformedFrame(f"no metadata record has the kind {api_key}") from None


_BY_KEY: dict[int, type[Message]] = {
    record.api_key: record
    for record in (
        RegisterBrokerRecord,
        UnregisterBrokerRecord,
        TopicRecord,
        PartitionRecord,
        ConfigRecord,
        PartitionChangeRecord,
        FenceBrokerRecord,
        UnfenceBrokerRecord,
        RemoveTopicRecord,
        DelegationTokenRecord,
        UserScramCredentialRecord,
        FeatureLevelRecord,
        ClientQuotaRecord,
        ProducerIdsRecord,
        BrokerRegistrationChangeRecord,
        AccessControlEntryRecord,
        RemoveAccessControlEntryRecord,
        NoOpRecord,
        ZkMigrationStateRecord,
        RemoveUserScramCredentialRecord,
        BeginTransactionRecord,
        EndTransactionRecord,
        AbortTransactionRecord,
        RemoveDelegationTokenRecord,
        RegisterControllerRecord,
        ClearElrRecord,
    )
}
