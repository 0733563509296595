"""Calls whose texts are marked words, sent through every output of ragtrace."""

from __future__ import annotations

import gc
import io
import json
import logging
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout, suppress
from pathlib import Path
from typing import Final

import openai
from opentelemetry.sdk._logs.export import InMemoryLogRecordExporter
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

import ragtrace
from ragtrace.alerts import Alertmanager, Notice, Slack, Webhook
from ragtrace.cli import main
from ragtrace.core.errors import JudgeError
from ragtrace.core.score_sink import ScoreRecord, ScoreSink
from ragtrace.core.types import Signals
from ragtrace.fleet.call_message import CallMessage, write_message
from ragtrace.fleet.spool import Spool
from ragtrace.system.faults import faults
from ragtrace.testing import FakeJudge
from ragtrace_exporters.console import call_text, event_text, metrics_text, span_text
from ragtrace_exporters.datadog import DatadogScores
from ragtrace_exporters.http_spans import encode
from ragtrace_exporters.langfuse import LangfuseScores
from ragtrace_exporters.mlflow import MlflowScores
from ragtrace_exporters.opik import OpikScores
from ragtrace_exporters.otlp import otlp
from ragtrace_exporters.phoenix import PhoenixScores
from ragtrace_exporters.score_api import JsonClient
from tests.support.backends import Answer, Backend, Request
from tests.support.otlp import GrpcReceiver, HttpReceiver
from tests.support.posting import ScriptedSink
from tests.support.watched import WAIT_S
from tests.unit.web.test_labelling import client

_WORDS: Final = (
    "answer chunk claim comment correction crash detail explanation failure label metric missing note query quote "
    "redaction refusal server"
)
CONTENT: Final = re.compile(f"zq(?:{'|'.join(_WORDS.split())})7", re.IGNORECASE)
"""Every word of a call, and every word that a judge, a metric or a server writes about it. None comes about by chance
in the random bytes of a file."""
SECRET: Final = re.compile(r"hush[a-z]+8", re.IGNORECASE)
"""Every password and key."""
SINKS: Final[Mapping[str, Callable[[JsonClient], ScoreSink]]] = {
    kind.__name__: kind for kind in (PhoenixScores, MlflowScores, LangfuseScores, DatadogScores, OpikScores)
}
ANSWER: Final = "The zqanswer7 is big. It is on zqanswer7."
CLAIMS: Final = (
    ragtrace.Claim("zqclaim7 is big.", 0, 20, "supported", evidence=(0,), score=0.9),
    ragtrace.Claim(
        "zqclaim7 is on.", 21, 40, "not_found", evidence=(1, 0), score=0.1, unsupported=((26, 30),), quote="zqquote7"
    ),
)
TOLD: Final = ragtrace.Judgement(
    claims=CLAIMS, answer_label="answered", consistency=0.25, attributes={"note": "about zqnote7"}
)
REDIS: Final = "redis://ann:hushfleet8@127.0.0.1:9/0"
RABBITMQ: Final = "amqp://ann:hushfleet8@127.0.0.1:9/"
_RAISED: Final = {name: f"cannot go on with zq{name}7" for name in ("metric", "failure", "redaction")}
"""Messages of exceptions, which are no part of the lines that raise them, as tracebacks show those."""
_CALLS: Final = 60
"""Number of bad calls after which the alert fires."""


@ragtrace.metric(register=False)
def marked_score(call: ragtrace.RagCall) -> ragtrace.Score:
    """Score with marks in all its texts."""
    del call
    details = {"why": "zqdetail7"}
    return ragtrace.Score(0.5, label="a zqlabel7", explanation="it says zqexplanation7", attributes=details)


@ragtrace.metric(register=False)
def marked_missing(call: ragtrace.RagCall) -> ragtrace.Unscored:
    """Reason with a mark in its explanation."""
    del call
    return ragtrace.Unscored("needs_runs", explanation="it says zqmissing7")


@ragtrace.metric(register=False)
def marked_failing(call: ragtrace.RagCall) -> float:
    """Metric that raises with a mark in its message."""
    del call
    raise ValueError(_RAISED["metric"])


@ragtrace.retrieve
def search(query: str) -> list[str]:
    return ["A zqchunk7 is a big city.", "Another zqchunk7 is a planet."]


@ragtrace.generate(model="tiny")
def generate(question: str, docs: list[str]) -> str:
    if "fail" in question:
        raise ValueError(_RAISED["failure"])
    return ANSWER


