"""The small adapters: time, randomness, threads and processes."""

from __future__ import annotations

import asyncio
import errno
import os
import signal
import threading
import time
from collections.abc import Generator
from functools import partial
from pathlib import Path

import pytest

from odradek.adapters.clock import SystemClock
from odradek.adapters.disk import RealDisk
from odradek.adapters.entropy import SystemEntropy
from odradek.adapters.workers import MAX_THREADS, RealWorkers
from odradek.ports import Disk, WorkerLost


def test_the_clock_tells_wall_and_monotonic_milliseconds() -> None:
    clock = SystemClock()
    assert abs(clock.now_ms() - time.time() * 1000) < 5_000
    assert abs(clock.monotonic_ms() - time.monotonic() * 1000) < 5_000


def test_entropy_draws_every_number_below_the_bound() -> None:
    entropy = SystemEntropy()
    for bound in (1, 2, 3, 5, 8, 9):
        drawn = {entropy.below(bound) for _ in range(400)}
        assert drawn == set(range(bound))
    assert entropy.below(1 << 64) < 1 << 64
    assert len(entropy.random_bytes(16)) == 16
    assert entropy.random_bytes(16) != entropy.random_bytes(16)
    with pytest.raises(ValueError, match="no number"):
        entropy.below(0)


def test_workers_run_jobs_on_a_few_threads_and_return_what_they_return() -> None:
    workers = RealWorkers()
    others = threading.enumerate()
    here = threading.get_ident()
    seen: set[int] = set()

    def job(number: int) -> int:
        seen.add(threading.get_ident())
        if number == 13:
            raise OSError("disk on fire")
        return number * number

    async def run() -> list[int | BaseException]:
        return await asyncio.gather(*(workers.run(lambda n=n: job(n)) for n in range(20)), return_exceptions=True)

    results = asyncio.run(run())
    assert [result for result in results if isinstance(result, int)] == [n * n for n in range(20) if n != 13]
    assert isinstance(results[13], OSError)
    assert here not in seen
    assert 1 <= len(seen) <= MAX_THREADS
    workers.close()
    workers.close()
    assert [thread for thread in threading.enumerate() if thread not in others] == []


def count_up(disk: Disk, *, path: str, fails: bool = False) -> Generator[tuple[int, int], None, None]:
    """Work as a process does it: which one, and a number; with a file that it opens and must not leave."""
    file = disk.open(path, create=True)
    try:
        for number in range(3):
            file.write(b"%d" % number, number)
            yield os.getpid(), number
        if fails:
            raise OSError(errno.EIO, "disk on fire", path)
    finally:
        file.close()
        disk.unlink(path)


def end_abruptly(disk: Disk) -> Generator[int, None, None]:
    yield os.getpid()
    os.kill(os.getpid(), signal.SIGKILL)


def test_what_is_busy_has_a_process_of_low_priority_that_the_next_work_takes_over(tmp_path: Path) -> None:
    disk, path = RealDisk(), str(tmp_path / "file")

    async def run() -> None:
        workers = RealWorkers()
        steps = workers.apart(disk, partial(count_up, path=path))
        found = [await steps.next(), await steps.next()]
        assert all(found)
        ((process_id, _), (same, _)) = [each for each in found if each is not None]
        assert process_id == same != os.getpid()
        assert os.getpriority(os.PRIO_PROCESS, process_id) > os.getpriority(os.PRIO_PROCESS, 0)
        assert (tmp_path / "file").exists()
        await steps.close()
        assert not (tmp_path / "file").exists(), "what was under way is given up, and tidied up"

        failing = workers.apart(disk, partial(count_up, path=path, fails=True))
        assert [await failing.next() for _ in range(3)] == [(process_id, number) for number in range(3)]
        with pytest.raises(OSError, match="disk on fire") as failure:
            await failing.next()
        assert failure.value.errno == errno.EIO
        assert failure.value.__notes__
        await failing.close()

        whole = workers.apart(disk, partial(count_up, path=path))
        assert [await whole.next() for _ in range(4)] == [*((process_id, number) for number in range(3)), None]
        await whole.close()
        workers.close()
        with pytest.raises(ProcessLookupError):
            os.kill(process_id, 0)

    asyncio.run(run())


def test_a_process_that_is_lost_is_told_and_replaced(tmp_path: Path) -> None:
    async def run() -> None:
        workers = RealWorkers()
        steps = workers.apart(RealDisk(), end_abruptly)
        lost = await steps.next()
        with pytest.raises(WorkerLost):
            await steps.next()
        await steps.close()
        again = workers.apart(RealDisk(), partial(count_up, path=str(tmp_path / "file")))
        found = await again.next()
        assert found is not None
        assert found[0] != lost
        await again.close()
        workers.close()

    asyncio.run(run())


def test_idle_processes_end(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("odradek.adapters.workers.IDLE_S", 0.01)

    async def run() -> None:
        workers = RealWorkers()
        steps = workers.apart(RealDisk(), partial(count_up, path=str(tmp_path / "file")))
        found = await steps.next()
        assert found is not None
        await steps.close()
        while True:
            try:
                os.kill(found[0], 0)
            except ProcessLookupError:
                break
            await asyncio.sleep(0.01)
        workers.close()

    asyncio.run(run())
