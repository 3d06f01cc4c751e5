"""Followers pull, leaders count: brokers that replicate, on disks and wires of a made-up world."""

from __future__ import annotations

from tests.unit.server.replica_rig import ReplicaRig


def test_what_is_acknowledged_is_on_every_replica() -> None:
    rig = ReplicaRig(3)

    async def story() -> None:
        await rig.create_topic("t", [[1, 2, 3]])
        for number in range(5):
            answer = await rig.produce(1, "t", b"a%d" % number, b"b%d" % number)
            assert (answer.error_code, answer.base_offset) == (0, 2 * number)
            assert [end for _, end in rig.ends("t").values()] == [2 * number + 2] * 3
        await rig.until(lambda: set(rig.ends("t").values()) == {(10, 10)})
        first = await rig.content(1, "t")
        assert first == await rig.content(2, "t") == await rig.content(3, "t")

    rig.run(story)
