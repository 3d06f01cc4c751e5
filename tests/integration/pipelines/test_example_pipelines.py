"""The examples do what they say: their sinks hold exactly what a plain Python function makes of the same records."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable
from datetime import datetime, timedelta
from pathlib import Path
from types import ModuleType
from typing import Any

from odradek.apps.pipelines.trial import Trial

EXAMPLES = Path(__file__).parents[3] / "examples" / "pipelines"
Load = Callable[[Path], Trial]
Record = tuple[str, bytes | None, bytes | None]


def feed(trial: Trial, records: Iterable[Record]) -> None:
    by_topic: dict[str, list[tuple[bytes | None, bytes | None]]] = {}
    for topic, key, value in records:
        by_topic.setdefault(topic, []).append((key, value))
    for topic, pairs in by_topic.items():
        trial.send_records(topic, pairs)


def moment(text: str) -> datetime:
    return datetime.fromisoformat(text.replace("Z", "+00:00")).replace(tzinfo=None)


def enriched(records: list[Record]) -> list[tuple[Any, ...]]:
    """What the lake of orders shall hold."""
    customers = {key: json.loads(value or b"") for topic, key, value in records if topic == "customers"}
    rows = []
    for topic, _, value in records:
        if topic != "orders":
            continue
        try:
            order = json.loads(value or b"")
        except ValueError:
            continue
        if order["order"] is None or isinstance(order["amount"], str):
            continue
        known = customers.get(order["customer"].encode(), {})
        cents = round(order["amount"] * 100)
        rows.append((order["order"], order["customer"], cents, moment(order["at"]), known.get("country")))
    return rows


def revenue(rows: Iterable[tuple[Any, ...]]) -> dict[tuple[datetime, str], list[int]]:
    """Of the minutes that nobody waits for any more, sums and counts by country."""
    rows = list(rows)
    watermark = max(at for _, _, _, at, _ in rows) - timedelta(minutes=10)
    sums: dict[tuple[datetime, str], list[int]] = {}
    for _, _, cents, at, country in rows:
        minute = at.replace(second=0, microsecond=0)
        if minute + timedelta(minutes=1) <= watermark:
            held = sums.setdefault((minute, country or "unknown"), [0, 0])
            held[0] += cents
            held[1] += 1
    return sums


def test_orders(pipeline: Load, data: ModuleType) -> None:
    trial = pipeline(EXAMPLES / "orders.py")
    records = list(data.orders(seed=3, count=8_000))
    feed(trial, records)
    ran = trial.run()
    expected = enriched(records)
    found = [(r["order"], r["customer"], r["cents"], r["at"], r["country"]) for r in trial.rows("lake")]
    assert sorted(found, key=str) == sorted(expected, key=str)
    assert {r["day"].isoformat() for r in trial.rows("lake")} == {"2026-11-15"}

    told = trial.rows("revenue")
    assert {(moment(r["minute"]), r["country"]): [r["cents"], r["orders"]] for r in told} == revenue(expected)
    assert len(told) > 10

    orders = sum(topic == "orders" for topic, _, _ in records)
    letters = trial.dead_letters()
    assert len(letters) == orders - len(expected) == ran.dead_letters > 10
    assert {each.reason for each in letters} == {
        "the value is not JSON",
        "the field amount is no double",
        "the field order is missing or null",
    }
    assert ran.records_read == orders
    assert sum(offset for at, offset in trial.committed().items() if at.topic == "orders") == orders

    late = {"order": "late", "customer": "c1", "amount": 5.0, "at": "2026-11-15T11:00:00.000Z"}
    trial.send("orders", late, key="c1")
    again = trial.run()
    assert again.records_read == 1
    assert again.late_rows == 1
    assert len(trial.rows("revenue")) == len(told)
    assert "late" in {row["order"] for row in trial.rows("lake")}


def test_access_logs(pipeline: Load, data: ModuleType) -> None:
    trial = pipeline(EXAMPLES / "access_logs.py")
    records = list(data.access_log(seed=5, count=20_000))
    feed(trial, records)
    trial.run()
    readable = [value for _, _, value in records if value != b"?"]
    assert len(trial.rows("hits")) == len(readable)
    assert len(trial.rows("unreadable")) == len(records) - len(readable) > 10

    hit = re.compile(rb"^(\S+) \S+ \S+ \[([^\]]+)\]")
    hits = [
        (each[1].decode(), datetime.strptime(each[2].decode(), "%d/%b/%Y:%H:%M:%S %z"))
        for each in map(hit.match, readable)
        if each
    ]
    watermark = max(at for _, at in hits) - timedelta(minutes=5)
    # The second count hears of a minute one batch after the first has closed it, so the newest closed ones may be open.
    counts = Counter((client, at.replace(second=0, tzinfo=None)) for client, at in hits)
    found = {(row["client"], row["minute"]): row["requests"] for row in trial.rows("per_minute")}
    assert all(counts[each] == requests for each, requests in found.items())
    closed = {each for each in counts if each[1] + timedelta(minutes=1) <= watermark.replace(tzinfo=None)}
    assert set(found) <= closed
    assert len(found) > 100

    example = trial.dataset("hits").__globals__["skew"]
    partitions, clients = example(trial.spark.read.parquet(str(trial.directory / "lake" / "hits")))
    busiest = clients.first()
    assert busiest.records == Counter(client for client, _ in hits).most_common(1)[0][1]
    assert busiest.times_mean > 50
    assert sum(row.records for row in partitions.collect()) == len(hits)


def test_customers(pipeline: Load, data: ModuleType) -> None:
    trial = pipeline(EXAMPLES / "customers.py")
    records = list(data.customer_changes(seed=11, count=600))
    for part in (records[:400], records[400:]):
        feed(trial, part)
        trial.run()
    newest: dict[bytes | None, bytes | None] = {key: value for _, key, value in records}
    expected = {(key or b"").decode(): json.loads(value) for key, value in newest.items() if value is not None}
    assert {row["_key"]: {"name": row["name"], "country": row["country"]} for row in trial.rows("table")} == expected
    assert 20 < len(expected) < 50


def test_sessions(pipeline: Load, data: ModuleType) -> None:
    trial = pipeline(EXAMPLES / "sessions.py")
    records = list(data.clicks(seed=13, count=1_500))
    feed(trial, records)
    trial.run()
    gap = timedelta(minutes=30)
    clicks: dict[str, list[datetime]] = {}
    for _, key, value in records:
        clicks.setdefault((key or b"").decode(), []).append(moment(json.loads(value or b"")["at"]))
    watermark = max(at for each in clicks.values() for at in each) - timedelta(minutes=1)
    expected = []
    for user, moments in clicks.items():
        session: list[datetime] = []
        for at in [*sorted(moments), None]:
            if session and (at is None or at - session[-1] > gap):
                if at is not None or session[-1] + gap < watermark:
                    expected.append((user, session[0], session[-1], len(session)))
                session = []
            if at is not None:
                session.append(at)
    found = [(row["user"], row["started"], row["ended"], row["clicks"]) for row in trial.rows("lake")]
    assert sorted(found) == sorted(expected)
    assert len(found) > 50
