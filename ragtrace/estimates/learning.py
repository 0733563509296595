"""Learner of baselines, which shares its calls with the other processes of the application through a file."""

from __future__ import annotations

import contextvars
import logging
import os
import threading
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from time import monotonic, time
from typing import Final, NamedTuple

from ragtrace.core.errors import SettingsError
from ragtrace.core.types import Evaluation, RagCall, Score
from ragtrace.estimates.baseline import CALLS, Baseline, Calls, Distribution, Key, exclusive
from ragtrace.estimates.observer import Plan
from ragtrace.system.faults import faults, say
from ragtrace.system.threads import run_bounded

MOST_KEYS: Final = 200
"""Largest number of keys that are learned; each takes about 20 kB of memory."""
EXCHANGE_SECONDS: Final = 30.0
"""Interval at which a learning process shares its calls with the others: a kill loses at most these."""
_AT_EXIT_SECONDS: Final = 2.0
NOT_LEARNED: Final = frozenset({"suspicious"})
"""Metrics without a baseline: the share of suspicious calls is 5 % by construction."""


class BaselineProgress(NamedTuple):
    """Progress of one baseline."""

    key: Key
    known: Distribution | None
    calls: int
    """Calls that the baseline was, or is being, learned from."""


@dataclass(frozen=True, slots=True)
class MetricBaseline:
    """Baselines of one metric of one evaluator, by workflow."""

    learner: Learner
    metric: str
    evaluator: str

    def find(self, workflow: str) -> Distribution | None:
        """Return the distribution of the metric's scores in *workflow*; None: not known yet."""
        return self.learner.find(Key(workflow, self.metric, self.evaluator))

    def missing(self, workflow: str) -> int:
        """Return how many more calls are needed until the distribution of *workflow* is known."""
        return self.learner.missing(Key(workflow, self.metric, self.evaluator))


