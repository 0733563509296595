"""What a run of the demo found out, as plain data: everything that is printed, and the JSON object."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from statistics import fmean

from ragtrace.core import semconv
from ragtrace.demo.regression import Invention

NO_SPAN = "no_span"
"""Reason of a call whose root span never came out of the SDK."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One statement of an answer that the judge did not find supported."""

    text: str
    unsupported: tuple[tuple[int, int], ...]
    """Offsets into the answer of the words that no passage supports; the whole statement if none is singled out."""
    support: float | None
    """Continuous support in [0, 1]."""
    quote: str
    """The closest passage's words; "" if there are none."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the root span of one call says about it."""

    faithfulness: float | None = None
    flagged: bool = False
    """Hallucinated: at least one statement of the answer has no support."""
    reason: str | None = NO_SPAN
    """Why it is unscored; None if it is scored."""
    evaluator: str = ""
    findings: tuple[Finding, ...] = ()


@dataclass(frozen=True, slots=True)
class Call:
    """One question, its answer, what the simulated release invented in it, and the verdict."""

    question: str
    answer: str
    inventions: tuple[Invention, ...]
    half: int
    """0 before the simulated release, 1 after it."""
    verdict: Verdict

    @property
    def located(self) -> bool:
        """Whether some of the words the judge marked are words that were invented."""
        marked = [span for finding in self.verdict.findings for span in finding.unsupported]
        return any(start < made.end and made.start < end for start, end in marked for made in self.inventions)


@dataclass(frozen=True, slots=True)
class Half:
    """The calls before, or after, the simulated release."""

    calls: int
    scored: int
    faithfulness: float | None
    """Mean over the scored calls; None if there is none."""
    flagged: int
    invented: int
    """Calls in whose answer the simulated release invented something: the known truth."""
    caught: int
    """Of these, how many the judge flagged."""
    located: int
    """Of these again, in how many it marked words that were really invented."""
    healthy: int
    """Scored calls in which nothing was invented."""
    wrongly_flagged: int
    """Of these, how many the judge flagged."""
    unscored: Mapping[str, int]
    """Calls without a score, by reason."""

    @property
    def hallucination_rate(self) -> float | None:
        """Share of the scored calls that were flagged."""
        return self.flagged / self.scored if self.scored else None


@dataclass(frozen=True, slots=True)
class Destination:
    """Where the telemetry went."""

    endpoint: str | None
    """None: nowhere."""
    spans: int = 0
    failed: int = 0
    """Spans that the backend did not take."""


@dataclass(frozen=True, slots=True)
class Alarm:
    """One of the alerts that watched the run, and when it was raised."""

    rule: str
    """What was to be told of, stated beforehand."""
    mean_calls: int
    """Scored calls between two false alarms, in the mean, at least; stated beforehand."""
    raised_after: int | None = None
    """Calls since the simulated release, the one included whose score raised it; 0 or less: it was raised before, and
    falsely; None: it was not raised."""
    text: str = ""
    """What was told."""


