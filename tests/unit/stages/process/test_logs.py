"""The log of a process."""

import json
import logging
from collections.abc import Iterator
from typing import Any

import pytest
import structlog

from stages.process.logs import configure_logging


@pytest.fixture(autouse=True)
def logging_as_before() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers, root.level
    yield
    root.handlers, root.level = handlers, level
    structlog.reset_defaults()


def lines(captured: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    return [json.loads(line) for line in captured.readouterr().err.splitlines()]


def test_elsewhere_than_on_a_terminal_lines_are_json(capsys: pytest.CaptureFixture[str]) -> None:
    """One object a line on stderr, with the process's stage and instance and the event's own fields."""
    configure_logging("schedule", "schedule-1")
    structlog.get_logger().info("schedule.granted", request_id="r", attempt=7)
    (line,) = lines(capsys)
    assert line["event"] == "schedule.granted"
    assert (line["stage"], line["instance"], line["request_id"], line["attempt"]) == ("schedule", "schedule-1", "r", 7)
    assert line["level"] == "info"
    assert line["timestamp"].endswith("Z")


def test_prompts_and_answers_are_masked(capsys: pytest.CaptureFixture[str]) -> None:
    """Even where someone logs one by mistake."""
    configure_logging("preprocess")
    structlog.get_logger().info("oops", prompt="my secret", text="my answer", messages=[{"content": "x"}])
    (line,) = lines(capsys)
    assert (line["prompt"], line["text"], line["messages"]) == ("***", "***", "***")


def test_who_logs_in_at_the_broker_is_masked(capsys: pytest.CaptureFixture[str]) -> None:
    """A URL may carry a password, in any field."""
    configure_logging("preprocess")
    structlog.get_logger().info("broker.failed", error="no broker at nats://me:hush@host:4222 within 5 s")
    (line,) = lines(capsys)
    assert line["error"] == "no broker at nats://***@host:4222 within 5 s"


def test_a_traceback_holds_no_local_variables(capsys: pytest.CaptureFixture[str]) -> None:
    """In either form: locals of a stage are prompts."""
    for form in ("json", "console"):
        configure_logging("preprocess", form=form)
        hidden = "value-of-a-prompt"
        try:
            raise RuntimeError(f"failed on {len(hidden)} characters")
        except RuntimeError:
            structlog.get_logger().exception("stage.failed")
        written = capsys.readouterr().err
        assert "failed on 17 characters" in written
        assert "value-of-a-prompt" not in written.replace('hidden = "value-of-a-prompt"', "")


def test_the_level_holds_and_libraries_speak_in_the_same_form(capsys: pytest.CaptureFixture[str]) -> None:
    """Warnings of the standard logging are JSON too; what is below the level is not written."""
    configure_logging("schedule", level="warning")
    structlog.get_logger().info("quiet")
    logging.getLogger("some.library").warning("beware of %s", "dogs")
    logging.getLogger("some.library").info("quiet too")
    (line,) = lines(capsys)
    assert (line["event"], line["logger"], line["stage"]) == ("beware of dogs", "some.library", "schedule")


def test_console_form_is_readable(capsys: pytest.CaptureFixture[str]) -> None:
    """For a person: event first, fields as name=value."""
    configure_logging("schedule", form="console")
    structlog.get_logger().info("schedule.granted", attempt=7)
    written = capsys.readouterr().err
    assert "schedule.granted" in written
    assert "attempt=7" in written
