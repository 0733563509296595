"""The embedded judge: what it finds unsupported, what it declines to judge, and that no input can hurt it."""

# ruff: noqa: RUF001  (other alphabets are meant)

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from statistics import fmean

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import ragtrace
from ragtrace.core.labels import Claim
from ragtrace.core.types import Document, Judge, Judgement, RagCall, Score, Unscored
from ragtrace.core.unscored_reasons import status_of
from ragtrace.judges import EmbeddedJudge
from ragtrace.judges.lexical.embedded import (
    MAX_ANSWER_CHARS,
    MAX_CONTEXT_CHARS,
    MAX_STATEMENTS,
    STEP_CHARS,
)
from ragtrace.metrics import registry
from tests.support.examples import examples
from tests.support.languages import PARALLEL

TOWER = "The Eiffel Tower is in Paris, France. It was finished in 1889 and is 330 metres tall."
PUMP = "The pump does not need oil. It must be cleaned with warm water every 6 weeks, or the warranty is lost."
ANY_TEXT = st.text(st.characters(exclude_categories=()), max_size=200)  # lone surrogates and controls included
WORDY = st.text(st.sampled_from("aB1. !?,\n-[]'’。今あ٣é\u200b\u0301ก"), max_size=300)


def judge(answer: str | None, contexts: Sequence[str] | None, query: str | None = "What is it?") -> Judgement:
    documents = None if contexts is None else tuple(Document(text) for text in contexts)
    return asyncio.run(EmbeddedJudge().judge(RagCall(query, documents, answer)))


def only_claim(answer: str, *contexts: str, query: str | None = "What is it?") -> Claim:
    (claim,) = judge(answer, contexts, query).claims or ()
    return claim


def marked(answer: str, claim: Claim) -> list[str]:
    return [answer[start:end] for start, end in claim.unsupported]


def consistency(answer: str, *contexts: str) -> float:
    value = judge(answer, contexts).consistency
    assert value is not None
    return value


def test_it_is_a_judge() -> None:
    """It fulfils the protocol."""
    embedded = EmbeddedJudge()
    assert isinstance(embedded, Judge)
    assert (embedded.id, embedded.type) == ("embedded", "deterministic")


def test_it_offers_what_words_can_tell() -> None:
    """A comparison of words is called neither hallucination nor faithfulness."""
    offered = {metric.name for metric in registry.all() if EmbeddedJudge().offers(metric)}
    assert offered >= {"consistency", "answered"}
    assert offered <= {"consistency", "answered", "answered_without_context"}


def test_an_application_that_quotes_may_have_shares_of_statements() -> None:
    """`extractive=True` adds the metrics that count unsupported statements, and no other."""
    embedded = EmbeddedJudge(extractive=True)
    more = {m.name for m in registry.all() if embedded.offers(m) and not EmbeddedJudge().offers(m)}
    assert more >= {"faithfulness", "hallucination"}
    assert more <= {"faithfulness", "hallucination", "hallucinated"}


def test_consistency_shows_the_words_that_no_chunk_has() -> None:
    """Evidence comes with the score that is offered by default."""
    answer = "The Eiffel Tower is in Berlin."
    result = ragtrace.score(answer=answer, contexts=[TOWER])["consistency"]
    assert isinstance(result, Score)
    assert result.label is None
    assert [answer[start:end] for claim in result.claims for start, end in claim.unsupported] == ["Berlin"]


def test_an_invented_place_is_flagged() -> None:
    """The unsupported word is the invented one, and the closest passage is quoted."""
    answer = "The Eiffel Tower is in Berlin."
    claim = only_claim(answer, "Bread is baked at night.", TOWER)
    assert claim.support in ("partial", "not_found")
    assert marked(answer, claim) == ["Berlin"]
    assert claim.evidence == (1,)
    assert claim.quote is not None
    assert "Paris" in claim.quote
    assert consistency(answer, TOWER) < 0.5


def test_a_worked_example_gives_these_numbers() -> None:
    """A score that differs from them raises `EmbeddedJudge.version`.

    Of the words eiffel, tower and berlin one is absent (1/3), and of their pairs two (2/3): the deficit is 1/2. A name
    is missing, which takes half of the rest: 3/4. Three words count as 25: the strength is (3/4)^2 * sqrt(25) = 2.8125.
    """
    answer = "The Eiffel Tower is in Berlin."
    claim = only_claim(answer, TOWER)
    assert EmbeddedJudge.version == "3"
    assert (claim.support, claim.score) == ("partial", pytest.approx(0.25))
    assert consistency(answer, TOWER) == pytest.approx(2 ** -(2.8125 / 2**0.5))
    assert consistency(answer, TOWER) == pytest.approx(0.251959, abs=1e-6)
    assert consistency("The Eiffel Tower is in Paris.", TOWER) == 1.0


