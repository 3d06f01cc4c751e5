"""What of a node's configuration is for the metadata log and its quorum."""

from __future__ import annotations

from odradek.server.configs.node_config import NodeConfig
from odradek.values import value


@value
class QuorumSettings:
    """The metadata log's and the quorum's part of the configuration."""

    segment_bytes: int
    segment_ms: int
    max_bytes_between_snapshots: int
    max_snapshot_interval_ms: int
    max_retention_bytes: int
    max_retention_ms: int
    election_timeout_ms: int = 1000
    election_backoff_max_ms: int = 1000
    fetch_timeout_ms: int = 2000
    request_timeout_ms: int = 2000
    retry_backoff_ms: int = 20
    fetch_max_bytes: int = 1 << 20
    fetch_snapshot_max_bytes: int = 1 << 20
    max_idle_interval_ms: int = 500
    auto_join: bool = False
    early_elections: bool = True


def quorum_settings(config: NodeConfig) -> QuorumSettings:
    """As a node's configuration has them."""
    return QuorumSettings(
        segment_bytes=config.metadata_log_segment_bytes,
        segment_ms=config.metadata_log_segment_ms,
        max_bytes_between_snapshots=config.metadata_log_max_record_bytes_between_snapshots,
        max_snapshot_interval_ms=config.metadata_log_max_snapshot_interval_ms,
        max_retention_bytes=config.metadata_max_retention_bytes,
        max_retention_ms=config.metadata_max_retention_ms,
        election_timeout_ms=config.controller_quorum_election_timeout_ms,
        election_backoff_max_ms=config.controller_quorum_election_backoff_max_ms,
        fetch_timeout_ms=config.controller_quorum_fetch_timeout_ms,
        request_timeout_ms=config.controller_quorum_request_timeout_ms,
        retry_backoff_ms=config.controller_quorum_retry_backoff_ms,
        fetch_max_bytes=config.controller_quorum_fetch_max_bytes,
        fetch_snapshot_max_bytes=config.controller_quorum_fetch_snapshot_max_bytes,
        max_idle_interval_ms=config.metadata_max_idle_interval_ms,
        auto_join=config.controller_quorum_auto_join_enable,
        early_elections=config.odradek_early_elections_enable,
    )
