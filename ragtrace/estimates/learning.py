"""Learns the baseline from the first calls of each workflow, together with the other processes of the application."""

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
from ragtrace.estimates.baseline import CALLS, Baseline, Calls, Distribution, Key, alone
from ragtrace.estimates.observer import Plan
from ragtrace.system.faults import faults, say
from ragtrace.system.threads import run_bounded

MOST_KEYS: Final = 200
"""Combinations of workflow, metric and evaluator that are learned; about 20 kB of memory each."""
EXCHANGE_SECONDS: Final = 30.0
"""How often a process that is still learning shares its calls with the others: what a kill costs at most."""
_AT_EXIT_SECONDS: Final = 2.0
NOT_LEARNED: Final = frozenset({"suspicious"})
"""Its own baseline is 5 % by construction."""


class Progress(NamedTuple):
    """How far one baseline has come."""

    key: Key
    known: Distribution | None
    calls: int
    """Calls it was, or is being, learned from."""


@dataclass(frozen=True, slots=True)
class MetricBaseline:
    """The baselines of one metric of one evaluator, by workflow."""

    learner: Learner
    metric: str
    evaluator: str

    def find(self, workflow: str) -> Distribution | None:
        """Return the distribution of its scores in *workflow*; None: it is not known yet."""
        return self.learner.find(Key(workflow, self.metric, self.evaluator))

    def missing(self, workflow: str) -> int:
        """Return how many more calls it takes until it is known."""
        return self.learner.missing(Key(workflow, self.metric, self.evaluator))


