"""Concurrent scoring of many calls (`evaluate`), with a summary of mean scores and of unscored calls by reason."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import asdict, dataclass
from time import monotonic
from typing import Final, overload

from ragtrace.core.cost import Cost
from ragtrace.core.errors import SettingsError
from ragtrace.core.text import format_plainly
from ragtrace.core.types import (
    NOT_A_RATE,
    Evaluation,
    Judge,
    Metric,
    Plain,
    RagCall,
    Result,
    Score,
    html_table,
    is_uncalibrated,
)
from ragtrace.core.unscored_reasons import status_of
from ragtrace.evaluation.metric_selection import check_type, embedded_judge, metrics_for
from ragtrace.offline.call_records import as_call
from ragtrace.offline.offline_evaluator import OfflineEvaluator, Timeout
from ragtrace.offline.progress import show_progress
from ragtrace.system.sync_bridge import run_on_own_loop

_CONTEXTS: Final = 20


@dataclass(frozen=True, slots=True)
class MetricSummary:
    """Summary of one metric over many calls: mean score, and counts of scored and unscored calls."""

    metric: str
    mean: float | None
    """Mean score of the scored calls; None if no call was scored."""
    scored: int
    unscored: Mapping[str, Mapping[str, int]]
    """Number of unscored calls by status and reason."""
    uncalibrated: bool = False
    """Whether scores rest on a decision model's raw probabilities, so that their mean is not a rate."""


@dataclass(frozen=True, slots=True)
class Summary:
    """Summary of the evaluation of many calls, with a summary of each metric and the cost of judging."""

    calls: int
    failed: int
    """Number of calls with a score that is missing because a judge or a metric failed, or the judge is suspect."""
    metrics: Mapping[str, MetricSummary]
    n_calls: int
    """Number of requests to the judge."""
    input_tokens: int
    output_tokens: int
    cost_usd: float
    """US dollars for the calls whose price is known."""
    unpriced: int
    """Number of calls with requests to the judge of unknown price, which `cost_usd` leaves out."""


class SummaryBuilder:
    """Builder of a summary of many evaluations, which are added one by one."""

    def __init__(self) -> None:
        self._sums: dict[str, float] = defaultdict(float)
        self._scored: Counter[str] = Counter()
        self._unscored: dict[str, Counter[str]] = defaultdict(Counter)
        self._names: dict[str, None] = {}
        self._uncalibrated: set[str] = set()
        self._calls = self._failed = self._unpriced = 0
        self._cost = Cost()

    def add(self, values: Mapping[str, float | str], cost: Cost, uncalibrated: Iterable[str] = ()) -> None:
        """Add the results and the cost of one evaluated call to the summary.

        Args:
            values: by metric its score, or the reason why there is none.
            cost: what judging the call took.
            uncalibrated: names of the metrics whose scores rest on a decision model's raw probabilities.
        """
        self._uncalibrated.update(uncalibrated)
        self._calls += 1
        failed = False
        for name, value in values.items():
            self._names[name] = None
            if isinstance(value, str):
                self._unscored[name][value] += 1
                failed = failed or status_of(value) in ("judge_error", "judge_suspect")
            else:
                self._scored[name] += 1
                self._sums[name] += value
        self._failed += failed
        self._cost = self._cost.add_known(cost)
        self._unpriced += cost.cost_usd is None and cost.n_calls > 0

    def summary(self) -> Summary:
        """Return the summary of the evaluated calls added so far."""
        metrics: dict[str, MetricSummary] = {}
        for name in self._names:
            unscored: dict[str, dict[str, int]] = {}
            for reason, count in sorted(self._unscored[name].items()):
                unscored.setdefault(status_of(reason), {})[reason] = count
            scored = self._scored[name]
            mean = self._sums[name] / scored if scored else None
            metrics[name] = MetricSummary(name, mean, scored, unscored, name in self._uncalibrated)
        cost, usd = self._cost, self._cost.cost_usd or 0.0
        spent = cost.n_calls, cost.input_tokens, cost.output_tokens, usd
        return Summary(self._calls, self._failed, metrics, *spent, self._unpriced)


@dataclass(frozen=True, slots=True)
class EvaluatedCall:
    """Call with its evaluation: the result of each metric, and the cost of judging."""

    call: RagCall
    evaluation: Evaluation

    @property
    def results(self) -> Mapping[str, Result]:
        """Results of the call by metric name, each a score or the reason why there is none."""
        return self.evaluation.results


@dataclass(frozen=True, slots=True, repr=False)
class Evaluations(Sequence[EvaluatedCall]):
    """Evaluated calls in the order in which they were given, with their summary.

    Examples:
        >>> calls = [{"contexts": ["The tower is in Paris."], "answer": "In Paris."}]
        >>> found = ragtrace.evaluate(calls, metrics=["consistency"])
        >>> found
        <Evaluations of 1 calls: consistency 1 (1 scored)>
        >>> found[0].results["consistency"]
        Score(1, metric='consistency')
        >>> found.rows()[0]["consistency"]
        1.0
    """

    calls: tuple[EvaluatedCall, ...]
    summary: Summary
    duration_s: float

    def __repr__(self) -> str:
        means = (
            f"{each.metric} {'-' if each.mean is None else format_plainly(each.mean, 4)} ({each.scored} scored)"
            f"{_note(each)}"
            for each in self.summary.metrics.values()
        )
        return f"<Evaluations of {len(self)} calls: {', '.join(means) or 'no metric'}>"

    def _repr_html_(self) -> str:
        """Return an HTML table of the metrics and their means, which notebooks display."""
        means = self.summary.metrics.values()
        rows = [
            (each.metric, "-" if each.mean is None else format_plainly(each.mean, 4) + _note(each), str(each.scored))
            for each in means
        ]
        return html_table(("metric", "mean", f"scored of {len(self)}"), rows)

    def __len__(self) -> int:
        return len(self.calls)

    @overload
    def __getitem__(self, index: int) -> EvaluatedCall: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[EvaluatedCall, ...]: ...
    def __getitem__(self, index: int | slice) -> EvaluatedCall | tuple[EvaluatedCall, ...]:
        return self.calls[index]

    def rows(self) -> list[dict[str, Plain | None]]:
        """Return one flat dict for each evaluated call, as rows of a table or data frame.

        It has the query, the contexts (the first 20, each cut at 2,000 characters), the answer, each metric's score
        (None: see `<metric>.reason`) and the cost.
        """
        return [_row(each) for each in self.calls]


