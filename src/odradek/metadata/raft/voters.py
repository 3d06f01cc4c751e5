"""Who votes: the voter set, as configured, as recorded in the log, and as given to the formatting tool."""

from __future__ import annotations

from odradek.ids import ZERO_UUID, NodeId, Uuid, parse_uuid
from odradek.values import value


class BadVoters(Exception):
    """A text that names voters cannot be understood, or asks for what this node cannot do."""


@value
class Voter:
    """One controller that counts. A static voter has no directory id: it is who its id says."""

    node_id: NodeId
    host: str
    port: int
    directory_id: Uuid = ZERO_UUID


def parse_initial_controllers(text: str) -> tuple[Voter, ...]:
    """`--initial-controllers`: `0@host:9093:JEXY6aqzQY-32P5TStzaFg,…`."""
    voters = []
    for item in filter(None, (part.strip() for part in text.split(","))):
        node_id, _, rest = item.partition("@")
        address, _, directory = rest.rpartition(":")
        host, _, port = address.rpartition(":")
        try:
            directory_id = parse_uuid(directory)
        except ValueError as wrong:
            raise BadVoters(f"--initial-controllers: {item!r}: {wrong}.") from wrong
        if not node_id.isdecimal() or not port.isdecimal() or not host:
            raise BadVoters(
                f"--initial-controllers: {item!r} is not of the form id@hostname:port:directory, for example "
                "0@example.com:8082:JEXY6aqzQY-32P5TStzaFg."
            )
        voters.append(Voter(NodeId(int(node_id)), host.strip("[]"), int(port), directory_id))
    if not voters:
        raise BadVoters("--initial-controllers names nobody.")
    return _checked(tuple(voters), "--initial-controllers")


def _checked(voters: tuple[Voter, ...], where: str) -> tuple[Voter, ...]:
    ids = [voter.node_id for voter in voters]
    for node_id in ids:
        if ids.count(node_id) > 1:
            raise BadVoters(f"{where} names node {node_id} more than once.")
    return voters
