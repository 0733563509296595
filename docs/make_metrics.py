"""`python -m docs.make_metrics`: writes docs/metrics.md, made of the docstrings and metadata of all metrics."""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from types import ModuleType
from typing import Final, cast

from ragtrace.metrics.formula import Formula
from ragtrace.metrics.registry import FAMILIES

SECTIONS: Final = ("Inputs", "Formula", "Range", "Judge calls", "Unscored", "Source")
_LABELS: Final = "Labels"  # a section that only metrics with labels of their own have
_LABEL: Final = re.compile(rf"^({'|'.join((*SECTIONS, _LABELS))}): ", re.MULTILINE)
_OPENING: Final = """\
# Metrics

A metric turns the labels that a judge gave one call into one number: a `Score`. If there is no number, the result is an
`Unscored` with a reason, never NaN and never a default. This page is generated from the source by `python -m
docs.make_metrics`.

*Main reply*: the judge's one structured reply to its first request about a call. All metrics marked "none beside the
main reply" are computed from it and cost no further request.
*Opt-in*: computed only if named in `metrics=[...]`, because it costs further judge requests. The exception is
`suspicious`: on live traffic it is computed by default, because it needs a baseline but no request.
*Label*: the scores that get the label `fail`; all other scores get `pass`. `dataclasses.replace(metric, threshold=...)`
returns the metric with another threshold.

A metric that can be `too_many_unjudged` takes another limit with `metric.tolerating(unjudged=...)`. At the end of this
page are all [reasons for a missing score](#reasons-for-a-missing-score).
"""


_REASONS: Final = """\
## Reasons for a missing score

The reason is the attribute `ragtrace.eval.<metric>.reason` of a span, and `Unscored.reason`.

The metric does not apply to the call (status `not_applicable`):

| reason | meaning |
|---|---|
| `answer_not_captured` | no answer was found in what the function returned: give the decorator `answer=` or `reduce=` |
| `empty_answer`, `empty_query` | the answer or the query is empty or blank, or the query is broken JSON |
| `contexts_missing` | no retrieval was captured: decorate what retrieves, or name them: `contexts=`, `sources=` |
| `contexts_without_text` | spans of the retrieval have ids of documents and no texts: switch on capture of contents |
| `contexts_ambiguous` | of generations under one span at the same time: which used which documents is not seen |
| `texts_truncated` | texts were cut before the spans, or documents that may change the score were not read |
| `no_contexts` | retrieval returned nothing, or blank texts only |
| `abstained` | the answer declines to answer and states nothing checkable |
| `no_claims`, `no_statements`, `no_sentences` | the answer has no checkable claim, statement or sentence |
| `no_citations` | the answer cites nothing |
| `no_nuggets`, `no_vital_nuggets` | the chunks contain no fact, or no vital fact, that answers the query |
| `no_reference_claims` | the reference states no claim |
| `no_intentions` | the user expressed no intention in the conversation, or withdrew all |
| `needs_reference` | the call has no reference answer: `ragtrace.reference(text)` |
| `needs_conversation` | the call has no earlier turns, or the conversation has more turns than are kept |
| `query_needs_turns` | the query cannot be understood alone ("Yes.", "And its height?"), and no earlier turn is known |
| `needs_runs` | there are fewer than three runs of the query with a score |
| `no_scorer`, `no_embedder`, `no_token_embedder` | the judge has no scorer, or no (token) embedder was given |
| `not_streamed` | the call has no timing: it was not streamed, or not traced |
| `no_token_usage`, `too_few_tokens` | the number of output tokens is unknown, or less than two |
| `zero_mean` | the mean of the runs is 0, so nothing can be relative to it |
| `missing_component` | a metric that this one is computed from has no score |
| `unscorable_script`, `language_mismatch` | the judge compares words, and answer and contexts differ in language |
| `unknown_language` | it is not recognised in the language of the answer whether an answer declines: ask an LLM judge |
| `no_baseline` | the workflow has no baseline yet |

The judge failed (status `judge_error`):

| reason | meaning |
|---|---|
| `unavailable` | the judge cannot be reached, refuses requests (key, model), was cancelled, or its circuit is open |
| `timeout` | the judge did not answer before the call's deadline (`JudgeLimits(timeout=)`) |
| `refused`, `content_filter` | the model refused to judge, or the server withheld the reply |
| `unanswered` | a decision model gave no answer to a question |
| `truncated` | the reply was cut off: raise `max_tokens=`, or use a model with a larger context |
| `unparsable`, `ambiguous` | the reply cannot be read, or holds several different answers |
| `coverage` | more than 20 % of the answer's sentences are in no statement of the reply |
| `unverified` | over 20 % of the statements have a label that the reply shows no passage for (mode `fast`) |
| `too_many_unjudged`, `unjudged_rank` | no valid label for over 20 % of the items, or for one that decides the rank |
| `no_questions` | the model wrote no question for the answer |
| `zero_norm` | an embedding is a vector of zeros |
| `non_finite`, `out_of_range` | a value is NaN or infinite, or outside the range of the metric |
| `metric_error` | the function of the metric raised an exception, timed out, or returned no valid result |

The judge labelled a control item wrongly and its judgement is discarded (status `judge_suspect`): `control_failed`.

The call was not judged (status `skipped`): `not_sampled`, `budget`, `queue_full`, `disabled`, `shutdown`. They have the
same meaning as the [reasons of outcomes](operations.md#statuses-outcomes-and-reasons); `disabled`: ragtrace is off.
"""


