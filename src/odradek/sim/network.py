"""A made-up network: every piece, delay and loss of every connection is drawn from the seed.

Bytes arrive in order or not at all, as TCP has it, but in pieces of any size and at any time; a `FileSlice` is read
when it is delivered, so that a file cut or deleted under a reader shows; and all that `buffer()` offers is overwritten,
not only what arrives, so that a view which outlives its request is seen to be wrong.

A filter on the way may turn a machine away from a port of another, and say that nobody listens there. Between two
machines the way may be cut, in one direction or in both, or be slow. As TCP has it, nothing of that is
heard: bytes wait until the way is open again, and whoever connects tries again and again. A machine without power is as
silent; only once it is back does it say that it knows nothing of its old connections.
"""

from __future__ import annotations

import asyncio
import errno
import random
from collections import deque
from collections.abc import Callable, Sequence

from odradek.ports import FileSlice, Part, Wire, WireOwner
from odradek.sim.loop import Life, SimulatedLoop
from odradek.sim.trace import Trace

WINDOWS = (1_024, 16_384, 262_144)
"""How much a connection takes before its sender has to wait: as small and as large as socket buffers get."""

QUICK_US = 800
SLOW_US = 40_000
_POISON = memoryview(b"\xdd" * 65_536)
RETRANSMISSION_US = 1_500_000
"""How long after a way is open again a sender may take to notice it."""
SYN_RETRY_S = 1.0
_FIRST_FREE_PORT = 30_000


