"""The file `quorum-state`, byte for byte as Apache Kafka 4.3.1 writes it."""

from __future__ import annotations

import pytest

from odradek.ids import LeaderEpoch, NodeId
from odradek.metadata.raft.quorum_state import BadQuorumState, QuorumState, decode_quorum_state, encode_quorum_state

STATIC = (
    b'{"clusterId":"","leaderId":1,"leaderEpoch":1,"votedId":-1,"appliedOffset":0,"currentVoters":[{"voterId":1}],'
    b'"data_version":0}'
)
DYNAMIC = b'{"leaderId":1,"leaderEpoch":4,"votedId":-1,"votedDirectoryId":"AAAAAAAAAAAAAAAAAAAAAA","data_version":1}'


def test_static_voters() -> None:
    state = QuorumState(leader_id=NodeId(1), leader_epoch=LeaderEpoch(1))
    assert encode_quorum_state(state, kraft_version=0, voters=(NodeId(1),)) == STATIC
    assert decode_quorum_state(STATIC) == state


def test_dynamic_voters() -> None:
    state = QuorumState(leader_id=NodeId(1), leader_epoch=LeaderEpoch(4))
    assert encode_quorum_state(state, kraft_version=1, voters=(NodeId(1),)) == DYNAMIC
    assert decode_quorum_state(DYNAMIC) == state


@pytest.mark.parametrize(
    "content",
    [b"", b"{}", b"[]", b"nonsense", b'{"data_version":2}', STATIC.replace(b'"leaderEpoch":1', b'"leaderEpoch":"x"')],
)
def test_a_damaged_file_is_not_guessed_at(content: bytes) -> None:
    with pytest.raises(BadQuorumState, match="quorum-state"):
        decode_quorum_state(content)
