"""From a file to a pipeline: Python that declares one, or YAML for the simple ones."""

from __future__ import annotations

import importlib.machinery
import importlib.util
import re
import sys
import traceback
import types
from pathlib import Path
from typing import TYPE_CHECKING, Any

from odradek.apps.pipelines import schemas, sinks, sources
from odradek.apps.pipelines.pipeline import Pipeline
from odradek.apps.pipelines.session import NOT_INSTALLED
from odradek.apps.terminal.sentence import Sentence

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame

MODULE = "odradek_pipeline_file"
SOURCES = {"topic", "table", "value", "key", "key_required", "starting", "max_per_trigger", "pattern"}
PARTS = {
    "pipeline",
    "group",
    "dead_letters",
    "dead_letter_options",
    "trigger",
    "sources",
    "datasets",
    "expectations",
    "sinks",
}
KINDS = ("parquet", "delta", "iceberg", "topic", "console")
SINKS = {
    "from",
    *KINDS,
    "partition_by",
    "files",
    "compact_after",
    "key",
    "mode",
    "partitions",
    "deleted",
    "options",
    "too_large",
}


def load(file: str) -> Pipeline:
    """The pipeline that a file declares, checked; or a Sentence."""
    path = Path(file)
    if path.is_dir():
        raise Sentence(
            f"{file} is a directory: name a pipeline's file; `odradek pipeline list {file}` shows those in it."
        )
    if not path.is_file():
        raise Sentence(f"there is no file {file}; `odradek pipeline new NAME` makes one that runs.")
    pipeline = _from_yaml(path) if path.suffix in (".yaml", ".yml") else _from_python(path)
    pipeline.file = file
    pipeline.check()
    return pipeline


