"""Selection of judge and metrics from the user's arguments, with error messages for wrong ones."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from ragtrace.core.errors import SettingsError
from ragtrace.core.types import Judge, Metric
from ragtrace.metrics import registry

ALL: Final = "all"
"""Name in `metrics=` for all metrics that cost no judge call of their own."""
_ADVICE: Final[Mapping[str, str]] = {
    "screen": "write screen=ragtrace.EmbeddedJudge(), or None for no screen",
    "judge": "write for instance judge=ragtrace.OpenAIJudge('gpt-4o-mini'), or an object with id, version, type, "
    "offers() and an async judge(), or None for no judge",
    "sampling": "write for instance sampling=ragtrace.Sampling(rate=0.05)",
    "alerts": "write for instance alerts=[ragtrace.Alert('hallucinated', above=0.05)]",
    "redact": "write for instance redact=ragtrace.Redact(patterns=[...])",
    "limits": "write for instance limits=ragtrace.Limits(capacity=4096)",
    "telemetry": "write for instance telemetry=ragtrace.TelemetryOptions(tracer_provider=provider)",
}


def embedded_judge(*, extractive: bool = False) -> Judge:
    """Import the class `EmbeddedJudge` on demand, and return an instance with the option *extractive*."""
    from ragtrace.judges import EmbeddedJudge

    return EmbeddedJudge(extractive=extractive)


def check_type(name: str, value: object, kind: type) -> None:
    """Check that *value*, which a user passed for the argument *name*, is None or an instance of *kind*.

    Raises:
        SettingsError: *value* is neither; the message says what it is and what to write instead.
    """
    if value is None:
        return
    if inspect.isclass(value):
        raise SettingsError(
            f"{name}= got the class {value.__name__}, not an instance; write {name}={value.__name__}(...)"
        )
    if name == "judge" and isinstance(value, str):
        raise SettingsError(
            f"judge= must be a judge, got the text {value!r}; write judge=ragtrace.OpenAIJudge({value!r})"
        )
    if not isinstance(value, kind):
        raise SettingsError(
            f"{name}= must be a ragtrace.{kind.__name__}, got {type(value).__name__}: {value!r}; {_ADVICE[name]}"
        )


def metric_name(metric: object) -> str:
    """Return the name of a metric that is given as a name or as a `Metric` object.

    Raises:
        SettingsError: *metric* is neither a name nor a Metric.
    """
    if isinstance(metric, str):
        return metric
    if isinstance(metric, Metric) and not inspect.isclass(metric):
        return metric.name
    raise SettingsError(
        f"metrics= must hold names or ragtrace.metrics.Metric objects, got {metric!r}; "
        "write for instance ['consistency', 'answered']"
    )


def requested_metrics(metrics: Iterable[str | Metric] | None) -> tuple[tuple[Metric, ...], tuple[Metric, ...]]:
    """Return the metrics that the setting `metrics=` asks for, and which of them it names explicitly.

    None means the default metrics, "all" every metric that costs no judge call of its own. A judge must offer the
    metrics that are named explicitly; it need not offer the others.

    Raises:
        UnknownMetricError: no metric has that name.
    """
    if metrics is None:
        return registry.defaults(), ()
    given = [metrics] if isinstance(metrics, str) else list(metrics)
    named = registry.resolve(metric for metric in given if metric != ALL)
    if ALL not in given:
        return named, named
    by_name = {metric.name: metric for metric in (*registry.every(), *named)}
    return tuple(by_name.values()), named


def metrics_for(judge: Judge, metrics: str | Sequence[str | Metric] | None) -> tuple[Metric, ...]:
    """Return the metrics to compute with *judge* for the argument `metrics=`, without duplicates.

    None means the default metrics that the judge offers, "all" every metric that it offers. A metric that reads no
    label can be computed with any judge. A metric that reads nothing but a scorer's value is unscored (`no_scorer`)
    with a judge that has no scorer.

    Raises:
        UnknownMetricError: no metric has that name.
        SettingsError: *judge* does not offer one of them, or *metrics* is empty.
    """
    given = [metrics] if isinstance(metrics, str) else metrics
    if given is not None:
        given = list({metric_name(metric): metric for metric in given}.values())
        if not given:
            raise SettingsError(
                "metrics= is empty, got []; name at least one metric, or leave it out for the usual ones"
            )
    meant, named = requested_metrics(given)
    lacking = [metric for metric in named if metric.needs - {"consistency"} and not judge.offers(metric)]
    if lacking:
        names = ", ".join(metric.name for metric in lacking)
        raise SettingsError(
            f"judge {judge.id!r} (from judge=) does not offer {names}. {offering_judge_hint(lacking[0])}"
            f"It offers: {offered_metric_names(judge)}"
        )
    return tuple(metric for metric in meant if metric in named or (metric.needs and judge.offers(metric)))


def offered_metric_names(*judges: Judge | None) -> str:
    """Return the names of all metrics that the *judges* offer, separated by commas, for an error message."""
    names = [metric.name for metric in registry.all() if any(judge and judge.offers(metric) for judge in judges)]
    return ", ".join(names) or "none"


def offering_judge_hint(metric: Metric) -> str:
    """Return a sentence for an error message that suggests a built-in judge for *metric*, or ""."""
    from ragtrace.judges.llm.openai import OpenAIJudge

    plain, extractive = (embedded_judge(extractive=each).offers(metric) for each in (False, True))
    if not OpenAIJudge("gpt-4o-mini", api_key="none").offers(metric):
        return f"{metric.name} comes with ragtrace.EmbeddedJudge() or HHEM(). " if plain else ""
    more = ""
    if extractive and not plain:
        more = (
            ", and with ragtrace.EmbeddedJudge(extractive=True), fit only for applications whose answers quote their "
            "sources"
        )
    return f'{metric.name} comes with judge=ragtrace.OpenAIJudge("gpt-4o-mini"){more}. '
