"""Reading a judge's reply: ids, labels, evidence, coverage; and that no reply whatsoever breaks it."""

from __future__ import annotations

import json
from collections.abc import Callable
from time import process_time
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ragtrace.core.types import Document, Judgement, RagCall, Score, Unscored
from ragtrace.judges.llm.build_judgement import build_judgement
from ragtrace.judges.llm.label_collector import Labels
from ragtrace.judges.llm.label_reply import (
    MOST_ENTRIES,
    ExtractedStatement,
    LabelReply,
    LabelTask,
    omitted_terms,
    reply_schema,
)
from ragtrace.judges.llm.label_reply import read_label_reply as read
from ragtrace.judges.llm.merging import Verification, merge_extractions, merge_verifications
from ragtrace.judges.llm.prompt_input import AnswerUnit, DistinctCitation, PromptChunk, prepare_input
from ragtrace.judges.llm.prompts import Kind
from ragtrace.judges.llm.quotes import TextTerms, absent_terms, normalize_quote, quote_occurs, shares_word
from ragtrace.metrics import registry
from tests.support.examples import examples

Data = dict[str, Any]

CHUNKS = (
    PromptChunk(0, "The tower is 330 metres high. It stands in Paris."),
    PromptChunk(1, "It was built by “Eiffel & Co” in 1889."),
)
UNITS = (AnswerUnit("s1", "It is 330 m high.", 0, 17), AnswerUnit("s2", "It was built long ago.", 18, 40))
FULL = LabelTask(
    "full",
    "How high is the tower?",
    sentences=UNITS,
    chunks=CHUNKS,
    citations=(DistinctCitation("r1", 0, "s1", 0, "c1", "[1]"),),
)
VERIFY = LabelTask("verify", "How high?", chunks=CHUNKS, given={"g1": "It is 330 m high.", "g2": "It is blue."})


def statement(**changes: object) -> Data:
    """A statement of the first sentence that the first chunk supports."""
    return {
        "id": "t1", "sentence_ids": ["s1"], "text": "The tower is 330 m high.", "checkable": "yes", "relevant": "yes",
        "evidence_chunk_ids": ["c1"], "quote": "330 metres high", "support": "supported",
    } | changes  # fmt: skip


def reply(**changes: object) -> Data:
    """A full reply without a fault."""
    second = statement(
        id="t2", sentence_ids=["s2"], text="It was built in 1889.", evidence_chunk_ids=["c2"], quote="It was built by"
    )
    return {
        "sentences": [{"id": "s1", "relevant": "yes"}, {"id": "s2", "relevant": "background"}],
        "statements": [statement(), second],
        "chunks": [{"id": "c1", "contradicted": "no", "grade": "3"}, {"id": "c2", "contradicted": "no", "grade": "1"}],
        "citations": [{"id": "r1", "support": "full"}],
        "answer_rating": "2",
        "answer_label": "answered",
    } | changes  # fmt: skip


def test_a_reply_without_a_fault_has_no_defects() -> None:
    """Everything asked for is there, each once."""
    found = read(reply(), FULL)
    assert found.defects == found.unproven == []
    assert found.sentences == {"s1": "yes", "s2": "background"}
    assert found.grades == {"c1": 3, "c2": 1}
    assert found.contradicted == {"c1": False, "c2": False}
    assert found.citations == {"r1": "full"}
    assert (found.answer_rating, found.answer_label) == (2, "answered")
    assert [one.verdict.support for one in found.statements or ()] == ["supported", "supported"]


@pytest.mark.parametrize(
    ("part", "items"),
    [
        ("sentences", [{"id": "s2", "relevant": "no"}]),
        ("chunks", [{"id": "c2", "contradicted": "no", "grade": "1"}]),
        ("citations", []),
    ],
)
def test_a_missing_id_is_unjudged(part: str, items: list[Data]) -> None:
    """An item that the reply leaves out has no label, and the repair names it."""
    found = read(reply(**{part: items}), FULL)
    labels = {"sentences": found.sentences, "chunks": found.grades, "citations": found.citations}[part] or {}
    missing = {"sentences": "s1", "chunks": "c1", "citations": "r1"}[part]
    assert labels[missing] is None
    assert f"{part}: {missing} is missing" in found.defects


