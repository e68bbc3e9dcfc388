"""Adapter: structured logs, one JSON object per line on standard output, with the bound context."""

import logging
import sys
from types import TracebackType
from typing import TextIO

import structlog


def configure_logs(service: str, level: str, stream: TextIO | None = None) -> None:
    """Configure the logs of the process; call once, at start. Logs of libraries and uncaught exceptions have the same form.

    `stream` replaces standard output in a process that writes its result there.
    """
    shared: list[structlog.types.Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.format_exc_info,
    ]
    structlog.configure(
        processors=[*shared, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        wrapper_class=structlog.stdlib.BoundLogger,
        logger_factory=structlog.stdlib.LoggerFactory(),
        cache_logger_on_first_use=True,
    )
    handler = logging.StreamHandler(stream or sys.stdout)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, structlog.processors.JSONRenderer()],
        )
    )
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(level)
    for chatty in ("httpx", "httpx2", "cassandra"):
        logging.getLogger(chatty).setLevel(max(logging.WARNING, root.level))
    structlog.contextvars.bind_contextvars(service=service)
    sys.excepthook = _log_uncaught


def log(name: str) -> structlog.stdlib.BoundLogger:
    """Return a logger; callers bind `correlation_id` if it is known."""
    logger: structlog.stdlib.BoundLogger = structlog.stdlib.get_logger(name)
    return logger


def _log_uncaught(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """Log an uncaught exception as one record: a log collector would read a plain traceback as one record per line."""
    if issubclass(kind, KeyboardInterrupt):
        sys.__excepthook__(kind, error, trace)
    else:
        log(__name__).error("ended_by", error=f"{kind.__name__}: {error}", exc_info=(kind, error, trace))
