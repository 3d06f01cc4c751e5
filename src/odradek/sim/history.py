"""What clients saw, and where several nodes agree on something what each of them came to know, in order: all that a
checker may judge by."""

from __future__ import annotations

from typing import NamedTuple, TypeAlias, TypeVar

from odradek.ids import Uuid, uuid_text
from odradek.metadata.image import Image
from odradek.values import value

KnownT = TypeVar("KnownT")


@value
class Partition:
    """A topic's name and a partition's number, and where several topics have that name in turn, its topic's id."""

    topic: str
    index: int
    topic_id: Uuid | None = None

    def __str__(self) -> str:
        name = f"{self.topic}-{self.index}"
        return name if self.topic_id is None else f"{name} of {uuid_text(self.topic_id)}"

    def __hash__(self) -> int:
        return hash((self.topic, self.index, self.topic_id))


GROUPS = Partition("__consumer_offsets", 0)
"""Where groups and their offsets are kept; what holds of one partition of it holds of all."""


NO_GENERATION = -1
"""Of a group whose generations have no numbers of their own."""


@value
class Sent:
    """A producer sent a batch, perhaps not for the first time."""

    producer: str
    partition: Partition
    records: tuple[bytes, ...]
    again: bool


@value
class Acknowledged:
    """A producer was told that its batch is in the log; offset -1 where the broker only said that it is there."""

    producer: str
    partition: Partition
    offset: int
    records: tuple[bytes, ...]
    again: bool


@value
class Rejected:
    """A producer was told an error that it cannot retry."""

    producer: str
    partition: Partition
    error: str
    records: tuple[bytes, ...]


@value
class Read:
    """A consumer got records; `final` where it reads everything once all faults are over."""

    consumer: str
    partition: Partition
    offset: int
    records: tuple[bytes, ...]
    final: bool = False


@value
class Bounds:
    """Somebody asked where a log starts and ends; the question left when the history had `asked_at` events.

    Where it has several replicas, `observer` says who asked: a leader that was replaced and does not know it yet may
    tell an old end, though not to whom knows of its successor.
    """

    partition: Partition
    log_start_offset: int
    log_end_offset: int
    asked_at: int
    final: bool = False
    observer: str = ""


@value
class TrimSent:
    """Somebody is about to ask that all before an offset be deleted."""

    partition: Partition
    number: int
    before: int


@value
class TrimAnswered:
    """The question was answered, one way or the other: nothing of it is under way any more."""

    number: int


@value
class Unpromised:
    """Stands in a history in the place of what clients heard of a partition that may lose it."""


@value
class ProcessCrashed:
    """The node was killed: what it had written is kept."""

    node: str = ""


@value
class PowerLost:
    """The machine went down: what was not synced may be gone."""

    node: str = ""


@value
class DiskFilled:
    """The disk begins to refuse writes, for a while."""


@value
class Restarted:
    """The node was stopped in order and started again."""

    node: str = ""


@value
class Owns:
    """A member of a group took exactly these partitions; none, where it gave up what it had.

    Generations are told apart by number, where it is not NO_GENERATION. The owner is the instance id of a static
    member, which is one owner whatever member ids it gets, and else the member. Until `lease_ms` the member may believe
    that nobody else owns them; 0 where it does not know.
    """

    group: str
    owner: str
    member: str
    generation_id: int
    partitions: tuple[Partition, ...]
    at_ms: int
    lease_ms: int = 0


@value
class Departed:
    """A member will not be heard of again; `orderly` where it told the group so."""

    group: str
    owner: str
    member: str
    orderly: bool


@value
class CommitSent:
    """A member is about to commit an offset, under a name that no other commit has."""

    group: str
    partition: Partition
    offset: int
    name: str


@value
class CommitAcknowledged:
    """A member was told that its commit is stored."""

    group: str
    member: str
    generation_id: int
    partition: Partition
    offset: int
    name: str


@value
class OffsetRead:
    """Somebody was told a group's offset (-1: there is none) and the name of the commit that it is from.

    The question left when the history had `asked_at` events.
    """

    group: str
    partition: Partition
    offset: int
    name: str
    asked_at: int


