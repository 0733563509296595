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

A metric turns the labels that a judge gave one call into one number, or says why there is none: a `Score`, or an
`Unscored` with a reason. It is never NaN, never a default. This page is made of the source by `python -m
docs.make_metrics`.

*Main reply*: the one structured reply of a judge that serves all metrics which say so, at the price of one call.
*Opt-in*: computed only where it is wanted by name (`metrics=[...]`), as it costs judge calls of its own;
`suspicious` is computed by default by the screen of a configured process, which has a baseline.
*Label*: on which side of its threshold a score is called `fail`, else `pass`; `dataclasses.replace(metric,
threshold=...)` makes a metric with another one.

Any metric that asks a judge can also be unscored for a reason of the judge (`unavailable`, `timeout`, `refused`,
`content_filter`, `truncated`, `unparsable`, `ambiguous`, `coverage`, `control_failed`), any metric for one of policy
(`not_sampled`, `budget`, `queue_full`, `disabled`, `shutdown`). A metric that can be `too_many_unjudged` takes another
limit with `metric.tolerating(unjudged=...)`.
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
    while isinstance(function, partial):
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
    return Reference(_joined(blocks[0]), {label: given[label] for label in expected}, tuple(notes))


def render(families: Iterable[ModuleType]) -> str:
    """Return the page of all metrics of *families*: modules with `METRICS`, and perhaps `FACTORIES`."""
    families = tuple(families)
    lines = [_OPENING, *_table(formulas(families)), ""]
    for family in families:
        lines += _family(family)
    return "\n".join(lines)


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
        cells = (f"[`{metric.name}`](#{metric.name})", _range(metric), better, label, calls, about.summary)
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
