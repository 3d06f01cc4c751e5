"""Voters of a static quorum whose disk was lost, on a made-up network and disk: what is committed stays."""

from __future__ import annotations

import asyncio

import pytest
from tests.unit.server.quorum_rig import DIRECTORY, QuorumRig, Seat, setting, settings_in

from odradek.metadata.raft.amnesia import AMNESIA_FILE
from odradek.metadata.raft.quorum_state import QUORUM_STATE_FILE
from odradek.sim.loop import Life

MARK = f"{DIRECTORY}/{AMNESIA_FILE}"


def is_marked(seat: Seat) -> bool:
    return seat.device.attach(Life("a tool")).exists(MARK)


def test_a_new_quorum_has_nothing_to_remember() -> None:
    rig = QuorumRig(3)

    async def test() -> None:
        leader = await rig.begun()
        await rig.append(leader, setting("a"))
        await rig.agree()
        await asyncio.sleep(1)
        assert [is_marked(seat) for seat in rig.seats] == [False] * 3

    rig.run(test)


@pytest.mark.parametrize("restarts", [1, 2, 3])
def test_a_voter_without_its_disk_does_not_help_one_that_lacks_what_is_committed(restarts: int) -> None:
    rig = QuorumRig(3)

    async def test() -> None:
        leader = await rig.begun()
        lost, late = (seat for seat in rig.seats if seat is not leader)
        await rig.agree()
        await asyncio.sleep(1)
        late.crash()
        await rig.append(leader, setting("kept"))
        for seat in (leader, lost):
            seat.crash()
        lost.wipe()
        await late.start()
        for _ in range(restarts):
            await lost.start()
            await asyncio.sleep(10)
            assert is_marked(lost)
            assert not late.quorum.is_active
            lost.crash("power")
        await lost.start()
        await leader.start()
        await rig.active()
        await rig.agree()
        assert settings_in(late) == settings_in(lost) == ["kept"]
        await asyncio.sleep(1)
        assert not is_marked(lost)
        leader.crash()
        await rig.active()  # It votes, or stands, again.

    rig.run(test)


def test_a_damaged_mark_is_not_guessed_at() -> None:
    rig = QuorumRig(3)

    async def test() -> None:
        rig.seats[0].put(MARK, b"{")
        with pytest.raises(Exception, match=f"{AMNESIA_FILE} cannot be read"):
            await rig.seats[0].start()

    rig.run(test)


def test_a_voter_that_an_earlier_release_let_forget_that_it_lost_its_disk_is_told_of(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Its first vote request wrote a quorum-state, by which its second start took it for one that remembers."""
    rig = QuorumRig(3)
    state = b'{"leaderId":-1,"leaderEpoch":7,"votedId":3,"appliedOffset":0,"currentVoters":[],"data_version":0}'

    async def test() -> None:
        leader = await rig.begun()
        lost, late = (seat for seat in rig.seats if seat is not leader)
        await rig.agree()
        late.crash()
        await rig.append(leader, setting("kept"))
        for seat in (leader, lost):
            seat.crash()
        lost.wipe()
        lost.put(f"{DIRECTORY}/{QUORUM_STATE_FILE}", state)
        caplog.clear()
        await lost.start()
        assert "has taken part in elections, and has no metadata log" in caplog.text
        lost.crash()
        lost.device.attach(Life("the operator")).unlink(f"{DIRECTORY}/{QUORUM_STATE_FILE}")
        await lost.start()
        await late.start()
        await asyncio.sleep(10)
        assert is_marked(lost)
        assert not late.quorum.is_active
        await leader.start()
        await rig.active()
        await rig.agree()
        assert settings_in(late) == settings_in(lost) == ["kept"]

    rig.run(test)
