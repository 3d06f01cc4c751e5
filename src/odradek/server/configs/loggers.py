"""Python's loggers under Kafka's names of levels: what BROKER_LOGGER resources show and change (KIP-412).

Levels are not on record: a restart has those of the command line again.
"""

from __future__ import annotations

import logging

from odradek.metadata.controller.configs import Operation
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.messages.incremental_alter_configs import AlterableConfig

log = logging.getLogger(__name__)

ROOT = "root"
_LEVELS = {
    "FATAL": logging.CRITICAL,
    "ERROR": logging.ERROR,
    "WARN": logging.WARNING,
    "INFO": logging.INFO,
    "DEBUG": logging.DEBUG,
    "TRACE": logging.DEBUG // 2,
}


def logger_levels() -> dict[str, str]:
    """Every logger there is, and the level that is in force for it."""
    levels = {ROOT: _level_name(logging.getLogger())}
    for name, logger in sorted(logging.root.manager.loggerDict.items()):
        if isinstance(logger, logging.Logger):
            levels[name] = _level_name(logger)
    return levels


def check_levels(changes: list[AlterableConfig]) -> None:
    """KafkaError, in Kafka's words, unless all of them can be done."""
    known = logger_levels()
    for change in changes:
        operation = change.config_operation
        if operation in (Operation.APPEND, Operation.SUBTRACT):
            name = Operation(operation).name
            raise KafkaError(
                ErrorCode.INVALID_REQUEST, f"{name} operation is not allowed for the BROKER_LOGGER resource"
            )
        if operation not in (Operation.SET, Operation.DELETE):
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                f"Unknown operation type {operation} is not allowed for the BROKER_LOGGER resource",
            )
        if change.name not in known:
            raise KafkaError(ErrorCode.INVALID_CONFIG, f"Logger {change.name} does not exist!")
        if operation == Operation.SET and change.value not in _LEVELS:
            raise KafkaError(
                ErrorCode.INVALID_CONFIG,
                f"Cannot set the log level of {change.name} to {change.value} as it is not a supported log level. "
                f"Valid log levels are {', '.join(sorted(_LEVELS))}",
            )
        if operation == Operation.DELETE and change.name == ROOT:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"Removing the log level of the {ROOT} logger is not allowed")


def set_levels(changes: list[AlterableConfig]) -> None:
    """Carry out what `check_levels` let through; a deleted level is that of the logger above."""
    for change in changes:
        logger = logging.getLogger() if change.name == ROOT else logging.getLogger(change.name)
        level = logging.NOTSET if change.config_operation == Operation.DELETE else _LEVELS[change.value or ""]
        logger.setLevel(level)
        log.warning("The level of logger %s is %s now", change.name, _level_name(logger))


def _level_name(logger: logging.Logger) -> str:
    level = logger.getEffectiveLevel()
    return next((name for name, number in _LEVELS.items() if level >= number), "TRACE")
