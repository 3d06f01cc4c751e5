"""The file `lost-promises`: this voter found no `quorum-state`, so it may once have promised what it does not know now.

A voter of a static quorum that comes back with an empty disk is taken for what it was (KIP-853 is Kafka's answer, and
holds for dynamic quorums only). The file is on the device before its first promise and goes when nothing can be missing
any more, so that a voter does not forget at its second start that it has forgotten: ADR 18.
"""

from __future__ import annotations

import json

from odradek.ids import LeaderEpoch, NodeId
from odradek.values import replace, value

AMNESIA_FILE = "lost-promises"


class BadAmnesia(Exception):
    """The file is there and makes no sense."""


@value
class Amnesia:
    """What a voter knows that has forgotten what it promised."""

    quorum_is_new: bool = True
    """Whether, for all it knows, nobody has anything yet: then it may help to begin."""
    helped: tuple[tuple[NodeId, LeaderEpoch], ...] = ()
    """Whom it has given its vote since, each with an empty log, and in which epoch the last time."""

    def has_helped(self, node_id: NodeId) -> LeaderEpoch | None:
        """In which epoch it voted for that node the last time."""
        return dict(self.helped).get(node_id)

    def helps(self, node_id: NodeId, epoch: LeaderEpoch) -> Amnesia:
        """It votes for that node now."""
        return replace(self, helped=tuple(sorted({**dict(self.helped), node_id: epoch}.items())))


def encode_amnesia(amnesia: Amnesia) -> bytes:
    """The file's content; Kafka has no such file, and ignores it."""
    helped = [{"voterId": node_id, "leaderEpoch": epoch} for node_id, epoch in amnesia.helped]
    fields = {"quorumIsNew": amnesia.quorum_is_new, "helped": helped, "data_version": 0}
    return json.dumps(fields, separators=(",", ":")).encode()


def decode_amnesia(content: bytes) -> Amnesia:
    """BadAmnesia where it cannot be read."""
    try:
        fields = json.loads(content)
        if fields["data_version"] != 0:
            raise BadAmnesia(f"{AMNESIA_FILE} has data_version {fields['data_version']}; 0 is known")
        helped = tuple(
            [(NodeId(int(each["voterId"])), LeaderEpoch(int(each["leaderEpoch"]))) for each in fields["helped"]]
        )
        return Amnesia(bool(fields["quorumIsNew"]), helped)
    except (ValueError, KeyError, TypeError) as wrong:
        raise BadAmnesia(f"{AMNESIA_FILE} cannot be read: {wrong!r}") from wrong
