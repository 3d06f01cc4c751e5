"""What a node serves, at a glance: enough to tell a client before any of the handlers is loaded.

The handlers themselves say the same with `@serves`, and a test holds the two equal; each is imported when the first
request of its kind comes, since a node that starts needs few of them.
"""

from __future__ import annotations

import enum

from odradek.protocol.api import ApiKey
from odradek.values import value


class Role(enum.Flag):
    """Who answers on a listener."""

    BROKER = enum.auto()
    CONTROLLER = enum.auto()


BROKER, CONTROLLER = Role.BROKER, Role.CONTROLLER
EVERYWHERE = BROKER | CONTROLLER


@value
class Served:
    """One API: the module of its handler in `server/handlers`, where it is served, and in which versions."""

    module: str
    api_key: ApiKey
    roles: Role
    min_version: int
    max_version: int
    announced_min: int | None = None
    """Where clients are told of more than is served, as Kafka does for Produce."""

    @property
    def announced_min_version(self) -> int:
        return self.min_version if self.announced_min is None else self.announced_min


SERVED = (
    Served("add_offsets_to_txn", ApiKey.ADD_OFFSETS_TO_TXN, BROKER, 0, 4),
    Served("add_partitions_to_txn", ApiKey.ADD_PARTITIONS_TO_TXN, BROKER, 0, 5),
    Served("add_raft_voter", ApiKey.ADD_RAFT_VOTER, EVERYWHERE, 0, 1),
    Served("allocate_producer_ids", ApiKey.ALLOCATE_PRODUCER_IDS, CONTROLLER, 0, 0),
    Served("alter_client_quotas", ApiKey.ALTER_CLIENT_QUOTAS, EVERYWHERE, 0, 1),
    Served("alter_configs", ApiKey.ALTER_CONFIGS, EVERYWHERE, 0, 2),
    Served("alter_partition", ApiKey.ALTER_PARTITION, CONTROLLER, 2, 3),
    Served("alter_partition_reassignments", ApiKey.ALTER_PARTITION_REASSIGNMENTS, EVERYWHERE, 0, 1),
    Served("alter_user_scram_credentials", ApiKey.ALTER_USER_SCRAM_CREDENTIALS, EVERYWHERE, 0, 0),
    Served("api_versions", ApiKey.API_VERSIONS, EVERYWHERE, 0, 4),
    Served("assign_replicas_to_dirs", ApiKey.ASSIGN_REPLICAS_TO_DIRS, CONTROLLER, 0, 0),
    Served("begin_quorum_epoch", ApiKey.BEGIN_QUORUM_EPOCH, CONTROLLER, 0, 1),
    Served("broker_heartbeat", ApiKey.BROKER_HEARTBEAT, CONTROLLER, 0, 2),
    Served("broker_registration", ApiKey.BROKER_REGISTRATION, CONTROLLER, 0, 4),
    Served("consumer_group_describe", ApiKey.CONSUMER_GROUP_DESCRIBE, BROKER, 0, 1),
    Served("consumer_group_heartbeat", ApiKey.CONSUMER_GROUP_HEARTBEAT, BROKER, 0, 1),
    Served("controller_registration", ApiKey.CONTROLLER_REGISTRATION, CONTROLLER, 0, 0),
    Served("create_acls", ApiKey.CREATE_ACLS, EVERYWHERE, 1, 3),
    Served("create_partitions", ApiKey.CREATE_PARTITIONS, EVERYWHERE, 0, 3),
    Served("create_topics", ApiKey.CREATE_TOPICS, EVERYWHERE, 2, 7),
    Served("delete_acls", ApiKey.DELETE_ACLS, EVERYWHERE, 1, 3),
    Served("delete_groups", ApiKey.DELETE_GROUPS, BROKER, 0, 2),
    Served("delete_records", ApiKey.DELETE_RECORDS, BROKER, 0, 2),
    Served("delete_topics", ApiKey.DELETE_TOPICS, EVERYWHERE, 1, 6),
    Served("describe_acls", ApiKey.DESCRIBE_ACLS, EVERYWHERE, 1, 3),
    Served("describe_client_quotas", ApiKey.DESCRIBE_CLIENT_QUOTAS, BROKER, 0, 1),
    Served("describe_cluster", ApiKey.DESCRIBE_CLUSTER, EVERYWHERE, 0, 2),
    Served("describe_configs", ApiKey.DESCRIBE_CONFIGS, EVERYWHERE, 1, 4),
    Served("describe_groups", ApiKey.DESCRIBE_GROUPS, BROKER, 0, 6),
    Served("describe_log_dirs", ApiKey.DESCRIBE_LOG_DIRS, BROKER, 1, 5),
    Served("describe_producers", ApiKey.DESCRIBE_PRODUCERS, BROKER, 0, 0),
    Served("describe_quorum", ApiKey.DESCRIBE_QUORUM, EVERYWHERE, 0, 2),
    Served("describe_topic_partitions", ApiKey.DESCRIBE_TOPIC_PARTITIONS, BROKER, 0, 0),
    Served("describe_transactions", ApiKey.DESCRIBE_TRANSACTIONS, BROKER, 0, 0),
    Served("describe_user_scram_credentials", ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, BROKER, 0, 0),
    Served("elect_leaders", ApiKey.ELECT_LEADERS, EVERYWHERE, 0, 2),
    Served("end_quorum_epoch", ApiKey.END_QUORUM_EPOCH, CONTROLLER, 0, 1),
    Served("end_txn", ApiKey.END_TXN, BROKER, 0, 5),
    Served("envelope", ApiKey.ENVELOPE, CONTROLLER, 0, 0),
    Served("fetch", ApiKey.FETCH, BROKER, 4, 18),
    Served("fetch_metadata_log", ApiKey.FETCH, CONTROLLER, 4, 18),
    Served("fetch_snapshot", ApiKey.FETCH_SNAPSHOT, CONTROLLER, 0, 1),
    Served("find_coordinator", ApiKey.FIND_COORDINATOR, BROKER, 0, 6),
    Served("heartbeat", ApiKey.HEARTBEAT, BROKER, 0, 4),
    Served("incremental_alter_configs", ApiKey.INCREMENTAL_ALTER_CONFIGS, EVERYWHERE, 0, 1),
    Served("init_producer_id", ApiKey.INIT_PRODUCER_ID, BROKER, 0, 5),
    Served("join_group", ApiKey.JOIN_GROUP, BROKER, 0, 9),
    Served("leave_group", ApiKey.LEAVE_GROUP, BROKER, 0, 5),
    Served("list_config_resources", ApiKey.LIST_CONFIG_RESOURCES, BROKER, 0, 1),
    Served("list_groups", ApiKey.LIST_GROUPS, BROKER, 0, 5),
    Served("list_offsets", ApiKey.LIST_OFFSETS, BROKER, 1, 11),
    Served("list_partition_reassignments", ApiKey.LIST_PARTITION_REASSIGNMENTS, EVERYWHERE, 0, 0),
    Served("list_transactions", ApiKey.LIST_TRANSACTIONS, BROKER, 0, 2),
    Served("metadata", ApiKey.METADATA, BROKER, 0, 13),
    Served("offset_commit", ApiKey.OFFSET_COMMIT, BROKER, 2, 10),
    Served("offset_delete", ApiKey.OFFSET_DELETE, BROKER, 0, 0),
    Served("offset_fetch", ApiKey.OFFSET_FETCH, BROKER, 1, 10),
    Served("offset_for_leader_epoch", ApiKey.OFFSET_FOR_LEADER_EPOCH, BROKER, 2, 4),
    Served("produce", ApiKey.PRODUCE, BROKER, 3, 13, 0),
    Served("remove_raft_voter", ApiKey.REMOVE_RAFT_VOTER, EVERYWHERE, 0, 0),
    Served("sync_group", ApiKey.SYNC_GROUP, BROKER, 0, 5),
    Served("txn_offset_commit", ApiKey.TXN_OFFSET_COMMIT, BROKER, 0, 5),
    Served("unregister_broker", ApiKey.UNREGISTER_BROKER, EVERYWHERE, 0, 0),
    Served("update_features", ApiKey.UPDATE_FEATURES, EVERYWHERE, 0, 2),
    Served("update_raft_voter", ApiKey.UPDATE_RAFT_VOTER, CONTROLLER, 0, 0),
    Served("vote", ApiKey.VOTE, CONTROLLER, 0, 2),
    Served("write_txn_markers", ApiKey.WRITE_TXN_MARKERS, BROKER, 1, 2),
)


def served_on(role: Role) -> dict[ApiKey, Served]:
    """All that a listener of that role serves, by key in ascending order."""
    return {each.api_key: each for each in sorted(SERVED, key=_key) if each.roles & role}


def _key(each: Served) -> int:
    return each.api_key
