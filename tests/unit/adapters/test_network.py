"""The real wires: partial sends, file slices, ends and losses."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, ClassVar

import pytest

from odradek.adapters.disk import RealDisk, RealFile
from odradek.adapters.network import SENDFILE_THRESHOLD, SocketNetwork
from odradek.ports import FileSlice, Loan, Part, Wire


class Recorder:
    """Keeps all it gets; `answer` may send something back."""

    made: ClassVar[list[Recorder]] = []

    def __init__(self, wire: Wire, answer: Callable[[Wire, bytes], None] | None = None) -> None:
        self.made.append(self)
        self.wire = wire
        self.answer = answer
        self.data = bytearray()  # As bytes, all that came before would be copied for every piece: seconds for 25 MiB.
        self.ends: list[Exception | None] = []
        self.drains = 0
        self._space = memoryview(bytearray(65536))
        self.changed = asyncio.Event()

    def buffer(self) -> memoryview:
        return self._space

    def received(self, count: int) -> None:
        piece = bytes(self._space[:count])
        self.data += piece
        self.changed.set()
        if self.answer is not None:
            self.answer(self.wire, piece)

    def drained(self) -> None:
        self.drains += 1
        self.changed.set()

    def lost(self, why: Exception | None) -> None:
        self.ends.append(why)
        self.changed.set()

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(10):
            while not condition():
                self.changed.clear()
                await self.changed.wait()


def run(test: Callable[[], Coroutine[None, None, None]]) -> None:
    asyncio.run(_closing_if_it_fails(test))


async def _closing_if_it_fails(test: Callable[[], Coroutine[None, None, None]]) -> None:
    """The sockets of a test that failed, left open, would fail whichever test runs while they are collected."""
    try:
        await test()
    except BaseException:
        for recorder in Recorder.made:
            recorder.wire.close()
        raise
    finally:
        Recorder.made.clear()


async def pair(answer: Callable[[Wire, bytes], None] | None = None) -> tuple[Recorder, Recorder]:
    """Two ends of one connection: who connected, who was connected to."""
    network = SocketNetwork()
    taken: list[Recorder] = []
    there = asyncio.Event()

    def accept(wire: Wire) -> Recorder:
        taken.append(Recorder(wire, answer))
        there.set()
        return taken[0]

    listening = await network.listen("127.0.0.1", 0, accept)
    mine: list[Recorder] = []

    def own(wire: Wire) -> Recorder:
        mine.append(Recorder(wire))
        return mine[0]

    await network.connect("localhost", listening.port, own)
    await asyncio.wait_for(there.wait(), 10)
    listening.close()
    return mine[0], taken[0]


def test_bytes_go_both_ways_in_order() -> None:
    async def test() -> None:
        client, server = await pair(lambda wire, piece: wire.send([b"<", piece, b">"]))
        client.wire.send([b"one", memoryview(b"two")])
        await client.until(lambda: client.data.endswith(b">"))
        assert server.data == b"onetwo"
        assert client.data.replace(b"><", b"") == b"<onetwo>"
        client.wire.close()
        await server.until(lambda: bool(server.ends))
        assert server.ends == client.ends == [None]

    run(test)


def test_more_than_the_socket_takes_waits_and_drains_in_order(tmp_path: Path) -> None:
    path = tmp_path / "segment"
    body = bytes(range(256)) * 8192
    path.write_bytes(body)

    async def test() -> None:
        client, server = await pair()
        file = RealDisk().open(str(path))
        client.wire.pause()
        parts: list[Part] = [b"head", FileSlice(file, 1, 10), FileSlice(file, 256, SENDFILE_THRESHOLD * 4), b"middle"]
        parts.append(FileSlice(file, 0, len(body)))
        expected = b"head" + body[1:11] + body[256 : 256 + SENDFILE_THRESHOLD * 4] + b"middle" + body
        for _ in range(3):
            server.wire.send(parts)
        assert server.wire.unsent_bytes > 0
        server.wire.send([b"tail"])
        client.wire.resume()
        await client.until(lambda: len(client.data) == len(expected) * 3 + 4)
        assert client.data == expected * 3 + b"tail"
        await server.until(lambda: server.drains > 0)
        assert server.wire.unsent_bytes == 0
        file.close()
        server.wire.close()

    run(test)


def test_of_many_small_slices_no_more_are_read_than_may_leave_soon(tmp_path: Path) -> None:
    path = tmp_path / "segment"
    slice_bytes = SENDFILE_THRESHOLD // 2
    path.write_bytes(bytes(slice_bytes))

    async def test() -> None:
        client, server = await pair()
        file = RealDisk().open(str(path))
        client.wire.pause()
        reads = 0

        class Counted(RealFile):
            __slots__ = ()

            def read(self, position: int, length: int) -> bytes:
                nonlocal reads
                reads += 1
                return super().read(position, length)

        file.__class__ = Counted
        count = 400
        server.wire.send([FileSlice(file, 0, slice_bytes) for _ in range(count)])
        assert reads < count / 2
        assert server.wire.unsent_bytes > 0
        client.wire.resume()
        await client.until(lambda: len(client.data) == count * slice_bytes)
        file.close()
        server.wire.close()

    run(test)


def test_a_follower_gets_a_large_batch_and_what_is_around_it_by_one_call(tmp_path: Path) -> None:
    path = tmp_path / "segment"
    body = bytes(range(256)) * 1000
    path.write_bytes(body)

    class Counted:
        """A socket that counts what it is told to send."""

        def __init__(self, sock: socket.socket) -> None:
            self.sock, self.calls = sock, 0

        def sendmsg(self, *args: Any) -> int:
            self.calls += 1
            return self.sock.sendmsg(*args)

        def __getattr__(self, name: str) -> Any:
            return getattr(self.sock, name)

    async def test() -> None:
        client, server = await pair()
        file = RealDisk().open(str(path))
        server.wire.widen()
        server.wire._sock = counted = Counted(server.wire._sock)
        server.wire.send([b"head", FileSlice(file, 0, len(body)), b"tail"])
        server.wire._sock = counted.sock
        assert counted.calls == 1
        await client.until(lambda: len(client.data) == len(body) + 8)
        assert client.data == b"head" + body + b"tail"
        file.close()
        server.wire.close()

    run(test)


def test_what_is_lent_is_sent_without_reading_it_and_kept_if_it_cannot_leave_yet(tmp_path: Path) -> None:
    path = tmp_path / "segment"
    in_file, in_memory = b"f" * 100_000, b"m" * 100_000
    path.write_bytes(in_file)

    async def test() -> None:
        client, server = await pair()
        client.wire.pause()
        file = RealDisk().open(str(path))
        filling = b""
        while not server.wire.unsent_bytes:
            lent = bytearray(in_memory)
            loan = Loan(memoryview(lent))
            server.wire.send([FileSlice(file, 0, len(lent), loan)])
            filling += in_memory
            # What did not leave, the lender may write over now.
            loan.view = None
            lent[:] = b"x" * len(lent)
        late = Loan(memoryview(bytearray(in_memory)))
        server.wire.send([FileSlice(file, 0, len(in_file), late)])  # Waits behind the others, and is read when it goes.
        late.view = None
        client.wire.resume()
        await client.until(lambda: len(client.data) == len(filling) + len(in_file))
        assert client.data == filling + in_file
        file.close()
        server.wire.close()

    run(test)


def test_a_wire_that_is_widened_has_room_for_more() -> None:
    async def test() -> None:
        client, server = await pair()
        sock = server.wire._sock
        before = sock.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF)
        server.wire.widen()
        assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF) > before
        server.wire.close()
        server.wire.widen()
        await client.until(lambda: bool(client.ends))

    run(test)


def test_a_connection_that_was_reset_is_told_from_one_that_was_closed() -> None:
    """The first may be the network's doing, the second is the peer's process alone."""

    async def test() -> None:
        client, server = await pair()
        client.wire._sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        client.wire.close()
        await server.until(lambda: bool(server.ends))
        assert isinstance(server.ends[0], ConnectionResetError)
        client, server = await pair()
        server.wire.pause()
        client.wire.close()
        while not server.ends:  # It is not read, so a send finds out.
            server.wire.send([b"x"])
            await asyncio.sleep(0)
        assert server.ends == [None]

    run(test)


def test_finish_lets_everything_leave_first() -> None:
    async def test() -> None:
        client, server = await pair()
        client.wire.pause()
        big = bytes(8 * 1024 * 1024)
        server.wire.send([big])
        server.wire.finish()
        assert not server.ends
        client.wire.resume()
        await client.until(lambda: bool(client.ends))
        assert len(client.data) == len(big)
        assert server.ends == [None]

    run(test)


def test_a_file_cut_under_an_answer_costs_the_connection(tmp_path: Path) -> None:
    path = tmp_path / "segment"
    path.write_bytes(bytes(SENDFILE_THRESHOLD))

    async def test() -> None:
        client, server = await pair()
        file = RealDisk().open(str(path))
        server.wire.send([b"x", FileSlice(file, 0, SENDFILE_THRESHOLD * 2)])
        await server.until(lambda: bool(server.ends))
        assert isinstance(server.ends[0], OSError)
        await client.until(lambda: bool(client.ends))
        file.close()

    run(test)


def test_a_taken_port_is_an_error() -> None:
    async def test() -> None:
        network = SocketNetwork()
        listening = await network.listen("127.0.0.1", 0, lambda wire: Recorder(wire))
        with pytest.raises(OSError, match="in use"):
            await network.listen("127.0.0.1", listening.port, lambda wire: Recorder(wire))
        listening.close()

    run(test)


def test_nobody_there_is_an_error() -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]

    async def test() -> None:
        with pytest.raises(ConnectionRefusedError):
            await SocketNetwork().connect("127.0.0.1", port, lambda wire: Recorder(wire))

    run(test)
