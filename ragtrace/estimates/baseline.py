"""Baselines: score distributions of an application while it worked well, learned from its first scored calls.

The scale of a lexical score depends on the application: the same score can be good in one and bad in another. Such a
score can tell whether answers have become worse, and for that comparison the earlier scores must be known.

A distribution is learned from 500 calls. Of metrics that alerts compare with it, learning goes on to 2,000 calls, which
tell how scores depend on documents and on the length of contexts (`estimates/adjustment.py`); until then the baseline
is provisional. Neither changes once it was learned.
"""

from __future__ import annotations

import json
import logging
import math
import os
import threading
from collections import defaultdict
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from hashlib import blake2b
from pathlib import Path
from time import monotonic, time
from types import MappingProxyType
from typing import Any, Final, NamedTuple, cast

from ragtrace.core.errors import SettingsError
from ragtrace.core.part import Part
from ragtrace.core.types import Evaluation, RagCall, Score
from ragtrace.estimates.adjustment import ADJUSTED_CALLS, Adjustment, CallTraits
from ragtrace.estimates.distribution import Distribution
from ragtrace.estimates.moments import MetricAssignment
from ragtrace.system.atomic_file import write_atomically
from ragtrace.system.faults import faults, log_safely
from ragtrace.system.threads import run_bounded, run_in_background

CALLS: Final = 500
"""Default number of scored calls from which a baseline is learned."""
MOST_KEYS: Final = 200
"""Largest number of baselines that a process learns. While one is learned it takes about 20 kB of memory with 500 calls
and half a megabyte with 2,000, and afterwards at most 200 kB."""
EXCHANGE_SECONDS: Final = 30.0
"""Seconds between two writes of a learning process to the shared file, so at most the calls that a kill loses."""
_AT_EXIT_SECONDS: Final = 2.0
NOT_LEARNED: Final = frozenset({"suspicious"})
"""Metrics without a baseline: the share of suspicious calls is 5 % by construction."""
_FORMAT: Final = "ragtrace baseline"
_VERSION: Final = 1
_RANGES: Final = {
    "effective_n": (1.0, math.inf),
    **dict.fromkeys(("mean", "variance", "quantile", "tied"), (0.0, 1.0)),
    **dict.fromkeys(("since", "until"), (0.0, math.inf)),
}


class BaselineKey(NamedTuple):
    """Key of a baseline: the workflow, metric and evaluator whose scores it describes.

    Scores of another evaluator, or of another version of it, cannot be compared with them.
    """

    workflow: str
    metric: str
    evaluator: str
    """Evaluator whose scores the baseline describes, as `id@version`."""


