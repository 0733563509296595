"""The function that starts ragtrace: `configure`.

It stands first; then come its steps, each with what it uses, in the order in which they run:

| Step | Makes | If it fails |
|---|---|---|
| 0. compare | nothing, where all is as it is in force (`in_force.py`) | |
| 1. read and check | a `_Configuration` | nothing was changed |
| 2. build | a `_Built`: the telemetry, and a runtime that is not started | what was built is ended |
| 3. commit | the runtime that is in force | the former runtime takes its hooks back; what was built is ended |

**Invariants.** A `configure` that raises has changed nothing: `tests/unit/runtime/test_configure.py` has a case for
each way to fail (`REFUSED`). Only the exception of a signal handler, while the former runtime is shut down, leaves it
with the new configuration in force (`test_an_interrupt_leaves_the_new_configuration_in_force` there). What cannot be
undone comes last: `_Built.connect`, and after it only what cannot fail. Forked children build their runtimes of
`RuntimeFactory` alone, so that it must have what they need (`tests/process/test_forked_runtimes.py`).

**Threads.** There is no lock here: `current_runtime.install` has the one under which runtimes are exchanged.
`configure` is for one thread at a time, since a failed commit starts the runtime again that it found.

**How to change it.** A new setting is a parameter of `configure` and an entry of `given`, or a field of an option
class: `README.md` of the folder `core`. What checks it belongs to step 1, and what takes over a hook of the
process to `Runtime.start`. If it names a file, `_files` in `in_force.py` says when the file has changed.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple, cast

from opentelemetry.trace import get_tracer_provider

from ragtrace.capture.redact import Redact
from ragtrace.core import semconv
from ragtrace.core.errors import SettingsError
from ragtrace.core.options import (
    OPTIONS,
    BaselineLearning,
    Canaries,
    History,
    JudgeLimits,
    Limits,
    TelemetryOptions,
    field_names,
    suggests_keywords,
)
from ragtrace.core.settings import SETTINGS, Settings, judge_settings, limits_of, resolve_settings
from ragtrace.core.types import Judge, Metric, Signals
from ragtrace.estimates import (
    Baseline,
    BaselineLearner,
    CalibrationKey,
    Calibrations,
    MetricAssignment,
    read_calibrations,
)
from ragtrace.evaluation.metric_selection import (
    check_type,
    embedded_judge,
    metric_name,
)
from ragtrace.evaluation.sampling import JudgementCosts, Sampling
from ragtrace.evaluation.scoring import Evaluators
from ragtrace.runtime import current_runtime
from ragtrace.runtime.current_runtime import install
from ragtrace.runtime.evaluator_selection import choose_evaluators
from ragtrace.runtime.feature import Feature, Given, load_features, option_arguments
from ragtrace.runtime.in_force import given_now, is_in_force, note_in_force
from ragtrace.runtime.runtime_factory import RuntimeFactory
from ragtrace.system import green_threads, preload
from ragtrace.system.faults import faults, guarded
from ragtrace.telemetry.export.providers import build_telemetry

if TYPE_CHECKING:
    from opentelemetry.sdk.trace.export import SpanExporter
    from typing_extensions import Unpack

    from ragtrace.runtime.runtime import Runtime
    from ragtrace.slices import Alert, FeatureOptions, Route
    from ragtrace.telemetry.export.telemetry import Telemetry


class _DefaultScreen:
    """Type of the default value of `screen=`, which stands for the embedded judge.

    None means "no screen".
    """


DEFAULT_SCREEN: Final = _DefaultScreen()
_RECONFIGURE_SECONDS: Final = 5.0
"""Seconds that `configure` gives to the shutdown of the former runtime: half of what `shutdown` has by default."""
_PATIENCE_SECONDS: Final = 0.25
"""Seconds that `configure` waits for that shutdown, which is long where all that it needs answers. After that it goes
on in the background."""
_WHILE_SERVING: Final = ("ragtrace.block", "ragtrace.propagation", "ragtrace.runtime.estimate")
"""Modules that an application may first use while it serves calls."""
_FOR_JUDGE: Final = ("ragtrace.capture.prompt_parts",)
"""Modules that the worker first uses when a judge is shown the earlier turns of a conversation."""


def _moved_keywords() -> dict[str, str]:  # first, as the decorator of `configure` calls it
    """Return how options are written, by what one might write for each as an argument of `configure`.

    These are the fields of the option classes, and the names of the settings.
    """
    arguments = {kind.__name__: argument for argument, kind in OPTIONS.items()}
    options = [(kind.__name__, field, field) for kind in OPTIONS.values() for field in field_names(kind)]
    options += [(*setting.keyword.removesuffix("=)").partition("(")[::2], setting.name) for setting in SETTINGS]
    written: dict[str, str] = {}
    for kind, field, name in options:
        if kind == Canaries.__name__:
            written[name] = f"alerts=[ragtrace.{kind}({field}=...)]"
        elif kind in arguments:
            written[name] = f"{arguments[kind]}=ragtrace.{kind}({field}=...)"
        elif kind == JudgeLimits.__name__:
            written[name] = f"limits=ragtrace.{kind}({field}=...) where the judge is made"
    return written


# --- the public face --------------------------------------------------------------------------------------------------


@partial(suggests_keywords, moved=_moved_keywords(), further=option_arguments)
def configure(
    *,
    service: str | None = None,
    exporter: str | SpanExporter | Signals | Route | None = None,
    screen: Judge | _DefaultScreen | None = DEFAULT_SCREEN,
    judge: Judge | None = None,
    metrics: str | Sequence[str | Metric] | None = None,
    sampling: Sampling | None = None,
    redact: Redact | None = None,
    alerts: Sequence[Alert | Canaries] = (),
    capture_content: str | None = None,
    evaluate_spans: bool | None = None,
    enabled: bool | None = None,
    store: str | os.PathLike[str] | History | None = None,
    baseline: str | os.PathLike[str] | BaselineLearning | Baseline | None = None,
    calibration: str | os.PathLike[str] | None = None,
    fleet: str | None = None,
    limits: Limits | None = None,
    telemetry: TelemetryOptions | None = None,
    **options: Unpack[FeatureOptions],
) -> None:
    """Start ragtrace in this process.

    A second call starts ragtrace with the new settings, and shuts the former configuration down: what its calls still
    lack is scored and exported in the background, for at most five seconds. With the settings that are in force a call
    does nothing, and one that is refused changes nothing.

    Every argument has an environment variable (`RAGTRACE_` and its name in capitals) or a default.

    Examples:
        >>> ragtrace.configure(service="support-bot", exporter="console")
        >>> @ragtrace.generate
        ... def answer(question: str, docs: list[str]) -> str:
        ...     return "The tower is in Berlin."
        >>> answer("Where is the tower?", ["The tower is in Paris."])
        'The tower is in Berlin.'
        >>> ragtrace.flush()
        16:08:09 chat: ok consistency=0.15 answered=1 contexts=1 query=...
        True

    Args:
        service: name of the application; else `OTEL_SERVICE_NAME`.
        exporter: where telemetry goes: "otlp" (default; the standard `OTEL_EXPORTER_OTLP_*` variables say where, and
            without an endpoint nothing is sent), "console" (one line a call), "console-full", "none", the name of an
            installed exporter, an OpenTelemetry `SpanExporter`, `Signals`, or a `Route`, which has an exporter for each
            value of a tag. An exporter named or given gets providers of its own; otherwise the providers that the
            process has by now are used.
        screen: a cheap judge that sees every call; default `EmbeddedJudge()`; None: off.
        judge: a judge that sees a sample of the calls; default: none.
        metrics: names or `Metric` objects; default: of those that screen and judge offer, the usual few
            (`hallucinated`, `faithfulness`, `answer_relevancy`, `context_relevance`, `answered`,
            `answered_without_context`, `consistency`, `suspicious`), what alerts watch, and metrics of your own that
            read labels. "all": every one that costs no judge calls of its own.
        sampling: how often the judge looks; default `Sampling()`, with `RAGTRACE_SAMPLE_RATE` as its rate.
        redact: what to take out of texts before anything else sees them; default: nothing but over-long texts.
        alerts: when to tell whom that a metric has left its bound; default: never. A `Canaries` among them tells that
            the judge agrees with people's labels less often than before.
        capture_content: NO_CONTENT, SPAN_ONLY (default), EVENT_ONLY or SPAN_AND_EVENT; also read from
            `OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT`. Scoring works in every mode. NO_CONTENT also leaves
            the messages of exceptions out, which may quote a call.
        evaluate_spans: score the RAG calls in the spans of other instrumentations (OpenInference, OpenTelemetry GenAI,
            OpenLLMetry, Haystack, Pydantic AI) as well; nothing needs to be decorated. The spans are those of the
            tracer provider in `telemetry`, else of the process's provider, also with an exporter that gets the scores
            alone. Where the process has no provider, ragtrace's own become the process's, as with `set_global`.
            Default False.
        enabled: False: decorated functions run as if undecorated. Also off with `OTEL_SDK_DISABLED=true`.
        store: a file on a local disk that keeps every call with its scores (an SQLite database; several processes may
            share it), for `ragtrace report`; or a `History` that says how many of them. It holds their redacted texts
            too, unless `capture_content` is NO_CONTENT. A process that is killed loses at most the last second of it.
            Default: none is kept.
        baseline: a file that keeps the baseline of the application's scores, with which `suspicious` and alerts compare
            (JSON; several processes may share it, and learn together); a `BaselineLearning`, or a `Baseline`. Where the
            file knows nothing of a workflow, or of the evaluator in this version, it is learned from the first calls;
            what was learned stays as it is, whatever release comes next: remove the file to learn anew. Default: beside
            `store`, named `<store>.baseline.json`; without a store it is kept in memory, and a restart learns anew.
        calibration: calibration file that `ragtrace calibrate fit --out` or `Calibration.save` made from human labels,
            by which `estimate(corrected=True)`, alerts with `corrected=True` and the Prometheus rules correct the
            judge's rates.
        fleet: URL of a broker (`amqp://...` or `redis://...`): sampled calls are put into its queue, and judged by
            `ragtrace worker` processes; then `judge` must not be given. Default: none.
        limits: how much is kept in memory, and how long for; what was not scored when the process ends is kept in the
            `spool` of the limits.
        telemetry: OpenTelemetry providers of your own, and the attributes on spans.
        **options: option objects of further features, by name.

    Raises:
        SettingsError: a value is wrong; says which, where it came from and what to write instead. Nothing is started.
    """
    given = given_now(locals())
    if is_in_force(given):
        return
    if problem := green_threads.problem():
        raise SettingsError(problem)
    faults_before = Counter(faults.counts_here())
    # 1. Read and check everything: raises, and changes nothing.
    check_type("judge", judge, Judge)
    check_type("sampling", sampling, Sampling)
    check_type("redact", redact, Redact)
    check_type("limits", limits, Limits)
    check_type("telemetry", telemetry, TelemetryOptions)
    limits, telemetry = limits or Limits(), telemetry or TelemetryOptions()
    history = store if isinstance(store, History) else History(store)
    learning = _baseline_learning(baseline)
    canaries = _canaries_among(alerts)
    values = {
        "service": service, "capture_content": capture_content, "evaluate_spans": evaluate_spans, "enabled": enabled,
        "exporter": exporter if isinstance(exporter, str) else None, "metrics": _metric_names(metrics),
        "store": history.path, "store_days": history.days, "store_bytes": history.bytes,
        "baseline": learning.path, "baseline_calls": learning.calls, "calibration": calibration, "fleet": fleet,
        "canaries": canaries.path, "canary_interval": canaries.interval,
        **{name: getattr(limits, name) for name in field_names(Limits)},
        **{name: getattr(telemetry, name) for name in ("dialects", "evidence", "set_global", "trace_url")},
        **judge_settings(limits_of(judge)),
    }  # fmt: skip
    settings = _add_origins(resolve_settings(values, os.environ), exporter, sampling)
    sampling = sampling or Sampling(rate=settings.sample_rate)
    _check_providers(tracer=telemetry.tracer_provider, meter=telemetry.meter_provider, logger=telemetry.logger_provider)
    screen = embedded_judge() if isinstance(screen, _DefaultScreen) else screen
    check_type("screen", screen, Judge)
    features = load_features(Given(settings, judge, sampling, alerts, dict(options)))
    learner = BaselineLearner(
        baseline if isinstance(baseline, Baseline) else None,
        calls=settings.baseline_calls,
        adjusted={metric for feature in features for metric in feature.compared_metrics()},
    )
    evaluators = choose_evaluators(
        settings,
        screen=screen,
        judge=judge,
        metrics=metrics or (),
        sampling=sampling,
        watched=[metric for feature in features for metric in feature.metrics()],
        learner=learner,
    )
    calibrations = _read_files(settings, evaluators, learner)
    for feature in features:
        feature.check(evaluators, calibrations)
    configuration = _Configuration(
        settings=settings,
        exporter=exporter,
        telemetry=telemetry,
        evaluators=evaluators,
        sampling=sampling,
        redact=redact or Redact(max_chars=settings.max_chars),
        features=features,
        learner=learner,
        calibrations=calibrations,
    )
    if not settings.enabled:
        install(None, _RECONFIGURE_SECONDS, off=True, patience=_PATIENCE_SECONDS)
        return
    # 2. Build: may fail, and is undone then. 3. Commit: fails in code of the user's at most, and is undone then.
    _commit(configuration, _build(configuration), faults_before, given)


# --- 1. read and check: raises, and changes nothing ------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class _Configuration:
    """Everything that `configure` was given, checked. Nothing of it is in force yet."""

    settings: Settings
    exporter: object
    telemetry: TelemetryOptions
    """Options of the telemetry, with the providers of the user for spans, metrics and events."""
    evaluators: Evaluators
    sampling: Sampling
    redact: Redact
    features: tuple[Feature, ...]
    learner: BaselineLearner
    calibrations: Calibrations


def _baseline_learning(baseline: str | os.PathLike[str] | BaselineLearning | Baseline | None) -> BaselineLearning:
    """Return the settings of the baseline's learning; a `Baseline` that is given has no file."""
    if isinstance(baseline, BaselineLearning):
        return baseline
    return BaselineLearning("" if isinstance(baseline, Baseline) else baseline)


