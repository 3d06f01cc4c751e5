"""What a follower's next Fetch says: the partitions that moved since the last, in a session that remembers the rest."""

from __future__ import annotations

from collections.abc import Collection
from typing import Generic, TypeVar

from odradek.values import value

KeyT = TypeVar("KeyT")

NO_SESSION = 0
FULL_EPOCH = 0
LARGEST_EPOCH = (1 << 31) - 1


@value
class PlannedFetch(Generic[KeyT]):
    """One request of a session (KIP-227)."""

    session_id: int
    session_epoch: int
    mentioned: tuple[KeyT, ...]
    forgotten: tuple[KeyT, ...]


class FetchPlan(Generic[KeyT]):
    """The follower's side of a fetch session."""

    __slots__ = ("_epoch", "_known", "_news", "_refused", "_session_id", "_settled", "wanted")

    def __init__(self) -> None:
        self.wanted: dict[KeyT, None] = {}
        """What is fetched at present; `want` and `leave_out` change it."""
        self._news: dict[KeyT, None] = {}
        """Wanted, and the leader does not know from where."""
        self._known: dict[KeyT, None] = {}
        """What the leader's session holds,"""
        self._settled = False
        """and whether that is sure to be what is wanted."""
        self._session_id = NO_SESSION
        self._epoch = FULL_EPOCH
        self._refused = False
        """Whether the leader had no room for a session when it was last asked for one."""

    def want(self, key: KeyT) -> None:
        """Fetch it from now on, or from another position than before."""
        if key not in self.wanted:
            self.wanted[key] = None
            self._settled = False
        self._news[key] = None

    def leave_out(self, key: KeyT) -> None:
        """Do not fetch it for now."""
        self._settled = False
        self.wanted.pop(key, None)
        self._news.pop(key, None)

    def has_news(self) -> bool:
        return bool(self._news)

    @property
    def opens_session(self) -> bool:
        """Whether the next fetch asks for a session, and is likely to get one."""
        return self._epoch == FULL_EPOCH and not self._refused

    def next_usual(self) -> tuple[int, int, Collection[KeyT]] | None:
        """What to send where the session goes on and forgets nothing: its id, its epoch, and what moved.

        None if there is more to say, which `next_fetch` does; it is so, too, if nothing is wanted any more. (Hot.)
        """
        epoch, news = self._epoch, self._news
        if epoch == FULL_EPOCH:
            return None
        if not self._settled:
            self._known.update(news)
            if len(self._known) > len(self.wanted):  # Else they are the same: what is wanted is known by now.
                return None
            self._settled = True
        self._news = {}
        self._epoch = epoch + 1 if epoch != LARGEST_EPOCH else 1
        return self._session_id, epoch, news

    def next_fetch(self) -> PlannedFetch[KeyT]:
        """What to send; the leader will know it then."""
        if self._epoch == FULL_EPOCH:
            self._known = self.wanted.copy()
            self._settled = True
            self._news.clear()
            return PlannedFetch(self._session_id, FULL_EPOCH, tuple(self.wanted), ())
        forgotten: tuple[KeyT, ...] = ()
        usual = self.next_usual()
        if usual is None:
            forgotten = tuple(key for key in self._known if key not in self.wanted)
            for key in forgotten:
                del self._known[key]
            usual = self.next_usual()
            assert usual is not None, "what is known is wanted now"
        session_id, epoch, news = usual
        return PlannedFetch(session_id, epoch, tuple(news), forgotten)

    def opened(self, session_id: int) -> None:
        """A full fetch was answered: in a session from now on, unless the leader has no room for one."""
        self._session_id = session_id
        self._refused = session_id == NO_SESSION
        self._epoch = FULL_EPOCH if self._refused else 1

    def lost(self) -> None:
        """The leader has lost the thread, or may have: begin anew, and let it drop what it may still hold."""
        self._epoch = FULL_EPOCH
        self._refused = False
