"""Telemetry that was lost: what is counted of it, and what a runtime says at its end."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Mapping

from ragtrace.pipeline.dropped_spans import Overflow
from ragtrace.system.faults import say
from ragtrace.telemetry.export.after_fork import SPANS
from ragtrace.telemetry.export.providers import Telemetry

_HISTORY = "history"


def losses(telemetry: Telemetry, overflow: Overflow) -> Mapping[tuple[str, str], int]:
    """Count what was lost so far, by signal (spans, events, history) and reason."""
    overflow.count()
    counts: Counter[tuple[str, str]] = Counter()
    if overflow.counted:
        counts[SPANS, "queue_full"] = overflow.counted
    for what, exporter in telemetry.exporters.items():
        for why, count in exporter.queue.losses.copy().items():
            counts[what, why.replace(" ", "_")] += count
    for history in telemetry.histories:
        for why, count in history.lost.copy().items():
            counts[_HISTORY, why] += count
    return counts


def reported(dropped: Mapping[str, int], undelivered: int, *, delivered: bool) -> bool:
    """Log what was lost; returns whether nothing was.

    Args:
        dropped: calls that went unscored, by reason.
        undelivered: spans and events that did not reach the backend.
        delivered: whether all was exported in time.
    """
    if dropped:
        reasons = ", ".join(f"{count} {reason}" for reason, count in sorted(dropped.items()))
        say(logging.WARNING, "calls that went unscored since ragtrace was configured: %s", reasons)
    if undelivered:
        say(logging.WARNING, "spans and events that were lost on their way to the backend: %d", undelivered)
    elif not delivered:
        say(logging.WARNING, "not everything could be exported before the deadline of ragtrace.shutdown")
    return delivered and not dropped and not undelivered