def _canaries_among(alerts: object) -> Canaries:
    """Return the canaries among *alerts*, without a path if there are none."""
    if not isinstance(alerts, Sequence) or isinstance(alerts, str):
        raise SettingsError(f"alerts must be a list, got {type(alerts).__name__}; write alerts=[ragtrace.Alert(...)]")
    canaries = [each for each in cast("Sequence[object]", alerts) if isinstance(each, Canaries)]
    if len(canaries) > 1:
        raise SettingsError(f"alerts has {len(canaries)} Canaries; put their labelled calls into one file")
    return canaries[0] if canaries else Canaries()


def _metric_names(metrics: object) -> object:
    """Return the names of the metrics in a list, or any other value unchanged.

    The settings validate the result.
    """
    if isinstance(metrics, str) or not isinstance(metrics, Sequence):
        return metrics
    return [metric_name(metric) for metric in cast("Sequence[object]", metrics)]


def _add_origins(settings: Settings, exporter: object, sampling: Sampling | None) -> Settings:
    """Return a copy of *settings* with the origins of the sampling settings and of the exporter."""
    origins = {"sampling": settings.origins["sample_rate"] if sampling is None else "sampling="}
    if exporter is not None and not isinstance(exporter, str):
        origins["exporter object"] = type(exporter).__name__
    if isinstance(exporter, Signals):
        parts = (exporter.spans, exporter.metrics, exporter.logs, exporter.scores)
        names = [type(part).__name__ for part in parts if part is not None]
        origins["exporter object"] = f"Signals of {', '.join(names) or 'nothing'}"
    return replace(settings, origins={**settings.origins, **origins})


