"""Each pass over the steps of a call is needed, and stands where it must, as its docstring says."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from itertools import pairwise
from typing import Any, Final, NamedTuple

import pytest

from ragtrace.core.step import Step
from ragtrace.span_reading.call_division import keep_own_workflows
from ragtrace.span_reading.call_draft import CallDraft, copy_of
from ragtrace.span_reading.finished_span import FinishedSpan, SpanReading
from ragtrace.span_reading.pass_order import PASSES, Pass, build_call, divide
from tests.unit.span_reading.made import ANSWER, PASSAGE, QUERY, chain, llm, retriever, span
from tests.unit.span_reading.recorded import RECORDED, groups, recording

NAMES: Final = tuple(sorted(path.name.removesuffix(".spans.jsonl.gz") for path in RECORDED.glob("*.spans.jsonl.gz")))
SAID: Final = "It is 330 metres tall."


def _rewritten(answer: str | None) -> list[FinishedSpan]:
    """A workflow whose model has rewritten the question, and whose answer is a stream outside of it."""
    root = chain((0, 100), output__value=answer)
    return [llm((1, 5), root, "Eiffel Tower height"), retriever((10, 20), root), root]


def _streamed() -> list[FinishedSpan]:
    """A workflow that returned a stream, so that its own answer is empty."""
    root = chain((0, 100), output__value="")
    return [retriever((10, 20), root), llm((30, 90), root), root]


def _graded() -> list[FinishedSpan]:
    """The same, where the last model call graded the answer."""
    root = chain((0, 100), output__value="")
    return [
        *(retriever((10, 20), root), llm((30, 40), root, SAID)),
        *(llm((50, 90), root, "It is grounded.", f"Is this grounded? {SAID}"), root),
    ]


def _agent_in_tool() -> list[FinishedSpan]:
    """An agent that is the tool of another one, and found a passage with a tool of its own."""
    root = chain((0, 100))
    tool = span("TOOL", (10, 60), root, output__value=SAID, tool__name="ask")
    agent = span("AGENT", (11, 59), tool)
    look = span("TOOL", (12, 20), agent, output__value=PASSAGE, tool__name="look")
    inner = llm((30, 58), agent, SAID, f"{QUERY} {PASSAGE}")
    return [look, inner, agent, tool, llm((70, 90), root, prompt=f"{QUERY} {SAID}"), root]


def _agent_in_other_words() -> list[FinishedSpan]:
    """An agent in a tool, which found what no prompt shows, beside a retrieval whose passage the prompt shows."""
    root = chain((0, 100))
    tool = span("TOOL", (10, 60), root, output__value=SAID, tool__name="ask")
    agent = span("AGENT", (11, 59), tool)
    inner = [retriever((12, 20), agent, "Its height is in a table."), llm((30, 58), agent, SAID)]
    prompt = f"{PASSAGE} {QUERY} {SAID}"
    return [retriever((2, 8), root), *inner, agent, tool, llm((70, 90), root, prompt=prompt), root]


MADE: Final[Mapping[str, list[FinishedSpan]]] = {
    "rewritten": _rewritten(None),
    "rewritten, empty": _rewritten(""),
    "streamed": _streamed(),
    "graded": _graded(),
    "agent in tool": _agent_in_tool(),
    "agent in other words": _agent_in_other_words(),
}
MADE_FOR: Final[Mapping[str, str]] = {
    "forget_answer_before_documents": "rewritten",
    "take_streamed_answer": "streamed",
    "drop_agent_results": "agent in tool",
}
"""Spans that would be read wrong without a pass that no recording shows."""
SHOWS_ORDER: Final[Mapping[tuple[str, str], str]] = {
    ("merge_nested_results", "choose_root"): "agents_sdk-openllmetry+openllmetry-openai-sync",
    ("choose_root", "leave_out_rankings"): "openai_plain-genai-sync",
    ("leave_out_rankings", "require_answer"): "llamaindex_rerank-openllmetry-astream",
    ("choose_final_answer", "forget_answer_before_documents"): "rewritten",
    ("forget_answer_before_documents", "take_streamed_answer"): "rewritten, empty",
    ("take_streamed_answer", "forget_graded_answer"): "graded",
    ("find_documents_in_prompt", "require_evidence"): "openai_plain-genai-sync",
    ("keep_used_documents", "drop_agent_results"): "agent in other words",
}
"""Spans that would be read otherwise if two neighbours changed places: those whose docstrings say that it matters."""


class _Description(NamedTuple):
    """What the docstring of a pass says of it."""

    needed_for: str
    seen_in: str
    stands_by: frozenset[str]
    """Neighbours with which it must not change places."""
    could_change_with: frozenset[str]


def _described(conclude: Pass) -> _Description:
    text = inspect.getdoc(conclude) or ""
    found = re.search(r"^Needed for: (.+)^Seen in: (.+)^Order: (.+)", text, re.MULTILINE | re.DOTALL)
    assert found is not None, f"{conclude.__name__} does not say what it is needed for, where it is seen, and its order"
    order, _, others = found[3].partition("could change places with")
    return _Description(found[1], found[2], _names_in(order), _names_in(others))


def _names_in(text: str) -> frozenset[str]:
    return frozenset(re.findall(r"`(\w+)`", text))


def _drafts(name: str) -> list[CallDraft]:
    spans = MADE[name] if name in MADE else recording(name).spans
    return _drafts_of(spans)


def _drafts_of(spans: Iterable[FinishedSpan]) -> list[CallDraft]:
    return [own for group in groups(spans) for draft in divide(group) for own in keep_own_workflows(draft)]


def _outcomes(drafts: Iterable[CallDraft], passes: Sequence[Pass]) -> list[object]:
    """Return all that is known of the calls that *passes* make of *drafts*; of an error, its type."""
    return [_outcome(draft, passes) for draft in drafts]


def _outcome(draft: CallDraft, passes: Sequence[Pass]) -> object:
    try:
        assembled = build_call(draft, passes)
    except KeyError as error:  # the root, or the final answer, is not chosen yet
        return type(error)
    if assembled is None:
        return None
    call = assembled.builder.build()
    steps = [(step.kind, step.query, step.documents, step.answer) for step in assembled.builder.steps]
    return [getattr(call, field.name) for field in fields(call)], steps


def _exchanged(number: int) -> list[Pass]:
    """Return the passes with the one of that *number* and the next one in each other's place."""
    passes = list(PASSES)
    passes[number : number + 2] = reversed(passes[number : number + 2])
    return passes


