"""Diagnosis of ragtrace in this process (`ragtrace.doctor`), or of environment variables alone."""

from __future__ import annotations

import math
import os
import platform
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, replace
from time import time
from typing import Final, cast

from ragtrace.alerts import Alerting
from ragtrace.alerts.sensitivity import SLOW_REASON, Sensitivity
from ragtrace.core.endpoints import Page
from ragtrace.core.errors import SettingsError
from ragtrace.core.ledger import DeliveryCounts, Stats
from ragtrace.core.settings import DEFAULT, Settings, resolve_settings
from ragtrace.core.types import Judge
from ragtrace.diagnosis.gold_calls import is_asked, judge_gold_calls
from ragtrace.diagnosis.probes import Probes, probe_files, probe_fleet, probe_judges, probe_notifiers, probe_sinks
from ragtrace.diagnosis.report import (
    AlertStatus,
    BaselineStatus,
    CanaryStatus,
    Check,
    Diagnosis,
    EvaluatorStatus,
    Setting,
    State,
)
from ragtrace.diagnosis.telemetry_probes import metrics_page, probe_endpoints, probe_page
from ragtrace.estimates import BaselineKey, BaselineLearner
from ragtrace.evaluation.sampling import Sampling
from ragtrace.evaluation.scoring import Evaluator, LabelFreeJudge
from ragtrace.fleet.elsewhere import SpooledCalls
from ragtrace.guard.guards import guarded_functions, guards_of
from ragtrace.labels.canary_judging import CanaryJudging
from ragtrace.labels.served_models import ServedModels
from ragtrace.pipeline.health import EvaluatorFailures
from ragtrace.runtime.current_runtime import current, final_stats, switched_off
from ragtrace.runtime.runtime import Runtime
from ragtrace.system.faults import faults
from ragtrace.system.installation import installed_version
from ragtrace.telemetry.spans.hold import held_span_count, hold_processors

_IN_CODE: Final = (
    "judges, alerts and a backend's own API for scores are configured in code, or with the exporter: --app MODULE, or "
    "ragtrace.doctor() in the application, looks at them"
)
_NOT_CONFIGURED: Final = (
    "ragtrace is not configured in this process: call ragtrace.configure() where the application starts"
)
_SHUT_DOWN: Final = "ragtrace was shut down in this process: calls since then are neither traced nor scored"
_NO_HOLD: Final = (
    "scores go onto spans of their own ('evaluate ...'), as that provider has no HoldProcessor; to have "
    "them on the call: provider.add_span_processor(ragtrace.HoldProcessor(BatchSpanProcessor(exporter)))"
)
_SECONDS: Final = 5.0


def doctor(*, timeout: float = _SECONDS, probe: bool = True, gold_calls: bool = False) -> Diagnosis:
    """Diagnose ragtrace in this process: settings, reachability of backends and judges, outcomes of recent RAG calls.

    It may be called at any time, from any thread: `print(ragtrace.doctor())`. For a live process, for instance:
    `signal.signal(signal.SIGUSR1, lambda *_: print(ragtrace.doctor(probe=False), file=sys.stderr))`.

    Examples:
        >>> ragtrace.configure(service="support-bot", exporter="none")
        >>> print(ragtrace.doctor(probe=False))
        ragtrace 0.1.0, Python ...: running in this process
        ...
        Nothing is wrong as far as can be seen, ...

    Args:
        timeout: seconds within which endpoints and judges must answer.
        probe: whether to ask them at all; without, nothing is sent and nothing waited for.
        gold_calls: whether judges that ask a model judge ten short calls with known labels, too, one at a time. That
            takes 10 requests, 20 if labels do not hold: for a chat model some 15,000 tokens in and 1,500 out, or twice
            as many, for a decision model 2,000 in. It waits for all of them, whatever *timeout* is.

    Returns:
        The diagnosis; printed, it is a report in plain text without secrets.
    """
    runtime = current()
    if runtime is not None:
        return _diagnose_runtime(runtime, Probes(timeout), probe=probe, gold_calls=gold_calls)
    stats = final_stats()
    if switched_off():
        return _diagnosis("switched off", notes=("nothing is traced or scored, as enabled= or its variable says",))
    if stats is not None:
        stats = replace(stats, faults=faults.counts_since_configure())
        return _diagnosis("shut down", stats=stats, problems=(_SHUT_DOWN, *_loss_problems(stats)))
    return _diagnosis("not configured", problems=(_NOT_CONFIGURED,))