def evaluate(
    calls: Iterable[RagCall | Mapping[str, object]],
    *,
    metrics: str | Sequence[str | Metric] | None = None,
    judge: Judge | None = None,
    concurrency: int | None = None,
    timeout: Timeout = "judge",
    progress: bool | None = None,
) -> Evaluations:
    """Score many calls concurrently, with or without an event loop in the caller's thread.

    All calls are read before the first is judged: a call that cannot be understood costs nothing.

    Examples:
        >>> tower = ["The tower is in Paris."]
        >>> calls = [{"contexts": tower, "answer": "In Paris."}, {"contexts": tower, "answer": "In Berlin."}]
        >>> found = ragtrace.evaluate(calls, metrics=["consistency"])
        >>> round(found.summary.metrics["consistency"].mean, 2)
        0.54
        >>> [each.results["consistency"].value > 0.5 for each in found]
        [True, False]

    Args:
        calls: `RagCall` objects, or dicts with the keyword arguments of `score` that describe a call.
        metrics: names or `Metric` objects; default: the usual ones that the judge offers; "all": every one that
            costs no judge calls of its own.
        judge: default `EmbeddedJudge()`.
        concurrency: calls the judge sees at a time; None: as the judge's own `JudgeLimits` say, or 16.
        timeout: seconds the judge has for a call, waiting and retries included; None: no limit;
            "judge": as the judge's own `JudgeLimits` say, or 120.
        progress: show it on standard error; default: only where that is a terminal, or when it takes long.

    Returns:
        The calls with their results, in order; `summary` has means, counts, tokens and cost.

    Raises:
        UnknownMetricError: no metric has that name.
        SettingsError: the judge does not offer that metric, or a call cannot be understood; the message says which.
    """
    check_type("judge", judge, Judge)
    if concurrency is not None and (
        not isinstance(concurrency, int) or isinstance(concurrency, bool) or concurrency < 1
    ):
        raise SettingsError(
            f"concurrency= must be a whole number of at least 1, got {concurrency!r}; leave it out for the default"
        )
    asked = judge or embedded_judge()
    wanted = metrics_for(asked, metrics)
    found = [_validated_call(number, call) for number, call in enumerate(calls)]
    began = monotonic()
    builder, evaluations = SummaryBuilder(), dict[int, Evaluation]()
    with show_progress(len(found), quiet=progress is False) as bar:

        async def evaluate_all() -> None:
            made = OfflineEvaluator(asked, wanted, timeout=timeout, concurrency=concurrency)
            async with aclosing(made) as evaluator:

                async def handle(item: tuple[int, RagCall]) -> None:
                    number, call = item
                    evaluations[number] = await evaluator.evaluate_with_retries(call)
                    bar.add(Cost.from_report(evaluations[number]))

                await evaluator.for_each(enumerate(found), handle)

        run_on_own_loop(evaluate_all)
    paired = tuple(EvaluatedCall(call, evaluations[number]) for number, call in enumerate(found))
    for each in paired:
        raw = [name for name, result in each.evaluation.results.items() if is_uncalibrated(result)]
        builder.add(_values(each.evaluation), Cost.from_report(each.evaluation), raw)
    return Evaluations(paired, builder.summary(), monotonic() - began)


def _note(metric: MetricSummary) -> str:
    """Return the words that follow a mean which is not a rate, or ""."""
    return f" ({NOT_A_RATE})" if metric.uncalibrated else ""


def _values(evaluation: Evaluation) -> dict[str, float | str]:
    """Return an evaluation's results by metric name, each a score or the reason why there is none."""
    return {
        name: result.value if isinstance(result, Score) else result.reason
        for name, result in evaluation.results.items()
    }


def _validated_call(number: int, call: RagCall | Mapping[str, object]) -> RagCall:
    try:
        return as_call(call)
    except SettingsError as error:
        raise SettingsError(f"calls[{number}]: {error}") from None


def _row(each: EvaluatedCall) -> dict[str, Plain | None]:
    contexts = each.call.contexts
    # Most contexts in a row of a table, and most characters of each context.
    shown = None if contexts is None else tuple(document.text[:2_000] for document in contexts[:_CONTEXTS])
    row: dict[str, Plain | None] = {"query": each.call.query, "contexts": shown, "answer": each.call.answer}
    for name, value in _values(each.evaluation).items():
        row[name] = None if isinstance(value, str) else value
        row[f"{name}.reason"] = value if isinstance(value, str) else None
    return row | asdict(Cost.from_report(each.evaluation))
