"""A real node for the time of a test, in this process or in one of its own."""

from __future__ import annotations

import abc
import asyncio
import contextlib
import re
import tempfile
import threading
from collections.abc import Iterator, Mapping

from odradek.testing.process import START_PATIENCE_S, STOP_PATIENCE_S, NodeFailed, NodeProcess

HOST = "127.0.0.1"
_PORT = re.compile(rf"PLAINTEXT://{re.escape(HOST)}:(\d+)")


@contextlib.contextmanager
def running_node(
    *,
    in_process: bool = True,
    properties: Mapping[str, str] | None = None,
    data_directory: str | None = None,
) -> Iterator[RunningNode]:
    """A node on a free port of the loopback interface, ready when the block begins and gone when it ends.

    In this process it runs on a thread and an event loop of its own, so blocking and asynchronous clients work alike,
    and it starts in milliseconds; in a process of its own it can also be killed. `properties` are keys of
    `server.properties`. Data goes to a temporary directory that is removed at the end, unless one is given.
    """
    with contextlib.ExitStack() as cleaning:
        if data_directory is None:
            data_directory = cleaning.enter_context(tempfile.TemporaryDirectory(prefix="odradek-"))
        make = InProcessNode if in_process else SubprocessNode
        node = make(data_directory, properties or {})
        node.start()
        cleaning.callback(node.close)
        yield node


class RunningNode(abc.ABC):
    """What a test may ask of its node."""

    def __init__(self, data_directory: str, properties: Mapping[str, str]) -> None:
        self.data_directory = data_directory
        self.host = HOST
        self.port = 0
        self._properties = dict(properties)

    @property
    def bootstrap_servers(self) -> str:
        """What clients are configured with."""
        return f"{self.host}:{self.port}"

    @property
    @abc.abstractmethod
    def running(self) -> bool: ...

    @abc.abstractmethod
    def start(self) -> None:
        """Start it (again) on its data; it keeps its port. Raises NodeFailed if it does not get ready."""

    @abc.abstractmethod
    def stop(self) -> None:
        """Stop it the orderly way; nothing if it is stopped."""

    @abc.abstractmethod
    def kill(self) -> None:
        """End it at once, as a crash would."""

    def restart(self) -> None:
        self.stop()
        self.start()

    def close(self) -> None:
        """Leave nothing behind."""
        self.stop()

    def _settings(self) -> dict[str, str]:
        """The lone node's usual settings, those of the test, and the port it had before if it had one."""
        settings = {
            "node.id": "1",
            "process.roles": "broker,controller",
            "controller.listener.names": "CONTROLLER",
            "log.dirs": self.data_directory,
        }
        settings |= self._properties
        settings["listeners"] = f"PLAINTEXT://{HOST}:{self.port},CONTROLLER://{HOST}:0"
        return settings


class InProcessNode(RunningNode):
    """A node on a thread of this process. It does not wait for the device: its data need not outlive the machine."""

    def __init__(self, data_directory: str, properties: Mapping[str, str]) -> None:
        super().__init__(data_directory, properties)
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopping: asyncio.Event | None = None
        self._ready = threading.Event()
        self._failure: BaseException | None = None

    @property
    def running(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    def start(self) -> None:
        assert not self.running, "the node is running"
        self._ready.clear()
        self._failure = None
        self._thread = threading.Thread(target=self._run, name="odradek-node", daemon=True)
        self._thread.start()
        if not self._ready.wait(START_PATIENCE_S):
            raise NodeFailed(f"the node was not ready after {START_PATIENCE_S:.0f} s")
        self._raise_failure("the node did not start")

    def stop(self) -> None:
        thread, loop, stopping = self._thread, self._loop, self._stopping
        if thread is None:
            return
        if loop is not None and stopping is not None:
            with contextlib.suppress(RuntimeError):  # The loop may be closed already: the node gave up.
                loop.call_soon_threadsafe(stopping.set)
        thread.join(STOP_PATIENCE_S)
        if thread.is_alive():
            raise NodeFailed(f"the node had not stopped after {STOP_PATIENCE_S:.0f} s")
        self._thread = None
        self._raise_failure("the node gave up")

    def kill(self) -> None:
        raise NodeFailed("a node inside this process cannot be killed alone: ask for in_process=False")

    def _raise_failure(self, what: str) -> None:
        failure, self._failure = self._failure, None
        if failure is not None:
            raise NodeFailed(f"{what}: {failure}") from failure

    def _run(self) -> None:
        try:
            asyncio.run(self._serve())
        except BaseException as failure:  # noqa: BLE001 - raised again in the thread that asked for the node
            self._failure = failure
        self._ready.set()

    async def _serve(self) -> None:
        from odradek.adapters.workers import ThreadWorkers
        from odradek.adapters.world import real_world
        from odradek.server.config import load
        from odradek.server.node import Node

        self._loop = asyncio.get_running_loop()
        self._stopping = stopping = asyncio.Event()
        world = real_world(durable=False)
        node = Node(load(self._settings(), host_name=HOST), world)
        node.on_failure = lambda failure: stopping.set()
        try:
            await node.start()
            self.port = node.ports["PLAINTEXT"]
            self._ready.set()
            await stopping.wait()
            await node.stop()
        finally:
            assert isinstance(world.workers, ThreadWorkers)
            world.workers.close()
        if node.failed is not None:
            raise node.failed


class SubprocessNode(RunningNode):
    """A node as users run it: `odradek start`."""

    def __init__(self, data_directory: str, properties: Mapping[str, str]) -> None:
        super().__init__(data_directory, properties)
        self._process = NodeProcess()

    @property
    def running(self) -> bool:
        return self._process.running

    @property
    def pid(self) -> int:
        return self._process.pid

    def output(self) -> str:
        """All it has printed, over all its starts."""
        return self._process.output()

    def start(self) -> None:
        self._process.begin([f"--override={key}={setting}" for key, setting in self._settings().items()])
        found = _PORT.search(self._process.wait_until_ready())
        assert found is not None, "the ready line names no port"
        self.port = int(found[1])

    def stop(self) -> None:
        self._process.stop()

    def kill(self) -> None:
        self._process.kill()

    def close(self) -> None:
        self._process.close()
