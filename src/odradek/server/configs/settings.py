"""The keys of `server.properties` that a node honours, each declared once: attribute, type, default, range, meaning.

Names, defaults and ranges are Kafka 4.3's. `docs/reference/configs.md` is written from this table.
"""

from __future__ import annotations

import sys
from typing import Any, Generic, TypeVar, overload

from odradek.configdef import (
    INT_MAX,
    LONG_MAX,
    Choices,
    ConfigKey,
    ConfigTable,
    ConfigType,
    ConfigValue,
    Dynamic,
    Importance,
    NotEmpty,
    Range,
    RangeOr,
    Validator,
)
from odradek.storage.config import KAFKA_DEFAULTS, TOPIC_CONFIGS
from odradek.values import value

ValueT = TypeVar("ValueT")

HIGH, MEDIUM, LOW = Importance.HIGH, Importance.MEDIUM, Importance.LOW
RACK_AWARE_SELECTOR = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
LEADER_SELECTOR = "org.apache.kafka.common.replica.LeaderSelector"
BOOLEAN, STRING, SHORT, INT, LONG, DOUBLE, LIST = (
    ConfigType.BOOLEAN,
    ConfigType.STRING,
    ConfigType.SHORT,
    ConfigType.INT,
    ConfigType.LONG,
    ConfigType.DOUBLE,
    ConfigType.LIST,
)
REQUIRED: Any = object()
"""Stands for the default of a key that must be given."""


@value
class ListenerSetting:
    """A place where a node is reached: as it binds, or as it tells others."""

    name: str
    host: str
    port: int
    security_protocol: str = "PLAINTEXT"

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.name}://{host}:{self.port}"


@value
class VoterSetting:
    """An entry of `controller.quorum.voters`."""

    node_id: int
    host: str
    port: int


class Setting(Generic[ValueT]):
    """One key as a class attribute; the key's name is the attribute's, with dots.

    Loading puts the value into the instance's own dictionary, which Python looks into before a descriptor without
    `__set__`, so reading a setting costs what reading any attribute costs.
    """

    def __init__(
        self,
        kind: ConfigType,
        default: ConfigValue,
        doc: str,
        valid: Validator | None = None,
        importance: Importance = MEDIUM,
        *,
        dynamic: bool = False,
        internal: bool = False,
    ) -> None:
        self._declared = (kind, default, doc, valid, importance, dynamic, internal)

    def __set_name__(self, owner: type, name: str) -> None:
        kind, default, doc, valid, importance, dynamic, internal = self._declared
        required = default is REQUIRED
        self.key = ConfigKey(
            name.replace("_", "."),
            kind,
            None if required else default,
            doc,
            valid,
            importance,
            Dynamic.CLUSTER_WIDE if dynamic else Dynamic.READ_ONLY,
            required,
            internal,
        )

    @overload
    def __get__(self, instance: None, owner: type) -> Setting[ValueT]: ...
    @overload
    def __get__(self, instance: object, owner: type) -> ValueT: ...
    def __get__(self, instance: object | None, owner: type) -> Setting[ValueT] | ValueT:
        if instance is None:
            return self
        raise AttributeError(f"{self.key.name} was not loaded")


