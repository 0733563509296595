"""Source of calls: service, release and evaluators of one configured process."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING, Any

from ragtrace.core.text import encodable

if TYPE_CHECKING:
    from ragtrace.evaluation.scoring import Evaluator, Evaluators


@dataclass(frozen=True, slots=True)
class Source:
    """Source of calls: a service in one release, with the evaluators that score its calls and their metrics.

    Without it a score says too little: how many calls could have been judged but were not, and whose scores are the
    ones to be estimated, is known only from the configuration of that time.
    """

    service: str = ""
    release: str = ""
    """The resource attribute `service.version`; empty: it has none."""
    screen: str = ""
    """id@version of the evaluator that saw every call."""
    screened: tuple[str, ...] = ()
    """The metrics in [0, 1] that it was to give."""
    judge: str = ""
    """id@version of the evaluator that saw a sample."""
    judged: tuple[str, ...] = ()

    @classmethod
    def of(cls, evaluators: Evaluators, *, service: str, release: str) -> Source:
        """Return service, release and *evaluators* of a configured process as the source of its calls."""
        screen, judge = evaluators.screen, evaluators.judge
        return cls(service, release, _identity(screen), _estimated(screen), _identity(judge), _estimated(judge))

    def encode(self) -> str:
        """Return the source as JSON text, the same for equal sources."""
        return json.dumps(asdict(self), sort_keys=True)

    @classmethod
    def decode(cls, text: str) -> Source:
        """Return the source from *text*, the output of `encode`; fields unknown to this release are left out."""
        given: dict[str, Any] = json.loads(text)
        read = {field.name: given[field.name] for field in fields(cls) if field.name in given}
        for name in {"screened", "judged"} & set(read):
            read[name] = tuple(read[name])
        return cls(**read)

    def estimated_by(self, metric: str) -> str:
        """Return id@version of the evaluator whose scores of *metric* are estimated; empty if the metric is not."""
        if metric in self.judged:
            return self.judge
        return self.screen if metric in self.screened else ""


def _identity(evaluator: Evaluator | None) -> str:
    return "" if evaluator is None else encodable(f"{evaluator.judge.id}@{evaluator.judge.version}")


def _estimated(evaluator: Evaluator | None) -> tuple[str, ...]:
    metrics = () if evaluator is None else evaluator.metrics
    return tuple(sorted(encodable(metric.name) for metric in metrics if tuple(metric.range) == (0.0, 1.0)))
