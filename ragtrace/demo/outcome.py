"""Outcome of a demo run: the report on its history, and beside it the truth, which the demo alone knows."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from ragtrace.demo.library import SOURCE
from ragtrace.demo.regression import SHARE, Invention
from ragtrace.report.model import Report, WorstAnswer, to_json

WORST = 2
"""Number of the worst answers that are shown."""
_WIDEST = 100


@dataclass(frozen=True, slots=True)
class Alarm:
    """Alert of the demo, with the number of calls from the simulated release until the alert was raised."""

    rule: str
    mean_calls: int
    """Least mean number of scored calls between two false alarms, stated beforehand."""
    raised_after: int | None = None
    """Number of calls from the simulated release to the one whose score raised the alert; 0 or less: a false alarm
    before the release; None: not raised."""

    def __str__(self) -> str:
        rule = f"{self.rule}, at most one false alarm in {self.mean_calls:,} scored calls in the mean"
        if self.raised_after is None:
            return f"not raised ({rule})"
        soon = f"{self.raised_after:,} calls after the release"
        return f"raised {soon if self.raised_after > 0 else 'FALSELY, before the release'} ({rule})"


@dataclass(frozen=True, slots=True)
class Outcome:
    """Outcome of a demo run: the report on its calls, what was invented in them, the alerts and ragtrace's counts."""

    report: Report
    """Report on the calls of the run, with all answers that look bad at all, the worst first."""
    seed: int
    passages: int
    inventions: Mapping[str, Invention]
    """What the simulated release invented, by the trace id of the call."""
    alarms: Sequence[Alarm]
    stats: Mapping[str, Any]
    """Counts of `ragtrace.stats()`."""
    endpoint: str | None
    """Address to which spans were sent; None: nowhere."""
    seconds: float

    @property
    def flagged(self) -> list[WorstAnswer]:
        """Answers that the judge calls hallucinated: with an unsupported statement, or a probability over a half."""
        return [answer for answer in self.report.problems if not answer.is_raw or answer.score > 0.5]

    @property
    def caught(self) -> list[WorstAnswer]:
        """Those of the flagged answers in which something was invented."""
        return [answer for answer in self.flagged if answer.trace_id in self.inventions]

    @property
    def located(self) -> int:
        """Number of the caught answers in which any of the invented words are marked."""
        made = ((self.inventions[answer.trace_id], answer.marks) for answer in self.caught)
        return sum(any(start < each.end and each.start < end for start, end in marks) for each, marks in made)

    def shown_report(self) -> Report:
        """Return the part of the report that the demo shows: rate, what changed and, beside a chunk, the worst answers.

        Alerts and unscored calls are in the conclusion.
        """
        item, worst = self.report.headline, self.report.problems[:WORST]
        if item is not None:
            item = replace(item, by_workflow=(), by_model=(), by_tags=())
        return replace(
            self.report,
            headline=item,
            measured=(item,) if item is not None and item.is_raw else (),  # whose spread shows what no rate does
            problems=tuple(replace(each, passages=each.passages and each.passages[:1]) for each in worst),
            latest=None,
            grouping=None,
            spent=(),
            alerts=(),
            notes=(),
        )

    def introduction(self) -> str:
        """Return the text above the report."""
        judge = "compares words, which is fit here: the answers quote their passages (extractive=True)"
        if self.report.headline is not None and self.report.headline.is_raw:
            judge = "is a decision model, here one that answers by a rule and errs now and then"
        return _filled(
            f"A RAG application over {self.passages:,} passages of {SOURCE} answered {self.report.calls:,} questions,"
            f" and ragtrace scored each call in the background. The judge {judge}. Half-way a new model was released."
            f" This regression is SIMULATED: it invents details in about {SHARE:.0%} of its answers. From `ragtrace"
            " report`:"
        )

    def conclusion(self) -> str:
        """Return the text below the report: the truth, the alerts, and what became of the calls and spans."""
        lines = (f"{head:<9}{text}" for head, text in self._conclusion())
        return "\n".join(_filled(line, " " * 9) for line in lines)

    def _conclusion(self) -> Iterator[tuple[str, str]]:
        altered, caught = len(self.inventions), len(self.caught)
        yield (
            "truth",
            f"The release invented something in {altered:,} answers. The judge flagged {caught:,} of them"
            f"{f' ({caught / altered:.0%})' if altered else ''}, and marked the invented words in {self.located:,}. Of"
            f" the {self.report.calls - altered:,} other answers it flagged {len(self.flagged) - caught:,}.",
        )
        for number, answer in enumerate(self.report.problems[:WORST], start=1):
            made = self.inventions.get(answer.trace_id)
            instead = f" instead of {made.instead_of!r}" if made and made.instead_of else ""
            yield "", f"Invented in worst answer {number}: {f'{made.text!r}{instead}' if made else 'nothing'}"
        yield from (("alert", str(alarm)) for alarm in self.alarms)
        for name, tally in self.stats["evaluators"].items():
            yield "calls", f"{name}: {_counts(tally)}"
        if self.stats["faults"]:
            yield "failed", f"in ragtrace itself: {_counts(self.stats['faults'])}"
        nowhere = "nowhere: set OTEL_EXPORTER_OTLP_ENDPOINT to send them to a backend"
        yield "spans", f"to {self.endpoint}" if self.endpoint else nowhere
        yield "more", "`ragtrace demo --store demo.db` keeps the calls for `ragtrace report` and `ragtrace open`"
        yield "took", f"{self.seconds:.1f} s"

    def as_json(self) -> dict[str, object]:
        """Build the JSON object that `ragtrace demo --json` prints, whose keys docs/command-line.md describes."""
        return {
            "documents": {"source": SOURCE, "passages": self.passages},
            "seed": self.seed,
            "questions": self.report.calls,
            "simulated_regression": {
                "share": SHARE,
                "inventions": {trace_id: asdict(each) for trace_id, each in self.inventions.items()},
                "caught": len(self.caught),
                "located": self.located,
                "wrongly_flagged": len(self.flagged) - len(self.caught),
            },
            "alerts": [asdict(alarm) for alarm in self.alarms],
            "stats": self.stats,
            "sent_to": {"endpoint": self.endpoint},
            "seconds": round(self.seconds, 2),
            "report": json.loads(to_json(replace(self.report, problems=self.report.problems[:WORST]))),
        }


def _filled(line: str, indent: str = "") -> str:
    return textwrap.fill(line, _WIDEST, subsequent_indent=indent)


def _counts(counts: Mapping[str, int | Mapping[str, int]]) -> str:
    """Format counts by name, such as "offered 400, scored 395, failed (timeout 5)"; those of 0 are left out."""
    shown = ((name.replace("_", " "), count) for name, count in counts.items() if count)
    return ", ".join(f"{name} {f'{n:,}' if isinstance(n, int) else f'({_counts(n)})'}" for name, n in shown)
