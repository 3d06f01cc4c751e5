"""What `odradek start` and `odradek storage` take, apart from what does it: help must not cost the import of a node."""

from __future__ import annotations

import argparse

from odradek.apps.terminal.options import Actions


def declare_start(start: argparse.ArgumentParser) -> None:
    start.description = (
        "Run a node. Without a FILE it is broker and controller in one process, listens on 127.0.0.1:9092 and "
        "keeps its data in ./odradek-data; with one, it is what process.roles says. A node that is a cluster by itself "
        "formats an empty data directory at its first start. One of several does so only with CLUSTER_ID in the "
        "environment: else format it with `odradek storage format`."
    )
    start.epilog = (
        "Settings come from, the later counts: the FILE; KAFKA_... environment variables, as the apache/kafka "
        "image reads them (KAFKA_LOG_DIRS is log.dirs); --port and --data; --override. "
        "SIGTERM or Ctrl-C stops cleanly, a second one at once."
    )
    start.add_argument("file", nargs="?", metavar="FILE", help="a server.properties, as Kafka's own")
    start.add_argument("--port", type=_port, metavar="N", help="listen on this port of 127.0.0.1; 0 is any free one")
    start.add_argument("--data", metavar="DIR", help="keep the data here (log.dirs)")
    start.add_argument(
        "--override", action="append", default=[], metavar="KEY=VALUE", help="set one key; may be given several times"
    )
    start.set_defaults(run="odradek.apps.cli.start:run")


def declare_storage(storage: argparse.ArgumentParser) -> None:
    storage.description = "What kafka-storage does: data directories before a node uses them."
    actions = storage.add_subparsers(title="actions", metavar="ACTION", required=True)
    info = actions.add_parser("info", help="say what the data directories hold")
    info.add_argument("--config", "-c", required=True, metavar="FILE", help="the server.properties to use")
    info.set_defaults(run="odradek.apps.cli.storage:info")
    _add_format(actions)
    uuid = actions.add_parser("random-uuid", help="print a random UUID, good as a cluster id")
    uuid.set_defaults(run="odradek.apps.cli.storage:random_uuid")


def _add_format(actions: Actions) -> None:
    form = actions.add_parser("format", help="prepare data directories for their first start")
    form.add_argument("--config", "-c", required=True, metavar="FILE", help="the server.properties to use")
    form.add_argument("--cluster-id", "-t", required=True, metavar="UUID", help="the cluster's id (see random-uuid)")
    form.add_argument(
        "--ignore-formatted", "-g", action="store_true", help="pass over directories that are formatted already"
    )
    form.add_argument(
        "--release-version", "-r", metavar="VERSION", help="start with the features of this Kafka release"
    )
    form.add_argument(
        "--feature", "-f", action="append", default=[], metavar="NAME=LEVEL", help="start with this level of a feature"
    )
    quorum = form.add_mutually_exclusive_group()
    quorum.add_argument(
        "--standalone", "-s", action="store_true", help="this controller is the whole quorum, which may grow later"
    )
    quorum.add_argument(
        "--no-initial-controllers", "-N", action="store_true", help="say nothing of the quorum: it is found at start"
    )
    quorum.add_argument(
        "--initial-controllers",
        "-I",
        metavar="VOTERS",
        help="the first controllers, as id@host:port:directory-id separated by commas",
    )
    form.set_defaults(run="odradek.apps.cli.storage:format_directories")


def _port(text: str) -> int:
    if text.isascii() and text.isdecimal() and len(text) <= 5 and int(text) <= 65535:
        return int(text)
    raise argparse.ArgumentTypeError(f"a port is a number from 0 to 65535, not {text!r}")
