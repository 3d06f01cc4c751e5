"""Every declared message, and random instances of it in any version, drawn from its declaration."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st

import odradek.protocol.messages
from odradek.protocol.codec import Message
from odradek.protocol.declare import FieldLayout, Struct, layout
from odradek.protocol.primitives import WireType

RECORD_MODULES = (
    "odradek.protocol.frame",
    "odradek.metadata.records",
    "odradek.coordinator.group.records",
    "odradek.coordinator.group.share_records",
    "odradek.coordinator.group.streams_records",
    "odradek.coordinator.transaction.records",
)

_LONG = "long enough for a length of two bytes: " * 5

PRIMITIVES: dict[str, st.SearchStrategy[Any]] = {
    "bool": st.booleans(),
    "int8": st.integers(-(2**7), 2**7 - 1),
    "int16": st.integers(-(2**15), 2**15 - 1),
    "int32": st.integers(-(2**31), 2**31 - 1),
    "int64": st.integers(-(2**63), 2**63 - 1),
    "uint16": st.integers(0, 2**16 - 1),
    "uint32": st.integers(0, 2**32 - 1),
    "float64": st.floats(allow_nan=False, allow_infinity=False),
    "uuid": st.binary(min_size=16, max_size=16),
    "string": st.one_of(st.text(max_size=6), st.just(_LONG)),
    "bytes": st.one_of(st.binary(max_size=6), st.just(_LONG.encode())),
    "records": st.one_of(st.binary(max_size=6), st.just(_LONG.encode())),
}

Chooser = Callable[[FieldLayout, int, Any], tuple[st.SearchStrategy[Any] | None, Any]]
"""What another implementation restricts a field to (None: nothing), and the guide for the struct inside it."""


def declared_messages() -> list[type[Message]]:
    """Every message class of the project, each from the module that declares it."""
    api_modules = [
        f"odradek.protocol.messages.{each.name}" for each in pkgutil.iter_modules(odradek.protocol.messages.__path__)
    ]
    found = []
    for name in (*api_modules, *RECORD_MODULES):
        module = importlib.import_module(name)
        for value in vars(module).values():
            if isinstance(value, type) and issubclass(value, Message) and value.__module__ == name:
                found.append(value)
    return found


def unrestricted(each: FieldLayout, place: int, guide: Any) -> tuple[None, None]:
    return None, None


def structs(
    cls: type[Struct], version: int, choose: Chooser = unrestricted, guide: Any = None
) -> st.SearchStrategy[Struct]:
    """Instances with a drawn value in every field of that version and the default in every other."""
    values = {}
    present = [each for each in layout(cls) if version in each.versions]
    for place, each in enumerate(present):
        restriction, inner = choose(each, place, guide)
        if isinstance(each.type, WireType):
            strategy = restriction if restriction is not None else PRIMITIVES[each.type.name]
        else:
            strategy = structs(each.type, version, choose, inner)
        if each.is_array:
            strategy = st.lists(strategy, max_size=2)
        if version in each.nullable:
            strategy = st.one_of(st.none(), strategy)
        if each.tag is not None:
            strategy = st.one_of(st.just(each.default()), strategy)
        values[each.name] = strategy
    return st.builds(cls, **values)
