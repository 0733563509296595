"""The demo: its documents, search, questions, answers, simulated regression, and a whole run of it."""

from __future__ import annotations

import math
import os
import re
from dataclasses import asdict, replace
from typing import TYPE_CHECKING

import pytest

from ragtrace.demo.demo_run import Options, run
from ragtrace.demo.generator import NOT_FOUND, ExtractiveModel, sentences, split_into_words, third_person
from ragtrace.demo.library import (
    PASSAGE_CHARS,
    Documents,
    Entry,
    Passage,
    chunks,
    standard_library,
)
from ragtrace.demo.library_questions import WRITTEN, library_questions
from ragtrace.demo.outcome import (
    Alarm,
    DemoCall,
    Destination,
    Finding,
    Outcome,
    Verdict,
    as_json,
    count_calls,
    read_verdict,
)
from ragtrace.demo.outcome_report import ReportLine, mark_unsupported, report_as_text
from ragtrace.demo.regression import Invention, Release
from ragtrace.demo.search import K1, B, Index, tokens
from ragtrace.report.wording import merge_ranges
from tests.benchmarks.demo_picture import svg

if TYPE_CHECKING:
    from tests.support.otlp import HttpReceiver

NAME = re.compile(r"[A-Za-z]\w*(?:\.\w+)+")
Altered = list[tuple[str, str, Invention, str]]


@pytest.fixture(scope="module")
def library() -> Documents:
    """The standard library's documents."""
    return standard_library()


@pytest.fixture(scope="module")
def index(library: Documents) -> Index:
    """The search index over them."""
    return Index(library.passages)


def passage(body: str, name: str = "thing") -> Passage:
    """A passage of *body*."""
    return Passage(name, Entry(name, "function", "thing", body), body)


def call(
    answer: str, *, released: bool = False, flagged: bool = False, invented: bool = False, reason: str | None = None
) -> DemoCall:
    """A call with a verdict; an invention and a finding are both the first five characters."""
    made = Invention("detail", answer[:5], 0, 5, "") if invented else None
    found = (Finding(answer, ((0, 5),), 0.1, "closest"),) if flagged else ()
    faithfulness = None if reason else 0.5 if flagged else 1.0
    return DemoCall("Why?", answer, made, released, 1, Verdict(faithfulness, flagged, reason, "judge@1", found))


def outcome(*calls: DemoCall) -> Outcome:
    """A finished run of *calls*."""
    accounts = {"offered": len(calls), "scored": len(calls), "failed": {}, "pending": 0}
    stats: dict[str, object] = {"evaluators": {"judge": accounts}, "faults": {}}
    return Outcome(3, 7, 0.35, calls, stats, Destination(None), 1.0)


# --- documents ------------------------------------------------------------------------------------------------------


def test_the_standard_library_gives_thousands_of_passages(library: Documents) -> None:
    """There is enough to search in, and no passage is longer than it may be."""
    passages = library.passages
    assert len(passages) > 3_000
    assert max(len(item.body) for item in passages) <= PASSAGE_CHARS
    assert len({item.id for item in passages}) == len(passages)


@pytest.mark.parametrize(
    "name", ["shutil.copyfile", "asyncio.sleep", "os.path.join", "math.gcd", "str.split", "os.stat"]
)
def test_functions_go_by_the_name_a_user_imports(library: Documents, name: str) -> None:
    """Written in Python or in C, re-exported or not."""
    assert name in {entry.name for entry in library.entries}


def test_a_title_is_the_signature(library: Documents) -> None:
    """Defaults and keyword-only marks are in it, annotations and self are not."""
    entry = next(entry for entry in library.entries if entry.name == "shutil.copyfile")
    assert entry.title == "shutil.copyfile(src, dst, *, follow_symlinks=True)"
    assert entry.parameters == ("src", "dst", "follow_symlinks")


def test_the_order_of_the_documents_is_the_same_in_every_run(library: Documents) -> None:
    """Nothing in it depends on hashes or on the file system."""
    assert standard_library() == library


def test_long_paragraphs_are_cut() -> None:
    """Nothing is lost and nothing is longer than the limit, whatever the text is made of."""
    text = "word " * 100 + "\n\n" + "x" * 250 + "\n\nshort"
    cut = list(chunks(text, 100))
    assert max(map(len, cut)) <= 100
    assert "".join("".join(cut).split()) == "".join(text.split())


# --- search ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("shutil.copyFile", {"shutil.copyfile", "shutil", "copyfile", "copy", "fil"}),
        ("max_retry_count", {"max_retry_count", "max", "retry", "count"}),
        ("HTTPServer", {"httpserver", "http", "server"}),
        ("the copies of it", {"copy"}),
    ],
)
def test_identifiers_are_split_into_their_parts(text: str, expected: set[str]) -> None:
    """Dots, underscores and capitals all separate; stop words go."""
    assert set(tokens(text)) == expected


