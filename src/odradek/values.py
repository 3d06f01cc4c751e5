"""`@value`: frozen to the type checker, plain at run time, and nearly free to declare.

A frozen dataclass costs ten times a plain one to build (`object.__setattr__` per field); mypy enforces what matters.
Even a plain one compiles four methods, a third of a millisecond a class at every start, which for seventy values is a
quarter of a node's start-up. So `__init__` is compiled when a class is first used, and the rest is not compiled at all.
"""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter
from typing import Any, TypeVar, dataclass_transform

ClassT = TypeVar("ClassT", bound=type)
ValueT = TypeVar("ValueT")


@dataclass_transform(frozen_default=True)
def value(cls: ClassT) -> ClassT:
    """Declare an immutable value with slots, equality and a readable repr; a default must itself be immutable."""
    names = tuple(cls.__annotations__)
    defaults = {name: cls.__dict__[name] for name in names if name in cls.__dict__}
    namespace = {
        name: held for name, held in cls.__dict__.items() if name not in _OF_THE_OLD_CLASS and name not in names
    }
    namespace.update(
        __slots__=names,
        __match_args__=names,
        __init__=_compiled_at_first_use(names, defaults),
        __eq__=_equality(names),
        __hash__=namespace.get("__hash__"),
        __dataclass_fields__=_DataclassFields(names, defaults),
    )
    namespace.setdefault("__repr__", _repr)
    made = type(cls)(cls.__name__, cls.__bases__, namespace)
    made.__qualname__ = cls.__qualname__
    return made


def replace(held: ValueT, **changes: Any) -> ValueT:
    """Another value that differs in what is named."""
    fields: dict[str, Any] = {name: getattr(held, name) for name in type(held).__slots__}  # type: ignore[attr-defined]
    return type(held)(**{**fields, **changes})


_OF_THE_OLD_CLASS = ("__dict__", "__weakref__")


def _compiled_at_first_use(names: tuple[str, ...], defaults: dict[str, Any]) -> Callable[..., None]:
    def __init__(self: object, *args: object, **kwargs: object) -> None:
        parameters = ", ".join(f"{name}=_default_{name}" if name in defaults else name for name in names)
        body = "\n".join(f"    self.{name} = {name}" for name in names) or "    pass"
        scope = {f"_default_{name}": default for name, default in defaults.items()}
        exec(f"def __init__(self, {parameters}):\n{body}", scope)
        compiled: Any = scope["__init__"]
        compiled.__qualname__ = f"{type(self).__qualname__}.__init__"
        setattr(type(self), "__init__", compiled)  # noqa: B010
        compiled(self, *args, **kwargs)

    return __init__


def _equality(names: tuple[str, ...]) -> Callable[[object, object], bool]:
    held = attrgetter(*names) if names else type

    def __eq__(self: object, other: object) -> bool:
        return held(self) == held(other) if self.__class__ is other.__class__ else NotImplemented

    return __eq__


def _repr(self: Any) -> str:
    shown = ", ".join(f"{name}={getattr(self, name)!r}" for name in self.__slots__)
    return f"{self.__class__.__qualname__}({shown})"


class _DataclassFields:
    """Lets `dataclasses.replace` and pytest's diffs see a dataclass; what they need is made when they first ask."""

    def __init__(self, names: tuple[str, ...], defaults: dict[str, Any]) -> None:
        self._names = names
        self._defaults = defaults
        self._fields: dict[str, Any] | None = None

    def __get__(self, instance: object, owner: type) -> dict[str, Any]:
        if self._fields is None:
            import dataclasses

            plain = dataclasses.make_dataclass(
                owner.__name__,
                [
                    (name, object, dataclasses.field(default=self._defaults[name]))
                    if name in self._defaults
                    else (name, object)
                    for name in self._names
                ],
            )
            self._fields = dict(vars(plain)["__dataclass_fields__"])
        return self._fields
