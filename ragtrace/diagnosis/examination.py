"""The doctor: looks at this process, or at its environment alone."""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping
from dataclasses import fields, replace
from importlib.metadata import version
from typing import TYPE_CHECKING, Final, cast

from ragtrace.core.endpoints import Page
from ragtrace.core.errors import SettingsError
from ragtrace.core.ledger import Stats
from ragtrace.core.settings import DEFAULT, Settings, resolve
from ragtrace.diagnosis.files import of_files
from ragtrace.diagnosis.page import of_page, page_of
from ragtrace.diagnosis.probes import NONE, of_endpoints, of_judges
from ragtrace.diagnosis.question import Reach
from ragtrace.diagnosis.report import CallsSeen, Check, Diagnosis, Evaluating, Setting, State
from ragtrace.diagnosis.sink_probe import alerts_of, baselines_of, losses, of_notifiers, of_sinks
from ragtrace.evaluation.policy import Sampling
from ragtrace.evaluation.scoring import Evaluator
from ragtrace.judges.llm.stopwatch import Stopwatch
from ragtrace.runtime.current_runtime import current, final_stats, switched_off
from ragtrace.runtime.health import NO_ANSWERS, NO_CONTEXTS, Failing
from ragtrace.runtime.runtime import Runtime
from ragtrace.runtime.snapshot import Insides
from ragtrace.system.faults import faults
from ragtrace.telemetry.spans.hold import holds

if TYPE_CHECKING:
    from ragtrace.alerts import Alerting

_IN_CODE: Final = (
    "judges, alerts and a backend's own API for scores are configured in code, or with the exporter: --app MODULE, or "
    "ragtrace.doctor() in the application, looks at them"
)
_NOT_CONFIGURED: Final = (
    "ragtrace is not configured in this process: call ragtrace.configure() where the application starts"
)
_SHUT_DOWN: Final = "ragtrace was shut down in this process: calls since then are neither traced nor scored"
_SECONDS: Final = 5.0


def doctor(*, timeout: float = _SECONDS, probe: bool = True) -> Diagnosis:
    """Look into this process: what is configured and from where, what answers, what became of the last calls and why.

    It may be called at any time, from any thread: `print(ragtrace.doctor())`. For a live process, for instance:
    `signal.signal(signal.SIGUSR1, lambda *_: print(ragtrace.doctor(probe=False), file=sys.stderr))`.

    Args:
        timeout: seconds within which endpoints and judges must answer.
        probe: whether to ask them at all; without, nothing is sent and nothing waited for.

    Returns:
        What was found; printed, a report in plain text without secrets.
    """
    runtime = current()
    if runtime is not None:
        return _of_runtime(runtime, timeout, probe=probe)
    stats = final_stats()
    if switched_off():
        return _diagnosis("switched off", notes=("nothing is traced or scored, as enabled= or its variable says",))
    if stats is not None:
        stats = replace(stats, faults=faults.lately())
        return _diagnosis(
            "shut down", stats=stats, problems=(_SHUT_DOWN, *_losses(stats), *losses("scores for", stats.sinks))
        )
    return _diagnosis("not configured", problems=(_NOT_CONFIGURED,))


def of_environment(environ: Mapping[str, str], *, timeout: float = _SECONDS) -> Diagnosis:
    """What `ragtrace.configure()` without arguments would make of *environ*, and whether its endpoints answer."""
    try:
        settings = resolve({}, environ)
    except SettingsError as error:
        return _diagnosis("environment", problems=(str(error),))
    if not settings.enabled:
        return _diagnosis("environment", settings=_settings(settings), notes=("ragtrace is switched off",))
    page = page_of(settings.exporter, environ)
    begun = [*of_files(settings, timeout), *([] if page is None else of_page(page, timeout, running=False))]
    reach = of_endpoints(settings.exporter, environ, timeout, page=page is not None)
    checks = (*reach.checks, *(question.wait() for question in begun))
    return _diagnosis(
        "environment",
        settings=(*_settings(settings), *_page(page)),
        checks=checks,
        notes=(_IN_CODE, *reach.notes),
        problems=(*_unreachable(checks), *reach.problems),
    )


def _of_runtime(runtime: Runtime, timeout: float, *, probe: bool) -> Diagnosis:
    inside, stats, alerting = runtime.insides, replace(runtime.stats(), faults=faults.lately()), runtime.alerts
    page = page_of(inside.settings.exporter, os.environ) if _exports_by_name(inside) else None
    reach = _asked(inside, alerting, page, timeout) if probe else NONE
    evaluators, notices = _evaluators(inside), {} if alerting is None else alerting.delivery_counts()
    return _diagnosis(
        "running",
        settings=(*_live_settings(inside), _sampling(inside), *_page(page), *_sinks(inside), _alerts(alerting)),
        evaluators=evaluators,
        alerts=alerts_of(alerting),
        baselines=baselines_of(inside.learner),
        checks=reach.checks,
        notes=(*_notes(inside), *reach.notes),
        problems=(
            *_unreachable(reach.checks),
            *reach.problems,
            *_failing(evaluators),
            *_silenced(evaluators),
            *_unseen(inside),
            *_full(inside),
            *_losses(stats),
            *losses("scores for", stats.sinks),
            *losses("alerts told by", notices),
        ),
        queued=inside.queued,
        held=inside.held,
        seen=_seen(inside),
        scored_lately=inside.health.scored_lately,
        stats=stats,
        notices=notices,
        spool=None if inside.spooling is None else inside.spooling.contents,
        fates=tuple(inside.fates.last()),
    )