def test_asking_for_it_does_not_make_it_true() -> None:
    """A word that only the query has supports nothing."""
    answer = "Yes, the Eiffel Tower is in Berlin."
    claim = only_claim(answer, TOWER, query="Is the Eiffel Tower in Berlin?")
    assert claim.support != "supported"
    assert marked(answer, claim) == ["Berlin"]


@pytest.mark.parametrize(
    "answer",
    [
        "The Eiffel Tower is in Paris.",
        "It is 330 metres tall.",
        "The tower, which is in France, was finished in 1889.",
        "EIFFEL TOWER: PARIS",
    ],
)
def test_what_the_chunk_says_is_supported(answer: str) -> None:
    """Other order, case and function words do not matter."""
    claim = only_claim(answer, TOWER)
    assert claim.support == "supported"
    assert claim.unsupported == ()
    assert consistency(answer, TOWER) > 0.8


@pytest.mark.parametrize(("wrong", "word"), [("It is 324 metres tall.", "324"), ("It was finished in 1887.", "1887")])
def test_a_wrong_number_is_flagged(wrong: str, word: str) -> None:
    """A number is no paraphrase, however much of the sentence agrees."""
    claim = only_claim(wrong, TOWER)
    assert claim.support != "supported"
    assert marked(wrong, claim) == [word]


def test_a_number_from_elsewhere_is_flagged() -> None:
    """A number that the chunk has, but about something else."""
    chunk = (
        "The north bridge has 12 arches. The mayor opened it on a bright spring morning, with a brass band and speeches"
        " by engineers from three countries, before a crowd of 90 onlookers."
    )
    claim = only_claim("The north bridge has 90 arches.", chunk)
    assert claim.support != "supported"
    assert only_claim("The north bridge has 12 arches.", chunk).support == "supported"


def test_numbers_agree_in_any_spelling() -> None:
    """Thousands separators and number words make no difference."""
    assert only_claim("The dam holds 1200 barrels.", "The dam holds 1,200 barrels.").support == "supported"
    assert only_claim("The dam has three gates.", "The dam has 3 gates.").support == "supported"


def test_a_lost_negation_costs_support() -> None:
    """A word denied in every chunk does not support its plain use, nor the other way round."""
    assert consistency("The pump needs oil.", PUMP) < consistency("The pump does not need oil.", PUMP)
    assert consistency("The pump must not be cleaned.", PUMP) < consistency("The pump must be cleaned.", PUMP)


def test_words_put_together_wrongly_are_flagged() -> None:
    """All words are in the chunks, but few of them near each other."""
    first = "Anna keeps bees behind the mill. She sells honey on market days to visitors from the coast."
    second = "Boris repairs clocks near the harbour. He bought a violin last winter from a travelling musician."
    assert only_claim("The violin is behind the mill, with bees and clocks.", first, second).support != "supported"
    assert only_claim("Anna keeps bees.", first, second).support == "supported"


def test_each_sentence_is_a_claim_with_offsets() -> None:
    """Claims slice back to the answer, and the good one stays supported next to the bad one."""
    answer = "The Eiffel Tower is in Paris. It houses a submarine museum."
    claims = judge(answer, [TOWER]).claims or ()
    assert [answer[claim.start : claim.end] for claim in claims] == [claim.text for claim in claims]
    assert [claim.support for claim in claims] == ["supported", "not_found"]
    assert marked(answer, claims[1]) == ["houses", "submarine museum"]


@pytest.mark.parametrize(
    "remark",
    [
        "Hello!",
        "Sure, here is the answer:",
        "I hope this helps!",
        "Would you like to know more?",
        "The provided documents do not mention the price.",
        "I do not have any information about that.",
        "You're welcome.",
        "However, the documents don't say how many visitors it has.",
        "For more details, please refer to the documentation.",
        "See the provided documents for further information.",
    ],
)
def test_remarks_are_not_checkable(remark: str) -> None:
    """Greetings, frames, questions back and remarks on the context are no statements about the world."""
    claims = judge(f"The tower is in Paris.\n{remark}", [TOWER]).claims or ()
    assert [claim.checkable for claim in claims] == [True, False]


def test_a_denial_about_the_subject_is_checkable() -> None:
    """Saying that a thing lacks something is a statement, not an abstention."""
    judgement = judge("It does not include a battery.", ["The lamp does not include a battery."])
    assert [claim.checkable for claim in judgement.claims or ()] == [True]
    assert judgement.answer_label == "answered"


