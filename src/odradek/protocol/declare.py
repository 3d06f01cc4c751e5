"""The language messages are declared in: a class a message, an annotated attribute a field, once for all versions.

Declaring is cheap on purpose, since a broker declares far more than it uses: a class keeps its annotations as text, and
constructors, layouts and codecs are made when first asked for.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias, dataclass_transform

from odradek.protocol.primitives import WireType

_NO_LIMIT = 32767
_REQUIRED: Any = object()


class Versions:
    """A closed range of versions, written as Kafka's schemas do: `3`, `0-4`, `2+` or `none`."""

    __slots__ = ("high", "low")

    def __init__(self, text: str) -> None:
        if text == "none":
            self.low, self.high = 0, -1
        elif text[-1] == "+":
            self.low, self.high = int(text[:-1]), _NO_LIMIT
        else:
            low, _, high = text.partition("-")
            self.low, self.high = int(low), int(high or low)

    def __contains__(self, version: object) -> bool:
        return isinstance(version, int) and self.low <= version <= self.high

    def __iter__(self) -> Iterator[int]:
        return iter(range(self.low, self.high + 1))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Versions) and (self.low, self.high) == (other.low, other.high)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        if self.high < self.low:
            return "none"
        if self.high == _NO_LIMIT:
            return f"{self.low}+"
        return f"{self.low}-{self.high}" if self.high > self.low else f"{self.low}"

    def within(self, outer: Versions) -> Versions:
        """The part of this range that `outer` covers too."""
        common = Versions("none")
        if max(self.low, outer.low) <= min(self.high, outer.high):
            common.low, common.high = max(self.low, outer.low), min(self.high, outer.high)
        return common


class Field:
    """One declared field: what `field` was told, and the text of its annotation."""

    __slots__ = ("annotation", "default", "default_factory", "flexible", "name", "nullable", "tag", "versions")

    def __init__(
        self,
        versions: str = "0+",
        nullable: str = "none",
        tag: int | None = None,
        flexible: str | None = None,
        default: Any = _REQUIRED,
        default_factory: Any = None,
    ) -> None:
        self.name = ""
        self.annotation = ""
        self.versions = versions
        self.nullable = nullable
        self.tag = tag
        self.flexible = flexible
        self.default = default
        self.default_factory = default_factory

    @property
    def required(self) -> bool:
        """Whether the constructor insists on a value."""
        return self.default is _REQUIRED and self.default_factory is None


def field(
    *,
    versions: str = "0+",
    nullable: str = "none",
    tag: int | None = None,
    flexible: str | None = None,
    default: Any = _REQUIRED,
    default_factory: Any = None,
) -> Any:
    """Say more about a field than its type.

    `versions` carry it, in `nullable` versions it may be None, a `tag` makes it a tagged field in all of them,
    `flexible` overrides the message's own. A version without the field decodes to the default; without a default the
    constructor insists on a value. `default_factory` is `list`, or the struct whose default value says "none given".
    """
    return Field(versions, nullable, tag, flexible, default, default_factory)


@dataclass_transform(kw_only_default=True, field_specifiers=(field,))
class StructType(type):
    """Turns annotations into slots and remembers them in order."""

    def __new__(mcs, name: str, bases: tuple[type, ...], namespace: dict[str, Any], **options: Any) -> StructType:
        fields = []
        for attribute, annotation in namespace.get("__annotations__", {}).items():
            if annotation.startswith("ClassVar"):
                continue
            declared = namespace.pop(attribute, _REQUIRED)
            if not isinstance(declared, Field):
                declared = Field(default=declared)
            declared.name = attribute
            declared.annotation = annotation
            fields.append(declared)
        namespace["__slots__"] = tuple([declared.name for declared in fields])
        if fields or "FIELDS" not in namespace:
            namespace["FIELDS"] = tuple(fields)
        return super().__new__(mcs, name, bases, namespace, **options)


class Struct(metaclass=StructType):
    """A group of fields: plain slots, built by keyword, compared by value."""

    FIELDS: ClassVar[tuple[Field, ...]] = ()

    if not TYPE_CHECKING:

        def __init__(self, **values: Any) -> None:
            _compile_constructor(type(self))(self, **values)

    def __eq__(self, other: object) -> bool:
        if not (isinstance(other, type(self)) or isinstance(self, type(other))):
            return NotImplemented
        return all(getattr(self, each.name) == getattr(other, each.name) for each in self.FIELDS)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        values = ", ".join([f"{each.name}={getattr(self, each.name)!r}" for each in self.FIELDS])
        return f"{type(self).__name__}({values})"


