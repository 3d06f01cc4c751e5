"""What the configuration says about transactions."""

from __future__ import annotations

from odradek.values import value


@value
class TransactionSettings:
    """Kafka's keys, with Kafka's defaults where no configuration is at hand."""

    max_timeout_ms: int = 900_000
    id_expiration_ms: int = 7 * 86_400_000
    abort_interval_ms: int = 10_000
    """How often to look for transactions whose time is over."""
    expiration_interval_ms: int = 3_600_000
    """How often to look for transactional ids that nobody uses any more."""