@pytest.mark.parametrize(
    "answer",
    [
        "I don't know.",
        "Sorry, I cannot answer that from the given context.",
        "Unable to answer based on the passages.",
        "The documents do not contain information about the opening hours.",
        "There is no information about this in the text.",
        "I'm sorry, but the provided documents do not contain information about startup probes.",
        "I couldn't find anything about startup probes in the documentation. Please contact support.",
        "No information about the opening hours was found.",
        "There is no mention of opening hours.",
        "Unfortunately, opening hours are not covered in the documentation.",
        "Opening hours are not mentioned.",
        "The answer isn't in the documents that I have.",
        "There isn't enough information to answer this question.",
        "I was unable to locate any details on this. You may want to check the official website.",
        "Based on the given context, it cannot be determined when it opens.",
        "I found nothing about opening hours in the docs.",
        "None of the passages discuss opening hours.",
        "I regret that the text does not say when it opens. If you provide more details, I can look again.",
    ],
)
def test_declining_is_labelled_abstained(answer: str) -> None:
    """And leaves consistency without a value."""
    assert_abstained(answer, TOWER)


@pytest.mark.parametrize(
    ("language", "answer"),
    [
        ("zh", "抱歉，文中没有提到这一点。"),
        ("zh", "很抱歉，我在文档中找不到相关内容。"),
        ("zh", "抱歉，文件中沒有提到這一點，無法回答。"),
        ("ja", "申し訳ありませんが、その情報は見つかりませんでした。"),
        ("de", "Leider enthalten die Dokumente keine Informationen darüber."),
        ("de", "Dazu konnte ich in den Unterlagen nichts finden. Bitte wenden Sie sich an den Kundendienst."),
        ("fr", "Désolé, les documents ne contiennent pas d'information à ce sujet."),
        ("fr", "Je n'ai pas trouvé de réponse dans la documentation. Veuillez contacter le support."),
        ("es", "Lo siento, los documentos no contienen información sobre este tema."),
        ("es", "No he podido encontrar nada sobre eso en la documentación."),
        ("pt", "Desculpe, não encontrei informações sobre isso nos documentos."),
        ("it", "Mi dispiace, i documenti non contengono informazioni su questo argomento."),
        ("nl", "Helaas bevatten de documenten geen informatie over dit onderwerp."),
        ("ru", "К сожалению, в документах нет информации об этом."),
        ("ar", "عذرا، لا توجد معلومات عن ذلك في المستندات."),
        ("hi", "क्षमा करें, दस्तावेज़ों में इसकी जानकारी नहीं है।"),
    ],
)
def test_declining_is_known_in_every_language(language: str, answer: str) -> None:
    """In the language of the chunks."""
    assert_abstained(answer, PARALLEL[language][0][0])


def assert_abstained(answer: str, context: str) -> None:
    judgement = judge(answer, [context])
    assert judgement.answer_label == "abstained"
    assert not [claim for claim in judgement.claims or () if claim.checkable]
    assert judgement.consistency is None
    assert judgement.reasons["consistency"] == "abstained"


@pytest.mark.parametrize(
    "answer",
    [
        "The lamp is not available in red.",
        "If the port is not specified, the server uses 80.",
        "The warranty does not cover the battery.",
        "Unfortunately, refunds are not available.",
    ],
)
def test_denying_something_of_the_subject_is_no_refusal(answer: str) -> None:
    """It may be true or false."""
    judgement = judge(answer, [TOWER])
    assert judgement.answer_label == "answered"
    assert [claim.checkable for claim in judgement.claims or ()] == [True]


@pytest.mark.parametrize(
    "answer",
    [
        "It is 330 metres tall.\n\nSources:\n- tower.md - https://example.org/tower\n- paris.md",
        "It is 330 metres tall. Sources: - tower.md - https://example.org/tower",
        "It is 330 metres tall (source: 2).",
        "It is 330 metres tall (sources: 1, 2).",
        "It is 330 metres tall. (Source: handbook, 2)",
        "It is 330 metres tall [doc 3] (see document handbook.pdf, page 12).",
        "It is [330 metres](https://example.org/a/b?page=12) tall.",
        "## Height of our monuments\n\nIt is 330 metres tall.",
        "**Important dimensions**\nIt is 330 metres tall.",
        "Important dimensions:\n- It is 330 metres tall.",
        "| what | value |\n|---|---|\n| weight | 7 |\n\nIt is 330 metres tall.",
    ],
)
def test_what_surrounds_the_statements_is_none(answer: str) -> None:
    """Lists of sources, citations, headings and tables neither support nor invent anything."""
    claims = [claim for claim in judge(answer, [TOWER]).claims or () if claim.checkable]
    assert [claim.support for claim in claims] == ["supported"]
    assert consistency(answer, TOWER) > 0.9


def test_code_states_nothing() -> None:
    """No line of it is a claim, whatever is in it."""
    answer = "It is 330 metres tall.\n\n```python\nprint(height)\nreturn 7\n```\n"
    claims = judge(answer, [TOWER]).claims or ()
    assert [(claim.text, claim.support) for claim in claims] == [("It is 330 metres tall.", "supported")]


