"""From `running_node()` to the first acknowledged record: what a test pays for a Kafka of its own.

`python -m bench.fixture_start` prints the first start of a process, which imports everything, and the median of later
ones. The record is sent over a plain socket, so that no client library's own start is counted.
"""

from __future__ import annotations

import socket
import statistics
import struct
import subprocess
import sys
import time

GOAL_MS = 200
LATER_STARTS = 10
FIRST_STARTS = 5
TOPIC = "t"


def to_first_record() -> tuple[float, float]:
    """Milliseconds, and those of CPU, from asking for a node to having its answer to a Produce with acks=all."""
    started, used = time.perf_counter(), time.process_time()
    from odradek.testing import running_node

    with running_node() as node, socket.create_connection((node.host, node.port)) as connection:
        _create_topic(connection)
        _produce(connection)
        return (time.perf_counter() - started) * 1000, (time.process_time() - used) * 1000


def _create_topic(connection: socket.socket) -> None:
    name = TOPIC.encode()
    body = struct.pack(">i", 1) + struct.pack(">h", len(name)) + name + b"\x01"  # Metadata 4: may create the topic
    _ask(connection, 3, 4, body)


def _produce(connection: socket.socket) -> None:
    from odradek.protocol.records.batch import build_batch
    from odradek.protocol.records.record import Record

    batch = build_batch([Record(value=b"first")], timestamp=int(time.time() * 1000))
    name = TOPIC.encode()
    body = struct.pack(">hhiih", -1, -1, 10_000, 1, len(name)) + name + struct.pack(">iii", 1, 0, len(batch)) + batch
    deadline = time.monotonic() + 10
    while True:
        answer = _ask(connection, 0, 7, body)
        error = struct.unpack_from(">h", answer, 4 + 4 + 2 + len(name) + 4 + 4)[0]
        if not error:
            return
        if time.monotonic() > deadline:
            raise RuntimeError(f"the record was refused with error {error}")


def _ask(connection: socket.socket, api_key: int, version: int, body: bytes) -> bytes:
    """The answer's correlation id and body."""
    frame = struct.pack(">hhih", api_key, version, 1, -1) + body
    connection.sendall(struct.pack(">i", len(frame)) + frame)
    (size,) = struct.unpack(">i", _receive(connection, 4))
    return _receive(connection, size)


def _receive(connection: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count:
        piece = connection.recv(count - len(data))
        if not piece:
            raise ConnectionError("the node closed the connection")
        data += piece
    return data


def main() -> None:
    if "--once" in sys.argv:
        print(*to_first_record())
        return
    command = [sys.executable, "-m", "bench.fixture_start", "--once"]
    first = [
        subprocess.run(command, capture_output=True, text=True, check=True).stdout.split() for _ in range(FIRST_STARTS)
    ]
    to_first_record()
    later = [to_first_record() for _ in range(LATER_STARTS)]
    print(f"The fixture to its first acknowledged record (goal: {GOAL_MS} ms)")
    _print("imports included", [(float(wall), float(cpu)) for wall, cpu in first])
    _print("later in a run", later)


def _print(what: str, times: list[tuple[float, float]]) -> None:
    wall, cpu = (statistics.median(each) for each in zip(*times, strict=True))
    print(f"  {what:<18} {wall:7.1f} ms, of them {cpu:6.1f} ms of CPU")


if __name__ == "__main__":
    main()
