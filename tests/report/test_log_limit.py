"""Warnings that repeat: one line a minute, with a count; what is different or no warning passes."""

import json
import logging

import pytest

from quartet.telemetry.log import log_to_file
from quartet.telemetry.log_limit import MAX_DIFFERENT, RepeatLimit


@pytest.fixture
def root():
    """The root logger, as it was afterwards."""
    logger = logging.getLogger()
    handlers, level = logger.handlers, logger.level
    yield logger
    for handler in logger.handlers:
        if handler not in handlers:
            handler.close()
    logger.handlers, logger.level = handlers, level


def messages(run_dir) -> list[str]:
    return [json.loads(line)["message"] for line in (run_dir / "logs" / "env.jsonl").read_text().splitlines()]


def test_a_failure_that_repeats_is_logged_once(root, tmp_path):
    log_to_file(tmp_path, "env")
    for _ in range(10_000):
        logging.getLogger("a").error("out of files")
        logging.getLogger("a").info("still there")
    assert messages(tmp_path).count("out of files") == 1
    assert messages(tmp_path).count("still there") == 10_000


def test_a_failure_with_ever_new_words_is_logged_a_few_times(root, tmp_path):
    log_to_file(tmp_path, "env")
    for port in range(10_000):
        logging.getLogger("a").warning("bad request from port %d", port)
    logging.getLogger("a").warning("another failure")
    assert messages(tmp_path) == [f"bad request from port {port}" for port in range(MAX_DIFFERENT)] + [
        "another failure"
    ]


def test_after_a_minute_it_is_logged_again_with_the_count():
    now = [0.0]
    limit = RepeatLimit(clock=lambda: now[0])

    def passes(message: str) -> str | None:
        record = logging.LogRecord("a", logging.ERROR, "file.py", 7, "%s", (message,), None)
        return record.getMessage() if limit.filter(record) else None

    assert passes("full") == "full"
    assert [passes("full") for _ in range(5)] == [None] * 5
    now[0] = 61.0
    assert passes("full") == "full (5 more like it were left out)"
    now[0] = 122.0
    assert passes("full") == "full"