def diagnose_environment(environ: Mapping[str, str], *, timeout: float = _SECONDS) -> Diagnosis:
    """Diagnose the configuration in the environment variables *environ*, and probe its endpoints.

    Settings made in code are not seen.
    """
    try:
        settings = resolve_settings({}, environ)
    except SettingsError as error:
        return _diagnosis("environment", problems=(str(error),))
    if not settings.enabled:
        return _diagnosis("environment", settings=_settings(settings), notes=("ragtrace is switched off",))
    probes, page = Probes(timeout), metrics_page(settings.exporter, environ)
    probe_endpoints(settings.exporter, environ, probes, page=page is not None)
    probe_files(settings, probes)
    probe_fleet(settings, environ, probes)
    if page is not None:
        probe_page(page, probes, instance=None)
    checks = probes.wait()
    return _diagnosis(
        "environment",
        settings=(*_settings(settings), *_page_settings(page)),
        checks=checks,
        notes=(_IN_CODE, *probes.notes),
        problems=(*_failed_checks(checks), *probes.problems),
    )


def _diagnose_runtime(runtime: Runtime, probes: Probes, *, probe: bool, gold_calls: bool) -> Diagnosis:
    gold = tuple(map(judge_gold_calls, gold_judges(runtime) if gold_calls else ()))
    stats = replace(runtime.stats(), faults=faults.counts_since_configure())
    alerting, canaries = runtime.parts.find(Alerting), runtime.parts.find(CanaryJudging)
    learner, unscored = runtime.parts.get(BaselineLearner), runtime.processor.unscored
    exporter, origins = runtime.settings.exporter, runtime.settings.origins
    # The environment describes neither an exporter given in code nor the application's own providers.
    by_name = runtime.telemetry.owned and origins.get("exporter object") is None
    page = metrics_page(exporter, os.environ) if by_name else None
    if probe:
        if by_name:
            probe_endpoints(exporter, os.environ, probes, page=page is not None)
        probe_judges(runtime, probes)
        if page is not None:
            probe_page(page, probes, instance=_instance(runtime))
        probe_sinks(runtime.telemetry.posters, probes)
        probe_files(runtime.settings, probes)
        probe_fleet(runtime.settings, os.environ, probes)
        probe_notifiers(() if alerting is None else alerting.alerts, probes)
    checks, evaluators = probes.wait(), _evaluators(runtime)
    notices: Mapping[str, DeliveryCounts] = {} if alerting is None else alerting.delivery_counts()
    seen = tuple(replace(each) for each in list(runtime.health.captured.values()))
    parts = tuple(runtime.parts.statuses())
    return _diagnosis(
        "running",
        settings=(*_live_settings(runtime, alerting), *_page_settings(page)),
        evaluators=evaluators,
        alerts=_alerts(alerting),
        baselines=_baselines(learner, alerting),
        canaries=_canaries(canaries),
        gold=gold,
        checks=checks,
        notes=(
            *_notes(runtime),
            *_slow_alert_notes(learner, alerting),
            *probes.notes,
            *(each.note for each in gold if each.note),
        ),
        problems=(
            *_failed_checks(checks),
            *probes.problems,
            *(problem for each in gold for problem in each.problems()),
            *_failing_evaluator_problems(evaluators),
            *_late_score_problems(runtime),
            *_drift_problems(canaries),
            *runtime.calibrations.stale(),
            *_refused_alert_problems(alerting),
            *(_shadow_problems(runtime) if probe else ()),
            *(message % (each.calls, repr(each.workflow)) for each in seen for _, message in each.defects),
            *_full_queue_problems(runtime),
            *_loss_problems(stats),
            *_undelivered_problems("alerts by", notices),
            *(problem for part in parts for problem in part.problems),
        ),
        parts=parts,
        queued=runtime.worker.size,
        held=held_span_count(),
        seen=seen,
        scored_lately=runtime.health.scored_lately,
        stats=stats,
        notices=notices,
        spool=unscored.contents if isinstance(unscored, SpooledCalls) else None,
        fates=tuple(runtime.outcomes.last()),
    )


def diagnose_judge(judge: Judge) -> Diagnosis:
    """Diagnose *judge* by the gold calls alone, which it judges one at a time."""
    gold = judge_gold_calls(judge)
    return _diagnosis("judge", tuple(gold.problems()), gold=(gold,), notes=(gold.note,) if gold.note else ())


