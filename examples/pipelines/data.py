"""Made-up data for the examples, from a seed: the same seed gives the same records, every time.

python examples/pipelines/data.py orders --count 10000 --seed 7 --bootstrap 127.0.0.1:9092
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta

from odradek.clients import connect

Record = tuple[str, bytes | None, bytes | None]
"""Topic, key, value."""

NOON = datetime(2026, 11, 15, 12, 0, tzinfo=UTC)
COUNTRIES = ("KR", "DE", "CZ", "BR", "US")
CUSTOMERS = 50


def orders(seed: int, count: int) -> Iterator[Record]:
    """Customers first, then orders; one order in fifty cannot be read, one in a hundred comes half an hour late."""
    draw = random.Random(seed)
    for number in range(CUSTOMERS):
        customer = {"name": f"Customer {number}", "country": draw.choice(COUNTRIES)}
        yield "customers", _key(f"c{number}"), _json(customer)
    for number in range(count):
        at = NOON + timedelta(seconds=number / 10)
        if draw.random() < 0.01:
            at -= timedelta(minutes=30)
        order = {
            "order": f"o{number}",
            "customer": f"c{draw.randrange(CUSTOMERS + 2)}",
            "amount": round(draw.uniform(1, 200), 2),
            "at": _time(at),
        }
        key = _key(str(order["customer"]))
        match draw.randrange(150):
            case 0:
                yield "orders", key, b'{"order": "cut off'
            case 1:
                yield "orders", key, _json({**order, "amount": "much"})
            case 2:
                yield "orders", key, _json({**order, "order": None})
            case _:
                yield "orders", key, _json(order)


def access_log(seed: int, count: int) -> Iterator[Record]:
    """Lines of a web server's log, keyed by the client's address; one client sends half of all requests."""
    draw = random.Random(seed)
    clients = [f"10.0.{draw.randrange(256)}.{draw.randrange(1, 255)}" for _ in range(200)]
    for number in range(count):
        client = clients[0] if draw.random() < 0.5 else draw.choice(clients)
        at = (NOON + timedelta(seconds=number / 50)).strftime("%d/%b/%Y:%H:%M:%S +0000")
        status = draw.choices((200, 304, 404, 500), (90, 5, 4, 1))[0]
        line = f'{client} - - [{at}] "GET /page/{draw.randrange(30)} HTTP/1.1" {status} {draw.randrange(100, 20_000)}'
        yield "access-log", _key(client), b"?" if draw.random() < 0.002 else line.encode()


def customer_changes(seed: int, count: int) -> Iterator[Record]:
    """Rows of a database's table as they were inserted, updated and deleted."""
    draw = random.Random(seed)
    for _ in range(count):
        key = _key(f"c{draw.randrange(CUSTOMERS)}")
        if draw.random() < 0.2:
            yield "customers", key, None
        else:
            yield "customers", key, _json({"name": f"Name {draw.randrange(1000)}", "country": draw.choice(COUNTRIES)})


def clicks(seed: int, count: int) -> Iterator[Record]:
    """Clicks of users who come, stay for a while and come again."""
    draw = random.Random(seed)
    users = [f"u{number}" for number in range(20)]
    at = dict.fromkeys(users, NOON)
    for _ in range(count):
        user = draw.choice(users)
        at[user] += timedelta(seconds=draw.choice((5, 20, 60)) if draw.random() < 0.9 else 3_600)
        yield "clicks", _key(user), _json({"user": user, "page": f"/{draw.randrange(9)}", "at": _time(at[user])})


GENERATORS: dict[str, Callable[[int, int], Iterator[Record]]] = {
    "orders": orders,
    "access-log": access_log,
    "customer-changes": customer_changes,
    "clicks": clicks,
}


async def send(bootstrap: str, records: Iterator[Record]) -> int:
    """Write them all; how many."""
    receipts = []
    async with connect(bootstrap).producer({"linger.ms": 20, "batch.size": 200_000}) as producer:
        for topic, key, value in records:
            receipts.append(await producer.submit(topic, value, key=key))
        await asyncio.gather(*receipts)
    return len(receipts)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=sorted(GENERATORS))
    parser.add_argument("--count", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--bootstrap", default="127.0.0.1:9092")
    options = parser.parse_args()
    count = asyncio.run(send(options.bootstrap, GENERATORS[options.what](options.seed, options.count)))
    print(f"{count:,} records of {options.what} written (seed {options.seed})")


def _key(text: str) -> bytes:
    return text.encode()


def _json(content: object) -> bytes:
    return json.dumps(content).encode()


def _time(at: datetime) -> str:
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")


if __name__ == "__main__":
    main()