def test_words_of_code_count_for_consistency() -> None:
    """Though no line is a claim: code that no chunk has lowers it, and code of a chunk does not."""
    prose, code = "It is fast.", "\n```\nopen(path, mode)\nfrobnicate(quux, zebra)\n```"
    assert consistency(prose + code, "It is fast. Call open(path, mode), then frobnicate(quux, zebra).") == 1.0
    assert consistency(prose, "It is fast.") == 1.0
    assert consistency(prose + code, "It is fast.") < 0.5


GERMAN = "Die Katze schläft auf dem Sofa und der Hund liegt im Garten neben dem großen Baum."
ENGLISH_CODE = "\n```\n" + "def frobnicate(quux): return zebra + elephant\n" * 12 + "```\n"


def test_code_is_in_no_language() -> None:
    """However much of it there is: the prose beside it is judged, or refused, as without it."""
    answer = "Die Katze liegt im Garten."
    judgement = judge(answer + ENGLISH_CODE, [GERMAN])
    assert [claim.support for claim in judgement.claims or ()] == ["supported"]
    assert judgement.consistency is not None
    foreign = judge("The warranty lasts for two years from purchase." + ENGLISH_CODE, [GERMAN])
    assert foreign.reasons["consistency"] == "language_mismatch"
    assert judge(ENGLISH_CODE, [GERMAN]).reasons["consistency"] == "no_claims"


@pytest.mark.parametrize("blank", ["", " ", "\n\t", "\u2003"])
@pytest.mark.parametrize("answer", ["Katzen schlafen.", "Der Hund liegt auf dem Sofa.", "Cats sleep.", "Katze: 4"])
def test_blank_chunks_change_nothing(blank: str, answer: str) -> None:
    """But the ranks of the others, wherever they stand, also where the first chunk says the language."""
    plain, mixed = judge(answer, [GERMAN, TOWER]), judge(answer, [blank, GERMAN, blank, TOWER, blank])
    rank = {0: 1, 1: 3}
    moved = [replace(claim, evidence=tuple(rank[at] for at in claim.evidence)) for claim in plain.claims or ()]
    assert mixed == replace(plain, claims=None if plain.claims is None else tuple(moved))


def test_chunks_with_four_fifths_of_the_closest_are_evidence_too() -> None:
    """Of five words four are enough and three are not; the closest comes first, and of equals the earlier."""
    answer = "The red pump burns warm oil."
    chunks = ["A red pump burns.", "A red pump burns oil.", "The red pump burns warm oil.", "Red pump, warm oil."]
    assert only_claim(answer, *chunks).evidence == (2, 1, 3)


def test_three_chunks_at_most_are_named_as_evidence() -> None:
    """The earlier ones, of chunks that say as much."""
    answer = "The red pump burns warm oil."
    chunks = ["Bread is baked.", *(f"The red pump burns warm oil on day {day}." for day in range(5))]
    assert only_claim(answer, *chunks).evidence == (1, 2, 3)


@pytest.mark.parametrize("fence", ["```", "```markdown"])
def test_an_answer_in_a_fence_is_judged(fence: str) -> None:
    """Where the fence is never closed, or says that text is in it."""
    claims = judge(f"{fence}\nIt is in Berlin.\n" + "```" * (fence != "```"), [TOWER]).claims or ()
    assert [claim.support for claim in claims if claim.checkable] == ["not_found"]


@pytest.mark.parametrize(
    ("answer", "chunk"),
    [
        ("The overdraft interest rate is 11.2% per year.", "Overdraft interest is 11.2 percent a year."),
        ("Overdraft interest is 11.2 percent a year.", "The overdraft interest rate is 11.2% per year."),
        ("The annual fee is 1,200 dollars.", "The fee is 1200 dollars per year."),
        ("The road is 300 km long.", "The road is 300 kilometers long."),
        (
            "Die Bahn hat 12.500 Fahrgäste am Tag.",
            "Die Bahn hat am Tag 12500 Fahrgäste, und das jeden Tag.",
        ),
    ],
)
def test_units_and_numbers_agree_in_any_spelling(answer: str, chunk: str) -> None:
    """A percent sign is the word, an adverb is its unit, and separators are those of the language."""
    assert consistency(answer, chunk) > 0.6


def test_words_of_the_query_count_as_given() -> None:
    """An answer may use the words in which it was asked."""
    chunk = "Overdrafts cost 11.2 percent a year."
    answer = "The interest rate for overdrafts is 11.2 percent a year."
    asked = judge(answer, [chunk], "What is the interest rate for overdrafts?").consistency
    other = judge(answer, [chunk], "How much?").consistency
    assert asked is not None
    assert other is not None
    assert asked > other
    claim = only_claim(
        "You can charge the scooter overnight.",
        "It may be charged overnight.",
        query="Can I charge the scooter overnight?",
    )
    assert claim.support == "supported"


