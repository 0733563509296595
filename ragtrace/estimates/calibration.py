"""Calibration file: summaries of human labels, by which a judge's mean scores on other calls are corrected.

A calibration belongs to one `CalibrationKey`. It holds sums over the labelled calls, each of which counts by its weight
v, the inverse of the probability with which it was judged and labelled; y is the judge's score and z the label, both in
the direction of the metric:
    w, wz, wy, wzy     sums of the weights and of their products with labels and scores
    ww, wwz, wwzz      sums of the squared weights and of their products with labels
    uw, uwy, uww, uwwy as w, wy, ww and wwy, but over the calls that the reviewers are unsure about

**Corrected rate.** The judge's mean score is s = wzy / wz over the calls whose label is 1 and q = (wy - wzy) / (w - wz)
over the others (sensitivity, and 1 - specificity, where the scores are 0 and 1). A mean score Y of the judge elsewhere
becomes (Y - q) / (s - q). It holds where s and q are the same there; labels of that very traffic need no such
assumption: `corrected_rate`. The interval counts the labels by their effective numbers (wz)^2 / wwzz and
(w - wz)^2 / (ww - 2 wwz + wwzz).

**Unsure labels.** The corrected rate falls as s or q rises. Whichever of the unsure calls are bad, s and q are at most
what they are with a further weight uwy of the score 1, and at least what they are with a further weight uw - uwy of the
score 0, on either side. So the interval begins where it begins at the highest s and q, and ends where it ends at the
lowest. Where good and bad calls may have the same mean score then, that end is 0 or 1.

Source: Rogan and Gladen 1978, American Journal of Epidemiology 107:71; Lang and Reiczigel 2014, Preventive Veterinary
Medicine 113:13 (the interval, with adjusted counts).
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Final, Generic, NamedTuple, cast

from ragtrace.core import semconv
from ragtrace.core.errors import SettingsError
from ragtrace.core.part import ObservableMetric, Part, Point
from ragtrace.core.text import OwnText
from ragtrace.core.types import (
    CALIBRATED,
    CALIBRATED_PROBABILITY,
    CALIBRATION,
    NOT_A_RATE,
    STALE_CALIBRATION,
    Evaluation,
    RagCall,
    Result,
    SamplingDecision,
    Score,
    is_raw_probability,
)
from ragtrace.estimates.estimate import Estimate, missing_estimate
from ragtrace.estimates.false_blocks import FalseBlocks, read_false_blocks
from ragtrace.estimates.formulas import Arithmetic, Floats, IntervalBounds, Q, Z
from ragtrace.estimates.score_curve import FEWEST_FOR_RATE, ScoreCalibration
from ragtrace.system.atomic_file import write_atomically
from ragtrace.system.faults import faults

_DECIDED_SUMS: Final = ("w", "wz", "wy", "wzy", "ww", "wwz", "wwzz")
UNSURE_SUMS: Final = ("uw", "uwy", "uww", "uwwy")
"""Names of the sums over the calls that reviewers are unsure about; calibrations of older versions lack them."""
LABEL_SUMS: Final[tuple[str, ...]] = (*_DECIDED_SUMS, *UNSURE_SUMS)
"""Names of the sums over labelled calls, which are the values of `semconv.MOMENT` in exported metrics."""
UNINFORMATIVE: Final = "judge_uninformative"
"""Reason for a missing estimate: the judge marks good calls as bad about as often as bad ones."""
ONE_KIND_LABELLED: Final = "one_kind_labelled"
"""Reason for a missing estimate: all labels are good, or all are bad."""
NOT_CALIBRATED: Final = "not_calibrated"
"""Reason for a missing corrected estimate: the metric has no calibration."""
TOO_FEW_LABELS: Final = "too_few_labels"
"""Reason for a missing corrected estimate: fewer labels than correct the scores of a decision judge."""
STALE: Final = "stale_calibration"
"""Reason for a missing corrected estimate: the labels belong to another decision judge, question set or model."""
LEAST_INFORMATION: Final = 0.1
"""Least difference between the judge's mean scores of bad and good calls by which a rate is corrected."""
_FORMAT: Final = "ragtrace-calibration"
_VERSION: Final = 1
_KIND: Final = {str: "a text", int: "a whole number", float: "a number", bool: "true or false"}