@pytest.mark.parametrize(
    ("part", "item"),
    [
        ("sentences", {"id": "s9", "relevant": "yes"}),
        ("chunks", {"id": "c9", "contradicted": "no", "grade": "3"}),
        ("citations", {"id": "c1", "support": "full"}),
    ],
)
def test_an_invented_id_is_a_defect_and_no_item(part: str, item: Data) -> None:
    """What the code did not ask about counts nowhere."""
    found = read(reply(**{part: [*reply()[part], item]}), FULL)
    assert any(f"{part}[" in defect and "unknown id" in defect for defect in found.defects)
    assert found.sentences == {"s1": "yes", "s2": "background"}
    assert found.grades == {"c1": 3, "c2": 1}
    assert found.citations == {"r1": "full"}


def test_two_different_labels_for_one_id_are_none() -> None:
    """Neither the first nor the last of them is believed."""
    twice = [*reply()["chunks"], {"id": "c1", "contradicted": "no", "grade": "0"}]
    found = read(reply(chunks=twice), FULL)
    assert found.grades == {"c1": None, "c2": 1}
    assert found.contradicted == {"c1": False, "c2": False}
    assert found.defects == ["chunks: two different labels grade for c1"]


def test_the_same_label_twice_is_that_label() -> None:
    """A repetition says nothing else."""
    found = read(reply(citations=[{"id": "r1", "support": "full"}] * 2), FULL)
    assert found.citations == {"r1": "full"}
    assert not found.defects


@pytest.mark.parametrize("label", ["not_supported", "support", "supported.", "sup ported", "", " ", None, 1, True])
def test_labels_are_compared_as_a_whole(label: object) -> None:
    """No prefix, no substring: anything else is unjudged."""
    found = read(reply(statements=[statement(support=label, sentence_ids=["s1", "s2"])]), FULL)
    assert [one.verdict.support for one in found.statements or ()] == [None]
    assert len(found.defects) == 1


@pytest.mark.parametrize("written", [str.upper, str.title, " {} ".format, "{}\n".format, "\u00a0{}".format])
def test_case_and_white_space_of_a_label_say_nothing(written: Callable[[str], str]) -> None:
    """A server that enforces no schema lets a model write "Supported"; each label of a reply is read alike."""

    def rewritten(value: Any, name: str = "") -> Any:
        if isinstance(value, dict):
            return {key: rewritten(each, key) for key, each in cast("Data", value).items()}
        if isinstance(value, list):
            return [rewritten(each, name) for each in cast("list[object]", value)]
        is_label = name in ("relevant", "checkable", "support", "contradicted", "grade") or name.startswith("answer_")
        return written(value) if is_label else value

    assert read(rewritten(reply()), FULL) == read(reply(), FULL)
    assert rewritten(reply()) != reply()


@pytest.mark.parametrize("grade", [2, 2.0, "2.0", "02", "4", "-1", "3 stars", True, [2], None])
def test_a_grade_is_one_of_four_strings(grade: object) -> None:
    """A number in the reply is no grade."""
    found = read(reply(chunks=[{"id": "c1", "contradicted": "no", "grade": grade}, reply()["chunks"][1]]), FULL)
    assert found.grades == {"c1": None, "c2": 1}


def test_a_statement_of_unknown_checkability_counts_and_is_unjudged() -> None:
    """It must not leave the denominator by a broken label."""
    found = read(reply(statements=[statement(checkable="maybe", sentence_ids=["s1", "s2"])]), FULL)
    (one,) = found.statements or ()
    assert one.checkable
    assert one.verdict.support is None


def test_support_of_what_cannot_be_checked_is_ignored() -> None:
    """A greeting has none, whatever the label says."""
    found = read(reply(statements=[statement(checkable="no", sentence_ids=["s1", "s2"], support="nonsense")]), FULL)
    (one,) = found.statements or ()
    assert not one.checkable
    assert one.verdict.support is None
    assert not found.defects


@pytest.mark.parametrize("label", ["supported", "partial", "contradicted"])
def test_labels_that_rest_on_a_chunk_name_one(label: str) -> None:
    """Without an evidence chunk the statement is unverified."""
    found = read(reply(statements=[statement(support=label, evidence_chunk_ids=[], sentence_ids=["s1", "s2"])]), FULL)
    (one,) = found.statements or ()
    assert one.verdict.unverified
    assert found.unproven


