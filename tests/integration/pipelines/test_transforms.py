"""Pure functions of frames, on small frames: what bytes mean, what a compacted topic means, how work is spread."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.testing import assertDataFrameEqual

from odradek.apps.pipelines import schemas, sinks
from odradek.apps.pipelines.tables import TableWriter
from odradek.apps.pipelines.transforms.latest import latest_per_key
from odradek.apps.pipelines.transforms.skew import SALT, salted, skew_report

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

KAFKA = (
    "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp, timestampType int, "
    "headers array<struct<key: string, value: binary>>"
)
PLACE = "_timestamp timestamp, _partition int, _offset bigint"
AVRO = json.dumps(
    {
        "type": "record",
        "name": "Order",
        "fields": [{"name": "id", "type": "string"}, {"name": "total", "type": ["null", "long"]}],
    }
)


def records(spark: SparkSession, *values: bytes | None, key: bytes | None = b"k") -> DataFrame:
    from datetime import datetime

    rows = [(key, value, "t", 0, offset, datetime(2026, 1, 1), 0, None) for offset, value in enumerate(values)]
    return spark.createDataFrame(rows, KAFKA)


def reasons(
    frame: DataFrame,
    schema: schemas.Schema,
    *,
    key: schemas.Schema | None = None,
    key_required: bool = False,
    tombstones: str = "dead-letter",
) -> list[str | None]:
    held = schemas.parsed(frame, schema, key=key or schemas.text(), key_required=key_required, tombstones=tombstones)
    return [row[schemas.REASON] for row in held.orderBy("_offset").collect()]


def test_json(spark: SparkSession) -> None:
    schema = schemas.json("id string, inner struct<n: int>, at timestamp", required=["id"])
    values = [
        b'{"id": "a", "inner": {"n": 1}, "at": "2026-11-15T12:00:00Z", "more": []}',
        b'{"id": 7}',
        b'{"id": "a", "inner": {"n": "x"}}',
        b'{"id": "a", "at": "soon"}',
        b"7",
        b"",
        None,
        b"\xc3\x28",
        b'{"inner": {"n": 1}}',
    ]
    assert reasons(records(spark, *values), schema) == [
        None,
        None,
        "the value is not a JSON object of the declared schema",
        "the field at is no timestamp",
        "the value is not a JSON object of the declared schema",
        "the value is not JSON",
        "the value is null",
        "the value is not UTF-8",
        "the field id is missing or null",
    ]
    held = schemas.parsed(records(spark, values[0]), schema, key=schemas.text(), key_required=False, tombstones="keep")
    row = schemas.good(held).collect()[0]
    assert (row.id, row.inner.n, row._key, row._offset, row._deleted) == ("a", 1, "k", 0, False)
    assert reasons(records(spark, None), schema, tombstones="keep") == [None]


def test_json_that_columns_cannot_hold(spark: SparkSession) -> None:
    fields = (
        "id string, d decimal(10,2), at timestamp, local timestamp_ntz, b tinyint, n int, x double, f float, "
        "more array<struct<d: decimal(4,1), at: timestamp>>, prices map<string, decimal(5,2)>, "
        "inner struct<at: timestamp>"
    )
    fine = [
        b'{"id": "a"}',
        b' {"id": "a", "d": 1.5, "b": -128, "x": 0.1, "at": null}\n',
        b'{"d": "1.00", "at": "2026-11-15T12:00:00.123456Z", "local": "2026-11-15 12:00:00.1234560"}',
        b'{"d": 1.50000, "more": [{"d": 1.2, "at": "2026-11-15"}, null], "prices": {"a": 1e1, "b": 2}}',
        b'{"x": "Infinity", "f": 3e38, "b": 127, "n": -2147483648, "d": -99999999.99}',
        b'{"id": "}]", "inner": {"at": "2026-11-15T12:00:00+02:00"}}',
    ]
    wrong = {
        b'{"id": "a"}{"id": "b"}': "there is more behind the JSON object",
        b'{"id": "a"}garbage': "there is more behind the JSON object",
        b'{"id": "a"},{"id": "b"}': "there is more behind the JSON object",
        b'{"id": "a"}]': "there is more behind the JSON object",
        b'{"id": "a"},{"_end": "1"}]': "there is more behind the JSON object",
        b'{"d": 1.005}': "the field d does not fit decimal(10,2)",
        b'{"d": "1.005"}': "the field d does not fit decimal(10,2)",
        b'{"d": 1e-3}': "the field d does not fit decimal(10,2)",
        b'{"d": 123456789012}': "the field d is no decimal(10,2)",
        b'{"at": 1763208000}': "the field at is a number where a timestamp is declared",
        b'{"at": "2026-11-15T12:00:00.123456789Z"}': "the field at is more precise than microseconds",
        b'{"local": "2026-11-15T12:00:00.1234567"}': "the field local is more precise than microseconds",
        b'{"at": "12:30:00"}': "the field at has no date",
        b'{"more": [{"at": "T12:30:00Z"}]}': "the field more.at has no date",
        b'{"b": 200}': "the field b does not fit tinyint",
        b'{"n": 3000000000}': "the field n is no int",
        b'{"x": 1e400}': "the field x does not fit double",
        b'{"f": 1e39}': "the field f does not fit float",
        b'{"more": [{"d": 1.2}, {"d": 1.25}]}': "the field more.d does not fit decimal(4,1)",
        b'{"more": [{"at": 5}]}': "the field more.at is a number where a timestamp is declared",
        b'{"prices": {"a": 1, "b": 0.001}}': "the field prices does not fit decimal(5,2)",
        b'{"inner": {"at": 1.5}}': "the value is not a JSON object of the declared schema",
    }
    values = [*fine, *wrong]
    assert dict(zip(values, reasons(records(spark, *values), schemas.json(fields)), strict=True)) == {
        **dict.fromkeys(fine), **wrong
    }  # fmt: skip
    nothing_doubtful = [b'{"id": "a"}\r\n', b'{"id": {"x": "}"}}', b'{"id": "a"}}', b'{"id": {}}{', b'{"id": "}"}x']
    more = "there is more behind the JSON object"
    assert reasons(records(spark, *nothing_doubtful), schemas.json("id string")) == [None, None, more, more, more]
    loss = [b'{"id": "a"}garbage', b'{"d": 1.005}', b'{"at": 1763208000}', b'{"b": 200}', b'{"x": 1e400}']
    assert reasons(records(spark, *loss), schemas.json(fields, lossy=True)) == [None] * len(loss)


def test_no_number_is_changed_on_the_way(spark: SparkSession) -> None:
    """Numbers as JSON can write them, against Python's exact ones: what is good is what was written."""
    import random
    from decimal import Decimal

    drawn = random.Random(7)

    def number() -> str:
        whole = "".join(drawn.choices("0123456789", k=drawn.randint(1, 6))).lstrip("0") or "0"
        text = drawn.choice(["", "-"]) + whole
        if drawn.random() < 0.6:
            text += "." + "".join(drawn.choices("0059", k=drawn.randint(1, 5)))
        if drawn.random() < 0.2:
            text += drawn.choice(["e", "E", "e+", "e-"]) + str(drawn.randint(0, 4))
        return text

    def fits(value: Decimal, digits: int) -> bool:
        return value == round(value, digits) and abs(value) < 10_000

    texts = [number() for _ in range(3000)]
    values = [f'{{"d": {text}, "b": 1}}'.encode() for text in texts]
    values += [f'{{"b": {text}}}'.encode() for text in texts]
    schema = schemas.json("d decimal(6,2), b tinyint")
    held = schemas.parsed(records(spark, *values), schema, key=schemas.text(), key_required=False, tombstones="keep")
    rows = held.orderBy("_offset").select("d", "b", "_reason").collect()
    for text, row in zip(texts, rows[:3000], strict=True):
        if fits(Decimal(text), 2):
            assert (row._reason, row.d) == (None, Decimal(text)), text
        else:
            assert row._reason, text
    for text, row in zip(texts, rows[3000:], strict=True):
        if text.lstrip("-").isdecimal() and -128 <= int(text) <= 127:
            assert (row._reason, row.b) == (None, int(text)), text
        else:
            assert row._reason, text


