"""Alert on the mean score of a metric: its bound, its false-alarm rate and its notifiers."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, TypeAlias, cast, get_args

from ragtrace.alerts.notifiers.notifier import FunctionNotifier, Notifier
from ragtrace.core.errors import SettingsError
from ragtrace.core.tags import check_tag_name

if TYPE_CHECKING:
    from ragtrace.alerts.notice import Notice

Per: TypeAlias = Literal["workflow", "model"]
Bound: TypeAlias = "float | Literal['baseline']"
BASELINE: Final = "baseline"
Notify: TypeAlias = "Notifier | Callable[[Notice], Awaitable[object] | object]"

_FEWEST_CALLS: Final = 10.0
_BATCH: Final = 1
_MOST_BATCH: Final = 1_000
_RECOVERY_CALLS: Final = 100
_MOST_RECOVERY_CALLS: Final = 2_000


@dataclass(frozen=True, slots=True)
class Alert:
    """Alert that fires when the mean score of a metric goes above or below a bound, at a stated false-alarm rate.

    While the rate behind the traffic is within the bound, at least `mean_calls_between_false_alarms` scored calls pass
    before an alarm, in the mean, whatever the distribution of the scores and however the calls were sampled. The
    condition in plain words: given all earlier calls, a call is bad with a probability of at most the bound. Runs of
    bad answers break it. Therefore more bad calls are expected soon after a bad one, as often as has been usual there,
    and a question that is asked again within ten calls counts once. Short runs of bad answers then raise no more
    alarms; longer ones do, however many have been seen: a run of four where bad answers have come singly, one of 22 or
    more where runs are usual.
    The statement holds for each alert, and for each workflow or model that it watches separately, in each process from
    its start. For the values of a tag (`by=`) it holds for all of them together: at least so many scored calls of all
    values pass before the first alarm of any, in the mean, however many values there are and however unequal their
    traffic is.

    With the bound "baseline" each workflow is compared with its own earlier scores (`configure(baseline=...)`): the
    bound is a confidence limit of the baseline's mean. Without a baseline the state is no_baseline and there is no
    alarm. A baseline of 500 calls knows its mean with an error; the number of calls
    between false alarms then is a mean over all baselines that might have been learned.

    The states are ok, spiking, recovering, no_data, judge_failing, no_baseline and no_calibration. A spike ends when
    the last calls are within the bound again; where there are no calls any more, or no scores, it does not. Every alert
    goes to the log and, as an event, to the OpenTelemetry logs; `notify=` adds others. One fault often raises several
    alerts about whether answers rest on the contexts: the second one for the same calls and notifiers goes to the log
    alone.

    Examples:
        >>> alert = ragtrace.Alert("consistency", below="baseline", notify=print)  # or one of ragtrace.alerts
        >>> ragtrace.configure(exporter="none", alerts=[alert], baseline="baseline.json")
        >>> ragtrace.doctor(probe=False).alerts[0].states
        ('no_data',)

    Args:
        metric: name of a metric with range [0, 1] that the judge or the screen computes; of both, the judge's scores
            are used.
        above: alarm when the mean is above this, in (0, 1), or "baseline".
        below: alarm when the mean is below this, in (0, 1), or "baseline". Give at most one of the two; with neither,
            the bound is "baseline", on the side on which scores of the metric are worse. That needs no labels where the
            scores are a decision model's probabilities. A metric of your own, passed to `configure`, needs one of them.
        mean_calls_between_false_alarms: at least 10. Ten times as many make an alarm come later by about a third.
        min_calls: scored calls that must have been seen before there can be an alarm.
        batch: scored calls whose mean counts as one observation; default 1, with a baseline 5. Only with 1 are more bad
            calls expected soon after a bad one.
        window: seconds without any score after which the state is no_data. Log (INFO) and events alone say so.
        missing_after: seconds without any score after which the notifiers are told that scores are missing, once;
            math.inf: never. By default they are told after a gap that is unusual for this application, which each
            process learns from its own gaps between scores within a week (`ragtrace.alerts.score_gaps`): a night or a
            weekend without calls is none.
        recovery_calls: scored calls since the alarm whose mean must be within the bound to end it, and so must be that
            of the last fifth of them; default 100, or more where the bound is so near 0 or 1 that 100 would say little.
        notify: receivers of notices: a function of the `Notice` (plain or async, called on a thread of its own, for at
            most 10 seconds), a notifier of `ragtrace.alerts`, or a sequence of them.
        per: "workflow" or "model": watch each separately; default: all calls together, with a baseline each workflow.
        repeat_every: seconds after which a problem that goes on is notified again; None: never.
        name: default: metric, direction and bound.
        by: name of a tag: watch the calls of each of its values separately, and those without the tag; of at most 200
            values, and the calls of further ones together. Needs a bound that is a number.
        corrected: whether the bound is one of the rate that human labels would show, by the calibration of
            `configure(calibration=...)`: the alert watches the judge's scores, with the bound that stands for it at
            the judge's sensitivity and specificity. Of these the limit towards fewer alarms is used (one-sided 95 %).
            While there is no calibration that holds, the state is no_calibration and there is no alarm.

    Raises:
        SettingsError: if a value is wrong.
    """

    metric: str
    above: Bound | None = None
    below: Bound | None = None
    mean_calls_between_false_alarms: float = 10_000
    min_calls: int = 20
    batch: int | None = None
    window: float = 3600.0
    missing_after: float | None = None
    recovery_calls: int | None = None
    notify: Notify | Sequence[Notify] = ()
    per: Per | None = None
    repeat_every: float | None = 4 * 3600.0
    name: str | None = None
    corrected: bool = False
    by: str | None = None

    def __post_init__(self) -> None:
        _check_text("metric", self.metric, "write for instance 'hallucinated'")
        if self.name is not None:
            _check_text("name", self.name, "leave it out for a name made of metric and bound")
        self._check_bound()
        _check_number("mean_calls_between_false_alarms", self.mean_calls_between_false_alarms, _FEWEST_CALLS, math.inf)
        _check_number("min_calls", self.min_calls, 1, math.inf, whole=True)
        if self.batch is not None:
            _check_number("batch", self.batch, 1, _MOST_BATCH, whole=True)
        _check_number("window", self.window, 1.0, math.inf)
        if self.missing_after is not None and self.missing_after != math.inf:
            _check_number("missing_after", self.missing_after, 1.0, math.inf)
        if self.recovery_calls is not None:
            _check_number("recovery_calls", self.recovery_calls, 5, _MOST_RECOVERY_CALLS, whole=True)
        if self.repeat_every is not None:
            _check_number("repeat_every", self.repeat_every, 1.0, math.inf)
        if self.per is not None and self.per not in get_args(Per):
            raise SettingsError(
                f"per must be 'workflow' or 'model', got {self.per!r}; leave it out for all calls together"
            )
        if self.by is not None:
            check_tag_name(self.by)
            if self.per is not None:
                raise SettingsError(f"by={self.by!r} and per={self.per!r} exclude each other; make two alerts")
            if self.against_baseline:
                raise SettingsError(
                    f"by={self.by!r} and a baseline exclude each other: a baseline is of a workflow; give the bound as "
                    "a number, for instance above=0.1"
                )
        if self.against_baseline and self.per == "model":
            raise SettingsError("per='model' and a baseline exclude each other: a baseline is of a workflow; drop per=")
        if self.against_baseline and self.corrected:
            raise SettingsError(
                "corrected=True and a baseline exclude each other: a baseline is of the judge's scores; give the bound "
                "as a number, for instance 0.05"
            )
        object.__setattr__(self, "notify", tuple(map(_as_notifier, _as_sequence(self.notify))))

    def _check_bound(self) -> None:
        if self.above is None and self.below is None and (side := _worse_side(self.metric)) is not None:
            object.__setattr__(self, side, BASELINE)
        given = {key: value for key, value in (("above", self.above), ("below", self.below)) if value is not None}
        if len(given) != 1:
            raise SettingsError(
                f"an alert has one bound, got above={self.above!r} and below={self.below!r}; write for instance "
                "above=0.05 (two alerts watch both sides)"
            )
        [(key, value)] = given.items()
        if value == BASELINE:
            return
        share = float(value) if _is_number(value) else math.nan
        if not 0.0 < share < 1.0:
            percent = 1.0 < share < 100.0
            hint = f"for {share:g}% write {share / 100:g}" if percent else "write for instance 0.05, or 'baseline'"
            raise SettingsError(f"{key} must be more than 0 and less than 1, got {value!r}; {hint}")

    @property
    def bound(self) -> Bound:
        """Bound of the mean score beyond which the alert fires: the value of `above` or of `below`."""
        return cast("Bound", self.below if self.above is None else self.above)

    @property
    def against_baseline(self) -> bool:
        """Whether the alert compares each workflow with its own earlier scores instead of a fixed bound."""
        return self.bound == BASELINE

    @property
    def rule(self) -> str:
        """Condition of the alert as text with metric, direction and bound, such as `hallucinated above 0.05`."""
        bound = self.bound if isinstance(self.bound, str) else f"{self.bound:g}"
        return f"{self.metric} {self.direction} {bound}{' (corrected)' if self.corrected else ''}"

    @property
    def group_by(self) -> Per | Literal["tag"] | None:
        """Kind of the groups that the alert evaluates separately: `workflow`, `model` or `tag`; None: all together."""
        if self.by is not None:
            return "tag"
        return "workflow" if self.against_baseline else self.per

    @property
    def calls_in_batch(self) -> int:
        """Number of scored calls whose mean score counts as one observation of the alert."""
        # Default batch with a baseline. Such an alert mostly watches graded scores, which have no bad calls after which
        # more could be expected, so the mean of several calls is one observation.
        return self.batch or (5 if self.against_baseline else _BATCH)

    @property
    def direction(self) -> Literal["above", "below"]:
        """Side of the bound on which the alert fires: `above` or `below`."""
        return "below" if self.above is None else "above"

    @property
    def title(self) -> str:
        """Name of the alert: the `name` that the user gave, or else the alert's condition as text."""
        return self.name or self.rule

    @property
    def notifiers(self) -> tuple[Notifier, ...]:
        """Notifiers of the alert, made from the functions and notifiers in `notify`."""
        return cast("tuple[Notifier, ...]", self.notify)

    def badness(self, score: float) -> float:
        """Return how bad *score* is for this alert, from 0 (good) to 1 (bad).

        That is the score for an alert `above`, and 1 minus the score for an alert `below`.
        """
        bounded = min(1.0, max(0.0, score))  # a score may overstep its range by rounding
        return bounded if self.direction == "above" else 1.0 - bounded

    def calls_to_recover(self, limit: float) -> int:
        """Return how many calls after an alarm must have a mean score within the bound to end the alert.

        Args:
            limit: bound of the mean badness, which the default depends on.
        """
        if self.recovery_calls is not None:
            return self.recovery_calls
        rare = min(limit, 1.0 - limit)
        # Bad calls expected at the bound among the calls that decide about a recovery, so that no single call decides.
        return min(_MOST_RECOVERY_CALLS, max(_RECOVERY_CALLS, math.ceil(3.0 / rare)))


