"""The seam between a node and its world.

A node is handed a `World` and touches nothing else: `odradek.adapters` offers the real one, `odradek.sim` a made-up
one in which time, disk and network are drawn from a seed. What crosses the seam is stated here once, so that framing,
back-pressure, recovery and timeouts are the same code in both.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Generator, Sequence
from typing import Protocol, TypeAlias, TypeVar

from odradek.values import value

ResultT = TypeVar("ResultT")
ResultT_co = TypeVar("ResultT_co", covariant=True)


class Clock(Protocol):
    """What time it is. Timers are the event loop's, which runs on the same clock."""

    def now_ms(self) -> int:
        """Wall clock: may jump; for timestamps that leave the node."""

    def monotonic_ms(self) -> int:
        """Never goes back; for deadlines and ages."""


class Entropy(Protocol):
    """Where randomness comes from."""

    def random_bytes(self, count: int) -> bytes:
        """That many unpredictable bytes."""

    def below(self, bound: int) -> int:
        """A number from 0 to `bound` - 1."""


class File(Protocol):
    """One open file. A handle, not a descriptor: the adapter may close and reopen the descriptor behind it."""

    def write(self, data: bytes | bytearray | memoryview, position: int) -> None:
        """All of it, or OSError; after an error anything between nothing and all of it may be there."""

    def read(self, position: int, length: int) -> bytes:
        """Up to `length` bytes; fewer only at the end of the file."""

    def size(self) -> int:
        """Bytes in the file now."""

    def truncate(self, size: int) -> None:
        """Cut to (or extend with zeros to) that size; room that was reserved behind it is given back."""

    def reserve(self, position: int, length: int) -> bool:
        """Set room aside for a stretch that will be written, where that can be done; the size stays as it is."""

    def sync(self) -> None:
        """Block until what was written survives a power loss: only through `Workers`, or at start and stop."""

    def resident(self, position: int, length: int) -> bool:
        """Whether the range can be read without waiting for the device."""

    def close(self) -> None:
        """Let go of the descriptor; the handle is not used again."""


class Loan:
    """Bytes of a file that lie in memory as well, until whoever lends them takes them back."""

    __slots__ = ("view",)

    def __init__(self, view: memoryview) -> None:
        self.view: memoryview | None = view


@value
class FileSlice:
    """A stretch of a file to be sent without passing through Python."""

    file: File
    position: int
    length: int
    loan: Loan | None = None
    """The same bytes, for a wire that can send them at once."""

    def __len__(self) -> int:
        return self.length

    def read(self) -> bytes:
        return self.file.read(self.position, self.length)


Part: TypeAlias = bytes | bytearray | memoryview | FileSlice
"""What a message is sent as: a sequence of these."""

DISK_FULL = (errno.ENOSPC, errno.EDQUOT)
"""What an OSError says where there is no room; every other one is taken for a disk that fails."""


class WorkerLost(Exception):
    """A process that did some work has ended before the work had."""


class AlreadyLocked(Exception):
    """Another process holds the lock file."""


@value
class DiskUsage:
    """Bytes of a file system."""

    total_bytes: int
    usable_bytes: int