class NodeSettings:
    """What `server.properties` may say about a node, by area."""

    # Who this node is
    node_id = Setting[int](INT, REQUIRED, "The node's number, unique in its cluster.", Range(0), HIGH)
    process_roles = Setting[tuple[str, ...]](
        LIST,
        REQUIRED,
        "What the node is: `broker`, `controller`, or both.",
        Choices(("broker", "controller")),
        HIGH,
    )
    broker_rack = Setting[str | None](STRING, None, "The rack the broker says it stands in.")

    # Where it listens
    listeners = Setting[tuple[ListenerSetting, ...]](
        LIST,
        ("PLAINTEXT://:9092",),
        "Where the node listens, as `NAME://host:port`; an empty host is every interface, port 0 any free port.",
        NotEmpty(),
        HIGH,
    )
    advertised_listeners = Setting[tuple[ListenerSetting, ...]](
        LIST, None, "What clients are told to connect to, if not `listeners`.", None, HIGH
    )
    listener_security_protocol_map = Setting[dict[str, str]](
        STRING,
        "SASL_SSL:SASL_SSL,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT",
        "Which security protocol each listener name uses; only PLAINTEXT can be served.",
        None,
        LOW,
    )
    inter_broker_listener_name = Setting[str](STRING, None, "The listener that other brokers use.")
    controller_listener_names = Setting[tuple[str, ...]](
        LIST, REQUIRED, "The listeners that belong to the controller.", NotEmpty(), HIGH
    )
    controller_quorum_voters = Setting[tuple[VoterSetting, ...]](
        LIST, (), "The controllers of a static quorum, all of them, as `id@host:port`.", None, HIGH
    )
    controller_quorum_bootstrap_servers = Setting[tuple[str, ...]](
        LIST, (), "Where to find controllers of a dynamic quorum, as `host:port`.", None, HIGH
    )

    odradek_http_listener = Setting[ListenerSetting | None](
        STRING,
        None,
        "Where Prometheus reads `/metrics` and anyone `/health`, as `http://host:port`; without it nowhere.",
    )

    odradek_validate_records = Setting[str](
        STRING,
        "all",
        "Whether each record of a producer's batch is looked at, as Kafka does it (`all`), or only the batch's header "
        "(`headers`), which costs less and believes whoever may write: a batch that cannot be read then blocks its "
        "partition for every consumer.",
        Choices(("all", "headers")),
    )

    # Connections and requests
    socket_request_max_bytes = Setting[int](
        INT, 104_857_600, "The largest request; a larger one closes its connection.", Range(1), HIGH
    )
    connections_max_idle_ms = Setting[int](
        LONG, 600_000, "After how long without a request a connection is closed; negative is never."
    )
    max_connections = Setting[int](
        INT, INT_MAX, "How many connections the broker holds at most.", Range(0), dynamic=True
    )
    fetch_max_bytes = Setting[int](INT, 57_671_680, "The most bytes one Fetch is answered with.", Range(1024))
    max_incremental_fetch_session_cache_slots = Setting[int](
        INT, 1000, "How many fetch sessions the broker keeps.", Range(0)
    )
    max_request_partition_size_limit = Setting[int](
        INT, 2000, "The most partitions that one DescribeTopicPartitions is answered with.", Range(1)
    )

    # Who may do what
    authorizer_class_name = Setting[str](
        STRING,
        "",
        "`org.apache.kafka.metadata.authorizer.StandardAuthorizer` lets access rules count; empty lets everybody do "
        "everything. It goes with `super.users` and `allow.everyone.if.no.acl.found`.",
        None,
        LOW,
    )

    # Quotas
    quota_window_num = Setting[int](
        INT, 11, "Over how many windows the rates of clients with quotas are measured.", Range(1), LOW
    )
    quota_window_size_seconds = Setting[int](INT, 1, "How long one such window is.", Range(1), LOW)
    replication_quota_window_num = Setting[int](
        INT, 11, "Over how many windows the rates of throttled replicas are measured.", Range(1), LOW
    )
    replication_quota_window_size_seconds = Setting[int](INT, 1, "How long one such window is.", Range(1), LOW)

    # Topics
    num_partitions = Setting[int](INT, 1, "Partitions of a topic that is created without a count.", Range(1))
    default_replication_factor = Setting[int](INT, 1, "Replicas of a topic that is created without a count.")
    auto_create_topics_enable = Setting[bool](
        BOOLEAN, True, "Whether asking for a topic that is not there may create it.", None, HIGH
    )
    delete_topic_enable = Setting[bool](BOOLEAN, True, "Whether topics may be deleted.", None, HIGH)

    # Logs: where, and the upkeep of all of them
    log_dir = Setting[tuple[str, ...]](
        LIST, ("/tmp/kafka-logs",), "As `log.dirs`, which counts first.", NotEmpty(), HIGH
    )
    log_dirs = Setting[tuple[str, ...]](LIST, None, "The directories that hold the logs.", NotEmpty(), HIGH)
    cordoned_log_dirs = Setting[tuple[str, ...]](
        LIST, (), "Those of them that get no new partitions; `*` is all of them.", None, MEDIUM, dynamic=True
    )
    metadata_log_dir = Setting[str](
        STRING, None, "The directory of the cluster's metadata, if not the first of `log.dirs`.", None, HIGH
    )
    odradek_trust_killed_logs_enable = Setting[bool](
        BOOLEAN,
        True,
        "Whether a broker that was killed vouches for its logs where the operating system has run ever since (ADR 12); "
        "without it only a clean stop does, as in Apache Kafka: for volumes that may be detached or rolled back.",
    )
    log_flush_scheduler_interval_ms = Setting[int](
        LONG, LONG_MAX, "How often logs are looked at for whether they must be forced to disk.", None, HIGH
    )
    log_flush_offset_checkpoint_interval_ms = Setting[int](
        INT, 60_000, "How often `recovery-point-offset-checkpoint` is written.", Range(0), HIGH
    )
    log_flush_start_offset_checkpoint_interval_ms = Setting[int](
        INT, 60_000, "How often `log-start-offset-checkpoint` is written.", Range(0), HIGH
    )
    replica_high_watermark_checkpoint_interval_ms = Setting[int](
        LONG, 5_000, "How often `replication-offset-checkpoint` is written.", None, HIGH
    )
    log_retention_check_interval_ms = Setting[int](
        LONG, 300_000, "How often logs are looked at for segments that may go.", Range(1)
    )
    log_initial_task_delay_ms = Setting[int](
        LONG, 30_000, "How long after the start the first look at the logs is.", Range(0), LOW, internal=True
    )

    # Logs: compaction
    log_cleaner_enable = Setting[bool](BOOLEAN, True, "Whether topics with `cleanup.policy=compact` are compacted.")
    log_cleaner_threads = Setting[int](INT, 1, "How many logs are compacted at a time.", Range(0), dynamic=True)
    log_cleaner_backoff_ms = Setting[int](
        LONG, 15_000, "How long the cleaner waits when there is nothing to clean.", Range(0), dynamic=True
    )
    log_cleaner_dedupe_buffer_size = Setting[int](
        LONG,
        134_217_728,
        "How much memory the cleaner may use to remember keys, for all logs that are compacted at a time; a log with "
        "more keys is cleaned in several rounds.",
        dynamic=True,
    )
    log_cleaner_io_buffer_size = Setting[int](
        INT, 524_288, "How much the cleaner reads at once, for all logs likewise.", Range(0), dynamic=True
    )
    log_cleaner_io_buffer_load_factor = Setting[float](
        DOUBLE, 0.9, "How full the memory for keys may become.", dynamic=True
    )
    log_cleaner_io_max_bytes_per_second = Setting[float](
        DOUBLE, sys.float_info.max, "How many bytes a second the cleaner reads and writes at most.", dynamic=True
    )
    log_cleaner_min_cleanable_ratio = Setting[float](
        DOUBLE, 0.5, "Which share of a compacted log must be new before it is cleaned.", Range(0, 1), dynamic=True
    )
    log_cleaner_min_compaction_lag_ms = Setting[int](
        LONG, 0, "How long a record of a compacted topic stays at least.", Range(0), dynamic=True
    )
    log_cleaner_max_compaction_lag_ms = Setting[int](
        LONG,
        LONG_MAX,
        "After how long a compacted log is cleaned, however little of it is new.",
        Range(1),
        dynamic=True,
    )
    log_cleaner_delete_retention_ms = Setting[int](
        LONG, 86_400_000, "How long tombstones stay in a compacted log.", Range(0), dynamic=True
    )

    # Logs: defaults of every topic
    message_max_bytes = Setting[int](
        INT, 1_048_588, "The largest record batch accepted, after compression.", Range(0), HIGH, dynamic=True
    )
    min_insync_replicas = Setting[int](
        INT, 1, "How many replicas must be in sync for a write with acks=all.", Range(1), HIGH, dynamic=True
    )
    compression_type = Setting[str](
        STRING,
        "producer",
        "The codec that batches are stored with.",
        TOPIC_CONFIGS["compression.type"].validator,
        HIGH,
        dynamic=True,
    )
    compression_gzip_level = Setting[int](
        INT, -1, "The level where the broker compresses with gzip.", RangeOr(1, 9, -1), dynamic=True
    )
    compression_lz4_level = Setting[int](
        INT, 9, "The level where the broker compresses with lz4.", Range(1, 17), dynamic=True
    )
    compression_zstd_level = Setting[int](
        INT, 3, "The level where the broker compresses with zstd.", Range(-131072, 22), dynamic=True
    )
    log_cleanup_policy = Setting[tuple[str, ...]](
        LIST, ("delete",), "What happens to old records.", TOPIC_CONFIGS["cleanup.policy"].validator, dynamic=True
    )
    log_flush_interval_messages = Setting[int](
        LONG, LONG_MAX, "After how many records a log is forced to disk.", Range(1), HIGH, dynamic=True
    )
    log_flush_interval_ms = Setting[int | None](
        LONG, None, "After how long a log with new records is forced to disk.", None, HIGH, dynamic=True
    )
    log_index_interval_bytes = Setting[int](
        INT, 4096, "An index entry is made for about every so many bytes.", Range(0), dynamic=True
    )
    log_index_size_max_bytes = Setting[int](
        INT, 10_485_760, "How large the index of a segment may grow.", Range(4), dynamic=True
    )
    log_message_timestamp_after_max_ms = Setting[int](
        LONG, 3_600_000, "How far a timestamp may lie ahead of the broker's clock.", Range(0), dynamic=True
    )
    log_message_timestamp_before_max_ms = Setting[int](
        LONG, LONG_MAX, "How far a timestamp may lie behind the broker's clock.", Range(0), dynamic=True
    )
    log_message_timestamp_type = Setting[str](
        STRING,
        "CreateTime",
        "Whether records carry the producer's time or the time of the append.",
        TOPIC_CONFIGS["message.timestamp.type"].validator,
        dynamic=True,
    )
    log_preallocate = Setting[bool](
        BOOLEAN, False, "Whether a new segment file gets its full size at once.", dynamic=True
    )
    log_retention_bytes = Setting[int](
        LONG, -1, "How large a partition may grow; -1 is without limit.", None, HIGH, dynamic=True
    )
    log_retention_ms = Setting[int | None](
        LONG, None, "How long records are kept; -1 is for ever.", None, HIGH, dynamic=True
    )
    log_retention_minutes = Setting[int | None](INT, None, "As `log.retention.ms`, which counts first.", None, HIGH)
    log_retention_hours = Setting[int](INT, 168, "As `log.retention.minutes`, which counts first.", None, HIGH)
    log_roll_ms = Setting[int | None](
        LONG, None, "The age at which a segment is closed even when it is not full.", None, HIGH, dynamic=True
    )
    log_roll_hours = Setting[int](INT, 168, "As `log.roll.ms`, which counts first.", Range(1), HIGH)
    log_roll_jitter_ms = Setting[int | None](
        LONG, None, "Up to how much is taken off that age at random.", None, HIGH, dynamic=True
    )
    log_roll_jitter_hours = Setting[int](INT, 0, "As `log.roll.jitter.ms`, which counts first.", Range(0), HIGH)
    log_segment_bytes = Setting[int](
        INT, KAFKA_DEFAULTS.segment_bytes, "The size at which a segment is closed.", Range(1 << 20), HIGH, dynamic=True
    )
    log_segment_delete_delay_ms = Setting[int](
        LONG, 60_000, "How long the files of a deleted segment stay on disk.", Range(0), HIGH, dynamic=True
    )

    # Producers
    odradek_ordered_producers_enable = Setting[bool](
        BOOLEAN,
        True,
        "Whether a leader has idempotent producers send again what may be overtaken by their own later batches "
        "(ADR 19); without it they are told what Apache Kafka tells them.",
        dynamic=True,
    )
    producer_id_expiration_ms = Setting[int](
        INT,
        86_400_000,
        "After how long without a write a producer's sequence numbers are forgotten.",
        Range(1),
        LOW,
        dynamic=True,
    )
    producer_id_expiration_check_interval_ms = Setting[int](
        INT, 600_000, "How often producers are looked at for that.", Range(1), LOW, internal=True
    )

    # Groups
    group_min_session_timeout_ms = Setting[int](
        INT, 6_000, "The shortest session timeout that a member of a classic group may ask for."
    )
    group_max_session_timeout_ms = Setting[int](
        INT, 1_800_000, "The longest session timeout that a member of a classic group may ask for."
    )
    group_initial_rebalance_delay_ms = Setting[int](
        INT, 3_000, "How long the first rebalance of an empty classic group waits for more members."
    )
    group_max_size = Setting[int](INT, INT_MAX, "How many members a classic group may have.", Range(1))
    group_consumer_session_timeout_ms = Setting[int](
        INT, 45_000, "After how long a silent member of a group of the consumer protocol is taken for gone.", Range(1)
    )
    group_consumer_heartbeat_interval_ms = Setting[int](
        INT, 5_000, "How often members of a group of the consumer protocol say that they are alive.", Range(1)
    )
    group_consumer_max_size = Setting[int](
        INT, INT_MAX, "How many members a group of the consumer protocol may have.", Range(1)
    )
    group_consumer_assignors = Setting[tuple[str, ...]](
        LIST,
        ("uniform", "range"),
        "Assignors that members may ask for; the first is taken where they ask for none.",
        Choices(("uniform", "range")),
    )
    group_consumer_migration_policy = Setting[str](
        STRING,
        "bidirectional",
        "Which way a group with members may pass between the protocols: to the consumer protocol (upgrade) and back.",
        Choices(("bidirectional", "upgrade", "downgrade", "disabled")),
    )
    group_consumer_assignment_interval_ms = Setting[int](
        INT,
        1_000,
        "How long an assignment of the consumer protocol stands at least before the next.",
        Range(0),
        dynamic=True,
    )
    offset_metadata_max_bytes = Setting[int](
        INT, 4_096, "How long the text may be that a consumer commits with an offset.", None, HIGH
    )
    offsets_commit_timeout_ms = Setting[int](
        INT, 5_000, "How long a coordinator waits for its replicas before a client has to try again.", Range(1), HIGH
    )
    offsets_load_buffer_size = Setting[int](
        INT, 5_242_880, "How much of `__consumer_offsets` is read at once, up to 256 KiB.", Range(1), HIGH
    )
    offsets_retention_minutes = Setting[int](
        INT, 10_080, "How long the offsets of an empty group, or of a topic left by it, are kept.", Range(1), HIGH
    )
    offsets_retention_check_interval_ms = Setting[int](
        LONG, 600_000, "How often offsets are looked at for that.", Range(1), HIGH
    )
    offsets_topic_num_partitions = Setting[int](
        INT, 50, "Partitions of `__consumer_offsets` when it is created.", Range(1), HIGH
    )
    offsets_topic_replication_factor = Setting[int](
        SHORT,
        3,
        "Replicas of `__consumer_offsets` when it is created; unless it is set, one will do for a node that is alone.",
        Range(1),
        HIGH,
    )
    offsets_topic_segment_bytes = Setting[int](
        INT, 104_857_600, "Segment size of `__consumer_offsets` when it is created.", Range(1), HIGH
    )
    offsets_topic_compression_codec = Setting[int](
        INT,
        0,
        "The codec of batches in `__consumer_offsets`: 0 none, 1 gzip, 2 snappy, 3 lz4, 4 zstd.",
        Range(0, 4),
        HIGH,
    )

    # Transactions
    transactional_id_expiration_ms = Setting[int](
        INT,
        604_800_000,
        "After how long without a transaction a transactional id is forgotten.",
        Range(1),
        HIGH,
    )
    transaction_max_timeout_ms = Setting[int](
        INT, 900_000, "The longest timeout that a producer may give its transactions.", Range(1), HIGH
    )
    transaction_abort_timed_out_transaction_cleanup_interval_ms = Setting[int](
        INT, 10_000, "How often transactions are looked at for those whose time is over.", Range(1), LOW
    )
    transaction_remove_expired_transaction_cleanup_interval_ms = Setting[int](
        INT, 3_600_000, "How often transactional ids are looked at for those that nobody uses any more.", Range(1), LOW
    )
    transaction_partition_verification_enable = Setting[bool](
        BOOLEAN,
        True,
        "Whether a leader asks the coordinator before a transaction begins in its partition (KIP-890).",
        importance=LOW,
        dynamic=True,
    )
    transaction_state_log_num_partitions = Setting[int](
        INT, 50, "Partitions of `__transaction_state` when it is created.", Range(1), HIGH
    )
    transaction_state_log_replication_factor = Setting[int](
        SHORT,
        3,
        "Replicas of `__transaction_state` when it is created; unless it is set, one will do for a node that is alone.",
        Range(1),
        HIGH,
    )
    transaction_state_log_min_isr = Setting[int](
        INT,
        2,
        "`min.insync.replicas` of `__transaction_state` when it is created; unless it is set, 1 for a lone node.",
        Range(1),
        HIGH,
    )
    transaction_state_log_segment_bytes = Setting[int](
        INT, 104_857_600, "Segment size of `__transaction_state` when it is created.", Range(1), HIGH
    )
    transaction_state_log_load_buffer_size = Setting[int](
        INT, 5_242_880, "How much of `__transaction_state` is read at once, up to 256 KiB.", Range(1), HIGH
    )
    add_partitions_to_txn_retry_backoff_ms = Setting[int](
        INT,
        20,
        "How long a broker waits before it asks a coordinator again about a partition of a transaction.",
        Range(1),
        HIGH,
    )
    add_partitions_to_txn_retry_backoff_max_ms = Setting[int](INT, 100, "How long it asks at most.", Range(0), HIGH)

    # The cluster
    broker_heartbeat_interval_ms = Setting[int](
        INT, 2_000, "How often the broker tells the controller that it is alive.", Range(1)
    )
    broker_session_timeout_ms = Setting[int](
        INT, 9_000, "After how long without a heartbeat the controller takes a broker for gone.", Range(1)
    )
    odradek_early_elections_enable = Setting[bool](
        BOOLEAN,
        True,
        "Whether a voter doubts a leader of the quorum that refuses or is silent before "
        "`controller.quorum.fetch.timeout.ms` is over (ADR 10); without it that alone counts, as in Apache Kafka.",
    )
    odradek_early_fencing_enable = Setting[bool](
        BOOLEAN,
        True,
        "Whether the controller fences a broker before its session ends once there is proof that its process has "
        "ended (ADR 17); without it the session alone counts, as in Apache Kafka.",
        dynamic=True,
    )
    initial_broker_registration_timeout_ms = Setting[int](
        INT, 60_000, "How long a starting broker tries to register before it gives up."
    )
    controlled_shutdown_enable = Setting[bool](
        BOOLEAN, True, "Whether a broker that stops hands its partitions over first."
    )
    controller_socket_timeout_ms = Setting[int](
        INT, 30_000, "How long the broker waits for an answer of the controller.", Range(1)
    )
    request_timeout_ms = Setting[int](
        INT,
        30_000,
        "How long a request that needs the controller may take before its client is told so.",
        Range(1),
        HIGH,
    )
    auto_leader_rebalance_enable = Setting[bool](
        BOOLEAN, True, "Whether partitions go back to their first replica when it can lead again.", None, HIGH
    )
    leader_imbalance_check_interval_seconds = Setting[int](
        LONG, 300, "How often partitions are looked at for that.", Range(1), HIGH
    )
    unclean_leader_election_enable = Setting[bool](
        BOOLEAN,
        False,
        "Whether a replica that was not in sync may lead when no other can, which may lose records.",
        None,
        HIGH,
        dynamic=True,
    )
    unclean_leader_election_interval_ms = Setting[int](
        LONG, 300_000, "How often partitions are looked at for that.", Range(1), internal=True
    )

    # Replication
    replica_lag_time_max_ms = Setting[int](
        LONG, 30_000, "After how long behind its leader a replica is no longer in sync.", None, HIGH
    )
    replica_fetch_wait_max_ms = Setting[int](
        INT, 500, "How long a leader may wait for records before it answers a follower.", None, HIGH
    )
    replica_fetch_min_bytes = Setting[int](INT, 1, "How many bytes a follower's fetch waits for.", None, HIGH)
    replica_fetch_max_bytes = Setting[int](
        INT, 1_048_576, "How many bytes of one partition a follower fetches at once.", Range(0)
    )
    replica_fetch_response_max_bytes = Setting[int](
        INT, 10_485_760, "How many bytes a follower fetches at once in all.", Range(0)
    )
    replica_fetch_backoff_ms = Setting[int](
        INT, 1_000, "How long a follower waits after a fetch that failed.", Range(0)
    )
    replica_socket_timeout_ms = Setting[int](
        INT, 30_000, "How long a follower waits for its leader's answer.", None, HIGH
    )
    replica_selector_class = Setting[str | None](
        STRING,
        None,
        "Whether consumers are sent to a replica in their rack (`client.rack`); without it, or with `LeaderSelector`, "
        "they read from leaders.",
        Choices((RACK_AWARE_SELECTOR, LEADER_SELECTOR)),
    )

    # The metadata quorum
    controller_quorum_election_timeout_ms = Setting[int](
        INT, 1_000, "How long a candidate waits for votes before it tries again.", Range(0), HIGH
    )
    controller_quorum_election_backoff_max_ms = Setting[int](
        INT, 1_000, "The longest pause between two elections.", Range(0), HIGH
    )
    controller_quorum_fetch_timeout_ms = Setting[int](
        INT,
        2_000,
        "After how long without its leader a voter asks for an election; and a leader without voters resigns.",
        Range(0),
        HIGH,
    )
    controller_quorum_request_timeout_ms = Setting[int](
        INT, 2_000, "How long controllers wait for each other's answers.", Range(0)
    )
    controller_quorum_retry_backoff_ms = Setting[int](
        INT, 20, "The pause before a controller asks another one again.", Range(0), LOW
    )
    controller_quorum_fetch_max_bytes = Setting[int](
        INT, 1_048_576, "How many bytes of the metadata log are fetched at once.", Range(1), LOW
    )
    controller_quorum_fetch_snapshot_max_bytes = Setting[int](
        INT, 1_048_576, "How many bytes of a snapshot are fetched at once.", Range(1), LOW
    )
    controller_quorum_auto_join_enable = Setting[bool](
        BOOLEAN, False, "Whether a controller that is not a voter of a dynamic quorum makes itself one.", None, LOW
    )
    metadata_max_idle_interval_ms = Setting[int](
        INT,
        500,
        "How often an idle controller of several nodes writes a record, to be heard; 0 is never.",
        Range(0),
        LOW,
    )

    # The metadata log
    metadata_log_segment_bytes = Setting[int](
        INT, 1_073_741_824, "The size at which a segment of the metadata log is closed.", Range(8 << 20), HIGH
    )
    metadata_log_segment_ms = Setting[int](
        LONG, 604_800_000, "The age at which a segment of the metadata log is closed.", None, HIGH
    )
    metadata_log_max_record_bytes_between_snapshots = Setting[int](
        LONG, 20_971_520, "After how many bytes of metadata records a snapshot is written.", Range(1), HIGH
    )
    metadata_log_max_snapshot_interval_ms = Setting[int](
        LONG, 3_600_000, "After how long with new metadata records a snapshot is written; 0 is never.", Range(0), HIGH
    )
    metadata_max_retention_bytes = Setting[int](
        LONG, 104_857_600, "How much of the metadata log is kept behind a snapshot.", None, HIGH
    )
    metadata_max_retention_ms = Setting[int](
        LONG, 604_800_000, "How long the metadata log is kept behind a snapshot.", None, HIGH
    )


NODE_CONFIGS = ConfigTable(setting.key for setting in vars(NodeSettings).values() if isinstance(setting, Setting))
