"""The JSON schemas inside Kafka's jars, and ours, both as plain lists of fields that can be compared."""

from __future__ import annotations

import json
import re
import zipfile
from functools import cache
from typing import Any

from tests.compat.maven import KAFKA_VERSION, artifact

from odradek.ids import ZERO_UUID
from odradek.protocol.codec import Message, Struct, Versions
from odradek.protocol.declare import layout
from odradek.protocol.primitives import WireType

ZOOKEEPER_MODE_VERSION = "3.9.2"
"""The last release with ZooKeeper mode: the newest schemas of the four APIs that only it uses."""

JARS = ("kafka-clients", "kafka-metadata", "kafka-group-coordinator", "kafka-transaction-coordinator", "kafka-raft")

IMPLICIT_DEFAULTS = {"bool": False, "string": "", "bytes": b"", "float64": 0.0, "uuid": ZERO_UUID, "records": None}


@cache
def schemas(name: str, version: str = KAFKA_VERSION) -> dict[str, dict[str, Any]]:
    """All schemas of one jar by message name; those without a valid version are left out."""
    found = {}
    with zipfile.ZipFile(artifact(f"org.apache.kafka:{name}:{version}")) as jar:
        for path in jar.namelist():
            if path.startswith("common/me") and path.endswith(".json"):
                schema = json.loads(_without_comments(jar.read(path).decode()), object_hook=_without_null_default)
                if schema["validVersions"] != "none":
                    found[schema["name"]] = schema
    return found


def schema_of(cls: type[Message]) -> dict[str, Any] | None:
    for name in JARS:
        schema = schemas(name).get(cls.__name__)
        if schema is not None and cls.__name__ != "RequestHeader":
            return schema
    return schemas("kafka-clients", ZOOKEEPER_MODE_VERSION).get(cls.__name__)


def _without_comments(text: str) -> str:
    return re.sub(r'("(?:[^"\\]|\\.)*")|//[^\n]*', lambda match: match.group(1) or "", text)


def _without_null_default(raw: dict[str, Any]) -> dict[str, Any]:
    """Kafka's generator reads `null` as no default at all; only the text "null" makes null the default."""
    return {key: value for key, value in raw.items() if key != "default" or value is not None}


def snake_case(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name.replace("KRaft", "Kraft")).lower()


class Field:
    """One field, from either side. Its versions are those in which it can occur at all, given what holds it."""

    def __init__(self, name: str, kind: str, *, versions: Versions, nullable: Versions, tag: int | None) -> None:
        self.name = name
        self.kind = kind
        self.versions = versions
        self.nullable = nullable
        self.tag = tag
        self.entity = ""
        self.flexible: Versions | None = None
        self.has_default = False
        self.default: Any = None
        self.needs_default = False
        self.fields: list[Field] = []

    def facts(self) -> dict[str, object]:
        """What both sides must agree on."""
        return {
            "name": self.name,
            "type": self.kind,
            "versions": repr(self.versions),
            "nullable": repr(self.nullable),
            "tag": self.tag,
            "entity": self.entity,
            "flexible": repr(self.flexible),
        }


STRUCT_DEFAULT = object()
"""Stands for a struct whose fields have their defaults, which are compared one by one."""


def kafka_fields(schema: dict[str, Any]) -> list[Field]:
    common = {each["name"]: each["fields"] for each in schema.get("commonStructs", [])}
    return _kafka_fields(schema["fields"], common, Versions(schema["validVersions"]))


def _kafka_fields(raw_fields: list[dict[str, Any]], common: dict[str, Any], holder: Versions) -> list[Field]:
    found = []
    for raw in raw_fields:
        versions = Versions(raw.get("versions", raw.get("taggedVersions"))).within(holder)
        if not list(versions):
            continue
        nullable = Versions(raw.get("nullableVersions", "none")).within(versions)
        element = raw["type"].removeprefix("[]")
        is_struct = element[0].isupper()
        kind = raw["type"].replace(element, "struct") if is_struct else raw["type"]
        field = Field(snake_case(raw["name"]), kind, versions=versions, nullable=nullable, tag=raw.get("tag"))
        if "taggedVersions" in raw:
            assert Versions(raw["taggedVersions"]).within(holder) == versions, "tagged in some versions only"
        field.entity = raw.get("entityType", "")
        field.flexible = Versions(raw["flexibleVersions"]) if "flexibleVersions" in raw else None
        field.default = _kafka_default(raw, kind)
        field.has_default = True
        field.needs_default = "default" in raw or field.tag is not None or versions != holder
        if is_struct:
            field.fields = _kafka_fields(raw.get("fields") or common[element], common, versions)
        found.append(field)
    return found


def _kafka_default(raw: dict[str, Any], kind: str) -> Any:
    if "default" not in raw:
        return _implicit_default(kind)
    text = raw["default"]
    if text == "null":
        return None
    if kind == "bool":
        return str(text).lower() == "true"
    if kind == "string":
        return text
    if kind == "float64":
        return float(text)
    return int(str(text), 0) if "int" in kind and not kind.startswith("[]") else _implicit_default(kind)


def _implicit_default(kind: str) -> Any:
    if kind.startswith("[]"):
        return []
    return STRUCT_DEFAULT if kind == "struct" else IMPLICIT_DEFAULTS.get(kind, 0)


def our_fields(cls: type[Message]) -> list[Field]:
    return _our_fields(cls, cls.versions)


def _our_fields(cls: type[Struct], holder: Versions) -> list[Field]:
    found = []
    for each in layout(cls):
        versions = each.versions.within(holder)
        if not list(versions):
            continue
        kind = each.type.name if isinstance(each.type, WireType) else "struct"
        field = Field(
            each.name,
            ("[]" if each.is_array else "") + kind,
            versions=versions,
            nullable=each.nullable.within(versions),
            tag=each.tag,
        )
        field.flexible = each.flexible
        field.has_default = not each.declared.required
        if isinstance(each.type, WireType):
            field.entity = each.type.entity
        else:
            field.fields = _our_fields(each.type, versions)
        if each.declared.default_factory is each.type:
            field.default = STRUCT_DEFAULT
        elif field.has_default:
            field.default = each.default()
        found.append(field)
    return found
