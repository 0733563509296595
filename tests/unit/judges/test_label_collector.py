"""`LabelCollector` asks for the labels of one call: which requests it makes, and what it makes of the replies."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any, cast

import pytest

from ragtrace.core.errors import JudgeError
from ragtrace.core.labels import Turn
from ragtrace.core.types import Document, RagCall
from ragtrace.judges.llm.chat import JudgeSession, ModelReply
from ragtrace.judges.llm.label_collector import (
    LabelCollector,
    LabelPlan,
    Labels,
    Mode,
    Step,
    labels_for,
    plan_requests,
)
from ragtrace.judges.llm.prompt import Prompt, R
from ragtrace.judges.llm.prompt_input import prepare_input
from ragtrace.judges.llm.prompts import LABELS, Label
from tests.support.chats import Data, Rule, ScriptedChat, data_of, failing, honest

TOWER = "The Eiffel Tower is 330 metres high. It stands in Paris."
BUILT = "Gustave Eiffel's company built it in 1889 for a world's fair."
CALL = RagCall(
    "How high is the Eiffel Tower?",
    (Document(TOWER), Document(BUILT)),
    "The Eiffel Tower is 330 metres high. It was built in 1889.",
)
CITED = RagCall(CALL.query, CALL.contexts, "The Eiffel Tower is 330 metres high [1]. It was built in 1889 [2].")
NO_CHUNKS = RagCall(CALL.query, (), CALL.answer)
NO_ANSWER = RagCall(CALL.query, CALL.contexts, " ")
NOTHING = RagCall(CALL.query, (), " ")

CLAIMS, CHUNKS, CITATIONS = (labels_for(frozenset({field})) for field in ("claims", "chunks", "citations"))
ANSWER = labels_for(frozenset({"answer_rating", "answer_label"}))
SUPPORT = labels_for(frozenset({"claims", "answer_label"}), frozenset({"statements", "support", "answer_label"}))
NONE = labels_for(frozenset())
ALL = LABELS
FULL, EXTRACT, VERIFY = "ragtrace_judgement", "ragtrace_extraction", "ragtrace_verification"


def collected(
    rule: Rule | ScriptedChat, call: RagCall = CALL, labels: frozenset[Label] = ALL, **options: Any
) -> tuple[Labels, ScriptedChat]:
    """Return the labels of *call* by a model that replies by *rule*, and its chat."""
    chat = rule if isinstance(rule, ScriptedChat) else ScriptedChat(rule)
    given = {"mode": "fast", "statements_per_call": 10, "max_chars": 100_000, "with_gold_checks": False, **options}
    session = JudgeSession(chat)  # type: ignore[arg-type]
    collector = LabelCollector(session, prepare_input(call), labels, chance=random.Random(7), **given)
    return asyncio.run(collector.collect()), chat


def listing(sentences: int, *contexts: str) -> RagCall:
    """A call with an answer of so many sentences."""
    answer = " ".join(f"Item {number} is listed in the catalogue." for number in range(sentences))
    return RagCall("What is listed?", tuple(map(Document, contexts or (TOWER,))), answer)


def changing(**changes: Callable[[list[Data]], object]) -> Rule:
    """The honest reply with some of its lists changed."""

    def rule(ask: Prompt[Any], data: Data) -> Data:
        reply = honest(ask, data)
        return reply | {name: change(reply[name]) for name, change in changes.items() if name in reply}

    return rule


def supports(labels: Labels) -> list[object]:
    """Return the support of each statement in the order of the statements."""
    verdicts = labels.verification.verdicts
    return [verdicts[index].support for index in sorted(verdicts)]


# --- which requests ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "labels", "steps", "only_statements"),
    [
        (CALL, ALL, {"answer", "chunks"}, False),
        (CALL, CLAIMS, {"answer", "chunks"}, True),
        (CALL, CLAIMS | CHUNKS, {"answer", "chunks"}, False),
        (CALL, ANSWER, {"answer"}, False),
        (CALL, CHUNKS, {"chunks"}, False),
        (CALL, CITATIONS, {"answer", "chunks"}, False),
        (CALL, NONE, set(), False),
        (NO_CHUNKS, ALL, {"answer"}, False),
        (NO_ANSWER, ALL, {"chunks"}, False),
        (NO_ANSWER, CLAIMS, set(), True),
        (NOTHING, ALL, set(), False),
    ],
)
def test_only_labels_that_are_needed_and_can_be_had_are_planned(
    call: RagCall, labels: frozenset[Label], steps: set[Step], only_statements: bool
) -> None:
    """An answer without a sentence has no labels, and a call without chunks has none of these."""
    plan = plan_requests(prepare_input(call), labels, mode="fast", max_chars=100_000, with_gold_checks=None)
    assert (plan.steps, plan.only_statements) == (frozenset(steps), only_statements)


@pytest.mark.parametrize(
    ("mode", "room", "given", "in_steps", "with_gold_checks"),
    [
        ("fast", 0, None, False, False),
        ("fast", 0, True, False, True),
        ("fast", -1, None, True, True),
        ("fast", -1, False, True, False),
        ("careful", 0, None, True, True),
        ("careful", 0, False, True, False),
    ],
)
def test_a_call_that_is_too_long_is_asked_about_in_steps(
    mode: Mode, room: int, given: bool | None, in_steps: bool, with_gold_checks: bool
) -> None:
    """As one is in the mode careful; then with gold checks, unless they are left out."""
    source = prepare_input(CALL)
    plan = plan_requests(source, ALL, mode=mode, max_chars=source.chars + room, with_gold_checks=given)
    assert (plan.in_steps, plan.with_gold_checks) == (in_steps, with_gold_checks)


@pytest.mark.parametrize("given", [None, True, False])
def test_one_sentence_and_several_chunks_have_a_second_plan(given: bool | None) -> None:
    """That of the mode careful, for a reply that is cut off: such a call has no half. No other call has the plan."""
    one = replace(CALL, answer="The Eiffel Tower is 330 metres high.")

    def plan(call: RagCall, labels: frozenset[Label] = ALL, mode: Mode = "fast") -> LabelPlan:
        return plan_requests(prepare_input(call), labels, mode=mode, max_chars=100_000, with_gold_checks=given)

    assert plan(one).if_cut_off == plan(one, mode="careful")
    assert plan(one, mode="careful").if_cut_off is None
    for call, labels in ((CALL, ALL), (replace(one, contexts=(Document(TOWER),)), ALL), (one, ANSWER), (one, CHUNKS)):
        assert plan(call, labels).if_cut_off is None


@pytest.mark.parametrize(
    ("mode", "labels", "kinds"),
    [
        ("fast", ALL, [FULL]),
        ("fast", ANSWER, [EXTRACT]),
        ("fast", CHUNKS, [VERIFY]),
        ("careful", ALL, [EXTRACT, VERIFY]),
        ("careful", CLAIMS, [EXTRACT, VERIFY]),
        ("careful", ANSWER, [EXTRACT]),
        ("careful", CHUNKS, [VERIFY]),
        ("fast", NONE, []),
        ("careful", NONE, []),
    ],
)
def test_each_mode_has_its_requests(mode: Mode, labels: frozenset[Label], kinds: list[str]) -> None:
    """At once, or the answer first and then the chunks."""
    found, chat = collected(honest, labels=labels, mode=mode)
    assert chat.kinds == kinds
    assert found.mode == mode


def test_a_call_that_is_too_long_says_that_it_was_asked_about_in_steps() -> None:
    """In the mode of its labels; no request has more chunks than fit."""
    labels, chat = collected(honest, max_chars=100)
    assert labels.mode == "careful"
    assert chat.kinds == [EXTRACT, VERIFY, VERIFY]
    assert [[chunk["text"] for chunk in chat.data(index)["chunks"]] for index in (1, 2)] == [[TOWER], [BUILT]]
    assert supports(labels) == ["supported", "not_found"]


@pytest.mark.parametrize(("sentences", "requests"), [(12, [12]), (13, [7, 6]), (60, [12] * 5)])
@pytest.mark.parametrize(("mode", "kind"), [("fast", FULL), ("careful", EXTRACT)])
def test_a_request_is_about_twelve_sentences_at_most(
    sentences: int, requests: list[int], mode: Mode, kind: str
) -> None:
    """Of more, models leave out some; the labels of all requests are put together."""
    labels, chat = collected(honest, listing(sentences), mode=mode)
    asked = [len(chat.data(index)["answer_sentences"]) for index, name in enumerate(chat.kinds) if name == kind]
    assert asked == requests
    assert len(labels.extraction.statements or ()) == len(labels.extraction.sentences or ()) == sentences
    assert sorted(labels.verification.verdicts) == list(range(sentences))


@pytest.mark.parametrize(("statements", "batches"), [(1, [1]), (10, [10]), (11, [10, 1]), (25, [10, 10, 5])])
@pytest.mark.parametrize("gold_checks", [0, 2])
def test_so_many_statements_are_verified_in_a_request(statements: int, batches: list[int], gold_checks: int) -> None:
    """Gold checks are not counted among them."""
    _, chat = collected(honest, listing(statements), mode="careful", with_gold_checks=bool(gold_checks))
    given = [len(chat.data(index)["given_statements"]) for index, kind in enumerate(chat.kinds) if kind == VERIFY]
    assert given == [batch + gold_checks for batch in batches]


def test_each_statement_is_verified_against_each_chunk() -> None:
    """Where neither all chunks nor all statements fit into one request; the best label counts."""
    call = listing(3, "x " * 40, "Item 2 is listed in the catalogue. " + "y " * 30)
    labels, chat = collected(honest, call, mode="careful", max_chars=100, statements_per_call=2)
    pairs = [
        (chunk["id"], statement["text"])
        for index, kind in enumerate(chat.kinds)
        if kind == VERIFY
        for chunk in chat.data(index)["chunks"]
        for statement in chat.data(index)["given_statements"]
    ]
    assert len(pairs) == len(set(pairs)) == 6
    assert supports(labels) == ["not_found", "not_found", "supported"]


def test_sentences_that_are_too_long_together_are_asked_about_apart() -> None:
    """As many in a request as have room."""
    _, chat = collected(honest, listing(6), labels=ANSWER, max_chars=80)
    texts = [[one["text"] for one in chat.data(index)["answer_sentences"]] for index in range(len(chat.asks))]
    assert [len(each) for each in texts] == [2, 2, 2]
    assert max(sum(map(len, each)) for each in texts) <= 80


@pytest.mark.parametrize("mode", ["fast", "careful"])
def test_every_request_shows_the_question_and_what_came_before(mode: Mode) -> None:
    """For labels of the answer and of the chunks."""
    call = replace(CALL, earlier_turns=(Turn("user", "I am in Paris."), Turn("assistant", "How nice.")))
    _, chat = collected(honest, call, mode=mode)
    for index in range(len(chat.asks)):
        assert chat.data(index)["query"] == CALL.query
        assert [turn["text"] for turn in chat.data(index)["earlier_turns"]] == ["I am in Paris.", "How nice."]


def test_the_extraction_is_shown_no_chunk() -> None:
    """In steps: so a hostile chunk cannot make statements disappear."""
    _, chat = collected(honest, mode="careful")
    assert set(chat.data(0)) == {"query", "answer_sentences"}


def test_what_cannot_be_checked_is_not_verified() -> None:
    """The others keep their numbers."""

    def uncheckable(items: list[Data]) -> list[Data]:
        return [item | {"checkable": "no"} if item["id"] == "t1" else item for item in items]

    def without_text(items: list[Data]) -> list[Data]:
        return [item | {"text": ""} if item["id"] == "t1" else item for item in items]

    _, chat = collected(changing(statements=without_text), mode="careful")
    assert [one["text"] for one in chat.data()["given_statements"]] == ["It was built in 1889."]
    labels, chat = collected(changing(statements=uncheckable), mode="careful")
    assert [one["text"] for one in chat.data()["given_statements"]] == ["It was built in 1889."]
    assert set(labels.verification.verdicts) == {1}


@pytest.mark.parametrize(("labels", "kinds"), [(CLAIMS, [EXTRACT]), (CLAIMS | CHUNKS, [EXTRACT, VERIFY])])
def test_an_answer_without_statements_has_its_chunks_compared_only_if_they_need_labels(
    labels: frozenset[Label], kinds: list[str]
) -> None:
    """They are then compared with the sentences."""
    rule = changing(statements=lambda items: [item | {"checkable": "no"} for item in items if "checkable" in item])
    _, chat = collected(rule, labels=labels, mode="careful")
    assert chat.kinds == kinds
    if VERIFY in kinds:
        assert (len(chat.data()["answer_parts"]), chat.data()["given_statements"]) == (2, [])


@pytest.mark.parametrize(("cut_off", "statements_per_call"), [(0, 10), (1, 10), (0, 1)])
def test_each_citation_is_in_one_request(cut_off: int, statements_per_call: int) -> None:
    """That with its chunk and the first statement; also where that request is repeated in halves."""
    rule = failing(VERIFY, JudgeError("truncated"), times=cut_off)
    _, chat = collected(rule, CITED, mode="careful", max_chars=100, statements_per_call=statements_per_call)
    asked = [chat.data(index) for index, kind in enumerate(chat.kinds) if kind == VERIFY][cut_off:]
    shown = [(cited["chunk_id"], cited["sentence_id"]) for data in asked for cited in data["citations"]]
    assert sorted(shown) == [("c1", "s1"), ("c2", "s2")]
    assert all(
        {chunk["id"] for chunk in data["chunks"]} >= {cited["chunk_id"] for cited in data["citations"]}
        for data in asked
    )


def test_a_request_at_once_has_the_citations_of_its_sentences() -> None:
    """So each is in one request, and in none before its sentence is shown."""
    answer = str(listing(13).answer).replace("Item 0 is", "Item 0 [1] is").replace("Item 12 is", "Item 12 [1] is")
    _, chat = collected(honest, replace(listing(13), answer=answer))
    assert [[cited["sentence_id"] for cited in chat.data(index)["citations"]] for index in (0, 1)] == [["s1"], ["s13"]]


@pytest.mark.parametrize("mode", ["fast", "careful"])
def test_a_citation_of_no_chunk_is_in_no_request(mode: Mode) -> None:
    """There is nothing that the model could be shown; beside it, others are asked about."""
    answer = "The Eiffel Tower is 330 metres high [9]. It was built in 1889 [3]. It stands in Paris [1]."
    _, chat = collected(honest, replace(CITED, contexts=(*CITED.contexts, Document(" ")), answer=answer), mode=mode)
    assert [(cited["chunk_id"], cited["sentence_id"]) for cited in chat.data()["citations"]] == [("c1", "s3")]


@pytest.mark.parametrize(
    ("labels", "mode", "keys"),
    [
        (SUPPORT, "fast", ["statements", "no_statement_ids", "answer_label"]),
        (SUPPORT, "careful", ["statements", "no_statement_ids", "answer_label", "statements"]),
        (CLAIMS, "fast", ["sentences", "statements", "answer_label"]),
        (CHUNKS, "fast", ["chunks"]),
        (CITATIONS, "fast", ["sentences", "citations"]),
        (ANSWER, "fast", ["answer_rating", "answer_label"]),
    ],
)
def test_no_label_is_asked_for_that_no_metric_reads(labels: frozenset[Label], mode: Mode, keys: list[str]) -> None:
    """Neither by the schema, nor by the instructions, nor by the data."""
    _, chat = collected(honest, CITED, labels, mode=mode)
    properties = [cast("Data", ask.schema["properties"]) for ask in chat.asks]
    assert [key for each in properties for key in each] == keys
    for ask, wanted in zip(chat.asks, properties, strict=True):
        others = {
            "sentences",
            "chunks",
            "citations",
            "answer_rating",
            "answer_label",
            "no_statement_ids",
        } - wanted.keys()
        assert [key for key in others if f"\n{key}" in ask.system] == []
        assert ("- relevant:" in ask.system) == ("relevant" in json.dumps(ask.schema) and "statements" in wanted)
        assert ("citations" in data_of(ask)) == ("citations" in wanted)


def test_a_citation_needs_no_chunk_to_be_counted() -> None:
    """The labels of the answer say which sentences may cite."""
    _, chat = collected(honest, NO_CHUNKS, CITATIONS)
    assert chat.kinds == [EXTRACT]


def test_sentences_without_a_statement_are_listed() -> None:
    """Such a sentence is none that the model has left out; one that is neither stated nor listed is."""
    call = replace(CALL, answer="Hello! The Eiffel Tower is 330 metres high.")

    def rule(listed: list[str]) -> Rule:
        return changing(statements=lambda items: items[1:], no_statement_ids=lambda _: listed)

    labels, chat = collected(rule(["s1"]), call, SUPPORT)
    assert (labels.extraction.skipped, supports(labels)) == (frozenset({"s1"}), ["supported"])
    assert chat.repairs == []
    _, chat = collected(rule([]), call, SUPPORT)
    assert chat.repairs == [["statements: s1 is not in no_statement_ids, but no statement has it in its sentence_ids"]]
    _, chat = collected(rule(["s1", "s7"]), call, SUPPORT)
    assert chat.repairs == [["the reply.no_statement_ids: unknown id 's7'"]]


class CountingChat(ScriptedChat):
    """Chat that knows which kinds of requests waited for a reply at the same time, and how many at most."""

    def __init__(self, rule: Rule) -> None:
        super().__init__(rule)
        self._waiting: list[str] = []
        self.together: set[frozenset[str]] = set()
        self.most = 0

    async def ask(self, prompt: Prompt[R]) -> ModelReply[R]:
        self._waiting.append(prompt.name)
        await asyncio.sleep(0)  # for the requests of the same step
        self.together.add(frozenset(self._waiting))
        self.most = max(self.most, len(self._waiting))
        self._waiting.remove(prompt.name)
        return await super().ask(prompt)


def test_requests_of_a_step_run_at_the_same_time_and_the_steps_one_after_the_other() -> None:
    """As the second needs the statements of the first."""
    chat = CountingChat(honest)
    collected(chat, listing(30), mode="careful", statements_per_call=10)
    assert chat.kinds == [EXTRACT] * 3 + [VERIFY] * 3
    assert (chat.together, chat.most) == ({frozenset({EXTRACT}), frozenset({VERIFY})}, 3)


# --- gold checks ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["fast", "careful"])
def test_gold_checks_look_like_statements_and_are_none(mode: Mode) -> None:
    """One that a chunk says, and one that none says; neither has a verdict among those of the answer."""
    labels, chat = collected(honest, mode=mode, with_gold_checks=True)
    texts = [one["text"] for one in chat.data()["given_statements"]]
    assert sum(text in TOWER or text in BUILT for text in texts) == (1 if mode == "fast" else 2)
    assert [one["id"] for one in chat.data()["given_statements"]] == [f"g{n}" for n in range(1, len(texts) + 1)]
    assert (supports(labels), labels.suspect) == (["supported", "not_found"], False)
    assert len(labels.extraction.statements or ()) == 2


@pytest.mark.parametrize(
    ("mode", "call", "labels", "checks"),
    [
        ("fast", CALL, ALL, 2),
        ("fast", CALL, CLAIMS, 2),
        ("fast", CALL, ANSWER, 0),
        ("fast", CALL, CHUNKS, 0),
        ("fast", NO_CHUNKS, ALL, 0),
        ("careful", CALL, ALL, 2),
        ("careful", CALL, CLAIMS, 2),
        ("careful", CALL, ANSWER, 0),
        ("careful", CALL, CHUNKS, 2),
        ("careful", NO_CHUNKS, ALL, 0),
    ],
)
def test_gold_checks_are_in_the_requests_where_the_plan_has_them(
    mode: Mode, call: RagCall, labels: frozenset[Label], checks: int
) -> None:
    """Where statements are verified: not beside labels of the answer, nor at once beside those of the chunks alone."""

    def given(with_gold_checks: bool) -> int:
        _, chat = collected(honest, call, labels, mode=mode, with_gold_checks=with_gold_checks)
        return sum(len(chat.data(index).get("given_statements", ())) for index in range(len(chat.asks)))

    plan = plan_requests(prepare_input(call), labels, mode=mode, max_chars=100_000, with_gold_checks=True)
    assert given(True) - given(False) == checks
    assert plan.with_gold_checks == (checks > 0)


@pytest.mark.parametrize("support", ["supported", "not_found", "partial", "contradicted", "nonsense"])
@pytest.mark.parametrize("mode", ["fast", "careful"])
def test_a_model_that_labels_all_alike_is_suspect(mode: Mode, support: str) -> None:
    """In one request of several is enough; without gold checks nothing is known of it."""
    wrong = {"support": support, "evidence_chunk_ids": ["c1"], "quote": "Paris"}
    rule = changing(statements=lambda items: [item | wrong if "support" in item else item for item in items])
    assert collected(rule, listing(15), mode=mode, with_gold_checks=True)[0].suspect
    assert not collected(rule, listing(15), mode=mode, with_gold_checks=False)[0].suspect


def test_one_wrong_label_of_a_gold_check_is_remembered() -> None:
    """Also where all later requests are answered well."""
    wrong = {"support": "not_found", "evidence_chunk_ids": [], "quote": ""}
    left = [1]

    def change(items: list[Data]) -> list[Data]:
        if "support" not in items[0] or not left:
            return items
        left.clear()
        return [item | wrong for item in items]

    labels, chat = collected(
        changing(statements=change), listing(3), mode="careful", with_gold_checks=True, statements_per_call=1
    )
    assert (labels.suspect, chat.kinds.count(VERIFY) >= 3) == (True, True)


def test_a_gold_check_stands_anywhere_and_its_evidence_is_not_asked_for_again() -> None:
    """Either would tell the model which of the statements it is."""
    call = listing(10)

    def change(items: list[Data]) -> list[Data]:
        return [item | {"quote": "nowhere"} if item["support"] == "supported" else item for item in items]

    def rule(ask: Prompt[Any], data: Data) -> Data:
        reply = honest(ask, data)
        return reply if ask.name == EXTRACT else reply | {"statements": change(reply["statements"])}

    _, chat = collected(rule, call, mode="careful", with_gold_checks=True)
    texts = [one["text"] for one in chat.data()["given_statements"]]
    assert [text in str(call.answer) for text in texts[-2:]] != [False, False]
    assert (chat.kinds, chat.repairs) == ([EXTRACT, VERIFY], [])


def test_a_label_without_evidence_is_not_believed_in_steps() -> None:
    """The quote is asked for once more, and then nothing was found."""
    unproven = {"quote": "something else", "support": "supported", "evidence_chunk_ids": ["c1"]}
    rule = changing(statements=lambda items: [item | unproven if "quote" in item else item for item in items])
    labels, chat = collected(rule, mode="careful")
    assert chat.kinds == [EXTRACT, VERIFY, VERIFY]
    verdicts = labels.verification.verdicts.values()
    assert [(verdict.support, verdict.evidence) for verdict in verdicts] == [("not_found", ())] * 2


# --- failures ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("mode", "kind", "items"),
    [
        ("fast", FULL, "answer_sentences"),
        ("careful", EXTRACT, "answer_sentences"),
        ("careful", VERIFY, "given_statements"),
    ],
)
def test_a_cut_off_reply_is_asked_for_in_halves(mode: Mode, kind: str, items: str) -> None:
    """Half of the sentences, or of the statements, at a time; the labels are those of one request."""
    labels, chat = collected(failing(kind, JudgeError("truncated"), times=1), mode=mode)
    shown = [len(chat.data(index)[items]) for index, name in enumerate(chat.kinds) if name == kind]
    assert shown == [2, 1, 1]
    assert labels.failed == {}
    assert (len(labels.extraction.statements or ()), supports(labels)) == (2, ["supported", "not_found"])


def test_a_cut_off_reply_about_chunks_is_asked_for_in_halves_of_them() -> None:
    """Where no label of the answer is wanted; each request shows the whole answer."""
    labels, chat = collected(failing(VERIFY, JudgeError("truncated"), times=1), labels=CHUNKS)
    assert [len(data["chunks"]) for data in map(chat.data, range(3))] == [2, 1, 1]
    assert [len(data["answer_parts"]) for data in map(chat.data, range(3))] == [2, 2, 2]
    assert (chat.kinds, labels.verification.grades) == ([VERIFY] * 3, {"c1": 2, "c2": 2})


def test_a_cut_off_reply_about_one_statement_is_asked_for_in_halves_of_the_chunks() -> None:
    """The best label of the statement counts, as where the chunks are too long for one request."""
    one = RagCall(CALL.query, CALL.contexts, "The Eiffel Tower is 330 metres high.")
    labels, chat = collected(failing(VERIFY, JudgeError("truncated"), times=1), one, mode="careful")
    asked = [chat.data(index) for index, kind in enumerate(chat.kinds) if kind == VERIFY]
    assert [(len(data["given_statements"]), len(data["chunks"])) for data in asked] == [(1, 2), (1, 1), (1, 1)]
    assert (labels.failed, supports(labels), labels.verification.grades) == ({}, ["supported"], {"c1": 2, "c2": 2})


def test_a_cut_off_reply_about_one_sentence_is_asked_for_in_steps() -> None:
    """Its sentence has no half, and its chunks are in both halves of the second step if they have to be."""
    one = RagCall(CALL.query, CALL.contexts, "The Eiffel Tower is 330 metres high.")
    whole, _ = collected(honest, one)
    labels, chat = collected(failing(FULL, JudgeError("truncated")), one)
    assert chat.kinds == [FULL, EXTRACT, VERIFY]
    assert (labels.mode, labels.failed) == ("careful", {})
    assert labels.verification.grades == whole.verification.grades
    assert (supports(labels), labels.extraction.answer_label) == (supports(whole), whole.extraction.answer_label)


@pytest.mark.parametrize(("given", "expected"), [(None, True), (True, True), (False, False)])
def test_what_a_cut_off_reply_is_asked_for_in_steps_has_gold_checks(given: bool | None, expected: bool) -> None:
    """As where a call is asked about in steps for its length."""
    one = RagCall(CALL.query, CALL.contexts, "The Eiffel Tower is 330 metres high.")
    _, chat = collected(failing(FULL, JudgeError("truncated")), one, with_gold_checks=given)
    (verified,) = [chat.data(index) for index, kind in enumerate(chat.kinds) if kind == VERIFY]
    assert (len(verified["given_statements"]) > 1) == expected


@pytest.mark.parametrize("labels", [ALL, CHUNKS])
def test_a_cut_off_reply_about_one_sentence_and_one_chunk_is_a_failure(labels: frozenset[Label]) -> None:
    """There is nothing to halve."""
    one = RagCall(CALL.query, (Document(TOWER),), "The Eiffel Tower is 330 metres high.")
    chat = ScriptedChat(failing(FULL if labels == ALL else VERIFY, JudgeError("truncated")))
    with pytest.raises(JudgeError, match="truncated"):
        collected(chat, one, labels)
    assert len(chat.asks) == 1


@pytest.mark.parametrize("mode", ["fast", "careful"])
def test_a_half_that_is_cut_off_is_not_halved_again(mode: Mode) -> None:
    """There is one further try, no more."""
    rule = failing(FULL if mode == "fast" else EXTRACT, JudgeError("truncated", retryable=True))
    chat = ScriptedChat(rule)
    with pytest.raises(JudgeError, match="truncated"):
        collected(chat, mode=mode)
    assert len(chat.asks) == 2


@pytest.mark.parametrize("retryable", [True, False])
def test_a_failure_at_once_leaves_no_labels(retryable: bool) -> None:
    """Whatever its reason: there is one request, or some for parts of the answer."""
    with pytest.raises(JudgeError, match="refused"):
        collected(failing(FULL, JudgeError("refused", retryable=retryable)))


def test_a_failed_extraction_leaves_the_labels_of_the_chunks() -> None:
    """They are held against the sentences as they stand."""
    labels, chat = collected(failing(EXTRACT, JudgeError("refused")), mode="careful")
    assert labels.failed == {"answer": "refused"}
    assert (labels.extraction.statements, labels.verification.grades) == (None, {"c1": 2, "c2": 2})
    assert len(chat.data()["answer_parts"]) == 2


def test_a_failed_verification_leaves_the_labels_of_the_answer() -> None:
    """With the error of the chunks."""
    labels, _ = collected(failing(VERIFY, JudgeError("refused")), mode="careful")
    assert labels.failed == {"chunks": "refused"}
    assert (labels.extraction.answer_rating, labels.verification.verdicts) == (3, {})


@pytest.mark.parametrize(
    ("kind", "labels"),
    [(EXTRACT, ANSWER), (EXTRACT, CLAIMS), (VERIFY, CHUNKS), (EXTRACT, ALL), (VERIFY, ALL)],
    ids=["answer alone", "answer, whose statements the chunks wait for", "chunks alone", "answer", "chunks"],
)
def test_a_failure_in_steps_is_raised_if_a_retry_may_help_or_nothing_is_left(
    kind: str, labels: frozenset[Label]
) -> None:
    """The call is then asked about again as a whole."""
    refused = JudgeError("refused")
    if labels != ALL:
        with pytest.raises(JudgeError, match="refused"):
            collected(failing(kind, refused), labels=labels, mode="careful")
    with pytest.raises(JudgeError, match="unavailable"):
        collected(failing(kind, JudgeError("unavailable")), labels=labels, mode="careful")


def test_both_steps_that_fail_leave_nothing() -> None:
    """The error is that of the second."""

    def rule(ask: Prompt[Any], data: Data) -> Data | JudgeError:
        return JudgeError("refused" if ask.name == EXTRACT else "content_filter")

    with pytest.raises(JudgeError, match="content_filter"):
        collected(rule, mode="careful")
