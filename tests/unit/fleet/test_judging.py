"""What a worker of a fleet lets through to Celery."""

from __future__ import annotations

import json

import pytest

from ragtrace.fleet.broker import TASK
from ragtrace.fleet.judging import defect_of

HEADERS = {"task": TASK, "id": "1", "eta": None, "expires": None, "group": None}
EMBEDDED = {"callbacks": None, "errbacks": None, "chain": None, "chord": None}
BODY = json.dumps([[], {"message": "{}"}, EMBEDDED])
JSON = "application/json"


def test_the_message_of_a_call_is_let_through() -> None:
    """As text or bytes, as the transports give it."""
    assert defect_of(HEADERS, JSON, BODY) == ""
    assert defect_of(HEADERS, JSON, memoryview(BODY.encode())) == ""


@pytest.mark.parametrize(
    ("headers", "content_type", "body"),
    [
        (None, JSON, BODY),
        ({}, JSON, BODY),
        ({**HEADERS, "task": "celery.backend_cleanup"}, JSON, BODY),
        (HEADERS, "application/x-python-serialize", BODY),
        (HEADERS, "application/data", BODY),
        ({**HEADERS, "eta": "2999-01-01T00:00:00"}, JSON, BODY),
        ({**HEADERS, "expires": "2000-01-01T00:00:00"}, JSON, BODY),
        ({**HEADERS, "group": "1"}, JSON, BODY),
        (HEADERS, JSON, b"\x80\x04."),
        (HEADERS, JSON, "[" * 100_000),
        (HEADERS, JSON, "[1, 2]"),
        (HEADERS, JSON, "null"),
        (HEADERS, JSON, json.dumps([[], {"message": {}}, EMBEDDED])),
        (HEADERS, JSON, json.dumps([["x"], {"message": "{}"}, EMBEDDED])),
        (HEADERS, JSON, json.dumps([[], {"message": "{}", "more": 1}, EMBEDDED])),
        (HEADERS, JSON, json.dumps([[], {"message": "{}"}, {**EMBEDDED, "chain": [{"task": "x"}]}])),
        (HEADERS, JSON, " " * (6 << 20)),
    ],
)
def test_any_other_message_is_refused(headers: object, content_type: object, body: object) -> None:
    """Pickled bodies, other tasks, schedules, further tasks, and what is no JSON."""
    assert defect_of(headers, content_type, body)