def test_a_statement_that_is_not_found_needs_no_evidence() -> None:
    """There is none to name."""
    found = read(
        reply(statements=[statement(support="not_found", quote="", evidence_chunk_ids=[], sentence_ids=["s1", "s2"])]),
        FULL,
    )
    assert not (found.statements or ())[0].verdict.unverified
    assert not found.unproven


@pytest.mark.parametrize(
    "quote",
    [
        "The Tower IS 330 metres",
        "tower  is\n330 metres",
        "The tower is ... It stands in Paris.",
        "The tower … in Paris",
        "“The tower is 330 metres high.”",
        "\uff54\uff4f\uff57\uff45\uff52 is 330",
        "330\u00a0metres high",
    ],
)
def test_a_quote_is_found_after_folding(quote: str) -> None:
    """Case, white space, typography and parts around an ellipsis do not matter."""
    found = read(reply(statements=[statement(quote=quote, sentence_ids=["s1", "s2"])]), FULL)
    (one,) = found.statements or ()
    assert not one.verdict.unverified
    assert one.verdict.quote


@pytest.mark.parametrize(
    "quote",
    ["", "   ", "...", "…", ".", "331 metres", "in Paris ... 330 metres", "built by Eiffel", "in 1889", 7, None],
)
def test_a_quote_that_is_not_in_a_named_chunk_verifies_nothing(quote: object) -> None:
    """Also one in another chunk, in another order, or without any word."""
    found = read(reply(statements=[statement(quote=quote, sentence_ids=["s1", "s2"])]), FULL)
    (one,) = found.statements or ()
    assert one.verdict.support == "supported"
    assert one.verdict.unverified
    assert one.verdict.quote is None
    assert not found.defects


def test_marks_of_typography_are_unified() -> None:
    """A quote with straight quotation marks occurs in a chunk with curved ones."""
    found = read(
        reply(
            statements=[
                statement(
                    text="Eiffel built 330 of it in 1889.", evidence_chunk_ids=["c1", "c2"],
                    quote='"Eiffel & Co" in 1889', sentence_ids=["s1", "s2"],
                )
            ]
        ),
        FULL,
    )  # fmt: skip
    assert not found.unproven


RATES = PromptChunk(
    0,
    '## Rates\n\n| Account | Rate |\n|---|:--:|\n| **Savings** | 2.5 % |\n\n- He said "we pay\ninterest" to savers.\n'
    "- The account is `free` \u2014 for students\u00a0only.",
)


@pytest.mark.parametrize(
    "quote",
    [
        "| **Savings** | 2.5 % |",
        "Savings 2.5 %",
        "Account | Rate |\n|---|:--:|\n| Savings",
        "Account | Rate\\nSavings | 2.5 %",
        '- He said \\"we pay\\ninterest\\" to savers.',
        "The account is free - for students only",
        "Rates Account Rate",
    ],
)
def test_markup_is_folded(quote: str) -> None:
    """Escaped line ends and quotation marks, emphasis, tables, bullets and headings do not matter."""
    assert quote_occurs(quote, RATES.folded)


@pytest.mark.parametrize("quote", ["Savings 2.6 %", "Savings 25 %", "we pay no interest", "| |", "**"])
def test_words_are_not_folded(quote: str) -> None:
    """What the chunk does not say does not occur in it."""
    assert not quote_occurs(quote, RATES.folded)


@pytest.mark.parametrize(
    ("quote", "chunk", "verified"),
    [
        ("e", "The tower is 330 metres high.", False),
        ("330 metres", "The tower is 330 metres high.", False),
        ("is 330 metres", "The tower is 330 metres high.", True),
        ("330 metres", "330 metres", True),
        ("It stands in Paris", "The tower is 330 metres high. It stands in Paris.", False),
        ("\u9ad8\u3055\u306f330", "\u5854\u306e\u9ad8\u3055\u306f330\u30e1\u30fc\u30c8\u30eb", True),
    ],
)
def test_a_quote_has_three_words_and_bears_on_the_statement(quote: str, chunk: str, verified: bool) -> None:
    """A letter, or any other sentence of the chunk, shows nothing."""
    asked = LabelTask("verify", "How high?", chunks=(PromptChunk(0, chunk),), given={"g1": "The tower has 330 metres."})
    item = {"id": "g1", "evidence_chunk_ids": ["c1"], "quote": quote, "support": "supported"}
    found = read({"statements": [item], "chunks": [], "citations": []}, asked)
    assert found.given["g1"].unverified is not verified
    assert bool(found.unproven) is not verified


