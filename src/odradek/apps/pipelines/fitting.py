"""Whether JSON means exactly what its columns will say: Spark rounds, cuts and wraps where a value does not fit.

Spark's `from_json` reads one object and ignores what is behind it, rounds 1.005 into decimal(10,2), takes a number for
seconds where a timestamp is declared, cuts what is finer than microseconds, takes a time of day for one of today, and
makes -56 of 200 in a tinyint, and infinity of 1e400. So a value is looked at a second time, only at the fields of such
types and as they were written (variants), together with a mark behind it, which is found where it was put only if
nothing else is there.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from odradek.values import value

if TYPE_CHECKING:
    from pyspark.sql import Column
    from pyspark.sql.types import DataType, StructType

END = "_end"


@value
class Unit:
    """What a number counts that is a moment."""

    digits: int
    """Digits of its fraction that microseconds can hold; negative: zeros at its end that there must be."""

    micros: str
    """How many microseconds one is, as a factor in SQL."""


EPOCHS = {
    "s": Unit(6, "1000000"),
    "ms": Unit(3, "1000"),
    "us": Unit(0, "1"),
    "ns": Unit(-3, "0.001"),
}
_DOUBTFUL = ("ByteType", "DecimalType", "TimestampType", "TimestampNTZType")
_MOMENTS = ("TimestampType",)
_FLOATS = ("FloatType", "DoubleType")
_FIRST_US, _LAST_US = -62_135_596_800_000_000, 253_402_300_799_999_999
"""The years 1 to 9999: what Python, readers of Parquet and most databases can tell."""


def as_written(text: Column, struct: StructType) -> Column:
    """The fields that may not fit, as variants in the first of two elements; the second holds the mark.

    Null where nobody needs it: in an object that ends where it must, with no field of such a type.
    """
    from pyspark.sql import functions as F
    from pyspark.sql.types import ArrayType, StringType, StructType

    doubtful = _with_variants(_only(struct, _DOUBTFUL), _DOUBTFUL)
    element = StructType([*(doubtful.fields if isinstance(doubtful, StructType) else [])]).add(END, StringType())
    together = F.concat(F.lit("["), text, F.lit(f',{{"{END}":"'), F.xxhash64(text).cast("string"), F.lit('"}]'))
    parsed = F.from_json(together, ArrayType(element))
    alone = _ends_at_its_first_brace(text)
    if not isinstance(doubtful, StructType):
        return F.when(~alone, parsed)
    return F.when(alone, F.array(F.from_json(text, element))).otherwise(parsed)


def nothing_behind(text: Column, written: Column) -> Column:
    """Whether the value was one JSON object and nothing else, being one to begin with."""
    from pyspark.sql import functions as F

    mark = F.get(written, 1).getField(END)
    alone = F.coalesce((F.size(written) == 2) & (mark == F.xxhash64(text).cast("string")), F.lit(False))
    return F.when(_ends_at_its_first_brace(text), True).otherwise(alone)


def _ends_at_its_first_brace(text: Column) -> Column:
    """Whether the first closing brace is the last character: an object ends at one, so there is nothing behind it.

    Objects without objects in them and without spaces behind are told by this alone, and need no second look.
    """
    from pyspark.sql import functions as F

    return F.instr(text, "}") == F.length(text)


def misfit(parsed: Column, written: Column, text: Column, struct: StructType, epoch: str | None) -> Column:
    """The first field whose value is not what was written, and why; null if there is none."""
    from pyspark.sql import functions as F

    found = [F.lit(None).cast("string")]
    doubtful, floats = _only(struct, _DOUBTFUL), _only(struct, _FLOATS)
    if doubtful is not None:
        found.append(_first_told(F.get(written, 0), doubtful, "", partial(_not_as_written, epoch=epoch)))
    if floats is not None:
        infinite = _first_told(parsed, floats, "", _infinite)
        named = text.rlike("(?i)inf")  # Spark takes "Infinity" and "INF", as texts, for what they say.
        found.append(F.when(infinite.isNotNull() & ~named, infinite))
    return F.coalesce(*found)


def with_moments_as_written(kind: DataType) -> DataType:
    """A type whose timestamps are variants: for those that may be numbers, which Spark would take for seconds."""
    made = _with_variants(kind, _MOMENTS)
    assert made is not None
    return made


def moments(column: Column, kind: DataType, epoch: str) -> Column:
    """A column of `with_moments_as_written` as the type that was declared; what is no moment is null."""
    from pyspark.sql import functions as F
    from pyspark.sql.types import ArrayType, MapType, StructType

    if _only(kind, _MOMENTS) is None:
        return column
    match kind:
        case StructType():
            inner = [moments(column[each.name], each.dataType, epoch).alias(each.name) for each in kind.fields]
            return F.when(column.isNotNull(), F.struct(*inner))
        case ArrayType():
            element = kind.elementType
            return F.transform(column, lambda each: moments(each, element, epoch))
        case MapType():
            held = kind.valueType
            return F.transform_values(column, lambda _, each: moments(each, held, epoch))
    return _moment(column, epoch)


def _moment(seen: Column, epoch: str) -> Column:
    from pyspark.sql import functions as F

    text = F.try_variant_get(seen, "$", "string")
    exact = F.try_multiply(text.try_cast("decimal(28,6)"), F.expr(f"cast({EPOCHS[epoch].micros} AS decimal(10,3))"))
    micros = exact.try_cast("bigint")
    number = F.when(micros.between(_FIRST_US, _LAST_US), F.timestamp_micros(micros))
    return F.when(F.schema_of_variant(seen) == "STRING", text.try_cast("timestamp")).otherwise(number)


def _not_as_written(seen: Column, kind: DataType, path: str, *, epoch: str | None) -> Column:
    """Why a leaf is not what its column says, or null."""
    from pyspark.sql import functions as F
    from pyspark.sql.types import ByteType, DecimalType, TimestampType

    text = F.try_variant_get(seen, "$", "string")
    unfit = F.lit(f"the field {path} does not fit {kind.simpleString()}")
    if isinstance(kind, ByteType):
        return F.when(~text.try_cast("decimal(38,0)").between(-128, 127), unfit)
    if isinstance(kind, DecimalType):
        plain = text.rlike(_with_digits(kind.scale))
        # A number with an exponent is a double by now; it fits if it is the double that its decimal is.
        rounded = text.try_cast(kind).cast("double") == text.try_cast("double")
        return F.when(~(plain | (text.contains("E") & F.coalesce(rounded, F.lit(False)))), unfit)
    is_text = F.schema_of_variant(seen) == "STRING"
    finer = F.lit(f"the field {path} is more precise than microseconds")
    of_text = F.when(text.rlike(r"\.[0-9]{6}0*[1-9]"), finer)
    if not isinstance(kind, TimestampType):
        return of_text
    # To Spark a time of day is one of the day on which it is read, which is another one when a batch is done again.
    of_text = F.when(text.rlike(r"^\s*T?[0-9]+:"), F.lit(f"the field {path} has no date")).otherwise(of_text)
    of_text = F.coalesce(of_text, _skipped_by_clocks(text, path))
    if epoch is None:
        number = F.lit(f"the field {path} is a number where a timestamp is declared")
        return F.when(text.isNull(), None).when(is_text, of_text).otherwise(number)
    wrong = F.when(_moment(seen, epoch).isNull(), F.lit(f"the field {path} is no timestamp"))
    of_number = F.when(~text.rlike(_with_digits(EPOCHS[epoch].digits)), finer)
    return F.when(text.isNotNull(), F.coalesce(wrong, F.when(is_text, of_text).otherwise(of_number)))


def _skipped_by_clocks(text: Column, path: str) -> Column:
    """Why a local time is none in the session's zone, or null: in spring Spark takes 02:30 for 03:30.

    Where the zone is UTC, as it is unless somebody says otherwise, nothing of this is left in the plan.
    """
    from pyspark.sql import functions as F

    local = r"^\s*[+-]?[0-9]+-[0-9]+-[0-9]+[T ][0-9:.]+\s*$"
    moved = text.try_cast("timestamp").cast("timestamp_ntz") != text.try_cast("timestamp_ntz")
    told = F.concat(F.lit(f"the field {path} is a time that clocks skip in "), F.current_timezone())
    return F.when((F.current_timezone() != "UTC") & text.rlike(local) & moved, told)


def _infinite(column: Column, kind: DataType, path: str) -> Column:
    from pyspark.sql import functions as F

    return F.when(F.abs(column) == float("inf"), F.lit(f"the field {path} does not fit {kind.simpleString()}"))


def _with_digits(digits: int) -> str:
    """Numbers with so many digits of a fraction, and zeros behind them; of a negative count, with that many zeros at
    their end."""
    if digits < 0:
        return rf"^-?(0|[0-9]*0{{{-digits}}})(\.0*)?$"
    return rf"^\s*[+-]?[0-9]*(\.[0-9]{{0,{digits}}}0*)?\s*$"


def _first_told(column: Column, kind: DataType, path: str, judge: Callable[[Column, DataType, str], Column]) -> Column:
    """What a judge of leaves says first of a value and of all that is in it; null if it says nothing."""
    from pyspark.sql import functions as F
    from pyspark.sql.types import ArrayType, MapType, StructType

    def of_elements(elements: Column, element: DataType) -> Column:
        told = F.transform(elements, lambda each: _first_told(each, element, path, judge))
        return F.get(F.filter(told, lambda each: each.isNotNull()), 0)

    match kind:
        case StructType():
            beneath = f"{path}." if path else ""
            return F.coalesce(
                *(_first_told(column[each.name], each.dataType, beneath + each.name, judge) for each in kind.fields)
            )
        case ArrayType():
            return of_elements(column, kind.elementType)
        case MapType():
            return of_elements(F.map_values(column), kind.valueType)
    return judge(column, kind, path)


def _only(kind: DataType, wanted: tuple[str, ...]) -> DataType | None:
    """A type without the leaves that are of no wanted one; None if nothing is left."""
    from pyspark.sql.types import ArrayType, MapType, StructField, StructType

    match kind:
        case StructType():
            inner = [(each.name, _only(each.dataType, wanted)) for each in kind.fields]
            kept = [StructField(name, held) for name, held in inner if held is not None]
            return StructType(kept) if kept else None
        case ArrayType():
            element = _only(kind.elementType, wanted)
            return None if element is None else ArrayType(element)
        case MapType():
            held = _only(kind.valueType, wanted)
            return None if held is None else MapType(kind.keyType, held)
    return kind if type(kind).__name__ in wanted else None


def _with_variants(kind: DataType | None, wanted: tuple[str, ...]) -> DataType | None:
    """A type with a variant in place of every leaf of a wanted one."""
    from pyspark.sql.types import ArrayType, MapType, StructField, StructType, VariantType

    match kind:
        case StructType():
            inner = [(each.name, _with_variants(each.dataType, wanted)) for each in kind.fields]
            return StructType([StructField(name, held) for name, held in inner if held is not None])
        case ArrayType():
            element = _with_variants(kind.elementType, wanted)
            return None if element is None else ArrayType(element)
        case MapType():
            held = _with_variants(kind.valueType, wanted)
            return None if held is None else MapType(kind.keyType, held)
    return VariantType() if type(kind).__name__ in wanted else kind
