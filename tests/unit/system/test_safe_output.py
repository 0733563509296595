"""What leaves the process beside telemetry, in logs, the doctor and reports, holds no secret and drives no terminal."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExportResult
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

import ragtrace
from ragtrace.alerts import Webhook
from ragtrace.core.endpoints import Endpoint
from ragtrace.core.errors import JudgeError, SettingsError
from ragtrace.core.types import Signals
from ragtrace.report import wording
from ragtrace.system.faults import faults, printable
from ragtrace.testing import FakeJudge, OpenAIServer
from ragtrace.testing.replies import Reply
from ragtrace_exporters.http_spans import FailureLog, HttpSpanExporter
from ragtrace_exporters.otlp import otlp
from ragtrace_exporters.phoenix import PhoenixScores
from ragtrace_exporters.score_api import JsonClient
from tests.support.backends import Answer, Backend
from tests.support.logged import logged
from tests.support.otlp import HttpReceiver
from tests.support.watched import WAIT_S, ask, watch

CARD = "4111111111111111"
CARDS = r"\b\d{16}\b"


@pytest.fixture(autouse=True)
def _no_faults_before() -> None:
    faults.clear()


class Redirector:
    """An HTTP server that answers every POST with 307 and another server's address, and counts the requests."""

    def __init__(self, target: str) -> None:
        seen = self.seen = list[str]()

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                self.rfile.read(int(self.headers.get("content-length", 0)))
                seen.append(self.path)
                self.send_response(307)
                self.send_header("Location", target + self.path)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
                """Print nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


@pytest.fixture
def redirector(http_receiver: HttpReceiver) -> Iterator[Redirector]:
    """A server that redirects to the receiver."""
    server = Redirector(http_receiver.endpoint)
    yield server
    server.close()


# --- texts of calls --------------------------------------------------------------------------------------------------


def _failing(text: str) -> str:
    raise ValueError(f"cannot redact {text}")


def test_a_redaction_that_fails_with_the_text_does_not_log_the_text(caplog: pytest.LogCaptureFixture) -> None:
    """The exception's message holds what was to be taken out."""
    watch(redact=ragtrace.Redact(function=_failing))
    ask(f"my card is {CARD}")
    assert ragtrace.flush()
    assert faults.counts()["redaction"]
    assert CARD not in caplog.text
    assert "in _failing" in caplog.text, "the traceback says where"


def test_a_selector_that_fails_with_the_text_logs_it_redacted(caplog: pytest.LogCaptureFixture) -> None:
    """So does every function of the user's that is handed texts of calls."""

    def pick(reply: str) -> str:
        raise KeyError(f"no text in {reply}")

    watch(redact=ragtrace.Redact(patterns=[CARDS]))

    @ragtrace.generate(answer=pick)
    def answer(question: str, docs: list[str]) -> str:
        return f"the card {CARD}"

    answer("which card?", ["none"])
    assert ragtrace.flush()
    assert CARD not in caplog.text
    assert "no text in the card [redacted]" in caplog.text


@pytest.mark.parametrize("digits_left", range(1, 16))
def test_a_stack_trace_is_redacted_before_it_is_cut(digits_left: int) -> None:
    """A cut in the middle of a number would leave digits that no pattern finds."""
    captured = watch(redact=ragtrace.Redact(patterns=[CARDS], max_chars=None))
    rest = "x" * (20_000 - digits_left - 2)

    @ragtrace.trace
    def fail(question: str) -> str:
        raise ValueError(f"{CARD} {rest}")

    with pytest.raises(ValueError, match=CARD):
        fail("why?")
    assert ragtrace.flush()
    [event] = captured.root().events
    stacktrace = str((event.attributes or {})["exception.stacktrace"])
    assert stacktrace
    assert not set(CARD[:1] * 2) & set(stacktrace.replace(rest, "")[:40]), stacktrace[:60]
    assert "11" not in stacktrace


def test_the_doctor_shows_what_a_judge_said_redacted() -> None:
    """A server's error may quote the request."""
    watch(screen=FakeJudge(JudgeError("refused", f"not about {CARD}")), redact=ragtrace.Redact(patterns=[CARDS]))
    ask("where?")
    assert ragtrace.flush()
    shown = str(ragtrace.doctor())
    assert CARD not in shown
    assert "not about [redacted]" in shown


