"""What the configuration says about groups."""

from __future__ import annotations

from odradek.values import value


@value
class GroupSettings:
    """Kafka's keys, with Kafka's defaults where no configuration is at hand."""

    min_session_timeout_ms: int = 6_000
    max_session_timeout_ms: int = 1_800_000
    max_size: int = (1 << 31) - 1
    initial_rebalance_delay_ms: int = 3_000
    new_member_join_timeout_ms: int = 300_000
    """How long a JoinGroup of a member that has no id yet may wait; it cannot send heartbeats meanwhile."""
    broker_id: int = -1
    consumer_migration_policy: str = "bidirectional"
    consumer_session_timeout_ms: int = 45_000
    consumer_heartbeat_interval_ms: int = 5_000
    consumer_max_size: int = (1 << 31) - 1
    consumer_assignors: tuple[str, ...] = ("uniform", "range")
    """The first one is taken where members do not ask for another."""
    consumer_assignment_interval_ms: int = 1_000
    """How long a target stands at least, so that many members who come at once cost few assignments."""
    offset_metadata_max_bytes: int = 4_096
    offsets_retention_ms: int = 7 * 86_400_000
    offsets_retention_check_interval_ms: int = 600_000
