"""The made-up disk: it behaves like a disk, and a power loss takes what was not synced and nothing else."""

from __future__ import annotations

import errno
import random
from collections.abc import Iterator

import pytest

from odradek.ports import AlreadyLocked, Disk
from odradek.sim.disk import Device, SimulatedDisk
from odradek.sim.loop import Crashed, Life, SimulatedLoop
from odradek.sim.trace import Trace


class Machine:
    """A device and the disk of the life that uses it now."""

    def __init__(self, seed: int = 0, *, capacity: int = 1 << 40) -> None:
        self.trace = Trace(SimulatedLoop())
        self.device = Device(random.Random(seed), self.trace, capacity=capacity)
        self.boot()

    def boot(self) -> SimulatedDisk:
        self.life = Life("node")
        self.disk = self.device.attach(self.life)
        return self.disk

    def crash(self, keep: str) -> SimulatedDisk:
        self.life.end()
        assert keep in ("process", "power")
        self.device.crash("process" if keep == "process" else "power")
        return self.boot()


@pytest.fixture(params=["made up", "real"])
def disk(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Disk, str]]:
    """The same expectations for both worlds."""
    from odradek.adapters.disk import RealDisk

    if request.param == "real":
        yield RealDisk(max_open_files=2), str(tmp_path_factory.mktemp("disk"))
    else:
        made_up = Machine().disk
        made_up.make_directory("/data")
        yield made_up, "/data"


def test_both_worlds_agree(disk: tuple[Disk, str]) -> None:
    port, base = disk
    file = port.open(f"{base}/a", create=True)
    file.write(b"hello", 3)
    assert file.read(0, 100) == b"\0\0\0hello"
    assert (file.size(), port.file_size(f"{base}/a")) == (8, 8)
    file.truncate(5)
    assert file.read(2, 100) == b"\0he"
    file.truncate(7)
    assert file.read(0, 100) == b"\0\0\0he\0\0"
    file.sync()
    other = port.open(f"{base}/b", create=True)
    other.write(b"old b", 0)
    port.rename(f"{base}/a", f"{base}/b")
    assert (file.read(3, 2), other.read(0, 9), port.list(base)) == (b"he", b"old b", ["b"])
    assert port.read_file(f"{base}/b") == b"\0\0\0he\0\0"
    port.unlink(f"{base}/b")
    assert (file.read(3, 2), port.exists(f"{base}/b")) == (b"he", False)
    file.close()
    with pytest.raises(OSError, match="closed"):
        file.read(0, 1)
    port.make_directory(f"{base}/t-0/x")
    port.write_file(f"{base}/t-0/f", b"long")
    port.write_file(f"{base}/t-0/f", b"new")
    inside = port.open(f"{base}/t-0/f")
    port.rename(f"{base}/t-0", f"{base}/t-0-delete")
    inside.write(b"N", 0)
    assert port.read_file(f"{base}/t-0-delete/f") == b"New"
    port.sync_directory(base)
    port.remove_directory(f"{base}/t-0-delete")
    port.remove_directory(f"{base}/t-0-delete")
    assert port.list(base) == []
    assert inside.read(0, 9) == b"New"


@pytest.mark.parametrize("call", ["open", "read_file", "unlink", "file_size", "list", "usage"])
def test_both_worlds_agree_on_what_is_missing(disk: tuple[Disk, str], call: str) -> None:
    port, base = disk
    with pytest.raises(FileNotFoundError):
        getattr(port, call)(f"{base}/none/at/all" if call in ("list", "usage") else f"{base}/none")


def test_both_worlds_know_how_full_they_are(disk: tuple[Disk, str]) -> None:
    port, base = disk
    usage = port.usage(base)
    assert 0 < usage.usable_bytes <= usage.total_bytes


def test_a_full_made_up_disk_has_no_room() -> None:
    machine = Machine()
    machine.disk.make_directory("/d")
    machine.device.capacity = 100
    machine.disk.write_file("/d/f", bytes(60))
    usage = machine.disk.usage("/d")
    assert (usage.total_bytes, usage.usable_bytes) == (100, 40)


def test_both_worlds_lock_once(disk: tuple[Disk, str]) -> None:
    port, base = disk
    release = port.lock(f"{base}/.lock")
    with pytest.raises(AlreadyLocked):
        port.lock(f"{base}/.lock")
    release()
    port.lock(f"{base}/.lock")()