def test_numbers_that_are_moments(spark: SparkSession) -> None:
    def read(epoch: str, *values: bytes) -> list[object]:
        schema = schemas.json("at timestamp, all array<timestamp>", epoch=epoch)
        frame = records(spark, *values)
        held = schemas.parsed(frame, schema, key=schemas.text(), key_required=False, tombstones="keep")
        told = held.selectExpr("coalesce(_reason, concat_ws(' ', at, all))").collect()
        return [row[0].removeprefix("the field at ") for row in told]

    assert read(
        "ms", b'{"at": 1763208000123}', b'{"at": "2026-11-15T12:00:00Z"}', b'{"all": [0, 1.5]}', b'{"at": 1e300}'
    ) == ["2025-11-15 12:00:00.123", "2026-11-15 12:00:00", "1970-01-01 00:00:00 1970-01-01 00:00:00.0015",
          "is no timestamp"]  # fmt: skip
    assert read("ns", b'{"at": 1763208000123456000}', b'{"at": 1763208000123456789}') == [
        "2025-11-15 12:00:00.123456", "is more precise than microseconds"
    ]  # fmt: skip
    assert read("s", b'{"at": -1.000001}', b'{"at": 1.0000001}', b'{"at": "soon"}', b'{"at": {}}') == [
        "1969-12-31 23:59:58.999999", "is more precise than microseconds", "is no timestamp", "is no timestamp"
    ]  # fmt: skip
    assert read("us", b'{"at": 253402300800000000}') == ["is no timestamp"]