def _asked(inside: Insides, alerting: Alerting | None, page: Page | None, timeout: float) -> Reach:
    """Ask all there is to ask, at once but for the judges, and wait for the answers."""
    files = of_files(inside.settings, timeout)
    pages = [] if page is None else of_page(page, timeout, running=True)
    sinks, of_theirs = of_sinks(inside.telemetry.posters, timeout)
    notifiers, of_those = of_notifiers(alerting, timeout)
    judges, ours = of_judges(inside, timeout), NONE
    if _exports_by_name(inside):
        ours = of_endpoints(inside.settings.exporter, os.environ, timeout, page=page is not None)
    rest = (question.wait() for question in (*pages, *sinks, *files, *notifiers))
    notes = (*ours.notes, *judges.notes, *of_theirs, *of_those)
    return Reach((*ours.checks, *judges.checks, *rest), notes, ours.problems)


def _diagnosis(state: State, problems: tuple[str, ...] = (), **found: object) -> Diagnosis:
    return Diagnosis(
        state,
        version("ragtrace-otel"),
        platform.python_version(),
        os.getpid(),
        problems,
        **found,  # type: ignore[arg-type]
    )


# --- what is configured ----------------------------------------------------------------------------------------------


def _settings(settings: Settings) -> tuple[Setting, ...]:
    scalars = {each.name: getattr(settings, each.name) for each in fields(settings) if each.name != "origins"}
    return tuple(Setting(name, _shown(value), settings.origins.get(name, DEFAULT)) for name, value in scalars.items())


def _live_settings(inside: Insides) -> list[Setting]:
    """Return the scalars as they are in use: the exporter that was given, and no rate beside that of Sampling."""
    given = inside.settings.origins.get("exporter object")
    found = [setting for setting in _settings(inside.settings) if setting.name != "sample_rate"]
    if given is None and inside.telemetry.owned:
        return found
    shown = Setting("exporter", f"an object, {given}", "exporter=")
    if given is None:
        shown = Setting("exporter", "none for spans: they go to the application's own provider", "tracer provider")
    return [shown if setting.name == "exporter" else setting for setting in found]


def _shown(value: object) -> str:
    if value is None or value == "":
        return "-"
    return ", ".join(map(str, cast("tuple[object, ...]", value))) if isinstance(value, tuple) else str(value)


def _sampling(inside: Insides) -> Setting:
    sampling, usual = inside.sampling, Sampling(rate=inside.settings.sample_rate)
    given = [each.name for each in fields(Sampling) if getattr(sampling, each.name) != getattr(usual, each.name)]
    told = ", ".join(f"{name}={_rule(getattr(sampling, name))}" for name in dict.fromkeys(["rate", *given]))
    return Setting("sampling", told, inside.settings.origins.get("sampling", DEFAULT))


def _page(page: Page | None) -> tuple[Setting, ...]:
    if page is None:
        return ()
    folder = Setting("prometheus_folder", page.folder, page.folder_origin)
    return Setting("prometheus_page", page.url, page.origin), folder


def _sinks(inside: Insides) -> list[Setting]:
    """Of the backends that get scores by their own API: they come with the exporter."""
    origins = inside.settings.origins
    origin = "exporter=" if "exporter object" in origins else origins.get("exporter", DEFAULT)
    return [
        Setting(
            "score_sink", f"{poster.sink.name} at {getattr(poster.sink, 'where', 'a place it does not tell')}", origin
        )
        for poster in inside.telemetry.posters
    ]


def _alerts(alerting: Alerting | None) -> Setting:
    titles = () if alerting is None else tuple(alert.title for alert in alerting.alerts)
    return Setting("alerts", _shown(titles or None), "alerts=" if titles else DEFAULT)


def _rule(value: object) -> str:
    if isinstance(value, tuple):
        names = (str(getattr(rule, "__name__", rule)) for rule in cast("tuple[object, ...]", value))
        return f"[{', '.join(names)}]"
    return str(value)


def _evaluators(inside: Insides) -> tuple[Evaluating, ...]:
    roles = zip(("stopwatch", "screen", "judge"), inside.evaluators, strict=True)
    failing = inside.health.failing
    return tuple(
        _evaluating(role, evaluator, failing.get(evaluator.id) or Failing())
        for role, evaluator in roles
        if evaluator is not None
    )


