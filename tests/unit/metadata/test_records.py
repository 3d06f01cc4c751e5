"""Metadata records by their key."""

from __future__ import annotations

import pytest
from tests.unit.protocol.generated import declared_messages

from odradek.metadata.records import record_class
from odradek.protocol.errors import MalformedFrame


def test_every_record_is_found_by_its_key() -> None:
    records = [cls for cls in declared_messages() if cls.__module__ == "odradek.metadata.records"]
    assert len(records) == 26
    assert [record_class(cls.api_key) for cls in records] == records


@pytest.mark.parametrize("unknown", [-1, 6, 13, 16, 29, 999])
def test_a_kind_that_does_not_exist(unknown: int) -> None:
    with pytest.raises(MalformedFrame, match=f"no metadata record has the kind {unknown}"):
        record_class(unknown)