def gold_judges(runtime: Runtime) -> list[Judge]:
    """Return the judges of *runtime* of which gold calls say something."""
    found = (each.judge for each in (runtime.evaluators.screen, runtime.evaluators.judge) if each is not None)
    return [judge for judge in found if is_asked(judge)]


def _shadow_problems(runtime: Runtime) -> Iterator[str]:
    """Yield what is to be said of guards whose labels do not hold, or of which the history has no shadow verdict."""
    yield from filter(None, map(guards_of(runtime).stale, guarded_functions()))
    if runtime.settings.store and guarded_functions():
        from ragtrace.guard.shadow_reports import missing_shadow_reports

        yield from missing_shadow_reports(runtime.evaluators, runtime.settings.store)


def _diagnosis(state: State, problems: tuple[str, ...] = (), **found: object) -> Diagnosis:
    package, python = installed_version(), platform.python_version()
    return Diagnosis(state, package, python, os.getpid(), problems, **found)  # type: ignore[arg-type]


# --- what is configured ----------------------------------------------------------------------------------------------


def _settings(settings: Settings) -> tuple[Setting, ...]:
    scalars = {each.name: getattr(settings, each.name) for each in fields(settings) if each.name != "origins"}
    if settings.fleet:
        from ragtrace.system.urls import displayed_url

        scalars["fleet"] = displayed_url(settings.fleet)
    return tuple(
        Setting(name, _setting_text(value), settings.origins.get(name, DEFAULT)) for name, value in scalars.items()
    )


def _live_settings(runtime: Runtime, alerting: Alerting | None) -> Iterator[Setting]:
    """Yield the settings in use, including objects that were passed in code.

    The sample rate is the one in the `Sampling` in use.
    """
    origins, owned = runtime.settings.origins, runtime.telemetry.owned
    given = origins.get("exporter object")
    for setting in _settings(runtime.settings):
        if setting.name == "exporter" and given is not None:
            yield Setting("exporter", f"an object, {given}", "exporter=")
        elif setting.name == "exporter" and not owned:
            yield Setting("exporter", "none for spans: they go to the application's own provider", "tracer provider")
        elif setting.name != "sample_rate":
            yield setting
    sampling, usual = runtime.sampling, Sampling(rate=runtime.settings.sample_rate)
    changed = [each.name for each in fields(Sampling) if getattr(sampling, each.name) != getattr(usual, each.name)]
    shown = ", ".join(f"{name}={_rule_text(getattr(sampling, name))}" for name in dict.fromkeys(["rate", *changed]))
    yield Setting("sampling", shown, origins.get("sampling", DEFAULT))
    origin = "exporter=" if given is not None else origins.get("exporter", DEFAULT)
    for sink in (poster.sink for poster in runtime.telemetry.posters):
        yield Setting("score_sink", f"{sink.name} at {getattr(sink, 'where', 'an unknown place')}", origin)
    titles = () if alerting is None else tuple(alert.title for alert in alerting.alerts)
    yield Setting("alerts", _setting_text(titles or None), "alerts=" if titles else DEFAULT)


def _setting_text(value: object) -> str:
    if value is None or value == "":
        return "-"
    return ", ".join(map(str, cast("tuple[object, ...]", value))) if isinstance(value, tuple) else str(value)


def _rule_text(value: object) -> str:
    if isinstance(value, tuple):
        names = (str(getattr(rule, "__name__", rule)) for rule in cast("tuple[object, ...]", value))
        return f"[{', '.join(names)}]"
    return str(value)


def _instance(runtime: Runtime) -> str:
    """Return the `service.instance.id` with which this process exports metrics, or "" if it does not."""
    meters = runtime.telemetry.own_meters
    return "" if meters is None else meters.identity


def _page_settings(page: Page | None) -> tuple[Setting, ...]:
    return () if page is None else (Setting("prometheus_page", page.url, page.origin),)


def _evaluators(runtime: Runtime) -> tuple[EvaluatorStatus, ...]:
    roles = zip(("stopwatch", "screen", "judge"), runtime.evaluators, strict=True)
    failures, served = runtime.health.failures, runtime.parts.find(ServedModels)
    return tuple(
        _evaluator(
            role,
            evaluator,
            failures.get(evaluator.id) or EvaluatorFailures(),
            () if served is None else served.of(evaluator.identity),
        )
        for role, evaluator in roles
        if evaluator is not None
    )


