"""Send every batch of `batches.py` to a broker, in every version of Produce, and write down what it answers.

python -m tests.spoilt.record 9092        to Apache Kafka, and its answers into answers.json
"""

from __future__ import annotations

import base64
import json
import os
import socket
import struct
import sys
import zlib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple
from uuid import UUID

from bench import wire
from bench.cells import wait_for_partitions
from tests.spoilt.batches import TOPICS, Case, cases

from odradek.protocol.codec import Message, decode, encode
from odradek.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from odradek.protocol.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData

ANSWERS = Path(__file__).with_name("answers.json")
VERSIONS = range(3, 14)
CLOSED = -1000
"""Instead of an error code: the connection was closed."""


class Answer(NamedTuple):
    """An error code, and the numbers of the records that are named as wrong."""

    code: int
    bad_records: tuple[int, ...] = ()


class Recorded(NamedTuple):
    case: Case
    answers: dict[int, Answer]
    """By version of Produce."""


def recorded() -> list[Recorded]:
    """What Apache Kafka answered."""
    found = []
    for name, (topic, batch, answers) in json.loads(ANSWERS.read_text()).items():
        by_version = {
            version: Answer(code, tuple(bad))
            for first, last, code, bad in answers
            for version in range(first, last + 1)
        }
        found.append(Recorded(Case(name, topic, zlib.decompress(base64.b64decode(batch))), by_version))
    return found


def made_topics(port: int, suffix: str) -> dict[str, str]:
    """Topics of the given settings, new ones, by the names that the cases have for them."""
    topics = {name: f"spoilt-{name}-{os.getpid()}-{suffix}" for name in TOPICS}
    with wire.Connection(port) as connection:
        for name, topic in topics.items():
            assert wire.create_topic(connection, topic, 1, TOPICS[name]) == 0
            wait_for_partitions(connection, topic, 1)
    return topics


def ask(
    port: int, topics: dict[str, str], sent: Iterable[Case], versions: Iterable[int] = VERSIONS
) -> Iterator[Recorded]:
    """What the broker answers to each."""
    ids = _topic_ids(port, topics.values())
    versions = list(versions)
    with _Asking(port) as asking:
        for case in sent:
            answers = {}
            for version in versions:
                topic = topics[case.topic]
                answers[version] = asking.produce(version, topic, ids[topic], case.batch)
            yield Recorded(case, answers)


class _Asking:
    """A connection that is opened again when the broker has closed it."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._socket: socket.socket | None = None

    def __enter__(self) -> _Asking:
        return self

    def __exit__(self, *_: object) -> None:
        self._close()

    def produce(self, version: int, topic: str, topic_id: Any, batch: bytes) -> Answer:
        data = [PartitionProduceData(index=0, records=memoryview(batch))]
        request = ProduceRequest(
            acks=1, timeout_ms=5_000, topic_data=[TopicProduceData(name=topic, topic_id=topic_id, partition_data=data)]
        )
        try:
            response = self.ask(request, version, ProduceResponse, flexible=version >= 9)
        except (ConnectionError, EOFError):
            self._close()
            return Answer(CLOSED)
        assert isinstance(response, ProduceResponse)
        (part,) = response.responses[0].partition_responses
        return Answer(part.error_code, tuple(each.batch_index for each in part.record_errors))

    def ask(self, request: Message, version: int, answer: type[Message], *, flexible: bool) -> Message:
        if self._socket is None:
            self._socket = socket.create_connection(("127.0.0.1", self._port), timeout=30)
        header = struct.pack(">hhih", request.api_key, version, 1, -1) + (b"\0" if flexible else b"")
        body = header + encode(request, version)
        self._socket.sendall(struct.pack(">i", len(body)) + body)
        (size,) = struct.unpack(">i", self._receive(4))
        frame = self._receive(size)
        return decode(answer, version, frame[5 if flexible else 4 :])

    def _receive(self, size: int) -> bytes:
        assert self._socket is not None
        got = bytearray()
        while len(got) < size:
            piece = self._socket.recv(size - len(got))
            if not piece:
                raise EOFError
            got += piece
        return bytes(got)

    def _close(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None


def _topic_ids(port: int, topics: Iterable[str]) -> dict[str, UUID]:
    with _Asking(port) as asking:
        request = MetadataRequest(topics=[MetadataRequestTopic(name=name) for name in topics])
        response = asking.ask(request, 12, MetadataResponse, flexible=True)
    assert isinstance(response, MetadataResponse)
    return {topic.name or "": topic.topic_id for topic in response.topics}  # type: ignore[misc]


def _in_ranges(answers: Mapping[int, Answer]) -> list[list[Any]]:
    """First version, last version, code, bad records: neighbours that agree are told once."""
    ranges: list[list[Any]] = []
    for version, (code, bad) in sorted(answers.items()):
        if ranges and ranges[-1][2:] == [code, list(bad)]:
            ranges[-1][1] = version
        else:
            ranges.append([version, version, code, list(bad)])
    return ranges


def main() -> None:
    port = int(sys.argv[1])
    table = {
        case.name: [case.topic, base64.b64encode(zlib.compress(case.batch, 9)).decode(), _in_ranges(answers)]
        for case, answers in ask(port, made_topics(port, "recorded"), cases())
    }
    lines = ",\n".join(f"{json.dumps(name)}: {json.dumps(row)}" for name, row in table.items())
    ANSWERS.write_text(f"{{\n{lines}\n}}\n")
    print(f"{len(table)} batches")


if __name__ == "__main__":
    main()
