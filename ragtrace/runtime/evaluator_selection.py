"""Selection of the evaluators of a configuration: which judge computes which metric."""

from __future__ import annotations

import os
from collections.abc import Sequence

from ragtrace.core.errors import SettingsError
from ragtrace.core.settings import Settings, limits_of, resolve_judge_limits
from ragtrace.core.text import encodable_name
from ragtrace.core.types import Askable, Judge, Metric
from ragtrace.estimates import BaselineLearner, MetricBaseline
from ragtrace.evaluation.metric_selection import ALL, offered_metric_names, offering_judge_hint, requested_metrics
from ragtrace.evaluation.sampling import Sampling, sampling_metrics, warn_of_missing_metrics
from ragtrace.evaluation.scoring import Evaluator, Evaluators, LabelFreeJudge
from ragtrace.metrics import registry
from ragtrace.metrics.support import consistency, suspicious, suspicious_against


def choose_evaluators(
    settings: Settings,
    *,
    screen: Judge | None,
    judge: Judge | None,
    metrics: Sequence[str | Metric],
    sampling: Sampling,
    watched: Sequence[str],
    learner: BaselineLearner,
) -> Evaluators:
    """Return the evaluators, which compute the metrics that are asked for and those that sampling and features read.

    Raises:
        UnknownMetricError: no metric has that name.
        SettingsError: no judge offers a requested metric, or screen and judge have the same id.
    """
    wanted_by_sampling = () if judge is None and not settings.fleet else sampling_metrics(sampling)
    evaluators = _build_evaluators(
        settings,
        screen=screen,
        judge=judge,
        extra=[metric for metric in metrics if not isinstance(metric, str)],
        for_sampling=wanted_by_sampling,
        watched=watched,
        learner=learner,
    )
    screened = () if evaluators.screen is None else evaluators.screen.metrics
    warn_of_missing_metrics(wanted_by_sampling, [metric.name for metric in screened])
    return evaluators


def _build_evaluators(
    settings: Settings,
    *,
    screen: Judge | None,
    judge: Judge | None,
    extra: Sequence[Metric],
    for_sampling: Sequence[str],
    watched: Sequence[str],
    learner: BaselineLearner,
) -> Evaluators:
    """Build the evaluators, assigning each metric to the label-free judge, the screen or the judge.

    Args:
        settings: the settings.
        screen: the judge that sees every call, or None.
        judge: the judge that sees a sample of the calls, or None.
        extra: metrics given as objects.
        for_sampling: names of metrics that sampling reads, which the screen always computes.
        watched: names of metrics that features read, which are computed beside the usual ones.
        learner: has the baseline that the metric `suspicious` compares with.

    Raises:
        UnknownMetricError: no metric has that name.
        SettingsError: no judge offers a requested metric, the judge offers none of them, or screen and judge have the
            same id.
    """
    if screen is not None and judge is not None and screen.id == judge.id:
        raise SettingsError(
            f"screen= and judge= have the same id, {screen.id!r}, by which their accounts and events are told apart; "
            "give one of them another id"
        )
    by_name = {metric.name: metric for metric in extra}
    names = settings.metrics
    meant, named = requested_metrics(None if names is None else [by_name.get(name) or name for name in names])
    if names is None:
        known = filter(None, map(registry.find, watched))  # the features complain of unknown names
        meant = tuple(metric for metric in (*meant, *known) if metric.needs)
    chosen: list[Evaluator | None] = []
    # The metric `suspicious` compares any screen's consistency with the baseline.
    usual = (names is None or ALL in names) and screen is not None and screen.offers(consistency)
    for candidate, more in ((LabelFreeJudge(), ()), (screen, (*for_sampling, *[suspicious.name] * usual)), (judge, ())):
        offered = () if candidate is None else _offered_metrics(candidate, meant, more, screens=candidate is screen)
        chosen.append(_evaluator(candidate, offered, learner) if candidate is not None and offered else None)
    if judge is not None and names is not None and chosen[-1] is None:
        raise SettingsError(
            f"the judge {judge.id!r} computes none of the metrics that are asked for, {', '.join(names) or 'none'}, "
            f"and would never be asked; leave judge= out, or add a metric that it offers to metrics=. Offered now: "
            f"{offered_metric_names(screen, judge)}"
        )
    covered = {metric.name for evaluator in chosen if evaluator for metric in evaluator.metrics}
    for metric in named:
        if metric.name not in covered and not settings.fleet:  # the workers of a fleet have the judge, and check it
            raise SettingsError(
                f"metric {metric.name!r} is offered by neither the screen nor the judge. {offering_judge_hint(metric)}"
                f"Leave it out, or configure a judge that offers it. Offered now: {offered_metric_names(screen, judge)}"
            )
    return Evaluators(*chosen)


def _evaluator(judge: Judge, metrics: tuple[Metric, ...], learner: BaselineLearner) -> Evaluator:
    limits = resolve_judge_limits(limits_of(judge), os.environ)
    asked = judge.asking(metrics) if isinstance(judge, Askable) else judge
    for name in (asked.id, asked.version, *(metric.name for metric in metrics)):
        if encodable_name(name) != name:
            raise SettingsError(
                f"the name {name!a} of a judge, its version or a metric is no valid text, and cannot be exported; "
                "names must have no lone surrogates and no NUL"
            )
    known = MetricBaseline(learner, consistency.name, f"{asked.id}@{asked.version}")
    metrics = tuple(suspicious_against(known) if metric.name == suspicious.name else metric for metric in metrics)
    return Evaluator(
        asked,
        metrics,
        limits["judge_timeout"],
        concurrency=limits["judge_concurrency"],
        judge_turns=limits["judge_turns"],
    )


def _offered_metrics(
    judge: Judge, meant: Sequence[Metric], more: Sequence[str], *, screens: bool
) -> tuple[Metric, ...]:
    by_name = {metric.name: metric for metric in meant}
    by_name |= {metric.name: metric for metric in registry.resolve(more) if metric.name not in by_name}
    # A metric that reads no label is computed by the label-free judge alone, also where a judge claims to offer all.
    measures = isinstance(judge, LabelFreeJudge)

    def offers(metric: Metric) -> bool:
        if metric.name == suspicious.name:  # a judge sees a sample only
            return screens and judge.offers(consistency)
        return judge.offers(metric) and bool(metric.needs) is not measures

    return tuple(metric for metric in by_name.values() if offers(metric))
