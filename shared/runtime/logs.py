"""Logging: JSON lines in production, colour on a terminal, also for messages of libraries."""

import io
import logging
import sys
from typing import TextIO, cast

import structlog

_SAID_BY_US = ("aiormq.connection",)  # logs each failed attempt; the bus logs it once
_LEVELS = {"debug": 10, "info": 20, "warning": 30, "error": 40}


class _Stderr(io.TextIOBase):
    """The current ``sys.stderr`` at each write, not that of when logging was set up."""

    def write(self, text: str) -> int:
        """Write to the current stderr."""
        return sys.stderr.write(text)

    def flush(self) -> None:
        """Flush the current stderr."""
        sys.stderr.flush()


class _Libraries(logging.Handler):
    """Forwards what libraries log through the standard library, in our format."""

    def emit(self, record: logging.LogRecord) -> None:
        """Write a record in the common format."""
        level = max(at for at in (0, *_LEVELS.values()) if at <= record.levelno)
        log = structlog.get_logger()
        log.log(level, record.getMessage(), logger=record.name, exc_info=record.exc_info)


def audit_log() -> structlog.typing.FilteringBoundLogger:
    """Return a logger that no log level silences, in the common format."""
    logger: structlog.typing.FilteringBoundLogger = structlog.wrap_logger(
        structlog.PrintLogger(cast(TextIO, _Stderr())),
        wrapper_class=structlog.make_filtering_bound_logger(_LEVELS["info"]),
    )
    return logger


def set_up_logs(log_format: str = "auto", level: str = "info") -> None:
    """Set up logging for the process. ``auto``: text on a terminal, JSON elsewhere."""
    is_text = log_format == "text" or (log_format == "auto" and sys.stderr.isatty())
    renderer: structlog.types.Processor = (
        structlog.dev.ConsoleRenderer() if is_text else structlog.processors.JSONRenderer()
    )
    processors: list[structlog.types.Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso"),
    ]
    if not is_text:
        processors.append(structlog.processors.format_exc_info)
    structlog.configure(
        processors=[*processors, renderer],
        wrapper_class=structlog.make_filtering_bound_logger(_LEVELS[level]),
        logger_factory=structlog.PrintLoggerFactory(cast(TextIO, _Stderr())),
    )
    logging.basicConfig(level=logging.WARNING, handlers=[_Libraries()])
    for name in _SAID_BY_US:
        logging.getLogger(name).setLevel(logging.CRITICAL)
