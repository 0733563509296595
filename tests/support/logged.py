"""What ragtrace has logged, apart from what other libraries' threads and those of earlier tests say meanwhile."""

from __future__ import annotations

import pytest


def logged(caplog: pytest.LogCaptureFixture, *about: str) -> list[str]:
    """Return the messages of ragtrace's loggers that contain all the texts of *about*, in their order.

    `caplog.records` has more: an exporter or a metric reader that a test before has left logs whenever it likes.
    """
    messages = [record.getMessage() for record in caplog.records if record.name.partition(".")[0] == "ragtrace"]
    return [message for message in messages if all(text in message for text in about)]
