"""Client quotas are enforced: who asks for more than its share is answered, and then not heard for a while (KIP-219).

As in Kafka, a rate is measured over `quota.window.num` windows of `quota.window.size.seconds`, so bursts within them
are free; who is above its limit waits until it is back at it. Without quotas all of this costs one look at `guarded`.
"""

from __future__ import annotations

from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any

from odradek.metadata.controller.quotas import (
    CONNECTION_CREATION_RATE,
    CONSUMER_BYTE_RATE,
    CONTROLLER_MUTATION_RATE,
    REQUEST_PERCENTAGE,
)
from odradek.metadata.image.client_quotas import CLIENT_ID, IP, NO_CLIENT_QUOTAS, USER, ClientQuotasImage, Entity
from odradek.ports import Clock
from odradek.protocol.codec import Message
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.messages.fetch import FetchRequest, FetchResponse
from odradek.server.waiting.stepped import resume

if TYPE_CHECKING:
    from odradek.server.access.caller import Caller

MAX_RATES = 1_000
"""Beyond so many, those that have not been heard of for a while are forgotten: client ids cost nothing to make up."""

_MS_PER_PERCENT = 10.0
_LONGEST_MS = (1 << 31) - 1
"""What an answer can tell; a quota may be as small as a number can be."""
"""One percent of a second, which is what request_percentage counts in."""


class Rate:
    """Amounts of the last windows, the oldest first."""

    __slots__ = ("_amounts", "_window_ms", "_windows")

    def __init__(self, *, windows: int, window_ms: int) -> None:
        self._windows = windows
        self._window_ms = window_ms
        self._amounts: list[tuple[int, float]] = []
        """Start of the window, and what came in it."""

    def record(self, amount: float, now_ms: int) -> None:
        amounts = self._amounts
        if amounts and now_ms - amounts[-1][0] < self._window_ms:
            start, before = amounts[-1]
            amounts[-1] = (start, before + amount)
        else:
            amounts.append((now_ms, amount))
            self._forget(now_ms)

    def throttle_ms(self, per_second: float, now_ms: int) -> int:
        """How long to wait until the rate is down at the limit; 0 where it is not above."""
        self._forget(now_ms)
        if not self._amounts:
            return 0
        measured_ms = self._measured_ms(now_ms)
        rate = sum(amount for _, amount in self._amounts) / (measured_ms / 1000)
        if rate <= per_second:
            return 0
        return round(min((rate - per_second) / per_second * measured_ms, _LONGEST_MS))

    def is_idle(self, now_ms: int) -> bool:
        self._forget(now_ms)
        return not self._amounts

    def _measured_ms(self, now_ms: int) -> int:
        """Since the oldest window; as if all but the current one were full, lest a first burst look like a rate."""
        elapsed_ms = now_ms - self._amounts[0][0]
        missing = self._windows - 1 - elapsed_ms // self._window_ms
        return elapsed_ms + max(missing, 0) * self._window_ms

    def _forget(self, now_ms: int) -> None:
        oldest_ms = now_ms - self._windows * self._window_ms
        while self._amounts and self._amounts[0][0] <= oldest_ms:
            del self._amounts[0]


class TokenBucket:
    """Changes that may be asked for: refilled at the limit's rate, and never fuller than all windows together."""

    __slots__ = ("_at_ms", "_tokens")

    def __init__(self, now_ms: int) -> None:
        self._tokens: float | None = None
        self._at_ms = now_ms

    def take(self, amount: float, *, per_second: float, burst_s: float, now_ms: int, strict: bool) -> int:
        """How long until there would be something in it again; KafkaError if it is empty and `strict`."""
        most = per_second * burst_s
        before = most if self._tokens is None else self._tokens
        tokens = min(before + (now_ms - self._at_ms) / 1000 * per_second, most)
        self._at_ms, self._tokens = now_ms, tokens
        if strict and tokens < 0:
            raise KafkaError(ErrorCode.THROTTLING_QUOTA_EXCEEDED)
        self._tokens = tokens - amount
        return round(max(min(-self._tokens / per_second * 1000, _LONGEST_MS), 0))


