"""A plain `pip install odradek` is a whole broker: with its dependencies and nothing else, every codec works."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from datetime import UTC, datetime
from importlib.metadata import Distribution, distribution
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PATIENCE_S = 60
CODECS = ("gzip", "snappy", "lz4", "zstd")
WITH_PATH = "import sys; sys.path[1:1] = {paths!r}; from odradek.__main__ import main; sys.exit(main({words!r}))"


def dependencies() -> list[Distribution]:
    """What pyproject.toml says that every install has, on this Python."""
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    names = []
    for each in declared:
        requirement, _, marker = each.partition(";")
        if "python_version < '3.14'" in marker and sys.version_info >= (3, 14):
            continue
        found = re.match(r"[\w.-]+", requirement)
        assert found is not None
        names.append(found[0])
    return [distribution(name) for name in names]


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with the declared dependencies alone."""
    place = tmp_path_factory.mktemp("packages")
    for each in dependencies():
        for file in each.files or ():
            if ".." not in file.parts and "__pycache__" not in file.parts:
                link = place.joinpath(*file.parts)
                link.parent.mkdir(parents=True, exist_ok=True)
                if not link.exists():
                    link.symlink_to(Path(str(file.locate())).resolve())
    return place


class Plain:
    """`odradek` where nothing else is installed."""

    def __init__(self, packages: Path) -> None:
        self._paths = [str(ROOT / "src"), str(packages)]
        self.environment = {"PATH": os.environ["PATH"], "TZ": "UTC"}

    def command(self, *words: object) -> list[str]:
        program = WITH_PATH.format(paths=self._paths, words=[str(word) for word in words])
        return [sys.executable, "-I", "-S", "-c", program]

    def ok(self, *words: object, stdin: str = "") -> str:
        ended = subprocess.run(
            self.command(*words),
            input=stdin,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )
        assert ended.returncode == 0, (words, ended.stdout, ended.stderr)
        return ended.stdout


@pytest.fixture(scope="module")
def plain(packages: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Plain, Path]]:
    """With a node of its own."""
    made = Plain(packages)
    data = tmp_path_factory.mktemp("data")
    node = subprocess.Popen(
        made.command("start", "--port", 0, "--data", data),
        env=made.environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert node.stdout is not None
    said = []
    try:
        for line in node.stdout:
            said.append(line)
            ready = re.search(r"ready: PLAINTEXT://(\S+)", line)
            if ready:
                made.environment["ODRADEK_BOOTSTRAP"] = ready[1]
                break
        assert "ODRADEK_BOOTSTRAP" in made.environment, "".join(said)
        yield made, data
    finally:
        node.send_signal(signal.SIGTERM)
        code = node.wait(PATIENCE_S)
        node.stdout.close()
    assert code == 0


@pytest.mark.parametrize("codec", CODECS)
def test_every_codec(plain: tuple[Plain, Path], codec: str) -> None:
    odradek, data = plain
    lines = "".join(f"line {number}\n" for number in range(50))
    for topic, setting, sent in (("sent", "producer", codec), ("kept", codec, "none"), ("anew", "uncompressed", codec)):
        name = f"{topic}-{codec}"
        odradek.ok("topic", "create", name, "--config", f"compression.type={setting}")
        odradek.ok("produce", name, "--compression", sent, stdin=lines)
        read = [json.loads(line) for line in odradek.ok("consume", name, "--format", "json").splitlines()]
        assert [each["value"] for each in read] == lines.splitlines()
        # A search by time, inside of the batch.
        last = read[-1]["timestamp"]
        moment = datetime.fromtimestamp(last / 1000, UTC).isoformat(timespec="milliseconds")
        found = odradek.ok("consume", name, "--since", moment, "--format", "json").splitlines()
        assert found
        assert {json.loads(line)["timestamp"] for line in found} == {last}
        (report,) = json.loads(odradek.ok("log", "verify", data / f"{name}-0", "--format", "json"))
        assert (report["records"], report["problems"]) == (50, [])


def test_nothing_else_was_there(plain: tuple[Plain, Path]) -> None:
    odradek, _ = plain
    assert odradek.ok("version").endswith("no native module)\n")
