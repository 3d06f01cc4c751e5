"""Every API and version that kio has, byte for byte: kio is an independent implementation from the same schemas.

A random message is encoded here, read by kio, compared value by value, written again by kio, and read back here.
"""

from __future__ import annotations

import dataclasses
import datetime
import functools
import io
import typing
import uuid
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kio.index import load_entity_schema
from kio.schema.errors import ErrorCode as KioErrorCode
from kio.schema.index import schema_name_map
from kio.serial import entity_reader, entity_writer
from kio.static.constants import EntityType
from tests.unit.protocol.generated import structs

from odradek.protocol import frame
from odradek.protocol.api import NAMES_ALONE, ApiKey, request_class, response_class
from odradek.protocol.codec import Message, decode, encode
from odradek.protocol.declare import FieldLayout, Struct, layout
from odradek.protocol.messages import consumer_protocol, control_records, default_principal

EXAMPLES_PER_VERSION = 12

ONLY_IN_ZOOKEEPER_MODE = {"leader_and_isr", "stop_replica", "update_metadata", "controlled_shutdown"}
"""Kafka 4 has no versions of these, so kio has none either."""

NOT_REQUESTS: dict[str, type[Message]] = {
    "consumer_protocol_assignment": consumer_protocol.ConsumerProtocolAssignment,
    "consumer_protocol_subscription": consumer_protocol.ConsumerProtocolSubscription,
    "control_record_type_schema": control_records.ControlRecordTypeSchema,
    "default_principal_data": default_principal.DefaultPrincipalData,
    "end_txn_marker": control_records.EndTxnMarker,
    "k_raft_version_record": control_records.KRaftVersionRecord,
    "leader_change_message": control_records.LeaderChangeMessage,
    "request_header": frame.RequestHeader,
    "response_header": frame.ResponseHeader,
    "snapshot_footer_record": control_records.SnapshotFooterRecord,
    "snapshot_header_record": control_records.SnapshotHeaderRecord,
    "voters_record": control_records.VotersRecord,
}

Case = tuple[str, str, int]


def cases_of_kio() -> list[Case]:
    return sorted(
        (name, kind.name, version)
        for name, versions in schema_name_map.items()
        if name not in {key.name.lower() for key in NAMES_ALONE}
        for version in versions
        for kind in versions[version]
    )


def declared(name: str, kind: str) -> type[Message]:
    if name in NOT_REQUESTS:
        return NOT_REQUESTS[name]
    key = ApiKey[name.upper()]
    return request_class(key) if kind == "request" else response_class(key)


def test_kio_has_every_version_declared_here_but_those_of_zookeeper_mode() -> None:
    spoken = [key for key in ApiKey if key not in NAMES_ALONE]
    ours = {(key.name.lower(), "request", version) for key in spoken for version in request_class(key).versions}
    ours |= {(key.name.lower(), "response", version) for key in spoken for version in response_class(key).versions}
    kinds = {name: kind for name, kind, _ in cases_of_kio() if name in NOT_REQUESTS}
    ours |= {(name, kinds[name], version) for name, cls in NOT_REQUESTS.items() for version in cls.versions}
    here_alone = ours - set(cases_of_kio())
    assert {name for name, _, _ in here_alone} == {*ONLY_IN_ZOOKEEPER_MODE, "request_header"}
    assert [case for case in here_alone if case[0] == "request_header"] == [("request_header", "header", 0)]
    assert set(cases_of_kio()) <= ours


@pytest.mark.parametrize(("name", "kind", "version"), cases_of_kio())
@settings(
    max_examples=EXAMPLES_PER_VERSION,
    derandomize=True,
    database=None,
    suppress_health_check=list(HealthCheck),
)
@given(data=st.data())
def test_same_bytes_and_values_as_kio(data: st.DataObject, name: str, kind: str, version: int) -> None:
    cls = declared(name, kind)
    kio_class = load_entity_schema(name, version, EntityType[kind])
    message = data.draw(messages(cls, version, kio_class))

    encoded = encode(message, version)
    kio_message, size = entity_reader(kio_class)(encoded, 0)
    assert size == len(encoded)
    assert plain(kio_message) == values_of(message, version)

    written = io.BytesIO()
    entity_writer(kio_class)(written, kio_message)
    assert written.getvalue() == encoded
    assert decode(cls, version, encoded) == message


@functools.cache
def messages(cls: type[Message], version: int, kio_class: Any) -> st.SearchStrategy[Struct]:
    return structs(cls, version, as_kio_allows, kio_class)


SECOND = 1000
KIO_LIMITS: dict[str, st.SearchStrategy[Any]] = {
    # kio turns some numbers into richer types, which do not hold every number.
    "error_code": st.sampled_from([int(code) for code in KioErrorCode]),
    "timedelta_i32": st.integers(-(2**31), 2**31 - 1),
    "timedelta_i64": st.integers(-(2**40), 2**40),
    "datetime_i64": st.integers(0, 4_000_000_000).map(lambda seconds: seconds * SECOND),
}


def as_kio_allows(each: FieldLayout, place: int, kio_class: Any) -> tuple[st.SearchStrategy[Any] | None, Any]:
    kio_field = dataclasses.fields(kio_class)[place]
    return KIO_LIMITS.get(kio_field.metadata.get("kafka_type", "")), nested_class(kio_field.type)


def nested_class(annotation: Any) -> Any:
    """The dataclass somewhere inside `X`, `X | None` or `tuple[X, ...]`."""
    if dataclasses.is_dataclass(annotation):
        return annotation
    return next(filter(None, map(nested_class, typing.get_args(annotation))), None)


def values_of(message: Struct, version: int) -> list[Any]:
    """All values of that version in wire order, structs as lists."""

    def value_of(value: Any) -> Any:
        if isinstance(value, Struct):
            return values_of(value, version)
        return [value_of(item) for item in value] if isinstance(value, list) else value

    return [value_of(getattr(message, each.name)) for each in layout(type(message)) if version in each.versions]


def plain(value: Any) -> Any:
    """kio's value as the number, text or bytes that it stands for."""
    if dataclasses.is_dataclass(value):
        return [plain_field(value, each) for each in dataclasses.fields(value)]
    if isinstance(value, tuple):
        return [plain(item) for item in value]
    if isinstance(value, datetime.timedelta):
        return value // datetime.timedelta(milliseconds=1)
    if isinstance(value, datetime.datetime):
        return int(value.timestamp()) * SECOND
    if isinstance(value, uuid.UUID):
        return value.bytes
    return int(value) if isinstance(value, KioErrorCode) else value


def plain_field(holder: Any, each: dataclasses.Field[Any]) -> Any:
    """As `plain`, with what kio reads as None for want of a richer value: the zero UUID and the time -1."""
    value = getattr(holder, each.name)
    kind = each.metadata.get("kafka_type")
    if kind == "uuid" and isinstance(value, tuple):
        return [bytes(16) if item is None else item.bytes for item in value]
    if kind == "uuid" and value is None and "tuple" not in str(each.type):
        return bytes(16)
    if kind == "datetime_i64" and value is None:
        return -1
    return plain(value)
