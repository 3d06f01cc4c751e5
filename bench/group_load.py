"""Members of a classic group by hand-written requests: many connections, one selector, next to no work of their own.

JoinGroup 5, SyncGroup 3, Heartbeat 3, OffsetCommit 7 and FindCoordinator 2: the last before compact encoding.
"""

from __future__ import annotations

import selectors
import socket
import struct
import time
from collections.abc import Sequence

from bench import wire

OFFSET_COMMIT, FIND_COORDINATOR, JOIN_GROUP, HEARTBEAT, SYNC_GROUP = 8, 10, 11, 12, 14
REBALANCE_IN_PROGRESS = 27
MEMBER_ID_REQUIRED, COORDINATOR_NOT_AVAILABLE, COORDINATOR_LOAD_IN_PROGRESS, NOT_COORDINATOR = 79, 15, 14, 16
SESSION_TIMEOUT_MS = 60_000
REBALANCE_TIMEOUT_MS = 120_000
SUBSCRIPTION = bytes(2) + wire.array([wire.string("some-topic")]) + b"\xff\xff\xff\xff"
ASSIGNMENT = bytes(2) + wire.array([wire.string("some-topic") + wire.array([bytes(4)])]) + b"\xff\xff\xff\xff"
GIVE_UP_S = 120.0


class Member:
    """One connection, and what the group has told it."""

    def __init__(self, port: int, group: str) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=GIVE_UP_S)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.group = group
        self.member_id = ""
        self.generation = -1
        self.everyone: list[str] = []
        """Of a leader: all members."""
        self._received = bytearray()
        self._correlation_id = 0

    def send(self, api_key: int, api_version: int, body: bytes) -> None:
        self._correlation_id += 1
        self.socket.sendall(wire.frame(api_key, api_version, self._correlation_id, body))

    def answers(self) -> list[wire.Reader]:
        """Whole answers that have arrived; the socket is readable."""
        self._received += self.socket.recv(1 << 20)
        readers = []
        while len(self._received) >= 4:
            (length,) = struct.unpack_from(">i", self._received)
            if len(self._received) < 4 + length:
                break
            reader = wire.Reader(bytes(self._received[4 : 4 + length]))
            reader.correlation_id = reader.int32()
            readers.append(reader)
            del self._received[: 4 + length]
        return readers

    def join(self) -> None:
        timeouts = struct.pack(">ii", SESSION_TIMEOUT_MS, REBALANCE_TIMEOUT_MS)
        protocols = wire.array([wire.string("range") + struct.pack(">i", len(SUBSCRIPTION)) + SUBSCRIPTION])
        who = wire.string(self.member_id) + wire.string(None)
        self.send(JOIN_GROUP, 5, wire.string(self.group) + timeouts + who + wire.string("consumer") + protocols)

    def joined(self, answer: wire.Reader) -> int:
        """Take the answer in; its error code."""
        answer.int32()
        code = answer.int16()
        self.generation = answer.int32()
        answer.string()
        leader = answer.string()
        self.member_id = answer.string() or ""
        self.everyone = []
        if not code and leader == self.member_id:
            for _ in range(answer.int32()):
                self.everyone.append(answer.string() or "")
                answer.string()
                answer.byte_string()
        return code

    def sync(self) -> None:
        assignment = struct.pack(">i", len(ASSIGNMENT)) + ASSIGNMENT
        assignments = wire.array(wire.string(each) + assignment for each in self.everyone)
        self.send(SYNC_GROUP, 3, self._who() + assignments)

    def heartbeat(self) -> None:
        self.send(HEARTBEAT, 3, self._who())

    def commit(self, topic: str, offset: int) -> None:
        part = struct.pack(">iqi", 0, offset, -1) + wire.string("")
        self.send(OFFSET_COMMIT, 7, self._who() + wire.array([wire.string(topic) + wire.array([part])]))

    def _who(self) -> bytes:
        who = struct.pack(">i", self.generation) + wire.string(self.member_id) + wire.string(None)
        return wire.string(self.group) + who