def _from_python(path: Path) -> Pipeline:
    name = f"{MODULE}_{re.sub(r'[^A-Za-z0-9_]', '_', path.stem)}"
    if path.suffix != ".py":
        raise Sentence(f"{path} is neither Python (.py) nor YAML (.yaml).")
    loader = _FromSource(name, str(path.resolve()))
    spec = importlib.util.spec_from_loader(name, loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    beside = str(path.resolve().parent)
    sys.path.insert(0, beside)  # As `python FILE` would: the file may have neighbours.
    try:
        loader.exec_module(module)
    except Sentence:
        raise
    except ModuleNotFoundError as missing:
        raise Sentence(_missing(path, missing)) from missing
    except ImportError as moved:
        if moved.name == "odradek.apps.pipelines":
            raise Sentence(f"{path}: say `from odradek.pipelines import Pipeline, schemas, sinks, sources`.") from moved
        raise Sentence(f"{path} cannot be loaded: {_where(moved, path)}.") from moved
    except Exception as failure:
        raise Sentence(f"{path} cannot be loaded: {_where(failure, path)}.") from failure
    finally:
        sys.path.remove(beside)
    found = [each for each in vars(module).values() if isinstance(each, Pipeline)]
    if not found:
        raise Sentence(
            f"{path} declares no pipeline: it needs `pipeline = Pipeline('name')`, with sources and sinks "
            "(`odradek pipeline new NAME` makes a file that runs)."
        )
    if len(found) > 1:
        raise Sentence(
            f"{path} declares {len(found)} pipelines ({', '.join(each.name for each in found)}): give each a file of "
            "its own."
        )
    _travel_with(module)
    return found[0]


class _FromSource(importlib.machinery.SourceFileLoader):
    """Bytecode is not trusted: it is known by the second, and a file that is being worked on changes sooner."""

    def get_code(self, fullname: str) -> types.CodeType:
        return self.source_to_code(self.get_data(self.path), self.path)


def _missing(path: Path, missing: ModuleNotFoundError) -> str:
    if missing.name and missing.name.partition(".")[0] == "pyspark":
        return NOT_INSTALLED
    return f"{path} needs the module {missing.name}: install it for {sys.executable}, which runs `odradek` here."


def _travel_with(module: Any) -> None:
    """Let executors get the file's functions by value: they cannot import a file of the driver's."""
    try:
        from pyspark.cloudpickle import register_pickle_by_value
    except ImportError:
        return
    register_pickle_by_value(module)  # type: ignore[no-untyped-call]


def _where(failure: Exception, path: Path) -> str:
    lines = [
        each.lineno
        for each in traceback.extract_tb(failure.__traceback__)
        if each.filename == str(path.resolve()) and each.lineno
    ]
    line = failure.lineno if isinstance(failure, SyntaxError) else lines[-1] if lines else None
    text = failure.msg if isinstance(failure, SyntaxError) else str(failure)
    return f"{type(failure).__name__} {f'in line {line}' if line else ''}: {text}".rstrip(".")


def _from_yaml(path: Path) -> Pipeline:
    try:
        import yaml
    except ImportError:
        raise Sentence(NOT_INSTALLED) from None
    try:
        declared = yaml.safe_load(path.read_text())
    except (yaml.YAMLError, UnicodeDecodeError) as wrong:
        raise Sentence(f"{path} is not YAML: {' '.join(str(wrong).split())}.") from wrong
    if not isinstance(declared, dict) or not isinstance(declared.get("pipeline"), str):
        raise Sentence(f"{path} does not begin with the pipeline's name: pipeline: orders.")
    _only(path, declared, PARTS)
    pipeline = Pipeline(
        declared["pipeline"],
        group=declared.get("group"),
        dead_letters=declared.get("dead_letters"),
        dead_letter_options=_options(declared.get("dead_letter_options")),
        trigger=declared.get("trigger"),
    )
    for name, each in _entries(path, declared, "sources"):
        pipeline.source(name, _source(path, name, each))
    datasets = declared.get("datasets") or {}
    names = [*pipeline.sources, *datasets]
    for name, query in datasets.items():
        if not isinstance(query, str):
            raise Sentence(f"{path}: dataset {name} is to be an SQL query over sources and other datasets.")
        words = set(re.findall(r"[A-Za-z_][A-Za-z0-9_]*", query))
        inputs = [each for each in names if each in words and each != name]
        pipeline.add_dataset(str(name), _query(query), inputs, query)
    for dataset, expected in _entries(path, declared, "expectations") if "expectations" in declared else ():
        for name, each in expected.items():
            if isinstance(each, str):
                each = {"condition": each}
            if not isinstance(each, dict) or "condition" not in each:
                raise Sentence(f"{path}: expectation {name} of {dataset} needs its condition: amount > 0.")
            _only(path, each, {"condition", "on_fail"}, f"expectation {name} of {dataset}: ")
            on_fail = str(each.get("on_fail", "warn"))
            pipeline.add_expectation(dataset, str(name), str(each["condition"]), on_fail=on_fail)
    for name, each in _entries(path, declared, "sinks"):
        pipeline.sink(name, str(each.get("from", "")), _sink(path, name, each), mode=each.get("mode", "append"))
    return pipeline


def _query(query: str) -> Callable[..., DataFrame]:
    def run(**frames: DataFrame) -> DataFrame:
        for name, frame in frames.items():
            frame.createOrReplaceTempView(name)
        return next(iter(frames.values())).sparkSession.sql(query)

    return run


def _source(path: Path, name: str, each: dict[str, Any]) -> sources.Source:
    _only(path, each, SOURCES, f"source {name}: ")
    value = _schema(path, name, each.get("value", "raw"))
    if "table" in each:
        return sources.table(str(each["table"]), value=value)
    topics = each.get("topic", [])
    return sources.topic(
        *([topics] if isinstance(topics, str) else topics),
        pattern=each.get("pattern"),
        value=value,
        key=_schema(path, name, each.get("key", "text")),
        key_required=bool(each.get("key_required", False)),
        starting=each.get("starting", "earliest"),
        max_per_trigger=each.get("max_per_trigger"),
    )


def _schema(path: Path, name: str, declared: Any) -> schemas.Schema:
    match declared:
        case "raw" | "bytes":
            return schemas.raw()
        case "text":
            return schemas.text()
        case {"json": str(fields)}:
            _only(path, declared, {"json", "required", "epoch", "lossy"}, f"source {name}: ")
            return schemas.json(
                fields,
                required=declared.get("required", ()),
                epoch=declared.get("epoch"),
                lossy=bool(declared.get("lossy", False)),
            )
        case {"avro": str(schema)}:
            _only(
                path,
                declared,
                {"avro", "required", "registry_prefix", "registry", "registry_options", "ids"},
                f"source {name}: ",
            )
            return schemas.avro(
                schema,
                required=declared.get("required", ()),
                registry_prefix=bool(declared.get("registry_prefix", False)),
                registry=declared.get("registry"),
                registry_options=_options(declared.get("registry_options")),
                ids=declared.get("ids"),
            )
    raise Sentence(f"{path}: source {name}: a schema is raw, text, {{json: 'id string'}} or {{avro: '…'}}.")


def _sink(path: Path, name: str, each: dict[str, Any]) -> sinks.Sink:
    _only(path, each, SINKS, f"sink {name}: ")
    kinds = [kind for kind in KINDS if kind in each]
    if len(kinds) != 1 or "from" not in each:
        raise Sentence(f"{path}: sink {name} needs from: DATASET, and one of {', '.join(KINDS[:-1])} and {KINDS[-1]}.")
    partition_by, files = each.get("partition_by", ()), each.get("files")
    match kinds[0]:
        case "parquet":
            after = each.get("compact_after")
            return sinks.parquet(str(each["parquet"]), partition_by=partition_by, files=files, compact_after=after)
        case "delta":
            return sinks.delta(str(each["delta"]), partition_by=partition_by, files=files)
        case "iceberg":
            return sinks.iceberg(str(each["iceberg"]), partition_by=partition_by, files=files)
        case "topic":
            partitions, deleted = each.get("partitions", -1), each.get("deleted")
            return sinks.topic(
                str(each["topic"]),
                key=each.get("key"),
                partitions=partitions,
                deleted=deleted,
                options=_options(each.get("options")),
                too_large=each.get("too_large", "stop"),
            )
    return sinks.console()


def _options(declared: Any) -> dict[str, str]:
    """Settings as texts, which YAML makes numbers and truths of."""
    texts = {True: "true", False: "false"}
    return {str(name): texts[held] if isinstance(held, bool) else str(held) for name, held in (declared or {}).items()}


def _entries(path: Path, declared: dict[str, Any], part: str) -> list[tuple[str, dict[str, Any]]]:
    entries = declared.get(part)
    if not isinstance(entries, dict) or not all(isinstance(each, dict) for each in entries.values()):
        raise Sentence(f"{path} needs {part}: a name for each, and under it what it is.")
    return [(str(name), each) for name, each in entries.items()]


def _only(path: Path, given: dict[str, Any], allowed: set[str], where: str = "") -> None:
    from odradek.configdef import did_you_mean

    for name in given:
        if name not in allowed:
            raise Sentence(f"{path}: {where}{name} means nothing here.{did_you_mean(str(name), sorted(allowed))}")