class Learner:
    """Learns a baseline from the first *calls* scored calls of each workflow, metric and evaluator, and keeps it.

    Processes that share a file share their calls: every 30 seconds while something is being learned, and whenever one
    has seen enough, a process adds the calls it has seen to those in the file, under a lock. Whoever finds enough calls
    there computes the distribution, which from then on stays as it is. A process looks into the file when it begins,
    and as long as it meets a workflow whose baseline it does not know.

    Where the file cannot be read or written later on, the process learns alone, and that is counted as a fault.

    Args:
        known: what is known from the beginning.
        calls: how many calls a baseline is learned from.
        clock: seconds since the epoch.
    """

    def __init__(self, known: Baseline | None = None, *, calls: int = CALLS, clock: Callable[[], float] = time) -> None:
        self._known, self._calls, self._clock = known or Baseline(), calls, clock
        self._path = self._version = ""
        self._plan = Plan()
        self._said: set[tuple[str, str]] = set()
        self.reset()

    def reset(self) -> None:
        """In a forked child: the calls seen so far are the parent's to keep; look into the file soon."""
        self._lock = threading.RLock()
        self._exchanging = threading.Lock()
        self._pending: defaultdict[Key, list[Calls]] = defaultdict(list)
        self._due = 0.0
        self._closed = self._unsaved = False

    def open(self, path: str, origin: str) -> None:
        """Keep the baseline in the file at *path*, and begin with what is there.

        Args:
            path: the file.
            origin: where the path came from, for the message.

        Raises:
            SettingsError: the file is no baseline, or cannot be read, or none can be made there.
        """
        if os.path.exists(path):
            try:
                self._known = joined(self._known, Baseline.load(path))
            except SettingsError as error:
                raise SettingsError(f"{error} (from {origin})") from error
        elif not os.access(os.path.dirname(os.path.abspath(path)), os.W_OK | os.X_OK):
            raise SettingsError(
                f"the baseline cannot be kept: its directory is missing or may not be written to, got {path!r} (from "
                f"{origin}); name a file in a directory that this process may write to"
            )
        self._path = path

    def observe(self, plan: Plan, version: str) -> None:
        """Say whose scores are learned: *plan* tells who gives which metric in [0, 1], *version* is `service.version`.

        Without it nothing is learned.
        """
        self._plan, self._version = plan, version

    def __call__(self, call: RagCall, evaluations: Sequence[Evaluation], decision: object = None) -> None:
        """Learn from a finished call; returns at once."""
        wanted = {self._plan.screen: self._plan.screened, self._plan.judge: self._plan.judged}
        for evaluation in evaluations:
            identity = f"{evaluation.evaluator}@{evaluation.version}"
            for metric in wanted.get(evaluation.evaluator, frozenset()) - NOT_LEARNED:
                result = evaluation.results.get(metric)
                key = Key(call.workflow, metric, identity)
                if isinstance(result, Score) and key not in self._known.distributions:
                    self.add(key, result.value, evaluation.probability, call.query)

    def add(self, key: Key, score: float, probability: float, question: str | None) -> None:
        """Learn from one score whose baseline is not known."""
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
            if len(self._pending[key]) >= self._calls:  # a disk hangs
                return
            self._pending[key].append(one)
            enough = not self.missing(key)
        if is_new:  # without the lock: a log handler of the application may take its time
            self._tell_of_others(key)
        if self._path:
            self._exchange_soon(at_once=enough)
        elif enough:
            self._learn_alone()

    def find(self, key: Key) -> Distribution | None:
        """Return the distribution; None: it is not known yet."""
        return self._known.distributions.get(key)

    def missing(self, key: Key) -> int:
        """Return how many more calls it takes until the distribution is known, as far as this process knows."""
        with self._lock:
            return max(0, self._calls - len(self._known.learning.get(key, ())) - len(self._pending.get(key, ())))

    def progress(self) -> list[Progress]:
        """Return how far each baseline has come, sorted by workflow, metric and evaluator."""
        with self._lock:
            known = self._known.distributions
            keys = sorted({*known, *self._known.learning, *self._pending})
            return [
                Progress(key, known.get(key), known[key].n if key in known else self._calls - self.missing(key))
                for key in keys
            ]

    @property
    def calls(self) -> int:
        """How many calls a baseline is learned from."""
        return self._calls

    @property
    def path(self) -> str:
        """The file; empty: there is none."""
        return self._path

    def flush(self, timeout: float) -> bool:
        """Have all calls in the file within *timeout* seconds; False if they are not."""
        deadline = monotonic() + timeout
        for _ in range(2):  # one exchange may be under way, for calls before the last
            if not self._path or not (self._pending or self._unsaved):
                return True
            self._exchange_soon(at_once=True)
            if not self._exchanging.acquire(timeout=max(0.0, deadline - monotonic())):
                return False
            self._exchanging.release()
        return not (self._pending or self._unsaved)

    def close(self, timeout: float) -> bool:
        """Do the same, and leave the file alone from then on."""
        well = self.flush(timeout)
        self._closed = True
        return well

    # --- the file ----------------------------------------------------------------------------------------------------

    def _tell_of_others(self, key: Key) -> None:
        """Say once that what is known cannot be compared with the scores of another version of the evaluator."""
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
            self._calls,
        )

    def _exchange_soon(self, *, at_once: bool) -> None:
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
        """Add what was seen here to what is in the file, and learn from both."""
        try:
            while True:
                with self._lock:
                    seen = {key: Calls.sum(parts) for key, parts in self._pending.items()}
                with alone(self._path):
                    theirs = Baseline.load(self._path) if os.path.exists(self._path) else Baseline()
                    both = advanced(joined(theirs, self._known, complete=True), seen, self._calls)
                    if both != theirs:
                        both.write(self._path)
                self._go_on(both, seen)
                self._unsaved = False
                if all(self.missing(key) for key in list(self._pending)):
                    return
        except Exception as error:
            faults.record("baseline: sharing it with other processes", error)
            self._learn_alone()
        finally:
            self._exchanging.release()

    def _go_on(self, known: Baseline, written: Mapping[Key, Calls]) -> None:
        """Go on from *known*, in which the calls *written* are contained."""
        with self._lock:
            self._known = known
            for key, parts in list(self._pending.items()):
                del parts[: len(written.get(key, ()))]
                if not parts or self.find(key):
                    del self._pending[key]

    def _learn_alone(self) -> None:
        """Learn from the calls of this process, and those that were in the file when it could be read."""
        with self._lock:
            enough = {key: Calls.sum(parts) for key, parts in self._pending.items() if not self.missing(key)}
            self._go_on(advanced(self._known, enough, self._calls), enough)
            self._unsaved = bool(enough) or self._unsaved


def joined(first: Baseline, second: Baseline, *, complete: bool = False) -> Baseline:
    """Return what either knows; where both know something, *first* is right.

    Args:
        complete: take only complete distributions from *second*.
    """
    known = {**second.distributions, **first.distributions}
    begun = {**({} if complete else second.learning), **first.learning}
    return Baseline(known, {key: calls for key, calls in begun.items() if key not in known})


def advanced(baseline: Baseline, seen: Mapping[Key, Calls], calls: int) -> Baseline:
    """Return *baseline* with the calls *seen*; a distribution is made of the first *calls* of a key."""
    known, begun = dict(baseline.distributions), dict(baseline.learning)
    for key, more in seen.items():
        if key in known:
            continue
        begun[key] = begun.get(key, Calls()) + more
        if len(begun[key]) >= calls:
            known[key] = begun.pop(key).first(calls)
    return Baseline(known, begun)
