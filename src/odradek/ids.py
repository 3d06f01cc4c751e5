"""Typed names for the numbers and bytes that must not be mixed up."""

from __future__ import annotations

import base64
import binascii
from typing import NewType

NodeId = NewType("NodeId", int)
Offset = NewType("Offset", int)
LeaderEpoch = NewType("LeaderEpoch", int)
ProducerId = NewType("ProducerId", int)
ProducerEpoch = NewType("ProducerEpoch", int)

Uuid = NewType("Uuid", bytes)
"""Sixteen bytes, as on the wire: cheap to hash, compare and copy, which topic ids are on every request."""

ZERO_UUID = Uuid(bytes(16))
METADATA_TOPIC_ID = Uuid(bytes(15) + b"\x01")
"""The id that Kafka reserves for `__cluster_metadata`."""

NO_NODE = NodeId(-1)
NO_OFFSET = Offset(-1)
NO_EPOCH = LeaderEpoch(-1)
NO_PRODUCER_ID = ProducerId(-1)
NO_PRODUCER_EPOCH = ProducerEpoch(-1)
NO_SEQUENCE = -1
NO_TIMESTAMP = -1


def uuid_text(uuid: Uuid) -> str:
    """The 22 characters that Kafka's tools and files show: URL-safe base64 without padding."""
    return base64.urlsafe_b64encode(uuid).rstrip(b"=").decode()


def parse_uuid(text: str) -> Uuid:
    """Read what `uuid_text` wrote; raises ValueError on anything else."""
    try:
        raw = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError) as wrong:
        raise ValueError(f"not a Kafka UUID: {text!r}") from wrong
    if len(raw) != 16:
        raise ValueError(f"not a Kafka UUID: {text!r} holds {len(raw)} bytes instead of 16")
    return Uuid(raw)
