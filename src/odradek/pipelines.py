"""The door to data pipelines: `from odradek.pipelines import Pipeline, schemas, sinks, sources, transforms`.

It is for files that declare a pipeline, and imports neither Spark nor the command line: what runs such a file does.
"""

from __future__ import annotations

from odradek.apps.pipelines import schemas, sinks, sources, transforms
from odradek.apps.pipelines.pipeline import Pipeline

__all__ = ["Pipeline", "schemas", "sinks", "sources", "transforms"]
