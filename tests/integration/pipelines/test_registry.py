"""Avro records behind a registry's ids: each read by the schema it was written with, from a registry on loopback."""

from __future__ import annotations

import base64
import http.server
import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.integration.pipelines.test_transforms import reasons, records

from odradek.apps.pipelines import schemas
from odradek.apps.pipelines.registry import Registries, Registry, with_definitions
from odradek.apps.pipelines.trial import Trial
from odradek.apps.terminal.sentence import Sentence
from odradek.apps.terminal.session import Session, of_kind
from odradek.client.settings import ADMIN_TABLE

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Load = Callable[[Path], Trial]
Written = Callable[..., Path]


def record(*fields: tuple[str, object], name: str = "Payment", **more: Any) -> str:
    held = [{"name": field, "type": kind} for field, kind in fields]
    for field in held:
        if field["name"] in more:
            field["default"] = more[str(field["name"])]
    return json.dumps({"type": "record", "name": name, "fields": held})


FIRST = record(("id", "string"), ("amount", "int"))
SECOND = record(("currency", "string"), ("amount", "double"), ("id", "string"))
THIRD = record(("id", "string"))
WANTED = record(("id", "string"), ("amount", "double"), ("currency", "string"), amount=-1.0, currency="EUR")

AS_FIRST = b"\x02a\x0a"
"""id a, amount 5."""

AS_SECOND = b"\x06USD" + b"\x00\x00\x00\x00\x00\x00\xe0\x3f" + b"\x02b"
"""currency USD, amount 0.5, id b."""


def behind(schema_id: int, data: bytes) -> bytes:
    return b"\0" + schema_id.to_bytes(4, "big") + data


class RegistryServer:
    """As much of a schema registry as answers questions about ids and versions."""

    def __init__(self) -> None:
        self.schemas: dict[int, dict[str, object]] = {}
        self.subjects: dict[str, list[int]] = {}
        self.asked: list[str] = []
        self.authorization: str | None = None
        mine = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                mine.asked.append(self.path)
                status, answer = mine._answer(self.path.strip("/").split("/"), self.headers.get("Authorization"))
                body = json.dumps(answer).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: object) -> None:
                """Tests have nothing to say to the terminal."""

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def register(self, schema_id: int, subject: str, schema: str, **more: object) -> None:
        self.schemas[schema_id] = {"schema": schema, **more}
        self.subjects.setdefault(subject, []).append(schema_id)

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def _answer(self, path: list[str], authorization: str | None) -> tuple[int, object]:
        if self.authorization is not None and authorization != self.authorization:
            return 401, {"error_code": 40101}
        match path:
            case ["schemas", "ids", number] if int(number) in self.schemas:
                return 200, self.schemas[int(number)]
            case ["schemas", "ids", number, "versions"]:
                held = [(name, ids.index(int(number)) + 1) for name, ids in self.subjects.items() if int(number) in ids]
                return 200, [{"subject": subject, "version": version} for subject, version in held]
            case ["subjects", subject, "versions"] if subject in self.subjects:
                return 200, [*range(1, len(self.subjects[subject]) + 1)]
            case ["subjects", subject, "versions", version] if subject in self.subjects:
                schema_id = self.subjects[subject][int(version) - 1]
                return 200, {"id": schema_id, **self.schemas[schema_id]}
        return 404, {"error_code": 40403}


@pytest.fixture
def registry() -> Iterator[RegistryServer]:
    server = RegistryServer()
    yield server
    server.close()


def test_declared_ids(spark: SparkSession) -> None:
    schema = schemas.avro(WANTED, ids={1: FIRST, 2: SECOND, 3: THIRD}, required=["id"])
    values = [
        behind(1, AS_FIRST),
        behind(2, AS_SECOND),
        behind(3, b"\x02c"),
        behind(1, AS_SECOND),
        behind(2, AS_SECOND[:-1]),
        behind(1, AS_FIRST + b"\0"),
        behind(7, AS_FIRST),
        b"\1" + behind(1, AS_FIRST)[1:],
        b"\0\0",
        b"",
    ]
    frame = records(spark, *values)
    held = schemas.parsed(frame, schema, key=schemas.text(), key_required=False, tombstones="keep")
    read = schemas.good(held).orderBy("_offset").select("id", "amount", "currency")
    assert [tuple(row) for row in read.collect()] == [
        ("a", 5.0, "EUR"),
        ("b", 0.5, "USD"),
        ("c", -1.0, "EUR"),
    ]  # fmt: skip
    unfit = "the value is not Avro of schema id {}, or that does not resolve to the declared schema"
    no_prefix = "the value does not begin with a registry's five bytes"
    found = reasons(frame, schema)
    assert found[:3] == [None] * 3
    assert found[3] in (unfit.format(1), "there is more behind the Avro record"), "other bytes may begin like a record"
    assert found[4:] == [
        unfit.format(2),
        "there is more behind the Avro record",
        "schema id 7 is not among the declared ones",
        no_prefix,
        no_prefix,
        no_prefix,
    ]


