"""A made-up disk that knows what a power loss may take.

Every file and directory has two contents: what programs see, and what the device surely holds, with the changes between
the two in order. A process crash keeps what programs see. A power loss keeps the device's content and, of the changes
that were not synced, a beginning that the seed draws, the last of it torn. A file's sync makes no promise about its
name: that is the directory's, as POSIX has it.
"""

from __future__ import annotations

import errno
import functools
import posixpath
import random
from collections.abc import Callable, Iterator
from typing import Literal, TypeAlias

from odradek.ports import AlreadyLocked, DiskUsage
from odradek.sim.inodes import Change, Cut, Directory, Inode, Write
from odradek.sim.loop import Crashed, Life
from odradek.sim.trace import Trace

Keep: TypeAlias = Literal["process", "power"]
"""What a crash keeps: all that the process wrote, or only what a power loss leaves."""


class Device:
    """The disk itself: outlives the nodes that use it."""

    def __init__(self, draw: random.Random, trace: Trace, *, capacity: int = 1 << 40, name: str = "disk") -> None:
        self.name = name
        self.draw = draw
        self.trace = trace
        self.root = Directory()
        self.locks: dict[str, Life] = {}
        self.capacity = capacity
        self.used = 0
        self.boots = 1
        """How often the machine has been started; its process may have been more often."""
        self.lies_about: str | None = None
        """Files and directories whose paths begin so are said to be synced and are not."""
        self.is_recovering = False
        """Whether the node is reading its logs after a start: what it cuts then is what a crash left torn."""
        self.on_change: Callable[[str, int], int | None] | None = None
        """Asked before every change, with its path and length: a number says to crash after so many bytes of it."""

    def provide(self, path: str) -> None:
        """Make a directory that no crash takes, as an administrator does before the first start."""
        at = self.root
        for name in _names(path):
            directory = Directory()
            at.entries[name] = at.device[name] = directory
            at = directory

    def take_away(self, path: str) -> Directory:
        """A directory at the root that was unmounted, with everything in it on the device."""
        (name,) = _names(path)
        taken = self.root.entries.pop(name)
        assert isinstance(taken, Directory)
        self.root.device.pop(name, None)
        for _, entry in list(_walk(taken, path)):
            entry.sync()
        self.note(f"{path} is taken away")
        return taken

    def put_back(self, path: str, directory: Directory) -> None:
        """Mount it there again."""
        (name,) = _names(path)
        self.root.entries[name] = self.root.device[name] = directory
        self.note(f"{path} is back")

    def lose(self) -> None:
        """An empty disk takes its place."""
        self.root = Directory()
        self.used = 0
        self.note("is empty now")

    def settle(self) -> None:
        """Everything that is written so far survives whatever comes."""
        for _, entry in list(_walk(self.root, "")):
            entry.sync()

    def attach(self, life: Life) -> SimulatedDisk:
        """The disk as one node sees it for as long as it lives."""
        return SimulatedDisk(self, life)

    def crash(self, keep: Keep) -> bool:
        """What is left for the next life; says whether anything that was written is gone."""
        self.locks.clear()
        if keep == "process":
            return False
        self.boots += 1
        lost = [path for path, entry in _walk(self.root, "") if entry.lose_power(self.draw)]
        for path in lost:
            self.note(f"power loss took part of {path}")
        self.used = sum(len(entry.data) for _, entry in _walk(self.root, "") if isinstance(entry, Inode))
        if lost:
            self.trace.mark("power loss took data")
        return bool(lost)

    def strike(self, life: Life, path: str, length: int = 0) -> int | None:
        """Whether the seed lets the node die in this change; how many bytes of it get written first."""
        after = None if self.on_change is None else self.on_change(path, length)
        if after is not None:
            life.alive = False
            self.note(f"struck at {path} after {after} of {length} bytes")
        return after

    def lies(self, path: str) -> bool:
        return self.lies_about is not None and path.startswith(self.lies_about)

    def note(self, what: str) -> None:
        self.trace.note(self.name, what)

    def grow(self, count: int) -> None:
        """Account for more (or less) data; ENOSPC where there is no room."""
        if count > 0 and self.used + count > self.capacity:
            self.trace.mark("disk full")
            raise OSError(errno.ENOSPC, "No space left on device")
        self.used += count


