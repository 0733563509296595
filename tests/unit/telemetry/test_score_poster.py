"""Scores on their way to a backend's own API: posted once, tried again, bounded, counted."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from ragtrace.core.feedback import Feedback
from ragtrace.core.ledger import DeliveryCounts
from ragtrace.core.score_sink import Refusal, ScoreRecord
from ragtrace.core.types import Score, Unscored
from ragtrace.system.faults import faults
from ragtrace.telemetry.export.outbox import Outbox
from ragtrace.telemetry.export.score_poster import ScorePoster
from tests.support.posting import ScriptedSink, a_score, call_of, evaluation_of

AWAY = Refusal("unavailable", again=True, busy=True)
UNKNOWN = Refusal("unknown_trace", again=True)
Make = Callable[..., ScorePoster]


@pytest.fixture
def sink() -> ScriptedSink:
    return ScriptedSink()


@pytest.fixture
def make(sink: ScriptedSink) -> Iterator[Make]:
    """Makes posters to the sink, which are closed after the test."""
    made: list[ScorePoster] = []

    def build(**options: object) -> ScorePoster:
        made.append(ScorePoster(sink, service="guide", **options))  # type: ignore[arg-type]
        return made[-1]

    yield build
    sink.gate.set()
    for poster in made:
        poster.outbox.close(1.0)
    faults.clear()


def _balanced(books: DeliveryCounts) -> bool:
    lost = sum(books.failed.values()) + sum(books.dropped.values())
    return books.offered == books.posted + books.repeated + lost + books.pending


def test_a_score_is_posted_with_what_it_says(sink: ScriptedSink, make: Make) -> None:
    """Name, value, label, explanation, who says so and how probable it was that it was asked."""
    poster, call = make(), call_of()
    poster(call, [evaluation_of()])
    assert poster.outbox.flush(30.0)
    (record,) = sink.taken
    assert (record.name, record.value, record.label) == ("faithfulness", 0.5, "partly")
    assert record.explanation == "1 of 2 claims is supported"
    assert (record.annotator, record.evaluator, record.probability) == ("LLM", "judge@2", 0.25)
    assert call.span is not None
    assert (record.trace_id, record.span_id) == (call.span.trace_id, call.span.span_id)
    assert (record.service, record.workflow) == ("guide", "guide")
    assert abs(record.time_ns / 1e9 - time.time()) < 60


@pytest.mark.parametrize(("type_", "kind"), [("llm_judge", "LLM"), ("deterministic", "CODE"), ("human", "HUMAN")])
def test_the_annotator_is_of_its_kind(sink: ScriptedSink, make: Make, type_: str, kind: str) -> None:
    """A language model, code or a person."""
    poster = make()
    poster(call_of(), [evaluation_of(type_=type_)])
    assert poster.outbox.flush(30.0)
    assert [record.annotator for record in sink.taken] == [kind]


def test_what_is_unscored_is_not_posted(sink: ScriptedSink, make: Make) -> None:
    """There is no number to post."""
    poster = make()
    poster(call_of(), [evaluation_of({"faithfulness": Unscored("no_claims"), "answered": a_score(1.0, "answered")})])
    assert poster.outbox.flush(30.0)
    assert [record.name for record in sink.taken] == ["answered"]
    assert poster.outbox.counts() == DeliveryCounts(offered=1, posted=1)


def test_a_repeat_is_posted_once(sink: ScriptedSink, make: Make) -> None:
    """The same score again, waiting or posted long ago, is counted and not posted."""
    poster = make()
    poster(call_of(7), [evaluation_of()])
    poster(call_of(7), [evaluation_of()])
    assert poster.outbox.flush(30.0)
    poster(call_of(7), [evaluation_of()])
    assert poster.outbox.flush(30.0)
    assert len(sink.taken) == 1
    assert poster.outbox.counts() == DeliveryCounts(offered=3, posted=1, repeated=2)


def test_of_two_evaluators_of_a_metric_the_judge_is_shown(sink: ScriptedSink, make: Make) -> None:
    """A backend averages what has one name: the screen's score would change the judge's."""
    poster = make()
    poster(call_of(), [evaluation_of(evaluator="screen"), evaluation_of(evaluator="judge")])
    assert poster.outbox.flush(30.0)
    assert [record.evaluator for record in sink.taken] == ["judge@2"]


@pytest.mark.parametrize(
    ("names", "headline"),
    [
        (["consistency", "faithfulness", "answered", "hallucinated"], {"faithfulness", "hallucinated"}),
        (["answered", "consistency", "suspicious"], {"consistency", "suspicious"}),
        (["answered", "umbrela"], {"answered"}),
        (["umbrela", "of_our_own"], {"umbrela", "of_our_own"}),
    ],
)
def test_a_list_of_traces_is_read_by_few_scores(
    names: list[str], headline: set[str], sink: ScriptedSink, make: Make
) -> None:
    """By the judge's where there are some, else by the screen's, else by `answered`, else by what there is."""
    poster = make()
    poster(call_of(), [replace(evaluation_of(), results={name: Score(0.5, name, "1") for name in names})])
    assert poster.outbox.flush(30.0)
    assert {record.name for record in sink.taken if record.headline} == headline


def test_a_backend_that_was_away_gets_every_score(sink: ScriptedSink, make: Make) -> None:
    """Refused for the moment three times, then taken: nothing is lost, nothing comes twice."""
    poster = make()
    sink.refusals.extend([AWAY, AWAY, AWAY])
    for _ in range(5):
        poster(call_of(), [evaluation_of()])
    assert poster.outbox.flush(10.0)
    assert len(sink.taken) == len({record.id for record in sink.taken}) == 5
    assert poster.outbox.counts() == DeliveryCounts(offered=5, posted=5)


def test_a_trace_that_has_not_arrived_holds_nobody_else_up(sink: ScriptedSink, make: Make) -> None:
    """Its score waits, the next one is posted."""
    poster = make()
    sink.refusals.append(Refusal("unknown_trace", again=True, after_s=0.5))
    poster(call_of(1), [evaluation_of()])
    assert sink.entered.wait(30.0)
    poster(call_of(2), [evaluation_of()])
    assert poster.outbox.flush(30.0)
    assert [record.span_id for record in sink.taken] == [2, 1]


def test_the_backends_own_pause_is_kept(sink: ScriptedSink, make: Make) -> None:
    """Its Retry-After goes before our hurry in a flush."""
    poster = make()
    sink.refusals.append(Refusal("unavailable", again=True, busy=True, after_s=0.6))
    began = time.monotonic()
    poster(call_of(), [evaluation_of()])
    assert poster.outbox.flush(30.0)
    assert time.monotonic() - began >= 0.6


def test_the_backends_own_pause_for_one_score_is_kept(sink: ScriptedSink, make: Make) -> None:
    """A flush that begins after the refusal does not send that score before its Retry-After, but sends the others."""
    poster = make()
    sink.refusals.append(Refusal("unknown_trace", again=True, after_s=0.6))
    began = time.monotonic()
    poster(call_of(1), [evaluation_of()])
    assert sink.entered.wait(30.0)
    poster(call_of(2), [evaluation_of()])
    while not sink.taken:  # the second score arrives after the refusal of the first has been recorded
        assert time.monotonic() - began < 30.0
        sink.entered.wait(0.01)
    assert poster.outbox.flush(30.0)
    assert time.monotonic() - began >= 0.6
    assert [record.span_id for record in sink.taken] == [2, 1]


def test_patience_ends(sink: ScriptedSink, make: Make) -> None:
    """A trace that never comes costs its score, by reason."""
    poster = make(patience=0.05)
    sink.refusals.extend([UNKNOWN] * 100)
    poster(call_of(), [evaluation_of()])
    assert not poster.outbox.flush(30.0)
    assert poster.outbox.counts() == DeliveryCounts(offered=1, failed={"unknown_trace": 1})


def test_what_is_refused_for_good_is_not_tried_again(sink: ScriptedSink, make: Make) -> None:
    """A wrong key will be wrong again."""
    poster = make()
    sink.refusals.append(Refusal("unauthorized", detail="status 401"))
    poster(call_of(), [evaluation_of()])
    assert not poster.outbox.flush(30.0)
    assert len(sink.posts) == 1
    assert poster.outbox.counts() == DeliveryCounts(offered=1, failed={"unauthorized": 1})


def test_a_backend_that_refuses_the_key_is_not_hammered(sink: ScriptedSink, make: Make) -> None:
    """After the first refusal it is left alone for a while, though not in a flush."""
    poster = make()
    sink.refusals.append(Refusal("unauthorized", busy=True))
    poster(call_of(), [evaluation_of()])
    assert not poster.outbox.flush(30.0)
    assert left_alone(sink, poster)
    assert poster.outbox.flush(30.0)
    assert len(sink.taken) == poster.outbox.counts().offered - 1


def test_a_flush_of_nothing_does_not_end_a_pause(sink: ScriptedSink, make: Make) -> None:
    """It has nothing to try whether the backend would answer by now."""
    poster = make()
    sink.refusals.append(Refusal("unauthorized", busy=True))
    poster(call_of(), [evaluation_of()])
    deadline = time.monotonic() + 30.0
    while poster.outbox.counts().pending:
        assert time.monotonic() < deadline
        sink.entered.wait(0.01)
    poster.outbox.flush(30.0)
    assert left_alone(sink, poster)


def left_alone(sink: ScriptedSink, poster: ScorePoster) -> bool:
    """Whether a new score waits; the first may still be taken along by a flush that is just ending."""
    for _ in range(3):
        sink.entered.clear()
        poster(call_of(), [evaluation_of()])
        if not sink.entered.wait(0.2):
            return True
    return False


def test_one_bad_score_does_not_take_the_others_with_it(sink: ScriptedSink, make: Make) -> None:
    """A refused request is sent again score by score."""
    poster = make()
    sink.poison = "bad"
    names = ("good", "bad", "fine")
    poster(call_of(), [evaluation_of({name: a_score(1.0, name) for name in names})])
    assert not poster.outbox.flush(30.0)
    assert {record.name for record in sink.taken} == {"good", "fine"}
    assert poster.outbox.counts() == DeliveryCounts(offered=3, posted=2, failed={"refused": 1})


def test_a_full_queue_drops_and_counts(sink: ScriptedSink, make: Make, caplog: pytest.LogCaptureFixture) -> None:
    """The memory is bounded; what does not fit is counted, and said once."""
    poster = make(capacity=3)
    sink.gate.clear()
    for _ in range(10):
        poster(call_of(), [evaluation_of()])
    assert poster.outbox.counts().dropped == {"queue_full": 7}
    sink.gate.set()
    assert not poster.outbox.flush(30.0)
    assert poster.outbox.flush(30.0)
    assert poster.outbox.counts() == DeliveryCounts(offered=10, posted=3, dropped={"queue_full": 7})
    assert len([record for record in caplog.records if "could not be posted" in record.message]) == 1


def test_bytes_are_bounded_too(sink: ScriptedSink, make: Make) -> None:
    """Long explanations fill the queue before many scores do."""
    poster = make(most_bytes=10_000)
    sink.gate.clear()
    for _ in range(50):
        poster(call_of(), [evaluation_of()])
    books = poster.outbox.counts()
    assert books.pending <= 16
    assert books.dropped == {"queue_full": 50 - books.pending}


@pytest.mark.timing
def test_the_caller_does_not_wait_for_the_backend(sink: ScriptedSink, make: Make) -> None:
    """A backend that hangs costs the background nothing."""
    poster = make()
    sink.gate.clear()
    began = time.monotonic()
    for _ in range(100):
        poster(call_of(), [evaluation_of()])
    assert not poster.outbox.flush(0.2)
    assert time.monotonic() - began < 5.0  # the backend hangs until the end of the test


@pytest.mark.parametrize("error", [RuntimeError("a bug"), SystemExit(3), KeyboardInterrupt()], ids=repr)
def test_a_sink_that_raises_is_counted(sink: ScriptedSink, make: Make, error: BaseException) -> None:
    """Its failure goes no further, and the thread that posts goes on."""
    poster = make()
    sink.error = error
    poster(call_of(), [evaluation_of()])
    assert not poster.outbox.flush(30.0)
    assert poster.outbox.counts() == DeliveryCounts(offered=1, failed={"internal": 1})
    sink.error = None
    poster(call_of(), [evaluation_of()])
    assert poster.outbox.flush(30.0)


def test_what_the_head_sampler_dropped_is_not_posted(sink: ScriptedSink, make: Make) -> None:
    """The backend will never see that trace."""
    poster = make()
    poster(call_of(sampled=False), [evaluation_of()])
    assert poster.outbox.flush(30.0)
    assert not sink.posts
    assert poster.outbox.counts() == DeliveryCounts(offered=1, dropped={"head_dropped": 1})


def test_closing_posts_what_is_left(sink: ScriptedSink, make: Make) -> None:
    """And takes no more."""
    poster = make()
    poster(call_of(), [evaluation_of()])
    assert poster.outbox.close(30.0)
    poster(call_of(), [evaluation_of()])
    assert poster.outbox.counts() == DeliveryCounts(offered=2, posted=1, dropped={"shutdown": 1})


def test_closing_counts_what_it_could_not_post(sink: ScriptedSink, make: Make) -> None:
    """Also what the hanging backend has in hand; the books balance."""
    poster = make()
    sink.most_at_once = 2
    sink.gate.clear()
    for _ in range(5):
        poster(call_of(), [evaluation_of()])
    assert sink.entered.wait(30.0)
    began = time.monotonic()
    assert not poster.outbox.close(0.2)
    assert time.monotonic() - began < 5.0
    assert poster.outbox.counts() == DeliveryCounts(offered=5, dropped={"shutdown": 5})
    sink.gate.set()


def test_the_books_balance_at_every_moment(sink: ScriptedSink, make: Make) -> None:
    """offered = posted + repeated + failed + dropped + pending."""
    poster = make(capacity=20)
    sink.refusals.extend([AWAY, None, UNKNOWN, Refusal("server_error", again=True), None])
    for number in range(60):
        poster(call_of(1 + number % 40), [evaluation_of()])
        assert _balanced(poster.outbox.counts())
    poster.outbox.flush(30.0)
    assert _balanced(poster.outbox.counts())
    assert poster.outbox.counts().pending == 0


def test_a_late_first_post_is_hurried_by_a_flush(make: Make, sink: ScriptedSink) -> None:
    """A backend that must have the spans first is given time, but nobody waits for it."""
    sink.first_after_s = 60.0  # type: ignore[attr-defined]
    poster = make()
    poster(call_of(), [evaluation_of()])
    assert not sink.entered.wait(0.1)
    assert poster.outbox.flush(30.0)
    assert len(sink.taken) == 1


class Threadless(Outbox[ScoreRecord]):
    """Outbox where no thread can be started: no room for one, or the interpreter is shutting down."""

    def _start(self) -> None:
        """Start nothing."""


def threadless(sink: ScriptedSink) -> ScorePoster:
    """Return a poster to *sink* whose outbox has no thread."""
    poster = ScorePoster(sink)
    poster.outbox.__class__ = Threadless
    return poster


def test_without_a_thread_of_its_own_a_flush_posts(sink: ScriptedSink) -> None:
    """Within its time, refusals and all."""
    poster = threadless(sink)
    sink.refusals.append(AWAY)
    for _ in range(3):
        poster(call_of(), [evaluation_of()])
    assert poster.outbox.flush(30.0)
    assert poster.outbox.close(30.0)
    assert poster.outbox.counts() == DeliveryCounts(offered=3, posted=3)


def test_without_a_thread_a_hanging_backend_is_given_up_in_time(sink: ScriptedSink) -> None:
    """What it has in hand is counted as lost."""
    poster = threadless(sink)
    sink.gate.clear()
    poster(call_of(), [evaluation_of()])
    began = time.monotonic()
    assert not poster.outbox.close(0.3)
    assert time.monotonic() - began < 5.0
    assert poster.outbox.counts() == DeliveryCounts(offered=1, dropped={"shutdown": 1})
    sink.gate.set()


# --- feedback --------------------------------------------------------------------------------------------------------


def _feedback(score: float | None, at: int, *, sampled: bool = True) -> Feedback:
    span = call_of(1, sampled=sampled).span
    assert span is not None
    return Feedback("f" * 32, span, "user_feedback", score, None, "well", None, "u-1", at)


def test_feedback_is_posted_as_a_humans(sink: ScriptedSink, make: Make) -> None:
    """With the person as the evaluator and the comment as the explanation, where a list of traces shows it."""
    poster = make()
    poster.post_feedback(_feedback(0.75, 5))
    assert poster.outbox.flush(30.0)
    (record,) = sink.taken
    assert (record.id, record.name, record.value, record.explanation) == ("f" * 32, "user_feedback", 0.75, "well")
    assert (record.annotator, record.evaluator, record.headline, record.time_ns) == ("HUMAN", "u-1", True, 5)


def test_feedback_is_not_overwritten_by_older_feedback(sink: ScriptedSink, make: Make) -> None:
    """The older one was refused for a while, and would be posted after the newer one."""
    poster = make()
    sink.refusals.append(UNKNOWN)
    poster.post_feedback(_feedback(0.0, 1))
    assert sink.entered.wait(30.0)
    poster.post_feedback(_feedback(1.0, 2))
    assert poster.outbox.flush(30.0)
    assert [record.value for record in sink.taken] == [1.0]
    assert _balanced(poster.outbox.counts())


def test_feedback_without_a_score_or_a_trace_is_counted_as_skipped(sink: ScriptedSink, make: Make) -> None:
    """A backend's score needs a number and a trace."""
    poster = make()
    poster.post_feedback(_feedback(None, 1))
    poster.post_feedback(_feedback(1.0, 1, sampled=False))
    assert poster.outbox.flush(30.0)
    assert not sink.taken
    assert poster.outbox.counts().dropped == {"no_score": 1, "head_dropped": 1}
