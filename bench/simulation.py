"""What a simulated cluster costs: simulated seconds and calls between nodes a CPU second.

python -m bench.simulation                    seeds 1 to 24 of quorum and replication, the best of 2 turns of each
python -m bench.simulation --count 100 --turns 3 --scenario quorum

A call is a request that one node sends to another over the made-up network: fetches of the metadata log and of
partitions, heartbeats, votes, forwarded requests, and ApiVersions of new connections. What clients ask is not counted,
nor what a node asks itself. The CPU is that of this process for the whole run of a seed: nodes, clients, faults, the
made-up world, the checkers, and the collection of the garbage that all this leaves. Of several turns of a seed the
cheapest counts, since other processes on the machine can only make it dearer.
"""

from __future__ import annotations

import argparse
import gc
import sys
import time

from odradek.sim.run import play

FLOOR_SIMULATED_S = 50
FLOOR_CALLS = {"quorum": 6_000}
SCENARIOS = ("quorum", "replication")


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m bench.simulation", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--scenario", choices=SCENARIOS, action="append", help="default: both")
    parser.add_argument("--seed", type=int, default=1, help="the first seed (default: 1)")
    parser.add_argument("--count", type=int, default=24, help="how many seeds (default: 24)")
    parser.add_argument("--turns", type=int, default=2, help="how often each is played (default: 2)")
    options = parser.parse_args()
    out = sys.stdout
    columns = ("Scenario", "Seeds", "Simulated s a CPU s", "Floor", "Calls a CPU s", "Floor", "Calls a simulated s")
    out.write(f"| {' | '.join(columns)} |\n")
    out.write("|" + "---|" * len(columns) + "\n")
    for scenario in options.scenario or SCENARIOS:
        seeds = range(options.seed, options.seed + options.count)
        out.write(measure(scenario, seeds, options.turns) + "\n")
        out.flush()
    return 0


def measure(scenario: str, seeds: range, turns: int) -> str:
    """A row of the table; AssertionError if a seed breaks a promise."""
    play(seeds[0], scenario)  # Codecs are compiled, modules loaded,
    gc.collect()
    gc.freeze()  # and what these made is no run's garbage.
    cpu_s = simulated_s = calls = 0.0
    for seed in seeds:
        spent = []
        for _ in range(turns):
            began = time.process_time()
            outcome = play(seed, scenario)
            gc.collect()
            spent.append(time.process_time() - began)
            assert not outcome.broken, f"seed {seed} of {scenario}: {outcome.broken}"
        cpu_s += min(spent)
        simulated_s += outcome.simulated_s
        calls += outcome.calls
    floor = FLOOR_CALLS.get(scenario)
    return (
        f"| {scenario} | {seeds[0]} to {seeds[-1]} | {simulated_s / cpu_s:.0f} | {FLOOR_SIMULATED_S} "
        f"| {calls / cpu_s:,.0f} | {'–' if floor is None else f'{floor:,}'} "
        f"| {calls / simulated_s:.0f} |"
    )


if __name__ == "__main__":
    sys.exit(main())
