"""Baseline of an application: how the scores of each metric were distributed while it worked well.

The scale of a lexical score depends on the application: the same score can be good in one and bad in another. Such a
score can tell whether answers have become worse, and for that comparison the earlier scores must be known.
"""

from __future__ import annotations

import json
import math
import os
from collections import defaultdict
from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from hashlib import blake2b
from types import MappingProxyType
from typing import Any, Final, Literal, NamedTuple, cast

from ragtrace.core.errors import SettingsError

CALLS: Final = 500
"""Default number of calls that a baseline is learned from."""
QUANTILE: Final = 0.05
_SAME: Final = 1e-9
"""Largest difference between scores that count as equal."""
_SALT: Final = b"ragtrace baseline ties"
"""Other than the sampler's salt: which tied calls are suspicious must not depend on which calls the judge sees."""
_DAY_SECONDS: Final = 86_400.0
_FORMAT: Final = "ragtrace baseline"
_VERSION: Final = 1


class Key(NamedTuple):
    """Key of a baseline. Scores of another evaluator, or of another version of it, cannot be compared."""

    workflow: str
    metric: str
    evaluator: str
    """id@version"""


@dataclass(frozen=True, slots=True)
class Distribution:
    """Distribution of the scores of one metric, in [0, 1]."""

    n: int
    """Calls that the distribution was learned from."""
    effective_n: float
    """Number of calls of equal weight, each with a question of its own, that give the mean as precisely."""
    mean: float
    variance: float
    quantile: float
    """The 5 % quantile: the lowest score below or at which are at least 5 % of the calls."""
    tied: float
    """The share of the calls exactly at the quantile that, with all below it, make up 5 %."""
    since: float = 0.0
    """Times of the first and the last call, in seconds since the epoch; 0: not known."""
    until: float = 0.0
    versions: tuple[str, ...] = ()
    """`service.version` of the application; several if a release came in between."""

    @classmethod
    def of(
        cls,
        scores: Sequence[float],
        *,
        weights: Sequence[float] | None = None,
        questions: Sequence[object] | None = None,
        since: float = 0.0,
        until: float = 0.0,
        versions: Iterable[str] = (),
    ) -> Distribution:
        """Return the distribution of *scores*.

        Every call counts in mean, variance and quantile, repeated questions and answers too, as they are part of the
        traffic that later calls are compared with. But a repeated question says nothing new about the mean: calls with
        the same question count as one cluster in `effective_n`, and so in `mean_bound`.

        Args:
            scores: scores of the calls, in [0, 1]; at least one.
            weights: number of calls of the traffic that each stands for (1 / inclusion probability); None: one.
            questions: question of each call, or anything that is equal for equal questions; None: all differ.
            since: time of the first call, in seconds since the epoch.
            until: time of the last call.
            versions: `service.version` of the releases that gave the answers.

        Raises:
            ValueError: there is no score, one is not in [0, 1], a weight is not positive, or the lengths differ.

        Source: the cluster-robust variance of a weighted mean (Särndal, Swensson and Wretman 1992, section 5.7).
        """
        scores = [float(score) for score in scores]
        weights = [1.0] * len(scores) if weights is None else [float(weight) for weight in weights]
        questions = range(len(scores)) if questions is None else questions
        if not scores or not len(scores) == len(weights) == len(questions):
            raise ValueError(f"got {len(scores)} scores, {len(weights)} weights, {len(questions)} questions; give all")
        if not all(0.0 <= score <= 1.0 for score in scores):
            raise ValueError("the scores of a baseline must be in [0, 1]")
        if not all(0.0 < weight < math.inf for weight in weights):
            raise ValueError("weights must be above 0 and finite")
        total = math.fsum(weights)
        mean = math.fsum(weight * score for weight, score in zip(weights, scores, strict=True)) / total
        squares = math.fsum(weight * (score - mean) ** 2 for weight, score in zip(weights, scores, strict=True))
        variance = squares / total * len(scores) / max(1, len(scores) - 1)
        quantile, tied = _quantile(scores, weights)
        return cls(
            n=len(scores),
            effective_n=_effective_n(scores, weights, questions, mean, variance),
            mean=mean,
            variance=variance,
            quantile=quantile,
            tied=tied,
            since=since,
            until=until,
            versions=tuple(sorted(set(versions))),
        )

    def suspicious(self, score: float, call: int) -> bool:
        """Return whether *score* is among the lowest 5 % of the baseline.

        Args:
            score: in [0, 1].
            call: the trace id, or another number of 128 bits that identifies the call. Its hash decides where the score
                is exactly at the quantile, so that 5 % of the baseline's own calls are suspicious however many of them
                have the same score.
        """
        if abs(score - self.quantile) > _SAME:
            return score < self.quantile
        digest = blake2b(call.to_bytes(16, "big"), digest_size=8, key=_SALT).digest()
        return int.from_bytes(digest, "big") / 2**64 < self.tied

    def describe(self, now: float) -> str:
        """Return in words what the distribution was learned from and when; *now*: seconds since the epoch."""
        of = f" of {', '.join(self.versions)}" if self.versions else ""
        days = (now - self.until) / _DAY_SECONDS
        age = "" if not self.until else ", today" if days < 1 else f", {days:.0f} day{'s' * (days >= 1.5)} ago"
        return f"learned from {self.n:,} calls{of}{age}"

    def mean_bound(self, z: float, side: Literal["lower", "upper"]) -> float:
        """Return a confidence limit of the mean, in [0, 1].

        It is the normal limit, with z^2 imagined calls, half of them with score 0 and half with 1: also a baseline in
        which all scores are equal does not know the mean exactly.

        Args:
            z: standard errors between limit and mean: 1 for 84 % confidence, 1.645 for 95 %.
            side: whether the mean is above the limit (`lower`) or below it (`upper`) with that confidence.

        Source: Agresti and Coull 1998, The American Statistician 52:119, here for scores between 0 and 1, too.
        """
        imagined = z * z
        n = self.effective_n + imagined
        mean = (self.effective_n * self.mean + imagined / 2) / n
        spread = self.effective_n * (self.variance + (self.mean - mean) ** 2)
        variance = (spread + imagined / 2 * (mean**2 + (1 - mean) ** 2)) / n
        error = z * math.sqrt(variance / n)
        return max(0.0, mean - error) if side == "lower" else min(1.0, mean + error)


