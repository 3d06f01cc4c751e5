"""Which names a topic may have."""

from __future__ import annotations

from odradek.protocol.errors import ErrorCode, KafkaError

METADATA_TOPIC = "__cluster_metadata"
GROUP_TOPIC = "__consumer_offsets"
TRANSACTION_TOPIC = "__transaction_state"
INTERNAL_TOPICS = (GROUP_TOPIC, TRANSACTION_TOPIC, "__share_group_state")

MAX_NAME_LENGTH = 249
_LEGAL = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-")


def is_internal(name: str) -> bool:
    """Whether clients shall be told that the cluster itself owns the topic."""
    return name in INTERNAL_TOPICS


def name_error(name: str) -> str | None:
    """Kafka's sentence on what is wrong with a name, or None."""
    if not name:
        return "Topic name is invalid: the empty string is not allowed"
    if name in (".", ".."):
        return f"Topic name is invalid: '{name}' is not allowed"
    if len(name) > MAX_NAME_LENGTH:
        return f"Topic name is invalid: the length of '{name}' is longer than the max allowed length {MAX_NAME_LENGTH}"
    if not _LEGAL.issuperset(name):
        return (
            f"Topic name is invalid: '{name}' contains one or more characters other than "
            "ASCII alphanumerics, '.', '_' and '-'"
        )
    return None


def check_name(name: str) -> None:
    """INVALID_TOPIC_EXCEPTION unless a topic may be called that."""
    wrong = name_error(name)
    if wrong is not None:
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, wrong)


def collision_key(name: str) -> str:
    """Names with one key give one metric name, where `.` becomes `_`, so only one of them may exist."""
    return name.replace(".", "_")


def may_collide(name: str) -> bool:
    return "." in name or "_" in name