@dataclass(frozen=True, slots=True)
class CollectedScores:
    """Scored calls collected so far for one baseline that is still being learned."""

    scores: tuple[float, ...] = ()
    weights: tuple[float, ...] = ()
    questions: tuple[int, ...] = ()
    since: float = math.inf
    until: float = 0.0
    versions: tuple[str, ...] = ()
    times: tuple[float, ...] = ()
    """Time of each call, in seconds since the epoch; empty, as `documents`, `lengths` and `texts`, in files of versions
    of ragtrace that did not keep them."""
    documents: tuple[int, ...] = ()
    lengths: tuple[int, ...] = ()
    texts: tuple[int, ...] = ()

    @classmethod
    def single(
        cls,
        score: float,
        probability: float,
        question: str | None,
        at: float,
        version: str,
        traits: CallTraits | None = None,
    ) -> CollectedScores:
        """Create a collection of scored calls that consists of one call.

        Args:
            score: score of the call, in [0, 1].
            probability: probability with which the call was chosen for scoring.
            question: question of the call; None: not known.
            at: time of the call, in seconds since the epoch.
            version: `service.version` of the application; empty: not known.
            traits: document and length of the contexts; None: not known.
        """
        # 24 bits tell the questions of a baseline apart (but one pair in 130 baselines) without giving them away: the
        # file may be kept where the questions must not be.
        if question is None:  # an unknown question counts as different from all others
            digest = os.urandom(3)
        else:
            digest = blake2b(question.encode("utf-8", "surrogatepass"), digest_size=3).digest()
        versions = (version,) if version else ()
        found = cls((score,), (1.0 / probability,), (int.from_bytes(digest, "big"),), at, at, versions)
        if traits is None:
            return found
        texts = () if traits.text is None else (traits.text,)
        return replace(found, times=(at,), documents=(traits.document,), lengths=(traits.length,), texts=texts)

    @classmethod
    def concat(cls, parts: Iterable[CollectedScores]) -> CollectedScores:
        """Concatenate collections of scored calls, in the order in which they are given."""
        parts = list(parts)
        return cls(
            tuple(score for part in parts for score in part.scores),
            tuple(weight for part in parts for weight in part.weights),
            tuple(question for part in parts for question in part.questions),
            min((part.since for part in parts), default=math.inf),
            max((part.until for part in parts), default=0.0),
            tuple(sorted({version for part in parts for version in part.versions})),
            tuple(at for part in parts for at in part.times),
            tuple(document for part in parts for document in part.documents),
            tuple(length for part in parts for length in part.lengths),
            tuple(text for part in parts for text in part.texts),
        )

    def __add__(self, other: CollectedScores) -> CollectedScores:
        return CollectedScores.concat((self, other))

    def __len__(self) -> int:
        return len(self.scores)

    def distribution_of_first(self, count: int) -> Distribution:
        """Return the score distribution of the first *count* calls of the collection."""
        scores, weights, questions = (each[:count] for each in (self.scores, self.weights, self.questions))
        times = {"since": self.since, "until": self.until}
        return Distribution.of(scores, weights=weights, questions=questions, versions=self.versions, **times)

    @property
    def has_traits(self) -> bool:
        """Whether the time, the document and the length of every call are known."""
        return len(self.times) == len(self.documents) == len(self.lengths) == len(self.scores)

    def adjustment_of_first(self, count: int) -> Adjustment:
        """Return what the first *count* calls of the collection tell about documents and lengths."""
        # In the order of the calls: each process adds its calls to the file in blocks.
        order = sorted(range(count), key=self.times.__getitem__)
        texts = self.texts if len(self.texts) == len(self) else [None] * len(self)
        return Adjustment.learn(
            [self.scores[at] for at in order],
            [CallTraits(self.documents[at], self.lengths[at], texts[at]) for at in order],
            weights=[self.weights[at] for at in order],
            questions=[self.questions[at] for at in order],
            versions=self.versions,
            since=self.since,
            until=self.until,
        )


def _no_entries() -> Mapping[BaselineKey, Any]:
    return MappingProxyType({})


