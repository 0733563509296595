"""The functions that start, question and stop ragtrace, and the one that scores without it."""

from __future__ import annotations

import asyncio
import inspect
import os
import threading
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final, cast

from ragtrace.capture import documents, mark_duplicates
from ragtrace.errors import SettingsError, faults
from ragtrace.judges.stopwatch import Stopwatch
from ragtrace.ledger import Stats
from ragtrace.metrics import registry
from ragtrace.model import Judge, Metric, RagCall, Result
from ragtrace.providers import build
from ragtrace.redact import Redact
from ragtrace.runtime.engine import Runtime
from ragtrace.runtime.slot import current, final_stats, install
from ragtrace.sampling import Sampling, heeded, warn_of_unheeded
from ragtrace.scoring import Evaluator, Evaluators, evaluate
from ragtrace.settings import Settings, resolve

if TYPE_CHECKING:
    from opentelemetry._logs import LoggerProvider
    from opentelemetry.metrics import MeterProvider
    from opentelemetry.sdk.trace.export import SpanExporter
    from opentelemetry.trace import TracerProvider

    from ragtrace.model import Signals


class _Default:
    """Stands for "the embedded judge": None means "no screen"."""


DEFAULT_SCREEN: Final = _Default()
_RECONFIGURE_SECONDS = 5.0
_ADVICE: Final[Mapping[str, str]] = {
    "screen": "write screen=ragtrace.EmbeddedJudge(), or None for no screen",
    "judge": "write an object with id, version, type, offers() and an async judge(), or None for no judge",
    "sampling": "write for instance sampling=ragtrace.Sampling(rate=0.05)",
    "redact": "write for instance redact=ragtrace.Redact(patterns=[...])",
}


def configure(
    *,
    service: str | None = None,
    exporter: str | SpanExporter | Signals | None = None,
    screen: Judge | _Default | None = DEFAULT_SCREEN,
    judge: Judge | None = None,
    metrics: Sequence[str | Metric] | None = None,
    sampling: Sampling | None = None,
    redact: Redact | None = None,
    dialects: Sequence[str] | None = None,
    capture_content: str | None = None,
    evidence: bool | None = None,
    hold_seconds: float | None = None,
    capacity: int | None = None,
    judge_timeout: float | None = None,
    judge_concurrency: int | None = None,
    max_chars: int | None = None,
    enabled: bool | None = None,
    tracer_provider: TracerProvider | None = None,
    meter_provider: MeterProvider | None = None,
    logger_provider: LoggerProvider | None = None,
) -> None:
    """Start ragtrace in this process. Called again, it finishes what is under way and starts anew.

    Every argument has an environment variable (`RAGTRACE_` and its name in capitals) or a default.

    Args:
        service: name of the application; else `OTEL_SERVICE_NAME`.
        exporter: where telemetry goes: "otlp" (default; the standard `OTEL_EXPORTER_OTLP_*` variables say where, and
            without an endpoint nothing is sent), "console", "none", the name of an installed exporter, an OpenTelemetry
            `SpanExporter`, or `Signals`. An exporter given here gets providers of its own; otherwise the providers that
            the process already has are used.
        screen: a cheap judge that sees every call; default `EmbeddedJudge()`; None: off.
        judge: a judge that sees a sample of the calls; default: none.
        metrics: names or `Metric` objects; default: all that screen and judge offer.
        sampling: how often the judge looks; default `Sampling()`, with `RAGTRACE_SAMPLE_RATE` as its rate.
        redact: what to take out of texts before anything else sees them; default: nothing but over-long texts.
        dialects: attribute conventions of the spans: "otel" (default), "openinference", or both.
        capture_content: NO_CONTENT, SPAN_ONLY (default), EVENT_ONLY or SPAN_AND_EVENT; also read from
            `OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT`. Scoring works in every mode.
        evidence: put the unsupported claims on the root span too; default False.
        hold_seconds: the longest time a root span waits for its scores; default 10.
        capacity: finished calls that may wait to be scored; more are counted as dropped. Default 2048.
        judge_timeout: seconds the judge (or a screen that does more than compute) has for a call, waiting and
            retries included; default 30.
        judge_concurrency: calls the judge (or such a screen) sees at a time; default 16.
        max_chars: characters of any one text that are kept, if `redact` is not given; default 20,000.
        enabled: False: decorated functions run as if undecorated. Also off with `OTEL_SDK_DISABLED=true`.
        tracer_provider: your own provider; wrap its exporting processor in `HoldProcessor` to get scores on spans.
        meter_provider: your own provider of metrics.
        logger_provider: your own provider of logs, which carries the evaluation events.

    Raises:
        SettingsError: a value is wrong; says which, where it came from and what to write instead. Nothing is started.
    """
    scalars = {
        "service": service, "exporter": exporter if isinstance(exporter, str) else None,
        "metrics": _metric_names(metrics),
        "dialects": dialects, "capture_content": capture_content, "evidence": evidence, "hold_seconds": hold_seconds,
        "capacity": capacity, "judge_timeout": judge_timeout, "judge_concurrency": judge_concurrency,
        "max_chars": max_chars, "enabled": enabled,
    }  # fmt: skip
    settings = resolve(scalars, os.environ)
    _check_type("judge", judge, Judge)
    _check_type("sampling", sampling, Sampling)
    sampling = sampling or Sampling(rate=settings.sample_rate)
    _check_type("redact", redact, Redact)
    _check_provider("tracer_provider", tracer_provider, "get_tracer")
    _check_provider("meter_provider", meter_provider, "get_meter")
    _check_provider("logger_provider", logger_provider, "get_logger")
    screen = _embedded() if isinstance(screen, _Default) else screen
    _check_type("screen", screen, Judge)
    extra = [metric for metric in metrics or () if not isinstance(metric, str)]
    wanted_by_sampling = () if judge is None else heeded(sampling)
    evaluators = _evaluators(settings, screen, judge, extra, wanted_by_sampling)
    screened = () if evaluators.screen is None else evaluators.screen.metrics
    warn_of_unheeded(wanted_by_sampling, [metric.name for metric in screened])
    if not settings.enabled:
        install(None, _RECONFIGURE_SECONDS, off=True)
        return
    telemetry = build(
        settings,
        exporter,
        tracer_provider=tracer_provider,
        meter_provider=meter_provider,
        logger_provider=logger_provider,
    )
    redact = redact or Redact(max_chars=settings.max_chars)
    install(Runtime(settings, telemetry, evaluators, sampling=sampling, redact=redact), _RECONFIGURE_SECONDS)


