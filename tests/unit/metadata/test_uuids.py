from __future__ import annotations

import uuid

from tests.unit.metadata.building import entropy

from odradek.ids import uuid_text
from odradek.metadata.uuids import random_uuid


class Scripted:
    """Hands out the given bytes one after another."""

    def __init__(self, *draws: bytes) -> None:
        self._draws = iter(draws)

    def random_bytes(self, count: int) -> bytes:
        return next(self._draws)

    def below(self, bound: int) -> int:
        raise NotImplementedError


def test_ids_are_version_4_uuids() -> None:
    drawn = [random_uuid(entropy(seed)) for seed in range(100)]
    assert {uuid.UUID(bytes=each).version for each in drawn} == {4}
    assert len(set(drawn)) == 100


def test_no_id_starts_with_a_dash() -> None:
    dashed, plain = b"\xfb" + bytes(15), b"\x10" * 16
    assert uuid_text(random_uuid(Scripted(dashed, plain))).startswith("E")
