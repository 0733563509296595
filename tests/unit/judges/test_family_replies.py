"""What is read of questions, nuggets, conversations and claims that a judge replies."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from ragtrace.core.errors import JudgeError
from ragtrace.core.labels import ChunkLabel, Turn
from ragtrace.core.types import Document, Judgement
from ragtrace.judges.llm.chat import Cost
from ragtrace.judges.llm.embedder import Embedder
from ragtrace.judges.llm.facts import read_claims, read_nuggets
from tests.support.scripted_chat import (
    CALL,
    CLAIMS,
    FACTS,
    GRADED,
    QUESTIONS,
    ZERO_WIDTH,
    Reply,
    Scripted,
    labelled,
    letters,
    reason,
    value,
)


# --- similarity -------------------------------------------------------------------------------------------------------
def test_equal_questions_count_once() -> None:
    """N equal questions are one."""
    reply = {"noncommittal": "no", "questions": ["Where is the depot?", "where is the depot", "Is it in Ghent?"]}
    judgement = labelled(Scripted({"questions": reply}), "answer_relevancy_similarity", embedder=letters)
    assert judgement.questions is not None
    assert len(judgement.questions) == 2
    cosine = sum(a * b for a, b in zip(*letters(["Where is the depot?", "Is it in Ghent?"]), strict=True))
    lengths = [math.hypot(*vector) for vector in letters(["Where is the depot?", "Is it in Ghent?"])]
    expected = (1.0 + cosine / math.prod(lengths)) / 2
    assert value("answer_relevancy_similarity", judgement) == pytest.approx(expected)


def test_without_an_embedder_nothing_is_paid() -> None:
    """The questions alone would be of no use."""
    chat = Scripted({})
    judgement = labelled(chat, "answer_relevancy_similarity", "semantic_similarity")
    assert chat.asked == []
    assert reason("answer_relevancy_similarity", judgement) == "no_embedder"
    assert reason("semantic_similarity", judgement) == "no_embedder"


def test_a_noncommittal_answer_is_zero_without_an_embedding() -> None:
    """Whatever the questions are."""

    def never(texts: Sequence[str]) -> list[list[float]]:
        raise AssertionError(texts)

    reply = {"noncommittal": "yes", "questions": []}
    judgement = labelled(Scripted({"questions": reply}), "answer_relevancy_similarity", embedder=never)
    assert value("answer_relevancy_similarity", judgement) == 0.0


async def _broken(texts: Sequence[str]) -> list[list[float]]:
    raise OSError("no route")


@pytest.mark.parametrize(
    ("embedder", "expected"),
    [
        (lambda texts: [[0.0, 0.0] for _ in texts], "zero_norm"),
        (lambda texts: [[math.nan, 1.0] for _ in texts], "non_finite"),
        (lambda texts: [[1.0], [1.0, 2.0]], "unparsable"),
        (lambda texts: [[1.0]], "unparsable"),
        (lambda texts: "words", "unparsable"),
        (_broken, "unavailable"),
        (lambda texts: 1 / 0, "unavailable"),
    ],
)
def test_a_broken_embedding_is_no_score(embedder: Embedder, expected: str) -> None:
    """Not 0 on an exception, and no division by a norm of 0; the chat call is still paid for."""
    names = ("answer_relevancy_similarity", "semantic_similarity")
    judgement = labelled(Scripted({"questions": QUESTIONS}), *names, embedder=embedder)
    assert [reason(name, judgement) for name in names] == [expected, expected]
    assert judgement.n_calls == 2


def test_an_embedder_may_be_any_callable_or_object() -> None:
    """Plain functions, coroutine functions, and objects that say what they cost."""

    async def awaited(texts: Sequence[str]) -> list[list[float]]:
        return letters(texts)

    class Priced:
        async def embed(self, texts: Sequence[str]) -> tuple[list[list[float]], Cost]:
            return letters(texts), Cost(1, 7, 0, 0.25)

    judgements = [labelled(Scripted({}), "semantic_similarity", embedder=e) for e in (letters, awaited, Priced())]
    assert len({value("semantic_similarity", judgement) for judgement in judgements}) == 1
    assert [judgement.input_tokens for judgement in judgements] == [0, 0, 7]


def test_no_questions_are_no_score() -> None:
    """Nor are they 0."""
    reply = {"noncommittal": "no", "questions": [" ", 5]}
    chat = Scripted({"questions": reply})
    judgement = labelled(chat, "answer_relevancy_similarity", embedder=letters)
    assert reason("answer_relevancy_similarity", judgement) == "no_questions"
    assert chat.defects[0]


# --- nuggets ----------------------------------------------------------------------------------------------------------
def test_vital_nuggets_come_first_and_twenty_are_kept() -> None:
    """Of at most thirty."""
    many = [{"id": "n", "text": f"fact {i}", "importance": "okay" if i < 15 else "vital"} for i in range(30)]
    chat = Scripted({"nuggets": {"nuggets": many}, "assignments": {"assignments": []}})
    judgement = labelled(chat, "nugget_all")
    assert judgement.nuggets is not None
    assert [nugget.importance for nugget in judgement.nuggets] == ["vital"] * 15 + ["okay"] * 5
    assert reason("nugget_all", judgement) == "too_many_unjudged"


def test_a_nugget_that_breaks_the_rules_is_left_out_and_counted() -> None:
    """After the repair; too many of them are no pool to judge by."""
    good = [{"id": "n", "text": f"fact {i}", "importance": "vital"} for i in range(4)]
    bad = {
        "id": "n",
        "text": "one two three four five six seven eight nine ten eleven twelve thirteen",
        "importance": "okay",
    }
    given = {"assignments": [{"id": f"n{i}", "assignment": "support"} for i in range(1, 5)]}
    judgement = labelled(Scripted({"nuggets": {"nuggets": [*good, bad]}, "assignments": given}), "nugget_all")
    assert value("nugget_all", judgement) == 1.0
    assert judgement.attributes["invalid_nuggets"] == 1
    judgement = labelled(Scripted({"nuggets": {"nuggets": [good[0], bad]}, "assignments": given}), "nugget_all")
    assert reason("nugget_all", judgement) == "too_many_unjudged"


def test_without_related_chunks_there_are_no_nuggets() -> None:
    """And no call."""
    judged = replace(GRADED, chunks=(ChunkLabel(0, False),) * 3)
    chat = Scripted({"nuggets": {"nuggets": []}})
    judgement = labelled(chat, "nugget_all", judgement=judged)
    assert chat.asked == []
    assert reason("nugget_all", judgement) == "no_nuggets"


@pytest.mark.parametrize(
    ("judged", "expected"),
    [
        (Judgement(n_calls=1), "unparsable"),
        (Judgement(n_calls=1, reasons={"": "control_failed"}), "control_failed"),
        (
            Judgement(n_calls=1, chunks=(ChunkLabel(None, None), ChunkLabel(2, False), ChunkLabel(0, None))),
            "too_many_unjudged",
        ),
    ],
)
def test_nuggets_need_the_grades(judged: Judgement, expected: str) -> None:
    """Without them it is not known which chunks are related."""
    chat = Scripted({})
    assert reason("nugget_all", labelled(chat, "nugget_all", judgement=judged)) == expected
    assert chat.asked == []


def test_a_reply_cut_off_is_asked_again_in_halves() -> None:
    """Then it is final."""
    pool = {"nuggets": [{"id": "n", "text": f"fact {i}", "importance": "vital"} for i in range(4)]}

    def assign(data: dict[str, Any]) -> Reply:
        ids = [nugget["id"] for nugget in data["nuggets"]]
        if len(ids) > 2:
            return JudgeError("truncated")
        return {"assignments": [{"id": name, "assignment": "support"} for name in ids]}

    chat = Scripted({"nuggets": pool, "assignments": assign})
    assert value("nugget_all", labelled(chat, "nugget_all")) == 1.0
    assert chat.kinds() == ["nuggets", "assignments", "assignments", "assignments"]
    cut = Scripted({"nuggets": pool, "assignments": JudgeError("truncated")})
    assert reason("nugget_all", labelled(cut, "nugget_all")) == "truncated"


# --- conversations ----------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("entry", "state"),
    [
        ({"turn_ids": ["t1"], "text": "x", "state": "pending"}, "pending"),
        ({"turn_ids": ["t9"], "text": "x", "state": "satisfied"}, None),
        ({"turn_ids": ["t1", "t9"], "text": "x", "state": "satisfied"}, None),
        ({"turn_ids": ["t2"], "text": "x", "state": "satisfied"}, None),
        ({"turn_ids": [], "text": "x", "state": "satisfied"}, None),
        ({"turn_ids": ["t1"], "text": "", "state": "satisfied"}, None),
        ({"turn_ids": ["t1"], "text": "x", "state": "yes"}, None),
        ({"turn_ids": [["t1"]], "text": "x", "state": "satisfied"}, None),
    ],
)
def test_an_intention_rests_on_turns_of_the_user(entry: dict[str, Any], state: str | None) -> None:
    """An invented turn, an unknown state or no text make it unjudged, and a defect."""
    chat = Scripted({"intentions": {"intentions": [{"id": "i1", **entry}]}})
    judgement = labelled(chat, "completeness")
    assert judgement.intentions is not None
    assert [intention.state for intention in judgement.intentions] == [state]
    assert bool(chat.defects[0]) is (state is None)


def test_of_a_long_conversation_the_latest_turns_are_shown() -> None:
    """What is left out is counted, and ids stay those of the conversation."""
    turns = tuple(Turn("user" if i % 2 == 0 else "assistant", f"{i} " + "x" * 10_000) for i in range(10))
    chat = Scripted({"intentions": {"intentions": []}})
    judgement = labelled(chat, "completeness", call=replace(CALL, turns=turns))
    assert [turn["id"] for turn in chat.data(0)["turns"]] == ["t6", "t7", "t8", "t9", "t10"]
    assert judgement.attributes["truncated_turns"] == 5


# --- claims -----------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("unusable", [None, "text", {"text": " "}, {}])
def test_unusable_nuggets_and_claims_count_against_the_limit(unusable: object) -> None:
    """Entries that are no objects are as unusable as those without a text."""
    good = [{"id": f"n{n}", "text": f"fact {n}", "importance": "vital"} for n in range(4)]
    written = read_nuggets({"nuggets": [*good, unusable, unusable]})
    assert (len(written.nuggets), written.invalid) == (4, 2)
    claims = read_claims({"answer": [*good, unusable, unusable], "reference": good})
    assert (claims.texts["answer"], claims.reasons) == (None, {"answer": "too_many_unjudged"})


def test_equal_claims_count_once_and_get_ids_of_ours() -> None:
    """Whatever ids the model gave them."""
    reply = {
        "answer": [{"id": "a1", "text": "A."}, {"id": "a1", "text": "B."}, {"id": "z", "text": "A."}],
        "reference": [],
    }
    facts = {"answer": [{"id": "a1", "label": "entailment"}, {"id": "a2", "label": "neutral"}], "reference": []}
    chat = Scripted({"claims": reply, "facts": facts})
    judgement = labelled(chat, "factual_correctness_precision", "factual_correctness_recall")
    assert chat.data(1)["answer_claims"] == [{"id": "a1", "text": "A."}, {"id": "a2", "text": "B."}]
    assert value("factual_correctness_precision", judgement) == 0.5
    assert reason("factual_correctness_recall", judgement) == "no_reference_claims"


def test_many_claims_are_verified_in_batches() -> None:
    """Each batch sees both texts."""
    claims = {
        "answer": [{"id": "x", "text": f"Claim {i}."} for i in range(70)],
        "reference": [{"id": "y", "text": "R."}],
    }

    def verify(data: dict[str, Any]) -> Reply:
        return {
            side: [{"id": claim["id"], "label": "entailment"} for claim in data[f"{side}_claims"]]
            for side in ("answer", "reference")
        }

    chat = Scripted({"claims": claims, "facts": verify})
    judgement = labelled(chat, "factual_correctness_f1")
    assert value("factual_correctness_f1", judgement) == 1.0
    assert chat.kinds() == ["claims", "facts", "facts"]
    assert chat.data(2)["reference"] == "The depot lies in Ghent."


def test_matrices_fit_duplicate_and_hidden_chunks() -> None:
    """The judge sees a text once; the matrix has a row a text as it was retrieved."""
    texts = (
        "The depot is in Ghent.",
        f"The depot is in Ghent.{ZERO_WIDTH}",
        "The depot  is in Ghent.",
        ZERO_WIDTH,
        "Port.",
    )
    call = replace(CALL, contexts=tuple(Document(text) for text in texts))
    row = {"answer": [{"id": "a1", "entails": "yes"}], "reference": [{"id": "r1", "entails": "yes"}]}
    chat = Scripted(
        {"claims": CLAIMS, "facts": FACTS, "entailments": {"chunks": [{"id": c, **row} for c in ("c1", "c5")]}}
    )
    judgement = labelled(chat, "noise_sensitivity_relevant", call=call)
    assert judgement.entailments is not None
    assert judgement.entailments.answer == ((True,), (True,), (False,), (True,))
    assert value("noise_sensitivity_relevant", judgement, call) == 0.0


def test_failed_matrices_leave_correctness_alone() -> None:
    """And the other way round a failed verification has its own reason."""
    chat = Scripted({"claims": CLAIMS, "facts": FACTS, "entailments": JudgeError("content_filter", n_calls=1)})
    judgement = labelled(chat, "noise_sensitivity_relevant", "factual_correctness_f1")
    assert value("factual_correctness_precision", judgement) == 1.0
    assert reason("noise_sensitivity_relevant", judgement) == "content_filter"
    assert judgement.n_calls == 1 + 3
