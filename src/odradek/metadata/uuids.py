"""New ids, drawn as Kafka draws them."""

from __future__ import annotations

from odradek.ids import Uuid, uuid_text
from odradek.ports import Entropy

_RESERVED_BELOW = 100
"""Kafka keeps the first hundred ids for itself: the metadata topic, directories that are lost or not assigned yet."""


def random_uuid(entropy: Entropy) -> Uuid:
    """A version 4 UUID that is not reserved and whose text does not start with a dash, which command lines mistake."""
    while True:
        raw = bytearray(entropy.random_bytes(16))
        raw[6] = raw[6] & 0x0F | 0x40
        raw[8] = raw[8] & 0x3F | 0x80
        uuid = Uuid(bytes(raw))
        if int.from_bytes(uuid) >= _RESERVED_BELOW and not uuid_text(uuid).startswith("-"):
            return uuid