class SimulatedFile:
    """A handle of one life."""

    __slots__ = ("_device", "_inode", "_life", "closed", "path")

    def __init__(self, device: Device, life: Life, path: str, inode: Inode) -> None:
        self._device = device
        self._life = life
        self._inode = inode
        self.closed = False
        self.path = path

    def write(self, data: bytes | bytearray | memoryview, position: int) -> None:
        inode = self._reach()
        whole = bytes(data)
        _change(self._device, self.path, inode, Write(position, whole), self._life)

    def read(self, position: int, length: int) -> bytes:
        inode = self._reach()
        inode.cached = True
        return bytes(inode.data[position : position + length])

    def size(self) -> int:
        return len(self._reach().data)

    def truncate(self, size: int) -> None:
        before = len(self._reach().data)
        if size < before:
            self._device.note(f"cut {self.path} from {before} to {size} bytes")
            if self.path.endswith(".log"):
                self._device.trace.mark("torn tail cut" if self._device.is_recovering else "log tail cut")
        _change(self._device, self.path, self._reach(), Cut(size), self._life)

    def reserve(self, position: int, length: int) -> bool:
        """No room is set aside here: what is reserved is not in the file, whether the power fails or not."""
        self._reach()
        return False

    def sync(self) -> None:
        inode = self._reach()
        self._device.note(f"sync {self.path} ({len(inode.data)} bytes)")
        if not self._device.lies(self.path):
            inode.sync()

    def resident(self, position: int, length: int) -> bool:
        inode = self._reach()
        if self._device.draw.random() < 0.02:
            inode.cached = False
        return inode.cached

    def close(self) -> None:
        self._life.check()
        self.closed = True

    def _reach(self) -> Inode:
        self._life.check()
        if self.closed:
            raise OSError(errno.EBADF, "the handle was closed", self.path)
        return self._inode


class SimulatedDisk:
    """Files by path, for one life."""

    def __init__(self, device: Device, life: Life) -> None:
        self._device = device
        self._life = life
        self._handles: list[SimulatedFile] = []

    def open(self, path: str, *, create: bool = False) -> SimulatedFile:
        parent, name = self._parent(path)
        entry = parent.entries.get(name)
        if entry is None:
            if not create:
                raise _missing(path)
            entry = Inode()
            self._change_names(parent, path, (name, entry))
            self._device.note(f"create {path}")
        if isinstance(entry, Directory):
            raise IsADirectoryError(errno.EISDIR, "is a directory", path)
        file = SimulatedFile(self._device, self._life, _clean(path), entry)
        self._handles.append(file)
        return file

    def read_file(self, path: str) -> bytes:
        return bytes(self._inode(path).data)

    def write_file(self, path: str, data: bytes) -> None:
        parent, name = self._parent(path)
        entry = parent.entries.get(name)
        if not isinstance(entry, Inode):
            entry = Inode()
            self._change_names(parent, path, (name, entry))
        path = _clean(path)
        self._device.note(f"write {path} ({len(data)} bytes)")
        _change(self._device, path, entry, Cut(0), self._life)
        _change(self._device, path, entry, Write(0, data), self._life)

    def rename(self, old: str, new: str) -> None:
        parent, name = self._parent(old)
        other, new_name = self._parent(new)
        if parent is not other:
            raise OSError(errno.EXDEV, "renames stay in one directory here", old)
        if name not in parent.entries:
            raise _missing(old)
        self._device.note(f"rename {old} -> {new_name}")
        if new_name.endswith(".log.deleted"):
            self._device.trace.mark("segment deleted")
        if new_name.endswith(".log.swap"):
            self._device.trace.mark("segments replaced")
        elif name.endswith(".log.swap") and self._device.is_recovering:
            self._device.trace.mark("swap finished at start")
        replaced = parent.entries.get(new_name)
        self._change_names(parent, old, (name, None), (new_name, parent.entries[name]))
        self._release(replaced)
        old, new = _clean(old), _clean(new)
        self._handles = [file for file in self._handles if not file.closed]
        for file in self._handles:
            if file.path == old or file.path.startswith(old + "/"):
                file.path = new + file.path[len(old) :]

    def unlink(self, path: str) -> None:
        self._inode(path)
        parent, name = self._parent(path)
        self._device.note(f"unlink {path}")
        if path.endswith(".log.cleaned"):
            self._device.trace.mark("cleaning undone at start" if self._device.is_recovering else "cleaning given up")
        gone = parent.entries[name]
        self._change_names(parent, path, (name, None))
        self._release(gone)

    def exists(self, path: str) -> bool:
        return self._find(path) is not None

    def file_size(self, path: str) -> int:
        return len(self._inode(path).data)

    def usage(self, path: str) -> DiskUsage:
        self._directory(path)
        return DiskUsage(self._device.capacity, max(self._device.capacity - self._device.used, 0))

    def list(self, path: str) -> list[str]:
        return sorted(self._directory(path).entries)

    def make_directory(self, path: str) -> None:
        self._life.check()
        at = self._device.root
        for name in _names(path):
            entry = at.entries.get(name)
            if entry is None:
                entry = Directory()
                self._change_names(at, path, (name, entry))
                self._device.note(f"mkdir {path}")
            if isinstance(entry, Inode):
                raise NotADirectoryError(errno.ENOTDIR, "not a directory", path)
            at = entry

    def remove_directory(self, path: str) -> None:
        """Name by name, as the real one: a power loss may leave some of them."""
        entry = self._find(path)
        if entry is None:
            return
        for name in self.list(path):
            below = posixpath.join(path, name)
            if isinstance(self._find(below), Directory):
                self.remove_directory(below)
            else:
                self.unlink(below)
        parent, name = self._parent(path)
        self._change_names(parent, path, (name, None))
        self._device.note(f"rmdir {path}")

    def sync_directory(self, path: str) -> None:
        directory = self._directory(path)
        self._device.note(f"sync {path}/")
        if not self._device.lies(path):
            directory.sync()

    def boot_id(self) -> str:
        return f"{self._device.name} boot {self._device.boots}"

    def lock(self, path: str) -> Callable[[], None]:
        self._life.check()
        path = _clean(path)
        if path in self._device.locks:
            raise AlreadyLocked(path)
        self._device.locks[path] = self._life
        self.open(path, create=True)

        def release() -> None:
            self._device.locks.pop(path, None)

        return release

    def _change_names(self, directory: Directory, path: str, *change: tuple[str, Inode | Directory | None]) -> None:
        if self._device.strike(self._life, path) is not None:
            raise Crashed(path)
        directory.apply(*change)

    def _release(self, entry: Inode | Directory | None) -> None:
        if isinstance(entry, Inode):
            self._device.grow(-len(entry.data))

    def _find(self, path: str) -> Inode | Directory | None:
        self._life.check()
        at: Inode | Directory | None = self._device.root
        for name in _names(path):
            if not isinstance(at, Directory):
                return None
            at = at.entries.get(name)
        return at

    def _inode(self, path: str) -> Inode:
        entry = self._find(path)
        if not isinstance(entry, Inode):
            raise _missing(path)
        return entry

    def _directory(self, path: str) -> Directory:
        entry = self._find(path)
        if not isinstance(entry, Directory):
            raise _missing(path)
        return entry

    def _parent(self, path: str) -> tuple[Directory, str]:
        self._life.check()
        *above, name = _names(path)
        at: Inode | Directory | None = self._device.root
        for each in above:
            at = at.entries.get(each) if isinstance(at, Directory) else None
        if not isinstance(at, Directory):
            raise _missing("/".join(above))
        return at, name