def flush(timeout: float = 5.0) -> bool:
    """Score and export every call that has finished, within *timeout* seconds.

    Returns:
        True if all of it was scored and exported; True as well if ragtrace is not configured.
    """
    runtime = current()
    return True if runtime is None else runtime.flush(timeout)


def stats() -> Stats:
    """What became of every call offered to an evaluator since `configure`, and of our own failures.

    After `shutdown` these are the closed accounts, with what was lost, until `configure` is called again.
    """
    runtime = current()
    return (final_stats() or Stats({}, faults.counts())) if runtime is None else runtime.stats()


def shutdown(timeout: float = 10.0) -> bool:
    """Finish what is under way within *timeout* seconds and stop; what is lost is counted and logged.

    Returns:
        True if everything was scored and exported.
    """
    return install(None, timeout)


def score(
    *,
    answer: str | None,
    contexts: object = None,
    query: str | None = None,
    reference: str | None = None,
    metrics: Sequence[str | Metric] | None = None,
    judge: Judge | None = None,
) -> Mapping[str, Result]:
    """Score one call here and now, without tracing: in a test, a notebook, an offline run.

    Args:
        answer: what the application answered.
        contexts: what it retrieved, in anything `@retrieve` understands; None: unknown, [] : nothing was found.
        query: what it was asked.
        reference: the right answer, for metrics that need one.
        metrics: names or `Metric` objects; default: all that the judge offers.
        judge: default `EmbeddedJudge()`.

    Returns:
        For each metric a `Score`, or an `Unscored` that says why there is none.

    Raises:
        UnknownMetricError: no metric has that name.
        SettingsError: the judge does not offer that metric, or the contexts cannot be understood.
    """
    _check_type("judge", judge, Judge)
    found = documents(contexts)
    if found is None and contexts is not None:
        raise SettingsError(
            f"contexts= cannot be read, got {type(contexts).__name__}; pass a list of strings or of documents"
        )
    call = RagCall(
        query=query, contexts=None if found is None else mark_duplicates(found), answer=answer, reference=reference
    )
    chosen = judge or _embedded()
    evaluator = Evaluator(chosen, _offered(chosen, _wanted(metrics), "judge="))
    return _run(evaluator, call)


def _run(evaluator: Evaluator, call: RagCall) -> Mapping[str, Result]:
    """Run the evaluation on a thread of its own: a notebook's thread has an event loop that is already running."""
    results: list[Mapping[str, Result]] = []

    def run() -> None:
        results.append(asyncio.run(evaluate(evaluator, call)).results)

    thread = threading.Thread(target=run, name="ragtrace-score")
    thread.start()
    thread.join()
    return results[0]


def _embedded() -> Judge:
    from ragtrace.judges import EmbeddedJudge

    return EmbeddedJudge()