@pytest.mark.parametrize("words", [("file", "files"), ("parse", "parsing"), ("copy", "copied")])
def test_inflected_words_are_one_term(words: tuple[str, str]) -> None:
    """A question in the plural finds a passage in the singular."""
    assert tokens(words[0]) == tokens(words[1])


def test_weights_are_those_of_the_source() -> None:
    """One term, three passages, computed by hand from the published formula; the name counts as a field."""
    found = Index([passage("red red blue", "rose"), passage("green", "grass"), passage("white", "snow")]).search(
        "red", 3
    )
    length, mean = 5, (5 + 3 + 3) / 3  # in terms: body, title and name
    rarity = math.log(1 + (3 - 1 + 0.5) / (1 + 0.5))
    expected = rarity * 2 * (K1 + 1) / (2 + K1 * (1 - B + B * length / mean))
    assert [item.entry.name for item, _ in found] == ["rose"]
    assert found[0][1] == pytest.approx(expected, rel=1e-5)


def test_an_exact_name_comes_first(index: Index) -> None:
    """A question that spells a function's name gets that function."""
    assert index.search("What does shutil.copyfile do?", 4)[0][0].entry.name == "shutil.copyfile"


def test_words_of_no_passage_find_nothing(index: Index) -> None:
    """No result is better than four random ones."""
    assert index.search("xyzzy plugh", 4) == []


# --- answers --------------------------------------------------------------------------------------------------------


def test_code_is_not_a_sentence() -> None:
    """Doctests and signatures stay out of answers; wrapped lines are joined."""
    text = "Copy the\nfile now.\n\n>>> copy(1)\n2\n\nsrc Path to copy from it.\n\nIt keeps e.g. the mode. Fine it is."
    assert list(sentences(text)) == ["Copy the file now.", "It keeps e.g. the mode.", "Fine it is."]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("Copy data and return it.", "copies data and returns it."),
        ("Push x.", "pushes x."),
        ("A helper of it.", "A helper of it."),
    ],
)
def test_imperatives_become_statements(line: str, expected: str) -> None:
    """What is not imperative stays as it is."""
    assert third_person(line) == expected


def test_what_the_documents_do_not_hold_is_not_answered(index: Index) -> None:
    """A question about another subject gets a refusal, not the nearest passage."""
    question = "How do I train a neural network on images?"
    assert ExtractiveModel(index).answer(question, [item for item, _ in index.search(question, 4)]) == NOT_FOUND


def test_pieces_join_to_the_answer() -> None:
    """Streaming loses no white space."""
    text = "Use os.walk(top): it\nwalks. Done."
    assert "".join(split_into_words(text)) == text
    assert len(list(split_into_words(text))) > 4


# --- questions ------------------------------------------------------------------------------------------------------


def test_there_are_hundreds_of_distinct_questions(library: Documents) -> None:
    """In several wordings, and the same ones for the same seed."""
    asked = library_questions(library, 400, seed=7)
    assert len(set(asked)) == len(asked) == 400
    assert len({question.split()[0] for question in asked}) >= 5
    assert asked == library_questions(library, 400, seed=7)
    assert asked != library_questions(library, 400, seed=8)


def test_generated_questions_are_about_what_exists(library: Documents) -> None:
    """Every dotted name in a question is documented."""
    known = {entry.name for entry in library.entries}
    generated = [question for question in library_questions(library, 300, seed=1) if question not in WRITTEN]
    about = [name for question in generated if "How do I" not in question for name in NAME.findall(question)]
    assert len(about) > 100
    assert [name for name in about if name not in known] == []


# --- the simulated regression ---------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def altered(library: Documents, index: Index) -> Altered:
    """Of many real answers: the answer, what the release made of it, the invention, and the passages' text."""
    release, model = Release(library.entries, seed=3), ExtractiveModel(index)
    made = []
    for question in library_questions(library, 200, seed=3):
        found = [item for item, _ in index.search(question, 4)]
        answer = model.answer(question, found)
        if answer != NOT_FOUND:
            changed, invention = release.alter(question, answer, found)
            assert invention is not None
            made.append((answer, changed, invention, " ".join(item.text for item in found).lower()))
    return made


def test_an_invention_stands_where_it_is_said_to(altered: Altered) -> None:
    """Offsets are into the altered answer, and taking the invention out gives the healthy answer back."""
    for answer, text, made, _ in altered:
        assert text[made.start : made.end] == made.text
        back = text[: made.start] + made.instead_of + text[made.end :]
        assert "".join(back.split()) == "".join(answer.split())