def test_times_that_clocks_skip(spark: SparkSession) -> None:
    values = {
        b'{"at": "2026-03-29T02:30:00"}': "the field at is a time that clocks skip in Europe/Berlin",
        b'{"more": [{"at": " 2026-03-29 02:00"}]}': "the field more.at is a time that clocks skip in Europe/Berlin",
        b'{"at": "2026-03-29T01:59:59.999999"}': None,
        b'{"at": "2026-03-29T03:00:00"}': None,
        b'{"at": "2026-03-29T02:30:00Z"}': None,
        b'{"at": "2026-03-29T02:30:00+01:00"}': None,
        b'{"at": "2026-10-25T02:30:00"}': None,
        b'{"at": "2026-10-25T02:30:00+01:00"}': None,
        b'{"at": "2026-03-29", "local": "2026-03-29T02:30:00"}': None,
    }
    fields = "at timestamp, local timestamp_ntz, more array<struct<at: timestamp>>"
    frame = records(spark, *values)
    zone = "spark.sql.session.timeZone"
    before = spark.conf.get(zone)
    spark.conf.set(zone, "Europe/Berlin")
    try:
        for schema in (schemas.json(fields), schemas.json(fields, epoch="ms")):
            assert dict(zip(values, reasons(frame, schema), strict=True)) == values
        plain = schemas.json(fields)
        held = schemas.parsed(frame, plain, key=schemas.text(), key_required=False, tombstones="keep")
        twice = held.where("_offset IN (6, 7)").orderBy("_offset").selectExpr("unix_seconds(at) AS at").collect()
    finally:
        spark.conf.set(zone, str(before))
    assert [row.at for row in twice] == [1792888200, 1792891800], "of an hour that comes twice, the first one"
    assert reasons(frame, plain) == [None] * len(values), "in UTC all of them are"


def test_keys_and_text(spark: SparkSession) -> None:
    assert reasons(records(spark, b"x", key=None), schemas.raw(), key_required=True) == ["the key is null"]
    assert reasons(records(spark, b"x", key=b"\xff"), schemas.raw()) == ["the key is not UTF-8"]
    assert reasons(records(spark, b"x", key=b"\xff"), schemas.raw(), key=schemas.raw()) == [None]
    assert reasons(records(spark, b"\xff", None, b"fine"), schemas.text()) == ["the value is not UTF-8", None, None]