def _check_providers(**providers: object) -> None:
    for what, value in providers.items():
        if value is not None and not callable(getattr(value, f"get_{what}", None)):
            raise SettingsError(
                f"{what}_provider= must be an OpenTelemetry provider, which has a get_{what}(), got "
                f"{type(value).__name__}; leave it out to use the provider of the process, or one of our own"
            )


def _read_files(settings: Settings, evaluators: Evaluators, learner: BaselineLearner) -> Calibrations:
    """Have *learner* read the baseline file, and return the calibrations of the calibration file.

    Where ragtrace is not enabled, no file is read.

    Raises:
        SettingsError: a file cannot be used.
    """
    if not settings.enabled:
        return Calibrations()
    if settings.baseline:
        learner.open_file(settings.baseline, settings.origins["baseline"])
    return _read_calibrations(settings, evaluators) if settings.calibration else Calibrations()


def _read_calibrations(settings: Settings, evaluators: Evaluators) -> Calibrations:
    """Read the calibration file, and find out for which judge and which metrics it can be used."""
    from ragtrace.judges.llm.prompts import prompt_hash_of

    assignment = MetricAssignment.from_evaluators(evaluators.screen, evaluators.judge)
    keys: dict[str, CalibrationKey] = {}
    for evaluator in filter(None, evaluators):
        version = evaluator.judge.version
        for metric in evaluator.metrics:
            if assignment.evaluator_of(metric.name) == evaluator.id:
                keys[metric.name] = CalibrationKey(
                    metric.name, metric.version, evaluator.id, version, prompt_hash_of(version)
                )
    return Calibrations(read_calibrations(settings.calibration), keys)