class CalibrationKey(NamedTuple):
    """Key of a calibration: the judge and the metric whose scores the calibration corrects."""

    metric: str
    metric_version: str
    evaluator: str
    """Id of the judge, without version."""
    evaluator_version: str
    prompt_hash: str = ""
    """Hash of the judge's prompts; empty: the judge has no prompts, or the hash is not known."""
    served_model: str = ""
    """Model that the judge's server reported to have answered; empty: not known."""

    def differences(self, other: CalibrationKey) -> str:
        """Describe the fields in which the key *other* differs from this key, such as "metric version 2 instead of 1".

        The description is empty if the calibration holds for *other*. A prompt hash or a served model that is not known
        on one of the two sides is not compared.
        """
        found: list[str] = []
        for name, mine, theirs in zip(self._fields, self, other, strict=True):
            known = bool(mine and theirs) or name not in ("prompt_hash", "served_model")
            if known and mine != theirs:
                found.append(f"{name.replace('_', ' ')} {theirs or 'unknown'} instead of {mine or 'unknown'}")
        return ", ".join(found)


@dataclass(frozen=True, slots=True)
class JudgeCalibration:
    """Calibration of one judge for one metric by human labels: one entry of a calibration file."""

    key: CalibrationKey
    made_at: float
    """Time when the calibration was made, in seconds since the epoch."""
    labels: int
    """Number of labelled calls."""
    higher_is_better: bool
    threshold: float | None
    """Score that the labels recommend as the bound between good and bad calls; None: too few labels for one."""
    sums: Mapping[str, float]
    """Sums over the labelled calls, by the names in `LABEL_SUMS`; scores and labels are high where the metric is."""
    scores: ScoreCalibration | None = None
    """Curve of a decision judge's scores, of badness: 1 is bad; None: the judge is another one."""
    blocks: FalseBlocks | None = None
    """Numbers of labelled answers that a guard would block; None: the file was made before there were guards."""

    def correct(self, judge: Estimate, stale: str = "") -> Estimate:
        """Return the judge's estimate of a mean score corrected by the human labels, with its 95 % interval.

        Args:
            judge: the judge's estimate.
            stale: why the calibration does not hold for that judge; empty: it does.
        """
        if judge.value is None or judge.low is None or judge.high is None:
            return replace(judge, corrected="rogan_gladen", stale=stale)
        reason = self.unusable
        if not reason and stale and self.scores is not None:
            reason = STALE
        if reason:
            missing = missing_estimate(reason, judge.method, judge.of, metric=judge.metric, workflow=judge.workflow)
            return replace(missing, n=judge.n, evaluator=judge.evaluator, corrected="rogan_gladen", stale=stale)
        bounds = IntervalBounds(judge.value, judge.low, judge.high, judge.weight)
        found = transported_bounds(bounds, self.sums, Floats())
        return replace(
            judge, value=found.value, low=found.low, high=found.high, corrected="rogan_gladen", stale=stale
        )  # fmt: skip

    @property
    def unusable(self) -> str:
        """Reason why the labels cannot correct the judge's mean score, or "" if they can."""
        if self.scores is not None and self.scores.labels < FEWEST_FOR_RATE:
            return TOO_FEW_LABELS
        if min(self.sums["wz"], self.sums["w"] - self.sums["wz"]) <= 1e-9 * self.sums["w"]:
            return ONE_KIND_LABELLED
        known = label_rates(self.sums, Floats())
        return UNINFORMATIVE if informedness(self.sums, known, Floats()) <= LEAST_INFORMATION else ""

    def judge_bound(self, bound: float, *, above: bool) -> float:
        """Convert a *bound* on the mean human label to a bound on the judge's mean score.

        It is the one-sided 95 % limit towards fewer alarms, because the labels know the judge's errors only so well,
        whatever the unsure ones may be.

        Args:
            bound: rate by human labels, in (0, 1).
            above: whether rates above it are wanted; else those below it.
        """
        known = unsure_rates(self.sums, Floats(), highest=above)
        value = known.otherwise + bound * (known.labelled - known.otherwise)
        error = 1.6449 * math.sqrt(bound**2 * known.of_labelled + (1.0 - bound) ** 2 * known.of_otherwise)
        return min(1.0 - 1e-6, max(1e-6, value + error if above else value - error))


