"""A real node for the time of a test, in this process or in one of its own."""

from __future__ import annotations

import abc
import contextlib
import re
import tempfile
from collections.abc import Iterator, Mapping

from odradek.testing.ports import HOST
from odradek.testing.process import NodeFailed, NodeProcess
from odradek.testing.thread import NodeThread

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
    """A node on a thread of this process."""

    def __init__(self, data_directory: str, properties: Mapping[str, str]) -> None:
        super().__init__(data_directory, properties)
        self._thread = NodeThread(HOST)

    @property
    def running(self) -> bool:
        return self._thread.running

    def start(self) -> None:
        self._thread.begin(self._settings())
        self._thread.wait_until_ready()
        self.port = self._thread.ports["PLAINTEXT"]

    def stop(self) -> None:
        self._thread.stop()

    def kill(self) -> None:
        raise NodeFailed("a node inside this process cannot be killed alone: ask for in_process=False")


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