# --- 2. build: may fail, and is undone then --------------------------------------------------------------------------


class _Built(NamedTuple):
    """What is built of a configuration, and is not in force yet."""

    factory: RuntimeFactory
    """Factory of the runtimes of forked children."""
    runtime: Runtime
    """Runtime of this process, which is not started."""
    connect: Callable[[], None]
    """Function that connects the telemetry with the rest of the process, which cannot be undone."""
    discard: Callable[[], None]
    """Function that ends the telemetry."""


def _build(configuration: _Configuration) -> _Built:
    """Build the telemetry, the factory of runtimes and the runtime of this process, which is not started yet.

    If that fails, what was built is ended. A history or spool file that was created stays, empty: another process may
    use it already.

    Raises:
        SettingsError: a file cannot be used, or an exporter cannot be built.
    """
    settings, evaluators = configuration.settings, configuration.evaluators
    _preload(settings, evaluators)
    for feature in configuration.features:
        preload.import_modules(*feature.prepare(evaluators))
    tracers = configuration.telemetry.tracer_provider
    telemetry, connect, discard = build_telemetry(
        settings,
        configuration.exporter,
        tracer_provider=tracers,
        meter_provider=configuration.telemetry.meter_provider,
        logger_provider=configuration.telemetry.logger_provider,
    )
    try:
        factory = RuntimeFactory(
            settings,
            telemetry,
            evaluators,
            sampling=configuration.sampling,
            redact=configuration.redact,
            features=configuration.features,
            learner=configuration.learner,
            calibrations=configuration.calibrations,
            service=settings.service or _resource_attribute(telemetry, tracers, semconv.SERVICE_NAME),
            release=_resource_attribute(telemetry, tracers, semconv.SERVICE_VERSION),
            costs=JudgementCosts(),
        )
        runtime = factory.build()
        discard = partial(_discard, runtime, discard)
        runtime.open_instruments()
    except BaseException:
        discard()
        raise
    return _Built(factory, runtime, connect, discard)