@dataclass(frozen=True, slots=True)
class LabelRates(Generic[Q]):
    """Judge's mean score for each human label, with its variance.

    One imagined score of 0 and one of 1 are added to the scores of each label.
    """

    labelled: Q
    """Mean score of the calls with the label 1."""
    otherwise: Q
    of_labelled: Q
    """Variance of the mean in `labelled`."""
    of_otherwise: Q


def label_rates(sums: Mapping[str, Q], a: Arithmetic[Q]) -> LabelRates[Q]:
    """Return the judge's mean score for each human label, from sums over the labelled calls.

    The calls must include some of each label. Calls with an unsure label do not count.
    """
    nothing = sums["w"] * 0.0
    return _rates_with(sums, a, "", nothing, nothing, nothing)


def unsure_rates(sums: Mapping[str, Q], a: Arithmetic[Q], *, highest: bool) -> LabelRates[Q]:
    """Return the judge's mean score for each human label as high, or low, as unsure labels let it be.

    Args:
        sums: `LABEL_SUMS` by name, of labelled calls of both kinds.
        a: arithmetic that computes with them.
        highest: whether the highest mean scores are wanted; else the lowest.
    """
    if highest:
        return _rates_with(sums, a, "highest_", sums["uwy"], sums["uwy"], sums["uwwy"])
    return _rates_with(
        sums, a, "lowest_", sums["uw"] - sums["uwy"], sums["uwy"] * 0.0, sums["uww"] - sums["uwwy"]
    )  # fmt: skip


def _rates_with(sums: Mapping[str, Q], a: Arithmetic[Q], prefix: str, weight: Q, score: Q, squares: Q) -> LabelRates[Q]:
    """Return the judge's mean score for each human label, where further calls count for both labels.

    Args:
        sums: `LABEL_SUMS` by name.
        a: arithmetic that computes with them.
        prefix: prefix of the names of the steps.
        weight: sum of the weights of the further calls.
        score: sum of the products of their weights and the judge's scores.
        squares: sum of their squared weights.
    """
    rates: list[Q] = []
    variances: list[Q] = []
    for name, of_label, of_score, of_square in (
        ("labelled", sums["wz"], sums["wzy"], sums["wwzz"]),
        ("otherwise", sums["w"] - sums["wz"], sums["wy"] - sums["wzy"], sums["ww"] - 2.0 * sums["wwz"] + sums["wwzz"]),
    ):
        total = of_label + weight
        count = a.define(f"{prefix}{name}_count", total * total / (of_square + squares))
        rate = a.define(f"{prefix}{name}_rate", (count * ((of_score + score) / total) + 1.0) / (count + 2.0))
        rates.append(rate)
        variances.append(a.define(f"{prefix}{name}_variance", rate * (1.0 - rate) / (count + 2.0)))
    return LabelRates(*rates, *variances)


def informedness(sums: Mapping[str, Q], known: LabelRates[Q], a: Arithmetic[Q]) -> Q:
    """Return how much the judge's mean score differs between the two human labels (Youden's J).

    It is the lesser of the plain difference and of the difference with adjusted counts (*known*).
    """
    rest = sums["w"] - sums["wz"]
    plain = sums["wzy"] / sums["wz"] - (sums["wy"] - sums["wzy"]) / rest
    return a.define("informedness", a.minimum(plain, known.labelled - known.otherwise))


