"""Fetch, versions 4 to 18: long poll and fetch sessions (KIP-227), for consumers and followers.

Records leave as slices of log files. A request that finds too little waits until enough was committed (a follower:
appended) or its time is up; one that meets an error is answered at once. What is not in memory is read by a worker,
never by the loop. The offset that a follower asks for tells its leader what it has. Consumers of version 11 and above
may read from followers, and are sent to one in their rack (KIP-392) if `replica.selector.class` says so.
"""

from __future__ import annotations

from collections.abc import Callable

from odradek.ids import NodeId
from odradek.protocol.api import ApiKey
from odradek.protocol.errors import KafkaError
from odradek.protocol.messages.fetch import FetchRequest, FetchResponse
from odradek.replication.fetch_forms import VERSION, ending_of
from odradek.security.acl import Operation, ResourceType
from odradek.server.access.authorizer import allowed, topic_check
from odradek.server.handlers.context import Context
from odradek.server.handlers.fast_fetch import fast_fetch
from odradek.server.handlers.leader_hints import name_fetch_leaders
from odradek.server.net.routes import Role, serves
from odradek.server.partitions.fetch_sessions import FetchSession
from odradek.server.partitions.reads import Collector, Reader

_READS_FROM_FOLLOWERS_VERSION = 11
_REPLICA_STATE_VERSION = 15
_LEADER_VERSION = 16


@serves(ApiKey.FETCH, on=Role.BROKER, fast_path=fast_fetch, unmetered=True)
async def handle(ctx: Context, request: FetchRequest) -> FetchResponse:
    rooms = ctx.rooms
    sessions = rooms.fetch_sessions
    reader = _reader(ctx, request)
    try:
        session, incremental = sessions.open(request, ctx.api_version, rooms.replicas, replica_id=reader.replica_id)
    except KafkaError as error:
        return FetchResponse(error_code=error.code, session_id=0)
    if reader.replica_id >= 0 and ctx.api_version == VERSION:
        _learn(session, reader)
        ctx.listener.connections[ctx.caller.connection_id].widen()
    collector = Collector(
        session,
        rooms.replicas,
        reader,
        max_bytes=min(request.max_bytes, rooms.config.fetch_max_bytes),
        visible=session.visible,
        may_read=_permission(ctx, reader),
    )
    try:
        collector.collect()
        min_bytes = min(request.min_bytes, collector.max_bytes)
        # A Fetch that wants nothing has nothing to wait for: consumers end a session with one, and wait for the answer.
        waits = request.max_wait_ms > 0 and bool(session.partitions)
        if waits and collector.size < min_bytes and not collector.urgent:
            await _wait(ctx, session, collector, min_bytes=min_bytes, max_wait_ms=request.max_wait_ms)
        if collector.has_cold_slices():
            await collector.warm(rooms.world.workers)
    finally:
        sessions.done(session)
    response = FetchResponse(session_id=session.id, responses=collector.answer(incremental=incremental))
    if collector.failed and ctx.api_version >= _LEADER_VERSION:
        name_fetch_leaders(response, rooms.image, ctx.caller.listener)
    return response


def _reader(ctx: Context, request: FetchRequest) -> Reader:
    version = ctx.api_version
    state = request.replica_state
    return Reader(
        replica_id=NodeId(state.replica_id if version >= _REPLICA_STATE_VERSION else request.replica_id),
        broker_epoch=state.replica_epoch if version >= _REPLICA_STATE_VERSION else -1,
        may_read_followers=version >= _READS_FROM_FOLLOWERS_VERSION,
        rack=request.rack_id,
        listener_name=ctx.caller.listener,
    )


def _learn(session: FetchSession, follower: Reader) -> None:
    """Its next requests can be read by the fast path."""
    if session.ending is None or session.broker_epoch != follower.broker_epoch:
        session.broker_epoch = follower.broker_epoch
        session.ending = ending_of(follower.replica_id, follower.broker_epoch)


def _permission(ctx: Context, reader: Reader) -> Callable[[str], bool] | None:
    if reader.replica_id < 0:
        return topic_check(ctx.caller, Operation.READ)
    return None if allowed(ctx.caller, Operation.CLUSTER_ACTION, ResourceType.CLUSTER) else lambda topic: False


async def _wait(ctx: Context, session: FetchSession, collector: Collector, *, min_bytes: int, max_wait_ms: int) -> None:
    """Look again when there may be enough, or the quota may have room for what it held back, until the time is up."""
    clock = ctx.rooms.world.clock
    left_ms = max_wait_ms
    deadline_ms = clock.monotonic_ms() + max_wait_ms
    while left_ms > 0 and collector.size < min_bytes and not collector.urgent:
        waiter = ctx.rooms.purgatory.park(timeout_ms=min(left_ms, collector.excess_ms or left_ms))
        session.park(waiter, min_bytes - collector.size)
        try:
            await waiter
        finally:
            is_over = session.waiter is not waiter or session.must_answer
            if session.waiter is waiter:
                session.waiter = None
        collector.collect(has_waited=True)
        if is_over:
            break
        left_ms = deadline_ms - clock.monotonic_ms()
