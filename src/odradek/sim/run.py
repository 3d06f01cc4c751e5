"""Play one seed: start what the scenario wants, let clients work and faults happen, then judge.

`python -m odradek.sim.run --seed 7 --trace` shows everything that happened, one line each.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import logging
import random
import sys
import time
import traceback
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from odradek.sim import checkers, compaction, groups, quorum, replication, transactions
from odradek.sim.cluster import Cluster, TraceLog
from odradek.sim.consumer import Consumer, FinalReader, Observer
from odradek.sim.faults import Faults
from odradek.sim.history import (
    Acknowledged,
    ChangeAnswered,
    CommitAcknowledged,
    History,
    Partition,
    Read,
    TablePut,
    TransactionEnded,
)
from odradek.sim.loop import Deadlock
from odradek.sim.machine import MakeNode, make_node
from odradek.sim.producer import Producer
from odradek.sim.replication_cluster import ReplicationCluster
from odradek.sim.trace import Trace
from odradek.sim.transaction_cluster import TransactionCluster
from odradek.sim.workload import DURABLE_TOPICS, create_topics
from odradek.values import value

STATES = (
    "process crash",
    "power loss",
    "power loss took data",
    "crash inside a write",
    "crash before a change of names",
    "crash during roll",
    "crash during recovery",
    "log tail cut",
    "clean restart",
    "segment deleted",
    "connection cut",
    "network stalled",
    "clock set",
    "disk full",
    "duplicate answered",
    "fetch session used",
    "records deleted",
)
"""What a set of seeds must have met to prove anything about a node and its logs."""

DEADLINE_S = 300.0


@value
class Outcome:
    """How a run ended."""

    seed: int
    broken: tuple[str, ...]
    acknowledged: int
    """Records, commits, ends of transactions, or changes of metadata."""
    simulated_s: float
    steps: int
    calls: int
    """Requests that nodes sent each other."""
    trace: Trace

    @property
    def marks(self) -> dict[str, int]:
        return self.trace.marks

    @property
    def digest(self) -> str:
        return self.trace.digest()

    @property
    def lines(self) -> list[str]:
        return self.trace.lines


def play(
    seed: int,
    scenario: str = "logs",
    *,
    make_node: MakeNode = make_node,
    power: bool | None = None,
    lies_about: str | None = None,
    deadline_s: float = DEADLINE_S,
) -> Outcome:
    """One run of a scenario. Nothing outside the seed and these arguments may change what happens in it.

    `power` says whether power may be lost (half of the seeds, if not told). A disk that lies about the syncs of some
    paths is for trying the checkers: it must not go unnoticed then.
    """
    collects = gc.isenabled()
    gc.disable()  # A run leaves little in cycles; and what is closed only when it is found must not be by chance.
    try:
        return _play(seed, scenario, make_node, power=power, lies_about=lies_about, deadline_s=deadline_s)
    finally:
        if collects:
            gc.enable()


def _play(
    seed: int, scenario: str, make_node: MakeNode, *, power: bool | None, lies_about: str | None, deadline_s: float
) -> Outcome:
    if power is None:
        power = random.Random(f"{seed}/power").random() < 0.5
    cluster = _cluster(seed, scenario, make_node, power=power)
    history = cluster.history
    for machine in cluster.machines.values():
        machine.device.lies_about = lies_about
    handler = TraceLog(cluster.trace)
    logger = logging.getLogger("odradek")
    level, propagate = logger.level, logger.propagate
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    logger.propagate = False
    try:
        running = _SCENARIOS[scenario](cluster, power=power)
        broken = _run(cluster, running, deadline_s=deadline_s)
    finally:
        cluster.abandon()
        cluster.loop.close()
        logger.removeHandler(handler)
        logger.setLevel(level)
        logger.propagate = propagate
    broken += cluster.loop.failures
    if not broken:
        broken += checkers.check(history)
    for line in broken:
        cluster.trace.note("verdict", line)
    acknowledged = _acknowledged(history)
    history.events.clear()  # Else all these images would be found by the garbage collector only, at a far higher price.
    return Outcome(
        seed,
        tuple(broken),
        acknowledged,
        cluster.loop.time(),
        cluster.loop.steps,
        cluster.internet.calls,
        cluster.trace,
    )


def _cluster(seed: int, scenario: str, make_node: MakeNode, *, power: bool) -> Cluster:
    if scenario == "quorum":
        return quorum.QuorumCluster(seed, History(()))
    if scenario == "compaction":
        return compaction.CompactedCluster(seed, power=power)
    if scenario == "replication":
        return ReplicationCluster(seed, power=power)
    if scenario == "transactions":
        return TransactionCluster(seed, power=power)
    if scenario == "groups":
        history = History(groups.durable_topics(power=power))
        return Cluster(seed, history, make_node, properties=groups.properties(power=power))
    return Cluster(seed, History(DURABLE_TOPICS), make_node)


def _acknowledged(history: History) -> int:
    return sum(
        len(event.records)
        if isinstance(event, Acknowledged)
        else len(event.pairs)
        if isinstance(event, TablePut)
        else isinstance(event, CommitAcknowledged | ChangeAnswered | TransactionEnded)
        for event in history.events
    )


def _run(cluster: Cluster, running: Coroutine[Any, Any, None], *, deadline_s: float) -> list[str]:
    try:
        cluster.loop.run_until_complete(_with_deadline(running, deadline_s=deadline_s))
    except TimeoutError:
        return [f"the run was not over after {deadline_s:.0f} simulated seconds"]
    except Deadlock as stuck:
        return [str(stuck)]
    except Exception as failure:  # noqa: BLE001 - whatever ends a run is what the run has found
        return ["".join(traceback.format_exception(failure)).rstrip()]
    return []


async def _with_deadline(running: Coroutine[Any, Any, None], *, deadline_s: float) -> None:
    async with asyncio.timeout(deadline_s):
        await running


async def _play_logs(cluster: Cluster, *, power: bool) -> None:
    draw = cluster.draw("scenario")
    await cluster.start()
    await create_topics(cluster)
    producers = [
        Producer(cluster, f"producer-{number}", draw.randrange(40, 120)) for number in range(draw.choice((1, 2)))
    ]
    watching = [
        asyncio.create_task(Consumer(cluster, "consumer").run()),
        asyncio.create_task(Observer(cluster, "observer").run()),
    ]
    faults = asyncio.create_task(Faults(cluster, draw.randrange(2, 6), power=power).run())
    await asyncio.gather(faults, *(producer.run() for producer in producers))
    for task in watching:
        task.cancel()
    await asyncio.gather(*watching, return_exceptions=True)
    if draw.random() < 0.5:
        await cluster.stop()
        await cluster.start()
    await FinalReader(cluster).run()
    await cluster.stop()
    _mark_duplicates(cluster)


def _mark_duplicates(cluster: Cluster) -> None:
    """A batch that was sent again although a consumer had it already was answered as a duplicate."""
    read: dict[Partition, int] = {}
    for event in cluster.history.events:
        if isinstance(event, Read) and not event.final:
            read[event.partition] = max(read.get(event.partition, 0), event.offset + len(event.records))
        elif isinstance(event, Acknowledged) and event.again and 0 <= event.offset < read.get(event.partition, 0):
            cluster.trace.mark("duplicate answered")


_SCENARIOS: dict[str, Callable[..., Coroutine[Any, Any, None]]] = {
    "compaction": compaction.scenario,
    "logs": _play_logs,
    "groups": groups.scenario,
    "quorum": quorum.scenario,
    "replication": replication.scenario,
    "transactions": transactions.scenario,
}


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m odradek.sim.run", description=__doc__)
    parser.add_argument("--seed", type=int, default=1, help="the first seed (default: 1)")
    parser.add_argument("--count", type=int, default=1, help="how many seeds, one after the other (default: 1)")
    parser.add_argument("--scenario", choices=sorted(_SCENARIOS), default="logs", help="what is played (default: logs)")
    parser.add_argument("--trace", action="store_true", help="print every line of what happened")
    parser.add_argument("--quiet", action="store_true", help="print only seeds that broke something, and a sum")
    options = parser.parse_args(arguments)
    failed = 0
    simulated_s = calls = 0.0
    met: dict[str, int] = {}
    began = time.process_time()
    for seed in range(options.seed, options.seed + options.count):
        outcome = play(seed, options.scenario)
        failed += bool(outcome.broken)
        simulated_s += outcome.simulated_s
        calls += outcome.calls
        for state, count in outcome.marks.items():
            met[state] = met.get(state, 0) + count
        if not options.quiet or outcome.broken:
            _print(outcome, trace=options.trace)
    if options.count > 1:
        cpu_s = time.process_time() - began
        sys.stdout.write(
            f"{options.count} seeds of {options.scenario}, {failed} broken; {simulated_s / cpu_s:.0f} simulated "
            f"seconds and {calls / cpu_s:.0f} calls between nodes per CPU second\n  met: {_told(met)}\n"
        )
    return int(failed > 0)


def _print(outcome: Outcome, *, trace: bool) -> None:
    out = sys.stdout
    if trace:
        out.writelines(f"{line}\n" for line in outcome.lines)
    out.write(
        f"seed {outcome.seed}: {outcome.acknowledged} acknowledged in {outcome.simulated_s:.1f} simulated seconds "
        f"with {outcome.calls} calls between nodes and {outcome.steps} steps, digest {outcome.digest}\n"
    )
    out.write(f"  met: {_told(outcome.marks)}\n")
    for line in outcome.broken:
        out.write(f"  BROKEN: {line}\n")
    if not outcome.broken:
        out.write("  every promise held\n")
    out.flush()


def _told(met: dict[str, int]) -> str:
    return ", ".join(f"{state} ×{count}" for state, count in sorted(met.items()))


if __name__ == "__main__":
    sys.exit(main())
