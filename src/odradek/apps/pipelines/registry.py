"""The schemas that Avro records were written with, by the ids before them: from a schema registry, asked over HTTP.

The driver asks, and each id once: what belongs to an id never changes. Executors get the schemas with the plan of their
query. A record with an id that the plan does not know stops its query, the driver asks for the schema, and the query
begins that batch again; only an id that the registry itself does not know makes a dead letter.
"""

from __future__ import annotations

import base64
import json
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterable, Mapping
from typing import Any

from odradek.apps.pipelines.avro import Writer
from odradek.apps.pipelines.schemas import Schema
from odradek.apps.terminal.sentence import Sentence
from odradek.configdef import did_you_mean
from odradek.values import replace

PREFIX = "schema.registry."
URL = "url"
OPTIONS = (
    URL,
    "basic.auth.credentials.source",
    "basic.auth.user.info",
    "bearer.auth.credentials.source",
    "bearer.auth.token",
)
"""As Confluent's clients call them, with `schema.registry.` before them or without."""

ANSWERS = "application/vnd.schemaregistry.v1+json, application/json"
TIMEOUT_S = 10.0
ATTEMPTS = 3
PAUSE_S = 0.5
FETCHED_AHEAD = 20
"""Versions of a topic's schema that are fetched before anybody asks: the newest ones."""

DEEPEST = 20
"""Schemas that refer to schemas that refer to schemas, and so on."""


class Registry:
    """A schema registry with Confluent's HTTP interface."""

    def __init__(self, url: str, options: Mapping[str, str]) -> None:
        plain = {name.removeprefix(PREFIX): setting for name, setting in options.items()}
        for name in plain:
            if name not in OPTIONS:
                raise Sentence(f"{name} is no option of a schema registry.{did_you_mean(name, list(OPTIONS))}")
        self._urls, users = _without_users(url or plain.get(URL, ""))
        self._authorization = _authorization(plain, users)
        self._writers: dict[int, Writer] = {}

    @property
    def writers(self) -> dict[int, Writer]:
        """All that were asked for so far."""
        return dict(self._writers)

    def fetch(self, schema_id: int) -> Writer:
        """What wrote records with this id, and what else the same subjects have: those will be wanted next."""
        if schema_id not in self._writers:
            self._writers[schema_id] = self._asked(schema_id)
            for each in self._ask(f"/schemas/ids/{schema_id}/versions") or []:
                self.fetch_subject(str(each["subject"]))
        return self._writers[schema_id]

    def fetch_subject(self, subject: str) -> None:
        """The newest versions of a subject, if there is one."""
        place = f"/subjects/{urllib.parse.quote(subject, safe='')}/versions"
        for version in (self._ask(place) or [])[-FETCHED_AHEAD:]:
            held = self._ask(f"{place}/{version}")
            if held is not None and int(held["id"]) not in self._writers:
                self._writers[int(held["id"])] = self._writer(int(held["id"]), held)

    def _asked(self, schema_id: int) -> Writer:
        held = self._ask(f"/schemas/ids/{schema_id}")
        if held is None:
            return Writer(schema_id, "", f"schema id {schema_id} is not in the registry")
        return self._writer(schema_id, held)

    def _writer(self, schema_id: int, held: Mapping[str, Any]) -> Writer:
        kind = held.get("schemaType", "AVRO")
        if kind != "AVRO":
            return Writer(schema_id, "", f"schema id {schema_id} is no Avro but {kind}")
        return Writer(schema_id, json.dumps(self._whole(held, {}, 0)), "")

    def _whole(self, held: Mapping[str, Any], named: dict[str, object], depth: int) -> object:
        """A schema with those it refers to in place of the first mention of their names."""
        if depth > DEEPEST:
            raise Sentence(f"{self._urls[0]}: schemas refer to each other more than {DEEPEST} deep.")
        for each in held.get("references") or []:
            subject = urllib.parse.quote(str(each["subject"]), safe="")
            found = self._ask(f"/subjects/{subject}/versions/{each['version']}")
            if found is None:
                raise Sentence(
                    f"{self._urls[0]} does not have version {each['version']} of {each['subject']}, which another "
                    "schema refers to: put it there."
                )
            named[str(each["name"])] = self._whole(found, named, depth + 1)
        return with_definitions(json.loads(held["schema"]), named)

    def _ask(self, path: str) -> Any:
        """An answer's JSON, None for what is not there; or a Sentence."""
        trouble = ""
        for attempt in range(ATTEMPTS):
            if attempt:
                time.sleep(PAUSE_S)
            for url in self._urls:
                request = urllib.request.Request(f"{url}{path}", headers={"Accept": ANSWERS})
                if self._authorization:
                    request.add_header("Authorization", self._authorization)
                try:
                    with urllib.request.urlopen(request, timeout=TIMEOUT_S) as answer:
                        return json.loads(answer.read())
                except urllib.error.HTTPError as refused:
                    with refused:
                        if refused.code == 404:
                            return None
                        if refused.code in (401, 403):
                            raise Sentence(
                                f"the schema registry {url} does not let us in (HTTP {refused.code}): say "
                                "schema.registry.basic.auth.user.info or schema.registry.bearer.auth.token."
                            ) from refused
                        trouble = f"{url} answers HTTP {refused.code}"
                except (OSError, ValueError) as failure:
                    trouble = f"{url}: {getattr(failure, 'reason', failure)}"
        raise Sentence(f"the schema registry does not answer ({trouble}): look after it, and run the pipeline again.")