def _quantile(scores: Sequence[float], weights: Sequence[float]) -> tuple[float, float]:
    """Return the 5 % quantile and the share of the calls at it that belongs to the 5 %."""
    wanted = QUANTILE * math.fsum(weights)
    ordered = sorted(zip(scores, weights, strict=True))
    below = 0.0
    at = 0
    while True:
        quantile = ordered[at][0]
        tied = 0.0
        while at < len(ordered) and ordered[at][0] - quantile <= _SAME:
            tied += ordered[at][1]
            at += 1
        if at == len(ordered) or below + tied >= wanted * (1 - _SAME):
            return quantile, min(1.0, (wanted - below) / tied)
        below += tied


def _effective_n(
    scores: Sequence[float], weights: Sequence[float], questions: Sequence[object], mean: float, variance: float
) -> float:
    sums: defaultdict[object, float] = defaultdict(float)
    for score, weight, question in zip(scores, weights, questions, strict=True):
        sums[question] += weight * (score - mean)
    distinct, total = len(sums), math.fsum(weights)
    if distinct == 1:
        return 1.0
    if variance <= _SAME**2:  # all scores are equal: all that is known is how many questions there were
        return float(distinct)
    squared_error = math.fsum(each * each for each in sums.values()) / total**2 * distinct / (distinct - 1)
    # By chance the calls of a cluster may balance each other: that makes them no more than they are.
    return min(float(len(scores)), max(1.0, variance / squared_error if squared_error else math.inf))


