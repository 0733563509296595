"""Settings: where each value comes from, and that a wrong one stops `configure` before anything is started."""

from __future__ import annotations

import inspect
import logging
import re
import threading
from collections.abc import Mapping
from typing import Any

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

import ragtrace
from ragtrace.core.settings import CONTENT_MODES, CONTENT_VARIABLE, Settings, resolve_settings
from ragtrace.core.types import Judgement
from ragtrace.runtime import current
from ragtrace.testing import Captured, FakeJudge
from tests.support.ids import readable
from tests.support.logged import logged
from tests.support.watched import GOOD, ask, watch


def test_a_keyword_beats_both_variables_and_the_default() -> None:
    """Keyword > RAGTRACE_* > OTEL_* > default."""
    environ = {"RAGTRACE_SERVICE": "ours", "OTEL_SERVICE_NAME": "theirs"}
    assert resolve_settings({"service": "keyword"}, environ).service == "keyword"
    assert resolve_settings({}, environ).service == "ours"
    assert resolve_settings({}, {"OTEL_SERVICE_NAME": "theirs"}).service == "theirs"
    assert resolve_settings({}, {}).service == ""


def test_settings_know_where_they_came_from() -> None:
    """From a keyword, from the variable that decided, or from nobody."""
    environ = {"RAGTRACE_CAPACITY": "7", "OTEL_SERVICE_NAME": "theirs", "OTEL_SDK_DISABLED": "true"}
    origins = resolve_settings({"evidence": True}, environ).origins
    assert set(origins) == set(Settings.__dataclass_fields__) - {"origins"}
    assert {name: origin for name, origin in origins.items() if origin != "default"} == {
        "evidence": "TelemetryOptions(evidence=)",
        "capacity": "RAGTRACE_CAPACITY",
        "service": "OTEL_SERVICE_NAME",
        "enabled": "OTEL_SDK_DISABLED",
    }


def test_our_variable_of_the_content_mode_beats_the_standard_one() -> None:
    """Both are read, ours first."""
    environ = {"RAGTRACE_CAPTURE_CONTENT": "NO_CONTENT", CONTENT_VARIABLE: "EVENT_ONLY"}
    assert resolve_settings({}, environ).capture_content == "NO_CONTENT"
    assert resolve_settings({}, {CONTENT_VARIABLE: "event_only"}).capture_content == "EVENT_ONLY"


@pytest.mark.parametrize(("word", "mode"), [("true", "SPAN_ONLY"), ("False", "NO_CONTENT")])
def test_the_content_variable_as_a_switch_is_understood(word: str, mode: str) -> None:
    """Older instrumentations read it as true or false."""
    assert resolve_settings({}, {CONTENT_VARIABLE: word}).capture_content == mode


@pytest.mark.parametrize(
    ("value", "version"),
    [
        ("gen_ai_latest_experimental", "latest"),
        ("http/dup, gen_ai_latest_experimental ,database", "latest"),
        ("gen_ai_latest_experimental/dup", "both"),
        ("gen_ai_latest_experimental,gen_ai_latest_experimental/dup", "both"),
        ("http,database/dup", "released"),
        ("gen_ai,GEN_AI_LATEST_EXPERIMENTAL", "released"),
        ("", "released"),
    ],
)
def test_the_names_of_the_genai_metrics_follow_the_stability_variable(value: str, version: str) -> None:
    """It is a list in which other conventions have their values; `/dup` asks for both versions and goes before."""
    settings = resolve_settings({}, {"OTEL_SEMCONV_STABILITY_OPT_IN": value})
    assert settings.genai_metrics == version
    origin = "default" if version == "released" else "OTEL_SEMCONV_STABILITY_OPT_IN"
    assert settings.origins["genai_metrics"] == origin


def test_an_empty_variable_is_an_unset_one() -> None:
    """As OpenTelemetry's specification says of all its variables."""
    environ = {"RAGTRACE_SERVICE": "", "RAGTRACE_CAPACITY": "", CONTENT_VARIABLE: "", "OTEL_SDK_DISABLED": ""}
    assert resolve_settings({}, environ) == resolve_settings({}, {})


