"""The protocol's errors: every code of Kafka 4.3 once, whether trying again may help, and what to say by default."""

from __future__ import annotations

from enum import IntEnum


class ErrorCode(IntEnum):
    """The whole list, under Kafka's names."""

    UNKNOWN_SERVER_ERROR = -1
    NONE = 0
    OFFSET_OUT_OF_RANGE = 1
    CORRUPT_MESSAGE = 2
    UNKNOWN_TOPIC_OR_PARTITION = 3
    INVALID_FETCH_SIZE = 4
    LEADER_NOT_AVAILABLE = 5
    NOT_LEADER_OR_FOLLOWER = 6
    REQUEST_TIMED_OUT = 7
    BROKER_NOT_AVAILABLE = 8
    REPLICA_NOT_AVAILABLE = 9
    MESSAGE_TOO_LARGE = 10
    STALE_CONTROLLER_EPOCH = 11
    OFFSET_METADATA_TOO_LARGE = 12
    NETWORK_EXCEPTION = 13
    COORDINATOR_LOAD_IN_PROGRESS = 14
    COORDINATOR_NOT_AVAILABLE = 15
    NOT_COORDINATOR = 16
    INVALID_TOPIC_EXCEPTION = 17
    RECORD_LIST_TOO_LARGE = 18
    NOT_ENOUGH_REPLICAS = 19
    NOT_ENOUGH_REPLICAS_AFTER_APPEND = 20
    INVALID_REQUIRED_ACKS = 21
    ILLEGAL_GENERATION = 22
    INCONSISTENT_GROUP_PROTOCOL = 23
    INVALID_GROUP_ID = 24
    UNKNOWN_MEMBER_ID = 25
    INVALID_SESSION_TIMEOUT = 26
    REBALANCE_IN_PROGRESS = 27
    INVALID_COMMIT_OFFSET_SIZE = 28
    TOPIC_AUTHORIZATION_FAILED = 29
    GROUP_AUTHORIZATION_FAILED = 30
    CLUSTER_AUTHORIZATION_FAILED = 31
    INVALID_TIMESTAMP = 32
    UNSUPPORTED_SASL_MECHANISM = 33
    ILLEGAL_SASL_STATE = 34
    UNSUPPORTED_VERSION = 35
    TOPIC_ALREADY_EXISTS = 36
    INVALID_PARTITIONS = 37
    INVALID_REPLICATION_FACTOR = 38
    INVALID_REPLICA_ASSIGNMENT = 39
    INVALID_CONFIG = 40
    NOT_CONTROLLER = 41
    INVALID_REQUEST = 42
    UNSUPPORTED_FOR_MESSAGE_FORMAT = 43
    POLICY_VIOLATION = 44
    OUT_OF_ORDER_SEQUENCE_NUMBER = 45
    DUPLICATE_SEQUENCE_NUMBER = 46
    INVALID_PRODUCER_EPOCH = 47
    INVALID_TXN_STATE = 48
    INVALID_PRODUCER_ID_MAPPING = 49
    INVALID_TRANSACTION_TIMEOUT = 50
    CONCURRENT_TRANSACTIONS = 51
    TRANSACTION_COORDINATOR_FENCED = 52
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED = 53
    SECURITY_DISABLED = 54
    OPERATION_NOT_ATTEMPTED = 55
    KAFKA_STORAGE_ERROR = 56
    LOG_DIR_NOT_FOUND = 57
    SASL_AUTHENTICATION_FAILED = 58
    UNKNOWN_PRODUCER_ID = 59
    REASSIGNMENT_IN_PROGRESS = 60
    DELEGATION_TOKEN_AUTH_DISABLED = 61
    DELEGATION_TOKEN_NOT_FOUND = 62
    DELEGATION_TOKEN_OWNER_MISMATCH = 63
    DELEGATION_TOKEN_REQUEST_NOT_ALLOWED = 64
    DELEGATION_TOKEN_AUTHORIZATION_FAILED = 65
    DELEGATION_TOKEN_EXPIRED = 66
    INVALID_PRINCIPAL_TYPE = 67
    NON_EMPTY_GROUP = 68
    GROUP_ID_NOT_FOUND = 69
    FETCH_SESSION_ID_NOT_FOUND = 70
    INVALID_FETCH_SESSION_EPOCH = 71
    LISTENER_NOT_FOUND = 72
    TOPIC_DELETION_DISABLED = 73
    FENCED_LEADER_EPOCH = 74
    UNKNOWN_LEADER_EPOCH = 75
    UNSUPPORTED_COMPRESSION_TYPE = 76
    STALE_BROKER_EPOCH = 77
    OFFSET_NOT_AVAILABLE = 78
    MEMBER_ID_REQUIRED = 79
    PREFERRED_LEADER_NOT_AVAILABLE = 80
    GROUP_MAX_SIZE_REACHED = 81
    FENCED_INSTANCE_ID = 82
    ELIGIBLE_LEADERS_NOT_AVAILABLE = 83
    ELECTION_NOT_NEEDED = 84
    NO_REASSIGNMENT_IN_PROGRESS = 85
    GROUP_SUBSCRIBED_TO_TOPIC = 86
    INVALID_RECORD = 87
    UNSTABLE_OFFSET_COMMIT = 88
    THROTTLING_QUOTA_EXCEEDED = 89
    PRODUCER_FENCED = 90
    RESOURCE_NOT_FOUND = 91
    DUPLICATE_RESOURCE = 92
    UNACCEPTABLE_CREDENTIAL = 93
    INCONSISTENT_VOTER_SET = 94
    INVALID_UPDATE_VERSION = 95
    FEATURE_UPDATE_FAILED = 96
    PRINCIPAL_DESERIALIZATION_FAILURE = 97
    SNAPSHOT_NOT_FOUND = 98
    POSITION_OUT_OF_RANGE = 99
    UNKNOWN_TOPIC_ID = 100
    DUPLICATE_BROKER_REGISTRATION = 101
    BROKER_ID_NOT_REGISTERED = 102
    INCONSISTENT_TOPIC_ID = 103
    INCONSISTENT_CLUSTER_ID = 104
    TRANSACTIONAL_ID_NOT_FOUND = 105
    FETCH_SESSION_TOPIC_ID_ERROR = 106
    INELIGIBLE_REPLICA = 107
    NEW_LEADER_ELECTED = 108
    OFFSET_MOVED_TO_TIERED_STORAGE = 109
    FENCED_MEMBER_EPOCH = 110
    UNRELEASED_INSTANCE_ID = 111
    UNSUPPORTED_ASSIGNOR = 112
    STALE_MEMBER_EPOCH = 113
    MISMATCHED_ENDPOINT_TYPE = 114
    UNSUPPORTED_ENDPOINT_TYPE = 115
    UNKNOWN_CONTROLLER_ID = 116
    UNKNOWN_SUBSCRIPTION_ID = 117
    TELEMETRY_TOO_LARGE = 118
    INVALID_REGISTRATION = 119
    TRANSACTION_ABORTABLE = 120
    INVALID_RECORD_STATE = 121
    SHARE_SESSION_NOT_FOUND = 122
    INVALID_SHARE_SESSION_EPOCH = 123
    FENCED_STATE_EPOCH = 124
    INVALID_VOTER_KEY = 125
    DUPLICATE_VOTER = 126
    VOTER_NOT_FOUND = 127
    INVALID_REGULAR_EXPRESSION = 128
    REBOOTSTRAP_REQUIRED = 129
    STREAMS_INVALID_TOPOLOGY = 130
    STREAMS_INVALID_TOPOLOGY_EPOCH = 131
    STREAMS_TOPOLOGY_FENCED = 132
    SHARE_SESSION_LIMIT_REACHED = 133

    @property
    def retriable(self) -> bool:
        """Whether the same request may succeed later."""
        return self in _RETRIABLE

    @property
    def default_message(self) -> str:
        """What to tell a client where nothing more exact is known."""
        return _MESSAGES.get(self, self.name.replace("_", " ").capitalize() + ".")


