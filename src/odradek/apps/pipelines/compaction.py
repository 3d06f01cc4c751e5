"""Small files of a Parquet sink become few large ones, and whoever reads the lake sees the same rows all the time.

Spark's file sink lists its files in a log, `_spark_metadata`: a file a batch, and in every tenth, `N.compact`, all that
there are so far. Readers take the newest `N.compact` and the batches after it. So the files that `N.compact` lists are
written anew, and one rename puts another `N.compact` in its place that lists the new ones: before it readers see the
old files, after it the new, never both and never neither. The numbers of batches stay as they are, because by them
Spark knows which batch is in the sink already. Nothing else may write while this goes on: it is done under the
checkpoint's lock. `docs/adr/0011-a-lake-is-compacted-by-one-rename.md` says why.
"""

from __future__ import annotations

import json
import os
import shutil
import time
import uuid
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, unquote, urlsplit

from odradek.apps.terminal.output import plural
from odradek.apps.terminal.sentence import Sentence
from odradek.values import value

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOG = "_spark_metadata"
WORK = "_odradek_compaction"
"""What a compaction has under way, and which files it replaced; readers skip names that begin with an underscore."""

LOG_VERSION = "v1"
TARGET_BYTES = 128 << 20
KEEP_S = 3600.0
"""How long replaced files stay for those who had listed them before."""


@value
class Compacted:
    """What was done to a sink."""

    before: int
    """Files that were replaced."""

    after: int
    """Files that replaced them."""

    left: int
    """Files of the newest batches, which stay as they are until Spark has gathered their names, too."""

    removed: int
    """Files of earlier compactions that nobody needs any more."""

    def sentence(self, sink: str) -> str:
        done = f"{plural(self.before, 'file')} became {self.after}" if self.before else "there was nothing to gain"
        left = f"; {plural(self.left, 'file')} of the newest batches stay as they are" if self.left else ""
        removed = f"; {plural(self.removed, 'replaced file')} of earlier times deleted" if self.removed else ""
        return f"sink {sink}: {done}{left}{removed}."


@value
class SinkLog:
    """What Spark's file sink says of itself."""

    place: Path
    gathered: int | None
    """The newest batch whose file lists all files so far."""

    latest: int
    """The newest batch; -1 where there is none."""

    @property
    def gathered_file(self) -> Path:
        return self.place / LOG / f"{self.gathered}.compact"

    def entries(self) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
        """Files as `N.compact` lists them, and those of the batches after it."""
        if self.latest < 0:
            return [], []
        first = 0 if self.gathered is None else self.gathered + 1
        newer = [each for batch in range(first, self.latest + 1) for each in _lines(self.place / LOG / str(batch))]
        return ([] if self.gathered is None else _lines(self.gathered_file)), newer


def read_log(place: Path) -> SinkLog:
    """The log of the sink in a directory, as far as names tell."""
    names = [each.name for each in (place / LOG).iterdir()] if (place / LOG).is_dir() else []
    gathered = [int(name[: -len(".compact")]) for name in names if _is_gathered(name)]
    latest = [int(name) for name in names if name.isdecimal()] + gathered
    return SinkLog(place, max(gathered, default=None), max(latest, default=-1))


def compact(
    spark: SparkSession,
    place: Path,
    *,
    target_bytes: int = TARGET_BYTES,
    keep_s: float = KEEP_S,
    step: Callable[[str], None] = lambda _: None,
) -> Compacted:
    """Write small files anew as larger ones. To be called by whoever holds the checkpoint's lock.

    It may be killed at any point: what it leaves behind is deleted by the next. `step` hears of every point on the way.
    """
    removed = sweep(place, keep_s=keep_s)
    log = read_log(place)
    old, newer = log.entries()
    bundles = [bundle for group in _alike(old) for bundle in bundled(group, target_bytes)]
    if not bundles:
        return Compacted(0, 0, len(newer), removed)
    name = f"{log.gathered}-{uuid.uuid4().hex[:12]}"
    step("begun")
    written = [_rewritten(spark, place, name, number, bundle) for number, bundle in enumerate(bundles)]
    step("written")
    replaced = {each["path"] for bundle in bundles for each in bundle}
    _note(place, name, written=[str(there) for _, there in written], replaced=sorted(map(_file, replaced)))
    step("noted")
    for made, there in written:
        os.rename(made, there)
        step("moved")
    fresh = [each for each in old if each["path"] not in replaced]
    fresh += [_entry(there, like=bundle[0]) for (_, there), bundle in zip(written, bundles, strict=True)]
    for directory in sorted({there.parent for _, there in written}):
        _sync(directory)
    _switch(log.gathered_file, fresh, step)
    shutil.rmtree(place / WORK / name, ignore_errors=True)
    return Compacted(len(replaced), len(written), len(newer), removed + sweep(place, keep_s=keep_s))


def small_files(log: SinkLog, target_bytes: int = TARGET_BYTES) -> int:
    """How many files a compaction would put together, as far as names and sizes tell."""
    directories: dict[str, list[dict[str, Any]]] = {}
    for each in log.entries()[0]:
        directories.setdefault(os.path.dirname(each["path"]), []).append(each)
    return sum(len(bundle) for group in directories.values() for bundle in bundled(group, target_bytes))


def bundled(entries: Sequence[dict[str, Any]], target_bytes: int) -> list[list[dict[str, Any]]]:
    """Files to become one, in the log's order: two or more, of about the target together. Those that are more than half
    of it already stay as they are: to write them again would gain little."""
    bundles: list[list[dict[str, Any]]] = []
    bundle: list[dict[str, Any]] = []
    size = 0
    for each in entries:
        if each["size"] * 2 > target_bytes:
            continue
        if bundle and size + each["size"] > target_bytes:
            bundles.append(bundle)
            bundle, size = [], 0
        bundle.append(each)
        size += each["size"]
    return [each for each in [*bundles, bundle] if len(each) > 1]


