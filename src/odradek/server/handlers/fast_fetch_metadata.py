"""Fetch of the metadata log by the fast path: a follower that is known asks for what comes next, and mostly waits.

Every follower asks several times a second, so this is most of what an idle controller does. A request whose shape is
known is neither decoded nor handled by a coroutine, and while it waits it is one small object.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from odradek.ids import NodeId
from odradek.metadata.raft.fetch_forms import VERSION, AnswerForm, is_plain, read_request
from odradek.metadata.raft.state import READ_ON, FetchVerdict
from odradek.metadata.raft.voters import ReplicaKey
from odradek.protocol.codec import decoder, encode
from odradek.protocol.frame import response_frame
from odradek.protocol.messages.fetch import FetchRequest
from odradek.server.quorum.reads import MAX_BYTES, MAX_WAIT_MS, KnownFollower, answer, read_for
from odradek.server.waiting.deferred import Deferred

if TYPE_CHECKING:
    from odradek.server.net.routes import FastAnswer, FastPath
    from odradek.server.quorum.quorum import Quorum
    from odradek.server.rooms import Rooms

MAX_SHAPES = 1_000
"""So many followers are known; were there more, they would be learnt anew."""


class WaitingFetch(Deferred[bytes]):
    """A fetch that is answered when the log or its high watermark has moved, or when its time is up."""

    __slots__ = ("_deadline_ms", "_epoch", "_fetch_offset", "_follower", "_high_watermark", "_last_epoch", "_rooms")

    def __init__(
        self, rooms: Rooms, follower: KnownFollower, numbers: tuple[int, int, int, int], deadline_ms: int
    ) -> None:
        super().__init__()
        self._rooms = rooms
        self._follower = follower
        self._epoch, self._fetch_offset, self._last_epoch, self._high_watermark = numbers
        self._deadline_ms = deadline_ms
        self.asked: tuple[FetchVerdict, bytes] | None = None
        """What was found."""
        self.frame = _frame

    def look(self, now_ms: int) -> bool:
        """Whether there is something to answer by now."""
        quorum, follower = self._rooms.quorum, self._follower
        self.asked = verdict, records = read_for(
            quorum,
            follower.key,
            epoch=self._epoch,
            fetch_offset=self._fetch_offset,
            last_fetched_epoch=self._last_epoch,
            max_bytes=follower.max_bytes,
            now_ms=now_ms,
        )
        return bool(
            records or quorum.high_watermark > self._high_watermark or not verdict.stays or now_ms >= self._deadline_ms
        )

    def wake(self) -> None:
        if self.on_done is None:
            self.is_done = True  # Its connection is gone, and asks no more.
            return
        try:
            found = self.look(self._rooms.world.clock.monotonic_ms())
        except Exception as failure:  # noqa: BLE001 - its connection has to judge it, not who moved the log
            self.fail(failure)
            return
        if self.is_done:
            return  # What it told of its follower moved the high watermark, and that woke it once more.
        if found:
            self.complete(b"")
        else:
            self._rooms.quorum.commits.park(self)

    expire = wake

    def found(self, correlation_id: int) -> bytes:
        """The answer."""
        self.result()
        assert self.asked is not None
        verdict, records = self.asked
        quorum = self._rooms.quorum
        if verdict is not READ_ON:
            body = encode(answer(quorum, verdict, records), VERSION)
            return b"".join(response_frame(correlation_id, [body], header_version=1))  # type: ignore[arg-type]
        standing = quorum.raft.standing
        form = quorum.answer_form
        if form is None or form.standing is not standing:
            form = quorum.answer_form = AnswerForm(standing)
        return form.frame(correlation_id, quorum.raft.high_watermark, quorum.log.log_start_offset, records)


def _frame(deferred: Deferred[bytes], correlation_id: int) -> bytes:
    assert isinstance(deferred, WaitingFetch)
    return deferred.found(correlation_id)


def fast_fetch(version: int, _: str) -> FastPath | None:
    """For the one version whose bytes are known."""
    return _fast if version == VERSION else None


def _fast(rooms: Rooms, frame: memoryview, position: int, correlation_id: int) -> FastAnswer:
    quorum = rooms.quorum
    read = read_request(frame, position)
    if read is None:
        return None
    shape, epoch, fetch_offset, last_epoch, high_watermark = read
    follower = quorum.known_followers.get(shape)
    if follower is None:
        if not is_plain(shape):
            return None
        request, _ = decoder(FetchRequest, VERSION)(frame, position)
        follower = _known(quorum, request)
        if follower is None:
            return None
        if len(quorum.known_followers) >= MAX_SHAPES:
            quorum.known_followers.clear()
        quorum.known_followers[shape] = follower
    if fetch_offset < 0 or not 0 <= last_epoch <= epoch:
        return None
    now_ms = rooms.world.clock.monotonic_ms()
    numbers = (epoch, fetch_offset, last_epoch, high_watermark)
    waiting = WaitingFetch(rooms, follower, numbers, now_ms + follower.max_wait_ms)
    if waiting.look(now_ms):
        return waiting.found(correlation_id)
    rooms.purgatory.watch(waiting, timeout_ms=follower.max_wait_ms)
    quorum.commits.park(waiting)
    return waiting


def _known(quorum: Quorum, request: FetchRequest) -> KnownFollower | None:
    """None for one that is not a follower of this log, or that the generic path has to refuse."""
    replica_id = request.replica_state.replica_id
    if request.cluster_id not in (None, quorum.cluster_id) or replica_id < 0 or request.max_wait_ms < 0:
        return None
    directory_id = request.topics[0].partitions[0].replica_directory_id
    return KnownFollower(
        ReplicaKey(NodeId(replica_id), directory_id),
        min(request.max_wait_ms, MAX_WAIT_MS),
        min(request.max_bytes, MAX_BYTES),
    )
