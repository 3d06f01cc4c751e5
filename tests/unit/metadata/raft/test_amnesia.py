"""The file in which a voter keeps that it has forgotten what it promised."""

from __future__ import annotations

import pytest

from odradek.ids import LeaderEpoch, NodeId
from odradek.metadata.raft.amnesia import Amnesia, BadAmnesia, decode_amnesia, encode_amnesia


def test_what_is_written_is_read() -> None:
    amnesia = (
        Amnesia().helps(NodeId(3), LeaderEpoch(4)).helps(NodeId(2), LeaderEpoch(5)).helps(NodeId(3), LeaderEpoch(6))
    )
    assert amnesia.helped == ((2, 5), (3, 6))
    assert amnesia.has_helped(NodeId(3)) == 6
    assert amnesia.has_helped(NodeId(1)) is None
    assert decode_amnesia(encode_amnesia(amnesia)) == amnesia
    assert decode_amnesia(encode_amnesia(Amnesia(quorum_is_new=False))) == Amnesia(quorum_is_new=False)


@pytest.mark.parametrize(
    "content", [b"", b"{}", b"[]", b'{"data_version":1}', b'{"data_version":0,"quorumIsNew":true,"helped":[{}]}']
)
def test_what_cannot_be_read_is_not_guessed_at(content: bytes) -> None:
    with pytest.raises(BadAmnesia):
        decode_amnesia(content)