def test_a_true_answer_in_other_words_is_not_called_a_hallucination() -> None:
    """It has a word that no chunk has, which lowers consistency a little."""
    scores = ragtrace.score(
        query="What does an overdraft cost?",
        contexts=["Overdraft interest is 11.2 percent a year."],
        answer="The overdraft interest rate is 11.2% per year.",
    )
    assert not {"hallucination", "hallucinated", "faithfulness"} & scores.keys()
    result = scores["consistency"]
    assert isinstance(result, Score)
    assert result.value > 0.6
    assert result.label is None


@settings(max_examples=examples(200))
@given(WORDY, st.lists(WORDY, min_size=1, max_size=3))
def test_whatever_is_flagged_is_marked(answer: str, contexts: list[str]) -> None:
    """A claim without full support shows at least one word."""
    for claim in judge(answer, contexts).claims or ():
        assert not claim.checkable or claim.support == "supported" or claim.unsupported


def test_an_attempt_after_declining_is_still_judged() -> None:
    """A label must not hide statements."""
    judgement = judge("I do not know the price, but the tower is in Berlin.", [TOWER])
    assert judgement.consistency is not None
    assert [claim.support for claim in judgement.claims or ()] != ["supported"]


def test_citations_are_no_numbers() -> None:
    """Pointers to chunks are not held against the chunks."""
    answer = "According to passage 2, the tower is in Paris [1]. It is 330 metres tall [2, 3]."
    assert [claim.support for claim in judge(answer, [TOWER]).claims or ()] == ["supported", "supported"]


@pytest.mark.parametrize(
    ("answer", "contexts", "expected"),
    [
        (None, [TOWER], "empty_answer"),
        (" \n", [TOWER], "empty_answer"),
        ("It is in Paris.", None, "contexts_missing"),
        ("It is in Paris.", [], "no_contexts"),
        ("It is in Paris.", ["", " \n"], "no_contexts"),
        ("Yes.", [TOWER], "no_claims"),
        ("!!! \U0001f44d", [TOWER], "unscorable_script"),
        ("埃菲尔铁塔在巴黎，高三百三十米。", [TOWER], "unscorable_script"),
        ("Эйфелева башня находится в Париже.", [TOWER], "unscorable_script"),
        ("برج إيفل في باريس.", [TOWER], "unscorable_script"),
    ],
)
def test_what_cannot_be_judged_says_why(answer: str | None, contexts: list[str] | None, expected: str) -> None:
    """No consistency, and a reason that METRICS knows."""
    judgement = judge(answer, contexts)
    assert judgement.consistency is None
    assert judgement.reasons["consistency"] == expected
    assert status_of(expected) == "not_applicable"


def test_without_chunks_every_statement_is_unsupported() -> None:
    """Faithfulness is 0 then, not unscored."""
    call = RagCall("q", (), "It is in Paris.")
    result = registry.get("faithfulness")(call, judge("It is in Paris.", []))
    assert isinstance(result, Score)
    assert result.value == 0


@pytest.mark.parametrize(
    ("chunk", "right", "wrong"),
    [
        ("东京塔位于日本东京，高333米，于1958年建成。", "东京塔高333米。", "巴黎铁塔由拿破仑设计建造完成。"),
        ("برج القاهرة في مصر وارتفاعه 187 مترا.", "برج القاهرة في مصر.", "قصر الحمراء بناه ملوك غرناطة."),
        (
            "Café Müller öffnete 1907 in Zürich an der Limmat.",
            "Cafe Muller: Zurich, 1907.",
            "Hotel Adler, Basel, 1950.",
        ),
        ("Башня построена в Москве в 1967 году.", "Башня построена в Москве.", "Дворец сгорел зимой в Казани."),
        ("หอคอยตั้งอยู่ในกรุงเทพ", "หอคอยตั้งอยู่ในกรุงเทพ", "ปราสาทถูกไฟไหม้เมื่อวาน"),
        ("서울 타워는 남산에 있으며 1969년에 지어졌다.", "서울 타워는 남산에 있다.", "부산 궁전은 왕비가 세웠다."),
        ("La tour a été achevée en 1889 par des ouvriers.", "Elle a été achevée en 1889.", "Le château brûla en 1944."),
    ],
)
def test_other_scripts_are_judged_by_their_words(chunk: str, right: str, wrong: str) -> None:
    """Where answer and chunk share a script, supported and invented answers score differently."""
    assert consistency(right, chunk) > 0.55
    assert consistency(wrong, chunk) < 0.35


