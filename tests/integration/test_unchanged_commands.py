"""A command that knows nothing of ragtrace runs as before and is scored, by both ways to start it."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from importlib.metadata import distribution
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest

from tests.integration.frameworks.environment import FOLDER, python_of
from tests.support.otlp import HttpReceiver
from tests.support.services import Phoenix

pytestmark = pytest.mark.integration

ROOT: Final = Path(__file__).parents[2]
COMMAND: Final = FOLDER / "ask_documents.py"
QUESTION: Final = "How tall is the Eiffel Tower?"
ANSWER: Final = "The Eiffel Tower in Paris is 330 metres tall."
WAYS: Final = {"run": ["-m", "ragtrace", "run"], "instrument": []}
"""Arguments between the interpreter and the command; `opentelemetry-instrument` comes before the interpreter."""
_OF_OPENINFERENCE: Final = re.compile(r".*/openinference/.*: LangChainDeprecationWarning: .*\n  .*\n")
"""Warning that OpenInference calls what LangChain has deprecated; LangChain shows it whatever filters are set."""
TIMEOUT_S: Final = 120.0
ARRIVAL_S: Final = 40.0
"""Phoenix looks every ten seconds for the spans of annotations that came first."""


class Ended(NamedTuple):
    """What a command wrote, and its exit status."""

    stdout: str
    stderr: str
    status: int


@pytest.fixture(scope="module")
def environ(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """Environment variables of all commands: a model server, and ragtrace installed without its requirements."""
    site = tmp_path_factory.mktemp("site")
    metadata = site / "ragtrace_otel-0.dist-info"
    metadata.mkdir()
    for name in ("METADATA", "entry_points.txt"):
        (metadata / name).write_text(distribution("ragtrace-otel").read_text(name) or "", encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(FOLDER)  # its modules import each other as those of a script do
        documents = [document.text for document in import_module("corpus").DOCUMENTS]
        server = import_module("model_server").ModelServer(documents)
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("OTEL_", "RAGTRACE_", "PYTHON"))}
    with server:
        yield {
            **kept,
            "PATH": os.pathsep.join([str(python_of("command").parent), os.environ.get("PATH", "")]),
            "PYTHONPATH": os.pathsep.join(map(str, (site, ROOT, ROOT / "exporters"))),
            "PYTHONNODEBUGRANGES": "1",  # a signal interrupts the line anywhere
            "OPENAI_BASE_URL": server.url,
            "OPENAI_API_KEY": "none",
        }


def _run(way: str, environ: dict[str, str], end: str, number: signal.Signals | None = None) -> Ended:
    """Run the command in one of the `WAYS`, or as it is; send it the signal *number* when it waits for one."""
    python = str(python_of("command"))
    arguments = [python, *WAYS.get(way, []), str(COMMAND), QUESTION, end]
    if way == "instrument":
        arguments = [str(Path(python).with_name("opentelemetry-instrument")), *arguments]
    with subprocess.Popen(arguments, env=environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        before = ""
        if number is not None and process.stdout is not None:
            for line in process.stdout:
                before += line
                if line == "ready\n":
                    break
            process.send_signal(number)
        try:
            stdout, stderr = process.communicate(timeout=TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            raise
        return Ended(before + stdout, _OF_OPENINFERENCE.sub("", stderr), process.returncode)


@pytest.fixture(scope="module")
def as_it_is(environ: dict[str, str]) -> Any:
    """Function that runs the command with the interpreter alone, once for each way in which it ends."""

    @cache
    def run(end: str, number: signal.Signals | None = None) -> Ended:
        return _run("as it is", environ, end, number)

    return run


@pytest.mark.parametrize("way", WAYS)
def test_phoenix_shows_question_answer_documents_and_scores(
    way: str, environ: dict[str, str], as_it_is: Any, phoenix_server: Phoenix
) -> None:
    """The scores are annotations of the trace whose root shows the question and the answer."""
    project = f"unchanged-{way}"
    own = {"RAGTRACE_EXPORTER": "phoenix", "PHOENIX_COLLECTOR_ENDPOINT": phoenix_server.http}
    if way == "run":
        own["PHOENIX_PROJECT_NAME"] = project
    else:
        own |= {"RAGTRACE_EVALUATE_SPANS": "1", "OTEL_RESOURCE_ATTRIBUTES": f"openinference.project.name={project}"}
        own |= {"OTEL_EXPORTER_OTLP_ENDPOINT": phoenix_server.http, "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf"}
        own |= {"OTEL_METRICS_EXPORTER": "none", "OTEL_LOGS_EXPORTER": "none"}  # Phoenix takes traces only

    assert _run(way, environ | own, "3") == as_it_is("3") == Ended(as_it_is("3").stdout, "asking\n", 3)

    spans = _await(
        lambda: _get(phoenix_server, project, "spans", limit="100"),
        lambda found: _root(found) is not None and any(span["span_kind"] == "RETRIEVER" for span in found),
    )
    root = _root(spans) or {}
    assert (root["attributes"]["input.value"], root["attributes"]["output.value"]) == (QUESTION, ANSWER)
    (retriever,) = [span for span in spans if span["span_kind"] == "RETRIEVER"]
    assert ANSWER in retriever["attributes"]["retrieval.documents.0.document.content"]
    trace_id, span_id = root["context"]["trace_id"], root["context"]["span_id"]
    shown = _await(  # one by one
        lambda: _get(phoenix_server, project, "trace_annotations", trace_ids=trace_id),
        lambda found: any(each["name"] == "consistency" for each in found),
    )
    assert {each["name"]: each["result"]["score"] for each in shown}["consistency"] == 1.0
    of_span = _await(lambda: _get(phoenix_server, project, "span_annotations", span_ids=span_id), len)
    assert [(each["name"], each["result"]["score"]) for each in of_span] == [("consistency", 1.0)]


@pytest.mark.parametrize(
    ("end", "number"), [("error", None), ("wait", signal.SIGINT), ("wait", signal.SIGTERM)], ids=lambda each: str(each)
)
@pytest.mark.parametrize("way", WAYS)
def test_a_collector_gets_the_scores_however_the_command_ends(
    way: str, end: str, number: signal.Signals | None, environ: dict[str, str], as_it_is: Any
) -> None:
    """Output, traceback and exit status are as before; a process that a signal kills may lose its last scores."""
    with HttpReceiver() as receiver:
        own = {**receiver.environ, "RAGTRACE_EXPORTER": "otlp", "RAGTRACE_EVALUATE_SPANS": "1"}
        found = _run(way, environ | own, end, number)
        scores = [span.attributes.get("ragtrace.eval.consistency.score") for span in receiver.spans]
        names = {span.name for span in receiver.spans}
    assert found == as_it_is(end, number)
    if number != signal.SIGTERM:
        assert found.status == (1 if number is None else -number)
        assert [score for score in scores if score is not None] == [1.0]
        assert {"RunnableSequence", "VectorStoreRetriever", "ChatOpenAI"} <= names


def _root(spans: list[dict[str, Any]]) -> dict[str, Any] | None:
    """Return the root span of the chain; None if it has not arrived yet."""
    return next((span for span in spans if not span["parent_id"] and span["span_kind"] == "CHAIN"), None)


def _get(server: Phoenix, project: str, what: str, **query: str) -> list[dict[str, Any]]:
    """Return a list of Phoenix's REST API; an empty one as long as the project does not exist."""
    asked = "&".join(f"{name}={value}" for name, value in query.items())
    try:
        with urllib.request.urlopen(f"{server.http}/v1/projects/{project}/{what}?{asked}", timeout=10) as response:
            found: list[dict[str, Any]] = json.load(response)["data"]
            return found
    except urllib.error.HTTPError as error:
        if error.code != 404:
            raise
        return []


def _await(look: Any, complete: Any) -> Any:
    """Return what *look* returns, as soon as it is complete."""
    deadline = time.monotonic() + ARRIVAL_S
    while not complete(found := look()):
        assert time.monotonic() < deadline, f"not complete after {ARRIVAL_S:g} s: {found}"
        threading.Event().wait(0.2)
    return found
