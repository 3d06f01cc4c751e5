"""What a client is told it may do, as the bit field of Kafka's operation codes; without an authorizer, everything."""

from __future__ import annotations

NOT_ASKED_FOR = -(1 << 31)

_READ = 3
_WRITE = 4
_CREATE = 5
_DELETE = 6
_ALTER = 7
_DESCRIBE = 8
_CLUSTER_ACTION = 9
_DESCRIBE_CONFIGS = 10
_ALTER_CONFIGS = 11
_IDEMPOTENT_WRITE = 12


def _bits(*operations: int) -> int:
    return sum(1 << operation for operation in operations)


TOPIC_OPERATIONS = _bits(_READ, _WRITE, _CREATE, _DELETE, _ALTER, _DESCRIBE, _DESCRIBE_CONFIGS, _ALTER_CONFIGS)
GROUP_OPERATIONS = _bits(_READ, _DESCRIBE, _DELETE, _DESCRIBE_CONFIGS, _ALTER_CONFIGS)
CLUSTER_OPERATIONS = _bits(
    _CREATE, _ALTER, _DESCRIBE, _CLUSTER_ACTION, _DESCRIBE_CONFIGS, _ALTER_CONFIGS, _IDEMPOTENT_WRITE
)
