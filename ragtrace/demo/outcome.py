"""Outcome of a demo run as plain data, from which the demo's report and JSON object are created."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from statistics import fmean

from ragtrace.core import semconv
from ragtrace.demo.library import SOURCE
from ragtrace.demo.regression import Invention


@dataclass(frozen=True, slots=True)
class Finding:
    """Statement in an answer that the judge found unsupported, with the unsupported words."""

    text: str
    unsupported: tuple[tuple[int, int], ...]
    """Offsets into the answer of the words that no passage supports, or of the whole statement if none stands out."""
    support: float | None
    """Degree of support by the passages, in [0, 1]; None: the judge gives no degree."""
    quote: str
    """Words of the closest passage; "" if there is none."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """The judge's verdict on one answer (scores and unsupported statements), as read from the root span."""

    faithfulness: float | None = None
    flagged: bool = False
    """Whether the answer is hallucinated: at least one statement has no support."""
    reason: str | None = "no_span"
    """Reason why the call is unscored ("no_span": the SDK exported no root span); None if the call is scored."""
    evaluator: str = ""
    findings: tuple[Finding, ...] = ()
    raw_score: float | None = None
    """Score of `hallucinated` as a decision model gave it, whose mean is no rate; None: the judge is another one."""


@dataclass(frozen=True, slots=True)
class DemoCall:
    """One call of the demo's application: question, answer, any invented words, and the judge's verdict."""

    question: str
    answer: str
    invention: Invention | None
    released: bool
    """Whether the simulated release gave the answer, rather than the model before the release."""
    trace_id: int = field(default=0, compare=False)
    verdict: Verdict = Verdict()

    @property
    def located(self) -> bool:
        """Whether the judge marked at least one of the words that the simulated release invented."""
        marked = [span for finding in self.verdict.findings for span in finding.unsupported]
        made = self.invention
        return made is not None and any(start < made.end and made.start < end for start, end in marked)


@dataclass(frozen=True, slots=True)
class HalfCounts:
    """Counts over the demo's calls before, or after, the simulated release, such as scored and flagged calls."""

    calls: int
    scored: int
    faithfulness: float | None
    flagged: int
    hallucination_rate: float | None
    raw_score: float | None
    """Mean score of a decision model, which is no rate; None: the judge is another one."""
    invented: int
    caught: int
    located: int
    healthy: int
    wrongly_flagged: int
    unscored: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Destination:
    """Endpoint that the demo's spans were sent to, if any, with the numbers of accepted and refused spans."""

    endpoint: str | None
    spans: int = 0
    failed: int = 0


@dataclass(frozen=True, slots=True)
class Alarm:
    """Alert of the demo, with the number of calls from the simulated release until the alert was raised."""

    rule: str
    mean_calls: int
    """Least mean number of scored calls between two false alarms, stated beforehand."""
    raised_after: int | None = None
    """Number of calls from the simulated release to the one whose score raised the alert; 0 or less: a false alarm
    before the release; None: not raised."""
    text: str = ""
    """Text of the notification; empty: none was sent."""


@dataclass(frozen=True, slots=True)
class Backend:
    """Backend server started for the demo by `--backends`, or the problem that kept it from running."""

    name: str
    url: str | None
    """URL while the demo stays up; None: the server does not run."""
    problem: str = ""
    """Reason why the server does not run, and what to do; empty: no problem."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """Outcome of a demo run: the calls with their scores, the alerts and ragtrace's statistics."""

    passages: int
    seed: int
    share: float
    """Share of the answers that the simulated release is asked to alter, in [0, 1]."""
    calls: Sequence[DemoCall]
    stats: Mapping[str, object]
    destination: Destination
    seconds: float
    alarms: Sequence[Alarm] = ()
    backends: Sequence[Backend] = ()

    @property
    def halves(self) -> tuple[HalfCounts, HalfCounts]:
        """Counts over the demo's calls before the simulated release, and over the calls after the release."""
        before, after = ([call for call in self.calls if call.released is released] for released in (False, True))
        return count_calls(before), count_calls(after)

    @property
    def evaluator(self) -> str:
        """Identity of the judge (id@version), as found on the spans."""
        return next((call.verdict.evaluator for call in self.calls if call.verdict.evaluator), "none")

    def worst(self, count: int) -> list[DemoCall]:
        """Return up to *count* calls flagged as hallucinated, lowest faithfulness first."""
        flagged = [call for call in self.calls if call.verdict.flagged and call.verdict.findings]
        flagged.sort(key=lambda call: not any(finding.quote for finding in call.verdict.findings))
        return sorted(flagged, key=lambda call: call.verdict.faithfulness or 0.0)[:count]

    def timeline(self, columns: int) -> list[float | None]:
        """Return the hallucination rate in each of *columns* equal parts of the run, with None for an unscored part."""
        edges = [round(column * len(self.calls) / columns) for column in range(columns + 1)]
        return [count_calls(self.calls[start:end]).hallucination_rate for start, end in pairwise(edges)]


