"""The log: structlog to stderr, console form on a terminal and JSON elsewhere, with the process's stage in every line.

Prompts and answers are never logged: a field that could carry one is masked, whatever a caller puts there.
"""

import logging
import sys
from typing import Any, cast

import structlog
from structlog.typing import EventDict, Processor, WrappedLogger

from stages.settings import mask_user

CONTENT_FIELDS = frozenset({"prompt", "messages", "content", "text", "answer", "ids", "completion"})

QUIET_LIBRARIES = ("nats", "httpx", "httpcore", "opentelemetry", "urllib3")


def configure_logging(stage: str, instance: str = "", *, level: str = "info", form: str = "auto") -> None:
    """Sets up structlog and the standard library's root logger. `form` is `auto`, `console` or `json`."""
    bound = {"stage": stage, "instance": instance} if instance else {"stage": stage}
    structlog.contextvars.clear_contextvars()
    shared: list[Processor] = [
        _always(bound),
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        mask_content,
    ]
    console = form == "console" or (form == "auto" and sys.stderr.isatty())
    structlog.configure(
        processors=[*shared, *_rendering(console)],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.WriteLoggerFactory(file=sys.stderr),
        cache_logger_on_first_use=True,
    )
    _join_standard_library(shared, console=console)


def mask_content(_: WrappedLogger, __: str, event: EventDict) -> EventDict:
    """Masks fields that could hold what a user or a model wrote, and who logs in where a URL says it."""
    for name in CONTENT_FIELDS & event.keys():
        event[name] = "***"
    for name, value in event.items():
        if isinstance(value, str) and "://" in value:
            event[name] = mask_user(value)
    return event


def _always(bound: dict[str, str]) -> Processor:
    """Adds the process's own fields, unless the event has them itself."""

    def add(_: WrappedLogger, __: str, event: EventDict) -> EventDict:
        for name, value in bound.items():
            event.setdefault(name, value)
        return event

    return add


def _rendering(console: bool) -> list[Processor]:
    if console:
        # Plain tracebacks: rich ones show local variables, and those hold prompts.
        return [
            structlog.dev.ConsoleRenderer(
                colors=sys.stderr.isatty(), exception_formatter=structlog.dev.plain_traceback, pad_event_to=32
            )
        ]
    return [structlog.processors.format_exc_info, structlog.processors.JSONRenderer()]


def _join_standard_library(shared: list[Processor], *, console: bool) -> None:
    """Warnings of the libraries come in the same form, on the same stream."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[_name_source, structlog.stdlib.ProcessorFormatter.remove_processors_meta, *_rendering(console)],
        )
    )
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(logging.WARNING)
    for name in QUIET_LIBRARIES:
        logging.getLogger(name).setLevel(logging.ERROR)


def _name_source(_: WrappedLogger, __: str, event: EventDict) -> EventDict:
    record = cast("Any", event.get("_record"))
    if record is not None:
        event["logger"] = record.name
    return event