@pytest.mark.parametrize(
    "answer",
    [
        "La torre se encuentra en la capital de los franceses y fue construida por un ingeniero en el siglo pasado.",
        "La garantía dura 24 meses.",
        "Die Garantie beträgt 24 Monate ab Kaufdatum.",
        "La tour a été achevée il y a longtemps.",
        "De toren is gebouwd door een ingenieur.",
        "La torre è stata costruita da un ingegnere.",
        "A torre foi construída por um engenheiro.",
    ],
)
def test_another_language_in_the_same_alphabet_is_not_judged(answer: str) -> None:
    """However short: the words of one language say nothing about chunks in another one."""
    judgement = judge(answer, [TOWER])
    assert judgement.consistency is None
    assert judgement.reasons["consistency"] == judgement.reasons["claims"] == "language_mismatch"


def test_one_short_sentence_says_what_language_the_chunks_are_in() -> None:
    """Two of its function words and none of another language do."""
    chunk = "The warranty lasts 24 months from purchase."
    for answer in ("La garantía dura 24 meses.", "Die Garantie beträgt 24 Monate ab Kaufdatum."):
        assert judge(answer, [chunk]).reasons["consistency"] == "language_mismatch"
    assert consistency("The warranty lasts 24 months.", chunk) > 0.9
    assert consistency("It is 36 months and includes theft.", chunk) < 0.3


def test_an_english_answer_about_other_chunks_is_not_judged() -> None:
    """As the other way round."""
    text = "Die Garantie beträgt 24 Monate ab dem Kaufdatum und gilt nur für Mängel, die bei der Übergabe da waren."
    assert judge("The warranty lasts for two years from purchase.", [text]).reasons["claims"] == "language_mismatch"


@pytest.mark.parametrize(
    "answer", ["The café was a naïve idea.", "Visit La Rochelle and El Paso.", "Press and hold it."]
)
def test_a_foreign_word_is_not_another_language(answer: str) -> None:
    """An invented answer in the chunks' language is judged."""
    assert consistency(answer, TOWER) < 0.3


def test_a_list_of_invented_names_is_not_another_language() -> None:
    """Few function words alone do not excuse an answer."""
    answer = "Berlin, Madrid, Rome, Vienna, Oslo, Lisbon, Dublin, Athens, Warsaw, Prague, Budapest, Sofia, Riga, Minsk."
    assert consistency(answer, TOWER) < 0.2


def test_duplicates_are_judged_once_and_counted() -> None:
    """Chunks that differ in white space only are one."""
    judgement = judge("It is in Paris.", [TOWER, TOWER.replace(" ", "\n "), " ", "Other text."])
    assert judgement.attributes["chunks"] == 2
    assert judgement.attributes["duplicate_chunks"] == 1
    assert (judgement.claims or ())[0].evidence == (0,)


def test_judgements_repeat() -> None:
    """The same judge gives the same judgement again, whatever it has seen in between."""
    embedded, call = EmbeddedJudge(), RagCall("q", (Document(TOWER),), "The tower is in Berlin.")
    first = asyncio.run(embedded.judge(call))
    asyncio.run(embedded.judge(RagCall("q", (Document(PUMP),), "The pump needs oil.")))
    assert asyncio.run(embedded.judge(call)) == first


@settings(max_examples=examples(200))
@given(ANY_TEXT | WORDY, st.lists(ANY_TEXT | WORDY, max_size=4), ANY_TEXT)
def test_no_text_breaks_it(answer: str, contexts: list[str], query: str) -> None:
    """Any Unicode in any place gives labels inside their ranges."""
    judgement = judge(answer, contexts, query)
    assert judgement.consistency is None or 0 <= judgement.consistency <= 1
    assert (judgement.consistency is None) == ("consistency" in judgement.reasons)
    for claim in judgement.claims or ():
        assert answer[claim.start : claim.end] == claim.text
        assert claim.score is None or 0 <= claim.score <= 1
        assert all(claim.start <= start < end <= claim.end for start, end in claim.unsupported)
        assert all(0 <= rank < len(contexts) for rank in claim.evidence)


HOSTILE = {
    "zero width": "\u200b" * 10_000,
    "hidden in words": "Ber\u200blin " * 2_000,
    "one word": "a" * 200_000,
    "marks": "e" + "\u0301" * 50_000,
    "dots": "." * 100_000,
    "lone stops": ". " * 20_000,
    "line breaks": "a\n" * 30_000,
    "apostrophes": "a'" * 30_000,
    "brackets": "[" * 50_000,
    "digits": "1,1." * 20_000,
    "surrogates": "\ud800x " * 10_000,
    "one sentence": "tower " * 20_000,
    "sentences": "The tower fell. " * 5_000,
    "unspaced": "今天天气很好" * 5_000,
}


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE.keys())
def test_long_hostile_text_is_dealt_with_in_small_steps(text: str) -> None:
    """Between two yields never more than a few thousand characters are read, and their number stays in proportion."""
    call = RagCall(text, (Document(text), Document("The tower is tall.")), text)
    steps = list(EmbeddedJudge().steps(call))
    assert max(steps) <= 2 * STEP_CHARS
    assert sum(steps) <= 6 * len(text) + 20 * STEP_CHARS
    assert len(steps) <= len(text) + 100