@pytest.mark.parametrize("conclude", PASSES, ids=lambda each: each.__name__)
def test_without_a_pass_its_example_is_read_otherwise(conclude: Pass) -> None:
    """The recording that its docstring names, or spans that are made here if it says that no recording shows it."""
    seen_in = _described(conclude).seen_in
    recorded = re.match(r"recording `([^`]+)`", seen_in)
    assert recorded is not None or seen_in.startswith("made")
    example = MADE_FOR[conclude.__name__] if recorded is None else recorded[1]
    drafts = _drafts(example)
    others = [each for each in PASSES if each is not conclude]
    assert _outcomes(drafts, others) != _outcomes(drafts, PASSES)


def test_each_docstring_tells_of_both_neighbours() -> None:
    """Of two neighbours, either says that it stands by the other, or one says that they could change places."""
    for first, second in pairwise(PASSES):
        one, other = _described(first), _described(second)
        matters = second.__name__ in one.stands_by or first.__name__ in other.stands_by
        does_not = second.__name__ in one.could_change_with or first.__name__ in other.could_change_with
        assert matters != does_not, (first.__name__, second.__name__)
        assert matters == ((first.__name__, second.__name__) in SHOWS_ORDER)


@pytest.mark.parametrize("names", SHOWS_ORDER, ids=" and ".join)
def test_neighbours_that_may_not_change_places(names: tuple[str, str]) -> None:
    """Their example is then read otherwise."""
    number = next(at for at, each in enumerate(PASSES) if each.__name__ == names[0])
    assert PASSES[number + 1].__name__ == names[1]
    drafts = _drafts(SHOWS_ORDER[names])
    assert _outcomes(drafts, _exchanged(number)) != _outcomes(drafts, PASSES)


@pytest.fixture(scope="module")
def every_draft() -> list[CallDraft]:
    """The calls in all recordings, and in all spans that are made here."""
    return [draft for name in (*NAMES, *MADE) for draft in _drafts(name)]


@pytest.fixture(scope="module")
def every_outcome(every_draft: list[CallDraft]) -> list[object]:
    """What the passes make of these calls."""
    return _outcomes(every_draft, PASSES)


@pytest.mark.parametrize(
    "number",
    [at for at, (one, other) in enumerate(pairwise(PASSES)) if (one.__name__, other.__name__) not in SHOWS_ORDER],
    ids=lambda at: f"{PASSES[at].__name__} and {PASSES[at + 1].__name__}",
)
def test_neighbours_that_may_change_places(
    number: int, every_draft: list[CallDraft], every_outcome: list[object]
) -> None:
    """No recording, and nothing that is made here, is then read otherwise."""
    assert _outcomes(every_draft, _exchanged(number)) == every_outcome


def _snapshot(readings: Iterable[SpanReading]) -> list[tuple[Any, ...]]:
    return [(*(getattr(each, field.name) for field in fields(each)), dict(vars(each.step))) for each in readings]


def test_a_copy_of_a_reading_has_all_of_it() -> None:
    """And a step of its own."""
    span = retriever((10, 20))
    original = SpanReading(span, Step(), "c", 3, is_cut=True, calls_tools=True, begins_call=True, is_ambiguous=True)
    original.step.query = QUERY
    copy = copy_of(original)
    assert [getattr(copy, each.name) for each in fields(copy) if each.name != "step"] == [
        getattr(original, each.name) for each in fields(original) if each.name != "step"
    ]
    assert copy.step is not original.step
    assert vars(copy.step) == vars(original.step)


def test_nothing_changes_a_reading() -> None:
    """Neither the division into calls nor any pass nor the building of a call."""
    for name in (*NAMES, *MADE):
        found = groups(MADE[name] if name in MADE else recording(name).spans)
        readings = [reading for group in found for reading in group.readings]
        before = _snapshot(readings)
        for group in found:
            for draft in divide(group):
                _outcomes(keep_own_workflows(draft), PASSES)
        assert _snapshot(readings) == before, name


def test_an_answer_of_before_the_documents_is_not_known() -> None:
    """What the made spans are for: no answer is invented."""
    [draft] = _drafts("rewritten")
    call = build_call(draft)
    assert call is not None
    built = call.builder.build()
    assert (built.query, built.answer, built.answer_captured) == (QUERY, None, False)


def test_a_graded_answer_is_not_known() -> None:
    """Nor is the answer that the last model call wrote of another one."""
    [draft] = _drafts("graded")
    call = build_call(draft)
    assert call is not None
    assert call.builder.build().answer is None
    [streamed] = _drafts("streamed")
    other = build_call(streamed)
    assert other is not None
    assert other.builder.build().answer == ANSWER
