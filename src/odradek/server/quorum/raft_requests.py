"""The requests by which voters elect: sent to one of them, and the core is told what became of it."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable

from odradek.client.errors import ConnectionLost, RequestTimedOut
from odradek.metadata.raft.core import Raft
from odradek.metadata.raft.state import Send
from odradek.metadata.raft.wire import vote_response
from odradek.ports import Network
from odradek.protocol.api import ApiKey, response_class
from odradek.protocol.codec import Message
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.vote import VoteRequest
from odradek.server.peers.peers import Peers, UnsupportedByPeer, version_for

log = logging.getLogger(__name__)

_PRE_VOTE_VERSION = 2


class RaftRequests:
    """Of one node; `step` hands an event to its core, in its turn."""

    def __init__(
        self,
        raft: Raft,
        network: Network,
        *,
        timeout_ms: int,
        step: Callable[[Callable[[int], None]], Awaitable[None]],
    ) -> None:
        self._raft = raft
        self._peers = Peers(network, client_id=f"raft-client-{raft.me.node_id}")
        self._timeout_ms = timeout_ms
        self._step = step

    async def deliver(self, send: Send) -> None:
        """Come back once the core has the answer, or knows that there is none."""
        try:
            connection = await self._peers.connect((send.to.host, send.to.port), timeout_ms=self._timeout_ms)
            version = version_for(connection, type(send.request))
            if version < _PRE_VOTE_VERSION and _is_pre_vote(send.request):
                # It knows no pre-vote, so it cannot object to one.
                granted = vote_response(self._raft.standing, ErrorCode.NONE, granted=True)
                await self._step(lambda now_ms: self._raft.answered(send, granted, now_ms))
                return
            assert send.request.api_key is not None
            kind = response_class(ApiKey(send.request.api_key))
            response = await connection.ask(send.request, kind, version, timeout_ms=self._timeout_ms)
        except (ConnectionLost, RequestTimedOut, UnsupportedByPeer):
            await self._step(lambda now_ms: self._raft.unreachable(send, now_ms))
            return
        if getattr(response, "error_code", 0):
            log.warning(
                "Voter %d answered %s with %s",
                send.to.node_id,
                type(send.request).__name__,
                ErrorCode(response.error_code).name,  # type: ignore[attr-defined]
            )
        await self._step(lambda now_ms: self._raft.answered(send, response, now_ms))

    def close(self) -> None:
        self._peers.close()


def _is_pre_vote(request: Message) -> bool:
    return isinstance(request, VoteRequest) and request.topics[0].partitions[0].pre_vote