def test_every_setting_has_a_variable_that_is_read() -> None:
    """A value that differs from the default arrives for each of them."""
    values = {
        "service": ("s", "s"),
        "enabled": ("false", False),
        "exporter": ("none", "none"),
        "metrics": (" faithfulness, answered ", ("faithfulness", "answered")),
        "dialects": ("otel,openinference", ("otel", "openinference")),
        "capture_content": ("span_and_event", "SPAN_AND_EVENT"),
        "evidence": ("yes", True),
        "hold_seconds": ("2.5", 2.5),
        "capacity": ("7", 7),
        "queue_bytes": ("1000000", 1_000_000),
        "judge_timeout": ("3", 3.0),
        "judge_concurrency": ("2", 2),
        "judge_turns": ("0", 0),
        "max_chars": ("100", 100),
        "sample_rate": ("0.25", 0.25),
        "spool": ("/tmp/calls.db", "/tmp/calls.db"),
        "store": ("/tmp/history.db", "/tmp/history.db"),
        "store_days": ("0.5", 0.5),
        "store_bytes": ("1000000", 1_000_000),
        "set_global": ("yes", True),
        "evaluate_spans": ("yes", True),
        "baseline": ("/tmp/baseline.json", "/tmp/baseline.json"),
        "baseline_calls": ("200", 200),
        "calibration": ("/tmp/calibration.json", "/tmp/calibration.json"),
        "trace_url": ("https://h/{trace_id}", "https://h/{trace_id}"),
        "canaries": ("/tmp/canaries.jsonl", "/tmp/canaries.jsonl"),
        "canary_interval": ("60", 60.0),
        "fleet": ("amqp://broker.test:5672//", "amqp://broker.test:5672//"),
    }
    assert set(values) == set(Settings.__dataclass_fields__) - {"origins", "genai_metrics"}
    settings = resolve_settings({}, {f"RAGTRACE_{name.upper()}": text for name, (text, _) in values.items()})
    assert {name: getattr(settings, name) for name in values} == {name: value for name, (_, value) in values.items()}


