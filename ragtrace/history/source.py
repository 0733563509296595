"""Origin of stored calls: the service, release and evaluators of the process that recorded them."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING

from ragtrace.core.text import encodable
from ragtrace.history.stored_json import needed_object

if TYPE_CHECKING:
    from ragtrace.evaluation.scoring import Evaluator, Evaluators


@dataclass(frozen=True, slots=True)
class CallOrigin:
    """Origin of stored calls: a process's service and release, and its configured evaluators and metrics.

    Only the configuration of that time says how many calls could have been judged but were not, and from whose scores
    a metric is estimated.
    """

    service: str = ""
    release: str = ""
    """Release of the application, from the resource attribute `service.version`; empty: not known."""
    screen: str = ""
    """Evaluator (`id@version`) that saw every call; empty: none did."""
    screened: tuple[str, ...] = ()
    """Names of the metrics with scores in [0, 1] that the screen was to compute."""
    judge: str = ""
    """Evaluator (`id@version`) that saw a sample of the calls; empty: none did."""
    judged: tuple[str, ...] = ()

    @classmethod
    def from_evaluators(cls, evaluators: Evaluators, *, service: str, release: str) -> CallOrigin:
        """Create the `CallOrigin` of a process from its evaluators, its service name and its release."""
        screen, judge = evaluators.screen, evaluators.judge
        return cls(
            service, release, _identity(screen), _estimated_metrics(screen), _identity(judge), _estimated_metrics(judge)
        )

    def encode(self) -> str:
        """Return the origin as JSON text, which is the same for equal origins."""
        return json.dumps(asdict(self), sort_keys=True)

    @classmethod
    def decode(cls, text: str) -> CallOrigin:
        """Create a `CallOrigin` from JSON text written by `encode`, ignoring unknown fields."""
        given = needed_object(text, "source of calls")
        read = {field.name: given[field.name] for field in fields(cls) if field.name in given}
        for name in {"screened", "judged"} & set(read):
            read[name] = tuple(read[name])
        return cls(**read)

    def estimated_by(self, metric: str) -> str:
        """Return the evaluator (id@version) from whose scores *metric* is estimated, or "" if there is none."""
        if metric in self.judged:
            return self.judge
        return self.screen if metric in self.screened else ""


def _identity(evaluator: Evaluator | None) -> str:
    return "" if evaluator is None else encodable(f"{evaluator.judge.id}@{evaluator.judge.version}")


def _estimated_metrics(evaluator: Evaluator | None) -> tuple[str, ...]:
    metrics = () if evaluator is None else evaluator.metrics
    return tuple(sorted(encodable(metric.name) for metric in metrics if tuple(metric.range) == (0.0, 1.0)))