def sweep(place: Path, *, keep_s: float) -> int:
    """Delete what compactions left behind: files that never got into the log at once, files that were replaced when
    they are old enough. Only files that a compaction has noted are ever deleted, and none that the log lists."""
    work = place / WORK
    if not work.is_dir():
        return 0
    listed = {_file(each["path"]) for part in read_log(place).entries() for each in part}
    notes = {each: _read_note(each) for each in sorted(work.glob("*.json"))}
    replaced = {file for note in notes.values() for file in note["replaced"]}
    removed = 0
    for at, note in notes.items():
        lost = [file for file in note["written"] if file not in listed and file not in replaced]
        removed += sum(map(_delete, lost))
        done = not note["written"] or any(file in listed or file in replaced for file in note["written"])
        if done and time.time() - note["at"] < keep_s:
            continue
        if done:
            removed += sum(_delete(file) for file in note["replaced"] if file not in listed)
        at.unlink()
    for each in work.iterdir():
        if each.is_dir() or each.suffix == ".new":
            shutil.rmtree(each) if each.is_dir() else each.unlink()
    return removed


def _alike(entries: Iterable[dict[str, Any]]) -> list[list[dict[str, Any]]]:
    """Files that may be put together: of one directory, which is one partition of the lake, and with the same columns,
    since to add columns to a file that has not got them would change what readers see."""
    from pyarrow import parquet  # type: ignore[import-untyped]

    groups: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for each in entries:
        file = _file(each["path"])
        try:
            schema = parquet.read_schema(file)
        except (OSError, ValueError) as failure:
            raise Sentence(f"{file} is in the sink's log, but cannot be read ({failure}): nothing was changed.") from (
                failure
            )
        spark_types = (schema.metadata or {}).get(b"org.apache.spark.sql.parquet.row.metadata")
        groups.setdefault((os.path.dirname(file), f"{schema.remove_metadata()} {spark_types}"), []).append(each)
    return list(groups.values())


def _rewritten(
    spark: SparkSession, place: Path, name: str, number: int, bundle: Sequence[dict[str, Any]]
) -> tuple[Path, Path]:
    """One file with the rows of several, where it was made and where it belongs; durable, and not in anybody's way."""
    from pyarrow import parquet

    files = [_file(each["path"]) for each in bundle]
    made = place / WORK / name / str(number)
    # These are names as they are, not addresses: Spark decodes nothing in them.
    spark.read.parquet(*(f"file://{file}" for file in files)).coalesce(1).write.parquet(str(made))
    (part,) = made.glob("part-*.parquet")
    rows = sum(parquet.read_metadata(file).num_rows for file in files)
    found = parquet.read_metadata(part).num_rows
    if found != rows:
        raise Sentence(
            f"{plural(len(files), 'file')} of {place} hold {rows} rows, a copy {found}: nothing was changed."
        )
    _sync(part)
    return part, Path(os.path.dirname(files[0]), f"part-compacted-{name}-{number}.parquet")


def _note(place: Path, name: str, *, written: list[str], replaced: list[str]) -> None:
    """Before anything of it can be seen: what is about to appear, and what it replaces."""
    _put(
        place / WORK / f"{name}.json",
        json.dumps({"at": time.time(), "written": written, "replaced": replaced}, indent=1),
    )


def _switch(gathered: Path, entries: Sequence[dict[str, Any]], step: Callable[[str], None]) -> None:
    """The one moment that counts. Hadoop's checksum of the old list goes first: a list without one is read as it is."""
    checksum = gathered.with_name(f".{gathered.name}.crc")
    checksum.unlink(missing_ok=True)
    _sync(gathered.parent)
    step("switching")
    _put(gathered, "\n".join([LOG_VERSION, *(json.dumps(each, separators=(",", ":")) for each in entries)]))
    step("switched")


def _put(file: Path, text: str) -> None:
    """Replace a file whole, and for good."""
    file.parent.mkdir(exist_ok=True)
    fresh = file.with_name(f".{file.name}.new")
    with fresh.open("w", encoding="utf-8") as output:
        output.write(text)
        output.flush()
        os.fsync(output.fileno())
    fresh.replace(file)
    _sync(file.parent)


def _entry(file: Path, *, like: dict[str, Any]) -> dict[str, Any]:
    found = file.stat()
    return {**like, "path": _uri(str(file)), "size": found.st_size, "modificationTime": int(found.st_mtime * 1000)}


def _lines(file: Path) -> list[dict[str, Any]]:
    try:
        version, *lines = file.read_text(encoding="utf-8").splitlines()
        if version != LOG_VERSION:
            raise ValueError(f"it begins with {version}")
        return [json.loads(line) for line in lines]
    except (OSError, ValueError) as failure:
        raise Sentence(f"{file} is not a sink's log that is understood here ({failure}): nothing was changed.") from (
            failure
        )


def _read_note(file: Path) -> dict[str, Any]:
    note: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    return note


def _file(uri: str) -> str:
    """The local file that Spark's log means by `file:///lake/part-0.parquet`."""
    return unquote(urlsplit(uri).path)


def _uri(file: str) -> str:
    return f"file://{quote(file)}"


def _delete(file: str) -> bool:
    path = Path(file)
    path.with_name(f".{path.name}.crc").unlink(missing_ok=True)
    there = path.exists()
    path.unlink(missing_ok=True)
    return there


def _is_gathered(name: str) -> bool:
    return name.endswith(".compact") and name[: -len(".compact")].isdecimal()


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
