"""Observers of finished calls: posting of scores to the backends of a route, each those of its own calls."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from time import monotonic
from typing import TYPE_CHECKING

from ragtrace.core.part import ObservableMetric, Part
from ragtrace.core.types import Score
from ragtrace.system.faults import guarded
from ragtrace.system.threads import run_all_bounded
from ragtrace.tagging.routing.span_routes import DEFAULT, count_unrouted
from ragtrace.telemetry.export.score_poster import ScorePoster
from ragtrace.telemetry.scores.score_sender import prevailing_results

if TYPE_CHECKING:
    from ragtrace.core.feedback import Feedback
    from ragtrace.core.score_sink import ScoreSink
    from ragtrace.core.types import Evaluation, RagCall
    from ragtrace.tagging.routing.span_routes import SpanRoutes


class RoutedPoster(ScorePoster):
    """Poster of the scores of the calls that have one value.

    Args:
        routes: say where a call goes.
        value: the value; "" for all other calls.
        shown: the value, in counts.
        sink: the backend's API.
        service: name of the application.
        evidence: whether to quote the claims that are not supported.
    """

    def __init__(
        self, routes: SpanRoutes, value: str, shown: str, sink: ScoreSink, service: str, *, evidence: bool
    ) -> None:
        self._routes, self._value, self._shown = routes, value, shown
        super().__init__(sink, service=service, evidence=evidence)

    @property
    def name(self) -> str:
        """Name of the backend, and the value whose scores it gets."""
        return f"{self.sink.name} of {self._shown}"

    def __call__(self, call: RagCall, evaluations: Sequence[Evaluation], decision: object = None) -> None:
        """Queue the scores of *call*, if it has the value."""
        if self._routes.value_of_route(call.route) == self._value:
            super().__call__(call, evaluations, decision)

    def post_feedback(self, feedback: Feedback) -> None:
        """Queue the user feedback *feedback*, if its call is known to have the value."""
        if self._routes.value_of_span(feedback.span.span_id) == self._value:
            super().post_feedback(feedback)


class LateTags(Part):
    """Observer that tells of calls whose tag is that of another exporter than they went to."""

    def __init__(self, routes: SpanRoutes) -> None:
        self._routes = routes

    def __call__(self, call: RagCall, evaluations: Sequence[Evaluation], decision: object = None) -> None:
        """Look at the tags of a finished call."""
        self._routes.check_tags(call)


class PosterGroup(Part):
    """The posters of all backends as one part of a runtime, so that they deliver at a time, and not in turns.

    Args:
        routes: say where a call goes.
        posters: the posters.
        has_default: whether there is a default exporter; without one, scores that go nowhere are counted.
    """

    def __init__(self, routes: SpanRoutes, posters: Sequence[RoutedPoster], has_default: bool) -> None:
        self._routes, self._posters, self._has_default = routes, tuple(posters), has_default

    def __call__(self, call: RagCall, evaluations: Sequence[Evaluation], decision: object = None) -> None:
        """Queue the scores of *call* for its backend."""
        if not self._has_default and self._routes.value_of_route(call.route) == DEFAULT:
            found = prevailing_results(evaluations).values()
            if scores := sum(isinstance(result, Score) for _, result in found):
                count_unrouted("scores", scores)
            return
        for poster in self._posters:
            with guarded("an observer of calls"):
                poster(call, evaluations, decision)

    def stats(self) -> Mapping[str, Mapping[str, object]]:
        """Return the counts of the scores, by backend."""
        return {"sinks": {poster.outbox.name: poster.outbox.counts() for poster in self._posters}}

    def observations(self) -> Iterator[ObservableMetric]:
        """Return the metric of the scores that were posted, or were not."""
        for poster in self._posters:
            yield from poster.observations()

    def flush(self, timeout: float) -> bool:
        """Post all queued scores within *timeout* seconds, and return whether none was lost."""
        return self._in_parallel([poster.flush for poster in self._posters], timeout)

    def close(self, timeout: float) -> bool:
        """Post all queued scores within *timeout* seconds, refuse more, and return whether none was lost."""
        return self._in_parallel([poster.close for poster in self._posters], timeout)

    def _in_parallel(self, actions: Sequence[Callable[[float], bool]], timeout: float) -> bool:
        deadline = monotonic() + timeout
        return run_all_bounded([lambda act=act: act(timeout) for act in actions], deadline)  # type: ignore[misc]
