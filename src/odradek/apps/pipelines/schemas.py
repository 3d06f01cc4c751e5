"""What the bytes of a record mean, and why some of them mean nothing: JSON, Avro, text or raw bytes.

`parsed` gives every record the columns of its schema, and a reason if it does not fit. Nothing is dropped here: who has
a reason is a dead letter, and both halves are made from the same columns.
"""

from __future__ import annotations

import json as json_text
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from odradek.apps.pipelines import avro as avro_values
from odradek.apps.pipelines.fitting import (
    EPOCHS,
    as_written,
    misfit,
    moments,
    nothing_behind,
    with_moments_as_written,
)
from odradek.apps.terminal.sentence import Sentence
from odradek.values import value

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import StructType

META = ("_key", "_topic", "_partition", "_offset", "_timestamp", "_headers", "_deleted")
"""Where a record came from: columns that every dataset of a topic has beside those of its schema."""

REASON = "_reason"
ORIGINAL = "_original"
CORRUPT = "_corrupt"


@value
class Schema:
    """A declared meaning of bytes; made by `json`, `avro`, `text` and `raw`."""

    kind: str
    fields: str = ""
    """JSON: columns as in SQL (`id string, total double`). Avro: the schema, as JSON."""
    required: tuple[str, ...] = ()
    registry_prefix: bool = False
    epoch: str | None = None
    """JSON: what numbers count where a timestamp is declared; None: they are no timestamps."""
    registry: str = ""
    registry_options: tuple[tuple[str, str], ...] = ()
    writers: tuple[avro_values.Writer, ...] = ()
    """Avro: what records were written with, by the ids before them; declared, or told by the registry."""
    label: str = ""
    """Avro: the source that asks its registry for ids that are not among the writers; empty where there is none."""
    lossy: bool = False
    """JSON: let Spark round, cut and wrap what does not fit, and ignore what is behind the object."""


def json(fields: str, *, required: Sequence[str] = (), epoch: str | None = None, lossy: bool = False) -> Schema:
    """Objects with these fields; `required` ones may not be missing or null.

    A record is bad if there is anything behind the object, or a value that its column cannot hold exactly: 1.005 in a
    decimal(10,2), 1e400 in a double, more digits than microseconds have. With `lossy` it is taken as Spark takes it,
    rounded and cut. Numbers are timestamps only where `epoch` says what they count since 1970: s, ms, us or ns.
    """
    if not fields.strip():
        raise Sentence("schemas.json needs its fields, such as schemas.json('id string, total double').")
    if epoch is not None and epoch not in EPOCHS:
        raise Sentence(f"epoch may be {', '.join(EPOCHS)}, not {epoch!r}.")
    if epoch is not None and lossy:
        raise Sentence("with lossy, numbers count seconds where a timestamp is declared: leave epoch out, or lossy.")
    return Schema("json", fields, tuple(required), epoch=epoch, lossy=lossy)


def avro(
    schema: str,
    *,
    required: Sequence[str] = (),
    registry_prefix: bool = False,
    registry: str | None = None,
    registry_options: Mapping[str, str] | None = None,
    ids: Mapping[int, str] | None = None,
) -> Schema:
    """Records of this Avro schema (its JSON); with `registry_prefix` behind a zero byte and the id of another schema.

    That is the schema that a record was written with. It is found in a `registry` (its address, or none where the
    properties say schema.registry.url) or among `ids`, and resolved to this one by Avro's rules. Options of the
    registry are called as Confluent's clients call them: basic.auth.user.info, bearer.auth.token.
    """
    _check_record(schema)
    for each in (ids or {}).values():
        _check_record(each)
    if ids is not None and registry is not None:
        raise Sentence("schemas.avro takes registry='…' or ids={…}, not both.")
    return Schema(
        "avro",
        schema,
        tuple(required),
        registry_prefix or registry is not None or ids is not None,
        registry=registry or "",
        registry_options=tuple(sorted((registry_options or {}).items())),
        writers=tuple(avro_values.Writer(int(number), each) for number, each in sorted((ids or {}).items())),
    )


def _check_record(schema: str) -> None:
    try:
        declared = json_text.loads(schema)
    except ValueError as wrong:
        raise Sentence(f"schemas.avro needs an Avro schema as JSON, and this is none: {wrong}.") from wrong
    if not isinstance(declared, dict) or declared.get("type") != "record":
        raise Sentence("schemas.avro needs the schema of a record: its type is to be 'record'.")


def text() -> Schema:
    """UTF-8, in a column `value`."""
    return Schema("text")


def raw() -> Schema:
    """Bytes as they are, in a column `value`."""
    return Schema("raw")


def can_refuse(schema: Schema, key: Schema, *, key_required: bool) -> bool:
    """Whether a record can be bad at all: raw bytes cannot."""
    return key_required or schema.kind != "raw" or key.kind != "raw"


