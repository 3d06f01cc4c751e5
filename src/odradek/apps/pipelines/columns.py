"""What a sink's files hold and what is to come, together: which changes of columns readers can take, and which not.

Spark writes any columns beside any others and says nothing. Its readers take the columns of one file for those of all,
so a new column is not seen and a changed type is an error in whoever reads, long after it was written.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

Type = Any
"""A type as Spark writes it in JSON: the name of a simple one, or an object with its parts."""

EVERYWHERE = ("struct", "array", "map")


def together(
    before: Mapping[str, Any], now: Mapping[str, Any], *, inside: Collection[str] = EVERYWHERE
) -> dict[str, Any]:
    """The columns of both, old ones first; a ValueError that says which ones do not go together.

    Columns may come and go, and where a row has none it is null. `inside`: of what types the parts may, too.
    """
    merged: dict[str, Any] = _merged(before, now, "", inside=inside)
    return merged


def _merged(before: Type, now: Type, path: str, *, inside: Collection[str]) -> Type:
    kinds = [each.get("type") if isinstance(each, Mapping) else None for each in (before, now)]
    if kinds == ["struct", "struct"] and (not path or "struct" in inside):
        prefix = f"{path}." if path else ""
        return {"type": "struct", "fields": _fields(before["fields"], now["fields"], prefix, inside=inside)}
    if "array" in inside and kinds == ["array", "array"]:
        element = _merged(before["elementType"], now["elementType"], path, inside=inside)
        return {"type": "array", "elementType": element, "containsNull": True}
    if "map" in inside and kinds == ["map", "map"] and before["keyType"] == now["keyType"]:
        held = _merged(before["valueType"], now["valueType"], path, inside=inside)
        return {"type": "map", "keyType": before["keyType"], "valueType": held, "valueContainsNull": True}
    if plain(before) != plain(now):
        raise ValueError(f"the column {path} was {text(before)} and is {text(now)} now")
    return before


def _fields(before: list[Any], now: list[Any], path: str, *, inside: Collection[str]) -> list[Any]:
    new = {each["name"]: each for each in now}
    known = {each["name"].lower(): each["name"] for each in before}
    for name in new:
        other = known.get(name.lower(), name)
        if other != name:
            raise ValueError(f"the column {path}{other} is called {path}{name} now, which is the same to Spark")
    fields = []
    for each in before:
        name = each["name"]
        kind = each["type"]
        if name in new:
            kind = _merged(kind, new.pop(name)["type"], f"{path}{name}", inside=inside)
        fields.append({"name": name, "type": kind, "nullable": True, "metadata": {}})
    return [*fields, *({**each, "nullable": True} for each in new.values())]


def plain(kind: Type) -> Type:
    """A type without whether it may be null, which files do not mind."""
    if not isinstance(kind, Mapping):
        return kind
    if kind["type"] == "struct":
        return {"type": "struct", "fields": [[each["name"], plain(each["type"])] for each in kind["fields"]]}
    return {name: plain(part) for name, part in kind.items() if name not in ("containsNull", "valueContainsNull")}


def text(kind: Type) -> str:
    """As people write it: `array<struct<n:bigint>>`."""
    if not isinstance(kind, Mapping):
        return {"long": "bigint", "integer": "int"}.get(kind, str(kind))
    match kind["type"]:
        case "struct":
            inner = ",".join(f"{each['name']}:{text(each['type'])}" for each in kind["fields"])
            return f"struct<{inner}>"
        case "array":
            return f"array<{text(kind['elementType'])}>"
        case "map":
            return f"map<{text(kind['keyType'])},{text(kind['valueType'])}>"
    return str(kind["type"])
