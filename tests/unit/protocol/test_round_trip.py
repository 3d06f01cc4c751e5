"""Messages that kio does not have are read back as written; `tests/compat/schemas` holds them against Kafka itself."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.unit.protocol.generated import declared_messages, structs

from odradek.protocol.codec import Message, decode, encode

WITHOUT_KIO = [
    (cls, version)
    for cls in declared_messages()
    for version in cls.versions
    if cls.__module__.startswith(("odradek.metadata", "odradek.coordinator"))
    or cls.__module__.endswith(
        ("quorum_state", "leader_and_isr", "stop_replica", "update_metadata", "controlled_shutdown")
    )
]


@pytest.mark.parametrize(("cls", "version"), WITHOUT_KIO)
@settings(max_examples=10, derandomize=True, database=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_read_back_as_written(data: st.DataObject, cls: type[Message], version: int) -> None:
    message = data.draw(structs(cls, version))
    assert decode(cls, version, encode(message, version)) == message  # type: ignore[arg-type]


def test_these_are_all_kinds_of_records() -> None:
    rooms = {cls.__module__ for cls, _ in WITHOUT_KIO if not cls.__module__.startswith("odradek.protocol")}
    assert rooms == {
        "odradek.metadata.records",
        "odradek.coordinator.group.records",
        "odradek.coordinator.group.share_records",
        "odradek.coordinator.group.streams_records",
        "odradek.coordinator.transaction.records",
    }
