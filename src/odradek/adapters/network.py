"""The real network: non-blocking TCP sockets watched by the event loop, without transports or streams.

A readable socket costs one `recv_into` straight into its owner's buffer; an answer costs one `sendmsg`, or a `sendmsg`
and a `sendfile` where a large stretch of a file is part of it.
"""

from __future__ import annotations

import asyncio
import errno
import os
import socket
from collections import deque
from collections.abc import Callable, Sequence
from typing import Protocol, TypeAlias, cast

from odradek.ports import FileSlice, Listening, Part, Wire, WireOwner

SENDFILE_THRESHOLD = 128 * 1024
"""Below this a slice is read and gathered with its neighbours: fewer system calls, and its reader wakes up once."""

MAX_GATHERED_PARTS = 512
"""Below IOV_MAX (1024) on every system that matters."""

MAX_GATHERED_BYTES = 256 * 1024
"""No further slice is read for one call then: what is read may have to wait in memory until the socket has room."""

SEND_BUFFER_BYTES = 102_400
"""Kafka's own default (socket.send.buffer.bytes). Left to itself the kernel takes megabytes of an answer at once, which
have left the processor's cache by the time the reader copies them: a Fetch of 1 MiB then costs the broker half as much
again (`wire-fetch` in bench/RESULTS.md)."""

WIDE_BYTES = 1024 * 1024
"""In place of all three for connections of followers. Batches of a quarter MiB, which producers are often told to send,
leave in one call with what stands before and behind them: the follower wakes up once for them, not for every piece, and
the leader need not come back for the rest. That is worth more than the copy which sendfile would save."""

ACCEPTS_A_TURN = 64
LISTEN_BACKLOG = 1024
_MORE = getattr(socket, "MSG_MORE", 0)
_Bytes: TypeAlias = bytes | bytearray | memoryview


class DescriptorFile(Protocol):
    """What `sendfile` needs of the real disk's files: a descriptor that stays open while it is held."""

    def descriptor(self) -> int: ...


class SocketWire:
    """One connected socket."""

    __slots__ = (
        "_closed",
        "_finishing",
        "_gathered_most",
        "_loop",
        "_owner",
        "_reading",
        "_sendfile_from",
        "_sock",
        "_unsent",
        "peer_host",
        "unsent_bytes",
    )

    def __init__(self, loop: asyncio.AbstractEventLoop, sock: socket.socket, peer_host: str) -> None:
        self._loop = loop
        self._sock = sock
        self._unsent: deque[Part] = deque()
        self._reading = False
        self._closed = False
        self._finishing = False
        self._sendfile_from = SENDFILE_THRESHOLD
        self._gathered_most = MAX_GATHERED_BYTES
        self.peer_host = peer_host
        self.unsent_bytes = 0

    def start(self, owner: WireOwner) -> None:
        self._owner = owner
        if not self._closed:
            self.resume()

    def widen(self) -> None:
        if not self._closed:
            self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, WIDE_BYTES)
            self._sendfile_from = self._gathered_most = WIDE_BYTES

    def pause(self) -> None:
        if self._reading:
            self._reading = False
            self._loop.remove_reader(self._sock)

    def resume(self) -> None:
        if not self._reading and not self._closed:
            self._reading = True
            self._loop.add_reader(self._sock, self._readable)

    def send(self, parts: Sequence[Part]) -> None:
        if self._closed:
            return
        if self._unsent:
            self._queue(parts)
            return
        try:
            if len(parts) == 1 and type(only := parts[0]) is bytes:  # As most answers are: nothing to gather.
                try:
                    sent = self._sock.send(only)
                except (BlockingIOError, InterruptedError):
                    sent = 0
                if sent == len(only):
                    return
                rest: Sequence[Part] = (memoryview(only)[sent:],)
            else:
                rest = self._send_now(parts)
        except OSError as why:
            # The caller is in the middle of its own work: it hears of the loss in a turn of its own.
            self._loop.call_soon(self._lose, why)
            return
        if rest:
            self._queue(rest)
            self._loop.add_writer(self._sock, self._writable)

    def close(self) -> None:
        self._lose(None)

    def finish(self) -> None:
        if self._unsent:
            self._finishing = True
            self.pause()
        else:
            self._lose(None)

    def _queue(self, parts: Sequence[Part]) -> None:
        self._unsent.extend(parts)
        self.unsent_bytes += sum(map(len, parts))

    def _readable(self) -> None:
        owner = self._owner
        try:
            count = self._sock.recv_into(owner.buffer())
        except (BlockingIOError, InterruptedError):
            return
        except OSError as why:
            self._lose(why)
            return
        if count:
            owner.received(count)
        else:
            self._lose(None)

    def _writable(self) -> None:
        parts = list(self._unsent)
        self._unsent.clear()
        self.unsent_bytes = 0
        try:
            rest = self._send_now(parts)
        except OSError as why:
            self._lose(why)
            return
        if rest:
            self._queue(rest)
            return
        self._loop.remove_writer(self._sock)
        if self._finishing:
            self._lose(None)
        else:
            self._owner.drained()

    def _send_now(self, parts: Sequence[Part]) -> Sequence[Part]:
        """Send what the socket takes; returns what it did not."""
        index = 0
        total = len(parts)
        while index < total:
            gathered: list[_Bytes] = []
            size = 0
            large: FileSlice | None = None
            is_lent = False
            most = min(total, index + MAX_GATHERED_PARTS)
            while index < most:
                part = parts[index]
                if isinstance(part, FileSlice):
                    length = part.length
                    if length >= self._sendfile_from:
                        large = part
                        index += 1
                        break
                    if size >= self._gathered_most:
                        break
                    loan = part.loan
                    if loan is not None and loan.view is not None:
                        part = loan.view
                        is_lent = True
                    else:
                        part = part.file.read(part.position, length)
                        if len(part) < length:
                            raise _cut_under_us()
                    size += length
                else:
                    size += len(part)
                gathered.append(part)
                index += 1
            if gathered:
                try:
                    sent = self._sock.sendmsg(gathered, (), 0 if index == total and large is None else _MORE)
                except (BlockingIOError, InterruptedError):
                    sent = 0
                if sent < size:
                    left = _after(gathered, sent)
                    if is_lent:  # What is not sent now has to be kept.
                        left = [bytes(part) for part in left]
                    return [*left, *(() if large is None else (large,)), *parts[index:]]
            if large is not None:
                sent = self._send_file(large)
                if sent < large.length:
                    return [FileSlice(large.file, large.position + sent, large.length - sent), *parts[index:]]
        return ()

    def _send_file(self, part: FileSlice) -> int:
        """How much the socket took: less than all of it means that it is full, so there is no use in asking again."""
        descriptor = cast(DescriptorFile, part.file).descriptor()
        try:
            sent = os.sendfile(self._sock.fileno(), descriptor, part.position, part.length)
        except (BlockingIOError, InterruptedError):
            return 0
        if sent == 0:
            raise _cut_under_us()
        return sent

    def _lose(self, why: Exception | None) -> None:
        if self._closed:
            return
        self.pause()
        self._closed = True
        self._loop.remove_writer(self._sock)
        self._sock.close()
        self._unsent.clear()
        self.unsent_bytes = 0
        # A broken pipe is what a send says once the peer has closed its end, where that was not read yet.
        self._owner.lost(None if isinstance(why, BrokenPipeError) else why)


