"""Items of the worker's queue: what each keeps alive, and that each part of a call goes to one taker."""

from __future__ import annotations

import threading

import pytest
from opentelemetry.trace import SpanContext, TraceFlags

from ragtrace.core.step import CallBuilder, Step
from ragtrace.core.types import RagCall
from ragtrace.core.unscored_call import UnscoredCall
from ragtrace.pipeline.work_items import CallItem, Job, StepItem

TEXT = "x" * 10_000


def finished(kind: str, text: str = "") -> Step:
    step = Step()
    step.kind, step.answer, step.ended = kind, text or None, True  # type: ignore[assignment]
    return step


async def _nothing() -> None: ...


@pytest.mark.parametrize("deferred", [True, False])
def test_a_call_weighs_as_much_as_it_and_its_deferred_steps_keep_alive(deferred: bool) -> None:
    """A step that was queued by itself has its own weight."""
    root, step = finished("trace"), finished("generate", TEXT)
    step.joined = [None] * deferred
    call = CallItem(root, CallBuilder(root, [root, step]))
    alone, with_text = StepItem(root).bytes, StepItem(step).bytes
    assert with_text >= Job(_nothing).bytes + len(TEXT)
    assert call.bytes == alone + (with_text if deferred else 0)


def test_each_evaluator_of_a_call_is_claimed_once() -> None:
    """A shutdown and the worker may both want to say what became of a call there."""
    item = CallItem(finished("trace"), pending_evaluators={str(number) for number in range(500)})
    claimed: list[str] = []
    threads = [threading.Thread(target=lambda: claimed.extend(item.claim_pending_evaluators())) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(claimed) == sorted(str(number) for number in range(500))
    assert item.pending_evaluators == set()


def test_each_deferred_step_of_a_call_is_claimed_once() -> None:
    """Whoever ends the call first writes its spans."""
    root, step = finished("trace"), finished("retrieve")
    step.joined = [None]
    item = CallItem(root, CallBuilder(root, [root, step]))
    assert [each.step for each in item.claim_deferred_steps()] == [step]
    assert item.claim_deferred_steps() == []
    assert CallItem(root).claim_deferred_steps() == []


def test_the_item_of_a_call_of_another_process_has_its_span_written() -> None:
    """Its scores are about that span, which has ended there."""
    span = SpanContext(7, 9, is_remote=True, trace_flags=TraceFlags(1))
    call = RagCall("q", None, "a", workflow="faq", span=span)
    item = CallItem.from_unscored(UnscoredCall(call, ("judge",), "r", 0.25, "sampled"))
    assert item.step.span_context == span
    assert (item.step.workflow, item.step.written, item.step.response_id) == ("faq", True, "r")
    assert (item.pending_evaluators, item.probability, item.sampling_reason) == ({"judge"}, 0.25, "sampled")
