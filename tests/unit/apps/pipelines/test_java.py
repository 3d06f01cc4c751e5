"""Java is looked for before Spark looks for it."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from odradek.apps.pipelines.java import find_java, launcher, parse_version
from odradek.apps.terminal.sentence import Sentence


def java_that_says(directory: Path, version: str) -> Path:
    """A script in place of Java: it prints its version, or else its arguments."""
    java = directory / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(
        f'#!/bin/sh\n[ "$1" = -version ] || exec printf "%s\\n" "$@"\necho \'openjdk version "{version}"\' >&2\n'
    )
    java.chmod(0o755)
    return java


def nothing_from_pip() -> None:
    return None


@pytest.mark.parametrize(
    ("told", "version"),
    [
        ('openjdk version "17.0.15" 2025-04-15', 17),
        ('java version "21" 2023-09-19 LTS', 21),
        ('openjdk version "1.8.0_392"', 8),
        ('openjdk version "25-ea"', 25),
        ("command not found", None),
    ],
)
def test_versions(told: str, version: int | None) -> None:
    assert parse_version(told) == version


@pytest.mark.parametrize("version", ["17.0.15", "21.0.2"])
def test_a_suitable_one_is_taken(tmp_path: Path, version: str) -> None:
    java_that_says(tmp_path, version)
    by_home = find_java({"JAVA_HOME": str(tmp_path), "PATH": ""}, packaged=nothing_from_pip)
    by_path = find_java({"PATH": f"{tmp_path / 'bin'}:/bin:/usr/bin"}, packaged=nothing_from_pip)
    assert by_home.home == by_path.home == str(tmp_path)
    assert by_home.version == int(version[:2])


def test_a_wrong_one_is_named(tmp_path: Path) -> None:
    java = java_that_says(tmp_path, "25.0.1")
    with pytest.raises(Sentence) as refused:
        find_java({"JAVA_HOME": str(tmp_path)}, packaged=nothing_from_pip)
    assert str(refused.value) == (
        f"Spark needs Java 17 or 21, and {java} is Java 25: set JAVA_HOME to a suitable one, or run "
        "pip install 'odradek[java]'."
    )


def test_none_at_all_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(Sentence, match="there is none here: install one, or run pip install"):
        find_java({"PATH": str(tmp_path)}, packaged=nothing_from_pip)
    with pytest.raises(Sentence, match=r"JAVA_HOME is .*, but there is no Java"):
        find_java({"JAVA_HOME": str(tmp_path)}, packaged=nothing_from_pip)


def test_the_one_from_pip_is_the_last_resort(tmp_path: Path) -> None:
    """Behind a script that leaves out what it does not have."""
    packaged = java_that_says(tmp_path / "jdk", "21.0.8")
    java_that_says(tmp_path / "other", "25")
    environment = {"JAVA_HOME": str(tmp_path / "other"), "XDG_CACHE_HOME": str(tmp_path / "cache")}
    found = find_java(environment, packaged=lambda: packaged)
    assert found.version == 21
    command = [f"{found.home}/bin/java", "-Xmx1g", "--add-modules=jdk.incubator.vector", "two words", "Main"]
    ran = subprocess.run(command, capture_output=True, text=True, check=True)
    assert ran.stdout.splitlines() == ["-Xmx1g", "two words", "Main"]
    assert launcher(packaged, tmp_path / "cache" / "odradek") == Path(found.home)