@dataclass(frozen=True, slots=True)
class Backend:
    """A server that was to run beside the demo."""

    name: str
    url: str | None
    """Where it answers, while the demo stays up; None: it does not run."""
    problem: str = ""
    """Why it does not run, and what to do."""
    shows: str = ""
    """What of the demo was found there."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """A finished run."""

    source: str
    passages: int
    model: str
    seed: int
    share: float
    """Share of the answers that the simulated release is told to alter."""
    calls: Sequence[Call]
    stats: Mapping[str, object]
    destination: Destination
    seconds: float
    notes: Sequence[str] = field(default_factory=tuple)
    alarms: tuple[Alarm, ...] = ()
    backends: Sequence[Backend] = field(default_factory=tuple)

    @property
    def halves(self) -> tuple[Half, Half]:
        """Before and after the simulated release."""
        return tally([call for call in self.calls if call.half == 0]), tally([c for c in self.calls if c.half == 1])

    @property
    def evaluator(self) -> str:
        """id@version of the judge, as the spans name it."""
        return next((call.verdict.evaluator for call in self.calls if call.verdict.evaluator), "none")

    def worst(self, count: int) -> list[Call]:
        """The flagged calls with the lowest faithfulness; of equal ones, those with the least support first."""
        flagged = [call for call in self.calls if call.verdict.flagged and call.verdict.findings]
        return sorted(flagged, key=_badness)[:count]

    def timeline(self, columns: int) -> list[float | None]:
        """Hallucination rate over the run, in equal slices of calls; None where a slice has no scored call."""
        edges = [round(column * len(self.calls) / columns) for column in range(columns + 1)]
        slices = [self.calls[start:end] for start, end in pairwise(edges)]
        return [tally(part).hallucination_rate for part in slices]


def tally(calls: Sequence[Call]) -> Half:
    """Count *calls*."""
    scored = [call for call in calls if call.verdict.reason is None]
    scores = [call.verdict.faithfulness for call in scored if call.verdict.faithfulness is not None]
    flagged = [call for call in scored if call.verdict.flagged]
    caught = [call for call in flagged if call.inventions]
    return Half(
        calls=len(calls),
        scored=len(scored),
        faithfulness=fmean(scores) if scores else None,
        flagged=len(flagged),
        invented=sum(bool(call.inventions) for call in calls),
        caught=len(caught),
        located=sum(call.located for call in caught),
        healthy=sum(not call.inventions for call in scored),
        wrongly_flagged=len(flagged) - len(caught),
        unscored=dict(Counter(call.verdict.reason for call in calls if call.verdict.reason is not None)),
    )


def verdict(attributes: Mapping[str, object]) -> Verdict:
    """Read the scores off a root span's attributes."""
    hallucinated = _number(attributes.get(semconv.eval_score("hallucinated")))
    reason = None
    if hallucinated is None:
        status = attributes.get(semconv.EVAL_STATUS, NO_SPAN)
        reason = str(attributes.get(semconv.eval_reason("hallucinated"), status))
    return Verdict(
        faithfulness=_number(attributes.get(semconv.eval_score("faithfulness"))),
        flagged=hallucinated == 1.0,
        reason=reason,
        evaluator=str(attributes.get(semconv.EVAL_EVALUATOR, "")),
        findings=tuple(map(_finding, json.loads(str(attributes.get(semconv.EVAL_UNSUPPORTED, "[]"))))),
    )


def as_json(outcome: Outcome, worst: int) -> dict[str, object]:
    """The object that `ragtrace demo --json` prints; its keys are described by `ragtrace demo --help`."""
    kinds = Counter(made.kind for call in outcome.calls for made in call.inventions)
    return {
        "documents": {"source": outcome.source, "passages": outcome.passages},
        "model": outcome.model,
        "judge": outcome.evaluator,
        "seed": outcome.seed,
        "questions": len(outcome.calls),
        "simulated_regression": {"share": outcome.share, "inventions": dict(kinds)},
        "before": _half_json(outcome.halves[0]),
        "after": _half_json(outcome.halves[1]),
        "alerts": [asdict(alarm) for alarm in outcome.alarms],
        "worst": [_call_json(call) for call in outcome.worst(worst)],
        "stats": outcome.stats,
        "sent_to": asdict(outcome.destination),
        "seconds": round(outcome.seconds, 2),
        "notes": list(outcome.notes),
        **({"backends": [asdict(backend) for backend in outcome.backends]} if outcome.backends else {}),
    }


def _half_json(half: Half) -> dict[str, object]:
    return {**asdict(half), "hallucination_rate": half.hallucination_rate}


def _call_json(call: Call) -> dict[str, object]:
    return {
        "question": call.question,
        "answer": call.answer,
        "faithfulness": call.verdict.faithfulness,
        "unsupported": [asdict(finding) for finding in call.verdict.findings],
        "invented": [asdict(made) for made in call.inventions],
    }


def _finding(item: Mapping[str, object]) -> Finding:
    spans = item.get("unsupported") or [(item["start"], item["end"])]
    return Finding(
        text=str(item["text"]),
        unsupported=tuple((int(start), int(end)) for start, end in spans),  # type: ignore[attr-defined]
        support=_number(item.get("score")),
        quote=str(item.get("quote") or ""),
    )


def _badness(call: Call) -> tuple[float, bool, float]:
    supports = [finding.support for finding in call.verdict.findings if finding.support is not None]
    unquoted = not any(finding.quote for finding in call.verdict.findings)
    return call.verdict.faithfulness or 0.0, unquoted, min(supports, default=1.0)


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, (int, float)) else None
