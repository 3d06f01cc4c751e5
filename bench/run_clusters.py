"""Measure clusters of Odradek beside clusters of Apache Kafka.

python -m bench.run_clusters                                   everything, into the part of bench/RESULTS.md on clusters
python -m bench.run_clusters --server odradek --cell 'gap-*'   some cells, one kind, printed only
python -m bench.run_clusters --list                            the names
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
if str(ROOT) not in sys.path:  # so that `python bench/run_clusters.py` works too
    sys.path.insert(0, str(ROOT))

from bench.cells import Metrics, Rig  # noqa: E402
from bench.cluster_cells import ClusterCell, Setting, Stage, all_cells, pick, staged  # noqa: E402
from bench.clusters import alone  # noqa: E402
from bench.command import chosen, option_parser, say  # noqa: E402
from bench.report import CLUSTER_HEADING, Outcome, cluster_part, table, with_new_part  # noqa: E402

RESULTS = Path(__file__).with_name("RESULTS.md")


def main(arguments: Sequence[str] | None = None) -> int:
    options = _options(arguments)
    cells = chosen(all_cells(), options.cell)
    if options.list:
        print("\n".join(cell.name for cell in cells))
        return 0
    started = time.monotonic()
    kinds = ["kafka", "odradek"] if options.server == "both" else [options.server]
    outcomes: list[Outcome] = []
    with ExitStack() as stack:
        rig = Rig(options.scale)
        stack.callback(rig.close)
        for setting in dict.fromkeys(cell.setting for cell in cells):
            outcomes += _measure_in(setting, pick(cells, setting), rig, kinds, options.repeat)
    if options.output is not None:
        command = "python -m bench.run_clusters " + shlex.join(sys.argv[1:] if arguments is None else arguments)
        part = cluster_part(
            outcomes, command=command.strip(), repetitions=options.repeat, seconds=time.monotonic() - started
        )
        options.output.write_text(with_new_part(options.output, CLUSTER_HEADING, part))
    print(table(outcomes))
    return 1 if any(outcome.verdict() == "FAIL" for outcome in outcomes) else 0


def _measure_in(
    setting: Setting, cells: Sequence[ClusterCell], rig: Rig, kinds: Sequence[str], repetitions: int
) -> list[Outcome]:
    """The kinds stand side by side and take turns, unless there are several clusters of each."""
    outcomes = [Outcome(cell) for cell in cells]
    together = [kinds] if len(setting.sizes) == 1 else [[kind] for kind in kinds]
    for some in together:
        with ExitStack() as stack:
            stages = [staged(kind, setting, rig, stack) for kind in some]
            say(f"{setting}: running")
            for cell, outcome in zip(cells, outcomes, strict=True):
                _measure(cell, outcome, stages, repetitions)
    return outcomes


def _measure(cell: ClusterCell, outcome: Outcome, stages: Sequence[Stage], repetitions: int) -> None:
    for stage in stages:
        # Only a JVM gets better at it.
        for _ in range(cell.warm_up if stage.kind == "kafka" else min(cell.warm_up, 1)):
            _run(cell, stage, stages)
    for number in range(1 if cell.once else cell.turns or repetitions):
        for stage in stages if number % 2 == 0 else reversed(stages):
            try:
                metrics = _run(cell, stage, stages)
                outcome.runs.setdefault(stage.kind, []).append(metrics)
                if cell.turns:
                    say(f"{number} {stage.kind}: {metrics['cpu_s_per_gb']:.2f} s/GB, {metrics['mb_per_s']:.0f} MB/s")
            except RuntimeError as failure:
                # A row with a gap says more than no page at all.
                say(f"{cell.name} failed on {stage.kind}: {failure}")
    say(f"{table([outcome]).splitlines()[-1]}")


def _run(cell: ClusterCell, stage: Stage, stages: Sequence[Stage]) -> Metrics:
    if not cell.turns:
        return cell.run(stage)
    with alone(stage.cluster, [each.cluster for each in stages]):
        return cell.run(stage)


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = option_parser("bench.run_clusters", __doc__, output="the page whose part on clusters is written anew")
    parser.add_argument("--repeat", type=int, default=3, metavar="N", help="repetitions a cell")
    options = parser.parse_args(arguments)
    if options.output is None and options.server == "both" and not options.cell:
        options.output = RESULTS
    return options


if __name__ == "__main__":
    raise SystemExit(main())
