"""What the coordinator reads of the bytes that consumers exchange through it."""

from __future__ import annotations

from collections.abc import Iterable

from odradek.protocol.codec import decoder
from odradek.protocol.errors import MalformedFrame
from odradek.protocol.messages.consumer_protocol import ConsumerProtocolSubscription

PROTOCOL_TYPE = "consumer"
_VERSION_BYTES = 2


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
            subscription, _ = read(each, _VERSION_BYTES)
        except MalformedFrame:
            return None
        topics.update(subscription.topics)
    return frozenset(topics)
