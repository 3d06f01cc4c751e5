"""Data pipelines: Spark does the work, Kafka tools can see it.

A pipeline is a small file: sources and sinks are declared, datasets are functions from DataFrames to DataFrames.
Spark's own connector reads, state and windows are Spark's, the lake is Parquet. What is added here is what Spark lacks:
offsets that Kafka's tools can see, dead letters, progress, errors that say what to do, and fixtures for tests.

May start a Spark session and speak to brokers as any client does. Nothing in the house imports it, and importing it
imports neither Spark nor Java: that waits until a pipeline is run.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from odradek.apps.pipelines import schemas, sinks, sources
    from odradek.apps.pipelines.pipeline import Pipeline

__all__ = ["Pipeline", "schemas", "sinks", "sources"]


def __getattr__(name: str) -> object:
    from importlib import import_module

    if name == "Pipeline":
        return import_module("odradek.apps.pipelines.pipeline").Pipeline
    if name in __all__:
        return import_module(f"odradek.apps.pipelines.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