def parsed(records: DataFrame, schema: Schema, *, key: Schema, key_required: bool, tombstones: str) -> DataFrame:
    """Records of Spark's Kafka source with the schema's columns, `META`, and `REASON`: null if the record is good."""
    from pyspark.sql import functions as F

    reading = _Reading(schema)
    held = reading.add_columns(records)
    reasons = [F.when(F.col("key").isNull(), F.lit("the key is null"))] if key_required else []
    if key.kind == "text":
        reasons.append(F.when(~_is_utf8(F.col("key")), F.lit("the key is not UTF-8")))
    if schema.kind in ("json", "avro"):
        of_value = F.when(F.col("value").isNotNull(), reading.reason())
        if tombstones == "dead-letter":
            of_value = F.when(F.col("value").isNull(), F.lit("the value is null")).otherwise(of_value)
    else:
        of_value = reading.reason()
    reason = F.coalesce(*reasons, of_value)
    return held.select(
        *reading.columns(),
        (F.col("key").cast("string") if key.kind == "text" else F.col("key")).alias("_key"),
        F.col("topic").alias("_topic"),
        F.col("partition").alias("_partition"),
        F.col("offset").alias("_offset"),
        F.col("timestamp").alias("_timestamp"),
        F.col("headers").alias("_headers"),
        F.col("value").isNull().alias("_deleted"),
        F.struct("key", "value").alias(ORIGINAL),
        reason.alias(REASON),
    )


def good(held: DataFrame) -> DataFrame:
    """Those without a reason, as datasets see them."""
    from pyspark.sql import functions as F

    return held.where(F.col(REASON).isNull()).drop(REASON, ORIGINAL)


def bad(held: DataFrame) -> DataFrame:
    """Those with one."""
    from pyspark.sql import functions as F

    return held.where(F.col(REASON).isNotNull())


def encoded(
    rows: DataFrame, schema: Schema, *, key: str | None, headers: dict[str, str], deleted: str | None = None
) -> DataFrame:
    """Rows as records for Spark's Kafka sink: `key` names the column that becomes the key, `deleted` the one that says
    where the value is null."""
    return rows.select(*record_columns(rows, schema, key=key, headers=headers, deleted=deleted))


def record_columns(
    rows: DataFrame, schema: Schema, *, key: str | None, headers: dict[str, str], deleted: str | None = None
) -> list[Column]:
    """The parts of those records."""
    from pyspark.sql import functions as F

    if deleted is not None and deleted not in rows.columns:
        raise Sentence(f"the column {deleted} is to say what is deleted; there are only {', '.join(rows.columns)}.")
    columns = [name for name in rows.columns if name not in (*META, deleted)]
    match schema.kind:
        case "json":
            content = F.to_json(F.struct(*[F.col(f"`{name}`") for name in columns])).cast("binary")
        case "avro":
            from pyspark.sql.avro.functions import to_avro

            content = to_avro(F.struct(*[F.col(f"`{name}`") for name in columns]), schema.fields)
        case _:
            if "value" not in columns:
                raise Sentence(f"a sink of {schema.kind} needs a column called value; there are {', '.join(columns)}.")
            content = F.col("value").cast("binary")
    if deleted is not None:
        content = F.when(~F.coalesce(F.col(f"`{deleted}`"), F.lit(False)), content)
    parts = [content.alias("value")]
    if key is not None:
        if key not in rows.columns:
            raise Sentence(f"the sink's key is to be the column {key}, but there are only {', '.join(rows.columns)}.")
        parts.append(F.col(f"`{key}`").cast("string").cast("binary").alias("key"))
    if headers:
        pairs = [F.struct(F.lit(k).alias("key"), F.lit(v).cast("binary").alias("value")) for k, v in headers.items()]
        parts.append(F.array(*pairs).alias("headers"))
    return parts


