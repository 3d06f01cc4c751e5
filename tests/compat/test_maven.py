"""Jars are fetched once, however many ask for them at the same time."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from tests.compat import maven

MAVEN = """#!/bin/sh
for word do case $word in -DoutputDirectory=*) place=${word#*=} ;; esac done
mkdir "$place" && echo jar > "$place/one.jar"
"""


def test_several_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for tool in ("mvn", "java", "javac"):
        (tmp_path / tool).write_text(MAVEN)
        (tmp_path / tool).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setattr(maven, "CACHE", tmp_path / "cache")
    with ThreadPoolExecutor(3) as nodes:
        paths = list(nodes.map(maven.classpath, [["a:b:1"]] * 3))
    assert len(set(paths)) == 1
    assert [jar.name for jar in Path(paths[0]).parent.iterdir()] == ["one.jar"]
