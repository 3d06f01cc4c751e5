"""Profiles: what is to be known of a cluster, under a name; each is a properties file as Kafka's clients have them."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping

from odradek.apps.terminal.sentence import Sentence
from odradek.configdef import did_you_mean, format_properties, parse_properties

BOOTSTRAP = "bootstrap.servers"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_SUFFIX = ".properties"


class Profiles:
    """The files; `current` is the one that `odradek profile use` chose."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        home = environment.get("XDG_CONFIG_HOME") or os.path.expanduser("~/.config")
        self.directory = os.path.join(home, "odradek")
        self._choice = os.path.join(self.directory, "current-profile")

    def names(self) -> list[str]:
        try:
            found = os.listdir(self._profiles_directory())
        except FileNotFoundError:
            return []
        except OSError as wrong:
            raise _cannot("read", self._profiles_directory(), wrong) from wrong
        return sorted(name.removesuffix(_SUFFIX) for name in found if name.endswith(_SUFFIX))

    def current(self) -> str | None:
        try:
            with open(self._choice, encoding="utf-8") as opened:
                return opened.read().strip() or None
        except FileNotFoundError:
            return None
        except OSError as wrong:
            raise _cannot("read", self._choice, wrong) from wrong

    def read(self, name: str) -> dict[str, str]:
        """The settings of a profile, or a Sentence with the nearest name."""
        path = self._path(name)
        try:
            with open(path, encoding="utf-8") as opened:
                return parse_properties(opened.read())
        except FileNotFoundError:
            hint = did_you_mean(name, self.names()) or " `odradek profile list` shows those there are."
            raise Sentence(f"there is no profile {name}.{hint}") from None
        except (OSError, UnicodeDecodeError) as wrong:
            raise _cannot("read", path, wrong) from wrong

    def write(self, name: str, settings: Mapping[str, str]) -> None:
        """Keep settings, readable for nobody else: there may be passwords among them."""
        path = self._path(name)
        try:
            os.makedirs(self._profiles_directory(), mode=0o700, exist_ok=True)
            _replace(path, format_properties(settings))
        except OSError as wrong:
            raise _cannot("write", path, wrong) from wrong

    def use(self, name: str | None) -> None:
        """Choose the profile that holds when none is named; None chooses none."""
        try:
            os.makedirs(self.directory, mode=0o700, exist_ok=True)
            _replace(self._choice, f"{name}\n" if name else "")
        except OSError as wrong:
            raise _cannot("write", self._choice, wrong) from wrong

    def remove(self, name: str) -> None:
        self.read(name)
        try:
            os.unlink(self._path(name))
        except OSError as wrong:
            raise _cannot("remove", self._path(name), wrong) from wrong
        if self.current() == name:
            self.use(None)

    def _profiles_directory(self) -> str:
        return os.path.join(self.directory, "profiles")

    def _path(self, name: str) -> str:
        if not _NAME.fullmatch(name):
            raise Sentence(
                f"{name!r} cannot be a profile's name: letters, digits, '.', '_' and '-', at most 64, "
                "and a letter or digit first.",
                2,
            )
        return os.path.join(self._profiles_directory(), name + _SUFFIX)


def _replace(path: str, text: str) -> None:
    """Write beside and rename: a reader sees the old content or the new."""
    temporary = f"{path}.{os.getpid()}"
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with open(descriptor, "w", encoding="utf-8") as opened:
        opened.write(text)
    os.replace(temporary, path)


def _cannot(what: str, path: str, wrong: OSError | UnicodeDecodeError) -> Sentence:
    why = wrong.strerror.lower() if isinstance(wrong, OSError) and wrong.strerror else str(wrong)
    return Sentence(f"cannot {what} {path}: {why}.")