BAD_VALUES: list[tuple[dict[str, Any], dict[str, str], list[str]]] = [
    ({"metrics": ["faithfullness"]}, {}, ["'faithfullness'", "did you mean 'faithfulness'", "hallucination"]),
    ({}, {"RAGTRACE_METRICS": "faithfullness"}, ["'faithfullness'", "did you mean 'faithfulness'"]),
    ({"metrics": "faithfullness"}, {}, ["'faithfullness'", "did you mean 'faithfulness'"]),
    ({"metrics": [42]}, {}, ["metrics=", "42", "ragtrace.metrics.Metric"]),
    ({"exporter": "otpl"}, {}, ["no exporter named 'otpl'", "did you mean 'otlp'", "console"]),
    ({}, {"RAGTRACE_EXPORTER": "otpl"}, ["'otpl'", "RAGTRACE_EXPORTER", "did you mean 'otlp'"]),
    ({"exporter": 42}, {}, ["exporter=", "int", "exporter='otlp'"]),
    (
        {"telemetry": ragtrace.TelemetryOptions(dialects=["openinferrence"])},
        {},
        ["dialect", "dialects=", "did you mean 'openinference'"],
    ),
    ({"telemetry": ragtrace.TelemetryOptions(dialects=[])}, {}, ["dialects=", "at least one", "otel"]),
    ({}, {"RAGTRACE_DIALECTS": "otl"}, ["'otl'", "RAGTRACE_DIALECTS", "did you mean 'otel'"]),
    ({"capture_content": "SPANS"}, {}, ["'SPANS'", "capture_content=", *CONTENT_MODES]),
    ({}, {CONTENT_VARIABLE: "SPAN"}, ["'SPAN'", CONTENT_VARIABLE, "SPAN_ONLY"]),
    ({"capture_content": True}, {}, ["capture_content=", "True"]),
    ({"service": 42}, {}, ["service=", "42", "in quotes"]),
    ({"telemetry": ragtrace.TelemetryOptions(evidence="perhaps")}, {}, ["evidence=", "'perhaps'", "true or false"]),
    ({}, {"RAGTRACE_ENABLED": "maybe"}, ["RAGTRACE_ENABLED", "'maybe'", "true or false"]),
    ({"limits": ragtrace.Limits(hold_seconds=0)}, {}, ["hold_seconds=", "above 0", "10"]),
    ({}, {"RAGTRACE_HOLD_SECONDS": "ten"}, ["RAGTRACE_HOLD_SECONDS", "'ten'", "number"]),
    ({"limits": ragtrace.Limits(hold_seconds=float("nan"))}, {}, ["hold_seconds=", "finite", "nan"]),
    (
        {"judge": FakeJudge(Judgement(), limits=ragtrace.JudgeLimits(timeout=float("inf")))},
        {},
        ["JudgeLimits(timeout=", "finite"],
    ),
    (
        {"judge": FakeJudge(Judgement(), limits=ragtrace.JudgeLimits(timeout=True))},
        {},
        ["JudgeLimits(timeout=", "True"],
    ),
    ({"limits": {}}, {}, ["limits= must be a ragtrace.Limits", "dict"]),
    ({"limits": 0}, {}, ["limits= must be a ragtrace.Limits", "int"]),
    ({"telemetry": []}, {}, ["telemetry= must be a ragtrace.TelemetryOptions", "list"]),
    ({"sampling": {}}, {}, ["sampling= must be a ragtrace.Sampling", "dict"]),
    ({"redact": False}, {}, ["redact= must be a ragtrace.Redact", "bool"]),
    ({"metrics": {}}, {}, ["metrics=", "{}"]),
    ({"metrics": 0}, {}, ["metrics=", "0"]),
    ({"alerts": {}}, {}, ["alerts must be a list", "dict"]),
    ({"alerts": ""}, {}, ["alerts must be a list", "str"]),
    ({"store": {}}, {}, ["store=", "path"]),
    ({"baseline": False}, {}, ["baseline=", "path"]),
    ({"exporter": {}}, {}, ["exporter=", "dict"]),
    ({"exporter": ""}, {}, ["exporter="]),
    ({"judge": ""}, {}, ["judge= must be a judge"]),
    ({"screen": False}, {}, ["screen= must be", "bool"]),
    ({"limits": ragtrace.Limits(capacity=0)}, {}, ["capacity=", "at least 1"]),
    ({"limits": ragtrace.Limits(capacity=1.5)}, {}, ["capacity=", "whole number", "1.5"]),
    ({}, {"RAGTRACE_JUDGE_CONCURRENCY": "-1"}, ["RAGTRACE_JUDGE_CONCURRENCY", "'-1'"]),
    (
        {"judge": FakeJudge(Judgement(), limits=ragtrace.JudgeLimits(turns=-1))},
        {},
        ["JudgeLimits(turns=", "at least 0", "-1"],
    ),
    (
        {"judge": FakeJudge(Judgement(), limits=ragtrace.JudgeLimits(turns=2.5))},
        {},
        ["JudgeLimits(turns=", "whole number", "2.5"],
    ),
    ({"judge": FakeJudge(Judgement(), limits=ragtrace.JudgeLimits(turns=True))}, {}, ["JudgeLimits(turns=", "True"]),
    ({}, {"RAGTRACE_JUDGE_TURNS": "six"}, ["RAGTRACE_JUDGE_TURNS", "'six'", "number"]),
    ({"limits": ragtrace.Limits(max_chars="many")}, {}, ["max_chars=", "'many'"]),
    ({"limits": ragtrace.Limits(spool=42)}, {}, ["spool=", "path", "42"]),
    (
        {"judge": "gpt-4o-mini"},
        {},
        ["judge=", "the text 'gpt-4o-mini'", "write judge=ragtrace.OpenAIJudge('gpt-4o-mini')"],
    ),
    ({"screen": object()}, {}, ["screen=", "ragtrace.Judge", "object"]),
    ({"screen": FakeJudge}, {}, ["screen=", "the class FakeJudge", "FakeJudge("]),
    ({"redact": [r"\d+"]}, {}, ["redact=", "ragtrace.Redact", "list"]),
    ({"sampling": 0.05}, {}, ["sampling=", "ragtrace.Sampling", "0.05"]),
    ({"limits": 5}, {}, ["limits=", "ragtrace.Limits", "5"]),
    ({"judge": FakeJudge(GOOD, limits=30)}, {}, ["limits of a judge", "JudgeLimits", "int", "FakeJudge.limits"]),
    ({"alerts": [ragtrace.Canaries("a"), ragtrace.Canaries("b")]}, {}, ["2 Canaries", "one file"]),
    ({"telemetry": ragtrace.TelemetryOptions(tracer_provider=42)}, {}, ["tracer_provider=", "int", "get_tracer"]),
    ({"telemetry": ragtrace.TelemetryOptions(meter_provider="mine")}, {}, ["meter_provider=", "str", "get_meter"]),
    (
        {"telemetry": ragtrace.TelemetryOptions(logger_provider=object())},
        {},
        ["logger_provider=", "object", "get_logger"],
    ),
]


