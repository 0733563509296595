"""Applications under real instrumentations still do what their recordings show."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.frameworks.environment import RECORDED, Recorder, applications_of, environments
from tests.integration.frameworks.shapes import calls, shape

pytestmark = pytest.mark.integration

CONCURRENT = {"langchain_batch"}
"""Applications whose requests overlap, so that the parents of their spans change from run to run."""

# Every family of instrumentations, but neither two at once nor the ways to switch content off.
CELLS = [
    pytest.param(application, instrumentation, mode, id=f"{application}-{instrumentation}-{mode}")
    for environment in environments()
    for application in applications_of(environment)
    for instrumentation in environments()[environment]["instrumentations"]
    for mode in ("sync", "astream")
]


@pytest.fixture(scope="module")
def recorder() -> Iterator[Recorder]:
    """Processes that have imported the frameworks."""
    with Recorder() as recorder:
        yield recorder


@pytest.mark.parametrize(("application", "instrumentation", "mode"), CELLS)
def test_an_application_records_what_its_recording_shows(
    recorder: Recorder, application: str, instrumentation: str, mode: str, tmp_path: Path
) -> None:
    """A new recording has the calls and the kinds of spans of the committed one."""
    recorder.record(application, instrumentation, mode, tmp_path)

    name = f"{application}-{instrumentation}-{mode}"
    assert calls(tmp_path / f"{name}.calls.json") == calls(RECORDED / f"{name}.calls.json")
    if application in CONCURRENT:
        return
    assert shape(tmp_path / f"{name}.spans.jsonl.gz") == shape(RECORDED / f"{name}.spans.jsonl.gz")