class SocketListening:
    """One listening socket; takes all who wait, a bounded number a turn."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, sock: socket.socket, accept: Callable[[Wire], WireOwner]
    ) -> None:
        self._loop = loop
        self._sock = sock
        self._accept = accept
        self.port: int = sock.getsockname()[1]
        loop.add_reader(sock, self._acceptable)

    def close(self) -> None:
        self._loop.remove_reader(self._sock)
        self._sock.close()

    def _acceptable(self) -> None:
        for _ in range(ACCEPTS_A_TURN):
            try:
                sock, address = self._sock.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as why:
                if why.errno not in (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM):
                    raise
                # Out of descriptors: stop accepting for a moment instead of spinning on a readable socket.
                self._loop.remove_reader(self._sock)
                self._loop.call_later(1.0, self._accept_again)
                return
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER_BYTES)
            wire = _wire(self._loop, sock, address[0])
            wire.start(self._accept(wire))

    def _accept_again(self) -> None:
        if self._sock.fileno() >= 0:
            self._loop.add_reader(self._sock, self._acceptable)


class SocketNetwork:
    """TCP, version 4 and 6."""

    async def listen(self, host: str, port: int, accept: Callable[[Wire], WireOwner]) -> Listening:
        loop = asyncio.get_running_loop()
        family, address = await _resolve(loop, host or "0.0.0.0", port, passive=True)
        sock = socket.socket(family, socket.SOCK_STREAM)
        try:
            sock.setblocking(False)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            sock.bind(address)
            sock.listen(LISTEN_BACKLOG)
        except BaseException:
            sock.close()
            raise
        return SocketListening(loop, sock, accept)

    async def connect(self, host: str, port: int, own: Callable[[Wire], WireOwner]) -> Wire:
        loop = asyncio.get_running_loop()
        family, address = await _resolve(loop, host, port, passive=False)
        sock = socket.socket(family, socket.SOCK_STREAM)
        try:
            sock.setblocking(False)
            await loop.sock_connect(sock, address)
        except BaseException:
            sock.close()
            raise
        wire = _wire(loop, sock, host)
        wire.start(own(wire))
        return wire


def _wire(loop: asyncio.AbstractEventLoop, sock: socket.socket, peer_host: str) -> SocketWire:
    sock.setblocking(False)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    return SocketWire(loop, sock, peer_host)


async def _resolve(
    loop: asyncio.AbstractEventLoop, host: str, port: int, *, passive: bool
) -> tuple[socket.AddressFamily, tuple[str, int]]:
    # Loopback and literal addresses need no resolver, whose thread would cost the start several milliseconds.
    for family in (socket.AF_INET, socket.AF_INET6):
        try:
            socket.inet_pton(family, host)
        except OSError:
            continue
        return family, (host, port)
    if host == "localhost":
        return socket.AF_INET, ("127.0.0.1", port)
    flags = socket.AI_PASSIVE if passive else 0
    found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=flags)
    family, _, _, _, address = found[0]
    return family, (str(address[0]), port)


def _cut_under_us() -> OSError:
    """The header has promised bytes that are not there: a file that was cut can only cost this connection."""
    return OSError(errno.EIO, "a log file is shorter than the answer that points into it")


def _after(parts: Sequence[_Bytes], sent: int) -> list[_Bytes]:
    """What is left of the parts once `sent` bytes are gone."""
    rest: list[_Bytes] = []
    for part in parts:
        if sent >= len(part):
            sent -= len(part)
        elif sent:
            rest.append(memoryview(part)[sent:])
            sent = 0
        else:
            rest.append(part)
    return rest
