"""The list of outputs: where texts of calls could leave the process, and that none lets out what it may not.

An output is found by what the code does: it writes a span, an event, a metric, a file, a line of the log or of a
terminal, it talks to a server, or it is one of the classes that see finished calls, scores or notifications. A new file
among these belongs into `OUTPUTS`; where it can hold texts of a call, `tests/support/marked.py` sends marked
calls through it, and `may_leave` (`ragtrace/core/contents.py`) decides what it gets.
"""

from __future__ import annotations

import ast
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Final

import pytest

import ragtrace
from ragtrace.core.contents import may_leave
from tests.support import marked

ROOT: Final = Path(__file__).parents[2]
FOLDERS: Final = ("ragtrace", "ragtrace_pytest", "exporters/ragtrace_exporters")
LIBRARIES: Final = {
    "network": tuple(
        "urllib.request http.client http.server smtplib ftplib poplib imaplib nntplib telnetlib xmlrpc socket "
        "socketserver multiprocessing subprocess pty syslog".split()
    ),
    "file": ("sqlite3", "dbm", "shelve", "mmap", "tempfile"),
}
"""Modules of the standard library that let something out."""
METHODS: Final = {
    "network": {"open_connection", "create_connection", "create_datagram_endpoint", "popen", "posix_spawn"},
    "file": {"write_text", "write_bytes", "write_atomically", "SQLiteFile", "writev", "pwrite", "sendfile"},
}
"""Functions and methods that let something out, wherever they come from."""
FUNCTIONS: Final = {"os.write": "file", "os.system": "network", "print": "terminal", "logging.getLogger": "log"}
INERT: Final = frozenset(
    "ragtrace ragtrace_exporters ragtrace_pytest google haystack jinja2 langchain_core llama_index "
    "llama_index_instrumentation numpy opentelemetry pydantic pytest rich tomli typing_extensions wrapt".split()
)
"""Third-party packages that let nothing out, or whose ways out are named in `effects`; every other counts as one."""
SPAN_METHODS: Final = frozenset({"set_attribute", "set_attributes", "add_event", "set_status"})
SEAMS: Final = {"Part", "Source", "ScoreApi", "SpanExporter", "HttpNotifier"}
"""Base classes of what is told of calls, scores or notifications."""
SIGNATURES: Final = {
    "post": ["self", "scores", "timeout"],
    "send": ["self", "notice", "timeout"],
    "__call__": ["self", "call", "evaluations", "decision"],
}
"""Methods of score sinks, notifiers and observers, which need no base class."""
NOTHING: Final = "no text of a call"
BY_HAND: Final = "what the user names: data, files and scores of an offline command are no calls of the application"
THROUGH: Final = "passes on what another output was given"
OUTPUTS: Final = {
    **dict.fromkeys(
        (
            "ragtrace/guard/guarded_call.py", "ragtrace/pipeline/step_spans.py", "ragtrace/telemetry/spans/writer.py",
            "ragtrace/telemetry/scores/score_sender.py", "ragtrace/telemetry/spans/fast.py",
        ),
        "spans",
    ),
    "exporters/ragtrace_exporters/http_spans.py": "spans by OTLP",
    "exporters/ragtrace_exporters/otlp.py": "spans by OTLP",
    "ragtrace/telemetry/scores/event.py": "events",
    "ragtrace/telemetry/scores/feedback_sender.py": "events",
    "ragtrace/telemetry/scores/instruments.py": "metrics",
    "ragtrace/system/faults.py": "log",
    "ragtrace/judges/llm/server_connection.py": "log",
    "ragtrace/alerts/notifiers/notifier.py": "notices",
    "ragtrace/alerts/alerting.py": "notices",
    **dict.fromkeys(
        (f"ragtrace/alerts/notifiers/{name}.py" for name in ("alertmanager", "http", "slack", "webhook")),
        "notices by HTTP",
    ),
    "ragtrace/telemetry/export/score_poster.py": "score APIs",
    **dict.fromkeys(
        (
            f"exporters/ragtrace_exporters/{name}.py"
            for name in ("datadog", "langfuse", "mlflow", "opik", "phoenix", "score_api")
        ),
        "score APIs",
    ),
    "ragtrace/diagnosis/probes.py": "doctor",
    "ragtrace/cli/doctor_command.py": "doctor",
    "ragtrace/pipeline/health.py": "doctor",
    "ragtrace/fleet/spool.py": "spool",
    **dict.fromkeys((f"ragtrace/fleet/{name}.py" for name in ("publisher", "rabbitmq", "redis_streams")), "fleet"),
    **dict.fromkeys(
        (
            f"ragtrace/history/{name}.py"
            for name in ("history", "intact_rows", "packed_blocks", "row_reading", "schema", "stored_json", "writing")
        ),
        "history",
    ),
    "ragtrace/labels/label_store.py": "history",
    **dict.fromkeys(
        (f"ragtrace/web/{name}.py" for name in ("history_pages", "labelling", "rendering", "security", "site")), "pages"
    ),
    **dict.fromkeys(
        (
            f"ragtrace/cli/{name}_command.py" for name in ("calibrate", "dataset", "labels", "report")
        ),
        "commands",
    ),
    "ragtrace/report/console.py": "commands",
    # --- what has no text of a call -----------------------------------------------------------------------------------
    **dict.fromkeys(
        (
            "ragtrace/cli/baseline_command.py", "ragtrace/cli/docs_command.py", "ragtrace/cli/exporters_command.py",
            "ragtrace/cli/fleet_command.py", "ragtrace/cli/open_command.py", "ragtrace/cli/run_command.py",
            "ragtrace/cli/serve_command.py", "ragtrace/cli/worker_command.py", "ragtrace/core/settings.py",
            "ragtrace/estimates/baseline.py",
            "ragtrace/estimates/calibration.py", "ragtrace/estimates/moments.py", "ragtrace/fleet/broker.py",
            "ragtrace/fleet/budget.py", "ragtrace/fleet/claims.py", "ragtrace/fleet/fleet_metrics.py",
            "ragtrace/gateway/tls.py", "ragtrace/guard/guards.py", "ragtrace/pipeline/unqueued_steps.py",
            "ragtrace/runtime/engine_metrics.py", "ragtrace/judges/decision/decision_judge.py",
            "ragtrace/judges/llm/chat.py",
            "ragtrace/diagnosis/telemetry_probes.py", "ragtrace/labels/canary_judging.py",
            "ragtrace/labels/canary_store.py", "ragtrace/labels/served_models.py", "ragtrace/offline/progress.py",
            "ragtrace/span_reading/span_calls.py", "ragtrace/tagging/tagged_moments.py",
            "ragtrace/telemetry/spans/hold.py",
        ),
        NOTHING,
    ),
    **dict.fromkeys(
        (
            "ragtrace/cli/demo_command.py", "ragtrace/cli/judges_command.py", "ragtrace/cli/score_command.py",
            "ragtrace/demo/demo_run.py",
            "ragtrace/offline/case_run.py", "ragtrace/offline/journal.py", "ragtrace/offline/score_file.py",
        ),
        BY_HAND,
    ),
    **dict.fromkeys(
        (
            "exporters/ragtrace_exporters/prometheus_page.py", "ragtrace/gateway/grpc_server.py",
            "ragtrace/gateway/http_server.py", "ragtrace/gateway/serving.py", "ragtrace/gateway/upstream.py",
            "ragtrace/cli/results.py",
            "ragtrace/system/atomic_file.py", "ragtrace/system/sqlite_files.py", "ragtrace/system/terminal.py",
            "ragtrace/tagging/routing/posters.py",
            "ragtrace/telemetry/export/telemetry.py", "ragtrace/web/server.py",
        ),
        THROUGH,
    ),
}  # fmt: skip
"""The output that each file is part of, or why its texts are none of a call."""
OF_THE_CALL: Final = frozenset({"zqquery7", "zqchunk7", "zqanswer7"})
ON_SPANS: Final = OF_THE_CALL | {"zqfailure7", "zqclaim7", "zqquote7", "zqlabel7"}
WRITTEN: Final = frozenset(f"zq{word}7" for word in ("label", "missing", "explanation"))
ELSEWHERE: Final = {
    "events": WRITTEN | {"zqdetail7", "zqnote7", "zqrefusal7", "zqserver7", "zqcomment7", "zqcorrection7"},
    "log": {"zqquery7", "zqclaim7", "zqcrash7", "zqmetric7", "zqserver7"},
    "doctor": {"zqrefusal7", "zqserver7"},
    "notices": {"zqquery7", "zqclaim7"},
    "notices by HTTP": {"zqquery7", "zqclaim7"},
    "score APIs": {"zqlabel7", "zqclaim7", "zqexplanation7", "zqcomment7"},
    "metrics": {"zqlabel7"},
    "history": (ON_SPANS - {"zqfailure7"}) | WRITTEN | {"zqrefusal7", "zqserver7", "zqcomment7", "zqcorrection7"},
    "pages": OF_THE_CALL | WRITTEN | {"zqserver7", "zqcomment7", "zqcorrection7"},
    "commands": OF_THE_CALL | {"zqlabel7", "zqcomment7", "zqcorrection7"},
}
"""What each output has where texts may leave: that it has all of it shows that the marked calls reach it."""
SPANS: Final = ("spans", "spans by OTLP", "spool", "fleet")
CAPTURES: Final = ("NO_CONTENT", "SPAN_ONLY", "EVENT_ONLY", "SPAN_AND_EVENT")
REDACTIONS: Final = {
    "patterns": ragtrace.Redact([marked.CONTENT.pattern]),
    "function": ragtrace.Redact(function=lambda text: marked.CONTENT.sub("-", text)),
    "failing": ragtrace.Redact(function=marked.refuse),
}


