"""Who votes: the voter set, as configured, as recorded in the log, and as given to the formatting tool."""

from __future__ import annotations

from odradek.ids import ZERO_UUID, NodeId, Uuid, parse_uuid, uuid_text
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
    listeners: tuple[tuple[str, str, int], ...] = ()
    """Name, host and port of each, where there are several; `host` and `port` are those of the one to use."""
    kraft_versions: tuple[int, int] = (0, 1)
    """The lowest and the highest kraft.version it can work with."""

    @property
    def key(self) -> ReplicaKey:
        return ReplicaKey(self.node_id, self.directory_id)


@value
class ReplicaKey:
    """Who fetches or votes: the same id with another directory has lost what it had, so it is another (KIP-853)."""

    node_id: NodeId
    directory_id: Uuid = ZERO_UUID

    def __str__(self) -> str:
        return f"{self.node_id} ({uuid_text(self.directory_id)})"

    def matches(self, other: ReplicaKey) -> bool:
        """Whether both are one; whoever does not tell a directory is known by its id alone."""
        if self.node_id != other.node_id:
            return False
        return ZERO_UUID in (self.directory_id, other.directory_id) or self.directory_id == other.directory_id


class Membership:
    """Who votes, as the log says: kraft.version and the voters with the offsets of the records that say so.

    The newest record counts as soon as it is in the log, committed or not; a truncation takes it back. While
    kraft.version is 0 the configured voters count.
    """

    def __init__(self, static_voters: tuple[Voter, ...]) -> None:
        self.kraft_version = 0
        self.voters = static_voters
        self._static_voters = static_voters
        self._levels: list[tuple[int, int]] = []
        self._voters: list[tuple[int, tuple[Voter, ...]]] = []

    def _note_newest(self) -> None:
        self.kraft_version = self._levels[-1][1] if self._levels else 0
        if not self.kraft_version:
            self.voters = self._static_voters
        else:
            self.voters = self._voters[-1][1] if self._voters else ()

    @property
    def is_dynamic(self) -> bool:
        return self.kraft_version > 0

    @property
    def voters_offset(self) -> int:
        """Where the newest voters stand in the log; -1 if a snapshot or nothing but the configuration names them."""
        return self._voters[-1][0] if self._voters else -1

    def voter(self, node_id: int) -> Voter | None:
        for voter in self.voters:
            if voter.node_id == node_id:
                return voter
        return None

    def is_voter(self, key: ReplicaKey) -> bool:
        voter = self.voter(key.node_id)
        return voter is not None and voter.key.matches(key)

    def level_appended(self, offset: int, kraft_version: int) -> None:
        self._levels.append((offset, kraft_version))
        self._note_newest()

    def voters_appended(self, offset: int, voters: tuple[Voter, ...]) -> None:
        self._voters.append((offset, voters))
        self._note_newest()

    def as_of(self, end_offset: int) -> tuple[int, tuple[Voter, ...]]:
        """kraft.version and the recorded voters below that offset, for a snapshot of it."""
        level = [held for offset, held in self._levels if offset < end_offset]
        voters = [held for offset, held in self._voters if offset < end_offset]
        return (level[-1] if level else 0), (voters[-1] if voters else ())

    def loaded(self, kraft_version: int, voters: tuple[Voter, ...]) -> None:
        """A snapshot stands for everything before it."""
        self._levels = [(-1, kraft_version)] if kraft_version else []
        self._voters = [(-1, voters)] if voters else []
        self._note_newest()

    def truncated(self, end_offset: int) -> None:
        self._levels = [entry for entry in self._levels if entry[0] < end_offset]
        self._voters = [entry for entry in self._voters if entry[0] < end_offset]
        self._note_newest()


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