def test_ten_thousand_chunks_are_read() -> None:
    """All of them count, also the last."""
    chunks = [f"The shed number {n} holds wood." for n in range(10_000)]
    assert only_claim("The shed number 9999 holds wood.", *chunks).support == "supported"


def test_limits_are_published() -> None:
    """What was too long to read is counted, never silent."""
    long = judge("The tower is tall. " * 10_000, [TOWER]).attributes
    assert long["truncated_answer_chars"] == 190_000 - 19 * MAX_STATEMENTS
    assert "truncated_answer_chars" not in judge("The tower is tall.", [TOWER]).attributes
    assert judge("x" * (MAX_ANSWER_CHARS + 5), [TOWER]).attributes["truncated_answer_chars"] == 5
    assert judge("The tower is tall.", ["ab " * MAX_CONTEXT_CHARS, TOWER]).attributes["truncated_chunks"] == 2


def test_other_tasks_run_while_it_judges() -> None:
    """A long call hands control back to the event loop many times."""

    async def watched() -> int:
        turns, judging = (
            0,
            asyncio.ensure_future(EmbeddedJudge().judge(RagCall("q", (Document(TOWER * 1_000),), TOWER))),
        )
        while not judging.done():
            turns += 1
            await asyncio.sleep(0)
        return turns

    assert asyncio.run(watched()) > 20


# --- other languages -------------------------------------------------------------------------------------------------


@cache
def mean_consistency(language: str, *, other_text: bool = False) -> float:
    """Mean consistency of the thirty true sentences with their texts, or with another text of that language."""
    pairs = PARALLEL[language]
    texts = [pairs[(at + 10 * other_text) % len(pairs)][0] for at in range(len(pairs))]
    return fmean(consistency(sentence, text) for text, (_, sentence) in zip(texts, pairs, strict=True))


@pytest.mark.parametrize("language", PARALLEL)
def test_true_sentences_are_judged_alike_in_every_language(language: str) -> None:
    """Sentences that say the same are found supported, and those about something else are not."""
    assert len(PARALLEL[language]) == 30
    assert mean_consistency(language) > mean_consistency("en") - 0.1
    assert mean_consistency(language, other_text=True) < 0.2


@pytest.mark.parametrize(
    ("chunk", "sentence", "least"),
    [
        (
            "Rückgaben sind innerhalb von 30 Tagen kostenlos.",
            "Sie können die Ware innerhalb von 30 Tagen kostenlos zurückgeben.",
            0.6,
        ),
        ("La garantie dure 24 mois à compter de l'achat.", "Vous avez 24 mois de garantie.", 0.75),
        ("Гарантия действует 24 месяца с даты покупки.", "Гарантия действует в течение 24 месяцев.", 0.6),
        ("الإرجاع مجاني خلال ثلاثين يوما.", "يمكنك الإرجاع مجانا خلال ثلاثين يوما.", 0.9),
        ("保証期間は購入日から24か月です。", "保証は24か月間有効です。", 0.6),
    ],
    ids=["de", "fr", "ru", "ar", "ja"],
)
def test_one_short_chunk_supports_a_true_sentence_in_its_language(chunk: str, sentence: str, least: float) -> None:
    """Function words and inflection are known where the alphabet or two words tell the language."""
    assert consistency(sentence, chunk) > least


