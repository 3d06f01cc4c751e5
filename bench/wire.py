"""Just enough of Kafka's protocol, written by hand, to drive a broker without a client library.

It shares no code with `odradek.protocol`: a mistake there cannot hide itself here, and the load it makes costs next to
nothing. All requests use the last version before KIP-482's compact encoding, which every 4.x broker still serves.
"""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from fastcrc import crc32

PRODUCE, FETCH, LIST_OFFSETS, METADATA = 0, 1, 2, 3
API_VERSIONS, CREATE_TOPICS, DELETE_TOPICS, INIT_PRODUCER_ID, INCREMENTAL_ALTER_CONFIGS = 18, 19, 20, 22, 44
TOPIC_RESOURCE, SET = 2, 0
EARLIEST, LATEST = -2, -1
COORDINATOR_LOAD_IN_PROGRESS, TOPIC_ALREADY_EXISTS = 14, 36
INIT_PRODUCER_ID_TRIES = 100

Batch = bytes | bytearray


class ConnectionClosed(Exception):
    """The broker closed the connection."""


class Connection:
    """One blocking connection; requests are answered in the order they were sent."""

    def __init__(self, port: int, *, timeout_s: float = 30.0, host: str = "127.0.0.1") -> None:
        self.socket = socket.create_connection((host, port), timeout=timeout_s)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.last_correlation_id = 0

    def __enter__(self) -> Connection:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def send(self, api_key: int, api_version: int, body: bytes) -> None:
        """Send one request without waiting for its answer."""
        self.last_correlation_id += 1
        self.socket.sendall(frame(api_key, api_version, self.last_correlation_id, body))

    def receive(self) -> Reader:
        """Read the next answer; the reader stands behind the correlation id."""
        answer = self.receive_frame()
        reader = Reader(answer)
        reader.correlation_id = reader.int32()
        return reader

    def request(self, api_key: int, api_version: int, body: bytes) -> Reader:
        """Send one request and read its answer."""
        self.send(api_key, api_version, body)
        reader = self.receive()
        if reader.correlation_id != self.last_correlation_id:
            raise AssertionError(f"answer {reader.correlation_id} to request {self.last_correlation_id}")
        return reader

    def receive_frame(self) -> bytes:
        """Read one length-prefixed frame."""
        (length,) = struct.unpack(">i", self.receive_exactly(4))
        return self.receive_exactly(length)

    def receive_exactly(self, length: int) -> bytes:
        """Read that many bytes."""
        data = bytearray(length)
        view = memoryview(data)
        got = 0
        while got < length:
            count = self.socket.recv_into(view[got:])
            if count == 0:
                raise ConnectionClosed
            got += count
        return bytes(data)


