"""The active controller's eye on brokers: who has been silent for a whole session, and whose process has ended.

A process that ends takes its connections and its ports with it, and its system says so to whoever holds the other end.
So a broker need not be waited for once its own connection to this controller was closed by its side, and every listener
at which this controller has reached it refuses now: ADR 17 says why both are needed, and what else is no evidence.
Whoever is heard of again lives, whatever else is seen. Everybody else has a session.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from odradek.ids import NO_NODE, NodeId, Uuid
from odradek.metadata.controller.sessions import BrokerSessions
from odradek.metadata.image import Image
from odradek.metadata.image.cluster import BrokerRegistration
from odradek.ports import World
from odradek.protocol.errors import KafkaError
from odradek.server.controller.decision_queue import note_outcome
from odradek.server.controller.reached_listeners import ReachedListeners

log = logging.getLogger(__name__)

LOOK_EVERY_MS = 500
FIRST_PAUSE_MS = 5
"""Before the second look at a broker whose connection was closed; then twice as long each time, up to the above."""
STALL_MS = 500
"""A timer that is later than this says that this node stood still, so that it may have missed heartbeats."""
RETRY_MS = 1_000
"""How soon a fencing that could not be written (the disk is full) is tried again."""

Fence = Callable[[NodeId, int, str, Callable[[], bool]], Awaitable[None]]
"""Makes the decision, for a broker and its epoch, and says why in the log; unless that does not hold any more then."""


class BrokerWatch:
    """Keeps one timer for all sessions, and looks at each broker whose process seems to have ended."""

    def __init__(
        self,
        world: World,
        sessions: BrokerSessions,
        reached: ReachedListeners,
        *,
        image: Callable[[], Image],
        fence: Fence,
        is_early: Callable[[], bool],
        myself: NodeId = NO_NODE,
    ) -> None:
        """`is_early` says whether anything but the end of a session counts; `myself` is the broker of this process."""
        self._clock = world.clock
        self._sessions = sessions
        self._reached = reached
        self._image = image
        self._fence = fence
        self._is_early = is_early
        self._myself = myself
        self._active = False
        self._timer: asyncio.TimerHandle | None = None
        self._due_ms = 0
        self._connections: dict[NodeId, tuple[int, object]] = {}
        """Which connection, of which incarnation, a broker heartbeats on."""
        self._stalls = 0
        self._from_before_stall: dict[NodeId, tuple[int, object]] = {}
        """Connections that were there when this node stood still: brokers that live have given them up meanwhile."""
        self._ended: dict[NodeId, tuple[int, int]] = {}
        """The epochs of brokers whose processes have closed a connection of another kind to this one, and when."""
        self._tasks: dict[asyncio.Task[None], None] = {}

    def start(self) -> None:
        self._active = True
        brokers = self._image().cluster.brokers
        early = self._is_early()
        now_ms = self._clock.monotonic_ms()
        self._sessions.start(brokers.values(), myself=self._myself if early else NO_NODE, now_ms=now_ms)
        self._arm()
        ended, self._ended = self._ended, {}
        for broker_id, (broker_epoch, ended_ms) in ended.items():
            broker = brokers.get(broker_id)
            is_same = broker is not None and broker.broker_epoch == broker_epoch
            if early and broker is not None and is_same and self._sessions.is_young(ended_ms, now_ms=now_ms):
                self._look_for(broker)

    def stop(self) -> None:
        self._active = False
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._connections.clear()
        for task in [*self._tasks]:
            task.cancel()

    def session_began(self) -> None:
        """There may be an earlier deadline than any before."""
        if self._active and self._timer is None:
            self._arm()

    # Evidence.

    def heartbeat_on(self, broker_id: NodeId, broker_epoch: int, connection: object) -> bool:
        """Note where a broker speaks; whether that is another place than before.

        What came before this controller was active does not count: whoever is told so may close its connection.
        """
        if not self._active:
            return False
        broker = self._image().cluster.brokers.get(broker_id)
        if broker is None or broker.broker_epoch != broker_epoch:
            return False  # Another process, which shall not stand in for the one that is registered.
        if self._connections.get(broker_id) == (broker_epoch, connection):
            return False
        self._connections[broker_id] = (broker_epoch, connection)
        return True

    def connection_lost(
        self, broker_id: NodeId, broker_epoch: int, connection: object, *, closed_by_peer: bool
    ) -> None:
        """The connection is gone; where the broker's side has closed it, its process may have ended.

        A process that lives closes it, too, once a heartbeat was not answered for a session or longer. So what comes
        late says nothing that the end of the session does not say soon.
        """
        if self._connections.get(broker_id) != (broker_epoch, connection):
            return
        del self._connections[broker_id]
        if self._from_before_stall.get(broker_id) == (broker_epoch, connection):
            return
        broker = self._image().cluster.brokers.get(broker_id)
        if broker is None or broker.broker_epoch != broker_epoch or not self._is_early():
            return
        heard_ms = self._sessions.heard_ms(broker_id)
        if closed_by_peer and self._sessions.is_young(heard_ms, now_ms=self._clock.monotonic_ms()):
            self._look_for(broker)

    def process_ended(self, node_id: NodeId) -> None:
        """The leader of the quorum has closed the connection on which this node followed it, and is not there any more.

        It counts for the broker of the same process: the one that has registered with the controller's incarnation id.
        """
        cluster = self._image().cluster
        broker, controller = cluster.brokers.get(node_id), cluster.controllers.get(node_id)
        if broker is not None and controller is not None and broker.incarnation_id == controller.incarnation_id:
            self._ended[node_id] = (broker.broker_epoch, self._clock.monotonic_ms())

    def is_succeeded(self, broker: BrokerRegistration, previous_epoch: int, log_dirs: list[Uuid]) -> bool:
        """Whether another process that asks for the id of a broker is proof that the broker's own has ended.

        It is if it took over all directories of that very life, which one process at a time can hold (ADR 12), and
        that life has no connection to this controller.
        """
        return (
            self._is_early()
            and previous_epoch == broker.broker_epoch
            and bool(broker.log_dirs)
            and sorted(log_dirs) == sorted(broker.log_dirs)
            and broker.broker_id not in self._connections
        )

    def _look_for(self, broker: BrokerRegistration) -> None:
        """What is heard of it from now on proves that it lives."""
        broker_id, broker_epoch = broker.broker_id, broker.broker_epoch
        heartbeats = self._sessions.heartbeats(broker_id, broker_epoch)
        stalls = self._stalls

        def is_silent() -> bool:
            if self._stalls != stalls:
                return False  # What was seen may be old, and what has come since not read yet.
            spoke = self._sessions.heartbeats(broker_id, broker_epoch) != heartbeats
            return self._active and not spoke and broker_id not in self._connections

        self._run(self._look_until(broker, is_silent))

    async def _look_until(self, broker: BrokerRegistration, is_silent: Callable[[], bool]) -> None:
        """A process that dies closes its sockets one by one, so its listeners may outlive its connections by a moment.

        Hence more than one look, less and less often, until it is known to be dead, or speaks, or its session ends.
        """
        pause_ms = FIRST_PAUSE_MS
        while is_silent() and self._is_missed(broker):
            if await self._is_gone(broker) and is_silent():
                why = "its process has ended: it closed its connection, and its listeners refuse"
                await self._fence_until_done(broker.broker_id, broker.broker_epoch, why, is_silent)
            await asyncio.sleep(pause_ms / 1000)
            pause_ms = min(2 * pause_ms, LOOK_EVERY_MS)

    def _is_missed(self, broker: BrokerRegistration) -> bool:
        known = self._image().cluster.brokers.get(broker.broker_id)
        return known is not None and known.broker_epoch == broker.broker_epoch and not known.fenced

    async def _is_gone(self, broker: BrokerRegistration) -> bool:
        """Whether every listener at which this controller has ever reached the broker refuses, and there is one."""
        reached = self._reached.of(broker)
        for endpoint in reached:
            if not await self._reached.refuses(endpoint):
                return False
        return bool(reached)

    # Time.

    def _arm(self) -> None:
        deadline_ms = self._sessions.next_deadline_ms()
        if deadline_ms is None:
            self._timer = None
            return
        self._due_ms = deadline_ms
        delay_ms = max(deadline_ms - self._clock.monotonic_ms(), 0)
        self._timer = asyncio.get_running_loop().call_later(delay_ms / 1000, self._look)

    def _look(self) -> None:
        now_ms = self._clock.monotonic_ms()
        late_ms = now_ms - self._due_ms
        if late_ms > STALL_MS:
            log.warning("Stood still for %d ms; the sessions of all brokers begin anew", late_ms)
            self._sessions.begin_anew(now_ms=now_ms)
            self._stalls += 1
            self._from_before_stall = dict(self._connections)
        for broker_id, broker_epoch in self._sessions.expired(now_ms=now_ms):
            self._run(self._fence_silent(broker_id, broker_epoch))
        self._arm()

    async def _fence_silent(self, broker_id: NodeId, broker_epoch: int) -> None:
        def is_silent() -> bool:
            return not self._sessions.alive(broker_id, broker_epoch, now_ms=self._clock.monotonic_ms())

        await self._fence_until_done(broker_id, broker_epoch, "its session has timed out", is_silent)

    async def _fence_until_done(
        self, broker_id: NodeId, broker_epoch: int, why: str, holds: Callable[[], bool]
    ) -> None:
        while self._active:
            try:
                await self._fence(broker_id, broker_epoch, why, holds)
                return
            except KafkaError as refused:
                log.error("Broker %d could not be fenced: %s", broker_id, refused)
                await asyncio.sleep(RETRY_MS / 1000)

    def _run(self, work: Awaitable[None]) -> None:
        task = asyncio.ensure_future(work)
        assert isinstance(task, asyncio.Task)
        self._tasks[task] = None
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.pop(task, None)
        note_outcome(task)
