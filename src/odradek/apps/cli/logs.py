"""Log lines in Kafka's layout: `[2026-11-15 22:30:00,123] INFO message (logger)`."""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Mapping

LEVELS = {
    "TRACE": logging.DEBUG,
    "DEBUG": logging.DEBUG,
    "INFO": logging.INFO,
    "WARN": logging.WARNING,
    "ERROR": logging.ERROR,
    "FATAL": logging.CRITICAL,
    "OFF": logging.CRITICAL + 1,
}
"""Log4j's levels, which the variable `KAFKA_LOG4J_ROOT_LOGLEVEL` of the apache/kafka image speaks of."""

_NAMES = {logging.WARNING: "WARN", logging.CRITICAL: "FATAL"}


class KafkaLayout(logging.Formatter):
    """The pattern `[%d] %p %m (%c)` of Kafka's own log4j configuration, in local time."""

    def format(self, record: logging.LogRecord) -> str:
        seconds = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(record.created))
        level = _NAMES.get(record.levelno, record.levelname)
        line = f"[{seconds},{int(record.msecs):03d}] {level} {record.getMessage()} ({record.name})"
        if record.exc_info:
            line += "\n" + self.formatException(record.exc_info)
        return line


def log_to_stdout(environment: Mapping[str, str]) -> None:
    """Send what the node logs where Kafka's console logger sends it."""
    level = environment.get("KAFKA_LOG4J_ROOT_LOGLEVEL", "").strip().upper()
    handler = logging.StreamHandler(sys.stdout)
    handler.setFormatter(KafkaLayout())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(LEVELS.get(level, logging.INFO))
    logging.raiseExceptions = False  # a closed terminal must not stop a node