@dataclass(frozen=True)
class Baseline:
    """Distributions of an application's scores while it worked well, by workflow, metric and evaluator.

    `configure(baseline=PATH)` learns it from the first 500 calls of each workflow and keeps it in that file;
    `ragtrace baseline` learns one from a history. A distribution never changes once it was learned.

    Examples:
        >>> healthy = [0.9, 0.8, 1.0, 0.7, 0.9] * 100  # scores of an application that worked well
        >>> baseline = ragtrace.types.Baseline.of(healthy, evaluator="embedded@1", workflow="ask")
        >>> ragtrace.configure(exporter="none", baseline=baseline)
        >>> baseline.find("ask", "consistency", "embedded@1").n
        500
    """

    distributions: Mapping[BaselineKey, Distribution] = field(default_factory=_no_entries)
    learning: Mapping[BaselineKey, CollectedScores] = field(default_factory=_no_entries, repr=False)
    """Scored calls collected so far for baselines that need more calls, by key."""
    adjustments: Mapping[BaselineKey, Adjustment] = field(default_factory=_no_entries, repr=False)
    """Effects of documents and lengths, by key; a distribution without one is provisional for an alert."""

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
        """Create the baseline of one metric of one workflow from a list of scores.

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
        return cls({BaselineKey(workflow, metric, evaluator): found})

    def find(self, workflow: str, metric: str, evaluator: str) -> Distribution | None:
        """Return the score distribution of a metric in a workflow, or None if there is no baseline for them.

        Args:
            workflow: name of the workflow.
            metric: name of the metric.
            evaluator: id and version of the evaluator that gives the scores: "id@version".
        """
        return self.distributions.get(BaselineKey(workflow, metric, evaluator))

    def encode(self) -> str:
        """Encode the baseline as JSON text, with one line for each workflow, metric and evaluator."""
        known = [json.dumps({**key._asdict(), **asdict(each)}) for key, each in sorted(self.distributions.items())]
        begun = [json.dumps({**key._asdict(), **asdict(each)}) for key, each in sorted(self.learning.items())]
        adjusted = [json.dumps({**key._asdict(), **asdict(each)}) for key, each in sorted(self.adjustments.items())]
        lists = (",".join(f"\n{record}" for record in records) for records in (known, begun, adjusted))
        # The version stays: earlier versions of ragtrace read what they know, and leave out the rest.
        head = f'"format": "{_FORMAT}",\n"version": {_VERSION}'
        return '{{\n{},\n"distributions": [{}],\n"learning": [{}],\n"adjustments": [{}]\n}}\n'.format(head, *lists)

    @classmethod
    def decode(cls, text: str) -> Baseline:
        """Decode a baseline from the JSON *text* that `encode` returned.

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
            begun = {_key(each): _collected_scores(each) for each in record["learning"]}
            adjusted = {_key(each): _adjustment(each) for each in record.get("adjustments", ())}
        except (KeyError, TypeError, AttributeError, OverflowError) as error:
            raise ValueError(f"it is damaged ({type(error).__name__}: {error})") from error
        return cls(known, begun, adjusted)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Baseline:
        """Load a baseline from the file at *path*.

        Raises:
            SettingsError: the file is missing, unreadable or no baseline; says what is wrong.
        """
        try:
            return cls.decode(Path(path).read_text(encoding="utf-8"))
        except (OSError, ValueError, RecursionError) as error:
            raise SettingsError(
                f"the baseline cannot be read: {error}, got {os.fspath(path)!r}; name the file that "
                "configure(baseline=...) or `ragtrace baseline` made, or move a damaged one away"
            ) from error

    def save(self, path: str | os.PathLike[str]) -> None:
        """Save the baseline in the file at *path*, atomically and readable by the file's owner alone.

        Raises:
            OSError: the file cannot be written and is unchanged.
        """
        with exclusive_lock(path):
            self.write(path)

    def write(self, path: str | os.PathLike[str]) -> None:
        """Write the baseline to the file at *path*, for a caller that already holds `exclusive_lock(path)`."""
        write_atomically(Path(path), [self.encode().encode()], mode=0o600)


