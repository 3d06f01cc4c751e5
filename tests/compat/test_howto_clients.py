"""The programs of the page about clients, as they stand there: each writes a record and reads it in a group."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from bench.servers import Server
from tests.compat import go_programs, maven, node_programs

pytestmark = pytest.mark.compat

PAGE = (Path(__file__).parents[2] / "docs" / "howto" / "clients.md").read_text()
PROGRAM_TIMEOUT_S = 120


def program(language: str, server: Server) -> str:
    (shown,) = re.findall(rf"^```{language}\n(.*?)^```", PAGE, re.M | re.S)
    assert isinstance(shown, str)
    assert "127.0.0.1:9092" in shown
    return shown.replace("127.0.0.1:9092", server.bootstrap)


def greets(*command: object, cwd: Path, env: dict[str, str] | None = None) -> None:
    outcome = subprocess.run(
        [str(word) for word in command],
        cwd=cwd,
        env=env,
        capture_output=True,
        text=True,
        timeout=PROGRAM_TIMEOUT_S,
        check=False,
    )
    assert outcome.returncode == 0, outcome.stdout + outcome.stderr
    assert "en: hello" in outcome.stdout.splitlines(), outcome.stdout + outcome.stderr


@pytest.mark.java
def test_java(group_server: Server, tmp_path: Path) -> None:
    path = tmp_path / "Greetings.java"
    path.write_text(program("java", group_server))
    jars = maven.classpath([maven.KAFKA_CLIENTS, maven.SLF4J_SIMPLE])
    greets("java", "-cp", jars, path, cwd=tmp_path)


def test_go(group_server: Server, tmp_path: Path) -> None:
    go_programs.require_go()
    for name in ("go.mod", "go.sum"):
        shutil.copy(go_programs.SOURCES / name, tmp_path)
    (tmp_path / "main.go").write_text(program("go", group_server))
    greets("go", "run", ".", cwd=tmp_path, env=go_programs.environment())


def test_node(group_server: Server) -> None:
    node_programs.require_node()
    home = node_programs.installed()
    path = home / "greetings.mjs"
    path.write_text(program("javascript", group_server))
    greets("node", path, cwd=home)


def test_python(group_server: Server, tmp_path: Path) -> None:
    path = tmp_path / "greetings.py"
    path.write_text(program("python", group_server))
    greets(sys.executable, path, cwd=tmp_path)