@pytest.mark.parametrize(
    ("text", "chunk", "verified"),
    [
        ("The rate is 11.2 percent.", "The rate is 11.2% a year.", True),
        ("The rate is 12.1 percent.", "The rate is 11.2% a year.", False),
        ("The rate for 1,000 members is low.", "For 1000 members the rate is low.", True),
        ("The rate changed on 12 May 2020.", "The rate changed on 12.05.2020 again.", True),
        ("The rate for 3 members is low.", "For three members the rate is low.", True),
        ("The rate is paid by Northwind.", "The rate is paid by Contoso.", False),
        ("The rate of Contoso is low [12].", "At Contoso the rate is low.", True),
        ("The rate for the Italian branch is low.", "The rate is low for the branch in Italy.", True),
        ("The rate for Overdraft accounts is low.", "The rate is low.", True),
        ("Der Zins der Bank ist nicht hoch und die Rate auch.", "Die rate ist low.", True),
    ],
)
def test_numbers_and_names_of_a_supported_statement_are_in_its_evidence(text: str, chunk: str, verified: bool) -> None:
    """Else it is unverified, and a repair names what is missing. Words of the query need no evidence."""
    asked = LabelTask(
        "verify",
        "What about Overdraft?",
        chunks=(PromptChunk(0, chunk), PromptChunk(1, "12.1 Northwind")),
        given={"g1": text},
    )
    item = {"id": "g1", "evidence_chunk_ids": ["c1"], "quote": chunk, "support": "supported"}
    found = read({"statements": [item], "chunks": [], "citations": []}, asked)
    assert found.given["g1"].unverified is not verified


def test_a_repair_says_nothing_about_gold_checks() -> None:
    """What is wrong with their evidence would tell which they are, and which label is right."""
    items = [{"id": name, "evidence_chunk_ids": ["c1"], "quote": "e", "support": "supported"} for name in ("g1", "g2")]
    asked = LabelTask(
        "verify", "?", chunks=CHUNKS, given={"g1": "It is 1 m.", "g2": "It is 347 m."}, gold_checks=frozenset({"g2"})
    )
    found = read({"statements": items, "chunks": [], "citations": []}, asked)
    assert [defect.partition(":")[0] for defect in found.unproven] == ["statements[0]"]


@pytest.mark.parametrize(
    ("text", "uncovered"),
    [("It is 330 m high.", None), ("The tower is 900 m high.", 1), ("It is high.", 1), ("It is 330 m.", None)],
)
def test_numbers_of_a_sentence_are_in_its_statements(text: str, uncovered: int | None) -> None:
    """A statement that says something else does not cover its sentence."""
    judgement = concluded(read(reply(statements=[statement(text=text), reply()["statements"][1]]), FULL))
    assert judgement.attributes.get("uncovered_sentences") == uncovered
    assert (judgement.claims is None) is bool(uncovered)