class Learner:
    """Learner of a baseline from the first *calls* scored calls of each workflow, metric and evaluator.

    Processes that share a file share their calls: every 30 seconds while something is being learned, and whenever it
    has seen enough calls, a process adds its calls to those in the file, under a lock. The process that finds enough
    calls in the file computes the distribution, which never changes afterwards. A process reads the file at its start,
    and as long as it meets workflows without a known baseline.

    When the file cannot be read or written later on, the process learns from its own calls, and counts a fault.

    Args:
        known: the baselines that are known from the start.
        calls: number of calls that a baseline is learned from.
        clock: seconds since the epoch.
    """

    def __init__(self, known: Baseline | None = None, *, calls: int = CALLS, clock: Callable[[], float] = time) -> None:
        self._known, self.calls, self._clock = known or Baseline(), calls, clock
        self._path = self._version = ""
        self._plan = Plan()
        self._said: set[tuple[str, str]] = set()
        self.reset()

    def reset(self) -> None:
        """Forget the calls that wait for the file: in a forked child they are the parent's."""
        self._lock = threading.RLock()
        self._exchanging = threading.Lock()
        self._pending: defaultdict[Key, list[Calls]] = defaultdict(list)
        self._due = 0.0
        self._closed = self._unsaved = False

    def open(self, path: str, origin: str) -> None:
        """Load the baseline in the file at *path*, and share it through that file from then on.

        Args:
            path: the file.
            origin: origin of the setting, for the message.

        Raises:
            SettingsError: the file is no baseline, or cannot be read, or cannot be made.
        """
        if os.path.exists(path):
            try:
                self._known = merged(self._known, Baseline.load(path))
            except SettingsError as error:
                raise SettingsError(f"{error} (from {origin})") from error
        elif not os.access(os.path.dirname(os.path.abspath(path)), os.W_OK | os.X_OK):
            raise SettingsError(
                f"the baseline cannot be kept: its directory is missing or may not be written to, got {path!r} (from "
                f"{origin}); name a file in a directory that this process may write to"
            )
        self._path = path

    def observe(self, plan: Plan, version: str) -> None:
        """Set the metrics that are learned to those of *plan*, and the release to *version* (`service.version`).

        Without a plan nothing is learned.
        """
        self._plan, self._version = plan, version

    def __call__(self, call: RagCall, evaluations: Sequence[Evaluation], decision: object = None) -> None:
        """Learn from a finished *call*. The file is read and written on another thread."""
        wanted = {self._plan.screen: self._plan.screened, self._plan.judge: self._plan.judged}
        for evaluation in evaluations:
            identity = f"{evaluation.evaluator}@{evaluation.version}"
            for metric in wanted.get(evaluation.evaluator, frozenset()) - NOT_LEARNED:
                result = evaluation.results.get(metric)
                key = Key(call.workflow, metric, identity)
                if isinstance(result, Score) and key not in self._known.distributions:
                    self.add(key, result.value, evaluation.probability, call.query)

    def add(self, key: Key, score: float, probability: float, question: str | None) -> None:
        """Learn from one score of *key*, whose baseline is not known."""
        is_new = False
        one = Calls.of(min(1.0, max(0.0, score)), probability, question or None, self._clock(), self._version)
        with self._lock:
            if key not in self._pending and key not in self._known.learning:
                if len({*self._pending, *self._known.learning, *self._known.distributions}) >= MOST_KEYS:
                    faults.warn_once(
                        "too many baselines",
                        "more than %d combinations of workflow, metric and evaluator: no baseline is learned for "
                        "further ones. Are workflow names unique to a call? Give @trace a name=",
                        MOST_KEYS,
                    )
                    return
                is_new = True
            if len(self._pending[key]) >= self.calls:  # a disk hangs
                return
            self._pending[key].append(one)
            enough = not self.missing(key)
        if is_new:  # without the lock: a log handler of the application may take its time
            self._warn_of_other_evaluator(key)
        if self._path:
            self._start_exchange(at_once=enough)
        elif enough:
            self._learn_locally()

    def find(self, key: Key) -> Distribution | None:
        """Return the distribution of *key*; None: not known yet."""
        return self._known.distributions.get(key)

    def missing(self, key: Key) -> int:
        """Return how many more calls the distribution of *key* needs, as far as this process knows."""
        with self._lock:
            return max(0, self.calls - len(self._known.learning.get(key, ())) - len(self._pending.get(key, ())))

    def progress(self) -> list[BaselineProgress]:
        """Return the progress of each baseline, sorted by workflow, metric and evaluator."""
        with self._lock:
            known = self._known.distributions
            keys = sorted({*known, *self._known.learning, *self._pending})
            return [
                BaselineProgress(key, known.get(key), known[key].n if key in known else self.calls - self.missing(key))
                for key in keys
            ]

    def flush(self, timeout: float) -> bool:
        """Write all calls to the file within *timeout* seconds; return whether that succeeded."""
        deadline = monotonic() + timeout
        for _ in range(2):  # one exchange may be under way, for calls before the last
            if not self._path or not (self._pending or self._unsaved):
                return True
            self._start_exchange(at_once=True)
            if not self._exchanging.acquire(timeout=max(0.0, deadline - monotonic())):
                return False
            self._exchanging.release()
        return not (self._pending or self._unsaved)

    def close(self, timeout: float) -> bool:
        """Write all calls to the file within *timeout* seconds for the last time; return whether that succeeded."""
        well = self.flush(timeout)
        self._closed = True
        return well

    # --- the file ----------------------------------------------------------------------------------------------------

    def _warn_of_other_evaluator(self, key: Key) -> None:
        """Log once that the known baseline cannot be compared with the scores of another version of the evaluator."""
        known = [other.evaluator for other in self._known.distributions if other[:2] == key[:2]]
        if not known or key[:2] in self._said:
            return
        self._said.add(key[:2])
        say(
            logging.WARNING,
            "the baseline of %r in workflow %r was learned from the scores of %s, and %s now gives others: it is "
            "learned anew from the next %d calls, and until then no call is suspicious",
            key.metric,
            key.workflow,
            ", ".join(known),
            key.evaluator,
            self.calls,
        )

    def _start_exchange(self, *, at_once: bool) -> None:
        now = monotonic()
        with self._lock:
            if self._closed or (now < self._due and not at_once) or not self._exchanging.acquire(blocking=False):
                return
            self._due = now + EXCHANGE_SECONDS
        run = contextvars.Context().run
        thread = threading.Thread(target=run, args=(self._exchange,), name="ragtrace-baseline", daemon=True)
        try:
            thread.start()
        except RuntimeError:  # the interpreter is shutting down, and starts no more threads
            run_bounded(self._exchange, now + _AT_EXIT_SECONDS)

    def _exchange(self) -> None:
        """Add the calls of this process to those in the file, and learn from both."""
        try:
            while True:
                with self._lock:
                    seen = {key: Calls.sum(parts) for key, parts in self._pending.items()}
                with exclusive(self._path):
                    theirs = Baseline.load(self._path) if os.path.exists(self._path) else Baseline()
                    both = with_calls(merged(theirs, self._known, complete=True), seen, self.calls)
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

    def _adopt(self, known: Baseline, written: Mapping[Key, Calls]) -> None:
        """Replace the known baseline by *known*, which contains the calls *written*."""
        with self._lock:
            self._known = known
            for key, parts in list(self._pending.items()):
                del parts[: len(written.get(key, ()))]
                if not parts or self.find(key):
                    del self._pending[key]

    def _learn_locally(self) -> None:
        """Learn from the calls of this process, and from those of the file when it was last read."""
        with self._lock:
            enough = {key: Calls.sum(parts) for key, parts in self._pending.items() if not self.missing(key)}
            self._adopt(with_calls(self._known, enough, self.calls), enough)
            self._unsaved = bool(enough) or self._unsaved


def merged(first: Baseline, second: Baseline, *, complete: bool = False) -> Baseline:
    """Return the union of two baselines; for a key in both, that of *first*.

    Args:
        complete: take only complete distributions from *second*.
    """
    known = {**second.distributions, **first.distributions}
    begun = {**({} if complete else second.learning), **first.learning}
    return Baseline(known, {key: calls for key, calls in begun.items() if key not in known})


def with_calls(baseline: Baseline, seen: Mapping[Key, Calls], calls: int) -> Baseline:
    """Return *baseline* with the calls *seen*; a distribution is computed from the first *calls* calls of a key."""
    known, begun = dict(baseline.distributions), dict(baseline.learning)
    for key, more in seen.items():
        if key in known:
            continue
        begun[key] = begun.get(key, Calls()) + more
        if len(begun[key]) >= calls:
            known[key] = begun.pop(key).first(calls)
    return Baseline(known, begun)
