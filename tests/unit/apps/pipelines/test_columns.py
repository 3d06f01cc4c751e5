"""Which changes of a sink's columns its readers can take."""

from __future__ import annotations

from typing import Any

import pytest

from odradek.apps.pipelines.columns import together


def struct(**fields: Any) -> dict[str, Any]:
    return {
        "type": "struct",
        "fields": [{"name": name, "type": kind, "nullable": True, "metadata": {}} for name, kind in fields.items()],
    }


def array(of: Any) -> dict[str, Any]:
    return {"type": "array", "elementType": of, "containsNull": True}


def test_columns_come_and_go() -> None:
    before = struct(id="string", inner=struct(n="integer"), gone="date", many=array(struct(n="long")))
    now = struct(
        id="string", inner=struct(n="integer", m="string"), new="double", many=array(struct(n="long", m="long"))
    )
    assert together(before, now) == struct(
        id="string",
        inner=struct(n="integer", m="string"),
        gone="date",
        many=array(struct(n="long", m="long")),
        new="double",
    )
    with pytest.raises(ValueError, match=r"the column many was array<struct<n:bigint>> and is array<struct<n:bigint,m"):
        together(before, now, inside=("struct",))
    with pytest.raises(ValueError, match=r"the column inner was struct<n:int> and is struct<n:int,m:string> now"):
        together(before, now, inside=())
    required = struct(id="string")
    required["fields"][0]["nullable"] = False
    assert together(required, struct(id="string")) == struct(id="string")


@pytest.mark.parametrize(
    ("before", "now", "told"),
    [
        ("integer", "string", "the column x was int and is string now"),
        ("integer", "long", "the column x was int and is bigint now"),
        ("decimal(10,2)", "decimal(12,2)", "the column x was decimal(10,2) and is decimal(12,2) now"),
        (struct(n="integer"), struct(n="date"), "the column x.n was int and is date now"),
        (struct(n="integer"), array("integer"), "the column x was struct<n:int> and is array<int> now"),
        (array(struct(n="integer")), array(struct(n="date")), "the column x.n was int and is date now"),
        (
            {"type": "map", "keyType": "string", "valueType": "long", "valueContainsNull": True},
            {"type": "map", "keyType": "long", "valueType": "long", "valueContainsNull": True},
            "the column x was map<string,bigint> and is map<bigint,bigint> now",
        ),
    ],
)
def test_types_stay(before: Any, now: Any, told: str) -> None:
    with pytest.raises(ValueError) as refused:  # noqa: PT011
        together(struct(x=before), struct(x=now))
    assert str(refused.value) == told


def test_names_that_are_the_same_to_spark() -> None:
    with pytest.raises(ValueError, match="the column amount is called Amount now, which is the same to Spark"):
        together(struct(amount="long"), struct(Amount="long"))
