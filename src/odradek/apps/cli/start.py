"""`odradek start`: a node in this process, from the first line of the log to a clean stop."""

from __future__ import annotations

import argparse
import asyncio
import errno
import gc
import logging
import os
import signal
import socket
import time
from collections.abc import Coroutine
from typing import Any

from odradek import __version__
from odradek.adapters.world import real_world
from odradek.apps.cli.logs import log_to_stdout
from odradek.apps.cli.main import BEGAN
from odradek.apps.cli.settings import gather
from odradek.apps.terminal.sentence import Sentence
from odradek.metadata.bootstrap import FormatError
from odradek.ports import AlreadyLocked
from odradek.server.configs.node_config import NodeConfig
from odradek.server.membership.lifecycle import RegistrationRefused
from odradek.server.node import Node
from odradek.server.quorum.log import BadMetadataLog

STOPPING_SIGNALS = (signal.SIGTERM, signal.SIGINT)

GC_THRESHOLDS = (10_000, 20, 50)
"""With a thousand connections a full collection takes 20 ms; requests make few cycles, so there need not be many."""

log = logging.getLogger("odradek")


def run(options: argparse.Namespace) -> int:
    """Serve until a signal says stop; 0 if that went cleanly."""
    config = gather(options.file, os.environ, port=options.port, data=options.data, overrides=options.override).load()
    log_to_stdout(os.environ)
    return _run_loop(_serve(config, os.environ.get("CLUSTER_ID", "").strip()))


def _run_loop(serving: Coroutine[Any, Any, int]) -> int:
    """On uvloop where it is installed: the same loop, faster."""
    try:
        import uvloop
    except ImportError:
        return asyncio.run(serving)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(serving)


async def _serve(config: NodeConfig, cluster_id: str) -> int:
    stop = _Stop(asyncio.get_running_loop())
    node = Node(config, real_world(), cluster_id=cluster_id)
    node.on_failure = lambda _failure: stop.event.set()
    node.on_loaded = gc.freeze
    if not await _start_unless_stopped(node, stop):
        log.info("Stopped before the node was ready.")
        return 0
    gc.freeze()  # What has been loaded stays: the collector need not walk through it again and again.
    gc.set_threshold(*GC_THRESHOLDS)
    _say_ready(node)
    await stop.event.wait()
    log.info("Stopping%s.", f" on {stop.signal_name}" if stop.signal_name else "")
    await node.stop()
    if node.failed is not None:
        raise Sentence(f"the node stopped because it could not go on: {node.failed}")
    log.info("Stopped cleanly.")
    return 0


class _Stop:
    """Set by the first signal; the second ends the process where it stands."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.event = asyncio.Event()
        self.signal_name = ""
        for number in STOPPING_SIGNALS:
            loop.add_signal_handler(number, self._received, number)

    def _received(self, number: signal.Signals) -> None:
        if self.signal_name:
            os._exit(128 + number)
        self.signal_name = number.name
        self.event.set()


async def _start_unless_stopped(node: Node, stop: _Stop) -> bool:
    """Whether the node started: in a cluster that may take until there are enough others, and nobody need wait."""
    starting = asyncio.ensure_future(_start(node))
    stopping = asyncio.ensure_future(stop.event.wait())
    await asyncio.wait((starting, stopping), return_when=asyncio.FIRST_COMPLETED)
    stopping.cancel()
    if not starting.done():
        starting.cancel()
        await asyncio.wait([starting])
        if node.failed is not None:
            raise Sentence(f"the node stopped because it could not go on: {node.failed}")
        if starting.cancelled():
            return False
    starting.result()
    return True


async def _start(node: Node) -> None:
    """Start, or say in one sentence why not."""
    try:
        await node.start()
    except (FormatError, BadMetadataLog, RegistrationRefused) as wrong:
        raise Sentence(str(wrong)) from wrong
    except AlreadyLocked as wrong:
        directory = os.path.dirname(str(wrong))
        raise Sentence(f"{directory} is in use by another process: every node needs a directory of its own.") from wrong
    except OSError as wrong:
        raise Sentence(_os_sentence(node.config, wrong)) from wrong


def _os_sentence(config: NodeConfig, wrong: OSError) -> str:
    why = (wrong.strerror or str(wrong)).lower()
    about_ports = wrong.errno in (errno.EADDRINUSE, errno.EADDRNOTAVAIL, errno.EACCES) and not wrong.filename
    if about_ports or isinstance(wrong, socket.gaierror):
        where = " or ".join(str(one) for one in config.listeners if one.port)
        return f"cannot listen on {where}: {why}."
    return f"cannot use {wrong.filename or ', '.join(config.log_dirs)}: {why}."


def _say_ready(node: Node) -> None:
    """The one line that a person waits for."""
    config = node.config
    advertised = ", ".join(
        str(type(one)(one.name, one.host, one.port or node.rooms.listeners.ports[one.name]))
        for one in (config.advertised_listeners or config.controller_advertised_listeners)
    )
    data = ", ".join(config.log_dirs)
    print(
        f"Odradek {__version__} ready: {advertised} "
        f"(node {node.node_id}, cluster {node.rooms.cluster_id}, data {data}) in {time.monotonic() - BEGAN:.2f} s",
        flush=True,
    )
