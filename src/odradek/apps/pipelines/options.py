"""`odradek pipeline`: run data pipelines on Spark. Spark is imported when one is run, not before."""

from __future__ import annotations

import argparse

from odradek.apps.terminal.options import (
    Actions,
    add_actions,
    add_connection_options,
    add_format_option,
    add_many,
    natural,
    positive,
)

COMMAND = "odradek.apps.pipelines.command"


def declare(parser: argparse.ArgumentParser) -> None:
    actions = add_actions(parser, "Run data pipelines on Spark, over topics of Odradek or Apache Kafka.")
    running = _action(actions, "run", "run a pipeline until it is stopped, or has read all there is")
    running.description = (
        "Run a pipeline until it is stopped (Ctrl-C; it goes on from there when it is run again), or, with "
        "--available-now, until it has read all there is."
    )
    add_run_options(running)
    checking = _action(actions, "validate", "find mistakes in a pipeline without running it")
    add_connection_options(checking)
    _add_spark_options(checking)
    checking.add_argument("--offline", action="store_true", help="do not ask brokers whether the topics are there")
    explaining = _action(actions, "explain", "show a pipeline's graph and the plans that Spark makes of it")
    add_connection_options(explaining)
    _add_spark_options(explaining)
    explaining.add_argument("--extended", action="store_true", help="all of Spark's plans, not only the last")
    listing = actions.add_parser("list", help="show the pipelines that files declare", description="Show pipelines.")
    add_many(listing, "files", at_least=1, metavar="FILE", help_line="files, or directories that hold some")
    add_format_option(listing)
    listing.set_defaults(run=f"{COMMAND}:listing")
    resetting = _action(actions, "reset", "forget how far a pipeline is, so that it reads everything again")
    add_connection_options(resetting)
    _add_places(resetting)
    resetting.add_argument("--yes", action="store_true", help="yes, forget it")
    resetting.add_argument(
        "--delete-files",
        action="store_true",
        help="delete the Parquet files and tables of its sinks, too, so that none is twice",
    )
    resetting.add_argument("--sink", metavar="NAME", help="only this one; the others go on where they are")
    compacting = _action(
        actions, "compact", "put the small files of a pipeline's lake together; it must not be running"
    )
    add_connection_options(compacting)
    _add_spark_options(compacting)
    _add_places(compacting)
    add_format_option(compacting)
    compacting.add_argument("--sink", metavar="NAME", help="only this one (default: all that are files or tables)")
    compacting.add_argument(
        "--target-mb", type=positive, default=128, metavar="MB", help="how large files may become (default: 128)"
    )
    compacting.add_argument(
        "--keep-minutes",
        type=natural,
        default=60,
        metavar="N",
        help="how long replaced files stay for those who are reading them (default: 60)",
    )
    making = actions.add_parser("new", help="make a project that runs at once", description="Make a project.")
    making.add_argument("name", metavar="NAME")
    making.add_argument("--directory", metavar="DIR", help="where to (default: a directory of that name)")
    making.set_defaults(run=f"{COMMAND}:new")
    replaying = _action(actions, "replay-dead-letters", "send records that did not fit back to their topics")
    add_connection_options(replaying)
    add_format_option(replaying)
    replaying.add_argument("--list", action="store_true", help="show them and why, and send nothing")
    replaying.add_argument("--dry-run", action="store_true", help="say how many would be sent")
    replaying.add_argument(
        "--reason", action="append", default=[], metavar="TEXT", help="only those with it in the reason"
    )
    replaying.add_argument("--to", metavar="TOPIC", help="send them there instead")


def add_run_options(parser: argparse.ArgumentParser) -> None:
    """What a run takes, also under `python FILE` and `spark-submit FILE`."""
    add_connection_options(parser)
    _add_spark_options(parser)
    _add_places(parser)
    parser.add_argument("--available-now", action="store_true", help="read what is there now, then stop")
    parser.add_argument(
        "--allow-data-loss", action="store_true", help="go on where records are gone before they were read"
    )
    parser.add_argument(
        "--topic-recreated",
        choices=("start-over", "skip"),
        help="where a topic was deleted and created again: read the new one from its beginning, or go on at its end "
        "(default: stop and say so)",
    )
    parser.add_argument("--format", choices=("table", "json"), default="table", help="json: a line for every batch")
    parser.add_argument("--timings", action="store_true", help="say in the end where the time went")
    parser.add_argument("--quiet", action="store_true", help="say nothing but what goes wrong")
    parser.add_argument(
        "--metrics-port", type=natural, metavar="PORT", help="serve metrics for Prometheus (0: any port)"
    )


def _action(actions: Actions, name: str, help_line: str) -> argparse.ArgumentParser:
    action = actions.add_parser(name, help=help_line, description=f"{help_line[0].upper()}{help_line[1:]}.")
    action.add_argument("file", metavar="FILE", help="Python or YAML that declares the pipeline")
    action.set_defaults(run=f"{COMMAND}:{name.replace('-', '_')}")
    return action


def _add_spark_options(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("spark")
    group.add_argument("--master", metavar="URL", help="where Spark runs (default: local[*])")
    group.add_argument("--conf", action="append", default=[], metavar="KEY=VALUE", help="a setting of Spark's")


def _add_places(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--data", metavar="DIR", default=".", help="where relative paths of sinks begin (default: here)"
    )
    parser.add_argument(
        "--checkpoint", metavar="DIR", help="where to remember how far it is (default: .checkpoints/NAME under --data)"
    )