def transported_bounds(judge: IntervalBounds[Q], sums: Mapping[str, Q], a: Arithmetic[Q]) -> IntervalBounds[Q]:
    """Convert the judge's mean score to the corresponding mean human label, with a 95 % interval.

    Args:
        judge: the judge's mean score with its interval.
        sums: `LABEL_SUMS` by name, of labelled calls of both kinds, with an `informedness` above 0.
        a: arithmetic that computes with them.
    """
    rest = sums["w"] - sums["wz"]
    otherwise = a.define("otherwise", (sums["wy"] - sums["wzy"]) / rest)
    rate = (judge.value - otherwise) / (sums["wzy"] / sums["wz"] - otherwise)
    middle = a.define("middle", (judge.low + judge.high) * 0.5)
    half = (judge.high - judge.low) * (0.5 / Z)
    variance = a.define("judge_variance", half * half)
    least = judge.value * 0.0 + LEAST_INFORMATION
    ends: list[Q] = []
    for name, sign, unknown in (("highest", -1.0, 0.0), ("lowest", 1.0, 1.0)):
        known = unsure_rates(sums, a, highest=name == "highest")
        informed = a.define(f"{name}_informed", known.labelled - known.otherwise)
        # Where unsure labels may hide that the judge tells nothing, the rate may be anything.
        told = a.define(f"{name}_told", a.ratio(informed, informed, least, 0.0))
        end = _rogan_gladen_end(sign, middle, variance, known, a.maximum(informed, least), a, f"{name}_")
        ends.append(told * end + (1.0 - told) * unknown)
    low, high = ends
    return _clamped_bounds(rate, low, high, a)


def rogan_gladen(
    *,
    marked_calls: float,
    judged_calls: float,
    marked_bad: float,
    labelled_bad: float,
    passed_good: float,
    labelled_good: float,
) -> Estimate:
    """Estimate the true share of bad calls, with a 95 % interval, from a judge's verdicts and labels of other traffic.

    It assumes that the judge's sensitivity and specificity are the same there and here. Where labels of the same
    traffic exist, `corrected.corrected_rate` needs no such assumption.

    Args:
        marked_calls: number of calls that the judge marked as bad.
        judged_calls: number of calls that it judged.
        marked_bad: number of the calls labelled bad that the judge marked as bad.
        labelled_bad: number of calls labelled bad.
        passed_good: number of the calls labelled good that the judge did not mark.
        labelled_good: number of calls labelled good.

    Returns:
        The estimate; its value is None where sensitivity and specificity sum to 1.1 or less, or with
        one more of each label to 1 or less (`judge_uninformative`).

    Raises:
        SettingsError: a count is negative or larger than its total, or a total is 0.

    Source: Rogan and Gladen 1978, American Journal of Epidemiology 107:71; the interval with adjusted counts is that of
    Lang and Reiczigel 2014, Preventive Veterinary Medicine 113:13.
    """
    for part, total in ((marked_calls, judged_calls), (marked_bad, labelled_bad), (passed_good, labelled_good)):
        if not 0 <= part <= total or not 0 < total < math.inf:
            raise SettingsError(
                f"a count must be from 0 to its total, and the total positive, got {part!r} of {total!r}"
            )
    if marked_bad / labelled_bad + passed_good / labelled_good <= 1.0 + LEAST_INFORMATION:
        return missing_estimate(UNINFORMATIVE, "weighted", "rate")
    sensitivity, specificity = (marked_bad + 1.0) / (labelled_bad + 2.0), (passed_good + 1.0) / (labelled_good + 2.0)
    if sensitivity + specificity <= 1.0:
        return missing_estimate(UNINFORMATIVE, "weighted", "rate")
    rates = LabelRates(
        sensitivity,
        1.0 - specificity,
        sensitivity * (1.0 - sensitivity) / (labelled_bad + 2.0),
        specificity * (1.0 - specificity) / (labelled_good + 2.0),
    )
    value = (marked_calls / judged_calls + passed_good / labelled_good - 1.0) / (
        marked_bad / labelled_bad + passed_good / labelled_good - 1.0
    )
    number = judged_calls + Z * Z
    share = (marked_calls + Z * Z / 2.0) / number
    ends = rogan_gladen_bounds(value, share, share * (1.0 - share) / number, rates, Floats())
    return Estimate(
        ends.value, ends.low, ends.high, round(judged_calls), judged_calls, "weighted", "rate", corrected="rogan_gladen"
    )


