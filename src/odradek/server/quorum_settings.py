"""What of a node's configuration is for the metadata log and its quorum."""

from __future__ import annotations

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