def _evaluating(role: str, evaluator: Evaluator, failing: Failing) -> Evaluating:
    judge, metrics = evaluator.judge, tuple(metric.name for metric in evaluator.metrics)
    if evaluator.judge_client.computes or isinstance(judge, Stopwatch):
        return Evaluating(role, judge.id, judge.version, metrics)
    now = evaluator.judge_client.status
    return Evaluating(
        *(role, judge.id, judge.version, metrics, now.state, now.waits_s, now.in_flight, now.queued, now.asked),
        failures=dict(failing.causes),
        failing=failing.in_a_row,
        said=failing.said,
        advice=failing.advice,
    )


def _exports_by_name(inside: Insides) -> bool:
    """Whether telemetry goes where the settings say: not to an object given in code, nor to the application's own."""
    given = inside.settings.origins.get("exporter object")
    return inside.telemetry.owned and given is None


def _notes(inside: Insides) -> list[str]:
    notes: list[str] = []
    if not inside.telemetry.owned:
        notes.append("spans go to the application's own tracer provider; whether that exports them is not checked")
        if not holds():
            notes.append(
                "scores go onto spans of their own ('evaluate ...'), as that provider has no HoldProcessor; to have "
                "them on the call: provider.add_span_processor(ragtrace.HoldProcessor(BatchSpanProcessor(exporter)))"
            )
    elif inside.settings.origins.get("exporter object") is not None:
        notes.append("telemetry goes to an exporter given in code, which is not checked")
    if inside.evaluators.judge is None:
        notes.append("no judge is configured: calls are scored by the screen alone")
    if inside.evaluators.screen is None:
        notes.append("no screen is configured: calls that are not sampled have no score")
    return notes


# --- what is wrong ---------------------------------------------------------------------------------------------------


def _unreachable(checks: tuple[Check, ...]) -> list[str]:
    return [_sentence(check) for check in checks if not check.ok]


def _sentence(check: Check) -> str:
    what = f"{check.what}: {check.seen} at {check.where}"
    return f"{what}; {check.advice}" if check.advice else what


def _failing(evaluators: tuple[Evaluating, ...]) -> list[str]:
    """Return a sentence for each evaluator whose last call failed, or most of whose calls did."""
    return [
        f"{each.id} has failed to judge the last {each.failing} calls; of all failures: "
        f"{', '.join(f'{cause} {count}' for cause, count in each.failures.items())}. The last one said: {each.said}; "
        f"{each.advice}"
        for each in evaluators
        if each.failing and each.failures
    ]


def _seen(inside: Insides) -> tuple[CallsSeen, ...]:
    return tuple(
        CallsSeen(workflow, seen.calls, seen.with_contexts, seen.with_answer)
        for workflow, seen in list(inside.health.seen.items())
    )


def _unseen(inside: Insides) -> list[str]:
    """Return what was seen in no call of a workflow."""
    told: list[str] = []
    for each in _seen(inside):
        told += [NO_CONTEXTS % (each.calls, repr(each.workflow))] if not each.with_contexts else []
        told += [NO_ANSWERS % (each.calls, repr(each.workflow))] if not each.with_answer else []
    return told


def _silenced(evaluators: tuple[Evaluating, ...]) -> list[str]:
    return [
        f"{evaluator.id} keeps failing and is left alone for another {evaluator.waits_s:.0f} s"
        for evaluator in evaluators
        if evaluator.state not in ("", "closed")
    ]


def _full(inside: Insides) -> list[str]:
    capacity = inside.settings.capacity
    if inside.queued < capacity:
        return []
    return [f"the queue is full: {inside.queued} wait, of {capacity} allowed (capacity=)"]


def _losses(stats: Stats) -> tuple[str, ...]:
    lost = {reason: count for reason, count in stats.dropped.items() if reason != "spooled"}
    told = [f"{count} evaluations were dropped: {reason}" for reason, count in lost.items()]
    for name, tally in stats.evaluators.items():
        failed = sum(tally.failed.values())
        if failed > tally.scored + tally.partial:
            told.append(f"{name} failed more often than not, {failed} times: {', '.join(tally.failed)}")
    places = {place: count for place, count in stats.faults.items() if not place.startswith("dropped: ")}  # told above
    if unread := places.pop("capture.unread", 0):
        told.append(
            f"{unread} values of the application's own classes were not read; say where the text is with answer= or"
            " documents="
        )
    told += [_fault(place, count) for place, count in places.items()]
    return tuple(told)


def _fault(place: str, count: int) -> str:
    what, _, function = place.removeprefix("capture.").partition(":")
    if what in ("answer", "contexts", "documents", "query") and function:
        return f"no {what} found in {function}, {count} times: say where with {what}= (a name, a path or a function)"
    if place.startswith("lost "):
        what, _, reason = place.removeprefix("lost ").partition(": ")
        return f"{count} {what} were lost on their way to the backend: {reason}; see the log"
    return f"ragtrace itself failed, {count} times: {place}; see the log"
