"""Assertion on the scores of a call (`assert_scores`), for pytest without a plugin.

    def test_the_bot_stays_with_its_sources() -> None:
        question = "Where is the Eiffel Tower?"
        docs = search(question)
        ragtrace.testing.assert_scores(
            {"query": question, "contexts": docs, "answer": ask(question, docs)},
            faithfulness=">= 0.8", hallucination="< 0.2", answered="scored",
        )

An expectation is one of

    ">= 0.8"                a comparison (>=, >, <=, <, ==, !=) with a number; several with "and": ">= 0.2 and < 0.8"
    "scored"                any number
    "unscored"              no number, for whatever reason
    "unscored: no_claims"   no number, for this reason

A metric without a number meets no comparison. Numbers as close as 1e-9 are equal.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from ragtrace.core.errors import SettingsError
from ragtrace.core.labels import Claim
from ragtrace.core.types import Judge, Metric, RagCall, Result, Score
from ragtrace.core.unscored_reasons import status_of
from ragtrace.metrics import registry
from ragtrace.offline.call_records import as_call
from ragtrace.offline.single import evaluate_call

_SLACK: Final = 1e-9
_COMPARISON: Final = re.compile(r"(>=|<=|==|!=|>|<)\s*([-+]?[0-9.]+(?:[eE][-+]?[0-9]+)?)")
_COMPARE: Final[Mapping[str, Callable[[float, float], bool]]] = {
    ">=": lambda value, bound: value >= bound - _SLACK,
    "<=": lambda value, bound: value <= bound + _SLACK,
    ">": lambda value, bound: value > bound + _SLACK,
    "<": lambda value, bound: value < bound - _SLACK,
    "==": lambda value, bound: abs(value - bound) <= _SLACK,
    "!=": lambda value, bound: abs(value - bound) > _SLACK,
}
_ADVICE: Final = 'write for instance ">= 0.8", "> 0.2 and < 0.5", "scored" or "unscored: no_claims"'
_TEXT_CHARS: Final = 160


def assert_scores(
    call: RagCall | Mapping[str, object],
    /,
    *,
    judge: Judge | None = None,
    metrics: Sequence[Metric] = (),
    **expected: str,
) -> Mapping[str, Result]:
    """Score *call*, and assert that each score meets its expectation.

    Examples:
        >>> question, docs = "Where is the tower?", ["The tower is in Paris."]
        >>> scores = ragtrace.testing.assert_scores(
        ...     {"query": question, "contexts": docs, "answer": "In Paris."},
        ...     consistency=">= 0.8",
        ...     answered="scored",
        ... )
        >>> scores["consistency"].value
        1.0

    Args:
        call: a `RagCall`, or a dict with the keyword arguments of `score` that describe a call.
        judge: default `EmbeddedJudge()`.
        metrics: objects for expected metrics that are not registered by name.
        **expected: by metric name, an expectation as above: `faithfulness=">= 0.8"`.

    Returns:
        The results of the metrics named.

    Raises:
        AssertionError: an expectation is not met. The message says which, with the unsupported statements, their places
            in the answer and the chunks they were compared with; or why there is no score.
        UnknownMetricError: no metric has that name.
        SettingsError: an expectation, or the call, cannot be understood.
    """
    __tracebackhide__ = True  # pytest then shows the line of the test
    given = {metric.name: metric for metric in metrics}
    wanted = [given.get(name) or registry.get(name) for name in expected]
    if not wanted:
        raise SettingsError(f"no expectation was given; {_ADVICE.replace('write', 'write faithfulness= and', 1)}")
    met = {metric.name: _parse(metric, expected[metric.name]) for metric in wanted}
    read = as_call(call)
    results = evaluate_call(read, wanted, judge).results
    missed = {name: expected[name].strip() for name, meets in met.items() if not meets(results[name])}
    if missed:
        raise AssertionError("\n".join(_failure_lines(read, results, missed, len(met))))
    return results


def _parse(metric: Metric, text: object) -> Callable[[Result], bool]:
    """Parse an expectation such as ">= 0.8" into a function that checks a metric's result."""
    if not isinstance(text, str):
        raise _expectation_error(metric, text, f"must be a string, {_ADVICE}")
    kind, _, reason = (part.strip() for part in text.partition(":"))
    if text.strip() == "scored":
        return lambda result: isinstance(result, Score)
    if kind == "unscored":
        if reason:
            try:
                status_of(reason)
            except ValueError:
                raise _expectation_error(
                    metric, text, f"unknown reason {reason!r}; docs/metrics.md lists all reasons"
                ) from None
        return lambda result: not isinstance(result, Score) and reason in ("", result.reason)
    bounds = [_bound(metric, text, part.strip()) for part in text.strip().split(" and ")]
    return lambda result: isinstance(result, Score) and all(_COMPARE[sign](result.value, at) for sign, at in bounds)