@pytest.mark.parametrize("piece", ["a", "a:", "1", "1.", "[", "(see ", "A ", "\u201c", "|", "\\n", "*", "... "])
def test_hostile_evidence_takes_no_longer_than_other(piece: str) -> None:
    """A quarter of a million characters are compared in a moment."""
    text = piece * (250_000 // len(piece))
    began = process_time()
    absent_terms(text, [TextTerms(text)])
    quote_occurs(text, normalize_quote(text))
    shares_word(text, text)
    assert process_time() - began < 10.0


def test_names_of_a_sentence_are_in_its_statements() -> None:
    """Capitals tell names in a sentence; not at its beginning, not in German, not in citations and addresses."""
    texts = [
        "He met Gustave Eiffel.",
        "Paris [Smith 2020] is old (source: Annual Report 2021).",
        "See https://x.test/Some/2023 for more.",
        "1990",
    ]
    units = [AnswerUnit(f"s{n}", text, 0, 0) for n, text in enumerate(texts, 1)]
    statements = [
        ExtractedStatement("He met someone.", (0,), True, "yes"),
        ExtractedStatement("It is old.", (1, 2), True, "yes"),
    ]
    assert omitted_terms(units, {}, statements) == {0: ["Gustave", "Eiffel"]}
    german = [
        AnswerUnit("s1", "Das ist ein Haus und nicht die gro\u00dfe Br\u00fccke, die der Mann in dem Dorf hat.", 0, 0)
    ]
    assert omitted_terms(german, {}, [ExtractedStatement("Es gibt etwas.", (0,), True, "yes")]) == {}


def test_an_uncovered_sentence_is_a_defect() -> None:
    """Every sentence with content is in a statement, or the reply is asked for again."""
    found = read(reply(statements=[statement()]), FULL)
    assert found.defects == ["statements: s2 is not filler, but no statement has it in its sentence_ids"]


def test_filler_needs_no_statement() -> None:
    """A greeting says nothing to verify."""
    sentences = [{"id": "s1", "relevant": "yes"}, {"id": "s2", "relevant": "filler"}]
    assert not read(reply(sentences=sentences, statements=[statement()]), FULL).defects


def test_an_answer_that_declines_needs_no_statement() -> None:
    """There is nothing in it to state."""
    assert not read(reply(statements=[], answer_label="abstained"), FULL).defects


def test_a_label_does_not_hide_statements() -> None:
    """An answer labelled abstained that states something is covered like any other."""
    assert read(reply(statements=[statement()], answer_label="abstained"), FULL).defects


def test_a_statement_of_no_sentence_is_unjudged() -> None:
    """Nothing shows that the answer says so."""
    found = read(reply(statements=[*reply()["statements"], statement(id="t3", sentence_ids=["s7"])]), FULL)
    assert (found.statements or ())[2].verdict.support is None
    assert (found.statements or ())[2].relevant is None
    assert len(found.defects) == 2


@pytest.mark.parametrize("text", ["", "  ", None, 3, "\u200b\u200b"])
def test_a_statement_without_text_is_unjudged(text: object) -> None:
    """It is counted as a statement without a label, and covers no sentence."""
    found = read(reply(statements=[*reply()["statements"], statement(id="t9", text=text)]), FULL)
    unusable = (found.statements or ())[2]
    assert (unusable.text, unusable.sentences, unusable.verdict.support) == ("", (), None)
    assert found.defects == ["statements[2].text is missing or empty"]


def test_unusable_statements_count_against_the_limit() -> None:
    """One good statement beside thirty nulls is no score; one null beside five good ones is counted."""
    covering = statement(sentence_ids=["s1", "s2"])
    many = concluded(read(reply(statements=[covering, *[None] * 30]), FULL))
    assert registry.get("faithfulness")(CALL, many).attributes["unjudged"] == 30
    found = [registry.get(name)(CALL, many) for name in ("faithfulness", "hallucination", "answer_relevancy")]
    assert {one.reason for one in found if isinstance(one, Unscored)} == {"too_many_unjudged"}
    assert not any(isinstance(one, Score) for one in found)
    different = [statement(id=f"t{n}", text=f"It is 330 m high, or {n}.", sentence_ids=["s1", "s2"]) for n in range(5)]
    few = registry.get("faithfulness")(CALL, concluded(read(reply(statements=[*different, "not an object"]), FULL)))
    assert isinstance(few, Score)
    assert (few.attributes["statements"], few.attributes["unjudged"]) == (5, 1)


def test_a_repeated_statement_counts_once() -> None:
    """Under however many ids; with different labels it is unjudged. A score cannot be raised by repetition."""
    unsupported = statement(id="u", sentence_ids=["s2"], support="not_found", text="It has nine halls.")
    again = [
        statement(id=f"t{n}", text=text)
        for n, text in enumerate(["It is 330 m  high.", "it is 330 m high", "IT IS 330 M HIGH."])
    ]
    judgement = concluded(read(reply(statements=[*again, unsupported]), FULL))
    assert [claim.support for claim in judgement.claims or ()] == ["supported", "not_found"]
    other = statement(id="t9", text="It is 330 m high!", support="partial")
    judgement = concluded(read(reply(statements=[*again, other, unsupported]), FULL))
    assert [claim.support for claim in judgement.claims or ()] == [None, "not_found"]


def test_an_id_used_twice_numbers_two_statements() -> None:
    """Ids of statements are the model's own: they are renumbered."""
    first, second = reply()["statements"]
    found = read(reply(statements=[first, second | {"id": "t1"}]), FULL)
    assert len(found.statements or ()) == 2
    assert len(found.defects) == 1


def test_a_statement_repeated_with_another_label_is_unjudged() -> None:
    """Two labels for one statement are none."""
    found = read(reply(statements=[*reply()["statements"], statement(support="not_found")]), FULL)
    assert [one.verdict.support for one in found.statements or ()] == [None, "supported"]


def test_a_long_text_is_cut() -> None:
    """Judge text is kept within a length."""
    found = read(reply(statements=[statement(text="x" * 9_000, sentence_ids=["s1", "s2"])]), FULL)
    assert len((found.statements or ())[0].text) == 500


def test_given_statements_are_found_by_id() -> None:
    """In a verification only what was given counts."""
    items = [
        {"id": "g1", "evidence_chunk_ids": ["c1"], "quote": "330 metres", "support": "supported"},
        {"id": "t9", "evidence_chunk_ids": ["c1"], "quote": "330 metres", "support": "supported"},
    ]
    found = read({"statements": items, "chunks": reply()["chunks"], "citations": []}, VERIFY)
    assert {key: one.support for key, one in found.given.items()} == {"g1": "supported", "g2": None}
    assert found.statements is None
    assert sorted(found.defects) == ["statements: g2 is missing", "statements[1]: unknown id 't9'"]


def test_two_verdicts_on_a_given_statement_are_none() -> None:
    """Rule of one label an id."""
    one = {"id": "g1", "evidence_chunk_ids": ["c1"], "quote": "330 metres", "support": "supported"}
    found = read({"statements": [one, one | {"support": "not_found"}]}, VERIFY)
    assert found.given["g1"].support is None


@pytest.mark.parametrize("part", ["sentences", "statements", "chunks", "citations"])
@pytest.mark.parametrize("value", [None, {}, "yes", 3])
def test_a_part_that_is_no_list_is_missing(part: str, value: object) -> None:
    """It is told from a list that lacks items: nothing of it can be read."""
    found = read(reply(**{part: value}), FULL)
    read_as = {"chunks": "grades"}.get(part, part)
    assert getattr(found, read_as) is None
    assert f"{part} is missing or no list" in found.defects


def test_an_endless_list_is_no_reply() -> None:
    """A thousand statements are not read out of one answer."""
    found = read(reply(statements=[statement()] * (MOST_ENTRIES + 1)), FULL)
    assert found.statements is None


# --- anything at all --------------------------------------------------------------------------------------------------

IDS = st.sampled_from(["s1", "s2", "c1", "c2", "r1", "g1", "g2", "t1", "x9", ""])
WORDS = st.sampled_from(
    "yes no background filler supported partial contradicted not_found full none 0 1 2 3 answered abstained 330".split()
)
FIELDS = st.sampled_from(
    "sentences statements chunks citations answer_rating answer_label id sentence_ids text checkable relevant"
    " evidence_chunk_ids quote support contradicted grade".split()
)


def json_values(most: int) -> st.SearchStrategy[Any]:
    """Any JSON with at most *most* scalars."""
    return st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20) | IDS | WORDS,
        lambda inner: st.lists(inner, max_size=6) | st.dictionaries(FIELDS | st.text(max_size=5), inner, max_size=8),
        max_leaves=most,
    )


