"""Steps that end inside a call go to the background with it: none is late for a flush, lost, or written twice."""

from __future__ import annotations

import os
import threading
from collections import Counter
from collections.abc import Callable

import pytest

import ragtrace
from ragtrace.runtime.current_runtime import current
from tests.support.watched import ANSWER, GOOD, WAIT_S, WaitingJudge, ask, eventually, generate, search, watch


def names(captured: ragtrace.testing.Captured) -> list[str]:
    return [span.name for span in captured.spans]


def lost_spans() -> int:
    return ragtrace.stats().faults.get("lost spans: queue full", 0)


def warm() -> None:
    """Nothing joins before the background has come by once."""
    ask("first?")
    assert ragtrace.flush(WAIT_S)


@ragtrace.trace(name="outer")
def around(inside: Callable[[], object]) -> str:
    """A call that retrieves, and then does something else before it ends."""
    search("why?")
    inside()
    return ANSWER


def test_a_short_call_is_handed_over_at_once() -> None:
    """One item for the background instead of one for each of its steps; all three spans come, children first."""
    captured = watch(screen=None)
    warm()
    runtime = current()
    assert runtime is not None
    sizes: list[int] = []
    around(lambda: sizes.append(runtime.worker.size))
    assert sizes == [0]
    assert ragtrace.flush(WAIT_S)
    assert names(captured)[3:] == ["retrieval places", "invoke_workflow outer"]


def test_a_flush_inside_a_call_exports_what_has_ended() -> None:
    """Everything finished so far means steps too."""
    captured = watch(screen=None)
    warm()
    seen: list[list[str]] = []

    def look() -> None:
        assert ragtrace.flush(WAIT_S)
        seen.append(names(captured)[3:])

    around(look)
    assert seen == [["retrieval places"]]


def test_a_step_of_a_long_call_does_not_wait_for_its_end() -> None:
    """It is handed over when the background next comes by: somebody may be watching the trace grow."""
    captured = watch(screen=None)
    warm()
    found: list[bool] = []
    around(lambda: found.append(eventually(lambda: "retrieval places" in names(captured)[3:])))
    assert found == [True]
    assert ragtrace.flush(WAIT_S)
    assert Counter(names(captured)[3:]) == {"retrieval places": 1, "invoke_workflow outer": 1}


def test_a_call_of_many_steps_hands_them_over_one_by_one() -> None:
    """Or their end would be a long piece of work at once."""
    captured = watch(screen=None)
    warm()

    def many() -> None:
        for _ in range(20):
            search("more?")

    around(many)
    assert ragtrace.flush(WAIT_S)
    assert Counter(names(captured)[3:]) == {"retrieval places": 21, "invoke_workflow outer": 1}


def test_a_shutdown_inside_a_call_takes_what_has_ended_along() -> None:
    """The retrieval is exported with its content; the call itself ends when nobody is there any more."""
    captured = watch(screen=None)
    warm()
    around(lambda: ragtrace.shutdown(WAIT_S))
    assert names(captured)[3:4] == ["retrieval places"]
    assert "gen_ai.retrieval.documents" in (captured.spans[3].attributes or {})


def test_a_shutdown_without_patience_ends_the_spans_of_steps_too() -> None:
    """They go out as they are, as the root's does, and nothing is left open."""
    judge = WaitingJudge(GOOD)
    captured = watch(screen=judge, limits=ragtrace.Limits(capacity=100))
    for _ in range(6):
        ask("where?")
    ragtrace.shutdown(0.0)
    assert Counter(names(captured)) == {"retrieval places": 6, "chat tiny": 6, "invoke_workflow guide": 6}
    assert ragtrace.stats().pending == 0


def test_steps_of_a_call_without_room_are_counted() -> None:
    """Every span comes, or is among the faults."""
    judge = WaitingJudge(GOOD, blocking=True)
    captured = watch(screen=judge, limits=ragtrace.Limits(capacity=1))
    before = lost_spans()  # of other tests in this process
    for _ in range(30):
        ask("where?")
    judge.open()
    assert ragtrace.flush(WAIT_S)
    lost = lost_spans() - before
    assert len(captured.spans) + lost == 90
    assert max(Counter(span.context.span_id for span in captured.spans if span.context).values()) == 1


def test_a_step_that_outlives_its_call_is_exported_all_the_same() -> None:
    """A thread that was started inside the call, and ends while the root ends or after it: once, whenever."""
    captured = watch(screen=None)
    warm()
    for _ in range(50):
        threads: list[threading.Thread] = []

        def start(threads: list[threading.Thread] = threads) -> None:
            run = ragtrace.carry(lambda: generate("why?", ["x"]))
            threads.append(threading.Thread(target=run))
            threads[0].start()

        around(start)
        threads[0].join(WAIT_S)
    assert ragtrace.flush(WAIT_S)
    found = Counter(names(captured)[3:])
    assert found == {"retrieval places": 50, "chat tiny": 50, "invoke_workflow outer": 50}


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
def test_a_forked_child_leaves_its_parents_steps_alone() -> None:
    """A step that waited when the fork came is exported once, by the parent."""
    captured = watch(screen=None)
    warm()
    read, write = os.pipe()

    def fork() -> None:
        child = os.fork()
        if child == 0:
            inherited = len(names(captured))  # on a busy machine the parent has exported the step before the fork
            ragtrace.flush(WAIT_S)
            os.write(write, repr(names(captured)[inherited:]).encode())
            os._exit(0)
        os.waitpid(child, 0)  # not any child: a test before may have left one

    around(fork)
    assert os.read(read, 1_000) == b"[]"
    assert ragtrace.flush(WAIT_S)
    assert names(captured)[3:] == ["retrieval places", "invoke_workflow outer"]
    os.close(read)
    os.close(write)


def test_scores_and_contexts_are_those_of_the_joined_steps() -> None:
    """The call is put together from steps that nobody has read before."""
    captured = watch()
    warm()
    ask("where?")
    assert ragtrace.flush(WAIT_S)
    assert ragtrace.stats().scored == 2
    assert all("ragtrace.eval.consistency.score" in (root.attributes or {}) for root in captured.roots())