def test_avro_there_and_back(spark: SparkSession) -> None:
    rows = spark.createDataFrame([("a", 5), ("b", None)], "id string, total bigint")
    sent = schemas.encoded(rows, schemas.avro(AVRO), key="id", headers={"from": "test"}).collect()
    assert [bytes(row.key) for row in sent] == [b"a", b"b"]
    assert sent[0].headers[0].key == "from"
    plain = [bytes(row.value) for row in sent]
    frame = records(spark, *plain, b"\x08ab")
    held = schemas.parsed(frame, schemas.avro(AVRO), key=schemas.text(), key_required=False, tombstones="keep")
    assertDataFrameEqual(schemas.good(held).select("id", "total"), rows)
    assert reasons(frame, schemas.avro(AVRO))[2] == "the value is not Avro of the declared schema"
    assert reasons(records(spark, plain[0] + b"?"), schemas.avro(AVRO)) == ["there is more behind the Avro record"]

    prefixed = schemas.avro(AVRO, required=["total"], ids={7: AVRO})
    with_registry = records(spark, *(b"\0\0\0\0\7" + value for value in plain), plain[0])
    assert reasons(with_registry, prefixed) == [
        None,
        "the field total is missing or null",
        "the value does not begin with a registry's five bytes",
    ]


def test_json_there_and_back(spark: SparkSession) -> None:
    rows = spark.createDataFrame([("a", 5)], "id string, total bigint")
    (sent,) = schemas.encoded(rows, schemas.Schema("json"), key=None, headers={}).collect()
    assert json.loads(bytes(sent.value)) == {"id": "a", "total": 5}


def changes(spark: SparkSession, *rows: tuple[str, str | None, int, int, int]) -> DataFrame:
    """Key, name (None deletes), and second, partition and offset."""
    from datetime import datetime

    held = [
        (key, name, name is None, datetime(2026, 1, 1, 0, 0, second), partition, offset)
        for key, name, second, partition, offset in rows
    ]
    return spark.createDataFrame(held, f"_key string, name string, _deleted boolean, {PLACE}")


def test_the_newest_of_every_key(spark: SparkSession) -> None:
    frame = changes(
        spark,
        ("a", "first", 9, 0, 1),
        ("a", "last", 3, 0, 2),  # Its clock went back; the offset did not.
        ("b", "gone", 1, 0, 3),
        ("b", None, 2, 0, 4),
        ("c", "before the topic grew", 1, 0, 90),
        ("c", "after it", 5, 1, 0),
    )
    found = latest_per_key(frame).select("_key", "name")
    expected = spark.createDataFrame([("a", "last"), ("c", "after it")], "_key string, name string")
    assertDataFrameEqual(found, expected)


def test_a_table_takes_every_batch_once(spark: SparkSession, tmp_path: Path) -> None:
    place = str(tmp_path / "table")

    def names() -> dict[str, str]:
        return {row._key: row.name for row in sinks.read_table(spark, place).collect()}

    merge = TableWriter(place, "_key", "_deleted", "writer")
    merge(changes(spark, ("a", "one", 1, 0, 0), ("b", "two", 1, 0, 1)), 0)
    second = changes(spark, ("a", None, 2, 0, 2), ("c", "three", 2, 0, 3))
    merge(second, 1)
    assert names() == {"b": "two", "c": "three"}
    version = json.loads((tmp_path / "table" / "_current").read_text())["version"]
    merge(second, 1)
    assert json.loads((tmp_path / "table" / "_current").read_text())["version"] == version
    (tmp_path / "table" / "version-2").mkdir()  # What a crash in the middle of batch 2 leaves behind.
    merge(changes(spark, ("b", "2", 3, 0, 4)), 2)
    assert names() == {"b": "2", "c": "three"}
    TableWriter(place, "_key", "_deleted", "started over")(changes(spark, ("b", "again", 4, 0, 5)), 0)
    assert names()["b"] == "again"
    assert len(list((tmp_path / "table").glob("version-*"))) == 2


def test_skew_and_salt(spark: SparkSession) -> None:
    rows = [("busy", 0, n) for n in range(90)] + [("quiet", 1, n) for n in range(10)]
    frame = spark.createDataFrame(rows, "client string, _partition int, _offset bigint")
    assert [tuple(row) for row in skew_report(frame, "client").collect()] == [
        ("busy", 90, 0.9, 1.8),
        ("quiet", 10, 0.1, 0.2),
    ]
    spread = salted(frame, "client", 4)
    assert spread.where("client = 'busy'").select(SALT).distinct().count() == 4
    assertDataFrameEqual(spread, salted(frame, "client", 4))