@contextmanager
def exclusive_lock(path: str | os.PathLike[str]) -> Generator[None, None, None]:
    """Hold an exclusive lock on the baseline file at *path* while the `with` block runs.

    Every process takes it before it writes the file. Without fcntl (Windows) there is no lock: of two processes that
    write at once, the later one wins.
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
            # Not `flock`, as a forked child would keep that lock.
            fcntl.lockf(handle, fcntl.LOCK_EX)
            try:
                held = os.path.samestat(os.fstat(handle), os.stat(lock))
            except FileNotFoundError:  # the lock file was removed during the wait for the lock
                held = False
            if held:
                try:
                    yield
                finally:
                    with suppress(FileNotFoundError):
                        os.unlink(lock)
                return
        finally:
            os.close(handle)


def _key(record: Mapping[str, Any]) -> BaselineKey:
    names = record["workflow"], record["metric"], record["evaluator"]
    if not all(isinstance(name, str) for name in names):
        raise TypeError(f"workflow, metric and evaluator must be strings, got {names!r}")
    return BaselineKey(*names)


def _distribution(record: Mapping[str, Any]) -> Distribution:
    numbers = {name: _number(record[name], *limits) for name, limits in _RANGES.items()}
    found = Distribution(n=int(record["n"]), versions=tuple(map(str, record["versions"])), **numbers)
    if found.n < 1:
        raise ValueError(f"it is damaged (learned from {found.n} calls, expected at least 1)")
    return found


def _collected_scores(record: Mapping[str, Any]) -> CollectedScores:
    found = CollectedScores(
        tuple(_number(score, 0.0, 1.0) for score in record["scores"]),
        tuple(_number(weight, 1.0, math.inf) for weight in record["weights"]),
        tuple(int(_number(question, 0.0, 2.0**24)) for question in record["questions"]),
        _number(record["since"], 0.0, math.inf),
        _number(record["until"], 0.0, math.inf),
        tuple(map(str, record["versions"])),
        tuple(_number(at, 0.0, math.inf) for at in record.get("times", ())),
        tuple(int(_number(document, 0, 2.0**32)) for document in record.get("documents", ())),
        tuple(int(_number(length, 0, math.inf)) for length in record.get("lengths", ())),
        tuple(int(_number(text, 0, 2.0**32)) for text in record.get("texts", ())),
    )
    if not 0 < len(found.scores) == len(found.weights) == len(found.questions):
        raise ValueError(
            "it is damaged (the calls are incomplete: scores, weights and questions differ in number, or are none)"
        )
    return found


def _adjustment(record: Mapping[str, Any]) -> Adjustment:
    lengths = tuple(_number(each, 0.0, math.inf) for each in record["lengths"])
    effects = tuple(_number(each, -1.0, 1.0) for each in record["length_effects"])
    if list(lengths) != sorted(lengths) or len(effects) != len(lengths) + 1:
        raise ValueError("it is damaged (lengths and their effects do not fit each other)")
    return Adjustment(
        _distribution(record["distribution"]),
        lengths,
        effects,
        {int(document): _number(effect, -1.0, 1.0) for document, effect in record["document_effects"].items()},
        _number(record["gate_below"], 0.0, math.inf),
        _number(record["gate_above"], 0.0, math.inf),
        tuple(int(_number(known, 0, math.inf)) for known in record.get("least_known", ())),
        tuple(_number(mean, 0.0, 1.0) for mean in record.get("course", ())),
        _number(record.get("counted", 1.0), 1e-6, 1.0),
    )


def _number(value: object, least: float, most: float) -> float:
    if not isinstance(value, (int, float)) or isinstance(value, bool) or not least <= value <= most:
        raise ValueError(f"it is damaged ({value!r} is no number from {least:g} to {most:g})")
    if math.isinf(value):
        raise ValueError(f"it is damaged ({value!r} is not finite)")
    return float(value)


# --- learning --------------------------------------------------------------------------------------------------------


class MetricBaseline(NamedTuple):
    """Read access to the baselines of one metric and one evaluator, by workflow."""

    learner: BaselineLearner
    metric: str
    evaluator: str

    def find(self, workflow: str) -> Distribution | None:
        """Return the distribution of the metric's scores in *workflow*, or None if it is not learned yet."""
        return self.learner.find(BaselineKey(workflow, self.metric, self.evaluator))

    def missing(self, workflow: str) -> int:
        """Return how many more scored calls of *workflow* are needed to learn the metric's baseline."""
        return self.learner.missing(BaselineKey(workflow, self.metric, self.evaluator))