def test_inventions_are_not_in_the_passages(altered: Altered) -> None:
    """What the release says instead stands in no passage that it was given."""
    for _, _, made, known in altered:
        assert f" {made.text.lower()} " not in f" {known} "


def test_inventions_are_of_many_kinds(altered: Altered) -> None:
    """Swapped words as well as whole sentences."""
    assert {made.kind for _, _, made, _ in altered} == {"number", "behaviour", "detail", "elsewhere"}


def test_the_release_keeps_its_share(library: Documents) -> None:
    """Of every twenty answers seven are altered, not about seven; the places depend on the seed alone."""
    release, again = Release(library.entries, seed=5, share=0.35), Release(library.entries, seed=5, share=0.35)
    chosen = [release.chooses() for _ in range(100)]
    assert sum(chosen) == 35
    assert chosen == [again.chooses() for _ in range(100)]


# --- results --------------------------------------------------------------------------------------------------------


def test_halves_are_counted() -> None:
    """Caught, missed, wrongly flagged and unscored calls each go into their own number."""
    calls = [
        call("healthy"),
        call("wrongly", flagged=True),
        call("invented and seen", flagged=True, invented=True),
        call("invented and missed", invented=True),
        call("abstained", reason="abstained"),
    ]
    half = count_calls(calls)
    assert (half.calls, half.scored, half.flagged, half.invented) == (5, 4, 2, 2)
    assert (half.caught, half.located, half.wrongly_flagged, dict(half.unscored)) == (1, 1, 1, {"abstained": 1})
    assert half.healthy == 2
    assert half.hallucination_rate == 0.5
    assert half.faithfulness == 0.75


def test_nothing_scored_is_no_number() -> None:
    """A half without a score has no mean and no rate, not 0."""
    half = count_calls([call("x", reason="timeout")])
    assert half.faithfulness is None
    assert half.hallucination_rate is None


def test_a_missing_root_span_is_unscored() -> None:
    """No attributes means that the span never came, and that is said."""
    assert read_verdict({}).reason == "no_span"


def test_marks_are_cut_with_the_answer() -> None:
    """A long answer is shown around its first mark, and the marks move along."""
    long = call("a" * 900 + " wrong " + "b" * 300)
    finding = Finding("", ((901, 906),), None, "")
    parts = mark_unsupported(replace(long, verdict=Verdict(0.0, True, None, "", (finding,))))
    assert [text for text, style in parts if style] == ["wrong"]
    assert len(ReportLine(parts).text()) < 500


def test_overlapping_marks_are_joined() -> None:
    """Brackets never nest, and never reach beyond the answer."""
    ranges = merge_ranges([(5, 90), (0, 2), (1, 4), (7, 7)], 8)
    assert ranges == [(0, 4), (5, 8)]
    finding = Finding("", ((5, 90), (0, 2), (1, 4), (7, 7)), None, "")
    parts = mark_unsupported(replace(call("abcdefgh"), verdict=Verdict(0.0, True, None, "", (finding,))))
    assert ReportLine(parts).text() == "[[abcd]]e[[fgh]]"


def test_the_plain_report_says_all() -> None:
    """Rates, the marked answer, the closest passage, the truth, the accounts and where the spans went."""
    text = report_as_text(outcome(call("fine"), call("wrong it is", released=True, flagged=True, invented=True)))
    for part in (
        "SIMULATED",
        "1 of 1 (100%)",
        "[[wrong]]",
        "closest",
        "invented  'wrong'",
        "offered 2 = scored 2",
        "nowhere",
    ):
        assert part in text


def test_the_report_says_what_its_judge_can_be_believed() -> None:
    """A judge that compares words is fit for answers that quote."""
    assert "the answers quote their passages (extractive=True)" in " ".join(report_as_text(outcome()).split())


@pytest.mark.parametrize(
    ("raised_after", "says"),
    [(75, "raised 75 calls after the release ("), (None, "not raised ("), (0, "raised FALSELY, before the release (")],
)
def test_the_report_says_when_the_alert_was_raised(raised_after: int | None, says: str) -> None:
    """Whatever came of it, with the rule that was stated beforehand."""
    text = report_as_text(
        replace(outcome(call("fine")), alarms=(Alarm("hallucinated above 0.05", 10_000, raised_after),))
    )
    assert f"alert    {says}" in text
    stated = "hallucinated above 0.05, at most one false alarm in 10,000 scored calls in the mean"
    assert stated in " ".join(text.split())


def test_the_picture_loads_nothing() -> None:
    """The SVG in the documentation has no font or image from a server."""
    text = svg(outcome(call("fine"), call("wrong it is", released=True, flagged=True, invented=True)))
    assert "<svg" in text
    assert "url(http" not in text
    assert "@font-face" not in text


