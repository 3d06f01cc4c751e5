"""Files of the operating system, with a bound on how many are open at a time.

A `RealFile` is a path and, while it is in use, a `Descriptor`. A descriptor closes itself when the last reference to
it is gone, so it may be taken away from its file at any moment (to open another one) without harm to a worker thread in
the middle of an fsync or to a wire in the middle of a sendfile: each of them holds a reference, and the number cannot
come to mean another file under its hands. That is why nothing is pinned or locked on the way of a read or a write.
"""

from __future__ import annotations

import errno
import fcntl
import functools
import os
import resource
import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import TypeAlias

from odradek.ports import AlreadyLocked, DiskUsage

_NOWAIT: int | None = getattr(os, "RWF_NOWAIT", None)
_sync_data: Callable[[int], None] = getattr(os, "fdatasync", os.fsync)
_BOOT_ID = "/proc/sys/kernel/random/boot_id"
_KEEP_SIZE = 1
"""FALLOC_FL_KEEP_SIZE, without which the file would seem to hold what is not written yet."""
_PLENTY = 10
"""Of a file system with less than such a share left nothing is set aside: others may need it sooner."""
_FEWEST_OPEN_FILES = 64
_MOST_OPEN_FILES = 4096


class Descriptor(int):
    """An open file descriptor that is closed once nobody holds it: keep the object, not just its number."""

    __slots__ = ()

    def __del__(self, _close: Callable[[int], None] = os.close) -> None:
        _close(self)


class RealFile:
    """A handle whose descriptor comes and goes."""

    __slots__ = ("_closed", "_descriptor", "_directory", "_disk", "_name", "_unlinked", "_used")

    def __init__(self, disk: RealDisk, directory: _Directory, name: str) -> None:
        self._disk = disk
        self._directory = directory
        self._name = name
        self._descriptor: Descriptor | None = None
        self._used = False
        self._unlinked = False
        self._closed = False

    def __repr__(self) -> str:
        return f"RealFile({self.path!r})"

    @property
    def path(self) -> str:
        """Where the file is now: renames are followed."""
        return os.path.join(self._directory.path, self._name)

    def descriptor(self) -> Descriptor:
        """For system calls the port does not offer (sendfile); hold the object for as long as its number is used."""
        descriptor = self._descriptor
        if descriptor is None:
            descriptor = self._disk._reopen(self)
        self._used = True
        return descriptor

    def write(self, data: bytes | bytearray | memoryview, position: int) -> None:
        descriptor = self._descriptor
        if descriptor is None:
            descriptor = self._disk._reopen(self)
        self._used = True
        written = os.pwrite(descriptor, data, position)
        if written != len(data):
            _write_rest(descriptor, memoryview(data), position, written)

    def read(self, position: int, length: int) -> bytes:
        descriptor = self._descriptor
        if descriptor is None:
            descriptor = self._disk._reopen(self)
        self._used = True
        data = os.pread(descriptor, length, position)
        if len(data) != length and data:
            return _read_rest(descriptor, data, position, length)
        return data

    def size(self) -> int:
        return os.fstat(self.descriptor()).st_size

    def truncate(self, size: int) -> None:
        os.ftruncate(self.descriptor(), size)

    def reserve(self, position: int, length: int) -> bool:
        fallocate = _fallocate()
        if fallocate is None:
            return False
        descriptor = self.descriptor()
        found = os.fstatvfs(descriptor)
        if found.f_bavail * _PLENTY < found.f_blocks:
            return False
        return fallocate(descriptor, _KEEP_SIZE, position, length) == 0

    def sync(self) -> None:
        descriptor = self.descriptor()
        if self._disk.durable:
            _sync_data(descriptor)  # Also writes the new size, without which the data could not be found again.

    def resident(self, position: int, length: int) -> bool:
        if _NOWAIT is None or length <= 0:
            return True
        descriptor = self.descriptor()
        return _cached(descriptor, position) and _cached(descriptor, position + length - 1)

    def close(self) -> None:
        self._disk._forget(self)


_Handles: TypeAlias = list[RealFile]


class _Directory:
    """Handles of the files in one directory, by name; renaming the directory moves them all at once."""

    __slots__ = ("files", "path")

    def __init__(self, path: str) -> None:
        self.path = path
        self.files: dict[str, _Handles] = {}


