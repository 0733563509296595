"""What the standard variables make of the entry points `otlp` and `console`."""

from __future__ import annotations

import logging
import re
import subprocess
import sys
from collections.abc import Callable

import pytest
from opentelemetry._logs import LogRecord, SeverityNumber
from opentelemetry.sdk._logs import LoggerProvider
from opentelemetry.sdk._logs.export import SimpleLogRecordProcessor
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor

import ragtrace
from ragtrace.core.errors import JudgeError, SettingsError
from ragtrace.core.types import Signals
from ragtrace.system.installation import installed_exporters
from ragtrace.testing import FakeJudge
from ragtrace_exporters.console import console, console_full
from ragtrace_exporters.otlp import otlp
from tests.support.otlp import HttpReceiver, Receiver
from tests.support.watched import HALF, WAIT_S, ask

SIGNALS = ("traces", "metrics", "logs")


def _present(signals: Signals) -> set[str]:
    """The signals that would be sent."""
    parts = {"traces": signals.spans, "metrics": signals.metrics, "logs": signals.logs}
    return {name for name, part in parts.items() if part is not None}


def _send(signals: Signals) -> None:
    """One span, one count and one event through *signals*."""
    if signals.spans:
        tracing = TracerProvider()
        tracing.add_span_processor(SimpleSpanProcessor(signals.spans))
        tracing.get_tracer("test").start_span("a span", attributes={"key": "value"}).end()
        tracing.shutdown()
    if signals.metrics:
        metering = MeterProvider([signals.metrics])
        meter = metering.get_meter("test")
        meter.create_counter("a.count").add(3, {"key": "value"})
        meter.create_histogram("a.histogram").record(4)
        metering.shutdown()
    if signals.logs:
        logging = LoggerProvider()
        logging.add_log_record_processor(SimpleLogRecordProcessor(signals.logs))  # type: ignore[arg-type]
        record = LogRecord(event_name="an event", attributes={"key": "value"}, severity_number=SeverityNumber.INFO)
        logging.get_logger("test").emit(record)
        logging.shutdown()


def _close(signals: Signals) -> None:
    for part in (signals.spans, signals.logs):
        if part is not None:
            part.shutdown()  # type: ignore[attr-defined]
    if signals.metrics is not None:
        MeterProvider([signals.metrics]).shutdown()


def test_both_are_found_by_name() -> None:
    """`configure` finds the exporters as it finds a third party's."""
    assert {"otlp", "console"} <= {exporter.name for exporter in installed_exporters()}


def test_without_an_endpoint_nothing_is_sent() -> None:
    """An empty environment gives no exporter at all."""
    assert otlp({}) == Signals()


def test_an_empty_endpoint_is_no_endpoint() -> None:
    """The specification treats an empty variable as unset."""
    assert otlp({"OTEL_EXPORTER_OTLP_ENDPOINT": " "}) == Signals()


