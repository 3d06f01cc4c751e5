"""A process that works for a node, which starts it for itself: `main` is all of it.

It is asked through its input and answers through its output, one pickled message after the other, and ends when nobody
can ask any more. Its priority is low: a node that serves comes first.
"""

from __future__ import annotations

import os
import pickle
import struct
import sys
import traceback
from collections.abc import Callable, Generator
from typing import IO, Any

from odradek.adapters.disk import RealDisk
from odradek.values import value

NICE = 10
"""How much lower its priority is than the node's."""

_SIZE = struct.Struct(">I")


@value
class Begin:
    """Make the steps of another work; those of the last one are over."""

    job: Callable[[Any], Generator[Any, None, None]]
    durable: bool


@value
class Step:
    """Go one step on."""


@value
class Close:
    """Give up what is under way."""


@value
class Answer:
    """What came of it."""

    result: Any = None
    failure: Exception | None = None


def send(pipe: IO[bytes], message: object) -> None:
    data = pickle.dumps(message)
    pipe.write(_SIZE.pack(len(data)) + data)
    pipe.flush()


def receive(pipe: IO[bytes]) -> Any:
    """The next message; EOFError when there will be none."""
    head = pipe.read(_SIZE.size)
    if len(head) < _SIZE.size:
        raise EOFError
    data = pipe.read(*_SIZE.unpack(head))
    return pickle.loads(data)  # By the other end of a pipe that nobody else has.


def main() -> None:
    os.nice(NICE)
    asking, answering = sys.stdin.buffer, sys.stdout.buffer
    sys.stdout = sys.stderr  # Whoever prints something shall not be taken for an answer.
    steps: Generator[Any, None, None] | None = None
    while True:
        try:
            asked = receive(asking)
        except EOFError:
            return
        answer = Answer()
        try:
            match asked:
                case Begin():
                    steps = asked.job(RealDisk(durable=asked.durable))
                case Step():
                    answer = Answer(None if steps is None else next(steps, None))
                case Close():
                    if steps is not None:
                        steps.close()
                    steps = None
        except Exception as failure:  # noqa: BLE001 - whatever it is, whoever asked gets it
            answer = Answer(failure=_portable(failure))
        try:
            send(answering, answer)
        except BrokenPipeError:
            return


def _portable(failure: Exception) -> Exception:
    """As it can be raised again on the other side, with where it was raised here."""
    trace = "".join(traceback.format_exception(failure))
    try:
        pickle.loads(pickle.dumps(failure))
    except Exception:  # noqa: BLE001 - one that cannot be made again from what it says of itself
        return RuntimeError(trace)
    failure.add_note(trace)
    return failure