class Group:
    """Many members of one group."""

    def __init__(self, port: int, group: str, count: int) -> None:
        find_coordinator(port, group)
        self.members = [Member(port, group) for _ in range(count)]
        self._selector = selectors.DefaultSelector()
        for member in self.members:
            self._selector.register(member.socket, selectors.EVENT_READ, member)

    def close(self) -> None:
        self._selector.close()
        for member in self.members:
            member.socket.close()

    def form(self) -> None:
        """Everyone joins a new group, and gets its assignment."""
        for member in self.members:
            member.join()
        self._join_and_sync(len(self.members))

    def rebalance(self) -> float:
        """The leader wants it, the others hear of it by their heartbeats, and all get a part again; the seconds."""
        started = time.perf_counter()
        for member in self.members:
            if member.everyone:
                member.join()
            else:
                member.heartbeat()
        waiting = len(self.members) - 1
        for member, answer in self._answers():
            code = _code(answer)
            if code == REBALANCE_IN_PROGRESS:
                member.join()
                waiting -= 1
                if not waiting:
                    break
            elif code:
                raise RuntimeError(f"Heartbeat answered error {code}")
            else:
                member.heartbeat()
        self._join_and_sync(len(self.members))
        return time.perf_counter() - started

    def _join_and_sync(self, waiting: int) -> None:
        for member, answer in self._answers():
            code = member.joined(answer)
            if code == MEMBER_ID_REQUIRED:
                member.join()
                continue
            if code:
                raise RuntimeError(f"JoinGroup answered error {code}")
            waiting -= 1
            if not waiting:
                break
        for member in self.members:
            member.sync()
        self.collect(len(self.members))

    def collect(self, count: int) -> None:
        """So many answers to SyncGroup or Heartbeat, none of which may tell an error."""
        for _, answer in self._answers():
            code = _code(answer)
            if code:
                raise RuntimeError(f"a member was answered error {code}")
            count -= 1
            if not count:
                return

    def commit(self, topic: str, count: int) -> float:
        """Each member commits again as soon as it is answered, `count` times altogether; the seconds this took."""
        started = time.perf_counter()
        for member in self.members:
            member.commit(topic, 0)
        sent = len(self.members)
        for received, (member, answer) in enumerate(self._answers(), 1):
            (code,) = struct.unpack_from(">h", answer.data, len(answer.data) - 2)
            if code:
                raise RuntimeError(f"OffsetCommit answered error {code}")
            if sent < count:
                member.commit(topic, sent)
                sent += 1
            elif received == sent:
                break
        return time.perf_counter() - started

    def beat(self, seconds: float, interval_s: float = 3.0) -> None:
        """Idle for that long: a heartbeat of each member every three seconds, spread evenly, as consumers send them."""
        pause_s = interval_s / len(self.members)
        until = time.monotonic() + seconds
        at = time.monotonic()
        turn = 0
        while at < until:
            member = self.members[turn % len(self.members)]
            member.heartbeat()
            self.collect(1)
            turn += 1
            at += pause_s
            time.sleep(max(0.0, at - time.monotonic()))

    def _answers(self) -> _Answers:
        return _Answers(self._selector)


def _code(answer: wire.Reader) -> int:
    """Of SyncGroup and Heartbeat, behind the throttle time."""
    answer.int32()
    return answer.int16()


class _Answers:
    """Whatever arrives at any of the members."""

    def __init__(self, selector: selectors.BaseSelector) -> None:
        self._selector = selector
        self._ready: list[tuple[Member, wire.Reader]] = []

    def __iter__(self) -> _Answers:
        return self

    def __next__(self) -> tuple[Member, wire.Reader]:
        while not self._ready:
            events = self._selector.select(GIVE_UP_S)
            if not events:
                raise RuntimeError(f"no answer within {GIVE_UP_S:g} seconds")
            self._ready = [(key.data, answer) for key, _ in events for answer in key.data.answers()]
        return self._ready.pop(0)


def find_coordinator(port: int, group: str, retry: Sequence[int] = (COORDINATOR_NOT_AVAILABLE,)) -> None:
    """Until there is one that serves the group."""
    deadline = time.monotonic() + GIVE_UP_S
    with wire.Connection(port) as connection:
        while time.monotonic() < deadline:
            answer = connection.request(FIND_COORDINATOR, 2, wire.string(group) + bytes(1))
            answer.int32()
            code = answer.int16()
            if code not in retry:
                break
            time.sleep(0.1)
        if code:
            raise RuntimeError(f"FindCoordinator answered error {code}")
        not_yet = (COORDINATOR_LOAD_IN_PROGRESS, NOT_COORDINATOR)
        who = wire.string(group) + struct.pack(">i", 0) + wire.string("nobody") + wire.string(None)
        while time.monotonic() < deadline:
            answer = connection.request(SYNC_GROUP, 3, who + wire.array([]))
            answer.int32()
            if answer.int16() not in not_yet:
                return
            time.sleep(0.1)
