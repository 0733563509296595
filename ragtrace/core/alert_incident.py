"""Incident of an alert: what one process has seen of a problem, from its beginning to its end."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class AlertIncident:
    """Problem that an alert of one process has seen, as far as it is known by now.

    Each process watches the calls that it scores itself, so it has incidents of its own: one may be over in a process
    while it lasts in another. The fields are the columns of the history's table `alerts`.
    """

    id: str
    """Id of the incident in this process: the same for all that is known of it over time."""
    key: str
    """Id of the problem: the same in all processes, and when it comes again."""
    alert: str
    metric: str
    problem: str
    """Kind of the problem: `spiking`, `no_data`, `judge_failing` or `judge_drift`."""
    direction: str
    """Side of the bound on which a mean is bad: `above` or `below`."""
    bound: float
    against_baseline: bool
    """Whether the bound follows from a baseline."""
    workflow: str | None
    """Workflow of the calls; None: all workflows."""
    model: str | None
    """Model of the calls; None: all models."""
    release: str
    evaluator: str
    since: float
    """Time when the problem began, in seconds since the epoch."""
    seen: float
    """Time when the problem was last known to last."""
    ended: float | None
    """Time when the problem was over; None: it is not, as far as is known."""
    calls: int
    """Number of scored calls behind `value`."""
    value: float | None
    """Mean score since a spike began; None: there is none."""
    low: float | None
    """Lower end of the 95 % interval of `value`."""
    high: float | None
    before: float | None
    """Mean score before a spike; None: not known."""
    is_raw: bool
    """Whether the scores are raw probabilities of a decision model, so that their mean is no rate."""