@dataclass(frozen=True, slots=True)
class Reference:
    """Summary, sections and notes of a metric's docstring."""

    summary: str
    sections: dict[str, str]
    """By label, in the order of `SECTIONS`."""
    notes: tuple[str, ...]


def reference(metric: Formula) -> Reference:
    """Return the reference of *metric* from the docstring of its function.

    Where the docstring leaves out the range or the judge calls, they are those of the metadata, and none of its own.

    Raises:
        ValueError: the docstring lacks a section, or has them in another order.
    """
    function: object = metric.compute
    rouge = "ROUGE"
    while isinstance(function, partial):
        if {"variant", "part"} <= function.keywords.keys():  # one function computes nine metrics
            rouge = f"ROUGE-{function.keywords['variant'][-1]} {function.keywords['part'].replace('f1', 'F1')}"
        function = cast("partial[object]", function).func
    blocks = re.split(r"\n\s*\n", inspect.getdoc(function) or "")
    better = "higher" if metric.higher_is_better else "lower"
    given = {"Range": f"{_range(metric)}, {better} is better.", "Judge calls": "none beside the main reply."}
    labels: list[str] = []
    notes: list[str] = []
    for block in blocks[1:]:
        pieces = _LABEL.split(block)
        if pieces[0].strip():
            notes.append(_joined(pieces[0]))
        labels += pieces[1::2]
        given.update(zip(pieces[1::2], map(_joined, pieces[2::2]), strict=True))
    expected = [label for label in (*SECTIONS, _LABELS) if label in given]
    if [label for label in expected if label in labels] != labels or not given.keys() >= set(SECTIONS):
        raise ValueError(
            f"the docstring of {metric.name!r} must have the sections {', '.join(SECTIONS)} in this order, "
            f"got {', '.join(labels) or 'none'}"
        )
    return Reference(
        _joined(blocks[0]).replace("ROUGE", rouge), {label: given[label] for label in expected}, tuple(notes)
    )


def render(families: Iterable[ModuleType]) -> str:
    """Return the page of all metrics of *families*: modules with `METRICS`, and perhaps `FACTORIES`."""
    families = tuple(families)
    lines = [_OPENING, *_table(formulas(families)), ""]
    for family in families:
        lines += _family(family)
    return "\n".join((*lines, _REASONS))


def formulas(families: Iterable[ModuleType]) -> tuple[Formula, ...]:
    """Return the metrics of *families*, in their order."""
    return tuple(metric for family in families for metric in cast("tuple[Formula, ...]", family.METRICS))


def _joined(text: str) -> str:
    return " ".join(text.split())


def _table(metrics: Iterable[Formula]) -> Iterator[str]:
    yield "| metric | range | better | label | judge calls | what it measures |"
    yield "|---|---|---|---|---|---|"
    for metric in metrics:
        about = reference(metric)
        better = "higher" if metric.higher_is_better else "lower"
        calls = about.sections["Judge calls"].rstrip(".")
        label = about.sections.get(_LABELS, "").rstrip(".") or _label(metric)
        cells = (f"[`{metric.name}`](#{metric.name.lower()})", _range(metric), better, label, calls, about.summary)
        yield f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


def _range(metric: Formula) -> str:
    low, high = (f"{bound:g}" for bound in metric.range)
    return f"{'[' if low != '-inf' else '('}{low}, {high}{']' if high != 'inf' else ')'}"


def _label(metric: Formula) -> str:
    if metric.threshold is None:
        return "-"
    return f"`fail` {'below' if metric.higher_is_better else 'above'} {metric.threshold:g}"


def _family(family: ModuleType) -> Iterator[str]:
    heading, *rest = re.split(r"\n\s*\n", inspect.getdoc(family) or "")
    yield f"## {_joined(heading).rstrip('.')}\n"
    for paragraph in rest:
        yield f"{_joined(paragraph)}\n"
    for metric in formulas([family]):
        yield from _details(metric)
    for factory in cast("Iterable[Callable[..., object]]", getattr(family, "FACTORIES", ())):
        summary = (inspect.getdoc(factory) or "").split("\n\n")[0]
        yield f"`{factory.__module__}.{factory.__name__}`: {_joined(summary)}\n"


def _details(metric: Formula) -> Iterator[str]:
    about = reference(metric)
    yield f"### {metric.name}\n"
    yield f"{about.summary}{' Opt-in.' if metric.opt_in else ''}\n"
    for label, text in about.sections.items():
        yield f"- {label}: {text}"
    yield f"- Version: {metric.version}."
    if metric.beside:
        yield f"- Computed with it, always: {', '.join(metric.beside)}."
    yield "".join(f"\n{note}\n" for note in about.notes)


if __name__ == "__main__":
    sys.stdout.write(render(FAMILIES))