JSON = json_values(60)
FIELD = json_values(6)
KINDS: tuple[Kind, ...] = ("full", "extract", "verify", "contradicted")
CALL = RagCall(
    "How high is the tower?",
    (Document("The tower is 330 metres high. It stands in Paris."), Document("It was built in 1889."), Document(" ")),
    "It is 330 m high [1]. It was built long ago.",
)
SHEET = prepare_input(CALL)


@st.composite
def nearly_right(draw: st.DrawFn, kind: Kind) -> Data:
    """A reply of the right shape, with some values replaced by anything."""

    def some(good: st.SearchStrategy[Any]) -> Any:
        return draw(st.one_of(good, good, good, good, FIELD))

    def records(names: dict[str, st.SearchStrategy[Any]]) -> Any:
        size = draw(st.integers(0, 4))
        return some(st.just([{name: some(good) for name, good in names.items()} for _ in range(size)]))

    shapes: dict[str, Any] = {
        "sentences": lambda: records({"id": IDS, "relevant": WORDS}),
        "statements": lambda: records(
            {
                "id": IDS, "sentence_ids": st.lists(IDS, max_size=3), "text": st.text(max_size=9), "checkable": WORDS,
                "relevant": WORDS, "evidence_chunk_ids": st.lists(IDS, max_size=3), "quote": WORDS, "support": WORDS,
            }
        ),
        "chunks": lambda: records({"id": IDS, "contradicted": WORDS, "grade": WORDS}),
        "citations": lambda: records({"id": IDS, "support": WORDS}),
        "answer_rating": lambda: some(WORDS),
        "answer_label": lambda: some(WORDS),
    }  # fmt: skip
    wanted = reply_schema(kind)["properties"]
    assert isinstance(wanted, dict)
    return {name: shapes[name]() for name in wanted if draw(st.integers(0, 9))}