def _evaluator(
    role: str, evaluator: Evaluator, failures: EvaluatorFailures, served: tuple[str, ...]
) -> EvaluatorStatus:
    judge, metrics = evaluator.judge, tuple(metric.name for metric in evaluator.metrics)
    if evaluator.judge_client.computes or isinstance(judge, LabelFreeJudge):
        return EvaluatorStatus(role, judge.id, judge.version, metrics)
    now = evaluator.judge_client.status
    return EvaluatorStatus(
        *(role, judge.id, judge.version, metrics, now.state, now.waits_s, now.in_flight, now.queued, now.asked),
        failures=dict(failures.causes),
        failing=failures.in_a_row,
        said=failures.said,
        advice=failures.advice,
        served=served,
    )


def _canaries(canaries: CanaryJudging | None) -> CanaryStatus | None:
    if canaries is None:
        return None
    return CanaryStatus(tuple(canaries.agreements()), canaries.cost, canaries.postponed)


def _alerts(alerting: Alerting | None) -> tuple[AlertStatus, ...]:
    if alerting is None:
        return ()
    states: dict[str, list[str]] = {}
    for row in alerting.states():
        if row.on:
            group = row.workflow or row.model or row.tag
            states.setdefault(row.alert, []).append(f"{group}: {row.state}" if group else row.state)
    return tuple(
        AlertStatus(
            alert.title,
            alert.rule,
            tuple(states.get(alert.title, ["no_data"])),
            ("the log", *(notifier.name for notifier in alert.notifiers)),
        )
        for alert in alerting.alerts
    )


def _sensitivities(learner: BaselineLearner, alerting: Alerting | None) -> Iterator[tuple[BaselineKey, Sensitivity]]:
    """Yield for each learned baseline that an alert compares with what the alert notices."""
    for key, known, _ in learner.progress():
        for alert in () if alerting is None else alerting.alerts:
            if known is not None and alert.against_baseline and alert.metric == key.metric:
                adjustment = learner.find_adjustment(key)
                yield key, Sensitivity(alert, known if adjustment is None else adjustment.distribution, adjustment)


def _slow_alert_notes(learner: BaselineLearner, alerting: Alerting | None) -> Iterator[str]:
    for key, each in _sensitivities(learner, alerting):
        if each.is_slow():
            alert = f"the alert {each.alert.title!r} in workflow {key.workflow!r}"
            yield f"{alert} is slow ({each.describe()}): {SLOW_REASON}"


def _baselines(learner: BaselineLearner, alerting: Alerting | None) -> tuple[BaselineStatus, ...]:
    now, needed = time(), learner.calls
    noticed = {key: each.describe() for key, each in _sensitivities(learner, alerting)}
    return tuple(
        BaselineStatus(
            *key,
            calls,
            known is not None,
            f"{calls:,} of {needed:,} calls so far"
            if known is None
            else ", ".join(filter(None, [known.describe(now), learner.provisional(key), noticed.get(key)])),
        )
        for key, known, calls in learner.progress()
    )


def _notes(runtime: Runtime) -> Iterator[str]:
    if not runtime.telemetry.owned:
        yield "spans go to the application's own tracer provider; whether that exports them is not checked"
        if not hold_processors():
            yield _NO_HOLD
    elif runtime.settings.origins.get("exporter object") is not None:
        yield "telemetry goes to an exporter given in code, which is not checked"
    if runtime.evaluators.judge is None:
        yield "no judge is configured: calls are scored by the screen alone"
    elif not (runtime.sampling.lowest_rate or runtime.sampling.always):
        yield (
            f"the judge {runtime.evaluators.judge.id!r} never sees a call of the application: the sampling has the "
            "rate 0 and no rule `always`; raise Sampling(rate=) or RAGTRACE_SAMPLE_RATE, or leave judge= out"
        )
    if runtime.evaluators.screen is None:
        yield "no screen is configured: calls that are not sampled have no score"


# --- what is wrong ---------------------------------------------------------------------------------------------------


def _failed_checks(checks: Sequence[Check]) -> Iterator[str]:
    for check in checks:
        if not check.ok:
            advice = f"; {check.advice}" if check.advice else ""
            yield f"{check.what}: {check.seen} at {check.where}{advice}"


