"""A conversation with a broker, request by request, written down so that it can be held against another broker's."""

from __future__ import annotations

import re
import time
from typing import Any

from bench import wire
from tests.unit.server.rig import decode_response, request_body

from odradek.protocol.api import ApiKey
from odradek.protocol.codec import Message
from odradek.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnResponse
from odradek.protocol.messages.delete_groups import DeleteGroupsResponse
from odradek.protocol.messages.fetch import FetchResponse
from odradek.protocol.messages.list_groups import ListGroupsResponse
from odradek.protocol.messages.list_offsets import ListOffsetsResponse
from odradek.protocol.messages.produce import ProduceResponse

_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_PRODUCER = re.compile(r"producer_id=(\d+)")


class Conversation:
    """What was asked and answered, on as many connections as it takes."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._connections: dict[str, wire.Connection] = {}
        self._producers: dict[str, str] = {}
        """What their ids are called: other requests may have taken ids in between."""
        self.lines: list[str] = []

    def close(self) -> None:
        for connection in self._connections.values():
            connection.__exit__()

    def send(self, request: Message, version: int, *, on: str = "one") -> None:
        if on not in self._connections:
            self._connections[on] = wire.Connection(self._port)
        connection = self._connections[on]
        body = request_body(request, version, 7, client_id="wire")
        connection.socket.sendall(len(body).to_bytes(4) + body)

    def receive(self, what: str, api_key: int, version: int, *, on: str = "one") -> Any:
        """None where the connection was closed instead."""
        try:
            answer: Any = decode_response(ApiKey(api_key), version, self._connections[on].receive_frame()[4:])
        except (wire.ConnectionClosed, ConnectionResetError):
            self._connections.pop(on).__exit__()
            self.lines += [f"{what}, version {version}", "    closes the connection"]
            return None
        self.lines += [f"{what}, version {version}", f"    {self._named(_told(answer))}"]
        return answer

    def ask(self, what: str, request: Message, version: int, *, on: str = "one") -> Any:
        self.send(request, version, on=on)
        return self.receive(what, request.api_key, version, on=on)

    def settle(self, what: str, request: Message, version: int, *, patience_s: float = 30.0) -> Any:
        """Ask again while an earlier transaction has not reached all its partitions; the last answer counts."""
        deadline = time.monotonic() + patience_s
        while True:
            answer = self.ask(what, request, version)
            if "error_code=51," not in self.lines[-1] and "error_code=51)" not in self.lines[-1]:
                return answer
            assert time.monotonic() < deadline, self.lines[-1]
            del self.lines[-2:]
            time.sleep(0.02)

    def _named(self, answer: str) -> str:
        def name(found: re.Match[str]) -> str:
            known = self._producers.setdefault(found[1], f"P{len(self._producers)}")
            return f"producer_id={known}"

        return _PRODUCER.sub(name, answer)


def _told(answer: Message) -> str:
    if isinstance(answer, ListGroupsResponse):
        answer.groups.sort(key=lambda group: group.group_id)
    elif isinstance(answer, DeleteGroupsResponse):
        answer.results.sort(key=lambda result: result.group_id)
    elif isinstance(answer, FetchResponse):
        for topic in answer.responses:
            for part in topic.partitions:
                part.records = None
    elif isinstance(answer, AddPartitionsToTxnResponse):
        for results in (
            answer.results_by_topic_v3_and_below,
            *(each.topic_results for each in answer.results_by_transaction),
        ):
            results.sort(key=lambda topic: topic.name)
            for topic in results:
                topic.results_by_partition.sort(key=lambda part: part.partition_index)
    elif isinstance(answer, ListOffsetsResponse):
        for topic in answer.topics:
            topic.partitions.sort(key=lambda part: part.partition_index)
    elif isinstance(answer, ProduceResponse):
        for topic in answer.responses:
            for part in topic.partition_responses:
                # Kafka has few words for what it refuses, and tells of a start in some cases.
                part.error_message, part.log_append_time_ms = None, -1
                part.log_start_offset = -1 if part.error_code else part.log_start_offset
    text = _UUID.sub("UUID", repr(answer))
    text = re.sub(r"port=\d+", "port=PORT", text)
    return re.sub(r"error_message='[^']{9,}'", "error_message='…'", text)
