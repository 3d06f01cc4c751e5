"""What an error means for a transactional producer, by the request it answered: as Apache Kafka's own client takes it.

Three ways are left (KIP-1050): ask again, abort the transaction and go on, or give up. A producer whose epoch has been
passed by another's must give up: whatever it did next would fence the one that took its place.
"""

from __future__ import annotations

from enum import Enum, auto

from odradek.client.errors import may_pass
from odradek.protocol.api import ApiKey
from odradek.protocol.errors import ErrorCode, KafkaError


class Verdict(Enum):
    """What follows from a failure."""

    RETRY = auto()
    ABORT = auto()
    """The transaction can only be aborted."""
    ABORT_AND_BUMP = auto()
    """The same, and the producer needs a new epoch, as the coordinator or a partition does not know it as it is."""
    FATAL = auto()


_OF_ALL = {
    ErrorCode.TRANSACTION_ABORTABLE: Verdict.ABORT,
    ErrorCode.UNKNOWN_PRODUCER_ID: Verdict.ABORT_AND_BUMP,
    ErrorCode.INVALID_PRODUCER_ID_MAPPING: Verdict.ABORT_AND_BUMP,
}

_BY_API: dict[ApiKey, dict[ErrorCode, Verdict]] = {
    # There is no transaction that could be aborted, and no other id to be had.
    ApiKey.INIT_PRODUCER_ID: {
        ErrorCode.TRANSACTION_ABORTABLE: Verdict.FATAL,
        ErrorCode.UNKNOWN_PRODUCER_ID: Verdict.FATAL,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING: Verdict.FATAL,
    },
    ApiKey.ADD_PARTITIONS_TO_TXN: {
        ErrorCode.TOPIC_AUTHORIZATION_FAILED: Verdict.ABORT,
        ErrorCode.OPERATION_NOT_ATTEMPTED: Verdict.ABORT,
    },
    ApiKey.ADD_OFFSETS_TO_TXN: {ErrorCode.GROUP_AUTHORIZATION_FAILED: Verdict.ABORT},
    ApiKey.TXN_OFFSET_COMMIT: {
        ErrorCode.GROUP_AUTHORIZATION_FAILED: Verdict.ABORT,
        ErrorCode.FENCED_INSTANCE_ID: Verdict.ABORT,
        ErrorCode.UNKNOWN_MEMBER_ID: Verdict.ABORT,
        ErrorCode.ILLEGAL_GENERATION: Verdict.ABORT,
        ErrorCode.STALE_MEMBER_EPOCH: Verdict.ABORT,
    },
    ApiKey.END_TXN: {},
}

_FATAL_IN_PRODUCE = frozenset(
    {
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.UNSUPPORTED_VERSION,
    }
)


def verdict(api: ApiKey, failure: Exception) -> Verdict:
    """What a coordinator's answer, or its silence, means."""
    if may_pass(failure):
        return Verdict.RETRY
    if not isinstance(failure, KafkaError):
        return Verdict.FATAL
    found = _BY_API[api].get(failure.code)
    return found or _OF_ALL.get(failure.code, Verdict.FATAL)


def verdict_on_batch(failure: Exception) -> Verdict:
    """What it means that a batch was given up, after all the retries it may have.

    Its sequence is missing in the partition, or may be. That the epoch is an old one is not fatal yet: the transaction
    may have been aborted for its age, which the coordinator knows.
    """
    if isinstance(failure, KafkaError) and failure.code in _FATAL_IN_PRODUCE:
        return Verdict.FATAL
    return Verdict.ABORT_AND_BUMP


def fenced(failure: Exception) -> Exception:
    """Old coordinators say INVALID_PRODUCER_EPOCH of a producer that was fenced."""
    if isinstance(failure, KafkaError) and failure.code is ErrorCode.INVALID_PRODUCER_EPOCH:
        return KafkaError(ErrorCode.PRODUCER_FENCED)
    return failure