def test_without_content_a_failure_of_the_users_function_is_logged_without_its_message(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Its type and the frames say where, also of what led to it."""

    def pick(reply: str) -> str:
        try:
            raise KeyError(f"no text in {reply}")
        except KeyError as error:
            raise ValueError(f"cannot read {reply}") from error

    watch(capture_content="NO_CONTENT")

    @ragtrace.generate(answer=pick)
    def answer(question: str, docs: list[str]) -> str:
        return f"the card {CARD}"

    answer("which card?", ["none"])
    assert ragtrace.flush()
    assert CARD not in caplog.text
    assert "in pick" in caplog.text
    assert "KeyError: (its message is left out, as capture_content is NO_CONTENT)" in caplog.text
    assert "ValueError: (its message is left out" in caplog.text


@pytest.mark.parametrize("mode", ["NO_CONTENT", "SPAN_ONLY"])
def test_without_content_the_span_of_a_failed_call_has_types_and_frames_alone(mode: str) -> None:
    """No message in the exception's event, its stack trace or the status; the other modes have it in all three."""
    captured = watch(capture_content=mode)

    @ragtrace.trace
    def fail(question: str) -> str:
        try:
            raise KeyError(question)
        except KeyError as error:
            raise ValueError(f"no answer to {question}") from error

    with pytest.raises(ValueError, match=CARD):
        fail(CARD)
    assert ragtrace.flush()
    root = captured.root()
    [event] = root.events
    told = dict(event.attributes or {})
    stacktrace = str(told["exception.stacktrace"])
    places = (stacktrace, str(told.get("exception.message")), str(root.status.description))
    assert [CARD in place for place in places] == [mode != "NO_CONTENT"] * 3
    assert CARD not in str(root.attributes) or mode != "NO_CONTENT"
    assert told["exception.type"] == "ValueError"
    assert "KeyError" in stacktrace
    assert "in fail" in stacktrace
    assert (root.status.status_code.name, "exception.message" in told) == ("ERROR", mode != "NO_CONTENT")


@pytest.mark.parametrize(
    "error",
    [
        *(JudgeError("refused", f"not about {CARD}"), JudgeError("unavailable", f"HTTP 422: {CARD}", retryable=False)),
        *(TimeoutError(f"late with {CARD}"), JudgeError("odd", f"HTTP 500: {CARD}")),
    ],
)
def test_without_content_neither_events_nor_the_doctor_repeat_what_a_judge_said(error: Exception) -> None:
    """A server's error may quote the request, and a refusal the question; the reason stays."""
    captured = watch(screen=FakeJudge(error, limits=ragtrace.JudgeLimits(timeout=20)), capture_content="NO_CONTENT")
    ask("where?")
    assert ragtrace.flush(WAIT_S)
    events = [dict(record.log_record.attributes or {}) for record in captured.events]
    assert events
    assert CARD not in str(events)
    assert {event.get("error.type", "refused") for event in events} <= {"refused", "timeout", "unavailable"}
    shown = str(ragtrace.doctor())
    assert CARD not in shown
    assert "its message is left out" in shown


def test_without_content_what_a_judges_server_said_is_its_status_alone() -> None:
    """Servers that validate with pydantic repeat the request; that nobody answered holds no content and is told."""
    with OpenAIServer(Reply.failing(422, f"Input should be shorter: {CARD}")) as server:
        watch(screen=ragtrace.OpenAIJudge("m", base_url=server.url, api_key="k"), capture_content="NO_CONTENT")
        ask("where?")
        assert ragtrace.flush()
        shown = str(ragtrace.doctor(probe=False))
    assert CARD not in shown
    assert "HTTP 422 (its message is left out" in shown
    assert "request refused" in shown
    watch(
        screen=ragtrace.OpenAIJudge("m", base_url=server.url, api_key="k", limits=ragtrace.JudgeLimits(timeout=2)),
        capture_content="NO_CONTENT",
    )
    ask("where?")
    assert ragtrace.flush()
    assert f"The last one said: {server.url}" in str(ragtrace.doctor(probe=False))


def test_without_content_no_word_of_a_judge_of_the_users_own_is_repeated() -> None:
    """Whatever the reason that it gives."""

    class Own(FakeJudge):
        """A judge of another module than ours."""

    watch(screen=Own(JudgeError("unavailable", f"cannot judge {CARD}", retryable=False)), capture_content="NO_CONTENT")
    ask("where?")
    assert ragtrace.flush()
    assert CARD not in str(ragtrace.doctor(probe=False))


def test_ids_of_users_and_sessions_are_kept_unless_a_function_replaces_them() -> None:
    """Patterns leave them alone, as they tie calls together; `ids` may hash them."""

    @ragtrace.trace(session="conversation", user="user")
    def handle(question: str, conversation: str, user: str) -> str:
        return "yes"

    seen: list[dict[str, Any]] = []
    for redact in (
        ragtrace.Redact(patterns=["ann"]),
        ragtrace.Redact(ids=lambda value: f"hash-{len(value)}"),
        ragtrace.Redact(ids=_failing),
    ):
        captured = watch(redact=redact, telemetry=ragtrace.TelemetryOptions(dialects=["openinference"]))
        handle("where?", "ann-7", "ann")
        assert ragtrace.flush()
        seen.append(dict(captured.root().attributes or {}))
    assert [(each["session.id"], each["user.id"]) for each in seen] == [
        ("ann-7", "ann"),
        ("hash-5", "hash-3"),
        ("[redaction failed]", "[redaction failed]"),
    ]


# --- control characters, credentials ---------------------------------------------------------------------------------


def test_what_a_server_says_cannot_forge_a_log_line_or_drive_a_terminal(caplog: pytest.LogCaptureFixture) -> None:
    """Neither in the log nor in the doctor."""
    watch(screen=FakeJudge(JudgeError("unavailable", "gone\x1b[2J\nERROR root: all is lost\u2028\u202egnihton")))
    ask("where?")
    assert ragtrace.flush()
    shown = str(ragtrace.doctor())
    assert "gone [2J ERROR root: all is lost gnihton" in shown
    assert not {"\x1b", "\u2028", "\u202e"} & set(shown)
    faults.warn_once("a server", "it said %s", "bad\r\nERROR forged \x1b[31m")
    assert logged(caplog, "it said") == ["it said bad ERROR forged [31m"]


def test_printable_text_is_one_bounded_line_without_credentials() -> None:
    """Of a long text the beginning."""
    assert printable("see https://ann:secret@host/x?y=a@b") == "see https://***@host/x?y=a@b"
    assert printable("a" * 50, 10) == "a" * 10 + " ..."
    assert printable("naïve \u4f60\u597d \U0001f600") == "naïve \u4f60\u597d \U0001f600"


@pytest.mark.parametrize("path", ["ann:QUITESECRET@127.0.0.1:9/v1", "127.0.0.1:9/tenants/QUITESECRET/v1"])
def test_the_secrets_in_the_address_of_a_judges_server_are_shown_nowhere(
    path: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Neither by events, the doctor and the log, nor by the judge's error in an offline score."""
    judge = ragtrace.OpenAIJudge("m", base_url=f"http://{path}", api_key="k", limits=ragtrace.JudgeLimits(timeout=1))
    captured = watch(screen=None, judge=judge, sampling=ragtrace.Sampling(rate=1.0))
    ask("where?")
    assert ragtrace.flush(WAIT_S)
    events = [dict(record.log_record.attributes or {}) for record in captured.events]
    offline = ragtrace.score(query="where?", contexts=["here"], answer="There.", judge=judge)
    shown = f"{events} {ragtrace.doctor()} {caplog.text} {[each.explanation for each in offline.values()]}"
    assert "http://127.0.0.1:9/" in shown
    assert "QUITESECRET" not in shown


@pytest.mark.parametrize(
    ("variable", "url", "seen"),
    [
        *(("ENDPOINT", url, "'...'") for url in ("http//ann:QUITESECRET@host", "ann:QUITESECRET@host", "QUITESECRET")),
        ("ENDPOINT", "ftp://ann:QUITESECRET@host", "'ftp://host'"),
        ("TRACES_ENDPOINT", "ann:QUITESECRET@collector:4318", "'collector:4318'"),
    ],
)
def test_a_refused_endpoint_is_named_without_its_secrets(variable: str, url: str, seen: str) -> None:
    """Whatever is wrong with the address."""
    with pytest.raises(SettingsError) as raised:
        otlp({f"OTEL_EXPORTER_OTLP_{variable}": url})
    assert seen in str(raised.value)
    assert "QUITESECRET" not in str(raised.value)


@pytest.mark.parametrize("url", ["http//ann:QUITESECRET@host", "collector/ann:QUITESECRET@host"])
def test_a_refused_endpoint_of_grpc_is_named_without_its_secrets(url: str) -> None:
    """It would repeat the address whenever it cannot find it."""
    with pytest.raises(SettingsError, match=r"over gRPC must be an address or a URL, got '\.\.\.'") as raised:
        otlp({"OTEL_EXPORTER_OTLP_ENDPOINT": url, "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"})
    assert "QUITESECRET" not in str(raised.value)


PRESETS: dict[str, dict[str, str]] = {
    "langfuse": {"LANGFUSE_HOST": "%", "LANGFUSE_PUBLIC_KEY": "k", "LANGFUSE_SECRET_KEY": "k"},
    "phoenix": {"PHOENIX_COLLECTOR_ENDPOINT": "%"},
    "mlflow": {"MLFLOW_TRACKING_URI": "%", "MLFLOW_EXPERIMENT_ID": "1"},
    "otlp": {"OTEL_EXPORTER_OTLP_ENDPOINT": "%"},
    "opik": {"OPIK_URL_OVERRIDE": "%", "OPIK_API_KEY": "k"},
    "datadog": {"DD_SITE": "%", "DD_API_KEY": "k"},
}


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize(
    "url", ["http://ann:QUITESECRET@127.0.0.1:9", "http//ann:QUITESECRET@host", "http://127.0.0.1:9/QUITESECRET"]
)
def test_the_secrets_in_the_address_of_a_backend_are_shown_nowhere(
    url: str, preset: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Neither where it is refused, nor by log and doctor while it does not answer."""
    for name, value in PRESETS[preset].items():
        monkeypatch.setenv(name, value.replace("%", url))
    try:
        ragtrace.configure(exporter=preset)
    except SettingsError as error:
        shown = str(error)
    else:
        ask("where?")
        ragtrace.flush(0.5)
        shown = str(ragtrace.doctor(timeout=1.0))
        ragtrace.shutdown(0.1)
        assert "http://127.0.0.1:9" in shown
    assert "QUITESECRET" not in shown + caplog.text


@pytest.mark.parametrize("url", ["ftp://ann:QUITESECRET@host/x", "https://ann:QUITESECRET@ho st/x", "ann:QUITESECRET"])
def test_a_refused_address_of_a_notifier_is_named_without_its_secrets(url: str) -> None:
    """Users write passwords into the addresses of webhooks."""
    with pytest.raises(SettingsError, match="needs an http or https URL") as raised:
        Webhook(url)
    assert "QUITESECRET" not in str(raised.value)


@pytest.mark.parametrize("hidden", ["\u200f", "\u061c", "\u2028", "\u2029", "\U000e0041", "\u202e", "\x1b"])
def test_the_terminal_report_shows_no_character_that_turns_or_hides_text(hidden: str) -> None:
    """It shows a replacement character there; joiners that scripts are written with stay."""
    assert wording.replace_control_characters(f"a{hidden}b") == "a\ufffdb"
    assert (
        wording.replace_control_characters("\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645")
        == "\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645"
    )


@pytest.mark.parametrize("sink", [False, True])
def test_the_doctor_shows_no_escape_sequence_of_a_server(sink: bool) -> None:
    """Of a judge's server, or of a backend, which may be anybody's."""
    hostile = Answer(400, "\x1b[2J\u202e\u009b31mgone".encode())
    with Backend(lambda _: hostile) as server:
        scores = PhoenixScores(JsonClient(server.url, {})) if sink else None
        judge = ragtrace.OpenAIJudge("m", base_url=f"{server.url}/v1", api_key="k")
        ragtrace.configure(exporter=Signals(scores=scores), judge=judge, sampling=ragtrace.Sampling(rate=1.0))
        shown = ragtrace.doctor(timeout=5.0)
        ragtrace.shutdown(1.0)
    text = str(shown) + "".join(check.seen for check in shown.checks)
    assert "gone" in text
    assert not any(character in text for character in "\x1b\u202e\x9b")


def test_an_endpoint_with_a_password_is_never_shown(caplog: pytest.LogCaptureFixture) -> None:
    """Neither in an error of the settings nor in the log."""
    with pytest.raises(SettingsError) as wrong:
        otlp({"OTEL_EXPORTER_OTLP_ENDPOINT": "ann:secret@host:4318"})
    assert "secret" not in str(wrong.value)
    with HttpReceiver() as receiver:
        gone = receiver.endpoint.replace("http://", "http://ann:secret@")
    exporter = HttpSpanExporter(Endpoint("traces", f"{gone}/v1/traces", "http/protobuf", "", {}), 0.2, "none")
    assert exporter.export(_one_span()) is SpanExportResult.FAILURE
    exporter.shutdown()
    assert logged(caplog, "exporting spans failed")
    assert "secret" not in caplog.text


# --- redirects, outages ----------------------------------------------------------------------------------------------


def _one_span() -> tuple[Any, ...]:
    kept, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(kept))
    provider.get_tracer("test").start_span("a span").end()
    return kept.get_finished_spans()


def test_spans_do_not_follow_a_redirect(
    redirector: Redirector, http_receiver: HttpReceiver, caplog: pytest.LogCaptureFixture
) -> None:
    """The other server gets neither spans nor keys; the batch is lost and the log says what to configure."""
    exporter = HttpSpanExporter(
        Endpoint("traces", f"{redirector.url}/v1/traces", "http/protobuf", "", {"x-key": "k"}), 5.0, "none"
    )
    assert exporter.export(_one_span()) is SpanExportResult.FAILURE
    exporter.shutdown()
    assert (redirector.seen, len(http_receiver.requests)) == (["/v1/traces"], 0)
    assert "configure the final URL" in caplog.text


def test_metrics_and_events_do_not_follow_a_redirect(redirector: Redirector, http_receiver: HttpReceiver) -> None:
    """OpenTelemetry's own exporters are given a session that does not."""
    signals = otlp({"OTEL_EXPORTER_OTLP_ENDPOINT": redirector.url, "OTEL_EXPORTER_OTLP_TIMEOUT": "2"})
    ragtrace.configure(exporter=signals)
    ask("where?")
    ragtrace.flush()
    ragtrace.shutdown(timeout=5.0)
    assert {"/v1/traces", "/v1/metrics", "/v1/logs"} <= set(redirector.seen)
    assert not http_receiver.requests


def test_a_judge_does_not_follow_a_redirect(redirector: Redirector, http_receiver: HttpReceiver) -> None:
    """Questions and answers are for the configured server alone."""
    judge = ragtrace.OpenAIJudge("m", base_url=f"{redirector.url}/v1", api_key="k")
    found = ragtrace.score(query="where?", contexts=["Here."], answer="Here.", judge=judge, metrics=["faithfulness"])
    assert isinstance(found["faithfulness"], ragtrace.Unscored)
    assert set(redirector.seen) == {"/v1/chat/completions"}
    assert not http_receiver.requests


def test_an_outage_is_logged_once_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    """With the number of failures, and its end."""
    now = [0.0]
    failures = FailureLog("exporting spans", lambda: now[0])
    with caplog.at_level(logging.INFO):
        for second in range(120):
            now[0] = float(second)
            failures.failed("connection refused")
        failures.succeeded()
        failures.succeeded()
    assert logged(caplog) == [
        "exporting spans failed: connection refused",
        "exporting spans failed: connection refused (60 failures since the last message)",
        "exporting spans works again after 120 failures",
    ]


def test_an_exporter_that_goes_on_failing_is_one_line(caplog: pytest.LogCaptureFixture) -> None:
    """However many batches fail within the minute."""
    with HttpReceiver() as receiver:
        gone = receiver.endpoint
    exporter = HttpSpanExporter(Endpoint("traces", f"{gone}/v1/traces", "http/protobuf", "", {}), 0.2, "none")
    for _ in range(5):
        assert exporter.export(_one_span()) is SpanExportResult.FAILURE
    exporter.shutdown()
    assert len(logged(caplog)) == 1