class Quotas:
    """What is in force, and how much of it each client has used."""

    def __init__(self, clock: Clock, *, windows: int, window_s: int) -> None:
        self.clock = clock
        self._windows = windows
        self._window_ms = window_s * 1000
        self._image: ClientQuotasImage = NO_CLIENT_QUOTAS
        self._rates: dict[tuple[str, Entity], Rate] = {}
        self._buckets: dict[Entity, TokenBucket] = {}
        self._limits_addresses = False
        self._limits: dict[tuple[str, str, str], tuple[float, Entity] | None] = {}
        """What was found for a key, a user and a client id in this image."""
        self.active = False
        """Whether anybody has a quota: then every request is metered."""

    def apply(self, image: ClientQuotasImage) -> None:
        """If that fails the former ones stay in force, and it is tried again with the next commit."""
        if image is not self._image:
            kinds = {kind: None for entity in image.by_entity for kind, _ in entity}
            self._image = image
            self._limits.clear()
            self.active = USER in kinds or CLIENT_ID in kinds
            self._limits_addresses = IP in kinds
            if not kinds:
                self._rates.clear()
                self._buckets.clear()

    def used(self, key: str, user: str, client_id: str, amount: float) -> int:
        """Note what a client has used; how long it must wait before it is heard again, in milliseconds."""
        found = self.limit(key, user, client_id)
        if found is None:
            return 0
        limit, whose = found
        now_ms = self.clock.monotonic_ms()
        rate = self._rate(key, whose, now_ms)
        rate.record(amount, now_ms)
        throttle_ms = rate.throttle_ms(limit, now_ms)
        return min(throttle_ms, self._window_ms) if key == REQUEST_PERCENTAGE else throttle_ms

    def connected(self, address: str) -> int:
        """Note a new connection; if that is one too many, after how many milliseconds it shall be closed."""
        if not self._limits_addresses:
            return 0
        own, everyones = self._image.of(((IP, address),)), self._image.of(((IP, None),))
        limit = own.get(CONNECTION_CREATION_RATE) or everyones.get(CONNECTION_CREATION_RATE)
        if limit is None:
            return 0
        now_ms = self.clock.monotonic_ms()
        rate = self._rate(CONNECTION_CREATION_RATE, ((IP, address),), now_ms)
        rate.record(1, now_ms)
        wait_ms = rate.throttle_ms(limit, now_ms)
        if wait_ms:
            rate.record(-1, now_ms)  # Who comes again and again is not kept out for ever.
        return min(wait_ms, self._window_ms)

    def mutated(self, user: str, client_id: str, partitions: int, *, strict: bool) -> int:
        """Note changes of topics; the wait in milliseconds, or THROTTLING_QUOTA_EXCEEDED where there was none left."""
        found = self.limit(CONTROLLER_MUTATION_RATE, user, client_id)
        if found is None:
            return 0
        limit, whose = found
        now_ms = self.clock.monotonic_ms()
        bucket = self._buckets.get(whose)
        if bucket is None:
            bucket = self._buckets[whose] = TokenBucket(now_ms)
        burst_s = self._windows * self._window_ms / 1000
        return bucket.take(partitions, per_second=limit, burst_s=burst_s, now_ms=now_ms, strict=strict)

    def limit(self, key: str, user: str, client_id: str) -> tuple[float, Entity] | None:
        """The most special quota that there is, and who shares it."""
        place = (key, user, client_id)
        if place not in self._limits:
            if len(self._limits) >= MAX_RATES:
                self._limits.clear()
            self._limits[place] = self._find_limit(key, user, client_id)
        return self._limits[place]

    def _find_limit(self, key: str, user: str, client_id: str) -> tuple[float, Entity] | None:
        for user_name, client_name in _PRECEDENCE:
            parts: list[tuple[str, str | None]] = []
            sharing: list[tuple[str, str | None]] = []
            if client_name != _NOT:
                parts.append((CLIENT_ID, client_id if client_name == _OWN else None))
                sharing.append((CLIENT_ID, client_id))
            if user_name != _NOT:
                parts.append((USER, user if user_name == _OWN else None))
                sharing.append((USER, user))
            limit = self._image.of(tuple(parts)).get(key)
            if limit is not None:
                return limit, tuple(sharing)
        return None

    def _rate(self, key: str, whose: Entity, now_ms: int) -> Rate:
        rate = self._rates.get((key, whose))
        if rate is None:
            self._make_room(now_ms)
            rate = self._rates[key, whose] = Rate(windows=self._windows, window_ms=self._window_ms)
        return rate

    def _make_room(self, now_ms: int) -> None:
        if len(self._rates) >= MAX_RATES:
            for key, rate in list(self._rates.items()):
                if rate.is_idle(now_ms):
                    del self._rates[key]