@value
class Settled:
    """How a group stood once nothing had gone wrong for long enough: its state, and what its members say they own."""

    group: str
    state: str
    partitions: tuple[Partition, ...]
    owned: tuple[tuple[str, tuple[Partition, ...]], ...]
    waited_s: float


class Fact(NamedTuple):
    """Something that metadata says or does not say; `facts.find` looks it up in an image."""

    kind: str
    name: str
    key: str = ""

    def __str__(self) -> str:
        return " ".join(filter(None, self))


class Batch(NamedTuple):
    """A batch of the metadata log, told apart by what its header says of it."""

    base_offset: int
    last_offset: int
    epoch: int
    crc: int


@value
class LeaderKnown:
    """A node came to know who leads an epoch, or of an epoch without knowing its leader (-1)."""

    node_id: int
    life: int
    epoch: int
    leader_id: int


@value
class Promised:
    """A node has put on its device which epoch it is in, and whom it votes for in it (-1: nobody, or nobody yet)."""

    node_id: int
    epoch: int
    voted_id: int


@value
class DiskLost:
    """A node has an empty disk now: what it promised and knew is gone, with its logs."""

    node_id: int


@value
class Committed:
    """A node came to know that batches of the metadata log are committed, and has them in its image.

    Where it loaded a snapshot, the batches before it are not told again. A broker tells under which incarnation id it
    registers, which another process with its node id does not have.
    """

    node_id: int
    life: int
    batches: tuple[Batch, ...]
    image: Image
    incarnation_id: Uuid | None = None


@value
class Truncated:
    """A node cut its metadata log there."""

    node_id: int
    end_offset: int


@value
class ChangeSent:
    """A client is about to ask for a change of metadata, after which a fact is `wanted` (None: gone)."""

    client: str
    number: int
    fact: Fact
    wanted: str | None


@value
class ChangeAnswered:
    """The client was told that its change is done."""

    client: str
    number: int


@value
class ProducerIdGiven:
    """A client was given a producer id."""

    client: str
    producer_id: int


@value
class TakenForDead:
    """A controller fenced a broker, or gave its id to another process; `silent_ms` since it had heard of it last.

    A new controller hears of everybody when it begins. Whether the broker's process was `alive`, only the world knows.
    """

    controller_id: int
    broker_id: int
    broker_epoch: int
    silent_ms: int
    session_ms: int
    alive: bool


@value
class NodeView:
    """A node, and the cluster as it sees it; a dead one sees nothing."""

    node_id: int
    is_broker: bool
    alive: bool
    leader_id: int
    epoch: int
    image: Image | None


@value
class QuorumSettled:
    """How a cluster stood once nothing had gone wrong for long enough, and whether it then answered a change."""

    nodes: tuple[NodeView, ...]
    waited_s: float
    answers: bool


@value
class WatermarkSeen:
    """Where the high watermark of a partition was on the node that leads it."""

    node: str
    life: int
    partition: Partition
    leader_epoch: int
    high_watermark: int


@value
class ReplicaHolds:
    """What a replica holds below its high watermark, once all have caught up."""

    node: str
    partition: Partition
    log_start_offset: int
    high_watermark: int
    records: tuple[tuple[int, bytes], ...]


class LoggedBatch(NamedTuple):
    """A batch of a partition's log, as far as transactions are concerned; `ends` says how a marker ends one."""

    base_offset: int
    last_offset: int
    producer_id: int
    producer_epoch: int
    transactional: bool
    ends: str = ""
    """`commit` or `abort`, of a marker."""
    records: tuple[bytes, ...] = ()


@value
class TransactionSent:
    """A producer is about to send a record in a transaction, whose name stands in front of the record."""

    transaction: str
    partition: Partition
    record: bytes


@value
class TransactionEnding:
    """A producer is about to ask that its transaction end this way."""

    transaction: str
    committed: bool


@value
class TransactionEnded:
    """A producer was told how its transaction has ended."""

    transaction: str
    committed: bool


@value
class FencedSent:
    """Somebody who is fenced is about to send a record."""

    partition: Partition
    record: bytes