def _bound(metric: Metric, text: str, part: str) -> tuple[str, float]:
    found = _COMPARISON.fullmatch(part)
    try:
        number = float(found[2]) if found else math.nan
    except ValueError:
        number = math.nan
    if found is None or not math.isfinite(number):
        raise _expectation_error(metric, text, f"{part!r} is no comparison; {_ADVICE}")
    low, high = metric.range
    if not low - _SLACK <= number <= high + _SLACK:
        raise _expectation_error(
            metric, text, f"the bound {number:g} is outside the range [{low:g}, {high:g}] of the metric"
        )
    return found[1], number


def _expectation_error(metric: Metric, text: object, why: str) -> SettingsError:
    return SettingsError(f"{metric.name}={text!r} cannot be understood: {why}")


# --- the failure message ----------------------------------------------------------------------------------------------


def _failure_lines(call: RagCall, results: Mapping[str, Result], missed: Mapping[str, str], total: int) -> list[str]:
    evaluator = results[next(iter(missed))].evaluator
    lines = [f"{len(missed)} of {total} expectations not met, judged by {evaluator}"]
    for name, expectation in missed.items():
        lines += _missed_lines(expectation, name, results[name])
    lines += [f"query:  {_shortened(call.query)}", f"answer: {_shortened(call.answer)}"]
    claims = next((r.claims for r in results.values() if isinstance(r, Score) and r.claims), ())
    for claim in claims:
        if claim.checkable and claim.support != "supported":
            lines += _claim_lines(call, claim)
    return lines


def _missed_lines(expectation: str, name: str, result: Result) -> list[str]:
    seen = f"{result.value:.6g}" if isinstance(result, Score) else f"no score: {result.reason} ({result.status})"
    counts = ", ".join(f"{key} {value}" for key, value in result.attributes.items() if type(value) is int and value)
    lines = [f"  {name}: expected {expectation}, got {seen}{f' ({counts})' if counts else ''}"]
    return lines + ([f"    {result.explanation}"] if result.explanation else [])


def _claim_lines(call: RagCall, claim: Claim) -> list[str]:
    label = (claim.support or "unjudged").replace("_", " ")
    lines = [f"  {label}: {_shortened(claim.text)} (characters {claim.start} to {claim.end} of the answer)"]
    answer, documents = call.answer or "", call.contexts or ()
    for start, end in claim.unsupported:
        lines.append(f"    no chunk has {_shortened(answer[start:end])} (characters {start} to {end})")
    for rank in claim.evidence:
        if 0 <= rank < len(documents):
            name = f" (id {documents[rank].id!r})" if documents[rank].id else ""
            lines.append(f"    held against chunk {rank + 1}{name}: {_shortened(documents[rank].text)}")
        else:
            lines.append(f"    held against chunk {rank + 1}, which the call does not have")
    if claim.quote and not any(claim.quote == document.text for document in documents):
        lines.append(f"    closest passage: {_shortened(claim.quote)}")
    return lines


def _shortened(text: str | None) -> str:
    if text is None:
        return "None"
    folded = " ".join(text.split())
    return repr(folded if len(folded) <= _TEXT_CHARS else f"{folded[: _TEXT_CHARS - 3]}...")