class RealDisk:
    """The operating system's files.

    The lock guards the tables of handles and is taken where a file is opened, reopened, moved or closed: worker threads
    do such things as well.
    """

    def __init__(self, max_open_files: int | None = None, *, durable: bool = True) -> None:
        """Without `durable`, nothing waits for the device: for data that need not outlive the machine."""
        self.max_open_files = _affordable_open_files() if max_open_files is None else max_open_files
        self.durable = durable
        self._lock = threading.RLock()
        self._directories: dict[str, _Directory] = {}
        self._open: OrderedDict[RealFile, None] = OrderedDict()

    def open(self, path: str, *, create: bool = False) -> RealFile:
        path = os.path.abspath(path)
        where, name = os.path.split(path)
        with self._lock:
            descriptor = _open(path, create=create)
            directory = self._directory(where)
            file = RealFile(self, directory, name)
            directory.files.setdefault(name, []).append(file)
            self._admit(file, descriptor)
        return file

    def read_file(self, path: str) -> bytes:
        with open(path, "rb", buffering=0) as file:
            return file.readall()

    def write_file(self, path: str, data: bytes) -> None:
        descriptor = Descriptor(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644))
        _write_rest(descriptor, memoryview(data), 0, 0)

    def rename(self, old: str, new: str) -> None:
        old, new = os.path.abspath(old), os.path.abspath(new)
        if old == new:
            return
        with self._lock:
            replaced = self._handles(new)
            kept = [file.descriptor() for file in replaced]
            os.rename(old, new)
            self._let_go(replaced, kept)
            if old in self._directories or os.path.isdir(new):
                self._move_directories(old, new)
            else:
                self._move_file(old, new)

    def unlink(self, path: str) -> None:
        with self._lock:
            files = self._handles(os.path.abspath(path))
            kept = [file.descriptor() for file in files]
            os.unlink(path)
            self._let_go(files, kept)

    def exists(self, path: str) -> bool:
        return os.path.exists(path)

    def file_size(self, path: str) -> int:
        return os.stat(path).st_size

    def usage(self, path: str) -> DiskUsage:
        found = os.statvfs(path)
        return DiskUsage(found.f_frsize * found.f_blocks, found.f_frsize * found.f_bavail)

    def list(self, path: str) -> list[str]:
        return sorted(os.listdir(path))

    def make_directory(self, path: str) -> None:
        os.makedirs(path, exist_ok=True)

    def remove_directory(self, path: str) -> None:
        path = os.path.abspath(path)
        try:
            with os.scandir(path) as found:
                entries = sorted((entry.name, entry.is_dir(follow_symlinks=False)) for entry in found)
        except FileNotFoundError:
            return
        for name, is_directory in entries:
            if is_directory:
                self.remove_directory(os.path.join(path, name))
            else:
                self.unlink(os.path.join(path, name))
        os.rmdir(path)

    def sync_directory(self, path: str) -> None:
        descriptor = Descriptor(os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC))
        if self.durable:
            os.fsync(descriptor)

    def boot_id(self) -> str:
        """Linux draws one when it starts, and containers see that of their host."""
        try:
            return self.read_file(_BOOT_ID).decode().strip()
        except (OSError, ValueError):
            return ""

    def lock(self, path: str) -> Callable[[], None]:
        return _lock(path)

    def _reopen(self, file: RealFile) -> Descriptor:
        with self._lock:
            if file._closed:
                raise OSError(errno.EBADF, "the handle was closed", file.path)
            descriptor = file._descriptor
            if descriptor is None:  # Another thread may have been faster.
                descriptor = _open(file.path, create=False)
                self._admit(file, descriptor)
            return descriptor

    def _admit(self, file: RealFile, descriptor: Descriptor) -> None:
        """Give the file its descriptor, taking one from a file that was not used lately.

        Second chance instead of an exact order of use: a use then costs one store. A file that was unlinked could not
        be opened again, so it is never taken from; that it counts no more keeps the bound meaningful for all others.
        """
        while len(self._open) >= self.max_open_files:
            candidate, _ = self._open.popitem(last=False)
            if candidate._used:
                candidate._used = False
                self._open[candidate] = None
            else:
                candidate._descriptor = None
        file._descriptor = descriptor
        self._open[file] = None

    def _forget(self, file: RealFile) -> None:
        with self._lock:
            if file._closed:
                return
            file._closed = True
            if not file._unlinked:
                handles = file._directory.files[file._name]
                handles.remove(file)
                if not handles:
                    self._drop_name(file._directory, file._name)
                if file._descriptor is not None:
                    del self._open[file]
            file._descriptor = None

    def _directory(self, path: str) -> _Directory:
        directory = self._directories.get(path)
        if directory is None:
            directory = self._directories[path] = _Directory(path)
        return directory

    def _handles(self, path: str) -> _Handles:
        where, name = os.path.split(path)
        directory = self._directories.get(where)
        return [] if directory is None else directory.files.get(name, [])

    def _let_go(self, files: _Handles, kept: Sequence[Descriptor]) -> None:
        """Their name is gone, so they leave the tables with the descriptors they have."""
        for file, descriptor in zip(files, kept, strict=True):
            file._unlinked = True
            file._descriptor = descriptor
            self._open.pop(file, None)
        if files:
            self._drop_name(files[0]._directory, files[0]._name)

    def _drop_name(self, directory: _Directory, name: str) -> None:
        del directory.files[name]
        if not directory.files and self._directories.get(directory.path) is directory:
            del self._directories[directory.path]

    def _move_file(self, old: str, new: str) -> None:
        files = self._handles(old)
        if not files:
            return
        self._drop_name(files[0]._directory, files[0]._name)
        where, name = os.path.split(new)
        directory = self._directory(where)
        directory.files[name] = files
        for file in files:
            file._directory = directory
            file._name = name

    def _move_directories(self, old: str, new: str) -> None:
        moved = [old]
        with os.scandir(new) as entries:
            if any(entry.is_dir(follow_symlinks=False) for entry in entries):
                moved += [path for path in self._directories if path.startswith(old + os.sep)]
        for path in moved:
            directory = self._directories.pop(path, None)
            if directory is not None:
                directory.path = new + path[len(old) :]
                self._directories[directory.path] = directory