@dataclass(frozen=True, slots=True)
class Calls:
    """Scored calls of one key that a baseline is being learned from."""

    scores: tuple[float, ...] = ()
    weights: tuple[float, ...] = ()
    questions: tuple[int, ...] = ()
    since: float = math.inf
    until: float = 0.0
    versions: tuple[str, ...] = ()

    @classmethod
    def of(cls, score: float, probability: float, question: str | None, at: float, version: str) -> Calls:
        """Return the scored calls that consist of one call.

        Args:
            score: score of the call, in [0, 1].
            probability: inclusion probability of the call.
            question: question of the call; None: not known.
            at: when the call was scored, in seconds since the epoch.
            version: `service.version` of the application; empty: not known.
        """
        # 24 bits tell the questions of one baseline apart (but for one pair in 130 baselines), and are too few to find
        # out what was asked: the file may be kept where the questions must not be.
        if question is None:  # not known, so not known to be any other's
            digest = os.urandom(3)
        else:
            digest = blake2b(question.encode("utf-8", "surrogatepass"), digest_size=3).digest()
        versions = (version,) if version else ()
        return cls((score,), (1.0 / probability,), (int.from_bytes(digest, "big"),), at, at, versions)

    @classmethod
    def sum(cls, parts: Iterable[Calls]) -> Calls:
        """Return all calls of *parts* together, in their order."""
        parts = list(parts)
        return cls(
            tuple(score for part in parts for score in part.scores),
            tuple(weight for part in parts for weight in part.weights),
            tuple(question for part in parts for question in part.questions),
            min((part.since for part in parts), default=math.inf),
            max((part.until for part in parts), default=0.0),
            tuple(sorted({version for part in parts for version in part.versions})),
        )

    def __add__(self, other: Calls) -> Calls:
        return Calls.sum((self, other))

    def __len__(self) -> int:
        return len(self.scores)

    def first(self, count: int) -> Distribution:
        """Return the distribution of the first *count* scores."""
        return Distribution.of(
            self.scores[:count],
            weights=self.weights[:count],
            questions=self.questions[:count],
            since=self.since,
            until=self.until,
            versions=self.versions,
        )


def _none() -> Mapping[Key, Any]:
    return MappingProxyType({})