def effects(tree: ast.Module) -> Iterator[str]:
    """Yield how a module lets something out of the process."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield from _of_import(node)
        elif isinstance(node, ast.Call):
            yield from _of_call(node)
        elif isinstance(node, ast.ClassDef):
            bases = {ast.unparse(base).partition("[")[0] for base in node.bases}
            functions = [each for each in node.body if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)]
            methods = {each.name: each.args.args for each in functions}
            given = {name: [argument.arg for argument in arguments] for name, arguments in methods.items()}
            sees_calls = any(given.get(name) == wanted for name, wanted in SIGNATURES.items())
            if "Protocol" not in bases and (bases & SEAMS or sees_calls):
                yield f"class {node.name}"


def _of_import(node: ast.Import | ast.ImportFrom) -> Iterator[str]:
    module = node.module or "" if isinstance(node, ast.ImportFrom) else ""
    names = [f"{module}.{alias.name}".strip(".") for alias in node.names]
    for kind, libraries in LIBRARIES.items():
        if any(f"{name}.".startswith(f"{library}.") for name in names for library in libraries):
            yield kind
    for name in {name.partition(".")[0] for name in names}:
        if name not in sys.stdlib_module_names and name not in INERT:
            yield f"library {name}"


def _of_call(node: ast.Call) -> Iterator[str]:
    called = ast.unparse(node.func)
    method = called.rpartition(".")[2]
    constants = [each.value for each in node.args if isinstance(each, ast.Constant) and isinstance(each.value, str)]
    if method == "emit" and any(keyword.arg == "event_name" for keyword in node.keywords):
        yield "event"
    if "." in called and method in SPAN_METHODS:
        yield "span"
    if method.startswith(("create_counter", "create_histogram", "create_gauge", "create_observable", "create_up_down")):
        yield "metric"
    if called.startswith(("sys.stdout.write", "sys.stderr.write", "console.print")):
        yield "terminal"
    if called in FUNCTIONS:
        yield FUNCTIONS[called]
    yield from (kind for kind, methods in METHODS.items() if method in methods)
    writes = method == "open" and any(
        mode and set(mode) <= set("rwaxbt+") and set(mode) & set("wax+") for mode in constants
    )
    if writes:
        yield "file"


def found_outputs() -> dict[str, set[str]]:
    """Return the files that let something out, each with how it does."""
    found: dict[str, set[str]] = {}
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*.py")):
            if kinds := set(effects(ast.parse(path.read_text(encoding="utf-8")))):
                found[path.relative_to(ROOT).as_posix()] = kinds
    return found


def test_every_output_is_listed() -> None:
    """A new one fails this test until it has a place in `OUTPUTS`, and with it a part in the marked calls."""
    found = found_outputs()
    assert {path: kinds for path, kinds in found.items() if path not in OUTPUTS} == {}
    assert OUTPUTS.keys() - found.keys() == set()


WAYS_OUT: Final = """
import asyncio, os
import boto3
from kafka import KafkaProducer
import subprocess