def written_and_synced(machine: Machine) -> None:
    machine.disk.make_directory("/d")
    machine.disk.sync_directory("/")
    file = machine.disk.open("/d/log", create=True)
    machine.disk.sync_directory("/d")
    file.write(b"synced.", 0)
    file.sync()
    file.write(b"0123456789" * 10, 7)
    file.write(b"last", 107)


def test_a_process_crash_keeps_what_was_written() -> None:
    machine = Machine()
    written_and_synced(machine)
    release = machine.disk.lock("/d/.lock")
    disk = machine.crash("process")
    assert disk.read_file("/d/log") == b"synced." + b"0123456789" * 10 + b"last"
    disk.lock("/d/.lock")
    del release


def test_a_power_loss_keeps_what_was_synced_and_tears_the_rest() -> None:
    ends = set()
    rubbish = 0
    for seed in range(100):
        machine = Machine(seed)
        written_and_synced(machine)
        data = machine.crash("power").read_file("/d/log")
        assert data[:7] == b"synced."
        whole = b"synced." + b"0123456789" * 10 + b"last"
        ends.add(len(data))
        rubbish += not whole.startswith(data)
    assert min(ends) == 7
    assert 111 in ends
    assert len(ends) > 8
    assert rubbish > 10


def test_a_name_survives_a_power_loss_only_once_its_directory_was_synced() -> None:
    found = set()
    for seed in range(40):
        machine = Machine(seed)
        machine.disk.make_directory("/d")
        machine.disk.sync_directory("/")
        file = machine.disk.open("/d/file.tmp", create=True)
        file.write(b"content", 0)
        file.sync()
        machine.disk.sync_directory("/d")
        machine.disk.rename("/d/file.tmp", "/d/file")
        disk = machine.crash("power")
        found.add(tuple(disk.list("/d")))
        assert disk.read_file(f"/d/{disk.list('/d')[0]}") == b"content"
    assert found == {("file",), ("file.tmp",)}


def test_an_unlinked_file_may_come_back() -> None:
    found = set()
    for seed in range(40):
        machine = Machine(seed)
        machine.disk.write_file("/f", b"not synced")
        machine.disk.sync_directory("/")
        machine.disk.unlink("/f")
        disk = machine.crash("power")
        if disk.exists("/f"):
            found.add(len(disk.read_file("/f")))
        else:
            found.add(-1)
    assert {-1, 0} < found


def test_a_lying_disk_keeps_nothing_for_sure() -> None:
    lengths = set()
    for seed in range(40):
        machine = Machine(seed)
        machine.disk.write_file("/f", b"")
        machine.disk.sync_directory("/")
        machine.device.lies_about = "/"
        file = machine.disk.open("/f")
        file.write(b"x" * 100, 0)
        file.sync()
        lengths.add(len(machine.crash("power").read_file("/f")))
    assert 0 in lengths


def test_a_node_can_be_struck_in_the_middle_of_a_write() -> None:
    machine = Machine()
    file = machine.disk.open("/f", create=True)
    machine.device.on_change = lambda path, length: 3 if path == "/f" else None
    machine.disk.open("/g", create=True)
    with pytest.raises(Crashed):
        file.write(b"0123456789", 0)
    with pytest.raises(Crashed):
        file.read(0, 1)
    machine.device.on_change = None
    assert machine.crash("process").read_file("/f") == b"012"


def test_a_full_disk_takes_what_fits_and_says_so() -> None:
    machine = Machine(capacity=100)
    file = machine.disk.open("/f", create=True)
    file.write(b"x" * 80, 0)
    file.write(b"y" * 10, 0)
    with pytest.raises(OSError, match="No space left") as full:
        file.write(b"z" * 40, 80)
    assert full.value.errno == errno.ENOSPC
    assert file.read(0, 200) == b"y" * 10 + b"x" * 70 + b"z" * 20
    file.truncate(50)
    file.write(b"z" * 50, 50)
    with pytest.raises(OSError, match="No space left"):
        machine.disk.write_file("/g", b"g")
    machine.disk.unlink("/f")
    machine.disk.write_file("/g", b"g")


def test_cold_data_is_warm_once_read() -> None:
    machine = Machine()
    file = machine.disk.open("/f", create=True)
    file.write(b"x" * 100, 0)
    file.sync()
    machine.disk.sync_directory("/")
    file = machine.crash("power").open("/f")
    assert not file.resident(0, 100)
    file.read(0, 100)
    assert sum(file.resident(0, 100) and bool(file.read(0, 1)) for _ in range(100)) > 80