def whole(kind: Kind) -> LabelTask:
    """The whole of the call in one request."""
    controls = {"g1": "a", "g2": "b"} if kind in ("full", "verify") else None
    return LabelTask(kind, SHEET.query, SHEET.sentences, SHEET.chunks, SHEET.citations, given=controls)


def concluded(found: LabelReply) -> Judgement:
    """The judgement that one reply to everything amounts to."""
    extracted = merge_extractions([found])
    verdicts = [(index, one.verdict) for index, one in enumerate(extracted.statements or ())]
    return build_judgement(SHEET, Labels("fast", extracted, merge_verifications([found], verdicts)))


def check(found: LabelReply, kind: Kind) -> None:
    """Whatever was found is a label of the right set, for an id that exists; every metric's number is in its range."""
    assert set(found.grades or ()) in (set(), {"c1", "c2"})
    assert set((found.grades or {}).values()) <= {None, 0, 1, 2, 3}
    assert set((found.sentences or {}).values()) <= {None, "yes", "background", "no", "filler"}
    for one in found.statements or ():
        assert one.verdict.support in (None, "supported", "partial", "contradicted", "not_found")
        assert set(one.sentences) <= {0, 1}
        assert set(one.verdict.evidence) <= {0, 1}
    assert all(isinstance(defect, str) and len(defect) < 400 for defect in found.defects)
    if kind != "full":
        return
    judgement = concluded(found)
    for metric in registry.all():
        if metric.needs <= {"claims", "sentences", "chunks", "citations", "parts", "answer_rating", "answer_label"}:
            result = metric(CALL, judgement)
            if isinstance(result, Score):
                low, high = metric.range
                assert low - 1e-9 <= result.value <= high + 1e-9


@settings(max_examples=examples(150))
@given(st.sampled_from(KINDS), JSON)
def test_no_json_whatsoever_breaks_reading(kind: Kind, data: object) -> None:
    """Any value at all: no exception, no default, nothing out of range."""
    check(read(data, whole(kind)), kind)


@settings(max_examples=examples(200))
@given(st.data())
def test_no_reply_of_nearly_the_right_shape_breaks_reading(data: st.DataObject) -> None:
    """The right fields with wrong values, wrong ids, repetitions and holes."""
    kind = data.draw(st.sampled_from(KINDS))
    check(read(data.draw(nearly_right(kind)), whole(kind)), kind)


@settings(max_examples=examples(60))
@given(st.lists(st.sampled_from(["s1", "s2", "c1", "c2"]), max_size=4, unique=True))
def test_without_a_label_there_is_no_label(kept: list[str]) -> None:
    """Ids that a reply leaves out never get a label from somewhere else."""
    data = reply(
        sentences=[one for one in reply()["sentences"] if one["id"] in kept],
        chunks=[one for one in reply()["chunks"] if one["id"] in kept],
    )
    found = read(json.loads(json.dumps(data)), FULL)
    assert {key for key, label in (found.sentences or {}).items() if label} == {"s1", "s2"} & set(kept)
    assert {key for key, label in (found.grades or {}).items() if label is not None} == {"c1", "c2"} & set(kept)


def test_nothing_at_all_is_no_labels() -> None:
    """An empty reply leaves every field of the judgement empty, with its reason."""
    judgement = concluded(read({}, whole("full")))
    assert judgement.claims is judgement.sentences is judgement.chunks is judgement.answer_label is None
    assert judgement.reasons["claims"] == judgement.reasons["chunks"] == "unparsable"
    assert judgement.reasons["answer_label"] == "too_many_unjudged"


def test_empty_labels_are_no_judgement() -> None:
    """What was never asked is not there."""
    judgement = build_judgement(SHEET, Labels("fast", LabelReply(), Verification()))
    assert judgement.claims is None
    assert judgement.chunks is None
