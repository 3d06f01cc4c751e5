"""What the coordinator reads of the bytes that consumers exchange through it."""

from __future__ import annotations

from collections.abc import Iterable
from struct import Struct

from odradek.protocol.codec import decoder
from odradek.protocol.errors import MalformedFrame
from odradek.protocol.messages.consumer_protocol import ConsumerProtocolAssignment, ConsumerProtocolSubscription

PROTOCOL_TYPE = "consumer"
VERSION = Struct(">h")


def subscribed_topics(metadata: Iterable[bytes]) -> frozenset[str] | None:
    """All topics that members with this metadata are subscribed to; None if one of them cannot be read.

    Version 0 is the beginning of every version, so nothing else has to be known.
    """
    read = decoder(ConsumerProtocolSubscription, 0)
    topics: set[str] = set()
    known: set[bytes] = set()
    for each in metadata:
        if each in known:  # Members of a large group mostly say the same.
            continue
        known.add(each)
        try:
            subscription, _ = read(each, VERSION.size)
        except MalformedFrame:
            return None
        topics.update(subscription.topics)
    return frozenset(topics)


def read_subscription(metadata: bytes) -> ConsumerProtocolSubscription:
    """MalformedFrame if it is none. A version that is not known yet begins as the newest known one does."""
    read = decoder(ConsumerProtocolSubscription, known_version(metadata))
    subscription, _ = read(metadata, VERSION.size)
    return subscription


def read_assignment(content: bytes) -> ConsumerProtocolAssignment:
    """Likewise."""
    read = decoder(ConsumerProtocolAssignment, known_version(content))
    assignment, _ = read(content, VERSION.size)
    return assignment


def gives_up_some(metadata: bytes, assignment: bytes) -> bool:
    """Whether a member was told to let go of what it had when it joined (KIP-429).

    It joins again once it has, and only then does anybody else get that.
    """
    try:
        owned = {each.topic: each.partitions for each in read_subscription(metadata).owned_partitions}
        kept = {each.topic: each.partitions for each in read_assignment(assignment).assigned_partitions}
    except MalformedFrame:
        return False
    return any(not set(kept.get(topic, ())).issuperset(partitions) for topic, partitions in owned.items())


def known_version(content: bytes) -> int:
    if len(content) < VERSION.size:
        raise MalformedFrame("shorter than its version")
    (version,) = VERSION.unpack_from(content)
    if version < 0:
        raise MalformedFrame(f"version {version}")
    return min(int(version), ConsumerProtocolSubscription.max_stable_version)