@ragtrace.trace(name="guide", answer=lambda found: found[0])
def ask(question: str) -> tuple[str, str | None]:
    """The smallest whole call, and its id."""
    return generate(question, search(question)), ragtrace.call_id()


def refuse(_: str) -> str:
    """Redaction that fails."""
    raise ValueError(_RAISED["redaction"])


class _Log(logging.Handler):
    """Handler that keeps every record as text, with its traceback."""

    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self.lines: list[str] = []
        self.setFormatter(logging.Formatter("%(name)s %(message)s"))

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(self.format(record))


@contextmanager
def _logged() -> Iterator[list[str]]:
    """Keep what is logged by anybody, at every level, also when what is left is collected as garbage."""
    gc.collect()  # what earlier calls have left is not of these
    root, handler = logging.getLogger(), _Log()
    before = root.level
    root.addHandler(handler)
    root.setLevel(logging.DEBUG)
    try:
        yield handler.lines
        gc.collect()
    finally:
        root.setLevel(before)
        root.removeHandler(handler)


def _quoting(request: Request) -> Answer:
    """Refuse a judge's request, and quote the call in it, as servers do that validate requests."""
    said = "the text zqserver7" if CONTENT.search(json.dumps(request.body)) else "this"
    return Answer(400, {"error": {"message": f"{said} is no valid request"}})


def run(
    folder: Path, capture: str, redact: ragtrace.Redact | None, watch: Callable[[], object] = lambda: None
) -> dict[str, str]:
    """Make marked calls with all settings that show texts, and return what each output got, as text.

    *watch* is called before each part: a trace function of the interpreter does not survive every call.
    """
    found: dict[str, str] = {}
    faults.clear()  # else the first failure of a kind is not logged
    with _logged() as lines, Backend(_quoting) as judge_server, Backend() as receiver:
        spans, reader = InMemorySpanExporter(), InMemoryMetricReader()
        logs, sink = InMemoryLogRecordExporter(), ScriptedSink()  # type: ignore[no-untyped-call,unused-ignore]
        notices: list[Notice] = []
        secret = f"{receiver.url}/hushhook8"
        hooks = (notices.append, Webhook(secret, secret="hushkey8"), Slack(secret), Alertmanager(receiver.url))
        judge_url = judge_server.url.replace("http://", "http://ann:hushjudge8@")
        script = (TOLD, JudgeError("refused", "it says zqrefusal7"), RuntimeError("it says zqcrash7"), TOLD)
        ragtrace.configure(
            service="bot",
            exporter=Signals(spans=spans, metrics=reader, logs=logs, scores=sink, immediate=True),
            screen=FakeJudge(*script, name="screen", limits=ragtrace.JudgeLimits(concurrency=1)),
            judge=ragtrace.OpenAIJudge(
                "model", client=lambda: openai.AsyncOpenAI(base_url=f"{judge_url}/v1", api_key="sk-hushapi8")
            ),
            metrics=["consistency", "faithfulness", marked_score, marked_missing, marked_failing],
            sampling=ragtrace.Sampling(rate=1.0),
            alerts=[ragtrace.Alert("consistency", below=0.5, notify=hooks)],
            store=folder / "history.db",
            capture_content=capture,
            redact=redact,
            telemetry=ragtrace.TelemetryOptions(evidence=True, dialects=("otel", "openinference", "langfuse")),
        )
        call = None
        for number in range(_CALLS):
            _, call = ask(f"where is zqquery7 {number}")
        watch()
        _ask_guarded("where is zqquery7, guarded")
        with suppress(ValueError):
            ask("fail zqquery7")
        watch()
        ragtrace.feedback(False, call=call, comment="it says zqcomment7", correction="it is zqcorrection7")
        ragtrace.flush(WAIT_S)
        found["doctor"] = f"{(diagnosis := ragtrace.doctor(timeout=2.0))} {json.dumps(diagnosis.as_dict())}"
        found["doctor"] += _printed([["doctor", "--app", "json", "--timeout", "2"]])
        found["stats"] = repr(ragtrace.stats())
        ragtrace.shutdown(WAIT_S)
        data = reader.get_metrics_data()
        found["metrics"] = (data.to_json() if data is not None else "") + (metrics_text(data) if data else "")
        found["spans"] = "".join(span.to_json() for span in spans.get_finished_spans())
        watch()
        found["spans by OTLP"] = _exported(spans.get_finished_spans())
        shown = [text(span) for span in spans.get_finished_spans() for text in (call_text, span_text)]
        found["console"] = "".join(shown)
        found["events"] = "".join(map(event_text, logs.get_finished_logs()))
        found["events"] += str([dict(record.log_record.attributes or {}) for record in logs.get_finished_logs()])
        found["notices"] = "".join(f"{notice.text} {notice.as_dict()}" for notice in notices)
        found["notices by HTTP"] = "".join(str(request.body) for request in receiver.requests)
        watch()
        found["score APIs"] = _posted(sink.taken)
        watch()
        found |= _of_history(folder / "history.db", folder)
    found["log"] = "\n".join(lines)
    return found


