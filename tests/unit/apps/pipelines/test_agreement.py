"""What a sink may be given, as far as that can be told without Spark."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from odradek.apps.pipelines.agreement import check_columns
from odradek.apps.pipelines.checkpoint import Checkpoint
from odradek.apps.terminal.sentence import Sentence
from odradek.pipelines import Pipeline, sinks, sources


def test_names_that_iceberg_keeps_for_itself(tmp_path: Path) -> None:
    pipeline = Pipeline("p")
    pipeline.source("t", sources.topic("t"))
    pipeline.sink("lake", "t", sinks.iceberg("lake"))
    rows = SimpleNamespace(columns=["value", "_partition", "_offset", "_deleted"])
    with pytest.raises(Sentence, match="sink lake: Iceberg keeps the names _partition, _deleted for itself"):
        check_columns(None, pipeline, Checkpoint(str(tmp_path), pipeline), {"lake": rows}, "")  # type: ignore[arg-type, dict-item]
