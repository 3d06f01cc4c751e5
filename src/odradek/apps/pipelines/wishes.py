"""What whoever runs a pipeline may choose."""

from __future__ import annotations

from odradek.apps.pipelines import sinks
from odradek.apps.pipelines.checkpoint import Checkpoint
from odradek.apps.pipelines.pipeline import Pipeline
from odradek.values import value


@value
class Wishes:
    """As `odradek pipeline run` takes it."""

    data: str = "."
    checkpoint: str | None = None
    available_now: bool = False
    master: str | None = None
    conf: tuple[tuple[str, str], ...] = ()
    allow_data_loss: bool = False
    topic_recreated: str | None = None
    """`start-over` or `skip`: what becomes of a topic that was deleted and created again; None stops the run."""
    form: str = "table"
    quiet: bool = False
    metrics_port: int | None = None
    timings: bool = False

    def checkpoint_of(self, pipeline: Pipeline) -> str:
        return self.checkpoint or sinks.located(self.data, f".checkpoints/{pipeline.name}")

    def checkpoint_for(self, pipeline: Pipeline) -> Checkpoint:
        """A pipeline's checkpoint, which knows what to type in order to get to it again."""
        options = [f"--data {self.data}"] if self.data != "." else []
        options += [f"--checkpoint {self.checkpoint}"] if self.checkpoint else []
        return Checkpoint(self.checkpoint_of(pipeline), pipeline, options=" ".join(options))