class Notifier:
    async def send(self, notice, timeout): ...

async def leak(text):
    os.write(1, text)
    await asyncio.open_connection("host", 1)
"""


def test_ways_out_of_all_kinds_are_found() -> None:
    """Of libraries that nobody has named here, of the operating system, and of asynchronous functions."""
    found = sorted(effects(ast.parse(WAYS_OUT)))
    assert found == ["class Notifier", "file", "library boto3", "library kafka", "network", "network"]


def test_the_marked_calls_reach_every_listed_output(tmp_path: Path) -> None:
    """A file that is listed and that nothing of a call ever enters would be no output, or one that nobody checks."""
    entered: set[str] = set()

    def note(frame: FrameType, event: str, argument: object) -> None:
        del event, argument
        if frame.f_code.co_name not in ("<module>", "__init__"):
            entered.add(frame.f_code.co_filename)

    for part in ("run", "hand over", "to RabbitMQ"):
        (tmp_path / part).mkdir()
    threading.settrace(note)
    try:
        marked.run(tmp_path / "run", "SPAN_AND_EVENT", None, watch=lambda: sys.settrace(note))
        for part, broker in (("hand over", marked.REDIS), ("to RabbitMQ", marked.RABBITMQ)):
            sys.settrace(note)
            marked.hand_over(tmp_path / part, "SPAN_AND_EVENT", None, broker)
    finally:
        threading.settrace(None)  # type: ignore[arg-type]
        sys.settrace(None)
    paths = {str((ROOT / path).resolve()): path for path, kind in OUTPUTS.items() if kind in (*ELSEWHERE, *SPANS)}
    assert (
        sorted(path for file, path in paths.items() if file not in {str(Path(each).resolve()) for each in entered})
        == []
    )


def test_every_score_api_gets_marked_scores() -> None:
    """All classes that post scores to a backend are tried."""
    named = {kind.removeprefix("class ") for kinds in found_outputs().values() for kind in kinds}
    assert set(marked.SINKS) == {each for each in named if each.endswith("Scores")}


def test_one_function_decides_whether_texts_may_leave() -> None:
    """Nothing else compares the value of `capture_content`."""
    modes, found = set(CAPTURES), set[str]()
    for folder in FOLDERS:
        for path in (ROOT / folder).rglob("*.py"):
            nodes = ast.walk(ast.parse(path.read_text(encoding="utf-8")))
            if any(isinstance(node, ast.Constant) and node.value in modes for node in nodes):
                found.add(path.relative_to(ROOT).as_posix())
    assert found == {"ragtrace/core/contents.py", "ragtrace/core/settings.py"}


@pytest.mark.parametrize("capture", CAPTURES)
def test_each_output_has_the_texts_that_it_may_have_and_no_others(tmp_path: Path, capture: str) -> None:
    """Of the call, of what judges, metrics and servers write about it, and no password in any case."""
    found = {name: marked.marks(text) for name, text in marked.run(tmp_path, capture, None).items()}
    spans = ON_SPANS if may_leave(capture, "spans") else frozenset[str]()
    texts = OF_THE_CALL if may_leave(capture, "events") else frozenset[str]()
    anywhere = may_leave(capture, "elsewhere")
    expected = {name: (marks if anywhere else set()) for name, marks in ELSEWHERE.items()}
    expected |= {"stats": set(), "spans": spans, "spans by OTLP": spans, "console": spans - {"zqfailure7"}}
    expected["events"] = {*expected["events"], *texts}
    if anywhere:  # whether the call that the judge refused is one of the pages depends on the order of storing
        found["pages"].discard("zqrefusal7")
    assert found == expected


@pytest.mark.parametrize("capture", CAPTURES)
@pytest.mark.parametrize("redaction", REDACTIONS)
def test_what_is_redacted_is_in_no_output(tmp_path: Path, capture: str, redaction: str) -> None:
    """Nor where the redaction itself fails."""
    found = marked.run(tmp_path, capture, REDACTIONS[redaction])
    assert {name: marks for name, text in found.items() if (marks := marked.marks(text))} == {}


@pytest.mark.parametrize("capture", CAPTURES)
def test_spool_and_fleet_have_the_texts_of_a_call_and_nobody_else_of_it(tmp_path: Path, capture: str) -> None:
    """Whoever scores it there needs them; log and doctor do not show them, nor the password of the broker."""
    found = marked.hand_over(tmp_path, capture, None)
    spans = OF_THE_CALL if may_leave(capture, "spans") else set()
    expected = {"spool": OF_THE_CALL, "fleet": OF_THE_CALL, "log": set(), "doctor": set(), "spans": spans}
    assert {name: marked.marks(text) for name, text in found.items()} == expected


@pytest.mark.parametrize("redaction", REDACTIONS)
def test_spool_and_fleet_have_redacted_texts(tmp_path: Path, redaction: str) -> None:
    """Redaction comes before both."""
    found = marked.hand_over(tmp_path, "SPAN_AND_EVENT", REDACTIONS[redaction])
    assert {name: marks for name, text in found.items() if (marks := marked.marks(text))} == {}
