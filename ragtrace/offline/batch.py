"""`evaluate`: many calls at once, and what they come to."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from time import monotonic
from typing import Final, TypeVar, overload

from ragtrace.core.errors import SettingsError
from ragtrace.core.types import Evaluation, Judge, Metric, Plain, RagCall, Result, Score, html_table
from ragtrace.evaluation.metric_selection import check_type, chosen, embedded
from ragtrace.offline.calls import ensured
from ragtrace.offline.evaluator import CONCURRENCY, TIMEOUT_S, Panel
from ragtrace.offline.progress import Progress, shown
from ragtrace.offline.summary import Cost, Summary, Tallier
from ragtrace.system.sync_bridge import apart

T = TypeVar("T")
_CONTEXTS: Final = 20
_CONTEXT_CHARS: Final = 2_000
"""Most contexts in a row of a table, and most characters of each."""


@dataclass(frozen=True, slots=True)
class Evaluated:
    """One call and what was made of it."""

    call: RagCall
    evaluation: Evaluation

    @property
    def results(self) -> Mapping[str, Result]:
        """By metric name."""
        return self.evaluation.results


@dataclass(frozen=True, slots=True, repr=False)
class Evaluations(Sequence[Evaluated]):
    """Many evaluated calls, in the order in which they were given, and what they come to."""

    calls: tuple[Evaluated, ...]
    summary: Summary
    duration_s: float

    def __repr__(self) -> str:
        means = (
            f"{each.metric} {'-' if each.mean is None else f'{each.mean:.4g}'} ({each.scored} scored)"
            for each in self.summary.metrics.values()
        )
        return f"<Evaluations of {len(self)} calls: {', '.join(means) or 'no metric'}>"

    def _repr_html_(self) -> str:
        """A table of the metrics, for notebooks."""
        means = self.summary.metrics.values()
        rows = [(each.metric, "-" if each.mean is None else f"{each.mean:.4g}", str(each.scored)) for each in means]
        return html_table(("metric", "mean", f"scored of {len(self)}"), rows)

    def __len__(self) -> int:
        return len(self.calls)

    @overload
    def __getitem__(self, index: int) -> Evaluated: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[Evaluated, ...]: ...
    def __getitem__(self, index: int | slice) -> Evaluated | tuple[Evaluated, ...]:
        return self.calls[index]

    def rows(self) -> list[dict[str, Plain | None]]:
        """A flat dict for each call, for a table: query, contexts (the first 20, each cut at 2,000 characters), answer,
        each metric's score (None: see `<metric>.reason`), cost.
        """
        return [_row(each) for each in self.calls]


def evaluate(
    calls: Iterable[RagCall | Mapping[str, object]],
    *,
    metrics: str | Sequence[str | Metric] | None = None,
    judge: Judge | None = None,
    concurrency: int = CONCURRENCY,
    timeout: float | None = TIMEOUT_S,
    progress: bool | None = None,
) -> Evaluations:
    """Score many calls, several at a time. Runs with or without an event loop in the caller's thread.

    All calls are read before the first is judged: a call that cannot be understood costs nothing.

    Args:
        calls: `RagCall` objects, or dicts with the keyword arguments of `score` that describe a call.
        metrics: names or `Metric` objects; default: the usual ones that the judge offers; "all": every one that
            costs no judge calls of its own.
        judge: default `EmbeddedJudge()`.
        concurrency: calls the judge sees at a time.
        timeout: seconds the judge has for a call, waiting and retries included; None: no limit.
        progress: show it on standard error; default: only where that is a terminal, or when it takes long.

    Returns:
        The calls with their results, in order; `summary` has means, counts, tokens and cost.

    Raises:
        UnknownMetricError: no metric has that name.
        SettingsError: the judge does not offer that metric, or a call cannot be understood: says which.
    """
    check_type("judge", judge, Judge)
    check_count("concurrency", concurrency)
    asked = judge or embedded()
    wanted = chosen(asked, metrics)
    found = [_numbered(number, call) for number, call in enumerate(calls)]
    began = monotonic()
    with shown(len(found), quiet=progress is False) as bar:
        evaluations = apart(lambda: _all(found, asked, wanted, concurrency, timeout, bar))
    tallier = Tallier()
    for evaluation in evaluations:
        tallier.add(values_of(evaluation), cost_of(evaluation))
    paired = tuple(Evaluated(call, evaluation) for call, evaluation in zip(found, evaluations, strict=True))
    return Evaluations(paired, tallier.summary(), monotonic() - began)


def check_count(name: str, value: object) -> None:
    """Complain of a *value* for the argument *name* that is no whole number above 0.

    Raises:
        SettingsError: it is not.
    """
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise SettingsError(
            f"{name}= must be a whole number of at least 1, got {value!r}; leave it out for the default"
        )


def values_of(evaluation: Evaluation) -> dict[str, float | str]:
    """By metric its score, or the reason why there is none."""
    return {
        name: result.value if isinstance(result, Score) else result.reason
        for name, result in evaluation.results.items()
    }


def cost_of(evaluation: Evaluation) -> Cost:
    """What the judge took for it."""
    return Cost(evaluation.n_calls, evaluation.input_tokens, evaluation.output_tokens, evaluation.cost_usd)


async def in_turn(items: Iterable[T], handle: Callable[[T], Awaitable[None]], concurrency: int) -> None:
    """Handle *items*, up to *concurrency* at a time; an item is taken only when there is a hand free for it.

    The first exception of *handle* or of the iterable ends it all, and is raised.
    """
    source = iter(items)

    async def work() -> None:
        for item in source:
            await handle(item)
            await asyncio.sleep(0)  # a judge that waits for nothing must not keep a cancellation waiting

    tasks = [asyncio.ensure_future(work()) for _ in range(concurrency)]
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


@asynccontextmanager
async def panelled(
    judge: Judge, metrics: Sequence[Metric], concurrency: int, timeout: float | None
) -> AsyncGenerator[Panel, None]:
    """A panel that is closed at the end."""
    panel = Panel(judge, metrics, timeout=timeout, concurrency=concurrency)
    try:
        yield panel
    finally:
        await panel.close()


async def _all(
    calls: Sequence[RagCall],
    judge: Judge,
    metrics: Sequence[Metric],
    concurrency: int,
    timeout: float | None,
    bar: Progress,
) -> list[Evaluation]:
    found: dict[int, Evaluation] = {}
    async with panelled(judge, metrics, concurrency, timeout) as panel:

        async def handle(item: tuple[int, RagCall]) -> None:
            number, call = item
            found[number] = evaluation = await panel.patiently(call)
            bar.judged(cost_of(evaluation))

        # Twice as many: those that pause before a further try leave no place at the judge unused.
        await in_turn(enumerate(calls), handle, 2 * concurrency)
    return [found[number] for number in range(len(calls))]


def _numbered(number: int, call: RagCall | Mapping[str, object]) -> RagCall:
    try:
        return ensured(call)
    except SettingsError as error:
        raise SettingsError(f"calls[{number}]: {error}") from None


def _row(each: Evaluated) -> dict[str, Plain | None]:
    contexts = each.call.contexts
    shown = None if contexts is None else tuple(document.text[:_CONTEXT_CHARS] for document in contexts[:_CONTEXTS])
    row: dict[str, Plain | None] = {"query": each.call.query, "contexts": shown, "answer": each.call.answer}
    for name, value in values_of(each.evaluation).items():
        row[name] = None if isinstance(value, str) else value
        row[f"{name}.reason"] = value if isinstance(value, str) else None
    cost = cost_of(each.evaluation)
    row |= {"n_calls": cost.n_calls, "input_tokens": cost.input_tokens, "output_tokens": cost.output_tokens}
    row["cost_usd"] = cost.cost_usd
    return row