class Disk(Protocol):
    """Files by path. Everything but `sync` and `sync_directory` returns at once, as the page cache lets it."""

    def open(self, path: str, *, create: bool = False) -> File:
        """A handle for reading and writing; FileNotFoundError unless it exists or `create`."""

    def read_file(self, path: str) -> bytes:
        """The whole file."""

    def write_file(self, path: str, data: bytes) -> None:
        """Create or replace the content; a crash may leave part of it (see `storage.checkpoints` for the safe way)."""

    def rename(self, old: str, new: str) -> None:
        """Atomic, replaces `new`; open handles of `old` follow."""

    def unlink(self, path: str) -> None:
        """FileNotFoundError if it is not there; open handles stay readable until closed."""

    def exists(self, path: str) -> bool: ...

    def file_size(self, path: str) -> int: ...

    def usage(self, path: str) -> DiskUsage:
        """How large the file system of a directory is, and how much of it this process can still write."""

    def list(self, path: str) -> list[str]:
        """Names in a directory, sorted; FileNotFoundError if there is no such directory."""

    def make_directory(self, path: str) -> None:
        """With parents; no error if it exists."""

    def remove_directory(self, path: str) -> None:
        """With all that is in it; no error if it is gone."""

    def sync_directory(self, path: str) -> None:
        """Block until renames, creations and unlinks in it survive a power loss; called as `File.sync` is."""

    def boot_id(self) -> str:
        """Another one whenever what was written and not synced may be gone; empty where nobody can tell.

        A process that is killed changes nothing: what it has written is the operating system's.
        """

    def lock(self, path: str) -> Callable[[], None]:
        """Take the lock file or raise AlreadyLocked; the returned call releases it, as does the process's end."""


class WireOwner(Protocol):
    """The side of a connection that understands its bytes."""

    def buffer(self) -> memoryview:
        """Where the next bytes shall go; never empty."""

    def received(self, count: int) -> None:
        """That many bytes were put at the start of what `buffer` returned last."""

    def drained(self) -> None:
        """Everything sent so far has left (called after a `send` that could not leave at once)."""

    def lost(self, why: Exception | None) -> None:
        """The connection is gone; called once, also after `Wire.close`.

        None: the peer's process or this one closed it in order, or the peer's has ended. Any other end has a reason: a
        ConnectionResetError where somebody on the way, or the peer's system, knows of no such connection.
        """


class Wire(Protocol):
    """One connection."""

    @property
    def peer_host(self) -> str: ...

    @property
    def unsent_bytes(self) -> int:
        """What was sent here and has not left yet."""

    def send(self, parts: Sequence[Part]) -> None:
        """Queue in order; what a view points to must stay untouched until it has left: pass bytes unless sure."""

    def widen(self) -> None:
        """Let large answers leave at once: whoever reads them waits for nothing else."""

    def pause(self) -> None:
        """Stop reading."""

    def resume(self) -> None:
        """Read again."""

    def close(self) -> None:
        """Close now; what has not left is dropped."""

    def finish(self) -> None:
        """Close once everything sent has left."""


class Listening(Protocol):
    """An open port."""

    @property
    def port(self) -> int:
        """The real port, also where 0 was asked for."""

    def close(self) -> None: ...


class Network(Protocol):
    """Connections made and taken."""

    async def listen(self, host: str, port: int, accept: Callable[[Wire], WireOwner]) -> Listening:
        """OSError if the port is taken."""

    async def connect(self, host: str, port: int, own: Callable[[Wire], WireOwner]) -> Wire:
        """OSError if nobody answers."""


class Steps(Protocol[ResultT_co]):
    """Work that goes on step by step, as its owner asks for it."""

    async def next(self) -> ResultT_co | None:
        """Another step's result or exception; None when there is nothing more to do."""

    async def close(self) -> None:
        """No more steps; comes back when what was under way is given up, and nothing of it is left open."""


class Workers(Protocol):
    """Where blocking work goes: fsync, cold reads, recovery."""

    async def run(self, job: Callable[[], ResultT]) -> ResultT:
        """The job's result or exception; the loop goes on meanwhile."""

    def apart(self, disk: Disk, job: Callable[[Disk], Generator[ResultT, None, None]]) -> Steps[ResultT]:
        """Begin work that is long and busy, where it takes nothing from the loop: in another process, if there is one.

        So job, results and exceptions are pickled, and the disk that the job is handed is the same one by its paths
        alone. Where that process is lost, `WorkerLost` is raised.
        """


@value
class World:
    """All a node may touch."""

    clock: Clock
    entropy: Entropy
    disk: Disk
    network: Network
    workers: Workers
