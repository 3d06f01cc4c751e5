"""Who asks: one object a connection, and another one when its client calls itself something else.

What is known of a client is looked up here and nowhere else, so a principal that a connection has to prove, and what it
is allowed once it has, have one place to be.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from odradek.security.acl import Operation, ResourceType
from odradek.security.principal import ANONYMOUS

if TYPE_CHECKING:
    from odradek.security.acl import AccessRules
    from odradek.server.access.authorizer import Authorizer

MAX_KNOWN_TOPICS = 1_000
"""Beyond so many answers about topics they are forgotten: a client may name as many as it likes."""


class Caller:
    """A client, as far as handlers need to know it."""

    __slots__ = (
        "_known_topics",
        "_rules",
        "address",
        "authorizer",
        "client_id",
        "connection_id",
        "is_peer",
        "listener",
        "mute",
        "principal",
    )

    def __init__(
        self,
        *,
        address: str,
        client_id: str | None,
        listener: str,
        connection_id: int,
        authorizer: Authorizer | None,
        mute: Callable[[int], None],
        is_peer: bool = False,
        principal: str = ANONYMOUS,
    ) -> None:
        """Nobody has a name on a listener without authentication."""
        self.address = address
        self.client_id = client_id
        self.listener = listener
        """The name of it."""
        self.connection_id = connection_id
        self.authorizer = authorizer
        self.mute = mute
        """Hear nothing of it for so many milliseconds."""
        self.is_peer = is_peer
        """Whether another node of the cluster asks for itself: only those use the controller's listeners."""
        self.principal = principal
        self._rules: AccessRules | None = None
        self._known_topics: dict[tuple[Operation, str], bool] = {}
        """What those rules said of topics."""

    @property
    def host(self) -> str:
        """As Java writes an address whose name nobody looked up."""
        return f"/{self.address}"

    @property
    def user(self) -> str:
        """The principal's name, without its type."""
        return self.principal.partition(":")[2]

    def may(self, operation: Operation, topic: str) -> bool:
        """Whether the rules in force let it do that to a topic; it is asked for the same ones again and again."""
        if self.authorizer is None:
            return True
        rules = self.authorizer.rules
        known = self._known_topics
        if rules is not self._rules or len(known) >= MAX_KNOWN_TOPICS:
            known.clear()
            self._rules = rules
        answer = known.get((operation, topic))
        if answer is None:
            answer = rules.allows(self.principal, self.address, operation, ResourceType.TOPIC, topic)
            known[operation, topic] = answer
        return answer