class Registries:
    """The registries of a pipeline's sources, and what they have told."""

    def __init__(self, settings: Mapping[str, str]) -> None:
        """`settings`: what stands in the properties that the command was given; a source's own go before them."""
        self._settings = {name: setting for name, setting in settings.items() if name.startswith(PREFIX)}
        self._held: dict[str, Registry] = {}

    def resolve(self, source: str, schema: Schema, topics: Iterable[str]) -> Schema:
        """A source's schema with all that is known of the schemas its records were written with."""
        if schema.kind != "avro" or not schema.registry_prefix or schema.writers:
            return schema
        if source not in self._held:
            url = schema.registry or self._settings.get(PREFIX + URL, "")
            if not url:
                raise Sentence(
                    f"source {source}: its records name the schemas that they were written with, so say where those "
                    "are: registry='http://…' or ids={1: '…'} in schemas.avro, or schema.registry.url in the "
                    "properties."
                )
            registry = self._held[source] = Registry(url, {**self._settings, **dict(schema.registry_options)})
            for topic in topics:
                registry.fetch_subject(f"{topic}-value")
        writers = self._held[source].writers
        return replace(schema, writers=tuple(writers[number] for number in sorted(writers)), label=source)

    def learn(self, source: str, schema_id: int) -> bool:
        """Ask for a schema that a record named; whether that is news."""
        registry = self._held.get(source)
        if registry is None or schema_id in registry.writers:
            return False
        registry.fetch(schema_id)
        return True


def with_definitions(schema: object, named: dict[str, object]) -> object:
    """An Avro schema with definitions in place of the first mention of each name, as Avro's parsers want it."""
    left = dict(named)

    def visit(each: object, space: str) -> object:
        match each:
            case str():
                full = each if "." in each or not space or each not in left_in(space) else f"{space}.{each}"
                return visit(left.pop(full), space) if full in left else each
            case list():
                return [visit(inner, space) for inner in each]
            case dict():
                inside = str(each.get("namespace", space))
                visited = dict(each)
                for part in ("type", "items", "values"):
                    if part in each:
                        visited[part] = visit(each[part], inside)
                if "fields" in each:
                    visited["fields"] = [visit(field, inside) for field in each["fields"]]
                return visited
        return each

    def left_in(space: str) -> set[str]:
        return {name.removeprefix(f"{space}.") for name in left if name.startswith(f"{space}.")}

    return visit(schema, "")


def _without_users(urls: str) -> tuple[list[str], str]:
    """Addresses to ask, one after the other, and the user and password that stood in one of them."""
    found, users = [], ""
    for text in (each.strip().rstrip("/") for each in urls.split(",")):
        parts = urllib.parse.urlsplit(text)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise Sentence(f"{text!r} is no address of a schema registry, such as http://127.0.0.1:8081.")
        if parts.username:
            users = f"{urllib.parse.unquote(parts.username)}:{urllib.parse.unquote(parts.password or '')}"
        found.append(urllib.parse.urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2])))
    return found, users


def _authorization(options: Mapping[str, str], users: str) -> str:
    token, user = options.get("bearer.auth.token"), options.get("basic.auth.user.info") or users
    for name, wanted in (
        ("bearer.auth.credentials.source", ("STATIC_TOKEN",)),
        ("basic.auth.credentials.source", ("USER_INFO", "URL")),
    ):
        if options.get(name, wanted[0]) not in wanted:
            raise Sentence(f"{name} may be {' or '.join(wanted)} here, not {options[name]}.")
    if token and user:
        raise Sentence("a schema registry takes bearer.auth.token or basic.auth.user.info, not both.")
    if token:
        return f"Bearer {token}"
    return f"Basic {base64.b64encode(user.encode()).decode()}" if user else ""
