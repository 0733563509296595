"""Scores by tag: attributes of their metrics, and the sums from which `estimate(tags=...)` is made."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Final

from ragtrace.core import semconv
from ragtrace.core.part import ObservableMetric, Part, Point
from ragtrace.core.tags import TagValue, tag_text
from ragtrace.core.types import Evaluation, RagCall, SamplingDecision
from ragtrace.estimates import MetricAssignment, RunningMoments

OTHER: Final = "other"
"""Value under which calls are counted once a tag has had its most values."""


class TaggedMoments(Part):
    """Observer of finished calls that keeps sums of scores for each value of some tags, a bounded number of them.

    The first values that come are kept apart; calls with further ones count under `other`, and are counted. The worker
    calls it; readers of metrics and `ragtrace.estimate` read on any thread.

    Args:
        assignment: evaluator of each metric.
        names: names of the tags.
        most_values: values of each tag that are kept apart.
    """

    def __init__(self, assignment: MetricAssignment, names: Sequence[str], most_values: int) -> None:
        self.names, self._assignment, self._most_values = tuple(names), assignment, most_values
        self._lock = threading.RLock()
        self._values: dict[str, dict[str, RunningMoments]] = {name: {} for name in self.names}
        self._others: Counter[str] = Counter()

    def __call__(self, call: RagCall, evaluations: Sequence[Evaluation], decision: SamplingDecision | None) -> None:
        """Add the scores of a finished *call* to the sums of its tags."""
        for name in self.names:
            if name in call.tags:
                value = self._counted_as(name, call.tags[name])
                if value == OTHER:
                    with self._lock:
                        self._others[name] += 1
                self._values[name][value](call, evaluations, decision)

    def attributes(self, call: RagCall) -> dict[str, str]:
        """Return the tags of *call* as attributes of the metrics of its scores."""
        found = ((name, call.tags[name]) for name in self.names if name in call.tags)
        return {semconv.tag(name): self._counted_as(name, value) for name, value in found}

    def of_tag(self, name: str, value: TagValue) -> RunningMoments | None:
        """Return the sums of the calls whose tag *name* has that *value*; None: they may be counted as `other`."""
        with self._lock:
            found = self._values[name].get(tag_text(value))
            if found is None and OTHER not in self._values[name]:
                return RunningMoments(self._assignment)
            return found

    def observations(self) -> Iterator[ObservableMetric]:
        """Return the metric of the calls whose value of a tag is not kept apart."""
        about = "Calls whose value of a tag is counted as other, as there were too many"
        yield ObservableMetric(semconv.METRIC_TAGS_OTHER, "counter", "{call}", about, self._points)

    def _points(self) -> Iterator[Point]:
        with self._lock:
            counts = dict(self._others)
        for name, calls in counts.items():
            yield calls, {semconv.TAG_NAME: name}

    def _counted_as(self, name: str, value: TagValue) -> str:
        """Return the value of a tag, or `other` if it is a new one beyond the most that are kept apart."""
        text, known = tag_text(value), self._values[name]
        with self._lock:
            if text not in known and len(known.keys() - {OTHER}) >= self._most_values:
                text = OTHER
            if text not in known:
                known[text] = RunningMoments(self._assignment, _no_time)
        return text


def _no_time() -> float:
    """Return the one moment of sums that are of the whole life of a process, as slices of time would take memory."""
    return 0.0