# --- a whole run ----------------------------------------------------------------------------------------------------


def silent(stage: str, done: int, total: int) -> None:
    """Progress that is not shown."""


@pytest.fixture(scope="module")
def finished() -> Outcome:
    """One run over the standard library, shared by the tests that look at it."""
    with pytest.MonkeyPatch.context() as environment:  # the fixture that cleans it is of each test
        for name in [name for name in os.environ if name.startswith(("OTEL_", "RAGTRACE_"))]:
            environment.delenv(name)
        return run(Options(questions=60, seed=7), silent)


def test_every_call_is_accounted_for(finished: Outcome) -> None:
    """Scored and unscored add up to the calls asked, and the judge's books balance."""
    before, after = finished.halves
    assert (before.calls, after.calls) == (30, 30)
    for half in finished.halves:
        assert half.scored + sum(half.unscored.values()) == half.calls
    accounts = finished.stats["evaluators"]
    assert isinstance(accounts, dict)
    assert accounts["embedded"]["offered"] == 60
    assert accounts["embedded"]["pending"] == 0


def test_the_simulated_regression_shows(finished: Outcome) -> None:
    """Nothing is invented before the release; after it the hallucination rate is several times higher."""
    before, after = finished.halves
    assert before.invented == 0
    assert after.invented > 5
    assert before.hallucination_rate is not None
    assert after.hallucination_rate is not None
    assert after.hallucination_rate > 0.1 + before.hallucination_rate


def test_the_simulated_regression_raises_both_alerts() -> None:
    """After the release, not before; the number of calls is the call's own place in the run; the log stays quiet."""
    result = run(Options(questions=400, seed=7), silent)
    assert [alarm.rule for alarm in result.alarms] == ["hallucinated above 0.05", "consistency below baseline"]
    for alarm in result.alarms:
        assert alarm.raised_after is not None
        assert 5 <= alarm.raised_after <= 200
        assert "ragtrace-demo" in alarm.text
    assert as_json(result, worst=0)["alerts"] == [asdict(alarm) for alarm in result.alarms]


def test_every_root_span_has_its_scores(finished: Outcome) -> None:
    """No call is without a span, and an unscored one has a reason of the metrics'."""
    reasons = {call.verdict.reason for call in finished.calls}
    assert reasons <= {None, "abstained", "no_claims"}


def test_offsets_of_the_evidence_fit_the_answer(finished: Outcome) -> None:
    """Every finding of a flagged call quotes the answer at its place."""
    flagged = [call for call in finished.calls if call.verdict.flagged]
    for item in flagged:
        for finding in item.verdict.findings:
            assert finding.text[:20] in item.answer
            assert all(0 <= start < end <= len(item.answer) for start, end in finding.unsupported)


def test_the_json_object_adds_up(finished: Outcome) -> None:
    """What was invented in the calls is what the object counts."""
    found = as_json(finished, worst=3)
    regression = found["simulated_regression"]
    assert isinstance(regression, dict)
    assert sum(regression["inventions"].values()) == sum(item.invention is not None for item in finished.calls)
    assert found["questions"] == 60


def test_two_runs_are_the_same() -> None:
    """Questions, answers, inventions and verdicts depend on the seed alone."""
    first, second = (run(Options(questions=12, seed=7), silent) for _ in range(2))
    assert first.calls == second.calls
    assert any(call.invention for call in first.calls)


def test_everything_goes_to_a_backend_too(http_receiver: HttpReceiver, monkeypatch: pytest.MonkeyPatch) -> None:
    """With an endpoint set, the demo reads the same spans that the backend gets, and says how many it took."""
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", http_receiver.endpoint)
    result = run(Options(questions=4), silent)
    assert result.destination == Destination(http_receiver.endpoint, spans=12)


def test_a_decision_model_judges_the_demo() -> None:
    """It finds most inventions, errs now and then, and no rate is made of its scores; the run ends with its server."""
    found = run(Options(questions=160, decisions=True), lambda stage, done, total: None)
    before, after = found.halves
    assert found.evaluator.startswith("decision@decision-rule/openai/")
    assert (before.hallucination_rate, after.hallucination_rate) == (None, None)
    assert before.raw_score is not None
    assert after.raw_score is not None
    assert before.raw_score + 0.1 < after.raw_score
    assert after.caught > after.invented / 2
    assert before.wrongly_flagged < before.healthy / 10
    text = " ".join(report_as_text(found, picture=True).split())
    assert "uncalibrated: not a rate" in text
    assert "Hallucination rate" not in text
    assert "hallucination rate over the run" not in text
    assert f"Hallucinated score, mean (no rate) {before.raw_score:.3f} {after.raw_score:.3f}" in text
    assert as_json(found, 3)["before"] == asdict(before)
