"""Real nodes for tests: context managers for everyone, and a pytest plugin with `kafka` and `kafka_cluster` fixtures.

May start processes, threads and signals, and always takes them away again. Every pytest run of everyone who has Odradek
installed imports this package for its plugin, so what it offers is imported when it is first asked for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from odradek.testing.cluster import RunningCluster, running_cluster
    from odradek.testing.node import RunningNode, running_node

__all__ = ["RunningCluster", "RunningNode", "running_cluster", "running_node"]


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"odradek.testing.{'cluster' if 'luster' in name else 'node'}"), name)
