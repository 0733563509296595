"""Order of the passes by which a group of steps becomes RAG calls.

`divide` makes a draft of each call of a group (`DIVISION`, `keep_own_workflows`), and `build_call` a RAG call of a
draft (`PASSES`). The passes themselves are in `call_division.py` and `call_passes.py`.

Every pass says in its docstring which instrumentations need it, in which recording of `tests/files/recorded` it can be
seen, and why it stands where it stands. `test_call_division.py` and `test_call_passes.py` in `tests/unit/span_reading`
take each pass out, and let each two neighbours change places: the recording is then read otherwise, unless the
docstring says that the two could change places.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, TypeAlias

from ragtrace.span_reading import call_passes
from ragtrace.span_reading.call_division import Division, assign_by_prompt, drafts_of, split_at_answers
from ragtrace.span_reading.call_draft import AssembledCall, CallDraft
from ragtrace.span_reading.step_groups import StepGroup

Pass: TypeAlias = Callable[[CallDraft], CallDraft | None]
"""Function that concludes one thing from the steps of a RAG call. It returns None if they form no RAG call."""

DIVISION: Final[tuple[Callable[[Division], Division], ...]] = (split_at_answers, assign_by_prompt)
"""Passes that divide the outermost steps of a group into RAG calls, in the order of use."""

PASSES: Final[tuple[Pass, ...]] = (
    call_passes.merge_nested_results,
    call_passes.choose_root,
    call_passes.leave_out_rankings,
    call_passes.require_answer,
    call_passes.choose_final_answer,
    call_passes.forget_answer_before_documents,
    call_passes.take_streamed_answer,
    call_passes.forget_graded_answer,
    call_passes.find_question,
    call_passes.find_documents_in_prompt,
    call_passes.require_evidence,
    call_passes.sum_usage,
    call_passes.find_defect,
    call_passes.keep_used_documents,
    call_passes.drop_agent_results,
)
"""Passes over the steps of one RAG call, in the order of use."""


def divide(group: StepGroup, passes: Sequence[Callable[[Division], Division]] = DIVISION) -> list[CallDraft]:
    """Divide the steps of *group* into RAG calls. Changes nothing."""
    division: Division = (tuple(group.tops),) if group.tops else ()
    for change in passes:
        division = change(division)
    return drafts_of(group, division)


def build_call(draft: CallDraft, passes: Sequence[Pass] = PASSES) -> AssembledCall | None:
    """Build a RAG call from steps that were read from spans, or return None if the steps form no RAG call.

    Steps without an answer and a generation form no call, unless the workflow around them failed, and nor does a model
    call outside any workflow that has no documents.
    """
    for conclude in passes:
        changed = conclude(draft)
        if changed is None:
            return None
        draft = changed
    return draft.build()