def _change(device: Device, path: str, inode: Inode, change: Change, life: Life) -> None:
    """Change a file, unless the disk is full or the seed wants the node to die in the middle of it."""
    length = len(change.data) if isinstance(change, Write) else 0
    written = device.strike(life, path, length)
    if written is not None:
        if isinstance(change, Write):
            inode.apply(Write(change.position, change.data[:written]))
        raise Crashed(path)
    end = change.position + length if isinstance(change, Write) else change.size
    growth = max(end, len(inode.data)) - len(inode.data) if isinstance(change, Write) else end - len(inode.data)
    try:
        device.grow(growth)
    except OSError:
        room = max(0, device.capacity - device.used)
        if isinstance(change, Write) and room:
            fits = max(0, min(length, len(inode.data) + room - change.position))
            inode.apply(Write(change.position, change.data[:fits]))
            device.used = device.capacity
        raise
    inode.apply(change)


def _walk(directory: Directory, path: str) -> Iterator[tuple[str, Inode | Directory]]:
    """A directory before what is in it, so that a power loss decides first what has a name, and goes on from there."""
    yield path, directory
    for name in sorted(directory.entries):
        entry = directory.entries[name]
        if isinstance(entry, Directory):
            yield from _walk(entry, f"{path}/{name}")
        else:
            yield f"{path}/{name}", entry


@functools.lru_cache(maxsize=4096)
def _names(path: str) -> tuple[str, ...]:
    return tuple(name for name in posixpath.normpath(path).split("/") if name not in ("", "."))


@functools.lru_cache(maxsize=4096)
def _clean(path: str) -> str:
    return "/" + "/".join(_names(path))


def _missing(path: str) -> FileNotFoundError:
    return FileNotFoundError(errno.ENOENT, "No such file or directory", path)