class KafkaError(Exception):
    """Expected, part of the protocol: becomes a field of a response."""

    record_errors: tuple[tuple[int, str], ...] = ()
    """Of a batch that was refused: which of its records are wrong, and how (KIP-467)."""

    def __init__(self, code: ErrorCode, message: str = "") -> None:
        super().__init__(message or code.name)
        self.code = code
        self.message = message or code.default_message


class MalformedFrame(Exception):
    """Bytes that are no valid message: nothing after them can be trusted, so the connection is closed."""


_RETRIABLE = frozenset(
    {
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.NOT_CONTROLLER,
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
        ErrorCode.INVALID_FETCH_SESSION_EPOCH,
        ErrorCode.LISTENER_NOT_FOUND,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.OFFSET_NOT_AVAILABLE,
        ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
        ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE,
        ErrorCode.ELECTION_NOT_NEEDED,
        ErrorCode.UNSTABLE_OFFSET_COMMIT,
        ErrorCode.THROTTLING_QUOTA_EXCEEDED,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
        ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
        ErrorCode.SHARE_SESSION_NOT_FOUND,
        ErrorCode.INVALID_SHARE_SESSION_EPOCH,
        ErrorCode.SHARE_SESSION_LIMIT_REACHED,
    }
)

_MESSAGES = {
    ErrorCode.UNKNOWN_SERVER_ERROR: "The server failed in a way it did not expect.",
    ErrorCode.NONE: "NONE",
    ErrorCode.OFFSET_OUT_OF_RANGE: "The log has no such offset.",
    ErrorCode.CORRUPT_MESSAGE: "The message is corrupt: wrong checksum, wrong size, or no key on a compacted topic.",
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "This server has no such topic or partition.",
    ErrorCode.INVALID_FETCH_SIZE: "The fetch size is not valid.",
    ErrorCode.LEADER_NOT_AVAILABLE: "The partition has no leader at the moment.",
    ErrorCode.NOT_LEADER_OR_FOLLOWER: "This broker does not lead the partition, or holds no replica of it.",
    ErrorCode.REQUEST_TIMED_OUT: "The request took too long.",
    ErrorCode.BROKER_NOT_AVAILABLE: "The broker cannot be reached.",
    ErrorCode.REPLICA_NOT_AVAILABLE: "The replica cannot be reached.",
    ErrorCode.MESSAGE_TOO_LARGE: "The message is larger than the server accepts.",
    ErrorCode.STALE_CONTROLLER_EPOCH: "Another broker has become controller.",
    ErrorCode.OFFSET_METADATA_TOO_LARGE: "The metadata string beside the offset is too long.",
    ErrorCode.NETWORK_EXCEPTION: "The server went away before it answered.",
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: "The coordinator is still loading.",
    ErrorCode.COORDINATOR_NOT_AVAILABLE: "The coordinator cannot be reached.",
    ErrorCode.NOT_COORDINATOR: "This broker is not the coordinator asked for.",
    ErrorCode.INVALID_TOPIC_EXCEPTION: "The topic is not one this operation may be done on.",
    ErrorCode.RECORD_LIST_TOO_LARGE: "The batch is larger than a segment.",
    ErrorCode.NOT_ENOUGH_REPLICAS: "Fewer replicas are in sync than the topic demands; nothing was written.",
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: "Written, but fewer replicas are in sync than the topic demands.",
    ErrorCode.INVALID_REQUIRED_ACKS: "acks must be -1, 0 or 1.",
    ErrorCode.ILLEGAL_GENERATION: "That is not the group's generation.",
    ErrorCode.INCONSISTENT_GROUP_PROTOCOL: "The member shares no protocol with the group.",
    ErrorCode.INVALID_GROUP_ID: "The group id is not valid.",
    ErrorCode.UNKNOWN_MEMBER_ID: "The coordinator does not know this member.",
    ErrorCode.INVALID_SESSION_TIMEOUT: "The session timeout is outside the range the broker allows.",
    ErrorCode.REBALANCE_IN_PROGRESS: "The group is rebalancing; the member must join again.",
    ErrorCode.INVALID_COMMIT_OFFSET_SIZE: "The committed offset's data has a wrong size.",
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: "Not authorized for the topic.",
    ErrorCode.GROUP_AUTHORIZATION_FAILED: "Not authorized for the group.",
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: "Not authorized for the cluster.",
    ErrorCode.INVALID_TIMESTAMP: "The message's timestamp is outside the accepted range.",
    ErrorCode.UNSUPPORTED_SASL_MECHANISM: "The broker does not offer this SASL mechanism.",
    ErrorCode.ILLEGAL_SASL_STATE: "The request does not fit the state of authentication.",
    ErrorCode.UNSUPPORTED_VERSION: "The version of the API is not supported.",
    ErrorCode.TOPIC_ALREADY_EXISTS: "A topic with this name exists already.",
    ErrorCode.INVALID_PARTITIONS: "A topic needs at least one partition.",
    ErrorCode.INVALID_REPLICATION_FACTOR: "The replication factor is below 1 or above the number of brokers.",
    ErrorCode.INVALID_REPLICA_ASSIGNMENT: "The assignment of replicas is not valid.",
    ErrorCode.INVALID_CONFIG: "The configuration is not valid.",
    ErrorCode.NOT_CONTROLLER: "This node is not the active controller.",
    ErrorCode.INVALID_REQUEST: "The request makes no sense to this broker; its log says more.",
    ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT: "The log's message format cannot do this.",
    ErrorCode.POLICY_VIOLATION: "A policy of this cluster forbids it.",
    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER: "The batch's sequence number does not follow the last one.",
    ErrorCode.DUPLICATE_SEQUENCE_NUMBER: "The batch's sequence number was seen before.",
    ErrorCode.INVALID_PRODUCER_EPOCH: "The producer's epoch is an old one.",
    ErrorCode.INVALID_TXN_STATE: "The transaction is in no state for this.",
    ErrorCode.INVALID_PRODUCER_ID_MAPPING: "The producer id does not belong to this transactional id.",
    ErrorCode.INVALID_TRANSACTION_TIMEOUT: "The transaction timeout is above transaction.max.timeout.ms.",
    ErrorCode.CONCURRENT_TRANSACTIONS: "Another operation on this transaction is still under way.",
    ErrorCode.TRANSACTION_COORDINATOR_FENCED: "The marker comes from a coordinator that has been replaced.",
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "Not authorized for the transactional id.",
    ErrorCode.SECURITY_DISABLED: "Security is switched off.",
    ErrorCode.OPERATION_NOT_ATTEMPTED: "Not tried, because another operation of the same request failed.",
    ErrorCode.KAFKA_STORAGE_ERROR: "The disk under the log failed.",
    ErrorCode.LOG_DIR_NOT_FOUND: "The broker has no such log directory.",
    ErrorCode.SASL_AUTHENTICATION_FAILED: "Authentication failed.",
    ErrorCode.UNKNOWN_PRODUCER_ID: "The broker remembers nothing of this producer id.",
    ErrorCode.REASSIGNMENT_IN_PROGRESS: "The partition is being reassigned.",
    ErrorCode.NON_EMPTY_GROUP: "The group still has members.",
    ErrorCode.GROUP_ID_NOT_FOUND: "There is no such group.",
    ErrorCode.FETCH_SESSION_ID_NOT_FOUND: "There is no such fetch session.",
    ErrorCode.INVALID_FETCH_SESSION_EPOCH: "That is not the fetch session's epoch.",
    ErrorCode.LISTENER_NOT_FOUND: "The leader has no listener of the name this request came through.",
    ErrorCode.TOPIC_DELETION_DISABLED: "delete.topic.enable is false.",
    ErrorCode.FENCED_LEADER_EPOCH: "The leader epoch is older than the broker's.",
    ErrorCode.UNKNOWN_LEADER_EPOCH: "The leader epoch is newer than the broker's.",
    ErrorCode.UNSUPPORTED_COMPRESSION_TYPE: "The client cannot read the partition's compression.",
    ErrorCode.STALE_BROKER_EPOCH: "The broker has registered anew since.",
    ErrorCode.OFFSET_NOT_AVAILABLE: "The new leader does not know the high watermark of its epoch yet.",
    ErrorCode.MEMBER_ID_REQUIRED: "Join again with the member id given here.",
    ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE: "The preferred leader cannot lead now.",
    ErrorCode.GROUP_MAX_SIZE_REACHED: "The group is full.",
    ErrorCode.FENCED_INSTANCE_ID: "Another member has taken over this group.instance.id.",
    ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE: "No eligible replica can lead now.",
    ErrorCode.ELECTION_NOT_NEEDED: "The partition needs no election.",
    ErrorCode.NO_REASSIGNMENT_IN_PROGRESS: "The partition is not being reassigned.",
    ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC: "The group is subscribed to the topic, so its offsets stay.",
    ErrorCode.INVALID_RECORD: "The record did not pass the broker's checks.",
    ErrorCode.UNSTABLE_OFFSET_COMMIT: "Offsets of an open transaction stand in the way.",
    ErrorCode.THROTTLING_QUOTA_EXCEEDED: "The quota is used up for now.",
    ErrorCode.PRODUCER_FENCED: "A newer producer has taken over this transactional id.",
    ErrorCode.RESOURCE_NOT_FOUND: "There is no such resource.",
    ErrorCode.DUPLICATE_RESOURCE: "The request names one resource twice.",
    ErrorCode.UNACCEPTABLE_CREDENTIAL: "The credential does not meet the rules.",
    ErrorCode.INCONSISTENT_VOTER_SET: "Sender or receiver is not among the voters.",
    ErrorCode.SNAPSHOT_NOT_FOUND: "There is no such snapshot.",
    ErrorCode.POSITION_OUT_OF_RANGE: "The position lies outside the snapshot.",
    ErrorCode.UNKNOWN_TOPIC_ID: "This server has no topic of this id.",
    ErrorCode.DUPLICATE_BROKER_REGISTRATION: "Another broker has this id.",
    ErrorCode.BROKER_ID_NOT_REGISTERED: "No broker of this id is registered.",
    ErrorCode.INCONSISTENT_TOPIC_ID: "The log belongs to a topic of another id.",
    ErrorCode.INCONSISTENT_CLUSTER_ID: "The request is meant for another cluster.",
    ErrorCode.TRANSACTIONAL_ID_NOT_FOUND: "There is no such transactional id.",
    ErrorCode.INELIGIBLE_REPLICA: "The new ISR holds a replica that may not be in it.",
    ErrorCode.NEW_LEADER_ELECTED: "The partition was changed, and it has a new leader.",
    ErrorCode.FENCED_MEMBER_EPOCH: "The member's epoch is fenced: it gives up its partitions and joins again.",
    ErrorCode.UNRELEASED_INSTANCE_ID: "Another member of the group still holds this instance id.",
    ErrorCode.UNSUPPORTED_ASSIGNOR: "The group does not offer this assignor.",
    ErrorCode.STALE_MEMBER_EPOCH: "The member's epoch is old; the next heartbeat brings the new one.",
    ErrorCode.MISMATCHED_ENDPOINT_TYPE: "The request belongs to another kind of endpoint.",
    ErrorCode.INVALID_REGISTRATION: "The controller refuses the broker's registration.",
    ErrorCode.TRANSACTION_ABORTABLE: "The transaction can only be aborted now.",
    ErrorCode.INVALID_VOTER_KEY: "The voter's key is not this replica's.",
    ErrorCode.DUPLICATE_VOTER: "It is a voter already.",
    ErrorCode.VOTER_NOT_FOUND: "It is no voter.",
    ErrorCode.INVALID_REGULAR_EXPRESSION: "The regular expression is not valid.",
    ErrorCode.REBOOTSTRAP_REQUIRED: "The client's metadata is stale; it must start from its bootstrap servers.",
}
