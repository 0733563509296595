"""Alerts without a pipeline: fed with scores by hand, on a clock that stands still."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import count
from typing import Any, Final

from opentelemetry.trace import SpanContext, TraceFlags

from ragtrace.alerts import Alert, Alerting, Example, Notice
from ragtrace.core.alert_incident import AlertIncident
from ragtrace.core.settings import resolve_settings
from ragtrace.core.tags import TagValue
from ragtrace.core.types import Document, Evaluation, RagCall, SamplingDecision, Score, Unscored
from ragtrace.estimates import Adjustment, BaselineKey, Distribution, MetricAssignment
from ragtrace.testing import FakeClock
from tests.support.watched import ANSWER, CLAIMS

METRIC: Final = "hallucination"
PLAN: Final = MetricAssignment("screen", frozenset({METRIC, "consistency"}), "judge", frozenset({"faithfulness"}))
_numbers = count(1)
_open: list[Alerting] = []


class Board:
    """Alerting with a fake clock; `notices` are those that a notifier got, once they are flushed."""

    def __init__(
        self,
        *alerts: Alert,
        baseline: Callable[[BaselineKey], Distribution | None] = lambda key: None,
        adjustment: Callable[[BaselineKey], Adjustment | None] = lambda key: None,
        release: str = "",
        stores: Sequence[Callable[[AlertIncident], None]] = (),
        capture_content: str = "SPAN_ONLY",
        **settings: Any,
    ) -> None:
        self.notices: list[Notice] = []
        self.clock = FakeClock(1_000.0)
        usual = settings or {"above": 0.05}
        chosen = alerts or (Alert(METRIC, notify=self.notices.append, **usual),)
        given = {"service": "bot", "trace_url": "https://ui.example/t/{trace_id}", "capture_content": capture_content}
        self.alerting = Alerting(
            chosen,
            PLAN,
            resolve_settings(given, {}),
            baseline=baseline,
            adjustment=adjustment,
            release=release,
            stores=stores,
            clock=self.clock,
            wall=lambda: self.clock.now + 1e9,
        )
        self.name = chosen[0].title
        _open.append(self.alerting)

    def score(self, *values: float, **changes: Any) -> None:
        """Calls that the screen scores, one second apart."""
        for value in values:
            claims = CLAIMS if value > 0 else ()
            self.look({METRIC: Score(value, METRIC, claims=claims)}, **changes)

    def consistency(self, *values: float, **changes: Any) -> None:
        """Calls of which the screen gives the consistency."""
        for value in values:
            self.look({"consistency": Score(value, claims=CLAIMS)}, **changes)

    def fail(self, times: int = 1, reason: str = "unavailable") -> None:
        """Calls that the screen has no score for."""
        for _ in range(times):
            self.look({METRIC: Unscored(reason, METRIC)})

    def look(self, results: dict[str, Score | Unscored], **changes: Any) -> None:
        self.clock.advance(1.0)
        self.alerting(call_of(**changes), [Evaluation("screen", "1", "model", results)])

    def judge(self, value: float, probability: float, decision: SamplingDecision | None) -> None:
        """A call that the judge scores."""
        evaluation = Evaluation("judge", "1", "llm_judge", {"faithfulness": Score(value)}, probability=probability)
        self.alerting(call_of(), [evaluation], decision)

    def notified(self) -> list[tuple[str, str]]:
        """Problem and status of every notice so far."""
        assert self.alerting.flush(10)
        return [(notice.problem, notice.status) for notice in self.notices]

    @property
    def state(self) -> str:
        return self.state_of()

    def state_of(self, workflow: str | None = None) -> str:
        """The state of the first alert, for one workflow if it tells them apart: a data problem before all others."""
        on = [
            row.state
            for row in self.alerting.states()
            if (row.alert, row.workflow, row.on) == (self.name, workflow, True)
        ]
        return min(on, key=lambda state: state not in ("no_data", "judge_failing"), default="no_data")

    def on(self) -> set[str]:
        """The states for which the gauge says 1."""
        return {row.state for row in self.alerting.states() if row.on}


def close_all() -> None:
    """Stop the threads of every board."""
    while _open:
        _open.pop().close(5)


def call_of(
    workflow: str = "guide",
    model: str | None = None,
    query: str | None = None,
    contexts: tuple[Document, ...] = (),
    tags: Mapping[str, TagValue] | None = None,
) -> RagCall:
    """A call with a span, and unless it is given with a question, of its own."""
    number = next(_numbers)
    return RagCall(
        query or f"where? {number}",
        contexts,
        ANSWER,
        workflow=workflow,
        model=model,
        span=SpanContext(number, number, False, TraceFlags(1)),
        tags=tags or {},
    )


def notice(**changes: Any) -> Notice:
    """A spike."""
    fields: dict[str, Any] = {
        "id": "n1", "key": "k1", "alert": "bad answers", "metric": METRIC, "direction": "above", "bound": 0.05,
        "problem": "spiking", "status": "firing", "at": 1_000_000_100.0, "since": 1_000_000_000.0, "calls": 40,
        "mean_calls_between_false_alarms": 10_000.0, "service": "bot", "workflow": "guide",
        "worst": (Example("0af7651916cd43dd8448eb211c80319c", 1.0, 1_000_000_050.0,
                           ("Paris is on <!channel> & Mars.",), "where?"),),
    }  # fmt: skip
    return Notice(**{**fields, **changes})


class Notified:
    """Notifier that runs a script at each attempt, and keeps the notices that it got."""

    name = "scripted"

    def __init__(self, script: Callable[[int], object] = lambda number: None) -> None:
        self.got: list[Notice] = []
        self.tries = 0
        self._script = script

    def send(self, notice: Notice, timeout: float) -> None:
        self.tries += 1
        self._script(self.tries)
        self.got.append(notice)