class Reader:
    """A cursor over one answer."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.position = 0
        self.correlation_id = -1

    def _unpack(self, form: str) -> int:
        value: int
        (value,) = struct.unpack_from(form, self.data, self.position)
        self.position += struct.calcsize(form)
        return value

    def int8(self) -> int:
        return self._unpack(">b")

    def int16(self) -> int:
        return self._unpack(">h")

    def int32(self) -> int:
        return self._unpack(">i")

    def int64(self) -> int:
        return self._unpack(">q")

    def string(self) -> str | None:
        length = self.int16()
        return None if length < 0 else self._take(length).decode()

    def byte_string(self) -> bytes | None:
        length = self.int32()
        return None if length < 0 else self._take(length)

    def _take(self, length: int) -> bytes:
        value = self.data[self.position : self.position + length]
        self.position += length
        return value


def frame(api_key: int, api_version: int, correlation_id: int, body: bytes, client_id: str = "bench") -> bytes:
    """A whole request: length, header version 1, body."""
    header = struct.pack(">hhi", api_key, api_version, correlation_id) + string(client_id)
    return struct.pack(">i", len(header) + len(body)) + header + body


def string(value: str | None) -> bytes:
    """A nullable string with its 16-bit length."""
    if value is None:
        return b"\xff\xff"
    encoded = value.encode()
    return struct.pack(">h", len(encoded)) + encoded


def array(items: Iterable[bytes]) -> bytes:
    """A counted array of encoded things."""
    encoded = list(items)
    return struct.pack(">i", len(encoded)) + b"".join(encoded)


def varint(value: int) -> bytes:
    """A zigzag variable-length number, as record fields have it."""
    value = (value << 1) ^ (value >> 63)
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def record_batch(
    values: Sequence[bytes],
    *,
    timestamp_ms: int,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
) -> bytes:
    """An uncompressed magic-2 batch of records without keys."""
    records = bytearray()
    for index, value in enumerate(values):
        body = b"\x00" + varint(0) + varint(index) + varint(-1) + varint(len(value)) + value + varint(0)
        records += varint(len(body)) + body
    last = len(values) - 1
    tail = struct.pack(
        ">hiqqqhii", 0, last, timestamp_ms, timestamp_ms, producer_id, producer_epoch, base_sequence, last + 1
    )
    tail += bytes(records)
    checksum = crc32.iscsi(tail)
    return struct.pack(">qiiBI", 0, len(tail) + 9, -1, 2, checksum) + tail


def produce_body(topic: str, batches: Sequence[tuple[int, Batch]], *, acks: int, timeout_ms: int = 30_000) -> bytes:
    """A Produce request, version 7, with one batch for each named partition."""
    partitions = array(struct.pack(">ii", partition, len(batch)) + batch for partition, batch in batches)
    return string(None) + struct.pack(">hi", acks, timeout_ms) + array([string(topic) + partitions])


def produce_errors(reader: Reader) -> list[tuple[int, int, int]]:
    """(partition, error code, base offset) of each partition in a Produce answer, version 7."""
    results = []
    for _ in range(reader.int32()):
        reader.string()
        for _ in range(reader.int32()):
            partition, error, base_offset = reader.int32(), reader.int16(), reader.int64()
            reader.int64()
            reader.int64()
            results.append((partition, error, base_offset))
    return results


def fetch_body(topic: str, offsets: Sequence[tuple[int, int]], *, max_bytes: int, max_wait_ms: int = 500) -> bytes:
    """A Fetch request without a session, version 11."""
    partitions = array(struct.pack(">iiqqi", index, -1, offset, -1, max_bytes) for index, offset in offsets)
    head = struct.pack(">iiiibii", -1, max_wait_ms, 1, 0x7FFFFFFF, 0, 0, -1)
    return head + array([string(topic) + partitions]) + array([]) + string("")


def fetch_records(reader: Reader) -> list[tuple[int, int, int, bytes]]:
    """(partition, error code, high watermark, records) of each partition in a Fetch answer, version 11."""
    reader.int32()
    reader.int16()
    reader.int32()
    results = []
    for _ in range(reader.int32()):
        reader.string()
        for _ in range(reader.int32()):
            partition, error, high_watermark = reader.int32(), reader.int16(), reader.int64()
            reader.int64()
            reader.int64()
            for _ in range(max(reader.int32(), 0)):
                reader.int64()
                reader.int64()
            reader.int32()
            results.append((partition, error, high_watermark, reader.byte_string() or b""))
    return results


def end_offset(records: bytes) -> int:
    """The offset after the last whole batch, or -1 where there is none."""
    position, after = 0, -1
    while position + 61 <= len(records):
        base_offset, length = struct.unpack_from(">qi", records, position)
        if position + 12 + length > len(records):
            break
        (last_delta,) = struct.unpack_from(">i", records, position + 23)
        after = base_offset + last_delta + 1
        position += 12 + length
    return after


def create_topic(
    connection: Connection, name: str, partitions: int, configs: dict[str, str] | None = None, *, replicas: int = 1
) -> int:
    """Create a topic (CreateTopics, version 4); the error code."""
    settings = array(string(key) + string(value) for key, value in (configs or {}).items())
    topic = string(name) + struct.pack(">ih", partitions, replicas) + array([]) + settings
    reader = connection.request(CREATE_TOPICS, 4, array([topic]) + struct.pack(">ib", 30_000, 0))
    reader.int32()
    reader.int32()
    reader.string()
    return reader.int16()


def delete_topic(connection: Connection, name: str) -> int:
    """Delete a topic (DeleteTopics, version 3); the error code."""
    reader = connection.request(DELETE_TOPICS, 3, array([string(name)]) + struct.pack(">i", 30_000))
    reader.int32()
    reader.int32()
    reader.string()
    return reader.int16()


def list_offsets(
    connection: Connection, topic: str, partitions: Iterable[int], timestamp: int
) -> list[tuple[int, int, int]]:
    """(partition, error code, offset) for each partition (ListOffsets, version 5)."""
    asked = array(struct.pack(">iiq", partition, -1, timestamp) for partition in partitions)
    reader = connection.request(LIST_OFFSETS, 5, struct.pack(">ib", -1, 0) + array([string(topic) + asked]))
    reader.int32()
    results = []
    for _ in range(reader.int32()):
        reader.string()
        for _ in range(reader.int32()):
            partition, error = reader.int32(), reader.int16()
            reader.int64()
            offset = reader.int64()
            reader.int32()
            results.append((partition, error, offset))
    return results


def brokers_known(connection: Connection, topics: Sequence[str] = (), *, auto_create: bool = False) -> int:
    """How many brokers a Metadata answer (version 5) names."""
    body = array(string(topic) for topic in topics) + struct.pack(">b", auto_create)
    reader = connection.request(METADATA, 5, body)
    reader.int32()
    return reader.int32()


class PartitionState(NamedTuple):
    """Who leads a partition, -1 where nobody does, and who holds all of it."""

    leader: int
    replicas: list[int]
    in_sync: list[int]


def partition_states(connection: Connection, topics: Sequence[str]) -> dict[tuple[str, int], PartitionState]:
    """The state of each partition of the topics, as one broker knows it (Metadata, version 5)."""
    reader = connection.request(METADATA, 5, array(string(topic) for topic in topics) + b"\0")
    reader.int32()
    for _ in range(reader.int32()):
        reader.int32()
        reader.string()
        reader.int32()
        reader.string()
    reader.string()
    reader.int32()
    found = {}
    for _ in range(reader.int32()):
        reader.int16()
        name = reader.string() or ""
        reader.int8()
        for _ in range(reader.int32()):
            reader.int16()
            partition, leader = reader.int32(), reader.int32()
            replicas, in_sync, _ = ([reader.int32() for _ in range(reader.int32())] for _ in range(3))
            found[name, partition] = PartitionState(leader, replicas, in_sync)
    return found


def incremental_alter_body(topic: str, key: str, value: str) -> bytes:
    """An IncrementalAlterConfigs request, version 0, that sets one config of a topic."""
    config = string(key) + struct.pack(">b", SET) + string(value)
    return array([struct.pack(">b", TOPIC_RESOURCE) + string(topic) + array([config])]) + b"\0"


def incremental_alter_error(reader: Reader) -> int:
    """The error code of the one resource in an IncrementalAlterConfigs answer, version 0."""
    reader.int32()
    reader.int32()
    return reader.int16()


def init_producer_id(connection: Connection) -> tuple[int, int]:
    """A producer id and epoch for an idempotent producer (InitProducerId, version 1)."""
    for _ in range(INIT_PRODUCER_ID_TRIES):
        reader = connection.request(INIT_PRODUCER_ID, 1, string(None) + struct.pack(">i", 60_000))
        reader.int32()
        error = reader.int16()
        if error == 0:
            return reader.int64(), reader.int16()
        if error != COORDINATOR_LOAD_IN_PROGRESS:
            break
        time.sleep(0.05)
    raise AssertionError(f"InitProducerId answered error {error}")