def count_calls(calls: Sequence[DemoCall]) -> HalfCounts:
    """Count how many of the demo's *calls* were scored, flagged as hallucinated, altered by the release, and so on."""
    scored = [call for call in calls if call.verdict.reason is None]
    scores = [call.verdict.faithfulness for call in scored if call.verdict.faithfulness is not None]
    flagged = [call for call in scored if call.verdict.flagged]
    caught = [call for call in flagged if call.invention]
    raw = [call.verdict.raw_score for call in scored if call.verdict.raw_score is not None]
    return HalfCounts(
        calls=len(calls),
        scored=len(scored),
        faithfulness=fmean(scores) if scores else None,
        flagged=len(flagged),
        hallucination_rate=len(flagged) / len(scored) if scored and not raw else None,
        raw_score=fmean(raw) if raw else None,
        invented=sum(call.invention is not None for call in calls),
        caught=len(caught),
        located=sum(call.located for call in caught),
        healthy=sum(call.invention is None for call in scored),
        wrongly_flagged=len(flagged) - len(caught),
        unscored=dict(Counter(call.verdict.reason for call in calls if call.verdict.reason is not None)),
    )


def read_verdict(attributes: Mapping[str, object]) -> Verdict:
    """Read the judge's verdict on one call from the attributes of the call's root span."""

    def number(value: object) -> float | None:
        return float(value) if isinstance(value, (int, float)) else None

    def finding(item: Mapping[str, object]) -> Finding:
        spans = item.get("unsupported") or [(item["start"], item["end"])]
        return Finding(
            text=str(item["text"]),
            unsupported=tuple((int(start), int(end)) for start, end in spans),  # type: ignore[attr-defined]
            support=number(item.get("score")),
            quote=str(item.get("quote") or ""),
        )

    hallucinated = number(attributes.get(semconv.eval_score("hallucinated")))
    status = attributes.get(semconv.EVAL_STATUS, "no_span")
    return Verdict(
        faithfulness=number(attributes.get(semconv.eval_score("faithfulness"))),
        flagged=hallucinated is not None and hallucinated > 0.5,  # a judge of words says 0 or 1
        reason=str(attributes.get(semconv.eval_reason("hallucinated"), status)) if hallucinated is None else None,
        evaluator=str(attributes.get(semconv.EVAL_EVALUATOR, "")),
        findings=tuple(map(finding, json.loads(str(attributes.get(semconv.EVAL_UNSUPPORTED, "[]"))))),
        raw_score=hallucinated if semconv.eval_calibration("hallucinated") in attributes else None,
    )


def as_json(outcome: Outcome, worst: int) -> dict[str, object]:
    """Build the JSON object that `ragtrace demo --json` prints, whose keys docs/command-line.md describes.

    Args:
        worst: how many of the worst answers it holds.
    """
    return {
        "documents": {"source": SOURCE, "passages": outcome.passages},
        "judge": outcome.evaluator,
        "seed": outcome.seed,
        "questions": len(outcome.calls),
        "simulated_regression": {
            "share": outcome.share,
            "inventions": dict(Counter(call.invention.kind for call in outcome.calls if call.invention)),
        },
        "before": asdict(outcome.halves[0]),
        "after": asdict(outcome.halves[1]),
        "alerts": [asdict(alarm) for alarm in outcome.alarms],
        "worst": [
            {
                "question": call.question,
                "answer": call.answer,
                "faithfulness": call.verdict.faithfulness,
                "unsupported": [asdict(finding) for finding in call.verdict.findings],
                "invented": [asdict(call.invention)] if call.invention else [],
            }
            for call in outcome.worst(worst)
        ],
        "stats": outcome.stats,
        "sent_to": asdict(outcome.destination),
        "seconds": round(outcome.seconds, 2),
        **({"backends": [asdict(backend) for backend in outcome.backends]} if outcome.backends else {}),
    }
