"""The active controller's eye on brokers: who has been silent for a whole session, and whose process is gone.

A process that dies takes its connections and its ports with it. So when the connection that a broker heartbeats on is
lost and its listeners refuse, it is known to be dead and need not be waited for; one that is only silent (stopped, or
behind a cut) has its session. A new controller has no such connections yet: it looks at the ports of all whom it has
not heard of, again and again until it has, or their sessions end.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from odradek.ids import NodeId
from odradek.metadata.controller.sessions import BrokerSessions
from odradek.metadata.image import Image
from odradek.metadata.image.cluster import BrokerRegistration, Endpoint
from odradek.ports import Wire, World
from odradek.protocol.errors import KafkaError
from odradek.server.decision_queue import note_outcome

log = logging.getLogger(__name__)

PROBE_TIMEOUT_MS = 1_000
PROBE_EVERY_MS = 500
FIRST_PAUSE_MS = 5
"""Before the second look at a broker whose connection was lost; then twice as long each time, up to the above."""
TURNED_AWAY_MS = 200
"""A node that does not serve yet closes what it accepts at once; after this long it is taken for one that serves."""
STALL_MS = 500
"""A timer that is later than this says that this node stood still, so that it may have missed heartbeats."""
RETRY_MS = 1_000
"""How soon a fencing that could not be written (the disk is full) is tried again."""

Fence = Callable[[NodeId, int, str], Awaitable[None]]


class BrokerWatch:
    """Keeps one timer for all sessions, and a probe for each broker whose connection was lost."""

    def __init__(self, world: World, sessions: BrokerSessions, *, image: Callable[[], Image], fence: Fence) -> None:
        """`fence` makes the decision, for a broker and its epoch, and says why in the log."""
        self._clock = world.clock
        self._network = world.network
        self._sessions = sessions
        self._image = image
        self._fence = fence
        self._active = False
        self._timer: asyncio.TimerHandle | None = None
        self._due_ms = 0
        self._connections: dict[NodeId, tuple[int, object]] = {}
        """Which connection, of which incarnation, a broker heartbeats on."""
        self._claimed: dict[NodeId, None] = {}
        """Ids whose brokers are being looked for because others want them."""
        self._tasks: dict[asyncio.Task[None], None] = {}

    def start(self) -> None:
        self._active = True
        self._arm()
        if self._sessions.unheard():
            self._run(self._look_for_unheard())

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

    # Connections.

    def heartbeat_on(self, broker_id: NodeId, broker_epoch: int, connection: object) -> bool:
        """Note where a broker speaks; whether that is another place than before."""
        if self._connections.get(broker_id) == (broker_epoch, connection):
            return False
        self._connections[broker_id] = (broker_epoch, connection)
        return True

    def connection_lost(self, broker_id: NodeId, broker_epoch: int, connection: object) -> None:
        if not self._active or self._connections.get(broker_id) != (broker_epoch, connection):
            return
        del self._connections[broker_id]
        broker = self._image().cluster.brokers.get(broker_id)
        if broker is not None and broker.broker_epoch == broker_epoch:
            self._run(self._look_for(broker))

    async def _look_for(self, broker: BrokerRegistration) -> None:
        """A process that dies closes its sockets one by one, so its listeners may outlive its connections by a moment.

        Hence more than one look, less and less often, until it is known to be dead, or speaks, or its session ends.
        """
        pause_ms = FIRST_PAUSE_MS
        while True:
            await self._probe(broker)
            await asyncio.sleep(pause_ms / 1000)
            pause_ms = min(2 * pause_ms, PROBE_EVERY_MS)
            known = self._image().cluster.brokers.get(broker.broker_id)
            is_missed = known is not None and known.broker_epoch == broker.broker_epoch and not known.fenced
            if not self._active or not is_missed or broker.broker_id in self._connections:
                return

    async def _look_for_unheard(self) -> None:
        while self._active and (unheard := self._sessions.unheard()):
            brokers = self._image().cluster.brokers
            for broker_id, broker_epoch in unheard:
                broker = brokers.get(broker_id)
                if broker is not None and broker.broker_epoch == broker_epoch:
                    self._run(self._probe(broker))
            await asyncio.sleep(PROBE_EVERY_MS / 1000)

    def claimed(self, broker: BrokerRegistration, endpoints: tuple[Endpoint, ...]) -> None:
        """Another process wants the id of a broker, and will be reached at `endpoints`.

        Where those are the broker's own, only one of the two can be behind them: if whoever is there turns everybody
        away, as a node does before it is registered, and the broker was not heard of, the broker is gone.
        """
        if broker.broker_id in self._claimed:
            return
        self._claimed[broker.broker_id] = None
        same_place = endpoints == broker.endpoints
        unheard = not self._sessions.has_spoken(broker.broker_id, broker.broker_epoch)
        self._run(self._probe(broker, turned_away_counts=same_place and unheard))

    async def _probe(self, broker: BrokerRegistration, *, turned_away_counts: bool = False) -> None:
        broker_id, broker_epoch = broker.broker_id, broker.broker_epoch
        try:
            for endpoint in broker.endpoints:
                if not await self._nobody_at(endpoint, turned_away_counts=turned_away_counts):
                    return
        finally:
            self._claimed.pop(broker_id, None)
        if broker_id in self._connections:
            return  # It has spoken again meanwhile.
        known = self._image().cluster.brokers.get(broker_id)
        if not broker.endpoints or known is None or known.broker_epoch != broker_epoch:
            return
        self._sessions.end(broker_id)
        await self._fence_until_done(broker_id, broker_epoch, "nobody is at its listeners any more")

    async def _nobody_at(self, endpoint: Endpoint, *, turned_away_counts: bool) -> bool:
        """Only a refusal tells of a dead process: silence may be the network's."""
        probes: list[_Probe] = []
        try:
            async with asyncio.timeout(PROBE_TIMEOUT_MS / 1000):
                wire = await self._network.connect(endpoint.host, endpoint.port, lambda wire: _own(wire, probes))
        except ConnectionRefusedError:
            return True
        except (OSError, TimeoutError):
            return False
        try:
            if not turned_away_counts:
                return False
            async with asyncio.timeout(TURNED_AWAY_MS / 1000):
                await probes[0].closed.wait()
            return True
        except TimeoutError:
            return False
        finally:
            wire.close()

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
        for broker_id, broker_epoch in self._sessions.expired(now_ms=now_ms):
            self._run(self._fence_until_done(broker_id, broker_epoch, "its session has timed out"))
        self._arm()

    async def _fence_until_done(self, broker_id: NodeId, broker_epoch: int, why: str) -> None:
        while self._active:
            try:
                await self._fence(broker_id, broker_epoch, why)
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


class _Probe:
    """The owner of a connection that was only made to see whether it can be, and whether it stays."""

    def __init__(self) -> None:
        self._room = memoryview(bytearray(64))
        self.closed = asyncio.Event()

    def buffer(self) -> memoryview:
        return self._room

    def received(self, count: int) -> None:
        """Nothing was asked for."""

    def drained(self) -> None:
        """Nothing is sent."""

    def lost(self, why: Exception | None) -> None:
        self.closed.set()


def _own(_wire: Wire, probes: list[_Probe]) -> _Probe:
    probes.append(_Probe())
    return probes[-1]