class _Reading:
    """One schema's way from bytes to columns."""

    def __init__(self, schema: Schema) -> None:
        self._schema = schema
        self._struct: StructType | None = None
        if schema.kind == "json":
            self._struct = _json_struct(schema)
            self._names = self._struct.fieldNames()
        elif schema.kind == "avro":
            self._names = [field["name"] for field in json_text.loads(schema.fields)["fields"]]
        else:
            self._names = []
        taken = [name for name in self._names if name in META or name.startswith("_")]
        if taken:
            raise Sentence(f"a schema's fields may not begin with an underscore: {', '.join(taken)}.")
        missing = [name for name in schema.required if name not in self._names]
        if missing:
            raise Sentence(f"required fields are not among those of the schema: {', '.join(missing)}.")

    def add_columns(self, records: DataFrame) -> DataFrame:
        from pyspark.sql import functions as F

        if self._schema.kind == "json":
            from pyspark.sql.types import StringType, StructType

            assert self._struct is not None
            text_value = F.col("value").cast("string")
            epoch = self._schema.epoch
            plain = self._struct if epoch is None else with_moments_as_written(self._struct)
            assert isinstance(plain, StructType)
            wanted = StructType([*plain.fields]).add(CORRUPT, StringType())
            options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": CORRUPT}
            held = records.withColumn("_parsed", _once(F.from_json(text_value, wanted, options)))
            if epoch is not None:
                whole = StructType([*self._struct.fields]).add(CORRUPT, StringType())
                held = held.withColumn("_parsed", _once(moments(F.col("_parsed"), whole, epoch)))
            return (
                held if self._schema.lossy else held.withColumn("_written", _once(as_written(text_value, self._struct)))
            )
        if self._schema.kind == "avro":
            schema = self._schema
            if schema.registry_prefix:
                envelope = avro_values.read_by_id(F.col("value"), schema.fields, schema.writers, schema.label)
            else:
                envelope = avro_values.read(F.col("value"), schema.fields)
            held = records.withColumn("_envelope", _once(envelope))
            return held.withColumn("_parsed", F.col("_envelope.body"))
        return records

    def columns(self) -> list[Column]:
        from pyspark.sql import functions as F

        match self._schema.kind:
            case "text":
                return [F.col("value").cast("string").alias("value")]
            case "raw":
                return [F.col("value")]
        return [F.col(f"_parsed.`{name}`").alias(name) for name in self._names]

    def reason(self) -> Column:
        """Why the value does not fit, or null."""
        from pyspark.sql import functions as F

        missing = [
            F.when(F.col(f"_parsed.`{name}`").isNull(), F.lit(f"the field {name} is missing or null"))
            for name in self._schema.required
        ]
        match self._schema.kind:
            case "json":
                return F.coalesce(
                    F.when(~_is_utf8(F.col("value")), F.lit("the value is not UTF-8")),
                    F.when(F.col("_parsed").isNull() | F.col(f"_parsed.{CORRUPT}").isNotNull(), self._why_not_json()),
                    *([] if self._schema.lossy else self._why_not_exactly()),
                    *missing,
                )
            case "avro":
                whole, envelope = F.col("value"), F.col("_envelope")
                if self._schema.registry_prefix:
                    wrong = avro_values.why_not_by_id(whole, envelope, self._schema.writers)
                else:
                    wrong = avro_values.why_not(whole, envelope)
                return F.coalesce(wrong, *missing)
            case "text":
                return F.when(~_is_utf8(F.col("value")), F.lit("the value is not UTF-8"))
        return F.lit(None).cast("string")

    def _why_not_exactly(self) -> list[Column]:
        """What Spark would have rounded, cut or passed over."""
        from pyspark.sql import functions as F

        assert self._struct is not None
        text_value, written = F.col("value").cast("string"), F.col("_written")
        more = F.when(~nothing_behind(text_value, written), F.lit("there is more behind the JSON object"))
        return [more, misfit(F.col("_parsed"), written, text_value, self._struct, self._schema.epoch)]

    def _why_not_json(self) -> Column:
        """Which fields are of another type, as far as that can be said of the top level."""
        from pyspark.sql import functions as F

        assert self._struct is not None
        text_value = F.col("value").cast("string")
        misfits = [
            F.when(
                F.col(f"_parsed.`{field.name}`").isNull()
                & F.get_json_object(text_value, f"$['{field.name}']").isNotNull(),
                F.lit(f"the field {field.name} is no {field.dataType.simpleString()}"),
            )
            for field in self._struct.fields
        ]
        told = F.concat_ws(", ", *misfits)
        return (
            F.when(F.expr("try_parse_json(cast(value AS string))").isNull(), F.lit("the value is not JSON"))
            .when(told != "", told)
            .otherwise(F.lit("the value is not a JSON object of the declared schema"))
        )


def _json_struct(schema: Schema) -> StructType:
    from pyspark.errors import PySparkException
    from pyspark.sql.types import StructType

    try:
        struct = StructType.fromDDL(schema.fields)
    except PySparkException as wrong:
        raise Sentence(
            f"schemas.json({schema.fields!r}) is not a list of columns such as 'id string, total double'."
        ) from wrong
    assert isinstance(struct, StructType)
    return struct


def _once(column: Column) -> Column:
    """The same, but computed once a row.

    Spark moves filters below projections by writing what a column is computed from in place of its name, as often as
    the filter names it: every record would be parsed once for each field that is looked at. It does not where a
    projection depends on something that is not settled, such as the number of the task, whatever that is.
    """
    from pyspark.sql import functions as F

    return F.when(F.spark_partition_id() >= 0, column)


def _is_utf8(column: Column) -> Column:
    from pyspark.sql import functions as F

    return F.coalesce(F.is_valid_utf8(column.cast("string")), F.lit(True))
