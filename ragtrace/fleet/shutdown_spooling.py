"""Storing of the RAG calls that a shutdown leaves unscored in the spool file, and counting of what becomes of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from time import monotonic
from typing import Final

from ragtrace.core.types import RagCall
from ragtrace.core.unscored_call import UnscoredCall
from ragtrace.fleet.spooling import Spooling
from ragtrace.pipeline.call_ends import NOT_SPOOLED, SPOOLED, CallEnd
from ragtrace.pipeline.call_outcomes import CallOutcomes
from ragtrace.pipeline.call_preparation import CallPreparation
from ragtrace.pipeline.shutdown import AT_LEAST_SECONDS, ShutdownBudget
from ragtrace.pipeline.work_items import CallItem
from ragtrace.system.faults import faults
from ragtrace.system.threads import run_bounded, start_in_thread

_STORED_AT_ONCE: Final = 128
"""Most calls that are written to the spool file in one batch."""
_STORED_AT_LEAST: Final = 16
"""Number of calls in a batch that are stored without checking whether the time suffices."""
_STORE_SECONDS: Final = 0.005
"""Typical time for writing a batch of calls to the spool file."""
_STORE_GRACE_SECONDS: Final = 0.02
"""Extra time for a batch that is being written at the deadline, for which the shutdown waits `AT_LEAST_SECONDS`."""
_COMMIT_SECONDS: Final = 0.5
"""Longest time for which a shutdown waits for a commit to the spool file that is in progress at the deadline."""
_ENCODE_SECONDS: Final = 0.000_1
"""Typical time for encoding a call as JSON."""


class ShutdownSpooling:
    """Storage of the RAG calls that a shutdown leaves unscored.

    The thread of the shutdown calls `store_or_drop` once, after the worker was stopped. It leaves the work to a thread
    for which it waits a limited time, as a user's redaction or a disk may hang; a call is counted as stored if its
    commit passed the gate `Spooling.commits` before that was closed.

    Args:
        preparation: builds the calls.
        outcomes: counts the outcomes of the calls.
        spooling: stores the calls.
    """

    def __init__(self, preparation: CallPreparation, outcomes: CallOutcomes, spooling: Spooling) -> None:
        self._preparation, self._outcomes, self._spooling = preparation, outcomes, spooling
        # Appended to by the worker's thread, and read once by the shutdown's. A call that is appended after that is not
        # missed: until then it is in progress, and the worker's `stop` has returned it.
        self._interrupted: list[CallItem] = []

    def keep_interrupted(self, work: CallItem) -> None:
        """Keep a RAG call whose scoring the shutdown cancelled for `store_or_drop`."""
        self._interrupted.append(work)

    def store_or_drop(self, works: Sequence[CallItem], budget: ShutdownBudget) -> None:
        """At shutdown, store all unscored RAG calls in the spool file or drop them, and count their outcomes.

        Args:
            works: items that were never begun, or that block the worker; calls whose scoring was cancelled are added.
            budget: time budget of the shutdown; calls for which it leaves no time are counted as dropped.
        """
        # From here on, scores that the worker may still finish for these calls are neither counted nor sent.
        works = [*works, *self._interrupted]
        claimed = {work: names for work in dict.fromkeys(works) if (names := work.claim_pending_evaluators())}
        ends: dict[CallItem, CallEnd] = {}
        for work in claimed:
            work.dropped_at_shutdown = work.dropped or SPOOLED.reason
        until, commits = budget.until_stored(), self._spooling.commits
        if claimed:
            # A user's redaction or a disk may hang.
            run_bounded(partial(self._store, claimed, ends, until), until + AT_LEAST_SECONDS)
        undecided: set[object] = {*commits.close(_COMMIT_SECONDS)}
        later = {work: names for work, names in claimed.items() if work in undecided}
        self._count_unscored({work: names for work, names in claimed.items() if work not in later}, ends)
        if later:  # a disk does not answer; these calls are pending until it does
            close, count = partial(commits.close, None), partial(self._count_unscored, later, ends)
            start_in_thread(lambda: (close(), count()))

    def _count_unscored(self, claimed: Mapping[CallItem, tuple[str, ...]], ends: Mapping[CallItem, CallEnd]) -> None:
        """Count the outcomes of RAG calls that a shutdown has left unscored.

        Args:
            claimed: the calls, each with the ids of the evaluators that have not scored it.
            ends: ends of calls that were handled but not stored in the spool file.
        """
        final: dict[CallItem, CallEnd] = {}
        for work in claimed:
            # A call that was read from the spool file is still in it.
            is_in_file = work.is_spooled or work.spool_row is not None
            final[work] = SPOOLED if is_in_file else ends.get(work, NOT_SPOOLED)
            work.dropped_at_shutdown = final[work].reason
        self._outcomes.count_claimed(claimed, final)

    def _store(self, claimed: Mapping[CallItem, tuple[str, ...]], ends: dict[CallItem, CallEnd], until: float) -> None:
        """Store unscored RAG calls in the spool file in batches until the monotonic time *until*.

        Args:
            claimed: the calls, each with the ids of the evaluators that have not scored it.
            ends: filled with the end of every call that was handled, for the case that it is not stored.
            until: monotonic seconds.
        """
        left = [work for work in claimed if work.spool_row is None and not work.is_spooled][::-1]
        with self._spooling.keep_open():
            while left:
                works: list[CallItem] = []
                calls: list[UnscoredCall] = []
                while left and len(works) < _STORED_AT_ONCE:
                    if len(works) >= _STORED_AT_LEAST and (
                        monotonic() > until - _STORE_SECONDS - _ENCODE_SECONDS * len(works)
                    ):
                        break
                    work = left.pop()
                    call, ends[work] = self._prepare_for_spool(work)
                    if call is not None:
                        works.append(work)
                        step = work.step
                        calls.append(
                            UnscoredCall(call, claimed[work], step.response_id, work.probability, work.sampling_reason)
                        )
                self._spooling.add(works, calls, until + _STORE_GRACE_SECONDS - monotonic())
                if monotonic() > until - _STORE_SECONDS:
                    return

    def _prepare_for_spool(self, work: CallItem) -> tuple[RagCall | None, CallEnd]:
        """Build and redact the RAG call of a queued work item, so that it can be stored in the spool file.

        Returns:
            The call, None if it must not be stored; and the end to count if it is not stored.
        """
        try:
            if work.call is None and work.builder is not None:
                self._preparation.prepare(work)
                work.call = self._preparation.build(work.builder)
            end = None if work.call is None else self._preparation.end_without_scores(work.call)
            return (work.call, NOT_SPOOLED) if end is None else (None, end)
        except Exception as error:
            faults.record("spool", error)
            return None, NOT_SPOOLED