def _failing_evaluator_problems(evaluators: Sequence[EvaluatorStatus]) -> Iterator[str]:
    for each in evaluators:
        if each.failing and each.failures:
            causes = ", ".join(f"{cause} {count}" for cause, count in each.failures.items())
            yield (
                f"{each.id} has failed to judge the last {each.failing} calls; of all failures: {causes}. The last one "
                f"said: {each.said}; {each.advice}"
            )
    for each in evaluators:
        if each.state not in ("", "closed"):
            yield f"{each.id} keeps failing and is left alone for another {each.waits_s:.0f} s"


def _late_score_problems(runtime: Runtime) -> Iterator[str]:
    """Yield the hold time that is needed if most scores of the judge come when the spans of their calls have left."""
    waits = sorted(runtime.judge_waits.copy())
    late = [each for each in waits if each.is_late]
    if len(late) > len(waits) / 2:
        # So many seconds that nine of ten calls would have had their scores, and a quarter more.
        needed = math.ceil(waits[math.ceil(0.9 * len(waits)) - 1].seconds * 1.25)
        setting = f"Limits(hold_seconds={needed})" if runtime.telemetry.owned else f"HoldProcessor(seconds={needed})"
        yield (
            f"the judge's scores come too late for the spans of their calls, in {len(late)} of the last {len(waits)} "
            f"calls that it scored: after up to {late[-1].seconds:.3g} s, while a span waits {late[-1].longest_hold:g} "
            f"s and then leaves as 'late'. Set {setting}, and a decision_wait of tail sampling above it, or take a "
            "faster judge; until then the scores are in events, metrics and on linked spans 'evaluate ...'"
        )


def _drift_problems(canaries: CanaryJudging | None) -> Iterator[str]:
    for each in () if canaries is None else canaries.agreements():
        if each.fallen is None:
            continue
        now, usual = each.agreement[each.fallen], each.usual
        was = "" if usual is None else f", {usual:.0%} before"
        yield (
            f"{each.evaluator} agrees with human labels less often than before: for {each.metric}, on calls labelled "
            f"{each.fallen}, in {0.0 if now is None else now:.0%} of the latest judgements{was}; calibrate it again"
        )


def _refused_alert_problems(alerting: Alerting | None) -> Iterator[str]:
    rows = () if alerting is None else alerting.states()
    for title in dict.fromkeys(row.alert for row in rows if row.on and row.state == "no_calibration"):
        yield (
            f"the alert {title!r} compares nothing: its bound is one of a rate, and needs a calibration that holds, of "
            "a decision judge from 500 labels on (ragtrace calibrate fit); 'baseline' as its bound needs none"
        )


def _full_queue_problems(runtime: Runtime) -> Iterator[str]:
    capacity = runtime.settings.capacity
    if runtime.worker.size >= capacity:
        yield f"the queue is full: {runtime.worker.size} wait, of {capacity} allowed (Limits(capacity=))"


def _loss_problems(stats: Stats) -> Iterator[str]:
    for reason, count in stats.dropped.items():
        if reason != "spooled":
            yield f"{count} evaluations were dropped: {reason}"
    for name, tally in stats.evaluators.items():
        failed = sum(tally.failed.values())
        if failed > tally.scored + tally.partial:
            yield f"{name} failed more often than not, {failed} times: {', '.join(tally.failed)}"
    # The tallies of the evaluators count the dropped calls already.
    places = {place: count for place, count in stats.faults.items() if not place.startswith("dropped: ")}
    if unread := places.pop("capture.unread", 0):
        yield (
            f"{unread} values of the application's own classes were not read; say where the text is with answer= or"
            " documents="
        )
    for place, count in places.items():
        what, _, function = place.removeprefix("capture.").partition(":")
        if what in ("answer", "contexts", "documents", "query") and function:
            yield f"no {what} found in {function}, {count} times: say where with {what}= (a name, a path or a function)"
        elif place.startswith("lost "):
            what, _, reason = place.removeprefix("lost ").partition(": ")
            yield f"{count} {what} were lost on their way to the backend: {reason}; see the log"
        else:
            yield f"ragtrace itself failed, {count} times: {place}; see the log"
    yield from _undelivered_problems("scores for", stats.sinks)


def _undelivered_problems(what: str, posted: Mapping[str, DeliveryCounts]) -> Iterator[str]:
    for name, each in posted.items():
        lost = dict(each.failed)
        for reason, count in each.dropped.items():
            lost[reason] = lost.get(reason, 0) + count
        if lost:
            reasons = ", ".join(f"{reason} {count}" for reason, count in sorted(lost.items()))
            yield f"{what} {name}: {sum(lost.values())} were not delivered: {reasons}; see the log"