class Message(Struct):
    """A struct that is sent or stored on its own, so it knows its key and its versions."""

    api_key: ClassVar[int] = -1
    versions: ClassVar[Versions] = Versions("none")
    flexible: ClassVar[Versions] = Versions("none")
    min_version: ClassVar[int] = 0
    max_stable_version: ClassVar[int] = -1
    """The highest version that is announced; one above it needs `unstable.api.versions.enable`."""
    field_names: ClassVar[tuple[str, ...]] = ()

    def __init_subclass__(
        cls, *, api_key: int = -1, versions: str = "0", flexible: str = "none", unstable: str = "none"
    ) -> None:
        cls.api_key = api_key
        cls.versions = Versions(versions)
        cls.flexible = Versions(flexible)
        cls.min_version = cls.versions.low
        cls.max_stable_version = cls.versions.high if unstable == "none" else Versions(unstable).low - 1
        cls.field_names = tuple([declared.name for declared in cls.FIELDS])


FieldType: TypeAlias = WireType | type[Struct]


class FieldLayout:
    """A field with its annotation understood."""

    __slots__ = ("declared", "flexible", "is_array", "may_be_none", "name", "nullable", "tag", "type", "versions")

    def __init__(self, declared: Field, namespace: dict[str, Any]) -> None:
        self.declared = declared
        self.name = declared.name
        self.tag = declared.tag
        self.versions = Versions(declared.versions)
        self.nullable = Versions(declared.nullable)
        self.flexible = None if declared.flexible is None else Versions(declared.flexible)
        text = declared.annotation.removesuffix(" | None")
        self.may_be_none = text != declared.annotation
        self.is_array = text.startswith("list[")
        self.type: FieldType = _resolve(text[5:-1] if self.is_array else text, namespace)

    def default(self) -> Any:
        """The value where none is given: a new list, or the one shared and sealed value of a struct."""
        if self.declared.default_factory is list:
            return []
        if self.declared.default_factory is not None:
            return shared_default(self.declared.default_factory)
        return self.declared.default


def layout(cls: type[Struct]) -> tuple[FieldLayout, ...]:
    """A struct's fields in wire order."""
    known = _layouts.get(cls)
    if known is None:
        namespace = sys.modules[cls.__module__].__dict__
        known = _layouts[cls] = tuple([FieldLayout(declared, namespace) for declared in cls.FIELDS])
    return known


def shared_default(cls: type[Struct]) -> Struct:
    """A struct whose fields all have their defaults.

    One for all messages, since building one per message costs more than encoding it; so it refuses to be changed:
    assign a new struct instead.
    """
    known = _defaults.get(cls)
    if known is None:
        members = {
            "__module__": cls.__module__,
            "__setattr__": _refuse,
            "__reduce__": lambda _: (shared_default, (cls,)),  # A copy of it is itself.
            "FIELDS": cls.FIELDS,
        }
        sealed = StructType(cls.__name__, (cls,), members)
        known = _defaults[cls] = cls()
        known.__class__ = sealed  # type: ignore[assignment]
    return known


_layouts: dict[type[Struct], tuple[FieldLayout, ...]] = {}
_defaults: dict[type[Struct], Struct] = {}


def _refuse(self: Struct, name: str, value: object) -> None:
    raise TypeError(f"a default {type(self).__mro__[1].__name__} is shared by all messages: assign a new one")


def _resolve(name: str, namespace: dict[str, Any]) -> FieldType:
    found = namespace[name]
    resolved: FieldType = found if isinstance(found, type) else found.__metadata__[0]
    return resolved


def _compile_constructor(cls: type[Struct]) -> Any:
    """Write the `__init__` that takes every field by keyword, and put it in the place of this detour."""
    constants: dict[str, Any] = {"not_given": _REQUIRED}
    parameters, body = [], []
    for each in layout(cls):
        name = each.name
        if each.declared.required:
            parameters.append(name)
            body.append(f" self.{name} = {name}")
        elif each.declared.default_factory is list:
            parameters.append(f"{name}=not_given")
            body.append(f" self.{name} = [] if {name} is not_given else {name}")
        else:
            constants["default_" + name] = each.default()
            parameters.append(f"{name}=default_{name}")
            body.append(f" self.{name} = {name}")
    signature = ", ".join(["self", "*", *parameters] if parameters else ["self"])
    exec("\n".join([f"def __init__({signature}):", *(body or [" pass"])]), constants)
    cls.__init__ = constants["__init__"]  # type: ignore[method-assign]
    return constants["__init__"]
