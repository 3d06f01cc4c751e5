"""Every declared message against the schema that Kafka itself is generated from, field by field."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.compat.maven import require_java
from tests.compat.schemas.kafka_schemas import (
    JARS,
    STRUCT_DEFAULT,
    Field,
    kafka_fields,
    our_fields,
    schema_of,
    schemas,
)
from tests.unit.protocol.generated import declared_messages

from odradek.protocol.codec import Message, Versions

pytestmark = pytest.mark.java

NOT_SPOKEN = ("Share", "StreamsGroup", "Telemetry")
"""Share groups, streams groups and client telemetry."""

CONVENIENCES = {"error_message": None}
"""Defaults of our constructors that Kafka's do not have: null, where Kafka would start from an empty string."""


@pytest.fixture(autouse=True)
def _jars() -> None:
    require_java()


@pytest.mark.parametrize("cls", declared_messages(), ids=lambda cls: cls.__name__)
def test_declared_as_in_kafkas_schema(cls: type[Message]) -> None:
    schema = schema_of(cls)
    assert schema is not None, f"no schema of Kafka is called {cls.__name__}"
    assert cls.api_key == schema.get("apiKey", -1)
    assert cls.versions == Versions(schema["validVersions"])
    assert cls.flexible == Versions(schema.get("flexibleVersions", "none"))
    unstable = schema.get("latestVersionUnstable", False)
    assert cls.max_stable_version == cls.versions.high - (1 if unstable else 0)

    kafka, ours = kafka_fields(schema), our_fields(cls)
    assert list(all_facts(ours)) == list(all_facts(kafka))
    for our, their in zip(flat(ours), flat(kafka), strict=True):
        check_default(cls, our, their)


def check_default(cls: type[Message], our: Field, their: Field) -> None:
    """A default decides what an older version decodes to and which tagged fields are sent."""
    where = f"{cls.__name__}.{our.name}"
    assert our.has_default or not their.needs_default, f"{where} needs the default {their.default!r}"
    if our.has_default and (their.needs_default or our.name not in CONVENIENCES):
        assert (our.default, type(our.default)) == (their.default, type(their.default)), where
    elif our.has_default:
        assert our.default == CONVENIENCES[our.name], where
    if our.default is STRUCT_DEFAULT:
        assert all(inner.has_default for inner in our.fields), where


def test_every_schema_of_kafka_is_declared() -> None:
    """All of them, not only those of announced APIs, but for requests of what nobody here reads or writes."""
    names = {cls.__name__ for cls in declared_messages()}
    missing = {name for jar in JARS for name in schemas(jar)} - names
    assert {name for name in missing if not any(part in name for part in NOT_SPOKEN)} == set()
    assert all(name.endswith(("Request", "Response")) for name in missing)


def test_the_comparison_sees_what_schemas_hold() -> None:
    """A comparison of two empty lists would pass as well."""
    compared = [field for cls in declared_messages() for field in flat(our_fields(cls))]
    assert len(compared) > 1700
    assert {field.tag is not None for field in compared} == {True, False}
    assert {bool(list(field.nullable)) for field in compared} == {True, False}
    assert len({field.entity for field in compared}) == 6


def all_facts(fields: list[Field]) -> Iterator[dict[str, object]]:
    for field in flat(fields):
        yield field.facts()


def flat(fields: list[Field]) -> Iterator[Field]:
    """Depth first; a field's own come right after it."""
    for field in fields:
        yield field
        yield from flat(field.fields)