OTHER_LANGUAGES = {
    "pl": ("Jak długo trwa gwarancja?", "Gwarancja na pralki wynosi dwa lata od daty zakupu.", "Nie wiem."),
    "ko": ("보증 기간은 얼마나 되나요?", "보증 기간은 구매일로부터 2년입니다.", "모르겠습니다."),
    "tr": ("Garanti süresi ne kadar?", "Garanti süresi satın alma tarihinden itibaren iki yıldır.", "Bilmiyorum."),
    "vi": ("Thời hạn bảo hành là bao lâu?", "Thời hạn bảo hành là hai năm kể từ ngày mua.", "Tôi không biết."),
    "fi": ("Kuinka kauan takuu on voimassa?", "Takuu on voimassa kaksi vuotta ostopäivästä.", "En tiedä."),
    "hu": ("Meddig érvényes a jótállás?", "A jótállás a vásárlástól számított két évig érvényes.", "Nem tudom."),
    "th": ("รับประกันนานเท่าไร", "การรับประกันมีระยะเวลาสองปีนับจากวันที่ซื้อ", "ไม่ทราบ"),
    "he": ("כמה זמן תקפה האחריות?", "האחריות היא לשנתיים מיום הרכישה.", "אני לא יודע."),
    "sv": ("Hur länge gäller garantin?", "Garantin gäller i två år från inköpsdatumet.", "Det vet jag inte."),
    "da": ("Hvor længe gælder garantien?", "Garantien gælder i to år fra købsdatoen.", "Det ved jeg ikke."),
    "cs": ("Jak dlouhá je záruka?", "Záruka je dva roky od data nákupu.", "To nevím."),
    "ro": ("Cât durează garanția?", "Garanția este de doi ani de la data cumpărării.", "Nu știu."),
    "ca": ("Quant dura la garantia?", "La garantia és de dos anys des de la data de compra.", "No ho sé."),
    "id": ("Berapa lama garansinya?", "Garansi berlaku selama dua tahun sejak tanggal pembelian.", "Saya tidak tahu."),
    "sw": ("Dhamana ni ya muda gani?", "Dhamana ni ya miaka miwili kuanzia tarehe ya ununuzi.", "Sijui."),
    "uk": ("Скільки діє гарантія?", "Гарантія становить два роки від дати купівлі.", "Не знаю."),
    "bg": ("Колко време важи гаранцията?", "Гаранцията е две години от датата на покупката.", "Не знам."),
    "fa": ("مدت گارانتی چقدر است؟", "گارانتی دو سال از تاریخ خرید است.", "نمی‌دانم."),
    "mr": ("वॉरंटी किती काळ आहे?", "वॉरंटी खरेदीच्या तारखेपासून दोन वर्षे आहे.", "मला माहित नाही."),
    "el": ("Πόσο διαρκεί η εγγύηση;", "Η εγγύηση ισχύει για δύο χρόνια.", "Δεν ξέρω."),
}


@pytest.mark.parametrize("language", OTHER_LANGUAGES)
def test_answered_has_no_score_in_a_language_whose_refusals_are_not_known(language: str) -> None:
    """Neither for a refusal nor for an answer: a share of the answers alone would always be 1."""
    query, chunk, declining = OTHER_LANGUAGES[language]
    for answer in (declining, chunk):
        judgement = judge(answer, [chunk], query)
        result = registry.get("answered")(RagCall(query, (Document(chunk),), answer), judgement)
        assert isinstance(result, Unscored), answer
        assert (result.reason, result.status) == ("unknown_language", "not_applicable")
        assert judgement.attributes["unknown_language"] is True


def test_a_number_is_an_attempt_in_every_language() -> None:
    """Nothing is declined without a letter."""
    query, chunk, _ = OTHER_LANGUAGES["pl"]
    assert judge("24", [chunk], query).answer_label == "answered"


def test_consistency_is_kept_in_a_language_whose_refusals_are_not_known() -> None:
    """Its words are compared as before; an attribute says that a refusal may have a low one."""
    _, chunk, _ = OTHER_LANGUAGES["pl"]
    assert consistency("Gwarancja na pralki wynosi dwa lata.", chunk) > 0.9
    declining = judge("Niestety nie znalazłem informacji na ten temat w dokumentach.", [chunk])
    assert declining.consistency is not None
    assert declining.attributes["unknown_language"] is True


def test_an_ungrounded_answer_is_not_told_from_a_refusal_in_an_unknown_language() -> None:
    """So that `answered_without_context` has no score."""
    answer = "Niestety nie znalazłem informacji na ten temat."
    result = registry.get("answered_without_context")(RagCall("Jak?", (), answer), judge(answer, []))
    assert isinstance(result, Unscored)
    assert result.reason == "unknown_language"


@pytest.mark.parametrize("language", PARALLEL)
def test_every_answer_in_a_known_language_has_an_answered(language: str) -> None:
    """Also a short sentence beside a query without words."""
    for chunk, sentence in PARALLEL[language]:
        assert judge(sentence, [chunk], "?").answer_label == "answered", sentence


@pytest.mark.parametrize(
    "answer",
    [
        *("Paris", "42", "AX-7", "330 m", "4 x 100 = 400", "Łódź", "50 złoty", "Kraków and Gdańsk", "กรุงเทพ"),
        *("Yes.", "β = 3 μm", "flour, sugar, butter, eggs, milk"),
    ],
)
def test_a_short_answer_is_in_the_language_of_the_question(answer: str) -> None:
    """Names, numbers, codes and loans say nothing of the language."""
    assert judge(answer, [TOWER], "What is the name of the city, and what does it cost?").answer_label == "answered"


def test_where_nothing_tells_the_language_an_answer_has_a_score() -> None:
    """A few names and keywords are no evidence of another language."""
    assert judge("Paris", ["Paris"], "Capital France?").answer_label == "answered"
    assert judge("```python\nprint(total)\n```", None, "python total").answer_label == "answered"