def _ask_guarded(question: str) -> None:
    """Make the same call with a guard, which a fleet could not have: further attributes tell of it."""

    @ragtrace.trace(name="guarded guide", guard=ragtrace.Guard("consistency", below=0.1))
    def guarded(question: str) -> str:
        return generate(question, search(question))

    guarded(question)


def _exported(spans: Sequence[ReadableSpan]) -> str:
    """Return what a backend gets of *spans* over HTTP and over gRPC, and the encoded request."""
    found = encode(spans).decode("utf-8", "replace")
    for kind in (HttpReceiver, GrpcReceiver):
        with kind() as receiver:
            exporter = otlp(receiver.environ).spans
            assert exporter is not None
            exporter.export(spans)
            exporter.shutdown()
            found += repr(receiver.spans)
    return found


def _posted(records: Sequence[ScoreRecord]) -> str:
    """Return the requests by which every score API gets *records*."""
    found: list[str] = []
    for kind in SINKS.values():
        with Backend() as server:
            kind(JsonClient(server.url, {})).post(records[:20], 5.0)
            found += [str(request.body) for request in server.requests]
    return "".join((repr(records), *found))


def _of_history(path: Path, folder: Path) -> dict[str, str]:
    """Return what a history holds, and what pages and commands show of it."""
    found = {"history": b"".join(file.read_bytes() for file in path.parent.glob(f"{path.name}*")).decode("latin-1")}
    browser = client(path)
    pages = (
        "/", "/calls", "/calls?status=failed", "/calls/1", "/calls/2", "/calls/61", "/changes", "/health",
        "/cases?all=yes", "/dataset?all=yes", "/label", "/label/next", "/label/disagreements", "/label/calibration",
    )  # fmt: skip
    found["pages"] = "".join(browser.get(page).text for page in pages)
    printed = _printed(
        [
            ["report", str(path), "--out", str(folder / "report.html")],
            *(["report", str(path), "--format", form] for form in ("terminal", "markdown", "json")),
            ["dataset", str(path), "--out", str(folder / "cases.jsonl")],
            ["calibrate", "pick", str(path), "--metric", "consistency", "-n", "5"],
            ["labels", "export", str(path), "--out", str(folder / "labels.jsonl")],
        ]
    )
    written = [file.read_text("utf-8") for file in folder.iterdir() if file.suffix in (".html", ".jsonl")]
    found["commands"] = "".join((printed, *written))
    return found


def _printed(commands: Sequence[Sequence[str]]) -> str:
    """Return what *commands* print."""
    printed = io.StringIO()
    with redirect_stdout(printed), redirect_stderr(printed):
        for command in commands:
            main(list(command))
    return printed.getvalue()


def hand_over(folder: Path, capture: str, redact: ragtrace.Redact | None, broker: str = REDIS) -> dict[str, str]:
    """Leave a marked call to a fleet whose *broker* is away, and return what spool and message hold, as text."""
    with _logged() as lines:
        spans = InMemorySpanExporter()
        ragtrace.configure(
            exporter=Signals(spans=spans, immediate=True),
            screen=None,
            fleet=broker,
            sampling=ragtrace.Sampling(rate=1.0),
            limits=ragtrace.Limits(spool=folder / "spool.db"),
            capture_content=capture,
            redact=redact,
        )
        ask("where is zqquery7")
        doctor = str(ragtrace.doctor(timeout=2.0))
        ragtrace.shutdown(2.0)
    spool = Spool(str(folder / "spool.db"))
    kept = [claimed.unscored for claimed in spool.claim(10)]
    return {
        "spool": (folder / "spool.db").read_bytes().decode("latin-1"),
        "fleet": "".join(write_message(CallMessage.of(each)) for each in kept),
        "log": "\n".join(lines),
        "doctor": doctor,
        "spans": "".join(span.to_json() for span in spans.get_finished_spans()),
    }


def marks(text: str) -> set[str]:
    """Return the marks in *text*, of contents and of secrets."""
    return {found.lower() for pattern in (CONTENT, SECRET) for found in pattern.findall(text)}