class BaselineLearner(Part):
    """Learner of baselines, which are score distributions, from the first scored calls of each workflow and metric.

    There is one for each workflow, metric and evaluator. Processes that share a file share their calls: every 30
    seconds while something is being learned, and whenever it has seen enough calls, a process adds its calls to those
    in the file, under a lock. The process that finds enough
    calls in the file computes the distribution, which never changes afterwards. A process reads the file at its start,
    and as long as it meets workflows without a known baseline.

    When the file cannot be read or written later on, the process learns from its own calls, and counts a fault.

    Args:
        known: the baselines that are known from the start.
        calls: number of calls that a baseline is learned from.
        clock: seconds since the epoch.
        adjusted: metrics that alerts compare with their baselines, for which learning goes on to `ADJUSTED_CALLS`.
    """

    def __init__(
        self,
        known: Baseline | None = None,
        *,
        calls: int = CALLS,
        clock: Callable[[], float] = time,
        adjusted: Iterable[str] = (),
    ) -> None:
        self._known, self.calls, self._clock = known or Baseline(), calls, clock
        self._adjusted, self._adjusted_calls = frozenset(adjusted), max(calls, ADJUSTED_CALLS)
        self._path = self._version = ""
        self._assignment = MetricAssignment()
        self._said: set[tuple[str, str]] = set()
        self._lock = threading.RLock()
        self._exchanging = threading.Lock()
        self._pending: defaultdict[BaselineKey, list[CollectedScores]] = defaultdict(list)
        self._due = 0.0
        self._closed = self._unsaved = False

    def begin_anew(self) -> BaselineLearner:
        """Return a learner that knows the baselines of this one, has its options, and has collected nothing."""
        learner = BaselineLearner(self._known, calls=self.calls, clock=self._clock, adjusted=self._adjusted)
        learner._path = self._path
        learner._said = self._said.copy()
        return learner

    def open_file(self, path: str, origin: str) -> None:
        """Load the baseline file at *path*, in which processes share their collected scored calls.

        Raises:
            SettingsError: the file is no baseline, or cannot be read, or cannot be made.
        """
        if os.path.exists(path):
            try:
                self._known = merge_baselines(self._known, Baseline.load(path))
            except SettingsError as error:
                raise SettingsError(f"{error} (from {origin})") from error
        elif not os.access(os.path.dirname(os.path.abspath(path)), os.W_OK | os.X_OK):
            raise SettingsError(
                f"the baseline cannot be kept: its directory is missing or may not be written to, got {path!r} (from "
                f"{origin}); name a file in a directory that this process may write to"
            )
        self._path = path

    def set_assignment(self, assignment: MetricAssignment, version: str) -> None:
        """Set which metrics to learn baselines for, and the current release of the application.

        Args:
            assignment: metrics, and the evaluator whose scores of each are used.
            version: `service.version` of the application.
        """
        self._assignment, self._version = assignment, version

    def __call__(self, call: RagCall, evaluations: Sequence[Evaluation], decision: object = None) -> None:
        """Add the scores of a finished *call* to the baselines that are still being learned.

        The file is read and written on another thread.
        """
        assigned, traits = self._assignment, None
        wanted = {assigned.screen: assigned.screened, assigned.judge: assigned.judged}
        for evaluation in evaluations:
            identity = f"{evaluation.evaluator}@{evaluation.version}"
            for metric in wanted.get(evaluation.evaluator, frozenset()) - NOT_LEARNED:
                result = evaluation.results.get(metric)
                key = BaselineKey(call.workflow, metric, identity)
                if isinstance(result, Score) and not self._is_complete(key):
                    if metric in self._adjusted:
                        traits = traits or CallTraits.of(call)
                    known = traits if metric in self._adjusted else None
                    self.add(key, result.value, evaluation.probability, call.query, known)

    def add(
        self,
        key: BaselineKey,
        score: float,
        probability: float,
        question: str | None,
        traits: CallTraits | None = None,
    ) -> None:
        """Add one score to the calls that are collected to learn the baseline of *key*, unless that is learned."""
        is_new = False
        one = CollectedScores.single(
            min(1.0, max(0.0, score)), probability, question or None, self._clock(), self._version, traits
        )
        with self._lock:
            if self._is_complete(key):  # another thread has learned it since the caller asked
                return
            if key not in self._pending and key not in self._known.learning:
                if len({*self._pending, *self._known.learning, *self._known.distributions}) >= MOST_KEYS:
                    faults.warn_once(
                        "too many baselines",
                        "more than %d combinations of workflow, metric and evaluator: no baseline is learned for "
                        "further ones. If @trace gets a different name in each call, give it a fixed name=",
                        MOST_KEYS,
                    )
                    return
                is_new = True
            # More than enough: the file could not be written for that long, as when a disk hangs.
            if len(self._pending[key]) >= self._wanted(key):
                return
            self._pending[key].append(one)
            enough = not self.missing(key)
        if is_new:  # logged without the lock, as a log handler of the application may be slow
            self._warn_of_other_evaluator(key)
        if self._path:
            self._start_file_update(at_once=enough)
        elif enough:
            self._learn_locally()

    def find(self, key: BaselineKey) -> Distribution | None:
        """Return the score distribution of *key*, or None if its baseline is not learned yet."""
        return self._known.distributions.get(key)

    def find_adjustment(self, key: BaselineKey) -> Adjustment | None:
        """Return the effects of documents and lengths on the scores of *key*, or None if they are not learned yet."""
        return self._known.adjustments.get(key)

    def provisional(self, key: BaselineKey) -> str:
        """Return why the baseline of *key* is provisional for an alert, or "" if it is not, or no alert uses it."""
        known, wanted = self._known, self._wanted(key)
        if key.metric not in self._adjusted or key in known.adjustments:
            return ""
        if self._is_complete(key):
            return f"provisional: remove the file to learn it from {wanted:,} calls, or learn it from a history"
        return f"provisional: {self._collected(key):,} of {wanted:,} calls so far"

    def _wanted(self, key: BaselineKey) -> int:
        """Return from how many calls the baseline of *key* is learned, for an alert or without one."""
        return self._adjusted_calls if key.metric in self._adjusted else self.calls

    def missing(self, key: BaselineKey) -> int:
        """Return how many more scored calls are needed for the next step of learning the baseline of *key*.

        That is its distribution and, if that is known, the effects of documents and lengths.
        """
        with self._lock:
            wanted = self._adjusted_calls if key in self._known.distributions else self.calls
            return max(0, wanted - self._collected(key))

    def _collected(self, key: BaselineKey) -> int:
        """Return the number of calls that are collected for the baseline of *key*, in the file and in memory."""
        with self._lock:
            return len(self._known.learning.get(key, ())) + len(self._pending.get(key, ()))

    def _is_complete(self, key: BaselineKey) -> bool:
        """Return whether nothing more is to be learned for *key*."""
        known = self._known
        return key in known.distributions and key not in known.learning

    def progress(self) -> list[tuple[BaselineKey, Distribution | None, int]]:
        """Return for each baseline its key, its distribution if learned, and its number of calls, sorted by key.

        The distribution is None while the baseline is being learned.
        """
        with self._lock:
            known = self._known.distributions
            keys = sorted({*known, *self._known.learning, *self._pending})
            return [
                (key, known.get(key), known[key].n if key in known else self.calls - self.missing(key)) for key in keys
            ]

    def save(self, timeout: float) -> bool:
        """Write collected scored calls to the baseline file within *timeout* seconds. Return whether that succeeded."""
        deadline = monotonic() + timeout
        for _ in range(2):  # a first exchange may already be running, without the latest calls
            if not self._path or not (self._pending or self._unsaved):
                return True
            self._start_file_update(at_once=True)
            if not self._exchanging.acquire(timeout=max(0.0, deadline - monotonic())):
                return False
            self._exchanging.release()
        return not (self._pending or self._unsaved)

    def flush(self, timeout: float) -> bool:
        """Save the collected calls. Return True in any case: a failure is a fault, and loses nothing that was sent."""
        self.save(timeout / 2)  # less of a flush than others, as the next one saves the calls, too
        return True

    def close(self, timeout: float) -> bool:
        """Save the collected calls, and stop learning. Return True in any case, as `flush` does."""
        self.save(timeout / 2)
        self._closed = True
        return True

    def _warn_of_other_evaluator(self, key: BaselineKey) -> None:
        """Log a warning, once, that a baseline was learned from another version of the evaluator."""
        known = [other.evaluator for other in self._known.distributions if other[:2] == key[:2]]
        if not known or key[:2] in self._said:
            return
        self._said.add(key[:2])
        log_safely(
            logging.WARNING,
            "the baseline of %r in workflow %r was learned from the scores of %s, and %s now gives others: it is "
            "learned anew from the next %d calls, and until then no call is suspicious",
            key.metric,
            key.workflow,
            ", ".join(known),
            key.evaluator,
            self.calls,
        )

    def _start_file_update(self, *, at_once: bool) -> None:
        now = monotonic()
        with self._lock:
            if self._closed or (now < self._due and not at_once) or not self._exchanging.acquire(blocking=False):
                return
            self._due = now + EXCHANGE_SECONDS
        if not run_in_background(self._update_file):
            run_bounded(self._update_file, now + _AT_EXIT_SECONDS)

    def _update_file(self) -> None:
        """Add this process's scored calls to the baseline file, and learn the baselines that then have enough calls."""
        try:
            while True:
                with self._lock:
                    seen = {key: CollectedScores.concat(parts) for key, parts in self._pending.items()}
                with exclusive_lock(self._path):
                    theirs = Baseline.load(self._path) if os.path.exists(self._path) else Baseline()
                    both = self._with(merge_baselines(theirs, self._known, complete=True), seen)
                    if both != theirs:
                        both.write(self._path)
                self._adopt(both, seen)
                self._unsaved = False
                if all(self.missing(key) for key in list(self._pending)):
                    return
        except Exception as error:
            faults.record("baseline: sharing it with other processes", error)
            self._learn_locally()
        finally:
            self._exchanging.release()

    def _adopt(self, known: Baseline, written: Mapping[BaselineKey, CollectedScores]) -> None:
        """Replace the baseline by *known*, and drop the collected calls that *known* already includes."""
        with self._lock:
            self._known = known
            for key, parts in list(self._pending.items()):
                del parts[: len(written.get(key, ()))]
                if not parts or self._is_complete(key):
                    del self._pending[key]

    def _learn_locally(self) -> None:
        """Update the baselines in memory, from the calls of this process and those last read from the baseline file."""
        with self._lock:
            enough = {
                key: CollectedScores.concat(parts) for key, parts in self._pending.items() if not self.missing(key)
            }
            self._adopt(self._with(self._known, enough), enough)
            self._unsaved = bool(enough) or self._unsaved

    def _with(self, baseline: Baseline, seen: Mapping[BaselineKey, CollectedScores]) -> Baseline:
        return add_collected_scores(baseline, seen, self.calls, adjusted=self._adjusted)