PAYMENTS = """
    pipeline = Pipeline("payments")
    value = schemas.avro({wanted!r}, registry_prefix=True, registry={url!r})
    pipeline.source("payments", sources.topic("payments", value=value))

    @pipeline.dataset
    def rows(payments):
        return payments.select("id", "amount", "currency")

    pipeline.sink("lake", rows, sinks.parquet("lake", files=1))
"""


def test_schemas_are_asked_for_when_records_name_them(
    pipeline: Load, written: Written, registry: RegistryServer
) -> None:
    registry.register(1, "payments-value", FIRST)
    registry.register(4, "a subject of another name", SECOND)
    registry.register(5, "payments-value", '{"type": "object"}', schemaType="JSON")
    trial = pipeline(written(PAYMENTS.format(wanted=WANTED, url=registry.url)))
    trial.send("payments", behind(1, AS_FIRST), partition=0)
    trial.run()
    assert not [path for path in registry.asked if path.startswith("/schemas/ids")], "one question told all"
    trial.send("payments", behind(4, AS_SECOND), behind(5, b"{}"), behind(9, AS_FIRST), partition=0)
    trial.run()
    assert sorted(tuple(row.values()) for row in trial.rows("lake")) == [("a", 5.0, "EUR"), ("b", 0.5, "USD")]
    assert [letter.reason for letter in trial.dead_letters()] == [
        "schema id 5 is no Avro but JSON",
        "schema id 9 is not in the registry",
    ]
    assert registry.asked.count("/schemas/ids/9") == 1


def test_who_is_let_in(registry: RegistryServer) -> None:
    registry.register(1, "s", FIRST)
    for authorization, url, options in (
        ("Basic " + base64.b64encode(b"me:secret").decode(), registry.url, {"basic.auth.user.info": "me:secret"}),
        (
            "Basic " + base64.b64encode(b"me:s:t").decode(),
            registry.url.replace("//", "//me:s%3At@"),
            {"basic.auth.credentials.source": "URL"},
        ),
        ("Bearer token", registry.url, {"schema.registry.bearer.auth.token": "token"}),
    ):
        registry.authorization = authorization
        assert Registry(url, options).fetch(1).schema
        with pytest.raises(
            Sentence, match=r"does not let us in \(HTTP 401\): say schema.registry.basic.auth.user.info"
        ):
            Registry(registry.url, {}).fetch(1)
    for options, told in (
        ({"basic.auth.user.inf": "x"}, r"no option of a schema registry\. Did you mean basic.auth.user.info"),
        ({"basic.auth.credentials.source": "SASL_INHERIT"}, "may be USER_INFO or URL here"),
    ):
        with pytest.raises(Sentence, match=told):
            Registry(registry.url, options)


def test_what_properties_say_of_a_registry_is_for_no_client(registry: RegistryServer) -> None:
    registry.register(3, "payments-value", FIRST)
    registry.authorization = "Bearer token"
    told = {"schema.registry.url": registry.url, "schema.registry.bearer.auth.token": "token", "acks": "all"}
    assert of_kind(told, ADMIN_TABLE) == {}
    session = Session({"bootstrap.servers": "127.0.0.1:1", **told})
    known = Registries(session.registry).resolve("payments", schemas.avro(WANTED, registry_prefix=True), ["payments"])
    assert [(each.schema_id, json.loads(each.schema)) for each in known.writers] == [(3, json.loads(FIRST))]


def test_a_registry_that_is_not_there(registry: RegistryServer) -> None:
    schema = schemas.avro(WANTED, registry_prefix=True)
    with pytest.raises(Sentence, match=r"source payments: .* so say where those are"):
        Registries({}).resolve("payments", schema, ["payments"])
    with pytest.raises(Sentence, match="is no address of a schema registry"):
        Registries({"schema.registry.url": "localhost"}).resolve("payments", schema, ["payments"])
    registry.close()
    with pytest.raises(Sentence, match="the schema registry does not answer"):
        Registries({"schema.registry.url": registry.url}).resolve("payments", schema, ["payments"])


def test_schemas_that_refer_to_others(registry: RegistryServer) -> None:
    money = '{"type": "record", "name": "Money", "namespace": "shop", "fields": [{"name": "units", "type": "long"}]}'
    order = (
        '{"type": "record", "name": "Order", "namespace": "shop", "fields": ['
        '{"name": "paid", "type": "shop.Money"}, {"name": "due", "type": ["null", "Money"]}]}'
    )
    registry.register(1, "money", money)
    registry.register(2, "orders", order, references=[{"name": "shop.Money", "subject": "money", "version": 1}])
    fields = json.loads(Registry(registry.url, {}).fetch(2).schema)["fields"]
    assert [field["type"] for field in fields] == [json.loads(money), ["null", "Money"]], "defined once, then named"
    assert with_definitions(["null", "a.B"], {"a.B": {"type": "fixed"}}) == ["null", {"type": "fixed"}]
