"""What can go wrong between a client and its brokers, beside the error codes that brokers answer with."""

from __future__ import annotations

from odradek.protocol.errors import ErrorCode, KafkaError


class ClientError(Exception):
    """The common base: catch this and `KafkaError` to catch all that a client raises on purpose."""


class ConnectionLost(ClientError):
    """The connection went before the answer came: whether the request was carried out is unknown."""


class RequestTimedOut(ClientError):
    """No answer came in time: whether the request was carried out is unknown."""


class NoBrokerAnswers(ClientError):
    """None of the addresses that are known could be reached."""


class DeliveryTimedOut(ClientError):
    """A record could not be delivered within `delivery.timeout.ms`; it may or may not have been written."""


class BufferExhausted(ClientError):
    """No room in `buffer.memory` became free within `max.block.ms`."""


class NoOffsetForPartition(ClientError):
    """There is neither a position nor a committed offset, and `auto.offset.reset` is `none`."""


class TransactionFailed(ClientError):
    """The open transaction can only be aborted now; the producer goes on with the next one. Its cause says why."""


class ProducerFailed(ClientError):
    """A transactional producer can do nothing more: another has taken its place, or it lacks a right. Close it."""


class Misused(ClientError):
    """A call that makes no sense in the client's state; the message says which one would."""


def may_pass(failure: Exception) -> bool:
    """Whether the same request may succeed when it is sent again a little later."""
    if isinstance(failure, KafkaError):
        return failure.code.retriable
    return isinstance(failure, ConnectionLost | RequestTimedOut | NoBrokerAnswers)


def check(code: int, message: str | None = None) -> None:
    """Raise the error that a response carries, if it carries one."""
    if code:
        raise KafkaError(ErrorCode(code), message or "")
