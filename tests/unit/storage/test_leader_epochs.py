"""Leader epochs: the file, the questions asked of it, and truncation from both ends."""

from __future__ import annotations

import pytest
from tests.unit.storage.worlds import Machine

from odradek.storage.leader_epochs import LeaderEpochs

PATH = "/data/leader-epoch-checkpoint"


@pytest.fixture
def epochs() -> LeaderEpochs:
    epochs = LeaderEpochs.load(Machine().disk, PATH)
    for epoch, start in ((1, 10), (3, 20), (4, 30)):
        epochs.assign(epoch, start)
    return epochs


def test_the_file() -> None:
    disk = Machine().disk
    epochs = LeaderEpochs.load(disk, PATH)
    epochs.assign(0, 0)
    epochs.assign(2, 17)
    assert not disk.exists(PATH), "a beginning epoch costs no write"
    epochs.save(18)
    assert disk.read_file(PATH) == b"0\n2\n0 0\n2 17\n"
    again = LeaderEpochs.load(disk, PATH)
    assert again.entries == [(0, 0), (2, 17)]
    assert again.unsaved(18) is None
    again.assign(3, 20)
    assert again.unsaved(20) is None, "an epoch without records has nothing to tell"
    content = again.unsaved(21)
    assert content == b"0\n3\n0 0\n2 17\n3 20\n"
    again.save_durably(content)
    assert disk.read_file(PATH) == content
    assert again.unsaved(21) is None


@pytest.mark.parametrize(
    "content", [b"", b"0\n", b"1\n0\n", b"0\n2\n0 0\n", b"0\n1\n0\n", b"0\n1\nx y\n", b"\xff\xfe", b"0\n1\n\0\0\0"]
)
def test_an_unreadable_file_counts_as_absent(content: bytes) -> None:
    disk = Machine().disk
    disk.write_file(PATH, content)
    assert LeaderEpochs.load(disk, PATH).entries == []


@pytest.mark.parametrize(
    ("asked", "answer"),
    [(-1, (-1, -1)), (0, (0, 10)), (1, (1, 20)), (2, (1, 20)), (3, (3, 30)), (4, (4, 99)), (5, (-1, -1))],
)
def test_where_an_epoch_ended(epochs: LeaderEpochs, asked: int, answer: tuple[int, int]) -> None:
    end = epochs.end_offset_for(asked, 99)
    assert (end.epoch, end.end_offset) == answer


def test_no_epochs_no_answer() -> None:
    end = LeaderEpochs.load(Machine().disk, PATH).end_offset_for(0, 99)
    assert (end.epoch, end.end_offset) == (-1, -1)


@pytest.mark.parametrize(("offset", "epoch"), [(9, -1), (10, 1), (19, 1), (20, 3), (30, 4), (1000, 4)])
def test_the_epoch_of_an_offset(epochs: LeaderEpochs, offset: int, epoch: int) -> None:
    assert epochs.epoch_for_offset(offset) == epoch


@pytest.mark.parametrize(
    ("epoch", "start", "entries"),
    [
        (4, 35, [(1, 10), (3, 20), (4, 30)]),
        (5, 40, [(1, 10), (3, 20), (4, 30), (5, 40)]),
        (5, 30, [(1, 10), (3, 20), (5, 30)]),
        (5, 15, [(1, 10), (5, 15)]),
        (2, 40, [(1, 10), (2, 40)]),
        (4, 25, [(1, 10), (3, 20), (4, 25)]),
        (-1, 50, [(1, 10), (3, 20), (4, 30)]),
    ],
)
def test_assignments(epochs: LeaderEpochs, epoch: int, start: int, entries: list[tuple[int, int]]) -> None:
    epochs.assign(epoch, start)
    assert epochs.entries == entries
    assert epochs.latest == entries[-1][0]


@pytest.mark.parametrize(
    ("end", "entries"),
    [(31, [(1, 10), (3, 20), (4, 30)]), (30, [(1, 10), (3, 20)]), (25, [(1, 10), (3, 20)]), (10, []), (0, [])],
)
def test_truncation_from_the_end(epochs: LeaderEpochs, end: int, entries: list[tuple[int, int]]) -> None:
    epochs.truncate_from_end(end)
    assert epochs.entries == entries


@pytest.mark.parametrize(
    ("start", "entries"),
    [
        (5, [(1, 10), (3, 20), (4, 30)]),
        (10, [(1, 10), (3, 20), (4, 30)]),
        (12, [(1, 12), (3, 20), (4, 30)]),
        (20, [(3, 20), (4, 30)]),
        (99, [(4, 99)]),
    ],
)
def test_truncation_from_the_start(epochs: LeaderEpochs, start: int, entries: list[tuple[int, int]]) -> None:
    epochs.truncate_from_start(start)
    assert epochs.entries == entries


def test_a_failed_write_is_tried_again() -> None:
    machine = Machine()
    epochs = LeaderEpochs.load(machine.disk, PATH)
    epochs.assign(1, 10)
    machine.device.capacity = machine.device.used
    with pytest.raises(OSError, match="space"):
        epochs.save(11)
    machine.device.capacity = 1 << 40
    epochs.save(11)
    assert LeaderEpochs.load(machine.disk, PATH).entries == [(1, 10)]
