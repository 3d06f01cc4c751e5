"""`@value`: frozen to the type checker, plain at run time.

A frozen dataclass costs ten times a plain one to build (`object.__setattr__` per field); mypy enforces what matters.
"""

from __future__ import annotations

import dataclasses
from typing import TypeVar, dataclass_transform

ClassT = TypeVar("ClassT", bound=type)


@dataclass_transform(frozen_default=True, field_specifiers=(dataclasses.field,))
def value(cls: ClassT) -> ClassT:
    """Declare an immutable value with slots, equality and a readable repr."""
    return dataclasses.dataclass(slots=True)(cls)  # type: ignore[return-value]