def _discard(runtime: Runtime, discard_telemetry: Callable[[], None]) -> None:
    runtime.close_instruments()
    discard_telemetry()


def _preload(settings: Settings, evaluators: Evaluators) -> None:
    """Import the modules that the worker, or an application that serves calls, would be the first to use."""
    asked = (evaluators.screen, evaluators.judge)
    shows_turns = settings.judge_turns and any(each is not None and not each.judge_client.computes for each in asked)
    preload.import_modules(*_WHILE_SERVING, *(_FOR_JUDGE if shows_turns else ()))


def _resource_attribute(telemetry: Telemetry, provider: object, name: str) -> str:
    """Return an attribute of the spans' OpenTelemetry resource, such as `service.name`, or an empty text if it is not
    set.

    Args:
        telemetry: the telemetry that was built.
        provider: the user's tracer provider; None: ragtrace's own, or else that of the process.
        name: name of the attribute.
    """
    of_user = getattr(provider or get_tracer_provider(), "resource", None)
    resource = of_user if telemetry.resource is None else telemetry.resource()
    return str(getattr(resource, "attributes", {}).get(name, ""))


# --- 3. commit: fails in code of the user's at most, and is undone then -----------------------------------------------


def _commit(configuration: _Configuration, built: _Built, faults_before: Counter[str], given: object) -> None:
    """Put the configuration in force: start the runtime, connect its telemetry, and shut the former runtime down.

    The start can fail, in code of a span processor of the user's: then the former runtime takes its hooks back, what
    was built is ended, and nothing has changed. The connection comes last of what can fail, as it cannot be undone.

    Args:
        configuration: what was checked.
        built: what was built of it.
        faults_before: counts of the failures on this thread before `configure`.
        given: what was given, as `given_now` returns it.
    """
    former, runtime = current_runtime.installed, built.runtime
    try:
        runtime.start()
        built.connect()
    except BaseException:
        runtime.give_hooks_back()
        built.discard()
        if former is not None:
            with guarded("start of a runtime"):
                former.start()
        raise
    # None of what follows is undone, as none of it can fail. Fields are assigned, and `install` exchanges the runtimes
    # before it shuts the former down. That counts the failures of its parts, and raises nothing but the exception of a
    # signal handler, with which the new configuration is in force all the same.
    for feature in configuration.features:
        feature.commit()
    if former is not None:  # while it ends, errors may carry texts of its calls, which are redacted as it says, too
        faults.keep_messages_of(former.messages)
        former.telemetry.leave_open(runtime.telemetry)
    faults.message_filter, faults.hides_messages = runtime.messages
    note_in_force(runtime, given)
    install(
        runtime,
        _RECONFIGURE_SECONDS,
        faults_so_far=Counter(faults.counts_here()) - faults_before,
        rebuild=built.factory.build,
        patience=_PATIENCE_SECONDS,
    )
