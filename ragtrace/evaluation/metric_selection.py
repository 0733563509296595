"""Which judge and which metrics are meant, and what to say where that is not clear."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from ragtrace.core.errors import SettingsError
from ragtrace.core.types import Judge, Metric
from ragtrace.metrics import registry

ALL: Final = "all"
"""Among the names of metrics: all that cost no judge call of their own."""
_ADVICE: Final[Mapping[str, str]] = {
    "screen": "write screen=ragtrace.EmbeddedJudge(), or None for no screen",
    "judge": "write for instance judge=ragtrace.OpenAIJudge('gpt-4o-mini'), or an object with id, version, type, "
    "offers() and an async judge(), or None for no judge",
    "sampling": "write for instance sampling=ragtrace.Sampling(rate=0.05)",
    "alerts": "write for instance alerts=[ragtrace.Alert('hallucinated', above=0.05)]",
    "redact": "write for instance redact=ragtrace.Redact(patterns=[...])",
}


def embedded(*, extractive: bool = False) -> Judge:
    """Return the judge that needs no model; *extractive* as of `EmbeddedJudge`."""
    from ragtrace.judges import EmbeddedJudge

    return EmbeddedJudge(extractive=extractive)


def check_type(name: str, value: object, kind: type) -> None:
    """Complain of a *value* for the argument *name* that is neither None nor a *kind*.

    Raises:
        SettingsError: says what it is instead, and what to write.
    """
    if value is None:
        return
    if inspect.isclass(value):
        raise SettingsError(f"{name}= got the class {value.__name__}; make one of it: {name}={value.__name__}(...)")
    if name == "judge" and isinstance(value, str):
        raise SettingsError(
            f"judge= must be a judge, got the text {value!r}; write judge=ragtrace.OpenAIJudge({value!r})"
        )
    if not isinstance(value, kind):
        raise SettingsError(
            f"{name}= must be a ragtrace.{kind.__name__}, got {type(value).__name__}: {value!r}; {_ADVICE[name]}"
        )


def metric_name(metric: object) -> str:
    """The name of a metric given by name or as an object.

    Raises:
        SettingsError: it is neither.
    """
    if isinstance(metric, str):
        return metric
    if isinstance(metric, Metric) and not inspect.isclass(metric):
        return metric.name
    raise SettingsError(
        f"metrics= must hold names or ragtrace.Metric objects, got {metric!r}; "
        "write for instance ['consistency', 'answered']"
    )


def candidates(metrics: Iterable[str | Metric] | None) -> tuple[tuple[Metric, ...], tuple[Metric, ...]]:
    """Return the metrics meant by *metrics*, and of them those that were named.

    None means the usual ones, "all" every metric that costs no judge call of its own: of these a judge may lack some,
    of those that were named it must not.

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


def chosen(judge: Judge, metrics: str | Sequence[str | Metric] | None) -> tuple[Metric, ...]:
    """Return the metrics meant, each once; None: the usual ones, "all": every one, that *judge* offers.

    A metric that reads no label needs no judge, so any will do. One that reads nothing but a scorer's value is unscored
    (`no_scorer`) with a judge that has none.

    Raises:
        UnknownMetricError: no metric has that name.
        SettingsError: *judge* does not offer one of them, or there is none.
    """
    given = [metrics] if isinstance(metrics, str) else metrics
    if given is not None:
        given = list({metric_name(metric): metric for metric in given}.values())
        if not given:
            raise SettingsError(
                "metrics= is empty, got []; name at least one metric, or leave it out for the usual ones"
            )
    meant, named = candidates(given)
    lacking = [metric for metric in named if metric.needs - {"consistency"} and not judge.offers(metric)]
    if lacking:
        names = ", ".join(metric.name for metric in lacking)
        raise SettingsError(
            f"judge {judge.id!r} (from judge=) does not offer {names}. {who_offers(lacking[0])}"
            f"It offers: {offered_by(judge)}"
        )
    return tuple(metric for metric in meant if metric in named or (metric.needs and judge.offers(metric)))


def offered_by(*judges: Judge | None) -> str:
    """Return the names of all metrics that *judges* offer, for a message."""
    names = [metric.name for metric in registry.all() if any(judge and judge.offers(metric) for judge in judges)]
    return ", ".join(names) or "none"


def who_offers(metric: Metric) -> str:
    """Return which judge of ragtrace's offers *metric*, as a sentence for a message; "" if none does."""
    from ragtrace.judges.llm.openai import OpenAIJudge

    if OpenAIJudge("gpt-4o-mini", api_key="none").offers(metric):
        extractive = (
            ", and with ragtrace.EmbeddedJudge(extractive=True), fit only for applications whose answers quote their "
            "sources"
        )
        more = extractive if embedded(extractive=True).offers(metric) and not embedded().offers(metric) else ""
        return f'{metric.name} comes with judge=ragtrace.OpenAIJudge("gpt-4o-mini"){more}. '
    return f"{metric.name} comes with ragtrace.EmbeddedJudge() or HHEM(). " if embedded().offers(metric) else ""
