"""Load without a client: Produce and Fetch frames made once and sent again and again over one blocking socket.

The client's own cost nearly vanishes, so this is the purest measurement of what a request costs the broker.
"""

from __future__ import annotations

import itertools
import struct
import time
from collections.abc import Iterable, Iterator

from bench import wire

REQUESTS_PER_PIECE = 64


def produce(port: int, frame: bytes, *, requests: int, in_flight: int) -> float:
    """Send one Produce frame that many times with at most `in_flight` unanswered; the seconds it took."""
    with wire.Connection(port) as connection:
        started = time.monotonic()
        _produce(connection, frame, range(requests), in_flight=in_flight)
        return time.monotonic() - started


def produce_for(port: int, frame: bytes, *, seconds: float, in_flight: int) -> int:
    """Send one Produce frame again and again until the time is over; how often, all of them answered."""
    with wire.Connection(port) as connection:
        return _produce(connection, frame, _until(time.monotonic() + seconds), in_flight=in_flight)


def produce_frame(topic: str, batch: bytes, *, partitions: int, acks: int = 1) -> bytes:
    """One Produce request that carries the batch to each partition."""
    body = wire.produce_body(topic, [(index, batch) for index in range(partitions)], acks=acks)
    return wire.frame(wire.PRODUCE, 7, 7, body)


def paced(port: int, frame: bytes, *, requests: int, rate: int) -> list[float]:
    """Send one Produce frame `rate` times a second; the seconds each answer took, shortest first.

    A request's time counts from when it was due, so a stall of the broker is not hidden by requests that were not sent.
    """
    latencies = []
    with wire.Connection(port) as connection:
        started = time.monotonic()
        for number in range(requests):
            due = started + number / rate
            time.sleep(max(due - time.monotonic(), 0))
            connection.socket.sendall(frame)
            connection.receive_frame()
            latencies.append(time.monotonic() - due)
    return sorted(latencies)


def fetch_offsets(port: int, topic: str, *, max_bytes: int) -> list[int]:
    """Where each Fetch of a walk through partition 0 starts."""
    offsets, position = [], 0
    with wire.Connection(port) as connection:
        ((_, _, end),) = wire.list_offsets(connection, topic, [0], wire.LATEST)
        while position < end:
            offsets.append(position)
            body = wire.fetch_body(topic, [(0, position)], max_bytes=max_bytes)
            ((_, error, _, records),) = wire.fetch_records(connection.request(wire.FETCH, 11, body))
            if error or not records:
                raise RuntimeError(f"Fetch at offset {position} answered error {error} and {len(records)} bytes")
            position = wire.end_offset(records)
    return offsets


def fetch(port: int, topic: str, offsets: list[int], *, max_bytes: int, passes: int) -> tuple[int, float]:
    """Walk the partition that many times, one Fetch at a time; bytes received and the seconds it took."""
    frames = [
        wire.frame(wire.FETCH, 11, 7, wire.fetch_body(topic, [(0, offset)], max_bytes=max_bytes)) for offset in offsets
    ]
    buffer = memoryview(bytearray(max_bytes + (1 << 20)))
    received = 0
    with wire.Connection(port) as connection:
        started = time.monotonic()
        for _ in range(passes):
            for frame in frames:
                connection.socket.sendall(frame)
                received += _swallow(connection, buffer)
        return received, time.monotonic() - started


def _until(deadline: float) -> Iterator[None]:
    while time.monotonic() < deadline:
        yield


def _produce(connection: wire.Connection, frame: bytes, wanted: Iterable[object], *, in_flight: int) -> int:
    """Send the frame once for each of the wanted, and see all of them answered; how many they were."""
    connection.socket.sendall(frame)
    answer = connection.receive_frame()
    errors = [error for _, error, _ in wire.produce_errors(_body(answer))]
    if any(errors):
        raise RuntimeError(f"Produce answered errors {errors}")
    rest = itertools.islice(wanted, 1, None)
    return 1 + _replay(connection, frame, rest, answer_size=len(answer) + 4, in_flight=in_flight)


def _replay(
    connection: wire.Connection, frame: bytes, wanted: Iterator[object], *, answer_size: int, in_flight: int
) -> int:
    # Answers to equal requests are equally long (base offsets are fixed-size), so counting bytes counts answers.
    buffer = memoryview(bytearray(answer_size * max(in_flight, REQUESTS_PER_PIECE)))
    sent, received_bytes = 0, 0
    while True:
        room = in_flight - (sent - received_bytes // answer_size)
        for _ in itertools.islice(wanted, room):
            connection.socket.sendall(frame)
            sent += 1
        if received_bytes == sent * answer_size:
            return sent
        count = connection.socket.recv_into(buffer)
        if count == 0:
            raise wire.ConnectionClosed
        received_bytes += count


def _swallow(connection: wire.Connection, buffer: memoryview) -> int:
    got = connection.socket.recv_into(buffer)
    while got < 4:
        got += connection.socket.recv_into(buffer[got:])
    (length,) = struct.unpack_from(">i", buffer)
    while got < length + 4:
        count = connection.socket.recv_into(buffer[got:])
        if count == 0:
            raise wire.ConnectionClosed
        got += count
    return got


def _body(answer: bytes) -> wire.Reader:
    reader = wire.Reader(answer)
    reader.correlation_id = reader.int32()
    return reader