def rogan_gladen_bounds(rate: Q, share: Q, variance: Q, known: LabelRates[Q], a: Arithmetic[Q]) -> IntervalBounds[Q]:
    """Add the 95 % interval of Lang and Reiczigel to a mean score corrected by human labels.

    Args:
        rate: the corrected rate.
        share: the judge's mean score, adjusted as for a Wilson interval.
        variance: its variance.
        known: the judge's mean score by label.
        a: arithmetic that computes with them.
    """
    informed = known.labelled - known.otherwise
    low, high = (_rogan_gladen_end(sign, share, variance, known, informed, a, "") for sign in (-1.0, 1.0))
    return _clamped_bounds(rate, low, high, a)


def _rogan_gladen_end(
    sign: float, share: Q, variance: Q, known: LabelRates[Q], informed: Q, a: Arithmetic[Q], prefix: str
) -> Q:
    """Return one end of the 95 % interval of Lang and Reiczigel, which may be outside of 0 to 1.

    Args:
        sign: -1 for the low end, 1 for the high end.
        share: the judge's mean score, adjusted as for a Wilson interval.
        variance: its variance.
        known: the judge's mean score by label.
        informed: how much these two differ.
        a: arithmetic that computes with them.
        prefix: prefix of the names of the steps.
    """
    centre = a.define(f"{prefix}centre", (share - known.otherwise) / informed)
    shift = (2.0 * Z * Z) * (centre * known.of_labelled - (1.0 - centre) * known.of_otherwise)
    spread = variance + (1.0 - centre) * (1.0 - centre) * known.of_otherwise + centre * centre * known.of_labelled
    half = a.define(f"{prefix}half", Z * a.sqrt(spread) / informed)
    return a.define(f"{prefix}end", centre + shift + sign * half)


def _clamped_bounds(rate: Q, low: Q, high: Q, a: Arithmetic[Q]) -> IntervalBounds[Q]:
    """Return a corrected rate and the ends of its interval, limited to 0 to 1, with the rate in the interval."""
    value = a.define("value", a.minimum(a.maximum(rate, 0.0), 1.0))
    low = a.define("low", a.minimum(a.maximum(low, 0.0), value))
    high = a.define("high", a.maximum(a.minimum(high, 1.0), value))
    return IntervalBounds(value, low, high, value * 0.0)


def label_sums(
    calls: Iterable[tuple[float, float, float]], unsure: Iterable[tuple[float, float]] = ()
) -> dict[str, float]:
    """Return the sums over labelled calls from which a judge's mean score is corrected, by the names in `LABEL_SUMS`.

    Args:
        calls: (label, judge's score, weight) of each call with a label.
        unsure: (judge's score, weight) of each call that the reviewers are unsure about.
    """
    found: dict[str, float] = dict.fromkeys(LABEL_SUMS, 0.0)
    for z, y, w in calls:
        v = w * w
        for name, value in zip(_DECIDED_SUMS, (w, w * z, w * y, w * z * y, v, v * z, v * z * z), strict=True):
            found[name] += value
    for y, w in unsure:
        for name, value in zip(UNSURE_SUMS, (w, w * y, w * w, w * w * y), strict=True):
            found[name] += value
    return found


