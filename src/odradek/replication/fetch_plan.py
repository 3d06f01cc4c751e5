"""What a follower's next Fetch says: the partitions that moved since the last, in a session that remembers the rest."""

from __future__ import annotations

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

    def __init__(self) -> None:
        self._wanted: dict[KeyT, None] = {}
        self._news: dict[KeyT, None] = {}
        """Wanted, and the leader does not know from where."""
        self._known: dict[KeyT, None] = {}
        """What the leader's session holds."""
        self._session_id = NO_SESSION
        self._epoch = FULL_EPOCH
        self._refused = False
        """Whether the leader had no room for a session when it was last asked for one."""

    def __len__(self) -> int:
        return len(self._wanted)

    def want(self, key: KeyT) -> None:
        """Fetch it from now on, or from another position than before."""
        self._wanted[key] = self._news[key] = None

    def leave_out(self, key: KeyT) -> None:
        """Do not fetch it for now."""
        self._wanted.pop(key, None)
        self._news.pop(key, None)

    def wants(self, key: KeyT) -> bool:
        return key in self._wanted

    def has_news(self) -> bool:
        return bool(self._news)

    @property
    def opens_session(self) -> bool:
        """Whether the next fetch asks for a session, and is likely to get one."""
        return self._epoch == FULL_EPOCH and not self._refused

    def next_fetch(self) -> PlannedFetch[KeyT]:
        """What to send; the leader will know it then."""
        full = self._epoch == FULL_EPOCH
        mentioned = tuple(self._wanted) if full else tuple(self._news)
        forgotten: tuple[KeyT, ...] = ()
        if full:
            self._known = self._wanted.copy()
        else:
            self._known.update(self._news)
            if len(self._known) > len(self._wanted):  # Else they are the same: what is wanted is known by now.
                forgotten = tuple(key for key in self._known if key not in self._wanted)
                for key in forgotten:
                    del self._known[key]
        self._news.clear()
        planned = PlannedFetch(self._session_id, self._epoch, mentioned, forgotten)
        if not full:
            self._epoch = 1 if self._epoch == LARGEST_EPOCH else self._epoch + 1
        return planned

    def opened(self, session_id: int) -> None:
        """A full fetch was answered: in a session from now on, unless the leader has no room for one."""
        self._session_id = session_id
        self._refused = session_id == NO_SESSION
        self._epoch = FULL_EPOCH if self._refused else 1

    def lost(self) -> None:
        """The leader has lost the thread, or may have: begin anew, and let it drop what it may still hold."""
        self._epoch = FULL_EPOCH
        self._refused = False