@dataclass(frozen=True)
class Baseline:
    """Distributions of the scores of an application while it worked well, by workflow, metric and evaluator.

    `configure(baseline=PATH)` learns it from the first 500 calls of each workflow and keeps it in that file;
    `ragtrace baseline` learns one from a history. A distribution never changes once it was learned.
    """

    distributions: Mapping[Key, Distribution] = field(default_factory=_none)
    learning: Mapping[Key, Calls] = field(default_factory=_none, repr=False)
    """The calls so far, for keys with too few calls yet."""

    @classmethod
    def of(
        cls,
        scores: Sequence[float],
        *,
        evaluator: str,
        workflow: str = "",
        metric: str = "consistency",
        questions: Sequence[object] | None = None,
        versions: Iterable[str] = (),
    ) -> Baseline:
        """Return the baseline of one metric of one workflow, from scores that are known.

        Args:
            scores: in [0, 1]; a few hundred at least, or the baseline's own error hides what is looked for.
            evaluator: id and version of the evaluator that gave the scores, for instance "embedded@1".
            workflow: name of the workflow.
            metric: name of the metric.
            questions: what each call was asked; None: all differ.
            versions: `service.version` of the releases that gave the answers.

        Raises:
            ValueError: a score is not in [0, 1], there is none, or the lengths differ.
        """
        found = Distribution.of(scores, questions=questions, versions=versions)
        return cls({Key(workflow, metric, evaluator): found})

    def find(self, workflow: str, metric: str, evaluator: str) -> Distribution | None:
        """Return the distribution of the scores of *evaluator* (id@version); None: not known (yet)."""
        return self.distributions.get(Key(workflow, metric, evaluator))

    def encode(self) -> str:
        """Return the baseline as JSON, one line a workflow, metric and evaluator."""
        known = [json.dumps({**key._asdict(), **asdict(each)}) for key, each in sorted(self.distributions.items())]
        begun = [json.dumps({**key._asdict(), **asdict(each)}) for key, each in sorted(self.learning.items())]
        head = f'"format": "{_FORMAT}",\n"version": {_VERSION}'
        return f'{{\n{head},\n"distributions": {_lines(known)},\n"learning": {_lines(begun)}\n}}\n'

    @classmethod
    def decode(cls, text: str) -> Baseline:
        """Return the baseline that `encode` turned into *text*.

        Raises:
            ValueError: *text* is no baseline, damaged, or of a later version of ragtrace.
        """
        found: object = json.loads(text)
        record: dict[str, Any] = cast("dict[str, Any]", found) if isinstance(found, dict) else {}
        if record.get("format") != _FORMAT:
            raise ValueError("it is no baseline of ragtrace")
        version: object = record.get("version")
        if version != _VERSION:
            raise ValueError(f"it is of version {version!r}, this ragtrace knows version {_VERSION}")
        try:
            known = {_key(each): _distribution(each) for each in record["distributions"]}
            begun = {_key(each): _calls(each) for each in record["learning"]}
        except (KeyError, TypeError, AttributeError, OverflowError) as error:
            raise ValueError(f"it is damaged ({type(error).__name__}: {error})") from error
        return cls(known, begun)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Baseline:
        """Return the baseline that is kept in the file at *path*.

        Raises:
            SettingsError: the file is missing, unreadable or no baseline; says what is wrong.
        """
        try:
            with open(path, encoding="utf-8") as file:
                return cls.decode(file.read())
        except (OSError, ValueError, RecursionError) as error:
            advice = (
                "name the file that configure(baseline=...) or `ragtrace baseline` made, or move a damaged one away"
            )
            raise SettingsError(f"the baseline cannot be read: {error}, got {os.fspath(path)!r}; {advice}") from error

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the baseline to the file at *path*, atomically and readable by its owner alone.

        Raises:
            OSError: the file cannot be written and is unchanged.
        """
        with exclusive(path):
            self.write(path)

    def write(self, path: str | os.PathLike[str]) -> None:
        """Write the baseline as `save` does, within a block of `exclusive(path)`."""
        new = f"{os.fspath(path)}.new"
        with suppress(FileNotFoundError):
            os.unlink(new)  # of a process that was killed while it wrote
        handle = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            with open(handle, "w", encoding="utf-8") as file:
                file.write(self.encode())
                file.flush()
                os.fsync(file.fileno())  # else a file that was replaced just before a power failure may be empty
            os.replace(new, path)
        except BaseException:
            with suppress(OSError):
                os.unlink(new)
            raise


@contextmanager
def exclusive(path: str | os.PathLike[str]) -> Generator[None, None, None]:
    """Hold the lock of the baseline at *path*, which every process takes before it writes, while the block runs.

    Without fcntl (Windows) there is no lock: of two processes that write at once, the later one wins.
    """
    try:
        import fcntl
    except ImportError:
        yield
        return
    lock = f"{os.fspath(path)}.lock"
    while True:
        handle = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
        try:
            # Not flock: a forked child would go on holding it.
            fcntl.lockf(handle, fcntl.LOCK_EX)
            if _is_at(handle, lock):  # else it was removed while we waited for it
                try:
                    yield
                finally:
                    with suppress(FileNotFoundError):
                        os.unlink(lock)
                return
        finally:
            os.close(handle)


def _is_at(handle: int, path: str) -> bool:
    try:
        return os.path.samestat(os.fstat(handle), os.stat(path))
    except FileNotFoundError:
        return False


def _lines(records: Sequence[str]) -> str:
    return "[{}]".format(",".join(f"\n{record}" for record in records))


def _key(record: Mapping[str, Any]) -> Key:
    names = record["workflow"], record["metric"], record["evaluator"]
    if not all(isinstance(name, str) for name in names):
        raise TypeError(f"names must be strings, got {names!r}")
    return Key(*names)


def _distribution(record: Mapping[str, Any]) -> Distribution:
    found = Distribution(
        n=int(record["n"]),
        effective_n=_number(record["effective_n"], 1.0, math.inf),
        mean=_number(record["mean"], 0.0, 1.0),
        variance=_number(record["variance"], 0.0, 1.0),
        quantile=_number(record["quantile"], 0.0, 1.0),
        tied=_number(record["tied"], 0.0, 1.0),
        since=_number(record["since"], 0.0, math.inf),
        until=_number(record["until"], 0.0, math.inf),
        versions=tuple(map(str, record["versions"])),
    )
    if found.n < 1:
        raise ValueError(f"it is damaged (learned from {found.n} calls)")
    return found


def _calls(record: Mapping[str, Any]) -> Calls:
    found = Calls(
        tuple(_number(score, 0.0, 1.0) for score in record["scores"]),
        tuple(_number(weight, 1.0, math.inf) for weight in record["weights"]),
        tuple(int(_number(question, 0.0, 2.0**24)) for question in record["questions"]),
        _number(record["since"], 0.0, math.inf),
        _number(record["until"], 0.0, math.inf),
        tuple(map(str, record["versions"])),
    )
    if not 0 < len(found.scores) == len(found.weights) == len(found.questions):
        raise ValueError("it is damaged (calls are incomplete)")
    return found


def _number(value: object, least: float, most: float) -> float:
    if not isinstance(value, (int, float)) or isinstance(value, bool) or not least <= value <= most:
        raise ValueError(f"it is damaged ({value!r} is no number from {least:g} to {most:g})")
    if math.isinf(value):
        raise ValueError(f"it is damaged ({value!r} is not finite)")
    return float(value)
