"""From options to a client that is connected, and from what clients raise to one sentence that says what to do."""

from __future__ import annotations

import argparse
import asyncio
import os
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

from odradek.apps.clients import real_ports
from odradek.apps.terminal.profiles import BOOTSTRAP, Profiles
from odradek.apps.terminal.properties import read_file
from odradek.apps.terminal.sentence import Sentence
from odradek.client.errors import ClientError, NoBrokerAnswers
from odradek.client.facade import Client
from odradek.client.settings import ADMIN_TABLE, CONSUMER_TABLE, PRODUCER_TABLE
from odradek.configdef import ConfigError, ConfigTable, did_you_mean
from odradek.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from odradek.client.admin import Admin
    from odradek.client.cluster import Cluster
    from odradek.client.consumer import Consumer
    from odradek.client.producer import Producer

DEFAULT_BOOTSTRAP = "127.0.0.1:9092"
REACH_S = 10.0
"""How long a person waits to hear that nobody is there."""

PATIENCE = {"socket.connection.setup.timeout.ms": "5000", "default.api.timeout.ms": "30000"}
"""A person is less patient than a service; a file or a profile may say otherwise."""

REGISTRY_PREFIX = "schema.registry."
"""Settings that are no client's: where the schemas of records are, and what lets pipelines in there."""

LISTING_PATIENCE_MS = 4_000
"""How long a command that only looks waits for a broker or a controller that does not answer: it shows the rest."""


class Session:
    """Makes clients of the cluster that the options name, each with the settings that are meant for its kind."""

    def __init__(self, settings: Mapping[str, str]) -> None:
        self._settings = settings
        self._ports = real_ports()

    @property
    def bootstrap(self) -> str:
        return self._settings[BOOTSTRAP]

    @property
    def registry(self) -> dict[str, str]:
        """What the settings say about a schema registry."""
        return {name: text for name, text in self._settings.items() if name.startswith(REGISTRY_PREFIX)}

    def admin(self) -> Admin:
        return self._client(ADMIN_TABLE).admin()

    def producer(self, settings: Mapping[str, str]) -> Producer:
        return self._client(PRODUCER_TABLE).producer(settings)

    def consumer(self, settings: Mapping[str, str]) -> Consumer:
        return self._client(CONSUMER_TABLE).consumer(settings)

    def _client(self, table: ConfigTable) -> Client:
        return Client(self._ports, of_kind(self._settings, table))


def with_admin(options: argparse.Namespace) -> int:
    """Run an action's work with a connected Admin."""

    async def administer(session: Session) -> int:
        async with session.admin() as admin:
            await reach(admin.cluster)
            work: Callable[[Admin, argparse.Namespace], Awaitable[int]] = options.work
            return await work(admin, options)

    return _run(options, administer)


def with_session(options: argparse.Namespace) -> int:
    """Run an action's work with a Session, from which it makes the clients it needs."""

    async def work(session: Session) -> int:
        wanted: Callable[[Session, argparse.Namespace], Awaitable[int]] = options.work
        return await wanted(session, options)

    return _run(options, work)


async def reach(cluster: Cluster) -> None:
    """One connection or one sentence, without the patience that a call on its own would have."""
    try:
        async with asyncio.timeout(REACH_S):
            await cluster.any_connection()
    except TimeoutError:
        where = ", ".join(cluster.settings.words(BOOTSTRAP))
        raise Sentence(f"{where} takes connections but does not answer: is it a Kafka broker's port?") from None


def gather_settings(options: argparse.Namespace, environment: Mapping[str, str]) -> dict[str, str]:
    """All settings of clients, from what is the least to what is the most particular to this command."""
    profiles = Profiles(environment)
    settings = {**PATIENCE, BOOTSTRAP: DEFAULT_BOOTSTRAP}
    usual = environment.get("ODRADEK_PROFILE") or profiles.current()
    if options.profile is None and usual:
        settings |= profiles.read(usual)
    if environment.get("ODRADEK_BOOTSTRAP"):
        settings[BOOTSTRAP] = environment["ODRADEK_BOOTSTRAP"]
    if options.profile is not None:
        settings |= profiles.read(options.profile)
    if options.command_config is not None:
        settings |= read_file(options.command_config)
    if options.bootstrap_server is not None:
        settings[BOOTSTRAP] = options.bootstrap_server
    return settings


def of_kind(settings: Mapping[str, str], table: ConfigTable) -> dict[str, str]:
    """Without what is meant for other kinds of clients: one file serves all of them."""
    others = (ADMIN_TABLE, PRODUCER_TABLE, CONSUMER_TABLE)
    return {
        name: text
        for name, text in settings.items()
        if name in table or not (any(name in other for other in others) or name.startswith(REGISTRY_PREFIX))
    }


def failure_text(failure: KafkaError) -> str:
    """A broker's refusal in a sentence: its own words where it has some, and the name to look it up by."""
    message = (failure.message or failure.code.default_message).rstrip(".")
    if failure.code is ErrorCode.UNSUPPORTED_VERSION:
        return f"{message}, which this command needs: the broker is too old for it, or does not offer it yet"
    return f"{message} ({failure.code.name})"


async def unknown_topic(admin: Admin, name: str) -> Sentence:
    """That there is no such topic, with the nearest name there is."""
    known = [topic.name for topic in await admin.list_topics()]
    hint = did_you_mean(name, known) or " `odradek topic list` shows those there are."
    return Sentence(f"there is no topic {name}.{hint}")


@contextmanager
def one_sentence() -> Iterator[None]:
    """What clients raise on purpose, told to a person."""
    try:
        yield
    except NoBrokerAnswers as nobody:
        where = str(nobody).removeprefix("no broker answers: ")
        raise Sentence(
            f"cannot reach the cluster at {where}. Start a node with `odradek start`, or say where one is with -b."
        ) from nobody
    except ClientError as failure:
        raise Sentence(_ended(str(failure))) from failure
    except KafkaError as refused:
        raise Sentence(f"{failure_text(refused)}.") from refused
    except ConfigError as wrong:
        raise Sentence(_ended(str(wrong))) from wrong


def _ended(sentence: str) -> str:
    return sentence if sentence.endswith((".", "?")) else f"{sentence}."


def _run(options: argparse.Namespace, work: Callable[[Session], Awaitable[int]]) -> int:
    async def whole() -> int:
        with one_sentence():
            return await work(Session(gather_settings(options, os.environ)))

    return asyncio.run(whole())
