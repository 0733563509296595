"""`opentelemetry-instrument` configures ragtrace where the environment asks for it, and never fails because of it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Final

import pytest

from tests.support import acme
from tests.support.backends import Backend
from tests.support.otlp import HttpReceiver

pytestmark = pytest.mark.skipif(find_spec("opentelemetry.distro") is None, reason="needs opentelemetry-distro")
ROOT: Final = Path(__file__).parents[2]
PROGRAM: Final = "import acme_llm; print(acme_llm.answer('How deep is it?'))\n"
ANSWER: Final = "Lake Baikal is 1,642 metres deep. It lies in Siberia.\n"
SPAWNING: Final = f"""
import multiprocessing

def work():
    {PROGRAM}

if __name__ == "__main__":
    child = multiprocessing.get_context("spawn").Process(target=work)
    child.start()
    child.join()
"""


@pytest.fixture
def receiver() -> Iterator[HttpReceiver]:
    with HttpReceiver() as receiver:
        yield receiver


def _run(
    folder: Path, receiver: HttpReceiver, program: str = PROGRAM, **environ: str
) -> subprocess.CompletedProcess[str]:
    acme.install(folder / "site")
    (folder / "app.py").write_text(program, encoding="utf-8")
    own = {
        "PYTHONPATH": os.pathsep.join([str(folder / "site"), str(ROOT)]),
        "OTEL_TRACES_EXPORTER": "otlp_proto_http",
        "OTEL_METRICS_EXPORTER": "none",
        "OTEL_LOGS_EXPORTER": "none",
        **receiver.environ,
    }
    start = "from opentelemetry.instrumentation.auto_instrumentation import run; run()"
    return subprocess.run(
        [sys.executable, "-c", start, sys.executable, "app.py"],
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
        cwd=folder,
        env={**os.environ, **own, **environ},
    )


def _lines(found: subprocess.CompletedProcess[str]) -> list[str]:
    return found.stderr.splitlines()


def _scores(receiver: HttpReceiver) -> list[object]:
    found = [span.attributes.get("ragtrace.eval.consistency.score") for span in receiver.spans]
    return [score for score in found if score is not None]


def test_the_calls_of_an_instrumented_library_are_scored(tmp_path: Path, receiver: HttpReceiver) -> None:
    """In the provider that the distro has set."""
    found = _run(tmp_path, receiver, RAGTRACE_EVALUATE_SPANS="1")
    assert (found.stdout, found.returncode) == (ANSWER, 0)
    assert [line.startswith("the scores of calls go onto spans of their own") for line in _lines(found)] == [True]
    assert {"invoke_workflow acme", "retrieval acme"} <= {span.name for span in receiver.spans}
    assert _scores(receiver) == [1.0]


def test_scores_go_where_a_named_exporter_sends_them(tmp_path: Path, receiver: HttpReceiver) -> None:
    """The spans stay in the provider that the distro has set, and ragtrace reads the calls out of these."""
    with Backend() as backend:
        exporter = {"RAGTRACE_EXPORTER": "phoenix", "PHOENIX_COLLECTOR_ENDPOINT": backend.url}
        found = _run(tmp_path, receiver, RAGTRACE_EVALUATE_SPANS="1", **exporter)
        posted = [request.body["data"] for request in backend.requests if request.path == "/v1/trace_annotations"]
    assert (found.stdout, found.stderr, found.returncode) == (ANSWER, "", 0)
    assert {span.name for span in receiver.spans} == {"invoke_workflow acme", "retrieval acme"}
    traces = {span.trace_id for span in receiver.spans}
    assert {score["trace_id"] for scores in posted for score in scores} == traces
    assert {score["name"]: score["result"]["score"] for scores in posted for score in scores}["consistency"] == 1.0


def test_the_named_exporter_otlp_gets_the_scores(tmp_path: Path, receiver: HttpReceiver) -> None:
    """Without a warning about providers, as nobody asked for ragtrace's own."""
    found = _run(tmp_path, receiver, RAGTRACE_EVALUATE_SPANS="1", RAGTRACE_EXPORTER="otlp")
    assert (found.stdout, found.stderr, found.returncode) == (ANSWER, "", 0)
    assert _scores(receiver) == [1.0]


def test_calls_in_a_spawned_process_are_scored(tmp_path: Path, receiver: HttpReceiver) -> None:
    """Each process is configured anew."""
    from opentelemetry.instrumentation import auto_instrumentation

    if not hasattr(auto_instrumentation, "_initialize"):  # it came along with the instrumentation of such processes
        pytest.skip("this version of opentelemetry-instrument leaves processes alone that are started anew")
    found = _run(tmp_path, receiver, SPAWNING, RAGTRACE_EVALUATE_SPANS="1")
    assert (found.stdout, found.returncode) == (ANSWER, 0)
    assert [line.startswith("the scores of calls go onto spans of their own") for line in _lines(found)] == [True]
    assert _scores(receiver) == [1.0]


@pytest.mark.parametrize("value", ["", "0", "false"])
def test_nothing_happens_unless_it_is_asked_for(tmp_path: Path, receiver: HttpReceiver, value: str) -> None:
    """ragtrace may be installed for other reasons."""
    found = _run(tmp_path, receiver, RAGTRACE_EVALUATE_SPANS=value)
    assert (found.stdout, found.stderr) == (ANSWER, "")
    assert {span.name for span in receiver.spans} == {"invoke_workflow acme", "retrieval acme"}


def test_a_wrong_setting_is_logged_and_the_application_runs(tmp_path: Path, receiver: HttpReceiver) -> None:
    """With its own spans."""
    found = _run(tmp_path, receiver, RAGTRACE_EVALUATE_SPANS="1", RAGTRACE_SAMPLE_RATE="50")
    assert (found.stdout, found.returncode) == (ANSWER, 0)
    assert "no call is scored: SettingsError: " in found.stderr
    assert {span.name for span in receiver.spans} == {"invoke_workflow acme", "retrieval acme"}


CHAIN: Final = """
from langchain_core.language_models.fake_chat_models import FakeListChatModel
from langchain_core.output_parsers import StrOutputParser

chain = FakeListChatModel(responses=["Lake Baikal is 1,642 metres deep."]) | StrOutputParser()
print(chain.invoke("How deep is it?", {"run_name": "lakes"}))
"""


def test_frameworks_are_listened_to_where_the_environment_names_them(tmp_path: Path, receiver: HttpReceiver) -> None:
    """Without any instrumentation of the framework, and without the evaluation of spans."""
    found = _run(tmp_path, receiver, CHAIN, RAGTRACE_INSTRUMENT="langchain")
    assert (found.stdout, found.returncode) == ("Lake Baikal is 1,642 metres deep.\n", 0)
    assert {"invoke_workflow lakes", "chat"} <= {span.name for span in receiver.spans}


def test_an_unknown_framework_is_logged_and_the_program_runs(tmp_path: Path, receiver: HttpReceiver) -> None:
    """The log names the variable."""
    found = _run(tmp_path, receiver, CHAIN, RAGTRACE_INSTRUMENT="langchian")
    assert (found.stdout, found.returncode) == ("Lake Baikal is 1,642 metres deep.\n", 0)
    assert "did you mean 'langchain'?" in found.stderr
    assert "(from RAGTRACE_INSTRUMENT)" in found.stderr
