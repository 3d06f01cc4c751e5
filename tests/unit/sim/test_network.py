"""The made-up network: bytes arrive whole and in order, in pieces; crashes and cuts are heard; stale views are seen."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from odradek.ports import FileSlice, Wire
from odradek.sim.disk import Device
from odradek.sim.loop import Life, SimulatedLoop
from odradek.sim.network import Internet
from odradek.sim.trace import Trace


class Owner:
    """Keeps what it hears; optionally sends everything back."""

    def __init__(self, wire: Wire, *, echo: bool = False, room: int = 1000) -> None:
        self.wire = wire
        self.echo = echo
        self.room = memoryview(bytearray(room))
        self.heard = bytearray()
        self.pieces = 0
        self.views: list[memoryview] = []
        self.drains = 0
        self.losses: list[Exception | None] = []

    def buffer(self) -> memoryview:
        return self.room

    def received(self, count: int) -> None:
        self.heard += self.room[:count]
        self.pieces += 1
        self.views.append(self.room[:count])
        if self.echo:
            self.wire.send([bytes(self.room[:count])])

    def drained(self) -> None:
        self.drains += 1

    def lost(self, why: Exception | None) -> None:
        self.losses.append(why)


class Town:
    """A server and a client machine."""

    def __init__(self, seed: int) -> None:
        self.loop = SimulatedLoop()
        self.trace = Trace(self.loop)
        self.internet = Internet(self.loop, random.Random(seed), self.trace)
        self.lives = {name: Life(name) for name in ("server", "client")}
        self.networks = {name: self.internet.attach(name, life) for name, life in self.lives.items()}
        self.device = Device(random.Random(seed), self.trace)
        self.disk = self.device.attach(self.lives["server"])
        self.servers: list[Owner] = []

    async def connected(self, **options: Any) -> tuple[Owner, Owner]:
        """The client's and the server's end."""

        def accept(wire: Wire) -> Owner:
            self.servers.append(Owner(wire, **options))
            return self.servers[-1]

        listening = await self.networks["server"].listen("", 0, accept)
        owners: list[Owner] = []

        def own(wire: Wire) -> Owner:
            owners.append(Owner(wire))
            return owners[0]

        await self.networks["client"].connect("server", listening.port, own)
        await asyncio.sleep(0)
        return owners[0], self.servers[0]


def play(seed: int, scene: Callable[[Town], Coroutine[Any, Any, None]]) -> Town:
    town = Town(seed)
    town.loop.run_until_complete(town.loop.create_task(scene(town), context=town.lives["client"].context))
    assert town.loop.failures == []
    return town


def test_bytes_come_back_whole_and_in_order_whatever_the_pieces() -> None:
    digests = set()
    for seed in range(20):
        data = random.Random(seed).randbytes(40_000)

        async def scene(town: Town, data: bytes = data) -> None:
            client, server = await town.connected(echo=True)
            for at in range(0, len(data), 7_000):
                client.wire.send([data[at : at + 3_000], memoryview(data)[at + 3_000 : at + 7_000]])
            await asyncio.sleep(60)
            assert client.heard == data
            assert server.pieces > 40
            assert client.wire.unsent_bytes == server.wire.unsent_bytes == 0

        town = play(seed, scene)
        assert play(seed, scene).trace.digest() == town.trace.digest()
        digests.add(town.trace.digest())
    assert len(digests) == 20


def test_all_of_an_offered_buffer_is_overwritten() -> None:
    async def scene(town: Town) -> None:
        client, server = await town.connected()
        client.wire.send([b"precious"])
        await asyncio.sleep(1)
        assert server.heard == b"precious"
        assert set(server.room[8:]) == {0xDD}
        client.wire.send([b"x"])
        await asyncio.sleep(1)
        assert bytes(server.room[:8]) == b"x" + b"\xdd" * 7

    play(1, scene)


def test_a_paused_reader_holds_the_sender_back_until_it_resumes() -> None:
    async def scene(town: Town) -> None:
        client, server = await town.connected()
        server.wire.pause()
        client.wire.send([bytes(1_000_000)])
        await asyncio.sleep(10)
        assert server.heard == b""
        assert client.wire.unsent_bytes >= 1_000_000 - 262_144
        assert client.drains == 0
        server.wire.resume()
        await asyncio.sleep(60)
        assert len(server.heard) == 1_000_000
        assert (client.wire.unsent_bytes, client.drains) == (0, 1)

    play(2, scene)


def test_a_file_is_read_when_it_is_delivered() -> None:
    async def scene(town: Town) -> None:
        client, server = await town.connected()
        file = town.disk.open("/f", create=True)
        file.write(b"abcdefgh", 0)
        server.wire.send([b"<", FileSlice(file, 2, 4), b">"])
        file.write(b"XY", 2)
        await asyncio.sleep(1)
        assert client.heard == b"<XYef>"
        server.wire.send([FileSlice(file, 0, 8)])
        file.truncate(3)
        await asyncio.sleep(1)
        assert [type(why) for why in client.losses] == [ConnectionResetError]
        assert [str(why) for why in server.losses] == [
            "[Errno 5] a log file is shorter than the answer that points into it"
        ]

    for seed in range(5):
        play(seed, scene)


def test_a_file_that_was_closed_before_it_is_delivered_costs_the_connection() -> None:
    async def scene(town: Town) -> None:
        client, server = await town.connected()
        file = town.disk.open("/f", create=True)
        file.write(b"abcdefgh", 0)
        server.wire.send([FileSlice(file, 0, 8)])
        file.close()
        await asyncio.sleep(1)
        assert client.heard == b""
        assert [type(why) for why in client.losses] == [ConnectionResetError]
        assert len(server.losses) == 1

    for seed in range(5):
        play(seed, scene)


def test_what_was_sent_before_finish_arrives() -> None:
    async def scene(town: Town) -> None:
        client, server = await town.connected()
        server.wire.send([bytes(300_000)])
        server.wire.finish()
        await asyncio.sleep(60)
        assert len(client.heard) == 300_000
        assert client.losses == server.losses == [None]
        client.wire.send([b"into the void"])
        client.wire.close()

    for seed in range(5):
        play(seed, scene)


def test_a_cut_is_heard_at_both_ends_and_once() -> None:
    async def scene(town: Town) -> None:
        client, server = await town.connected()
        client.wire.send([bytes(500)])
        town.internet.open_wires()[0].reset()
        await asyncio.sleep(1)
        client.wire.close()
        server.wire.close()
        assert [type(why) for why in client.losses + server.losses] == [ConnectionResetError] * 2
        assert town.internet.open_wires() == []

    for seed in range(10):
        play(seed, scene)


def test_a_crash_is_heard_by_the_peer_alone_and_last_words_may_arrive() -> None:
    heard = set()

    async def scene(town: Town) -> None:
        client, server = await town.connected()
        server.wire.send([b"acknowledged"])
        town.lives["server"].end()
        town.internet.crash(town.lives["server"])
        await asyncio.sleep(1)
        assert client.losses == [None]
        assert server.losses == []
        heard.add(bytes(client.heard))
        with pytest.raises(ConnectionRefusedError):
            await town.networks["client"].connect("server", 30_001, Owner)

    for seed in range(20):
        play(seed, scene)
    assert heard == {b"", b"acknowledged"}


def test_nothing_arrives_while_the_network_stalls() -> None:
    async def scene(town: Town) -> None:
        client, server = await town.connected()
        town.internet.stall(5_000_000)
        client.wire.send([b"late"])
        await asyncio.sleep(4.9)
        assert server.heard == b""
        await asyncio.sleep(1)
        assert server.heard == b"late"

    play(3, scene)


def test_a_port_is_taken_once() -> None:
    async def scene(town: Town) -> None:
        network = town.networks["server"]
        listening = await network.listen("", 9092, Owner)
        with pytest.raises(OSError, match="in use"):
            await network.listen("", 9092, Owner)
        listening.close()
        assert (await network.listen("", 9092, Owner)).port == 9092

    play(4, scene)


def test_a_cut_in_one_direction_holds_what_goes_that_way_and_nothing_else() -> None:
    async def test(town: Town) -> None:
        client, server = await town.connected()
        town.internet.cut("client", "server")
        client.wire.send([b"held up"])
        server.wire.send([b"gets through"])
        await asyncio.sleep(60)
        assert (bytes(server.heard), bytes(client.heard)) == (b"", b"gets through")
        town.internet.heal("client", "server")
        await asyncio.sleep(5)
        assert bytes(server.heard) == b"held up"
        assert client.losses == server.losses == []

    for seed in range(20):
        play(seed, test)


def test_a_way_that_is_cut_twice_opens_with_the_second_healing() -> None:
    async def test(town: Town) -> None:
        client, server = await town.connected()
        for _ in range(2):
            town.internet.cut("client", "server")
        client.wire.send([b"held up"])
        town.internet.heal("client", "server")
        await asyncio.sleep(10)
        assert not server.heard
        town.internet.heal("client", "server")
        await asyncio.sleep(10)
        assert bytes(server.heard) == b"held up"

    play(1, test)


def test_whoever_connects_over_a_cut_waits_until_it_is_healed() -> None:
    async def test(town: Town) -> None:
        await town.connected()
        port = next(port for machine, port in town.internet.listeners if machine == "server")
        town.internet.cut("server", "client")
        connecting = asyncio.create_task(town.networks["client"].connect("server", port, Owner))
        await asyncio.sleep(30)
        assert not connecting.done()
        town.internet.heal("server", "client")
        await asyncio.sleep(60)
        assert connecting.done()

    play(1, test)


def test_a_loss_of_power_is_not_heard_until_the_machine_is_back_and_asked() -> None:
    async def test(town: Town) -> None:
        client, _ = await town.connected()
        life = town.lives["server"]
        life.end()
        town.internet.lose_power("server", life)
        client.wire.send([b"is anybody there?"])
        connecting = asyncio.create_task(town.networks["client"].connect("server", 1, Owner))
        await asyncio.sleep(60)
        assert client.losses == []
        assert not connecting.done()
        town.internet.regain_power("server")
        await asyncio.sleep(60)
        assert [type(why) for why in client.losses] == [ConnectionResetError]
        with pytest.raises(ConnectionRefusedError):
            await connecting

    play(1, test)


def test_a_connection_nobody_uses_outlives_a_loss_of_power_until_it_is_used() -> None:
    async def test(town: Town) -> None:
        client, _ = await town.connected()
        life = town.lives["server"]
        life.end()
        town.internet.lose_power("server", life)
        town.internet.regain_power("server")
        await asyncio.sleep(60)
        assert client.losses == []
        client.wire.send([b"is anybody there?"])
        await asyncio.sleep(1)
        assert [type(why) for why in client.losses] == [ConnectionResetError]

    play(1, test)


def test_bytes_for_a_held_machine_arrive_when_it_goes_on() -> None:
    async def test(town: Town) -> None:
        client, server = await town.connected()
        life = town.lives["server"]
        life.held = []
        client.wire.send([b"wake up"])
        await asyncio.sleep(10)
        assert not server.heard
        town.loop.go_on(life)
        await asyncio.sleep(1)
        assert bytes(server.heard) == b"wake up"

    play(1, test)
