"""What Spark raises, as one sentence that says what to do."""

from __future__ import annotations

import re

from odradek.apps.pipelines.avro import new_id
from odradek.apps.pipelines.expectations import NOT_MET
from odradek.apps.terminal.sentence import Sentence

_STATE_SHAPE = re.compile(
    r"STATE_STORE_(?:KEY|VALUE)_SCHEMA_NOT_COMPATIBLE|STATE_STORE_KEY_ROW_FORMAT|STATE_STORE_VALUE_ROW_FORMAT"
    r"|STATE_STORE_UNSUPPORTED_OPERATION|StateSchemaNotCompatible|There are \[\d+\] sources in the checkpoint"
    r"|StreamingQuery.*number of (?:sources|state)|state format version|STATEFUL_OPERATOR_NOT_MATCH"
)

_TOO_LARGE = re.compile(r"RecordTooLargeException: ([^\n]+)")

TRACEBACK = "Traceback (most recent call last):"
_DEEPEST = 20
"""Causes that are looked at, one behind the other."""


def sentence(
    query: str,
    failure: BaseException,
    *,
    checkpoint: str,
    log_file: object,
    reset_command: str = "odradek pipeline reset FILE --yes",
) -> Sentence:
    """One for a query that failed; the checkpoint is as it was before the batch that failed."""
    told = _all_of_it(failure)
    again = "the checkpoint is intact: run again, it begins with the batch that failed"
    over = f"name another --checkpoint, or start over: `{reset_command}`"
    unmet = re.search(rf"expectation \w+ {NOT_MET} [^\n]*", told)
    if unmet:
        return Sentence(
            f"{query}: {_plain(unmet[0])}: nothing of that batch is in the sink; mend the dataset or what it reads, or "
            f"let such rows be dropped or dead letters; {again}."
        )
    if "No space left on device" in told:
        return Sentence(f"{query}: the disk is full: free some space; {again}.")
    if "failOnDataLoss" in told or "OffsetOutOfRange" in told or "KAFKA_DATA_LOSS" in told:
        return Sentence(
            f"{query}: records were deleted from the topic before they were read ({_first_line(told)}): "
            "run it with --allow-data-loss to go on without them."
        )
    if "UnknownTopicOrPartition" in told:
        return Sentence(
            f"{query}: a topic is not there any more ({_first_line(told)}): create it, and if it is one that the "
            "pipeline reads, run it again with --topic-recreated start-over or skip."
        )
    too_large = _TOO_LARGE.search(told)
    if too_large:
        where = "dead_letter_options of the pipeline" if query.startswith("dead-letters-") else "options of the sink"
        return Sentence(
            f"{query}: a record is too large for the topic that it goes to ({too_large[1].rstrip('.')}): raise "
            f"kafka.max.request.size in the {where}, and max.message.bytes of the topic; {again}."
        )
    if _STATE_SHAPE.search(told):
        return Sentence(f"{query} keeps other state than it did when {checkpoint} was written: {over}.")
    if "CONCURRENT_STREAM_LOG_UPDATE" in told or "ConcurrentModification" in told:
        return Sentence(f"{query}: somebody else runs on the checkpoint {checkpoint}: stop that run.")
    if "TimeoutException" in told or "DisconnectException" in told:
        return Sentence(f"{query}: the brokers do not answer ({_first_line(told)}): look after them; {again}.")
    return Sentence(f"{query} failed: {_cause(told)}{f' (all of it: {log_file})' if log_file else ''}; {again}.")


def new_schema(failure: BaseException) -> tuple[str, int] | None:
    """The source and the id of a schema that a query has stopped for, since nobody had asked for it yet."""
    return new_id(_all_of_it(failure))


def no_jvm(log_file: object) -> Sentence:
    """One for a JVM that went away under a run."""
    where = f" ({log_file} has all that it said)" if log_file else ""
    return Sentence(
        f"Spark's JVM has ended{where}. Was it killed for want of memory? --conf spark.driver.memory=2g gives it more. "
        "The checkpoint is intact, so it goes on from there when it is run again."
    )


def analysis(what: str, failure: BaseException) -> Sentence:
    """One for a dataset or sink that Spark does not understand."""
    return Sentence(f"{what}: {_first_line(str(failure)).rstrip('.')}.")


def _plain(told: str) -> str:
    """Without what Spark puts behind it."""
    return re.sub(r"\s*SQLSTATE: \w+.*$", "", told).rstrip(".")


def _all_of_it(failure: BaseException) -> str:
    """What it says and what its causes say: Spark's own words for a full disk are that a task failed."""
    told = [str(failure)]
    cause = getattr(failure, "_cause", None) or failure.__cause__
    while isinstance(cause, BaseException) and len(told) < _DEEPEST:
        told.append(f"Caused by: {cause}")
        cause = getattr(cause, "_cause", None) or cause.__cause__
    return "\n".join(told)


def _cause(told: str) -> str:
    """The innermost cause that the text names: that is where the trouble is."""
    python = re.findall(r"^(\w*(?:Error|Exception|Interrupt): .+)$", told, re.M)
    if python:
        return str(python[-1]).rstrip(".")
    raised = re.search(r"^(?:\w+\.)*(\w+): (.+)$", told.rpartition(TRACEBACK)[2], re.M) if TRACEBACK in told else None
    if raised:  # In a function that Spark calls for every batch; what is a sentence says all by itself.
        return raised[2].rstrip(".") if raised[1] == "Sentence" else f"{raised[1]}: {raised[2].rstrip('.')}"
    causes = re.findall(r"Caused by: ([^\n]+)", told)
    return (causes[-1] if causes else _first_line(told)).rstrip(".")


def _first_line(told: str) -> str:
    lines = [line.strip() for line in told.splitlines() if line.strip()]
    if not lines:
        return "no reason given"
    # Where in an expression of one line it is, and its number in a standard, help nobody.
    return re.sub(r"\s*SQLSTATE: \w+|[.;]*\s*line \d+ pos \d+;?$", "", lines[0])[:400]