class SimulatedWire:
    """One end of a connection."""

    def __init__(self, internet: Internet, life: Life, machine: str, peer_host: str, window: int) -> None:
        self.peer: SimulatedWire
        self.life = life
        self.machine = machine
        self.peer_host = peer_host
        self.unsent_bytes = 0
        self.name = f"{machine}>{peer_host}"
        self._internet = internet
        self._owner: WireOwner | None = None
        self._window = window
        self._unsent: deque[Part] = deque()
        self._flight: deque[bytes | FileSlice] = deque()
        self._flight_bytes = 0
        self._delivering = False
        self._largest = 2_048
        """How much of the peer's buffer was ever used: so much of it, and as much again, is overwritten."""
        self._blocked = False
        self._reading = True
        self._finishing = False
        self._ended = False
        self._forsook = False
        """Whether this end was told that the connection is gone while the other was not."""
        self._severed = False
        self.stalled_until_us = 0
        self.asks = False
        """Whether this is a node's end of a connection that it made to another."""
        self.silent = False
        """Whether this end went without a word, with its machine's power."""
        self.closed = False

    def start(self, owner: WireOwner) -> None:
        self._owner = owner
        if self.closed:
            owner.lost(None)
        self.peer._deliver_later()

    # What the owner calls.

    def send(self, parts: Sequence[Part]) -> None:
        if not self.life.alive:
            self.life.check()
        if self.closed:
            return
        internet, peer = self._internet, self.peer
        internet.calls += self.asks
        if peer.silent and peer.machine not in internet.dark:
            internet.later(self.life, self._hear_reset)  # It answers that it knows of no such connection.
        first = parts[0]
        count = len(first) if len(parts) == 1 else sum(map(len, parts))
        if self._flight_bytes + count <= self._window and not self._severed and not self._unsent:
            if len(parts) == 1 and type(first) is bytes:
                plain = first
            elif FileSlice not in map(type, parts):
                plain = b"".join(parts)  # type: ignore[arg-type]
            else:
                plain = b""
            if plain:
                self._flight.append(plain)
                self._flight_bytes += count
                if not self._delivering and not peer.closed:
                    self._delivering = True
                    internet.carry(self)
                return
        for part in parts:
            if isinstance(part, FileSlice) and part.loan is not None and part.loan.view is not None:
                assert part.loan.view == part.read(), "what is lent is what the file has"
                internet.trace.mark("batch lent to a follower")
        self._unsent.extend(parts)
        self.unsent_bytes += count
        if not self._blocked:
            self._leave()
            self._blocked = bool(self._unsent)

    def widen(self) -> None:
        """It is as wide as it was drawn."""

    def pause(self) -> None:
        self._reading = False

    def resume(self) -> None:
        self._reading = True
        self.peer._deliver_later()

    def close(self) -> None:
        self.life.check()
        self._close(reset=self._internet.draw.random() < 0.25)

    def finish(self) -> None:
        self.life.check()
        if self._unsent:
            self._finishing = True
            self.pause()
        else:
            self._close(reset=False)

    # What the network does.

    def reset(self) -> None:
        """Both ends hear that the connection is gone, each at its own time; what was under way is lost."""
        for end in (self, self.peer):
            end._severed = True
            end._flight.clear()
            end._flight_bytes = 0
            self._internet.later(end.life, end._hear_reset)

    def stall(self, duration_us: int) -> None:
        """Packets of this direction are lost for a while; TCP sends them again."""
        self.stalled_until_us = self._internet.loop.now_us + duration_us

    def forsake(self, duration_us: int) -> None:
        """This end hears that the connection is gone; what it has sent is on its way still, and takes that long."""
        self.stall(duration_us)
        self._internet.later(self.life, self._forsaken)

    def _forsaken(self) -> None:
        self._ended = self._forsook = True
        self._hear_reset()
        self._deliver_later()

    def vanish(self) -> None:
        """This end's machine lost its power; nobody hears of it."""
        self.closed = self.silent = True
        self._flight.clear()
        self._flight_bytes = 0

    def awake(self) -> None:
        """The machine of a silent end is back: what its peer keeps sending gets the answer that nobody knows it."""
        if self.peer._flight or self.peer._unsent:
            self._internet.later(self.peer.life, self.peer._hear_reset)

    def crash(self, *, last_words: bool) -> None:
        """This end's machine is gone; `last_words` that had left it as plain bytes may still arrive."""
        self.closed = True
        kept: deque[bytes | FileSlice] = deque()
        for part in self._flight:
            if isinstance(part, FileSlice):
                break
            kept.append(part)
        if not last_words or self._internet.draw.random() < 0.5:
            kept.clear()
        self._flight = kept
        self._flight_bytes = sum(map(len, kept))
        self._ended = True
        self._deliver_later()

    def _close(self, *, reset: bool) -> None:
        if self.closed:
            return
        self.closed = True
        self._unsent.clear()
        self.unsent_bytes = 0
        if reset:
            self._flight.clear()
            self._flight_bytes = 0
        self._ended = True
        self._deliver_later()
        if self._owner is not None:  # Else it closes the wire before it is asked to own it, and hears of it then.
            self._owner.lost(None)

    def _hear_reset(self) -> None:
        self._hear_loss(ConnectionResetError(errno.ECONNRESET, "Connection reset by peer"))

    def _hear_loss(self, why: Exception | None = None) -> None:
        if self.closed:
            return
        self.closed = True
        self._unsent.clear()
        self.unsent_bytes = 0
        self._internet.trace.note(self.name, "lost" if why is None else f"lost: {why}")
        if self._owner is not None:
            self._owner.lost(why)

    def _leave(self) -> None:
        """Move what fits into the window; from then on the sender's memory may change."""
        if self._severed:
            return  # Nothing may arrive behind what was lost: that would be no stream any more.
        while self._unsent and self._flight_bytes < self._window:
            part = self._unsent.popleft()
            room = self._window - self._flight_bytes
            if len(part) > room:
                if isinstance(part, FileSlice):
                    self._unsent.appendleft(FileSlice(part.file, part.position + room, part.length - room))
                    part = FileSlice(part.file, part.position, room)
                else:
                    self._unsent.appendleft(memoryview(part)[room:])
                    part = memoryview(part)[:room]
            self.unsent_bytes -= len(part)
            self._flight_bytes += len(part)
            self._flight.append(part if isinstance(part, FileSlice) else bytes(part))
        self._deliver_later()

    def _left(self) -> None:
        if self.closed:
            return
        self._leave()
        if self._blocked and not self._unsent:
            self._blocked = False
            if self._finishing:
                self._close(reset=False)
            elif self._owner is not None:
                self._owner.drained()

    def _deliver_later(self) -> None:
        if not self._delivering and (self._flight or self._ended) and not self.peer.closed:
            self._delivering = True
            self._internet.carry(self)

    def deliver(self) -> None:
        """Hand the next piece to the peer; runs in the peer's life."""
        self._delivering = False
        peer = self.peer
        if self._internet.cuts and self._internet.is_cut(self.machine, peer.machine):
            return  # Opening the way sends it again.
        owner = peer._owner
        if peer.closed or owner is None or not peer._reading:
            return
        if not self._flight:
            if self._ended:
                (peer._hear_reset if self._forsook else peer._hear_loss)()
            return
        view = owner.buffer()
        size = len(view)
        assert size, "a wire's owner offered no room"
        most = self._flight_bytes
        if most > size:
            most = size
        internet = self._internet
        draw = internet.random
        count = most if draw() < internet.whole else 1 + int(draw() * most)
        data: bytes | FileSlice | None = self._flight[0]
        if type(data) is bytes and len(data) == count:
            self._flight_bytes -= count
            self._flight.popleft()
        else:
            data = self._take(count)
            if data is None:
                return
        if count > self._largest:
            self._largest = count
        room = 2 * self._largest
        if room > size or room > len(_POISON):
            room = max(count, min(size, len(_POISON)))
        view[:room] = data + _POISON[count:room]
        loop = internet.loop
        internet.keep((loop.now_us, self.name, count))
        owner.received(count)
        if (self._unsent or self._blocked) and not self.closed:
            loop.call_soon(self._left, context=self.life.context)
        if self._flight or self._ended:
            self._deliver_later()

    def _take(self, count: int) -> bytes | None:
        """The next bytes of what is under way; None if a file no longer holds them, which costs the connection."""
        pieces = []
        while count:
            part = self._flight.popleft()
            if len(part) > count:
                if isinstance(part, FileSlice):
                    self._flight.appendleft(FileSlice(part.file, part.position + count, part.length - count))
                    part = FileSlice(part.file, part.position, count)
                else:
                    self._flight.appendleft(part[count:])
                    part = part[:count]
            data = _still_there(part) if isinstance(part, FileSlice) else part
            if len(data) < len(part):
                why = OSError(errno.EIO, "a log file is shorter than the answer that points into it")
                self._internet.loop.call_soon(self._hear_loss, why, context=self.life.context)
                self.reset()
                return None
            count -= len(part)
            self._flight_bytes -= len(part)
            pieces.append(data)
        return b"".join(pieces)