def _check_type(name: str, value: object, kind: type) -> None:
    if value is None:
        return
    if inspect.isclass(value):
        raise SettingsError(f"{name}= got the class {value.__name__}; make one of it: {name}={value.__name__}(...)")
    if not isinstance(value, kind):
        raise SettingsError(
            f"{name}= must be a ragtrace.{kind.__name__}, got {type(value).__name__}: {value!r}; {_ADVICE[name]}"
        )


def _check_provider(name: str, value: object, method: str) -> None:
    if value is not None and not callable(getattr(value, method, None)):
        raise SettingsError(
            f"{name}= must be an OpenTelemetry provider, which has a {method}(), got {type(value).__name__}; "
            "leave it out to use the provider of the process, or one of our own"
        )


def _metric_names(metrics: object) -> object:
    """The names of *metrics*, where it is a list; else itself, for the settings to judge."""
    if isinstance(metrics, str) or not isinstance(metrics, Sequence):
        return metrics
    return [_metric_name(metric) for metric in cast("Sequence[object]", metrics)]


def _metric_name(metric: object) -> str:
    if isinstance(metric, str):
        return metric
    if isinstance(metric, Metric) and not inspect.isclass(metric):
        return metric.name
    raise SettingsError(
        f"metrics= must hold names or ragtrace.Metric objects, got {metric!r}; "
        "write for instance ['faithfulness', 'hallucination']"
    )


def _wanted(metrics: Sequence[str | Metric] | None) -> tuple[Metric, ...] | None:
    if metrics is None:
        return None
    given = [metrics] if isinstance(metrics, str) else metrics
    by_name = {_metric_name(metric): metric for metric in given}
    return tuple(registry.get(name) if isinstance(metric, str) else metric for name, metric in by_name.items())


def _offered(judge: Judge, wanted: tuple[Metric, ...] | None, origin: str) -> tuple[Metric, ...]:
    """The wanted metrics that *judge* offers, or all it offers.

    Raises:
        SettingsError: if it offers none of them.
    """
    if wanted is None:
        return tuple(metric for metric in registry.all() if metric.needs and judge.offers(metric))
    lacking = [metric.name for metric in wanted if not judge.offers(metric)]
    if lacking:
        offered = ", ".join(metric.name for metric in registry.all() if judge.offers(metric))
        raise SettingsError(
            f"judge {judge.id!r} (from {origin}) does not offer {', '.join(lacking)}; it offers: {offered}"
        )
    return wanted


def _evaluators(
    settings: Settings, screen: Judge | None, judge: Judge | None, extra: Sequence[Metric], heeded: Sequence[str]
) -> Evaluators:
    """Give every wanted metric to whoever offers it (stopwatch, screen, judge), and the screen what sampling heeds.

    Raises:
        UnknownMetricError: no metric has that name.
        SettingsError: nobody offers a wanted metric, or screen and judge cannot be told apart.
    """
    if screen is not None and judge is not None and screen.id == judge.id:
        raise SettingsError(
            f"screen= and judge= have the same id, {screen.id!r}, by which their accounts and events are told apart; "
            "give one of them another id"
        )
    by_name = {metric.name: metric for metric in extra}
    wanted = None
    if settings.metrics is not None:
        wanted = tuple(by_name.get(name) or registry.get(name) for name in settings.metrics)
    chosen: list[Evaluator | None] = []
    for candidate, more in ((Stopwatch(), ()), (screen, heeded), (judge, ())):
        offered = () if candidate is None else _those_offered(candidate, wanted, more)
        chosen.append(_evaluator(settings, candidate, offered) if candidate is not None and offered else None)
    covered = {metric.name for evaluator in chosen if evaluator for metric in evaluator.metrics}
    for metric in wanted or ():
        if metric.name not in covered:
            raise SettingsError(
                f"metric {metric.name!r} is offered by neither the screen nor the judge; configure a judge that offers "
                f"it, or leave it out. Offered now: {', '.join(sorted(covered)) or 'none'}"
            )
    return Evaluators(*chosen)


def _evaluator(settings: Settings, judge: Judge, metrics: tuple[Metric, ...]) -> Evaluator:
    return Evaluator(judge, metrics, settings.judge_timeout, concurrency=settings.judge_concurrency)


def _those_offered(judge: Judge, wanted: tuple[Metric, ...] | None, more: Sequence[str]) -> tuple[Metric, ...]:
    candidates = tuple(metric for metric in registry.all() if metric.needs) if wanted is None else wanted
    names = {metric.name for metric in candidates}
    candidates += tuple(registry.get(name) for name in more if name not in names)
    # A metric that reads no label is nobody's but the stopwatch's, also where a judge claims to offer all.
    measures = isinstance(judge, Stopwatch)
    return tuple(metric for metric in candidates if judge.offers(metric) and bool(metric.needs) is not measures)
