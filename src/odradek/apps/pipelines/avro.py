"""Avro to columns: the whole of a value, by the schema it was written with, as the declared schema wants it.

Spark's `from_avro` stops where the record ends and ignores the rest. So every schema is put into an envelope, a record
with a mark behind it, and every value gets eight bytes of its own hash: they are read as the mark only if the record
ends where the value did. What was written with several schemas is read by one `from_avro` for each of them, whose
second schema is the declared one: Avro's own library resolves one to the other.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from odradek.values import value

if TYPE_CHECKING:
    from pyspark.sql import Column

PREFIX_BYTES = 5
"""A zero byte and the id of a schema, which serializers that use a registry write before the data."""

NEW_ID = "odradek knows no schema yet for id"
_NEW_ID = re.compile(rf"{NEW_ID} (\d+) of (\w+)")


@value
class Writer:
    """What records with an id were written with; or why nobody can tell."""

    schema_id: int
    schema: str
    reason: str = ""


def new_id(told: str) -> tuple[str, int] | None:
    """The source and the schema id that a query's failure asks for, if it is one that asks."""
    found = _NEW_ID.search(told)
    return None if found is None else (found[2], int(found[1]))


def read(data: Column, reader: str) -> Column:
    """A value in its envelope: `body` and `end`, both null where the bytes do not fit."""
    return _opened(data, reader, reader)


def read_by_id(data: Column, reader: str, writers: Sequence[Writer], source: str) -> Column:
    """The same, behind the registry's five bytes. Ids that are not known yet stop the query if a source is named."""
    from pyspark.sql import functions as F

    behind = F.expr("cast(null AS binary)")
    nothing = _opened(behind, reader, reader)
    body = F.when(F.length(data) >= PREFIX_BYTES, F.substring(data, PREFIX_BYTES + 1, 2**31 - 1))
    schema_id = _schema_id(data)
    found = F.when(data.isNull() | _no_prefix(data), nothing)
    for each in writers:
        found = found.when(schema_id == each.schema_id, _opened(body, each.schema, reader) if each.schema else nothing)
    if not source:
        return found.otherwise(nothing)
    asking = F.raise_error(F.concat(F.lit(f"{NEW_ID} "), schema_id.cast("string"), F.lit(f" of {source}.")))
    return found.otherwise(_opened(asking.cast("binary"), reader, reader))


def why_not(data: Column, envelope: Column) -> Column:
    """Why a value is not Avro of the declared schema, or null."""
    from pyspark.sql import functions as F

    return (
        F.when(envelope["end"].isNull(), F.lit("the value is not Avro of the declared schema"))
        .when(envelope["end"] != _mark(data), F.lit("there is more behind the Avro record"))
        .otherwise(F.lit(None))
    )


def why_not_by_id(data: Column, envelope: Column, writers: Sequence[Writer]) -> Column:
    """The same, behind the registry's five bytes."""
    from pyspark.sql import functions as F

    schema_id = _schema_id(data)
    told = F.when(_no_prefix(data), F.lit("the value does not begin with a registry's five bytes"))
    for each in writers:
        if each.reason:
            told = told.when(schema_id == each.schema_id, F.lit(each.reason))
    known = [each.schema_id for each in writers]
    number = schema_id.cast("string")
    unknown = F.concat(F.lit("schema id "), number, F.lit(" is not among the declared ones"))
    unfit = F.concat(
        F.lit("the value is not Avro of schema id "), number, F.lit(", or that does not resolve to the declared schema")
    )
    body = F.substring(data, PREFIX_BYTES + 1, 2**31 - 1)
    return (
        told.when(~schema_id.isin(known), unknown)
        .when(envelope["end"].isNull(), unfit)
        .when(envelope["end"] != _mark(body), F.lit("there is more behind the Avro record"))
        .otherwise(F.lit(None))
    )


def _opened(data: Column, writer: str, reader: str) -> Column:
    from pyspark.sql import functions as F
    from pyspark.sql.avro.functions import from_avro

    options = {"mode": "PERMISSIVE", "avroSchema": _envelope(reader)}
    return from_avro(F.concat(data, _mark(data)), _envelope(writer), options)


def _envelope(schema: str) -> str:
    """A record of one of that schema and a mark; it has no namespace, which those within would inherit."""
    mark = {"type": "fixed", "name": "OdradekMark", "size": 8}
    fields = [{"name": "body", "type": json.loads(schema)}, {"name": "end", "type": mark}]
    return json.dumps({"type": "record", "name": "OdradekEnvelope", "fields": fields})


def _mark(data: Column) -> Column:
    from pyspark.sql import functions as F

    return F.unhex(F.lpad(F.hex(F.xxhash64(data)), 16, "0"))


def _schema_id(data: Column) -> Column:
    from pyspark.sql import functions as F

    return F.conv(F.hex(F.substring(data, 2, 4)), 16, 10).cast("bigint")


def _no_prefix(data: Column) -> Column:
    from pyspark.sql import functions as F

    return (F.length(data) < PREFIX_BYTES) | (F.substring(data, 1, 1) != F.lit(b"\0"))