def test_the_sdk_switch_turns_everything_off() -> None:
    """OTEL_SDK_DISABLED wins over an endpoint."""
    assert otlp({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://localhost:4318", "OTEL_SDK_DISABLED": "True"}) == Signals()


def test_the_common_endpoint_gets_all_three_signals(receiver: Receiver) -> None:
    """Traces, metrics and logs arrive over either protocol."""
    _send(otlp(receiver.environ))
    receiver.wait_for(lambda got: got.spans and got.metrics and got.logs)
    assert [span.name for span in receiver.spans] == ["a span"]
    assert {metric.name for metric in receiver.metrics} == {"a.count", "a.histogram"}
    assert [record.event_name for record in receiver.logs] == ["an event"]


@pytest.mark.parametrize("signal", SIGNALS)
def test_an_endpoint_of_one_signal_sends_only_that(http_receiver: HttpReceiver, signal: str) -> None:
    """A signal's own endpoint is used as it is, and the others stay off."""
    signals = otlp({f"OTEL_EXPORTER_OTLP_{signal.upper()}_ENDPOINT": f"{http_receiver.endpoint}/v1/{signal}"})
    assert _present(signals) == {signal}
    _send(signals)
    assert [request.signal for request in http_receiver.requests] == [signal]


@pytest.mark.parametrize("signal", SIGNALS)
def test_a_signal_can_be_switched_off(http_receiver: HttpReceiver, signal: str) -> None:
    """OTEL_<SIGNAL>_EXPORTER=none takes one signal out."""
    signals = otlp(http_receiver.environ | {f"OTEL_{signal.upper()}_EXPORTER": "none"})
    _send(signals)
    assert _present(signals) == set(SIGNALS) - {signal}


def test_a_base_endpoint_may_have_a_path_and_a_slash(http_receiver: HttpReceiver) -> None:
    """The signal's path is appended with exactly one slash."""
    _send(otlp({"OTEL_EXPORTER_OTLP_ENDPOINT": http_receiver.endpoint + "/", "OTEL_METRICS_EXPORTER": "none"}))
    assert [request.signal for request in http_receiver.requests] == ["traces", "logs"]


def test_headers_are_sent_decoded(receiver: Receiver) -> None:
    """Common headers reach the backend with their values URL-decoded."""
    _send(otlp(receiver.environ | {"OTEL_EXPORTER_OTLP_HEADERS": "authorization=Basic%20abc,x-team=7"}))
    sent = [(request.headers["authorization"], request.headers["x-team"]) for request in receiver.requests]
    assert sent == [("Basic abc", "7")] * len(receiver.requests)
    assert len(sent) >= 3


@pytest.mark.parametrize("headers", ["", "authorization=Bearer%20other"])
def test_user_and_password_of_an_endpoint_are_basic_authorization(receiver: Receiver, headers: str) -> None:
    """By either protocol."""
    signals = otlp(
        {
            **receiver.environ,
            "OTEL_EXPORTER_OTLP_ENDPOINT": receiver.endpoint.replace("http://", "http://ann:qu%40ite@"),
            "OTEL_EXPORTER_OTLP_HEADERS": headers,
        }
    )
    _send(signals)
    assert {request.headers["authorization"] for request in receiver.requests} == {"Basic YW5uOnF1QGl0ZQ=="}
    assert {request.signal for request in receiver.requests} == set(SIGNALS)


@pytest.mark.parametrize("scheme", ["http://", "", "https://"])
@pytest.mark.parametrize("protocol", ["http/protobuf", "grpc"])
def test_the_password_of_an_endpoint_that_is_away_is_not_logged(
    protocol: str, scheme: str, caplog: pytest.LogCaptureFixture
) -> None:
    """By no library, at any level."""
    environ = {
        "OTEL_EXPORTER_OTLP_ENDPOINT": f"{scheme}ann:hushed@127.0.0.1:9",
        "OTEL_EXPORTER_OTLP_PROTOCOL": protocol,
        "OTEL_EXPORTER_OTLP_TIMEOUT": "0.3",
    }
    with caplog.at_level(logging.DEBUG):
        try:
            _send(otlp(environ))
        except SettingsError as error:
            caplog.records.append(logging.makeLogRecord({"msg": str(error)}))
    assert caplog.records
    assert "hushed" not in "".join(logging.Formatter().format(record) for record in caplog.records)


def test_headers_of_one_signal_replace_the_common_ones(http_receiver: HttpReceiver) -> None:
    """The more specific variable wins as a whole."""
    environ = {"OTEL_EXPORTER_OTLP_HEADERS": "x-who=all", "OTEL_EXPORTER_OTLP_LOGS_HEADERS": "x-who=logs"}
    _send(otlp(http_receiver.environ | environ))
    who = {request.signal: request.headers["x-who"] for request in http_receiver.requests}
    assert who == {"traces": "all", "metrics": "all", "logs": "logs"}


@pytest.mark.parametrize("compression", ["none", "gzip"])
def test_compression_is_honoured(receiver: Receiver, compression: str) -> None:
    """Every compression that the protocol knows arrives readable, `none` included."""
    _send(otlp(receiver.environ | {"OTEL_EXPORTER_OTLP_COMPRESSION": compression}))
    receiver.wait_for(lambda got: got.spans and got.metrics and got.logs)
    assert receiver.spans[0].attributes == {"key": "value"}


@pytest.mark.parametrize(
    ("environ", "message"),
    [
        (
            {"OTEL_EXPORTER_OTLP_PROTOCOL": "http/json"},
            r"'http/json' \(from OTEL_EXPORTER_OTLP_PROTOCOL\); write http/pro",
        ),
        ({"OTEL_EXPORTER_OTLP_LOGS_PROTOCOL": "udp"}, r"'udp' \(from OTEL_EXPORTER_OTLP_LOGS_PROTOCOL\)"),
        ({"OTEL_TRACES_EXPORTER": "zipkin"}, r"'zipkin' \(from OTEL_TRACES_EXPORTER\); write otlp or none"),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "collector:4318"}, r"must be a URL, got 'collector:4318'.*write http://coll"),
        (
            {"OTEL_EXPORTER_OTLP_TIMEOUT": "soon"},
            r"OTEL_EXPORTER_OTLP_TIMEOUT must be a positive .* seconds, got 'soon'",
        ),
        ({"OTEL_EXPORTER_OTLP_TIMEOUT": "-1"}, r"OTEL_EXPORTER_OTLP_TIMEOUT must be a positive number"),
        ({"OTEL_METRIC_EXPORT_INTERVAL": "1m"}, r"OTEL_METRIC_EXPORT_INTERVAL must .* milliseconds, got '1m'"),
        (
            {"OTEL_EXPORTER_OTLP_COMPRESSION": "brotli"},
            r"'brotli' \(from OTEL_EXPORTER_OTLP_COMPRESSION\); write none or",
        ),
        ({"OTEL_EXPORTER_OTLP_HEADERS": "secret-key"}, r"pairs, and one of those in OTEL_EXPORTER_OTLP_HEADERS is not"),
    ],
)
def test_a_bad_value_is_refused_with_what_to_write(environ: dict[str, str], message: str) -> None:
    """The error names the variable, the value seen and what to write instead."""
    with pytest.raises(SettingsError, match=message):
        otlp({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://localhost:4318"} | environ)


def test_a_key_in_bad_headers_is_not_repeated() -> None:
    """Headers hold credentials: an error about them does not print them."""
    with pytest.raises(SettingsError) as caught:
        otlp({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://localhost:4318", "OTEL_EXPORTER_OTLP_HEADERS": "secret-key"})
    assert "secret-key" not in str(caught.value)


def test_otlp_among_several_exporters_is_chosen(http_receiver: HttpReceiver) -> None:
    """A list shared with other instrumentation is fine as long as OTLP is in it."""
    signals = otlp(http_receiver.environ | {"OTEL_TRACES_EXPORTER": "console,otlp", "OTEL_METRICS_EXPORTER": "none"})
    assert _present(signals) == {"traces", "logs"}
    _close(signals)


@pytest.mark.parametrize(("protocol", "unwanted"), [("http/protobuf", "grpc"), ("grpc", "requests")])
def test_only_the_protocol_in_use_is_imported(protocol: str, unwanted: str) -> None:
    """HTTP never pays for grpc, nor gRPC for requests."""
    program = (
        "import sys\n"
        "from ragtrace_exporters.otlp import otlp\n"
        "environ = {'OTEL_EXPORTER_OTLP_ENDPOINT': 'http://127.0.0.1:9', 'OTEL_EXPORTER_OTLP_PROTOCOL': sys.argv[1],\n"
        "           'OTEL_METRICS_EXPORTER': 'none'}\n"
        "assert otlp(environ).spans is not None\n"
        "assert sys.argv[2] not in sys.modules, sys.argv[2]\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, protocol, unwanted], capture_output=True, text=True, timeout=240
    )
    assert done.returncode == 0, done.stderr


def test_the_console_prints_one_line_a_call(capsys: pytest.CaptureFixture[str]) -> None:
    """With time, workflow, status, headline scores, query, answer and trace id; no other span, event or metric."""
    ragtrace.configure(exporter=console({}), screen=FakeJudge(HALF, name="screen"))
    ask("where\nis\x1b[31m it? " + "x" * 60)
    assert ragtrace.flush()
    (line,) = capsys.readouterr().out.splitlines()
    assert re.fullmatch(
        r"\d\d:\d\d:\d\d guide: ok hallucinated=1 faithfulness=0\.5 consistency=0\.25 answered=1 "
        r'contexts=2 query="where is\\u001b\[31m it\? x+\.\.\." answer="[^"]+" trace=[0-9a-f]{32}',
        line,
    ), line


def _ask_llama_index(signals: Signals, **settings: str) -> None:
    """One streamed answer of a chat engine that OpenInference instruments, its spans exported through *signals*."""
    assert signals.spans is not None
    provider, kind = TracerProvider(shutdown_on_exit=False), "openinference.span.kind"
    provider.add_span_processor(ragtrace.HoldProcessor(SimpleSpanProcessor(signals.spans), evaluate=True))
    ragtrace.configure(
        telemetry=ragtrace.TelemetryOptions(tracer_provider=provider), screen=FakeJudge(HALF, name="screen"), **settings
    )  # type: ignore[arg-type]
    tracer = provider.get_tracer("openinference.instrumentation.llama_index")
    with tracer.start_as_current_span("ContextChatEngine.stream_chat") as root:
        root.set_attributes({kind: "CHAIN", "input.value": '{"message": "How tall is it?"}'})
        with tracer.start_as_current_span("Words.retrieve") as span:
            span.set_attributes({kind: "RETRIEVER", "retrieval.documents.0.document.content": "The tower: 330 m."})
        with tracer.start_as_current_span("OpenAI.stream_chat") as span:
            span.set_attributes({kind: "LLM", "llm.token_count.prompt": 7, "output.value": "330 metres."})
        root.set_attribute("output.value", '{"response": "", "response_gen": "<generator object>"}')
    assert ragtrace.flush()
    assert ragtrace.shutdown()
    provider.shutdown()


@pytest.mark.parametrize("exporter", [console, console_full])
def test_the_console_prints_no_text_that_drives_a_terminal_or_forges_a_line(
    exporter: Callable[..., Signals], capsys: pytest.CaptureFixture[str]
) -> None:
    """In names, questions and answers alike."""
    hostile = "a\x1b[2J\nspan   forged \u009b31m \u202e \u2028z"

    @ragtrace.trace(name=hostile)
    def answer(question: str) -> str:
        return question

    ragtrace.configure(exporter=exporter({}), screen=FakeJudge(HALF, name="screen"))
    answer(hostile)
    assert ragtrace.flush(WAIT_S)
    printed = capsys.readouterr().out
    assert "forged" in printed
    assert not any(character in printed for character in "\x1b\u009b\u202e\u2028")
    assert not any(line.startswith("span   forged") for line in printed.splitlines())


def test_the_console_shows_what_was_judged(capsys: pytest.CaptureFixture[str]) -> None:
    """Not the records, and the string form of a stream, that an instrumentation puts on the root span."""
    _ask_llama_index(console({}))
    (line,) = capsys.readouterr().out.splitlines()
    assert 'query="How tall is it?" answer="330 metres."' in line
    assert "response_gen" not in line


def test_the_console_shows_no_texts_where_none_may_be_shown(capsys: pytest.CaptureFixture[str]) -> None:
    """Nor those on the spans of another instrumentation."""
    _ask_llama_index(console({}), capture_content="NO_CONTENT")
    (line,) = capsys.readouterr().out.splitlines()
    assert "ContextChatEngine.stream_chat: ok" in line
    assert "query=" not in line
    assert "330" not in line


def test_the_console_says_that_an_answer_had_no_context(capsys: pytest.CaptureFixture[str]) -> None:
    """The plainest sign of a broken retriever stands on the line of the call; where all is as usual it does not."""
    ragtrace.configure(exporter=console({}))
    with ragtrace.call("where?", name="blind") as call:
        call.retrieved([])
        call.answered("In Paris, on the left bank.")
    with ragtrace.call("where?", name="sighted") as call:
        call.retrieved(["It is in Paris, on the left bank."])
        call.answered("In Paris, on the left bank.")
    assert ragtrace.flush()
    blind, sighted = capsys.readouterr().out.splitlines()
    assert "blind: ok answered=1 answered_without_context=1 unscored=no_contexts" in blind
    assert "answered_without_context" not in sighted


def test_an_empty_list_of_sources_in_the_answer_does_not_hide_what_was_retrieved(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """LlamaIndex's answers have one that is empty where the application retrieves by itself."""

    @ragtrace.retrieve
    def find(question: str) -> list[str]:
        return ["It is in Paris, on the left bank."] if "where" in question else []

    @ragtrace.trace
    def reply(question: str) -> dict[str, object]:
        if "guess" not in question:
            find(question)
        return {"answer": "It is in Paris.", "source_nodes": []}

    ragtrace.configure(exporter=console({}))
    for question in ("where?", "when?", "a guess?"):
        reply(question)
    assert ragtrace.flush()
    first, second, third = capsys.readouterr().out.splitlines()
    assert "consistency=1 answered=1 contexts=1 query" in first
    for line in (second, third):
        assert "answered_without_context=1 unscored=no_contexts contexts=0 query" in line


def test_the_console_says_why_a_call_is_unscored(capsys: pytest.CaptureFixture[str]) -> None:
    """No number is made up, and the reason stands on the line."""
    ragtrace.configure(exporter=console({}), screen=FakeJudge(JudgeError("refused"), name="screen"))
    ask("where?")
    assert ragtrace.flush()
    assert "guide: error unscored=refused contexts=2 query=" in capsys.readouterr().out


def test_the_console_prints_nothing_where_traces_are_off(capsys: pytest.CaptureFixture[str]) -> None:
    """As the standard variable says."""
    assert _present(console({"OTEL_TRACES_EXPORTER": "none"})) == set()


def test_the_full_console_prints_spans_events_and_metrics(capsys: pytest.CaptureFixture[str]) -> None:
    """Each item is a readable block on standard output."""
    signals = console_full({})
    _send(signals)
    printed = capsys.readouterr().out
    assert signals.immediate
    assert "span   a span" in printed
    assert "event  an event" in printed
    assert "metric a.count  3  key=value" in printed
    assert "metric a.histogram  n=1 mean=4" in printed
    assert printed.count("       key = value") == 2


def test_the_full_console_shortens_long_values_visibly(capsys: pytest.CaptureFixture[str]) -> None:
    """A long attribute is cut, and the block says by how much."""
    signals = console_full({"OTEL_METRICS_EXPORTER": "none", "OTEL_LOGS_EXPORTER": "none"})
    assert _present(signals) == {"traces"}
    tracing = TracerProvider()
    assert signals.spans is not None
    tracing.add_span_processor(SimpleSpanProcessor(signals.spans))
    tracing.get_tracer("test").start_span("a span", attributes={"text": "x" * 250}).end()
    assert f"text = {'x' * 200}... (50 more characters)" in capsys.readouterr().out
