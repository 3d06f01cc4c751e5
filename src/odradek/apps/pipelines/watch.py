"""Looks whether every broker is there, and where topics end, beside a run that is busy with other things."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Awaitable, Callable, Collection, Iterator
from contextlib import contextmanager
from typing import Never

from odradek.apps.pipelines.brokers import offsets_of
from odradek.apps.terminal.session import Session
from odradek.client.admin import Admin
from odradek.client.cluster import BrokerInfo, TopicPartition
from odradek.client.errors import ClientError
from odradek.protocol.errors import KafkaError
from odradek.protocol.messages.metadata import MetadataRequest, MetadataResponse

LOOK_S = 0.4
PATIENCE_S = 1.2
"""How long a broker may take to answer; with the pause between two looks it is under two seconds until that is said."""

LATE_S = 0.2
"""A machine that lets this process wait for so long may have done the same to a broker on it, which is not away."""

ENDS_S = 2.0
"""How often it is asked where topics end."""


class BrokerWatch:
    """What is known of the brokers now. `say` hears a sentence when one goes away and when it is back."""

    def __init__(
        self,
        session: Session,
        topics: Callable[[], Collection[str]],
        say: Callable[[str], None],
        *,
        topic_ids: Callable[[Admin], Awaitable[dict[str, str]]] | None = None,
        read_committed: bool = True,
    ) -> None:
        self._session = session
        self._topics = topics
        self._say = say
        self._ask_ids = topic_ids
        self._read_committed = read_committed
        self._known: dict[int, BrokerInfo] = {}
        self._away: dict[int, float] = {}
        self._needed: set[int] = set()
        self.ends: dict[TopicPartition, int] = {}
        """Where topics end, as of late."""

        self.topic_ids: dict[str, str] = {}
        """The ids of those that are read, as of late; nothing until they were asked for."""

    @contextmanager
    def watching(self) -> Iterator[None]:
        """While this holds, a thread looks."""
        loop = asyncio.new_event_loop()
        stopped = asyncio.Event()

        def look() -> None:
            with asyncio.Runner(loop_factory=lambda: loop) as runner:
                runner.run(self._look_until(stopped))

        thread = threading.Thread(target=look, name="pipeline-brokers", daemon=True)
        thread.start()
        try:
            yield
        finally:
            with contextlib.suppress(RuntimeError):  # The loop has ended already.
                loop.call_soon_threadsafe(stopped.set)
            thread.join()

    @property
    def away(self) -> str:
        """Those that do not answer, and nothing if all do. One that the cluster names no more is not waited for: others
        lead now what it led."""
        now = time.monotonic()
        gone = [(each, at) for each, at in dict(self._away).items() if each in self._needed]
        return "; ".join(f"{_where(self._known[each])}, away for {now - at:.0f} s" for each, at in gone)

    async def _look_until(self, stopped: asyncio.Event) -> None:
        async with self._session.admin() as admin:
            asking = [
                asyncio.ensure_future(_often(lambda: self._look(admin), LOOK_S)),
                asyncio.ensure_future(_often(lambda: self._ask_ends(admin), ENDS_S)),
            ]
            await asyncio.wait([*asking, asyncio.ensure_future(stopped.wait())], return_when=asyncio.FIRST_COMPLETED)
            for each in asking:
                each.cancel()
            for failed in await asyncio.gather(*asking, return_exceptions=True):
                if not isinstance(failed, asyncio.CancelledError):
                    raise failed

    async def _look(self, admin: Admin) -> None:
        """Once at everything. Brokers that the cluster names no more have left it, unless they were away before."""
        named = dict(admin.cluster.brokers)
        _, *answers = await asyncio.gather(_hear(admin), *(_answers(admin, node_id) for node_id in named))
        here = dict(zip(named, answers, strict=True))
        self._known = {node_id: each for node_id, each in self._known.items() if node_id in self._away} | named
        for node_id, broker in self._known.items():
            answered = here.get(node_id, False)
            if answered is not None:
                self._note(node_id, broker, here=answered)
        self._needed = set(admin.cluster.brokers)

    def _note(self, node_id: int, broker: BrokerInfo, *, here: bool) -> None:
        since = self._away.get(node_id)
        if not here and since is None:
            self._away[node_id] = time.monotonic()
            self._say(f"{_where(broker)} does not answer; what it leads is read on when it or another answers for it.")
        elif here and since is not None:
            del self._away[node_id]
            self._say(f"{_where(broker)} is back after {time.monotonic() - since:.0f} s.")

    async def _ask_ends(self, admin: Admin) -> None:
        try:
            async with asyncio.timeout(PATIENCE_S):
                found = await offsets_of(admin, self._topics(), read_committed=self._read_committed)
                ids = {} if self._ask_ids is None else await self._ask_ids(admin)
        except (TimeoutError, ClientError, KafkaError):
            return  # They stay as old as they are.
        self.ends, self.topic_ids = found[1], ids


async def _often(look: Callable[[], Awaitable[None]], pause_s: float) -> Never:
    while True:
        await look()
        await asyncio.sleep(pause_s)


async def _hear(admin: Admin) -> None:
    """Which brokers there are now; nothing new if none says so."""
    with contextlib.suppress(TimeoutError, ClientError, KafkaError):
        async with asyncio.timeout(PATIENCE_S):
            await admin.cluster.refresh(())


async def _answers(admin: Admin, node_id: int) -> bool | None:
    """Whether a broker does, to a question that costs nothing; None where this process itself was too late to tell."""
    began = time.monotonic()
    try:
        async with asyncio.timeout(PATIENCE_S):
            await admin.cluster.ask(MetadataRequest(topics=[]), MetadataResponse, node_id=node_id)
    except TimeoutError:
        return None if time.monotonic() - began > PATIENCE_S + LATE_S else False
    except (ClientError, KafkaError):
        return False
    return True


def _where(broker: BrokerInfo) -> str:
    return f"broker {broker.node_id} ({broker.host}:{broker.port})"