def _worse_side(metric: str) -> Literal["above", "below"] | None:
    """Return on which side scores of the registered *metric* are worse, or None if it is not registered."""
    from ragtrace.metrics import registry  # here: all families of metrics take their time to import

    known = registry.find(metric)
    return None if known is None else "below" if known.higher_is_better else "above"


def _as_sequence(notify: object) -> Sequence[object]:
    if isinstance(notify, Sequence) and not isinstance(notify, (str, bytes)):
        return cast("Sequence[object]", notify)
    return () if notify is None else (notify,)


def _as_notifier(value: object) -> Notifier:
    is_class = isinstance(value, type)  # a notifier's class has every attribute that `Notifier` asks for
    if isinstance(value, Notifier) and not is_class:
        return value
    if callable(value) and not is_class:
        return FunctionNotifier(cast("Callable[[Notice], object]", value))
    raise SettingsError(
        f"notify takes functions and notifiers, got {value!r}; write a function of one argument, or for instance "
        "Webhook('https://...') of ragtrace.alerts"
    )


def _check_text(name: str, value: object, advice: str) -> None:
    if not isinstance(value, str) or not value.strip():
        raise SettingsError(f"{name} must be a text, got {value!r}; {advice}")


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


def _check_number(name: str, value: object, least: float, most: float, *, whole: bool = False) -> None:
    good = _is_number(value) and least <= cast("float", value) <= most
    if not good or (whole and cast("float", value) != int(cast("float", value))):
        kind = "a whole number" if whole else "a number"
        upper = "" if most == math.inf else f" and at most {most:g}"
        raise SettingsError(
            f"{name} must be {kind} of at least {least:g}{upper}, got {value!r}; leave it out for the default"
        )
