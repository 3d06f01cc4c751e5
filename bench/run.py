"""Measure Odradek beside Apache Kafka.

python -m bench.run                                  everything, both servers, writes bench/RESULTS.md
python -m bench.run --quick                          a few minutes
python -m bench.run --server odradek --cell NAME     one cell (or a pattern such as 'produce-*'), no Kafka
python -m bench.run --list                           the names
"""

from __future__ import annotations

import argparse
import shlex
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
if str(ROOT) not in sys.path:  # so that `python bench/run.py` works too
    sys.path.insert(0, str(ROOT))

from bench.cells import Cell, Rig, all_cells  # noqa: E402
from bench.command import chosen, option_parser, say  # noqa: E402
from bench.report import Outcome, page, table, with_other_parts_of  # noqa: E402
from bench.servers import FILES_GO_SOON, OdradekServer, Server  # noqa: E402

RESULTS = Path(__file__).with_name("RESULTS.md")
WARM_UP_CELLS = (
    "produce-100B-1p-default-acks1",
    "produce-1KiB-6p-tuned-acksall-lz4",
    "produce-100B-6p-default-acksall-rdkafka",
    "single-record",
    "consume-1KiB-6p-default",
)
WARM_UP_ROUNDS = 3


def main(arguments: Sequence[str] | None = None) -> int:
    options = _options(arguments)
    cells = chosen([cell for cell in all_cells() if cell.quick or not options.quick], options.cell)
    if options.list:
        print("\n".join(cell.name for cell in cells))
        return 0
    started = time.monotonic()
    kinds = ["kafka", "odradek"] if options.server == "both" else [options.server]
    repetitions = options.repeat or (1 if options.quick else 3)
    with ExitStack() as stack:
        rig = Rig(options.scale)
        stack.callback(rig.close)
        servers = [stack.enter_context(_server(kind)) for kind in kinds]
        if options.warm_up:
            warm_up(rig, servers)
        outcomes = [measure(rig, cell, servers, repetitions) for cell in cells]
    if options.output is not None:
        command = "python -m bench.run " + shlex.join(sys.argv[1:] if arguments is None else arguments)
        seconds = time.monotonic() - started
        written = page(outcomes, command=command.strip(), repetitions=repetitions, seconds=seconds)
        options.output.write_text(with_other_parts_of(options.output, written))
    print(table(outcomes))
    return 1 if any(outcome.verdict() == "FAIL" for outcome in outcomes) else 0


def measure(rig: Rig, cell: Cell, servers: Sequence[Server], repetitions: int) -> Outcome:
    """All repetitions of a cell, the servers taking turns, and turns at being first."""
    outcome = Outcome(cell)
    for number in range(repetitions + cell.more_repetitions if repetitions > 1 else 1):
        for server in servers if number % 2 == 0 else reversed(servers):
            outcome.runs.setdefault(server.kind, []).append(cell.run(rig, server))
    for server in servers:
        rig.drop_dataset(server, cell.name)
    say(f"{table([outcome]).splitlines()[-1]}")
    return outcome


def warm_up(rig: Rig, servers: Sequence[Server]) -> None:
    """Several hundred megabytes through each server: a cold JVM takes many times the CPU of a warm one."""
    cells = {cell.name: cell for cell in all_cells()}
    for server in servers:
        started = time.monotonic()
        for _ in range(WARM_UP_ROUNDS if server.kind == "kafka" else 1):
            for name in WARM_UP_CELLS:
                cells[name].run(rig, server)
        for name in WARM_UP_CELLS:
            rig.drop_dataset(server, name)
        say(f"{server.kind} warmed up in {time.monotonic() - started:.0f} s")


def _server(kind: str) -> Server:
    if kind == "odradek":
        return OdradekServer(properties=FILES_GO_SOON)
    # Imported here, so that Odradek alone can be measured where there is no Java.
    from bench.apache_kafka import ApacheKafka

    return ApacheKafka(properties=FILES_GO_SOON)


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = option_parser("bench.run", __doc__, output="where to write the page")
    parser.add_argument("--quick", action="store_true", help="fewer cells, one repetition")
    parser.add_argument("--repeat", type=int, metavar="N", help="repetitions a cell (3; 1 with --quick)")
    parser.add_argument("--no-warm-up", dest="warm_up", action="store_false")
    options = parser.parse_args(arguments)
    if options.output is None and options.server == "both" and not options.cell and not options.quick:
        options.output = RESULTS
    return options


if __name__ == "__main__":
    raise SystemExit(main())