_OWN, _DEFAULT, _NOT = range(3)
_PRECEDENCE = (
    (_OWN, _OWN),
    (_OWN, _DEFAULT),
    (_OWN, _NOT),
    (_DEFAULT, _OWN),
    (_DEFAULT, _DEFAULT),
    (_DEFAULT, _NOT),
    (_NOT, _OWN),
    (_NOT, _DEFAULT),
)
"""User and client id of a quota: that of the very one, that of everybody without one, or none of that type."""


def charge_mutations(quotas: Quotas, caller: Caller, partitions: int, *, strict: bool) -> int:
    """Note that a client changes so many partitions; the wait in milliseconds.

    THROTTLING_QUOTA_EXCEEDED where nothing is left, to clients that know the error (`strict`); older ones are only
    slowed down.
    """
    if not quotas.active or caller.is_peer:
        return 0
    return quotas.mutated(caller.user, caller.client_id or "", partitions, strict=strict)


def is_metered(quotas: Quotas, caller: Caller, request: Message) -> bool:
    """A broker is not held up for what its clients ask for, nor for keeping up with its leaders."""
    if not quotas.active or caller.is_peer:
        return False
    return not (isinstance(request, FetchRequest) and _is_followers(request))


async def metered(quotas: Quotas, caller: Caller, handler: Coroutine[Any, Any, Message | None]) -> Message | None:
    """Answer, count what it cost, tell the client to wait, and do not hear it meanwhile.

    Time counts as long as the loop was kept; what a handler waits for costs nobody anything.
    """
    monotonic_ms = quotas.clock.monotonic_ms
    started_ms = monotonic_ms()
    try:
        awaited = handler.send(None)
    except StopIteration as done:
        response: Message | None = done.value
        spent_ms = monotonic_ms() - started_ms
    else:
        spent_ms = monotonic_ms() - started_ms
        response = await resume(handler, awaited)
    use = None
    if isinstance(response, FetchResponse):
        fetched = sum(len(part.records or b"") for topic in response.responses for part in topic.partitions)
        use = CONSUMER_BYTE_RATE, fetched
    throttle_ms = charge(quotas, caller, spent_ms, use)
    if response is not None and "throttle_time_ms" in response.field_names:
        known: Any = response
        throttle_ms = max(throttle_ms, known.throttle_time_ms)
        known.throttle_time_ms = throttle_ms
    if throttle_ms:
        caller.mute(throttle_ms)
    return response


def charge(quotas: Quotas, caller: Caller, spent_ms: int, use: tuple[str, int] | None) -> int:
    """Count the time that a request took, and what it used of another quota; the wait in milliseconds."""
    user, client_id = caller.user, caller.client_id or ""
    throttle_ms = quotas.used(REQUEST_PERCENTAGE, user, client_id, spent_ms / _MS_PER_PERCENT)
    if use is not None:
        key, amount = use
        throttle_ms = max(throttle_ms, quotas.used(key, user, client_id, amount))
    return throttle_ms


def _is_followers(request: FetchRequest) -> bool:
    return request.replica_id >= 0 or request.replica_state.replica_id >= 0