@pytest.mark.parametrize(("keywords", "environ", "said"), BAD_VALUES, ids=readable)
def test_a_bad_value_stops_configure_and_starts_nothing(
    keywords: dict[str, Any], environ: Mapping[str, str], said: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The message says what was wrong, where it came from and what to write; the runtime is the old one."""
    for name, text in environ.items():
        monkeypatch.setenv(name, text)
    before, threads = current(), set(threading.enumerate())
    with pytest.raises(ragtrace.SettingsError) as caught:
        ragtrace.configure(**keywords)
    assert [part for part in said if part not in str(caught.value)] == [], str(caught.value)
    assert current() is before
    assert set(threading.enumerate()) <= threads  # those of earlier tests may have ended


def test_a_failed_configure_leaves_the_running_one_at_work() -> None:
    """A typo in a reload costs nothing that already works."""
    captured = watch()
    with pytest.raises(ragtrace.SettingsError):
        ragtrace.configure(metrics=["nope"])
    ask("where?")
    assert ragtrace.flush()
    assert captured.root().name == "invoke_workflow guide"


@pytest.mark.parametrize("given", [50, 5.0, "50"])
def test_a_rate_in_per_cent_is_answered_with_the_right_one(given: float | str) -> None:
    """The most common mistake gets the most direct answer."""
    with pytest.raises(
        ragtrace.SettingsError, match=r"rate must be between 0 and 1.*(for 50% write 0\.5|for 5% write)"
    ):
        ragtrace.Sampling(rate=given)  # type: ignore[arg-type]


def test_exporter_and_tracer_provider_exclude_each_other() -> None:
    """The message shows how to put the exporter into the provider."""
    with pytest.raises(ragtrace.SettingsError, match=r"exporter= and tracer_provider=.*HoldProcessor\(BatchSpan"):
        ragtrace.configure(
            exporter=InMemorySpanExporter(),
            telemetry=ragtrace.TelemetryOptions(tracer_provider=TracerProvider(shutdown_on_exit=False)),
        )


def test_a_metric_that_nobody_offers_is_refused() -> None:
    """Says which and what would help."""
    judge = FakeJudge(Judgement(), metrics=["answered"])
    expected = (
        r"'faithfulness' is offered by neither the screen nor the judge\. faithfulness comes with "
        r'judge=ragtrace\.OpenAIJudge\("gpt-4o-mini"\), and with .*extractive=True.*Offered now: answered$'
    )
    with pytest.raises(ragtrace.SettingsError, match=expected):
        ragtrace.configure(screen=judge, metrics=["faithfulness"])


def test_a_judge_that_would_never_be_asked_is_refused() -> None:
    """Its metrics are not among those asked for, which the screen computes; without metrics= it has those it offers."""
    judge = FakeJudge(Judgement(), name="judge", metrics=["answered"])
    expected = r"'judge' computes none of the metrics that are asked for, consistency, .*Offered now: .*answered"
    with pytest.raises(ragtrace.SettingsError, match=expected):
        ragtrace.configure(exporter="none", judge=judge, metrics=["consistency"])
    ragtrace.configure(exporter="none", judge=judge)


def test_a_judge_that_lacks_a_metric_is_told_by_name() -> None:
    """Without tracing, too."""
    judge = FakeJudge(Judgement(), metrics=["answered"])
    with pytest.raises(ragtrace.SettingsError, match=r"does not offer faithfulness\. .*OpenAIJudge.*offers: answered$"):
        ragtrace.score(answer="It is.", judge=judge, metrics=["faithfulness"])


class Offers:
    """A judge that offers whatever reads a label, and notes what it is asked for."""

    id, version, type = "all", "1", "llm_judge"

    def offers(self, metric: ragtrace.metrics.Metric) -> bool:
        return bool(metric.needs)

    def judge(self, call: ragtrace.RagCall) -> Judgement:
        return Judgement()


_SHOWN = {
    "hallucinated", "faithfulness", "answer_relevancy", "context_relevance", "answered", "answered_without_context",
    "consistency",
}  # fmt: skip


def test_the_usual_metrics_are_few() -> None:
    """Where none are named, a judge that offers all of them gives those that a list of traces has room for."""
    captured = watch(screen=Offers())
    ask("where?")
    assert ragtrace.flush()
    assert names_of(captured) - {"suspicious"} == _SHOWN
    assert set(ragtrace.score(answer="It is.", judge=Offers())) - {"suspicious"} == _SHOWN


@pytest.mark.parametrize("metrics", ["all", ["all"], ["all", "nugget_all"]])
def test_all_metrics_are_every_one_without_calls_of_its_own(metrics: str | list[str]) -> None:
    """Beside those that are named."""
    captured = watch(screen=Offers(), metrics=metrics)
    ask("where?")
    assert ragtrace.flush()
    found = names_of(captured)
    assert found > {*_SHOWN, "hallucination", "contradiction", "umbrela", "citation_f1", "duration_s"}
    assert ("nugget_all" in found) is ("nugget_all" in metrics)
    assert "completeness" not in found


def test_what_an_alert_watches_is_computed() -> None:
    """It need not be named twice."""
    captured = watch(screen=Offers(), alerts=[ragtrace.Alert("contradiction", above=0.5)])
    ask("where?")
    assert ragtrace.flush()
    assert "contradiction" in names_of(captured)


def names_of(captured: ragtrace.testing.Captured) -> set[str]:
    """The metrics that there are events of."""
    return {str((event.log_record.attributes or {})["gen_ai.evaluation.name"]) for event in captured.events}


def test_screen_and_judge_must_have_different_ids() -> None:
    """Their accounts and events are told apart by the id alone."""
    with pytest.raises(ragtrace.SettingsError, match=r"screen= and judge= .*'fake'"):
        ragtrace.configure(screen=FakeJudge(Judgement()), judge=FakeJudge(Judgement()))


def test_an_unknown_variable_of_ours_is_warned_of(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A typo in a variable's name must not pass silently."""
    monkeypatch.setenv("RAGTRACE_CAPASITY", "7")
    watch()
    assert logged(caplog) == [
        "environment variable RAGTRACE_CAPASITY means nothing to ragtrace; did you mean RAGTRACE_CAPACITY?"
    ]


def test_a_variable_that_only_workers_read_is_known(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Nobody is sent to a variable with a like name, which means something else."""
    monkeypatch.setenv("RAGTRACE_FLEET_STORE", "redis://redis:6379/0")
    watch()
    assert logged(caplog) == []


@pytest.mark.parametrize(
    ("keywords", "environ"),
    [({"enabled": False}, {}), ({}, {"OTEL_SDK_DISABLED": "true"}), ({}, {"RAGTRACE_ENABLED": "0"})],
)
def test_switched_off_functions_run_as_if_undecorated(
    keywords: dict[str, Any],
    environ: Mapping[str, str],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """No span, no thread, no word in the log."""
    for name, text in environ.items():
        monkeypatch.setenv(name, text)
    threads = set(threading.enumerate())
    with caplog.at_level(logging.DEBUG, "ragtrace"):
        captured = watch(**keywords)
        assert ask("where?").startswith("Paris")
        with ragtrace.call("by hand") as call:
            call.answered("yes")
        assert ragtrace.flush()
    assert captured.spans == ()
    assert ragtrace.stats().offered == 0
    assert set(threading.enumerate()) <= threads  # those of earlier tests may have ended
    assert logged(caplog) == []


def test_no_endpoint_means_no_export_and_no_complaint(caplog: pytest.LogCaptureFixture) -> None:
    """`configure()` alone works on any machine: calls are scored and nothing is sent."""
    ragtrace.configure(service="alone")
    ask("where?")
    assert ragtrace.flush()
    assert ragtrace.stats().scored == 1
    assert logged(caplog) == []


def test_a_metric_object_can_be_given_beside_names() -> None:
    """A user's own metric needs no registration."""

    class Short:
        name, version, higher_is_better, range = "short", "1", True, (0.0, 1.0)
        needs: frozenset[str] = frozenset()

        def __call__(self, call: ragtrace.RagCall, judgement: Judgement) -> ragtrace.Score:
            return ragtrace.Score(float(len(call.answer or "") < 100))

    captured = Captured()
    ragtrace.configure(exporter=captured.signals, screen=FakeJudge(Judgement()), metrics=[Short()])
    ask("where?")
    assert ragtrace.flush()
    assert (captured.root().attributes or {})["ragtrace.eval.short.score"] == 1.0


def test_the_sample_rate_can_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is the rate of the default sampling; one given in code goes before it."""
    judge = FakeJudge(Judgement(answer_label="answered"), metrics=["answered"])
    monkeypatch.setenv("RAGTRACE_SAMPLE_RATE", "1.0")
    ragtrace.configure(screen=None, judge=judge, exporter=Captured().signals)
    ask("sampled?")
    assert ragtrace.flush()
    assert len(judge.calls) == 1
    ragtrace.configure(screen=None, judge=judge, exporter=Captured().signals, sampling=ragtrace.Sampling(rate=0.0))
    ask("not sampled?")
    assert ragtrace.flush()
    assert len(judge.calls) == 1


def test_a_percentage_for_a_rate_is_answered_with_the_rate(monkeypatch: pytest.MonkeyPatch) -> None:
    """The message names the variable and what to write instead."""
    monkeypatch.setenv("RAGTRACE_SAMPLE_RATE", "50")
    with pytest.raises(ragtrace.SettingsError, match=r"got '50' \(from RAGTRACE_SAMPLE_RATE\); for 50% write 0\.5"):
        ragtrace.configure()


@pytest.mark.parametrize(("written", "meant"), [("servce", "service"), ("metric", "metrics"), ("smapling", "sampling")])
def test_a_misspelled_argument_is_answered_with_the_argument_that_was_meant(written: str, meant: str) -> None:
    """It is the TypeError of any function, with the hint that names of exporters and metrics have."""
    with pytest.raises(TypeError, match=rf"unexpected keyword argument '{written}'; did you mean '{meant}'\? known: "):
        ragtrace.configure(**{written: "x"})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("written", "instead"),
    [
        ("capacity", "limits=ragtrace.Limits(capacity=...)"),
        ("store_days", "store=ragtrace.History(days=...)"),
        ("days", "store=ragtrace.History(days=...)"),
        ("canaries", "alerts=[ragtrace.Canaries(path=...)]"),
        ("judge_timeout", "limits=ragtrace.JudgeLimits(timeout=...) where the judge is made"),
        ("set_global", "telemetry=ragtrace.TelemetryOptions(set_global=...)"),
    ],
)
def test_an_option_as_an_argument_is_answered_with_its_object(written: str, instead: str) -> None:
    """By the name of the option and by that of its environment variable."""
    with pytest.raises(TypeError, match=re.escape(f"unexpected keyword argument '{written}'; write {instead}")):
        ragtrace.configure(**{written: "x"})  # type: ignore[arg-type]


def test_a_misspelled_option_is_answered_with_the_option_that_was_meant() -> None:
    """As an argument of `configure`."""
    with pytest.raises(
        TypeError, match=r"Limits\(\) got an unexpected keyword argument 'capcity'; did you mean 'capac"
    ):
        ragtrace.Limits(capcity=3)  # type: ignore[call-arg]


def test_a_judge_has_limits_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """They go before the variable, for the screen and the judge apart; what they leave out is as it would be."""
    monkeypatch.setenv("RAGTRACE_JUDGE_TIMEOUT", "7")
    monkeypatch.setenv("RAGTRACE_JUDGE_TURNS", "1")
    screen = FakeJudge(GOOD, name="screen", limits=ragtrace.JudgeLimits(timeout=3))
    watch(screen=screen, judge=FakeJudge(GOOD, name="judge", limits=ragtrace.JudgeLimits(turns=2)))
    runtime = current()
    assert runtime is not None
    found = {each.id: (each.timeout, each.judge_turns) for each in runtime.evaluators if each and each.id != "ragtrace"}
    assert found == {"screen": (3.0, 1), "judge": (7.0, 2)}


def test_the_signature_of_configure_names_every_argument() -> None:
    """Editors, `help` and checkers of types see the 17 arguments by name, and that features have some of their own."""
    *parameters, options = inspect.signature(ragtrace.configure).parameters.values()
    assert parameters[0].name == "service"
    assert len(parameters) == 17
    assert {parameter.kind for parameter in parameters} == {inspect.Parameter.KEYWORD_ONLY}
    assert (options.name, options.kind) == ("options", inspect.Parameter.VAR_KEYWORD)
    assert str(inspect.signature(ragtrace.configure)).endswith(" -> 'None'")