def merge_baselines(first: Baseline, second: Baseline, *, complete: bool = False) -> Baseline:
    """Return the union of two baselines, in which an entry of *first* replaces an entry of *second* with the same key.

    Args:
        complete: whether to leave out entries of *second* without a distribution.
    """
    known = {**second.distributions, **first.distributions}
    adjusted = {**second.adjustments, **first.adjustments}
    begun = dict(first.learning)
    for key, calls in second.learning.items():
        if key not in begun and key not in first.distributions and (key in second.distributions or not complete):
            begun[key] = calls
    return Baseline(known, {key: calls for key, calls in begun.items() if key not in adjusted}, adjusted)


def add_collected_scores(
    baseline: Baseline,
    seen: Mapping[BaselineKey, CollectedScores],
    calls: int,
    *,
    adjusted: frozenset[str] = frozenset(),
) -> Baseline:
    """Return *baseline* with the scored calls in *seen* added to the entries that are still being learned.

    Args:
        calls: number of calls from whose first ones a distribution is computed.
        adjusted: metrics of which further calls are collected, until there is an adjustment.
    """
    known, begun, effects = dict(baseline.distributions), dict(baseline.learning), dict(baseline.adjustments)
    for key, more in seen.items():
        if key in known and key not in begun:
            continue
        begun[key] = mine = begun.get(key, CollectedScores()) + more
        if len(mine) >= calls and key not in known:
            known[key] = mine.distribution_of_first(calls)
        wanted = max(calls, ADJUSTED_CALLS)
        if key in known and not (key.metric in adjusted and mine.has_traits):
            del begun[key]
        elif len(mine) >= wanted:
            effects[key] = begun.pop(key).adjustment_of_first(wanted)
    return Baseline(known, begun, effects)
