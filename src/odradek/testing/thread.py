"""A node on a thread of this process, with an event loop of its own."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Mapping

from odradek.testing.process import START_PATIENCE_S, STOP_PATIENCE_S, NodeFailed


class NodeThread:
    """One node's thread, over all its starts.

    It does not wait for the device: its data need not outlive the machine.
    """

    def __init__(self, host: str, name: str = "the node") -> None:
        self._host = host
        self._name = name
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopping: asyncio.Event | None = None
        self._ready = threading.Event()
        self._failure: BaseException | None = None
        self.ports: dict[str, int] = {}

    @property
    def running(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    def begin(self, settings: Mapping[str, str]) -> None:
        """Start it without waiting for it; `settings` are keys of `server.properties`."""
        assert not self.running, f"{self._name} is running"
        self._ready.clear()
        self._failure = None
        self._thread = threading.Thread(target=self._run, args=(dict(settings),), name="odradek-node", daemon=True)
        self._thread.start()

    def wait_until_ready(self) -> None:
        if not self._ready.wait(START_PATIENCE_S):
            raise NodeFailed(f"{self._name} was not ready after {START_PATIENCE_S:.0f} s")
        self._raise_failure(f"{self._name} did not start")

    def begin_stop(self) -> None:
        """Tell it to stop, the orderly way, without waiting for it."""
        if self._loop is not None and self._stopping is not None:
            with contextlib.suppress(RuntimeError):  # The loop may be closed already: the node gave up.
                self._loop.call_soon_threadsafe(self._stopping.set)

    def stop(self) -> None:
        """The orderly way; nothing if it is not running."""
        thread = self._thread
        if thread is None:
            return
        self.begin_stop()
        thread.join(STOP_PATIENCE_S)
        if thread.is_alive():
            raise NodeFailed(f"{self._name} had not stopped after {STOP_PATIENCE_S:.0f} s")
        self._thread = None
        self._raise_failure(f"{self._name} gave up")

    def _raise_failure(self, what: str) -> None:
        failure, self._failure = self._failure, None
        if failure is not None:
            raise NodeFailed(f"{what}: {failure}") from failure

    def _run(self, settings: dict[str, str]) -> None:
        try:
            asyncio.run(self._serve(settings))
        except BaseException as failure:  # noqa: BLE001 - raised again in the thread that asked for the node
            self._failure = failure
        self._ready.set()

    async def _serve(self, settings: dict[str, str]) -> None:
        from odradek.adapters.workers import RealWorkers
        from odradek.adapters.world import real_world
        from odradek.server.configs.node_config import load
        from odradek.server.node import Node

        self._loop = asyncio.get_running_loop()
        self._stopping = stopping = asyncio.Event()
        world = real_world(durable=False)
        node = Node(load(settings, host_name=self._host), world)
        node.on_failure = lambda failure: stopping.set()
        told_to_stop = asyncio.ensure_future(stopping.wait())
        try:
            starting = asyncio.ensure_future(node.start())
            await asyncio.wait((starting, told_to_stop), return_when=asyncio.FIRST_COMPLETED)
            if not starting.done():
                starting.cancel()  # It waits for others that are not there, and will not be waited for.
                await asyncio.wait([starting])
                return
            starting.result()
            self.ports = dict(node.rooms.listeners.ports)
            self._ready.set()
            await told_to_stop
            await node.stop()
        finally:
            told_to_stop.cancel()
            assert isinstance(world.workers, RealWorkers)
            world.workers.close()
        if node.failed is not None:
            raise node.failed