class SimulatedListening:
    """An open port of one life."""

    def __init__(self, network: SimulatedNetwork, port: int, accept: Callable[[Wire], WireOwner]) -> None:
        self.network = network
        self.port = port
        self.accept = accept

    def close(self) -> None:
        self.network.internet.listeners.pop((self.network.machine, self.port), None)


class Internet:
    """All machines and the connections between them."""

    def __init__(self, loop: SimulatedLoop, draw: random.Random, trace: Trace) -> None:
        self.loop = loop
        self.draw = draw
        self.random = draw.random
        self.trace = trace
        self.keep = trace.keep
        self.listeners: dict[tuple[str, int], SimulatedListening] = {}
        self.wires: list[SimulatedWire] = []
        self.whole = 0.6
        """How often what is under way arrives all at once, if there is room for it."""
        self.stalled_until_us = 0
        self.cuts: dict[tuple[str, str], int] = {}
        """How many cuts there are between one machine and another, by direction."""
        self.refusals: dict[tuple[str, str, int], int] = {}
        """How many there are on the way of one machine to a port of another that turn it away in the other's name."""
        self.slow_us: dict[str, int] = {}
        """How much longer everything takes to and from a machine, at most."""
        self.dark: dict[str, None] = {}
        """Machines without power."""
        self.machines: dict[str, None] = {}
        """Those on which nodes run; what they ask each other is counted."""
        self.calls = 0
        self._next_port = _FIRST_FREE_PORT

    def attach(self, machine: str, life: Life) -> SimulatedNetwork:
        """The network as one node sees it for as long as it lives."""
        return SimulatedNetwork(self, machine, life)

    def crash(self, life: Life, *, last_words: bool = True) -> None:
        """Everything of that life is gone from the network."""
        for key in [key for key, listening in self.listeners.items() if listening.network.life is life]:
            del self.listeners[key]
        for wire in self.open_wires():
            if wire.life is life:
                wire.crash(last_words=last_words)

    def lose_power(self, machine: str, life: Life) -> None:
        """A life and its machine are gone without a word; nobody who calls there gets an answer."""
        self.dark[machine] = None
        for key in [key for key, listening in self.listeners.items() if listening.network.life is life]:
            del self.listeners[key]
        for wire in self.open_wires():
            if wire.life is life:
                wire.vanish()

    def regain_power(self, machine: str) -> None:
        self.dark.pop(machine, None)
        for wire in self.wires:
            if wire.silent and wire.machine == machine and not wire.peer.closed:
                wire.awake()

    def open_wires(self) -> list[SimulatedWire]:
        self.wires = [wire for wire in self.wires if not (wire.closed and wire.peer.closed)]
        return list(self.wires)

    def stall(self, duration_us: int) -> None:
        """Nothing arrives for a while."""
        self.stalled_until_us = self.loop.now_us + duration_us

    def cut(self, source: str, target: str) -> None:
        """From now on nothing gets from one machine to the other; the way back is not touched."""
        self.cuts[source, target] = self.cuts.get((source, target), 0) + 1

    def heal(self, source: str, target: str) -> None:
        """One cut less; when it was the last, what waited is sent again after a while."""
        left = self.cuts.pop((source, target)) - 1
        if left:
            self.cuts[source, target] = left
            return
        for wire in self.open_wires():
            if wire.machine == source and wire.peer.machine == target:
                wire.stall(self.draw.randrange(RETRANSMISSION_US))
                wire._deliver_later()

    def refuse(self, source: str, target: str, port: int) -> None:
        """From now on one machine is told that nobody listens at a port of another, whoever does."""
        self.refusals[source, target, port] = self.refusals.get((source, target, port), 0) + 1

    def admit(self, source: str, target: str, port: int) -> None:
        """One refusal less."""
        left = self.refusals.pop((source, target, port)) - 1
        if left:
            self.refusals[source, target, port] = left

    def is_cut(self, source: str, target: str) -> bool:
        return (source, target) in self.cuts

    def answers(self, source: str, target: str) -> bool:
        """Whether one machine hears from another that it calls, were it only that nobody listens there."""
        return target not in self.dark and not (self.is_cut(source, target) or self.is_cut(target, source))

    def later(self, life: Life, callback: Callable[[], None]) -> None:
        """Call back in that life after a drawn delay."""
        delay = 10 + int(self.random() * (SLOW_US if self.random() < 0.05 else QUICK_US))
        self.loop.post(max(self.loop.now_us, self.stalled_until_us) + delay, life, callback)

    def carry(self, wire: SimulatedWire) -> None:
        """Deliver the next bytes of a wire in the life at the other end, once they got there."""
        draw = self.random
        delay = 10 + int(draw() * (SLOW_US if draw() < 0.05 else QUICK_US))
        for machine in (wire.machine, wire.peer.machine) if self.slow_us else ():
            if machine in self.slow_us:
                delay += int(draw() * self.slow_us[machine])
        loop = self.loop
        when = loop.now_us
        if when < self.stalled_until_us or when < wire.stalled_until_us:
            when = max(self.stalled_until_us, wire.stalled_until_us)
        loop.post(when + delay, wire.peer.life, wire.deliver)

    def free_port(self) -> int:
        self._next_port += 1
        return self._next_port