def _open(path: str, *, create: bool) -> Descriptor:
    flags = os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT if create else 0)
    return Descriptor(os.open(path, flags, 0o644))


def _write_rest(descriptor: Descriptor, data: memoryview, position: int, written: int) -> None:
    """Go on where the kernel stopped: a signal, or a disk that is almost full (the next write then says so)."""
    while written < len(data):
        written += os.pwrite(descriptor, data[written:], position + written)


def _read_rest(descriptor: Descriptor, data: bytes, position: int, length: int) -> bytes:
    """The kernel may return less than asked for (2 GiB at most, for one) long before the end of the file."""
    pieces = [data]
    have = len(data)
    while have < length:
        piece = os.pread(descriptor, length - have, position + have)
        if not piece:
            break
        pieces.append(piece)
        have += len(piece)
    return b"".join(pieces)


_probe = [bytearray(1)]
"""Where `_cached` puts the byte nobody looks at; threads may overwrite it together."""


@functools.cache
def _fallocate() -> Callable[[int, int, int, int], int] | None:
    """The system call, which Python offers only in the form that changes the size; None where there is none."""
    import ctypes  # Not needed by a node whose logs stay small.

    call = getattr(ctypes.CDLL(None), "fallocate", None)
    if call is None or ctypes.sizeof(ctypes.c_long) < ctypes.sizeof(ctypes.c_int64):
        return None  # Where a long has 32 bits, the call of this name may take offsets of as many.
    call.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64)
    return call  # type: ignore[no-any-return]


def _cached(descriptor: Descriptor, position: int) -> bool:
    """Whether the page at this position is in memory; a file system that cannot tell counts as if it was."""
    assert _NOWAIT is not None
    try:
        os.preadv(descriptor, _probe, position, _NOWAIT)
    except BlockingIOError:
        return False
    except OSError as wrong:
        if wrong.errno in (errno.EOPNOTSUPP, errno.EINVAL):
            return True
        raise
    return True


_locked_here: set[str] = set()
"""Lock files this process holds: a POSIX lock does not exclude its own process, and closing any descriptor loses it."""


def _lock(path: str) -> Callable[[], None]:
    """Two locks: POSIX's, which Apache Kafka takes as well, and flock's, which no other descriptor's close can lose."""
    path = os.path.realpath(path)
    if path in _locked_here:
        raise AlreadyLocked(path)
    descriptor = Descriptor(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644))
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (BlockingIOError, PermissionError):
        del descriptor  # The exception's traceback would keep it, and with it one of the two locks.
        raise AlreadyLocked(path) from None
    _locked_here.add(path)
    held = [descriptor]

    def release() -> None:
        if held:
            held.clear()
            _locked_here.discard(path)

    return release


def _affordable_open_files() -> int:
    """Half of what the process may open, so that connections have the other half."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    allowed = _MOST_OPEN_FILES if soft == resource.RLIM_INFINITY else soft // 2
    return max(_FEWEST_OPEN_FILES, min(allowed, _MOST_OPEN_FILES))
