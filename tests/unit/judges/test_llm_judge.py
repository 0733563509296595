"""`OpenAIJudge` from a call to a judgement: what each mode asks, what it makes of the replies, and what fails how."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest

from ragtrace.core.cost import Cost
from ragtrace.core.errors import JudgeError, SettingsError
from ragtrace.core.labels import ChunkLabel, Citation, CitedPart
from ragtrace.core.types import Document, Judgement, Metric, RagCall, Score, Unscored
from ragtrace.judges.llm.llm_judge import LLMJudge, RequestOptions
from ragtrace.judges.llm.openai import OpenAIJudge
from ragtrace.metrics import registry
from ragtrace.metrics.formula import Formula
from tests.support.chats import Data, Rule, ScriptedChat, failing, honest

TOWER = "The Eiffel Tower is 330 metres high. It stands in Paris."
BUILT = "Gustave Eiffel's company built it in 1889 for a world's fair."
ANSWER = "The Eiffel Tower is 330 metres high. It was built in 1889."
CALL = RagCall("How high is the Eiffel Tower?", (Document(TOWER), Document(BUILT)), ANSWER)


def judge(chat: ScriptedChat, **options: Any) -> LLMJudge:
    """A judge over *chat*, with orders and control items that do not change from run to run."""
    return LLMJudge(chat, chance=random.Random(7), **options)  # type: ignore[arg-type]


def judged(rule: Rule, call: RagCall = CALL, **options: Any) -> tuple[Judgement, ScriptedChat]:
    """The judgement of *call* by a model that replies by *rule*."""
    chat = ScriptedChat(rule)
    return asyncio.run(judge(chat, **options).judge(call)), chat


def result(name: str, judgement: Judgement, call: RagCall = CALL) -> Score | Unscored:
    """What the metric called *name* makes of *judgement*."""
    return registry.get(name)(call, judgement)


def value(name: str, judgement: Judgement, call: RagCall = CALL) -> float:
    """The number of a metric that has one."""
    found = result(name, judgement, call)
    assert isinstance(found, Score), found
    return found.value


def changed(**changes: Callable[[Data, Data], object]) -> Rule:
    """The honest reply with some parts replaced; a change is given the part and the data."""

    def rule(ask: Any, data: Data) -> Data:
        reply = honest(ask, data)
        for name, change in changes.items():
            if name in reply:
                reply[name] = change(reply[name], data)
        return reply

    return rule


def each(**labels: object) -> Callable[[Any, Data], Any]:
    """Every item of a list with some of its fields set."""
    return lambda items, _: [item | labels for item in items]


# --- fast -------------------------------------------------------------------------------------------------------------


def test_one_request_gives_all_labels() -> None:
    """Claims, sentences, chunks, citations, rating and label come from one reply."""
    call = RagCall(CALL.query, CALL.contexts, "The Eiffel Tower is 330 metres high [1].")
    judgement, chat = judged(honest, call)
    assert len(chat.asks) == judgement.n_calls == 1
    assert judgement.mode == "fast"
    assert judgement.claims is not None
    assert judgement.sentences is not None
    assert judgement.chunks == (ChunkLabel(2, False), ChunkLabel(2, False))
    assert judgement.citations == (Citation(0, 0, "full", "[1]"),)
    assert (judgement.parts, judgement.answer_rating, judgement.answer_label) == (1, 3, "answered")
    assert judgement.reasons == {}


def test_claims_point_into_the_answer() -> None:
    """Offsets of the words, the chunk that shows them, its quote; or what nothing supports."""
    judgement, _ = judged(honest)
    first, second = judgement.claims or ()
    assert ANSWER[first.start : first.end] == "The Eiffel Tower is 330 metres high."
    assert (first.support, first.evidence, first.unsupported) == ("supported", (0,), ())
    assert first.quote == "The Eiffel Tower is 330 metres high."
    assert ANSWER[second.start : second.end] == "It was built in 1889."
    assert (second.support, second.evidence) == ("not_found", (0, 1))
    assert second.unsupported == ((second.start, second.end),)
    assert value("faithfulness", judgement) == 0.5


def test_cost_and_tokens_are_added_up() -> None:
    """Also those of the repair."""
    judgement, chat = judged(changed(chunks=lambda *_: []))
    assert len(chat.asks) == judgement.n_calls == 2
    assert (judgement.input_tokens, judgement.output_tokens) == (200, 20)
    assert judgement.cost_usd == pytest.approx(0.002)
    assert judgement.attributes["judge_model"] == "scripted-1"


def test_a_repair_lists_the_defects() -> None:
    """The model is told what was wrong, item by item."""
    _, chat = judged(changed(chunks=lambda *_: []))
    assert chat.repairs == [["chunks: c1 is missing", "chunks: c2 is missing"]]


FIVE = (
    "The tower has red paint. The tower has two lifts. The tower has a bar. The tower has a shop. The tower has a roof."
)
FIVE_CALL = RagCall("What does the tower have?", (Document(FIVE),), FIVE)


def quoting(*quotes: str, only: int = 99) -> Rule:
    """The honest reply with every statement supported, of which the first *only* have these quotes, one each reply."""
    at = iter(quotes)

    def change(items: Any, _: Data) -> list[Data]:
        quote = next(at)
        wrong = {"support": "supported", "evidence_chunk_ids": ["c1"], "quote": quote}
        return [item | wrong if number < only else item for number, item in enumerate(items)]

    return changed(statements=change)


def test_one_unverified_statement_of_five_keeps_its_label_and_is_counted() -> None:
    """In `fast` it costs no repair; the metrics publish how many there were."""
    judgement, chat = judged(quoting("nowhere to be found", only=1), FIVE_CALL)
    assert len(chat.asks) == 1
    assert value("faithfulness", judgement, FIVE_CALL) == 1.0
    assert judgement.attributes["unverified_statements"] == 1


@pytest.mark.parametrize("quote", ["banana split", "made up quote here", "", "It stands in Paris."])
def test_a_judge_that_shows_nothing_is_not_believed(quote: str) -> None:
    """Labels with invented quotes, or quotes beside the point, are no score, also when asked for again."""
    judgement, chat = judged(quoting(quote, quote, only=1))
    assert len(chat.asks) == 2
    for name in ("faithfulness", "hallucinated", "hallucination", "contradiction"):
        found = result(name, judgement)
        assert isinstance(found, Unscored)
        assert (found.reason, found.status) == ("unverified", "judge_error")
    assert judgement.attributes["unverified_statements"] == 1
    assert value("answer_relevancy", judgement) == 1.0


def test_a_judge_may_mend_its_quotes() -> None:
    """It is told which quotes were not found; the score is that of the second reply."""
    judgement, chat = judged(quoting("nowhere to be found", FIVE), FIVE_CALL)
    assert chat.repairs == [[f"statements[{number}]: quote does not occur in c1" for number in range(5)]]
    assert value("faithfulness", judgement, FIVE_CALL) == 1.0
    assert "unverified_statements" not in judgement.attributes


@pytest.mark.parametrize(
    "quote",
    [
        "330 metres",
        "The Eiffel Tower is about 330 metres high.",
        "The tower is 330 metres high.",
        "the Eiffel Tower is 330 metres high and it stands in Paris",
        "**The Eiffel Tower** ... 330 metres high",
    ],
)
def test_a_quote_with_a_slip_does_not_cost_the_score(quote: str) -> None:
    """It is short, has other words here and there or joins two sentences: the statement may be unverified."""
    call = replace(CALL, answer="The Eiffel Tower is 330 metres high.")
    judgement, chat = judged(quoting(quote), call)
    assert len(chat.asks) == 1
    assert value("faithfulness", judgement, call) == 1.0


def test_one_sentence_of_five_may_be_uncovered() -> None:
    """After one repair it is counted; of the others the claims are made."""
    call = RagCall(CALL.query, CALL.contexts, "One is a. Two is b. Three is c. Four is d. Five is e.")
    judgement, chat = judged(changed(statements=lambda items, _: items[:4]), call)
    assert len(chat.asks) == 2
    assert len(judgement.claims or ()) == 4
    assert judgement.attributes["uncovered_sentences"] == 1


def test_more_than_a_fifth_uncovered_is_no_claims() -> None:
    """Statements that were left out could be the wrong ones."""
    judgement, _ = judged(changed(statements=lambda items, _: items[:1]))
    assert judgement.claims is None
    assert judgement.reasons["claims"] == "coverage"
    assert judgement.sentences is not None


def test_an_answer_that_declines_is_no_score() -> None:
    """It states nothing, and nobody is asked again to find something in it."""
    call = RagCall(CALL.query, CALL.contexts, "I could not find that in the documents.")
    remark = {"checkable": "no", "relevant": "no"}
    for statements in ([], None):
        rule = changed(
            answer_label=lambda *_: "abstained",
            statements=each(**remark) if statements is None else lambda *_: [],
        )
        judgement, chat = judged(rule, call)
        assert len(chat.asks) == 1
        for name in ("faithfulness", "answer_relevancy"):
            found = result(name, judgement, call)
            assert isinstance(found, Unscored)
            assert found.reason == "abstained"
        assert value("answered", judgement, call) == 0.0
        missed = registry.get("context_relevance")(call, judgement)
        assert missed.attributes["missed_answer"] is True


def test_a_greeting_alone_is_no_claims() -> None:
    """An answer of filler states nothing, and is no abstention."""
    call = RagCall(CALL.query, CALL.contexts, "Hello there!")
    judgement, _ = judged(changed(sentences=each(relevant="filler"), statements=lambda *_: []), call)
    reasons = {name: result(name, judgement, call) for name in ("faithfulness", "answer_relevancy")}
    assert [one.reason for one in reasons.values() if isinstance(one, Unscored)] == ["no_claims", "no_statements"]
    sentences = result("answer_relevancy_sentences", judgement, call)
    assert isinstance(sentences, Unscored)
    assert sentences.reason == "no_sentences"


def test_a_repeated_chunk_has_the_labels_of_the_first() -> None:
    """It is judged once, and keeps its rank; a blank one is not judged."""
    call = RagCall(CALL.query, tuple(map(Document, (TOWER, " ", TOWER.replace(" ", "  "), BUILT))), ANSWER)
    judgement, chat = judged(honest, call)
    assert [chunk["id"] for chunk in chat.data()["chunks"]] == ["c1", "c4"]
    assert judgement.chunks == (ChunkLabel(2, False), ChunkLabel(0, False), ChunkLabel(2, False), ChunkLabel(2, False))


@pytest.mark.parametrize("contexts", [None, (), (Document(" "),)])
def test_without_chunks_only_the_answer_is_asked_about(contexts: tuple[Document, ...] | None) -> None:
    """There is nothing to verify against."""
    judgement, chat = judged(honest, RagCall(CALL.query, contexts, ANSWER))
    assert chat.kinds == ["ragtrace_extraction"]
    assert judgement.answer_rating == 3
    support = {claim.support for claim in judgement.claims or ()}
    assert support == ({None} if contexts is None else {"not_found"})
    assert judgement.chunks == (None if contexts is None else tuple(ChunkLabel(0, False) for _ in contexts))


def test_a_blank_answer_is_not_asked_about() -> None:
    """The chunks are graded all the same; they cannot be contradicted."""
    judgement, chat = judged(honest, RagCall(CALL.query, CALL.contexts, " \n"))
    assert chat.kinds == ["ragtrace_verification"]
    assert judgement.chunks == (ChunkLabel(2, None), ChunkLabel(2, None))
    assert judgement.claims is None
    assert judgement.reasons["claims"] == judgement.reasons["answer_label"] == "empty_answer"


def test_nothing_to_judge_costs_nothing() -> None:
    """No answer and no chunk: no request."""
    judgement, chat = judged(honest, RagCall(CALL.query, (), ""))
    assert not chat.asks
    assert (judgement.n_calls, judgement.cost_usd) == (0, 0.0)


def test_without_a_query_there_is_no_grade() -> None:
    """Whatever the model says: nothing is relevant to nothing."""
    judgement, _ = judged(honest, RagCall("  ", CALL.contexts, ANSWER))
    assert judgement.chunks == (ChunkLabel(None, False), ChunkLabel(None, False))
    assert value("faithfulness", judgement) == 0.5


def test_citations_of_filler_and_of_unknown_passages() -> None:
    """A part is a sentence with content; an unknown passage is kept, unjudged, under its marker."""
    call = RagCall(CALL.query, CALL.contexts, "Hello [1]. It is high [2][7]. It is old.")
    labels = {"s1": "filler"}
    rule = changed(sentences=lambda items, _: [item | {"relevant": labels.get(item["id"], "yes")} for item in items])
    judgement, _ = judged(rule, call)
    assert judgement.parts == 2
    assert judgement.citations == (Citation(0, 1, "full", "[2]"), Citation(0, None, None, "[7]"))


def test_citations_beyond_the_most_are_unjudged() -> None:
    """They are not taken for supported, nor for unsupported."""
    contexts = tuple(Document(f"Chunk number {number}.") for number in range(210))
    marks = "".join(f"[{number}]" for number in range(1, 211))
    judgement, chat = judged(honest, RagCall(CALL.query, contexts, f"It is high {marks}."))
    assert len(chat.data()["citations"]) == 200
    assert [one.support for one in judgement.citations or ()] == ["full"] * 200 + [None] * 10


def test_parts_given_by_the_application() -> None:
    """They are cited parts, with or without a citation."""
    parts = (CitedPart("The Eiffel Tower is 330 metres high", ("1",)), CitedPart("It was built in 1889", ()))
    judgement, _ = judged(honest, RagCall(CALL.query, CALL.contexts, ANSWER, parts=parts))
    assert judgement.parts == 2
    assert judgement.citations == (Citation(0, 0, "full", "1"),)


# --- what is asked ----------------------------------------------------------------------------------------------------


def needing(*fields: str) -> Metric:
    """A metric that reads *fields*."""
    return Formula("own", "1", lambda call, judgement: Score(1.0), frozenset(fields))


@pytest.mark.parametrize(
    ("fields", "kinds"),
    [
        (("claims",), ["ragtrace_judgement"]),
        (("answer_label",), ["ragtrace_extraction"]),
        (("answer_rating", "sentences"), ["ragtrace_extraction"]),
        (("chunks",), ["ragtrace_verification"]),
        (("chunks", "answer_label"), ["ragtrace_judgement"]),
        ((), []),
    ],
)
def test_only_what_metrics_need_is_asked(fields: Sequence[str], kinds: list[str]) -> None:
    """No chunk is sent for a metric of the answer alone."""
    chat = ScriptedChat(honest)
    asyncio.run(judge(chat).asking([needing(*fields)]).judge(CALL))
    assert chat.kinds == kinds


def short(found: Score | Unscored) -> float | str:
    return found.value if isinstance(found, Score) else found.reason


CHUNK_METRICS = (
    "context_relevance", "context_relevance_weighted", "contextual_accuracy", "umbrela", "precision_at_k",
    "average_precision_at_k", "reciprocal_rank",
)  # fmt: skip


@pytest.mark.parametrize(
    "call",
    [
        replace(CALL, contexts=(Document(" "), Document("\n"))),
        replace(CALL, contexts=()),
        replace(CALL, contexts=None),
        replace(CALL, query=" "),
    ],
    ids=["blank", "none", "unknown", "no query"],
)
def test_what_the_call_alone_decides_costs_nothing(call: RagCall) -> None:
    """Metrics of the chunks without a chunk or a query to grade: the result is known without a request."""
    chat = ScriptedChat(honest)
    judgement = asyncio.run(judge(chat).asking(registry.resolve(CHUNK_METRICS)).judge(call))
    assert chat.kinds == []
    whole, _ = judged(honest, call)
    for name in CHUNK_METRICS:
        assert short(result(name, judgement, call)) == short(result(name, whole, call))


def test_blank_chunks_do_not_spare_what_other_metrics_need() -> None:
    """The answer is asked about for them."""
    chat = ScriptedChat(honest)
    metrics = registry.resolve(["context_relevance", "answer_relevancy"])
    asyncio.run(judge(chat).asking(metrics).judge(replace(CALL, contexts=(Document(" "),))))
    assert chat.kinds == ["ragtrace_extraction"]


def test_all_metrics_of_the_main_reply_are_offered() -> None:
    """And none that reads what this judge does not give, or nothing at all."""
    offers = judge(ScriptedChat(honest)).offers
    assert all(offers(registry.get(name)) for name in ("faithfulness", "hallucination", "answered"))
    assert offers(needing("chunks", "claims", "sentences", "citations", "parts", "answer_rating"))
    assert offers(needing("reference_contexts_contradicted"))
    assert not offers(needing("consistency"))
    assert not offers(needing())


def test_a_version_names_model_mode_and_prompts() -> None:
    """Labels made otherwise do not compare."""
    made = judge(ScriptedChat(honest), mode="careful", name="careful judge")
    assert (made.id, made.version, made.type) == ("careful judge", "scripted-1/careful/prompts-3", "llm_judge")
    assert made.asking([]).version == made.version


def test_closing_closes_the_transport() -> None:
    """Also through a judge made for some metrics."""
    chat = ScriptedChat(honest)
    asyncio.run(judge(chat).asking([]).aclose())
    assert chat.closed == 1


class ClosingEmbedder:
    """Counts how often it was closed."""

    closed = 0

    async def embed(self, texts: Sequence[str]) -> tuple[list[list[float]], Cost]:
        return [[1.0]] * len(texts), Cost()

    async def aclose(self) -> None:
        self.closed += 1


def test_closing_closes_the_embedder() -> None:
    """Also where closing the transport fails; a function has nothing to close."""

    class Broken(ScriptedChat):
        async def aclose(self) -> None:
            raise OSError

    embedder = ClosingEmbedder()
    with suppress(OSError):
        asyncio.run(judge(Broken(honest), embedder=embedder).aclose())
    assert embedder.closed == 1
    asyncio.run(judge(ScriptedChat(honest), embedder=lambda texts: [[1.0]] * len(texts)).aclose())


@pytest.mark.parametrize("options", [{"mode": "slow"}, {"max_uncovered": 20}, {"mode": "strict"}], ids=str)
def test_a_wrong_argument_is_an_error_at_once(options: dict[str, Any]) -> None:
    """After that nothing raises."""
    with pytest.raises(SettingsError, match=next(iter(options))):
        judge(ScriptedChat(honest), **options)


@pytest.mark.parametrize(
    "options",
    [{"statements_per_call": 0}, {"max_input_chars": 0}, {"timeout": 0}, {"max_tokens": 0}, {"lowest_format": 4}],
    ids=str,
)
def test_a_wrong_option_of_requests_is_an_error_at_once(options: dict[str, Any]) -> None:
    """By its name, and with what it may be."""
    with pytest.raises(SettingsError, match=next(iter(options))):
        OpenAIJudge("tiny", requests=RequestOptions(**options))


# --- careful ----------------------------------------------------------------------------------------------------------


def test_an_unverified_statement_counts_as_not_found() -> None:
    """In `careful` the quote is asked for once more, and then nothing is taken on trust."""

    def rule(ask: Any, data: Data) -> Data:
        reply = honest(ask, data)
        for one in reply["statements"]:
            if "quote" in one and one["support"] == "supported" and one["quote"].startswith("The Eiffel Tower is 330"):
                one["quote"] = "something else"
        return reply

    judgement, chat = judged(rule, mode="careful", gold_checks=False)
    assert chat.kinds == ["ragtrace_extraction", "ragtrace_verification", "ragtrace_verification"]
    assert value("faithfulness", judgement) == 0.0
    assert judgement.attributes["unverified_statements"] == 1
    assert [claim.unverified for claim in judgement.claims or ()] == [True, False]


def test_the_size_of_chunks_holds_for_every_request() -> None:
    """Those for labels of single metrics, too."""
    chat = ScriptedChat(honest)
    limited = judge(chat, requests=RequestOptions(max_chunk_chars=20))
    asyncio.run(limited.asking(registry.resolve(["nugget_all"])).judge(CALL))
    assert "ragtrace_nuggets" in chat.kinds
    shown = [chunk["text"] for each in chat.asks for chunk in next(iter(json.loads(each.user).values()))["chunks"]]
    assert max(map(len, shown)) == 20


def test_a_statement_is_supported_by_one_group_of_chunks() -> None:
    """Chunks that do not fit into one request are shown in turns, and the best label counts."""
    judgement, _ = judged(honest, requests=RequestOptions(max_input_chars=100))
    assert [claim.support for claim in judgement.claims or ()] == ["supported", "not_found"]
    assert judgement.chunks == (ChunkLabel(2, False), ChunkLabel(2, False))


def test_control_items_are_mixed_in() -> None:
    """One that a chunk says word for word, one that none says; they are in no claim."""
    judgement, chat = judged(honest, mode="careful")
    texts = [one["text"] for one in chat.data()["given_statements"]]
    assert len(texts) == 4
    assert sum(text in TOWER or text in BUILT for text in texts) == 2
    assert len(judgement.claims or ()) == 2
    assert value("faithfulness", judgement) == 0.5


@pytest.mark.parametrize("support", ["supported", "not_found", "partial", "contradicted", "nonsense"])
@pytest.mark.parametrize("mode", ["fast", "careful"])
def test_a_model_that_labels_everything_alike_is_suspect(mode: str, support: str) -> None:
    """One of the two controls is then wrong, and the whole judgement is withheld."""
    rule = changed(statements=each(support=support, evidence_chunk_ids=["c1"], quote="Paris"))
    judgement, _ = judged(rule, mode=mode, gold_checks=True)
    for name in ("faithfulness", "hallucination", "answered"):
        found = result(name, judgement)
        assert isinstance(found, Unscored)
        assert (found.status, found.reason) == ("judge_suspect", "control_failed")
    assert judgement.claims is judgement.chunks is judgement.sentences is None
    assert judgement.n_calls > 0


def test_controls_can_be_left_out() -> None:
    """Of `careful`, and put into `fast`."""
    _, chat = judged(honest, mode="careful", gold_checks=False)
    assert len(chat.data()["given_statements"]) == 2
    judgement, chat = judged(honest, gold_checks=True)
    assert len(chat.data()["given_statements"]) == 2
    assert len(judgement.claims or ()) == 2


# --- failures ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("reason", ["refused", "content_filter", "unparsable", "ambiguous", "timeout", "unavailable"])
def test_a_failure_has_its_reason_and_what_was_spent(reason: str) -> None:
    """In `fast` nothing is left of the call."""
    chat = ScriptedChat(failing("ragtrace_judgement", JudgeError(reason)))
    with pytest.raises(JudgeError) as caught:
        asyncio.run(judge(chat).judge(CALL))
    assert caught.value.reason == reason
    assert (caught.value.n_calls, caught.value.input_tokens, caught.value.cost_usd) == (1, 100, 0.001)


def test_a_cut_off_reply_is_asked_for_in_halves() -> None:
    """Half of the answer at a time."""
    judgement, chat = judged(failing("ragtrace_judgement", JudgeError("truncated"), times=1))
    assert [[one["id"] for one in chat.data(i)["answer_sentences"]] for i in range(3)] == [["s1", "s2"], ["s1"], ["s2"]]
    assert judgement.n_calls == 3
    assert [claim.support for claim in judgement.claims or ()] == ["supported", "not_found"]
    assert judgement.chunks == (ChunkLabel(2, False), ChunkLabel(2, False))


def test_a_refused_verification_leaves_the_labels_of_the_answer() -> None:
    """Only metrics of that request are lost, with its reason."""
    judgement, _ = judged(failing("ragtrace_verification", JudgeError("refused")), mode="careful")
    assert judgement.answer_rating == 3
    assert [claim.relevant for claim in judgement.claims or ()] == ["yes", "yes"]
    assert {claim.support for claim in judgement.claims or ()} == {None}
    assert judgement.chunks is None
    assert judgement.reasons["chunks"] == judgement.reasons["claims"] == "refused"
    assert short(result("faithfulness", judgement)) == short(result("context_relevance", judgement)) == "refused"
    assert value("answer_relevancy", judgement) == 1.0
    assert judgement.n_calls == 2


def test_a_refused_extraction_leaves_the_chunks() -> None:
    """They are held against the sentences as they stand."""
    judgement, chat = judged(failing("ragtrace_extraction", JudgeError("refused")), mode="careful")
    assert judgement.claims is None
    assert judgement.reasons["claims"] == judgement.reasons["answer_label"] == "refused"
    assert judgement.chunks == (ChunkLabel(2, False), ChunkLabel(2, False))
    assert [one["text"] for one in chat.data()["answer_parts"]] == ANSWER.replace(". ", ".|").split("|")


def test_a_failure_that_may_pass_is_raised() -> None:
    """The call is asked again as a whole; what it cost is not lost."""
    chat = ScriptedChat(failing("ragtrace_verification", JudgeError("unavailable")))
    with pytest.raises(JudgeError, match="unavailable") as caught:
        asyncio.run(judge(chat, mode="careful").judge(CALL))
    assert caught.value.retryable
    assert caught.value.n_calls == 2


# --- reference contexts -----------------------------------------------------------------------------------------------


def test_reference_contexts_cost_one_request() -> None:
    """Distinct and not blank ones, in order; the retrieved chunks play no part in it."""
    reference = tuple(map(Document, ("It is 300 m high.", " ", "It is old.", "It is  old.")))
    call = RagCall(CALL.query, CALL.contexts, ANSWER, reference_contexts=reference)
    chat = ScriptedChat(
        changed(chunks=lambda items, _: [one | {"contradicted": "yes" if one["id"] == "c1" else "no"} for one in items])
    )
    judgement = asyncio.run(judge(chat).asking([needing("reference_contexts_contradicted")]).judge(call))
    assert chat.kinds == ["ragtrace_contradiction"]
    assert judgement.reference_contexts_contradicted == (True, False)
    assert judgement.n_calls == 1


def test_failing_reference_contexts_have_a_reason() -> None:
    """The other labels stay."""
    call = RagCall(CALL.query, CALL.contexts, ANSWER, reference_contexts=(Document("It is 300 m high."),))
    chat = ScriptedChat(failing("ragtrace_contradiction", JudgeError("refused")))
    metrics = [needing("reference_contexts_contradicted", "claims")]
    judgement = asyncio.run(judge(chat).asking(metrics).judge(call))
    assert judgement.reference_contexts_contradicted is None
    assert judgement.reasons["reference_contexts_contradicted"] == "refused"
    assert judgement.claims is not None
    assert judgement.n_calls == 2
