"""The operating system's files for code that changes what it opens, and shall not: none of them is ever changed.

What is written, renamed or removed is so only for whoever looks through the same `UntouchedDisk`, and is gone with
it. Large new files lie in the directory for temporary files meanwhile.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from tempfile import SpooledTemporaryFile

from odradek.ports import DiskUsage

_IN_MEMORY_BYTES = 1 << 20
"""More than that of a file that was written goes to a temporary one."""

_COPIED_BYTES = 1 << 20
"""At a time, of a file that is about to differ from the real one."""


class _Content:
    """What a file holds: a real one, or as much as is left of it, or what was written instead."""

    __slots__ = ("_path", "_size", "_written")

    def __init__(self, path: str | None) -> None:
        """Of the real file at this path; without one of an empty file."""
        self._path = path
        self._size: int | None = None
        """Once it was cut."""
        self._written: SpooledTemporaryFile[bytes] | None = None if path is not None else _new()

    def __del__(self) -> None:
        """Nobody has a handle on it any more, and it has no name."""
        if self._written is not None:
            self._written.close()

    def read(self, position: int, length: int) -> bytes:
        if self._written is not None:
            self._written.seek(position)
            return self._written.read(length)
        # Opened each time: a log may have more segments than a process may have open.
        with open(self._real(), "rb", buffering=0) as real:
            left = min(length, self.size() - position)
            real.seek(position)
            return real.read(left) if left > 0 else b""

    def size(self) -> int:
        if self._written is not None:
            return self._written.seek(0, os.SEEK_END)
        return os.stat(self._real()).st_size if self._size is None else self._size

    def write(self, data: bytes | bytearray | memoryview, position: int) -> None:
        written = self._own()
        written.seek(position)
        written.write(data)

    def truncate(self, size: int) -> None:
        before = self.size()
        if size > before:
            self.write(bytes(size - before), before)
        elif self._written is None:
            self._size = size
        else:
            self._written.truncate(size)

    def _real(self) -> str:
        assert self._path is not None
        return self._path

    def _own(self) -> SpooledTemporaryFile[bytes]:
        if self._written is None:
            written = _new()
            for position in range(0, self.size(), _COPIED_BYTES):
                written.write(self.read(position, _COPIED_BYTES))
            self._written = written
        return self._written


class UntouchedFile:
    """A handle on a content, which it shares with all others on the same file."""

    __slots__ = ("_content",)

    def __init__(self, content: _Content) -> None:
        self._content = content

    def write(self, data: bytes | bytearray | memoryview, position: int) -> None:
        self._content.write(data, position)

    def read(self, position: int, length: int) -> bytes:
        return self._content.read(position, length)

    def size(self) -> int:
        return self._content.size()

    def truncate(self, size: int) -> None:
        self._content.truncate(size)

    def reserve(self, position: int, length: int) -> bool:
        return False

    def sync(self) -> None:
        """There is nothing that should survive."""

    def resident(self, position: int, length: int) -> bool:
        return True  # Nobody waits.

    def close(self) -> None:
        """No descriptor is kept."""


class UntouchedDisk:
    """Everything as it is on the real disk, but for what was changed through this one."""

    def __init__(self) -> None:
        self._contents: dict[str, _Content | None] = {}
        """Of files that were opened or changed, by path; None where one was removed."""

    def open(self, path: str, *, create: bool = False) -> UntouchedFile:
        return UntouchedFile(self._content(path, create=create))

    def read_file(self, path: str) -> bytes:
        content = self._content(path)
        return content.read(0, content.size())

    def write_file(self, path: str, data: bytes) -> None:
        content = self._contents[os.path.abspath(path)] = _Content(None)
        content.write(data, 0)

    def rename(self, old: str, new: str) -> None:
        self._contents[os.path.abspath(new)] = self._content(old)
        self._contents[os.path.abspath(old)] = None

    def unlink(self, path: str) -> None:
        self._content(path)
        self._contents[os.path.abspath(path)] = None

    def exists(self, path: str) -> bool:
        path = os.path.abspath(path)
        return self._contents[path] is not None if path in self._contents else os.path.exists(path)

    def file_size(self, path: str) -> int:
        return self._content(path).size()

    def usage(self, path: str) -> DiskUsage:
        found = os.statvfs(path)
        return DiskUsage(found.f_frsize * found.f_blocks, found.f_frsize * found.f_bavail)

    def list(self, path: str) -> list[str]:
        path = os.path.abspath(path)
        names = dict.fromkeys(os.listdir(path), True)
        for changed, content in self._contents.items():
            where, name = os.path.split(changed)
            if where == path:
                names[name] = content is not None
        return sorted(name for name, is_there in names.items() if is_there)

    def make_directory(self, path: str) -> None:
        """Files need none here."""

    def remove_directory(self, path: str) -> None:
        for name in self.list(path):
            self.unlink(os.path.join(path, name))

    def sync_directory(self, path: str) -> None:
        """As with files."""

    def boot_id(self) -> str:
        return ""

    def lock(self, path: str) -> Callable[[], None]:
        """Nobody is in the way of anybody."""
        return lambda: None

    def _content(self, path: str, *, create: bool = False) -> _Content:
        path = os.path.abspath(path)
        content = self._contents.get(path)
        if content is None:
            is_real = path not in self._contents and os.path.exists(path)
            if not (is_real or create):
                raise FileNotFoundError(2, "No such file or directory", path)
            content = self._contents[path] = _Content(path if is_real else None)
        return content


def _new() -> SpooledTemporaryFile[bytes]:
    return SpooledTemporaryFile(max_size=_IN_MEMORY_BYTES)