@value
class FencedHeard:
    """Somebody who is fenced was told that this was done for him."""

    name: str
    what: str


@value
class CommittedRead:
    """A consumer of committed records alone got these, by offset; `final` where it reads once all is over."""

    consumer: str
    partition: Partition
    records: tuple[tuple[int, bytes], ...]
    final: bool = False


@value
class StableSeen:
    """Where the last stable offset and the high watermark of a partition were on the node that leads it."""

    node: str
    partition: Partition
    leader_epoch: int
    log_start_offset: int
    last_stable_offset: int
    high_watermark: int


@value
class LogHeld:
    """What the leader of a partition holds, once all is over."""

    partition: Partition
    log_start_offset: int
    log_end_offset: int
    last_stable_offset: int
    batches: tuple[LoggedBatch, ...]


@value
class InputConsumed:
    """How far a group has got with a partition whose records transactions copy, once all is over."""

    group: str
    partition: Partition
    offset: int


@value
class TransactionsSettled:
    """Which transactions, and which partitions, were still undecided when they had had time enough."""

    undecided: tuple[str, ...]
    waited_s: float


TransactionEvent: TypeAlias = (
    TransactionSent
    | TransactionEnding
    | TransactionEnded
    | FencedSent
    | FencedHeard
    | CommittedRead
    | StableSeen
    | LogHeld
    | InputConsumed
    | TransactionsSettled
)


@value
class TablePut:
    """A producer was told that these keys and values are in a compacted log, from this offset on, if it was told."""

    partition: Partition
    offset: int
    pairs: tuple[tuple[bytes, bytes | None], ...]


@value
class TableHeld:
    """What a replica of a compacted partition holds, once all have caught up: offset, key and value of each record."""

    node: str
    partition: Partition
    records: tuple[tuple[int, bytes, bytes | None], ...]


@value
class TableFollowed:
    """What somebody has made of a compacted partition who has read it all along, up to its end."""

    reader: str
    partition: Partition
    values: tuple[tuple[bytes, bytes], ...]


TableEvent: TypeAlias = TablePut | TableHeld | TableFollowed
ReplicaEvent: TypeAlias = WatermarkSeen | ReplicaHolds
GroupEvent: TypeAlias = Owns | Departed | CommitSent | CommitAcknowledged | OffsetRead | Settled
QuorumEvent: TypeAlias = (
    LeaderKnown
    | Promised
    | Committed
    | Truncated
    | ChangeSent
    | ChangeAnswered
    | ProducerIdGiven
    | TakenForDead
    | QuorumSettled
)
NodeEvent: TypeAlias = ProcessCrashed | PowerLost | DiskFilled | DiskLost | Restarted
ClientEvent: TypeAlias = Sent | Acknowledged | Rejected | Read | Bounds | TrimSent | TrimAnswered | Unpromised
Event: TypeAlias = ClientEvent | NodeEvent | GroupEvent | QuorumEvent | ReplicaEvent | TransactionEvent | TableEvent


class History:
    """Events, and which topics promise to survive a power loss (those with flush.messages=1).

    What topics promise that are known by id changes while they are there: `checkers.promised` tells. Where `synced`, a
    loss of power takes nothing from them either.
    """

    def __init__(self, durable_topics: tuple[str, ...], *, synced: bool = False) -> None:
        self.durable_topics = durable_topics
        self.synced = synced
        self.observers: tuple[str, ...] = ()
        """Nodes that never vote. They do not sync the metadata log: losing power may bring back what they had cut."""
        self.events: list[Event] = []

    def add(self, event: Event) -> None:
        self.events.append(event)

    def may_lose(self, partition: Partition, event: Event) -> bool:
        """Whether this event may have taken records of the partition that were there before."""
        durable = partition.topic_id is not None or partition.topic in self.durable_topics
        return isinstance(event, PowerLost) and not durable

    def forget_lost(self, known: dict[Partition, KnownT], event: Event) -> None:
        """Drop what is known of partitions that may have lost something by this event."""
        if isinstance(event, PowerLost):
            for partition in [partition for partition in known if self.may_lose(partition, event)]:
                del known[partition]