def read_calibrations(path: str | os.PathLike[str]) -> tuple[JudgeCalibration, ...]:
    """Read the calibrations in the file at *path*.

    Raises:
        SettingsError: the file is missing, unreadable or no calibration file; says what is wrong.
    """
    try:
        return _decode(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise SettingsError(
            f"the calibration cannot be read: {error}, got {os.fspath(path)!r}; name the file that "
            "`ragtrace calibrate fit --out` made, or make it anew"
        ) from error


def write_calibration(path: str | os.PathLike[str], calibration: JudgeCalibration) -> None:
    """Write *calibration* into the file at *path*, in place of one with the same key, and keep all others.

    Raises:
        SettingsError: the file is there, and no calibration file.
        OSError: it cannot be written.
    """
    kept = read_calibrations(path) if Path(path).exists() else ()
    entries = [*(each for each in kept if each.key != calibration.key), calibration]
    record = {"format": _FORMAT, "version": _VERSION, "calibrations": [_fields(each) for each in entries]}
    write_atomically(Path(path), [(json.dumps(record, indent=2) + "\n").encode()])


def _fields(calibration: JudgeCalibration) -> dict[str, Any]:
    record = asdict(calibration)
    if calibration.scores is not None:
        record["scores"] = calibration.scores.record()
    return {**calibration.key._asdict(), **{name: value for name, value in record.items() if name != "key"}}


def _decode(text: str) -> tuple[JudgeCalibration, ...]:
    found: object = json.loads(text)
    record: dict[str, Any] = cast("dict[str, Any]", found) if isinstance(found, dict) else {}
    if record.get("format") != _FORMAT:
        raise ValueError("it is no calibration file of ragtrace")
    if record.get("version") != _VERSION:
        raise ValueError(f"it is of version {record.get('version')!r}, this ragtrace knows version {_VERSION}")
    try:
        return tuple(_calibration(each) for each in record["calibrations"])
    except (KeyError, TypeError, AttributeError, OverflowError) as error:
        raise ValueError(f"it is damaged ({type(error).__name__}: {error})") from error


def _calibration(record: Mapping[str, Any]) -> JudgeCalibration:
    key = CalibrationKey(*(_checked(record, name, str) for name in CalibrationKey._fields))
    given = record["sums"]
    older = dict.fromkeys(UNSURE_SUMS, 0.0)
    sums = {name: _checked({**older, **given}, name, float) for name in LABEL_SUMS}
    # By the Cauchy-Schwarz inequality, real calls with z and y in [0, 1] cannot have sums beyond these limits.
    slack = 1e-9 * max(1.0, sums["w"])
    fitting = (
        sums["w"] > 0.0
        and sums["ww"] > 0.0
        and sums["wzy"] - slack <= min(sums["wz"], sums["wy"])
        and max(sums["wz"], sums["wy"]) <= sums["w"] + slack
        and sums["wwzz"] <= sums["wwz"] * (1 + 1e-9)
        and sums["wwz"] <= sums["ww"] * (1 + 1e-9)
        and sums["uwy"] <= sums["uw"] * (1 + 1e-9)
        and sums["uwwy"] <= sums["uww"] * (1 + 1e-9)
    )
    threshold = record["threshold"]
    if not fitting or not all(0.0 <= value < math.inf for value in sums.values()):
        raise ValueError(f"it is damaged (the sums for {key.metric!r} cannot be those of labelled calls)")
    return JudgeCalibration(
        key,
        _checked(record, "made_at", float),
        _checked(record, "labels", int),
        _checked(record, "higher_is_better", bool),
        None if threshold is None else _checked(record, "threshold", float),
        sums,
        None if record.get("scores") is None else ScoreCalibration.read_record(record["scores"]),
        None if record.get("blocks") is None else read_false_blocks(record["blocks"]),
    )


def _checked(record: Mapping[str, Any], name: str, kind: type) -> Any:
    value = record[name]
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        value = float(value)
    if type(value) is not kind:
        raise ValueError(f"it is damaged ({name} must be {_KIND[kind]}, got {value!r})")
    return value


def find_calibration(
    calibrations: Sequence[JudgeCalibration], key: CalibrationKey
) -> tuple[JudgeCalibration, str] | None:
    """Return the newest calibration for the judge and metric of *key*, and a description of how it differs from *key*.

    Returns:
        The calibration, and an empty text if it holds, else what *key* has differently; None if there is none of the
        metric.
    """
    of_metric = sorted((each for each in calibrations if each.key.metric == key.metric), key=lambda each: -each.made_at)
    for each in of_metric:
        if not each.key.differences(key):
            return each, ""
    return (of_metric[0], of_metric[0].key.differences(key)) if of_metric else None


class Calibrations(Part):
    """Calibrations of a process's evaluators, and for each whether it holds for the present evaluator. Thread-safe.

    Args:
        entries: the calibrations in the calibration file.
        keys: metric and evaluator of each estimated metric, by name of the metric.
    """

    sees_early_scores: ClassVar[bool] = True  # alerts do, which ask what is noted here

    def __init__(self, entries: Sequence[JudgeCalibration] = (), keys: Mapping[str, CalibrationKey] | None = None):
        self._entries, self._keys = tuple(entries), dict(keys or {})
        self._served: dict[str, str] = {}
        self._raw: set[tuple[str, str]] = set()
        for metric in self._keys:
            self._warn_if_stale(metric)

    def __bool__(self) -> bool:
        """Return whether a calibration is loaded for any metric."""
        return any(self.find(metric) for metric in self._keys)

    def __call__(self, call: RagCall, evaluations: Sequence[Evaluation], decision: SamplingDecision | None) -> None:
        """Record which model the judge's server ran for a finished *call*, as a calibration holds for one model."""
        for evaluation in evaluations:
            self.note_served(evaluation)

    def note_served(self, evaluation: Evaluation) -> None:
        """Record which model has answered for *evaluation*; a calibration of another one is stale from then on."""
        served = evaluation.served_model
        if served and self._served.get(evaluation.evaluator) != served:
            self._served[evaluation.evaluator] = served
            for metric, key in self._keys.items():
                if key.evaluator == evaluation.evaluator:
                    self._warn_if_stale(metric)

    def calibrate(self, evaluation: Evaluation) -> Evaluation:
        """Return *evaluation* with what the labels say about scores that are raw probabilities of a decision model.

        Such a score stays raw, as ranks and baselines rest on it. Where a curve holds that may be called calibrated,
        the score gets the probability that the call is bad, and the label that follows from it. Where the curve is
        stale, the score says so: already the first reply of another served model is not calibrated by the old curve.
        """
        raw = [name for name, result in evaluation.results.items() if is_raw_probability(result)]
        if not raw:
            return evaluation
        self._raw.update((name, evaluation.evaluator) for name in raw)
        self.note_served(evaluation)
        results = {name: self._calibrated(name, evaluation, evaluation.results[name]) for name in raw}
        return replace(evaluation, results={**evaluation.results, **results})

    def _calibrated(self, metric: str, evaluation: Evaluation, result: Result) -> Result:
        key = self._keys.get(metric)
        if not isinstance(result, Score) or key is None or key.evaluator != evaluation.evaluator:
            return result
        entry, stale = self.find(metric) or (None, "")
        if entry is None or entry.scores is None:
            return result
        if stale:
            attributes = {**result.attributes, CALIBRATION: STALE_CALIBRATION}
            return replace(result, explanation=OwnText(f"STALE: {stale}; {NOT_A_RATE}"), attributes=attributes)
        if not entry.scores.is_calibrated:
            return replace(result, explanation=OwnText(f"{NOT_A_RATE} ({entry.scores.lacking})"))
        value = min(1.0, max(0.0, result.value))
        bad = entry.scores.curve.probability(1.0 - value if entry.higher_is_better else value)
        attributes = {**result.attributes, CALIBRATION: CALIBRATED, CALIBRATED_PROBABILITY: bad}
        told = f"calibrated by {entry.labels:,} labels: bad with probability {bad:.3f}"
        # Lowest calibrated probability of being bad from which a call is labelled as failed.
        return replace(result, label="fail" if bad >= 0.5 else "pass", explanation=OwnText(told), attributes=attributes)

    def is_raw(self, metric: str, evaluator: str) -> bool:
        """Return whether the scores of *metric* by *evaluator* were raw probabilities, whose mean is not a rate."""
        return (metric, evaluator) in self._raw

    def observations(self) -> Iterator[ObservableMetric]:
        """Return the metrics of raw probabilities and, if there is a calibration, of what is corrected by it."""
        s = semconv
        if self:
            about = "Sums over labelled calls, by which rates are corrected"
            yield ObservableMetric(s.METRIC_LABEL_MOMENT, "gauge", "{call}", about, self._label_sums)
            about = "Calibration of a metric: 1 where it holds for the evaluator"
            yield ObservableMetric(s.METRIC_CALIBRATION_HOLDS, "gauge", "{state}", about, self._validity)
        about = "1 for scores that are raw probabilities of a decision model: their mean is not a rate"
        yield ObservableMetric(s.METRIC_RAW_PROBABILITY, "gauge", "{state}", about, self._raw_series)

    def _label_sums(self) -> Iterator[Point]:
        for entry, holds in self.rows():
            for name in LABEL_SUMS if holds else ():
                yield entry.sums[name], {**_series(entry.key.metric, entry.key.evaluator), semconv.MOMENT: name}

    def _validity(self) -> Iterator[Point]:
        return ((int(holds), _series(entry.key.metric, entry.key.evaluator)) for entry, holds in self.rows())

    def _raw_series(self) -> Iterator[Point]:
        return ((1, _series(*each)) for each in sorted(self._raw.copy()))

    def find(self, metric: str) -> tuple[JudgeCalibration, str] | None:
        """Return the calibration of *metric*, with a text about what makes it stale ("" if nothing does), or None."""
        key = self._keys.get(metric)
        if key is None:
            return None
        return find_calibration(self._entries, key._replace(served_model=self._served.get(key.evaluator, "")))

    def current(self, metric: str) -> JudgeCalibration | None:
        """Return the calibration of *metric* that alerts may use, or None if it is missing, stale or unusable."""
        entry, stale = self.find(metric) or (None, "")
        return None if entry is None or stale or entry.unusable else entry

    def rows(self) -> list[tuple[JudgeCalibration, bool]]:
        """Return each calibration of an estimated metric, with whether alerts and rules may use it, for export."""
        found = ((metric, self.find(metric)) for metric in self._keys)
        return [(entry[0], self.current(metric) is not None) for metric, entry in found if entry is not None]

    def stale(self) -> list[str]:
        """Return a sentence for each calibration that is stale: why, and what to do."""
        return [said for metric in self._keys if (said := self._said_of_stale(metric))]

    def _said_of_stale(self, metric: str) -> str:
        entry, stale = self.find(metric) or (None, "")
        if entry is None or not stale:
            return ""
        todo = "Label calls of the new judge: ragtrace calibrate pick"
        if entry.scores is not None:
            todo = "Have the new judge score the labelled calls, whose labels stay valid: ragtrace calibrate bridge"
        return (
            f"the calibration of {metric} is stale ({stale}): corrected estimates say so, and no alert uses it. {todo}"
        )

    def _warn_if_stale(self, metric: str) -> None:
        if said := self._said_of_stale(metric):
            faults.log_once(said, "%s", said)


def _series(metric: str, evaluator: str) -> dict[str, str]:
    """Return the attributes of a data point about the scores of a metric by an evaluator."""
    return {semconv.EVALUATION_NAME: metric, semconv.EVALUATOR_ID: evaluator}