class SimulatedNetwork:
    """Connections made and taken by one machine."""

    def __init__(self, internet: Internet, machine: str, life: Life) -> None:
        self.internet = internet
        self.machine = machine
        self.life = life

    async def listen(self, host: str, port: int, accept: Callable[[Wire], WireOwner]) -> SimulatedListening:
        self.life.check()
        port = port or self.internet.free_port()
        if (self.machine, port) in self.internet.listeners:
            raise OSError(errno.EADDRINUSE, "Address already in use")
        listening = SimulatedListening(self, port, accept)
        self.internet.listeners[self.machine, port] = listening
        return listening

    async def connect(self, host: str, port: int, own: Callable[[Wire], WireOwner]) -> SimulatedWire:
        self.life.check()
        internet = self.internet
        await asyncio.sleep(internet.draw.randrange(10, QUICK_US) / 1_000_000)
        retry_s = SYN_RETRY_S
        while not internet.answers(self.machine, host):
            await asyncio.sleep(retry_s)
            retry_s *= 2
        listening = internet.listeners.get((host, port))
        if listening is None or (internet.refusals and (self.machine, host, port) in internet.refusals):
            raise ConnectionRefusedError(errno.ECONNREFUSED, "Connection refused")
        there = listening.network
        window = internet.draw.choice(WINDOWS)
        near = SimulatedWire(internet, self.life, self.machine, host, window)
        far = SimulatedWire(internet, there.life, there.machine, self.machine, window)
        near.peer, far.peer = far, near
        near.asks = self.machine in internet.machines and host != self.machine
        internet.wires += (near, far)
        internet.trace.note(near.name, f"connected to port {port}")
        internet.loop.call_soon(lambda: far.start(listening.accept(far)), context=there.life.context)
        near.start(own(near))
        return near


def _still_there(part: FileSlice) -> bytes:
    """What a file holds of a slice by now: less, if it was cut, and nothing, if its log was closed meanwhile."""
    try:
        return part.read()
    except OSError:
        return b""
