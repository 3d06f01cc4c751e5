"""`@value` does what a dataclass with slots does."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import pickle
from typing import Generic, TypeVar

import pytest

from odradek.values import replace, value

ItemT = TypeVar("ItemT")


@value
class Point:
    """A place."""

    x: int
    """Eastward."""

    y: int = 7

    @property
    def sum(self) -> int:
        return self.x + self.y


@value
class Held(Generic[ItemT]):
    item: ItemT


@value
class Nothing:
    pass


def test_it_is_built_by_place_and_by_name() -> None:
    assert (Point(1).x, Point(1).y, Point(y=3, x=2).sum) == (1, 7, 5)
    assert Held("a").item == "a"
    assert Point.__doc__ == "A place."


@pytest.mark.parametrize("wrong", [{}, {"x": 1, "z": 2}])
def test_a_wrong_argument_is_a_type_error(wrong: dict[str, int]) -> None:
    with pytest.raises(TypeError, match=r"Point\.__init__\(\)"):
        Point(**wrong)


def test_equal_by_what_it_holds_and_by_its_class() -> None:
    assert Point(1) == Point(1, 7)
    assert Point(1) != Point(2)
    assert Point(1) != (1, 7)
    assert Nothing() == Nothing()
    assert Held(1) != Point(1)


def test_it_has_slots_and_no_hash() -> None:
    with pytest.raises(AttributeError):
        Point(1).z = 3  # type: ignore[attr-defined]
    with pytest.raises(TypeError, match="unhashable"):
        hash(Point(1))


def test_it_shows_what_it_holds() -> None:
    assert repr(Point(1)) == "Point(x=1, y=7)"


def test_patterns_copies_and_pickles() -> None:
    match Point(1, 2):
        case Point(x, y):
            assert (x, y) == (1, 2)
    assert copy.copy(Point(1)) == Point(1)
    assert pickle.loads(pickle.dumps(Point(1))) == Point(1)


def test_it_can_be_changed_into_another_also_by_dataclass_tools() -> None:
    assert replace(Point(1), y=2) == Point(1, 2)
    assert dataclasses.replace(Point(1), y=2) == Point(1, 2)  # type: ignore[type-var]
    assert [field.name for field in dataclasses.fields(Point(1))] == ["x", "y"]  # type: ignore[arg-type]


def test_the_constructor_is_compiled_once_and_then_plain() -> None:
    Point(1)
    assert list(inspect.signature(Point.__init__).parameters) == ["self", "x", "y"]
