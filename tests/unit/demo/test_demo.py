"""The demo: its documents, search, questions, answers, simulated regression, and a whole run of it."""

from __future__ import annotations

import math
import os
import re
import time
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ragtrace.cli.demo_command import as_text
from ragtrace.demo.demo_run import RELEASE_NAME, Options, run
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
from ragtrace.demo.outcome import Alarm, Outcome
from ragtrace.demo.regression import Invention, Release
from ragtrace.demo.search import K1, B, Index, tokens
from ragtrace.report.analysis import build_report
from ragtrace.report.model import Period, WorstAnswer
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


def answer(trace_id: str, *marks: tuple[int, int], score: float = 0.5, is_raw: bool = False) -> WorstAnswer:
    """A bad answer of a report, with *marks* on its unsupported words."""
    metric = "hallucinated" if is_raw else "faithfulness"
    return WorstAnswer(
        0.0, metric, score, "judge@1", "", "", "", trace_id, "Why?", "a" * 50, marks, (), "", 1, True, is_raw=is_raw
    )


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


# --- a whole run ----------------------------------------------------------------------------------------------------


def silent(stage: str, done: int, total: int) -> None:
    """Progress that is not shown."""


def text_of(outcome: Outcome) -> str:
    """What the demo prints, without line breaks."""
    return " ".join(as_text(outcome).split())


def verdicts(outcome: Outcome) -> list[tuple[object, ...]]:
    """What the judge says of the bad answers, in no order."""
    return sorted((each.query, each.answer, each.marks, each.score) for each in outcome.report.problems)


@pytest.fixture(scope="module")
def finished() -> Outcome:
    """One run over the standard library, shared by the tests that look at it."""
    with pytest.MonkeyPatch.context() as environment:  # the fixture that cleans it is of each test
        for name in [name for name in os.environ if name.startswith(("OTEL_", "RAGTRACE_"))]:
            environment.delenv(name)
        return run(Options(questions=60, seed=7), silent)


@pytest.fixture(scope="module")
def whole() -> Outcome:
    """One run with the default options."""
    with pytest.MonkeyPatch.context() as environment:
        for name in [name for name in os.environ if name.startswith(("OTEL_", "RAGTRACE_"))]:
            environment.delenv(name)
        return run(Options(), silent)


def test_every_call_is_accounted_for(finished: Outcome) -> None:
    """Scored and unscored add up to the calls asked, and the judge's books balance."""
    item = finished.report.headline
    assert item is not None
    assert finished.report.calls == 60
    assert item.judged + sum(item.unscored.values()) == 60
    assert set(item.unscored) <= {"abstained", "no_claims"}
    assert finished.stats["evaluators"]["embedded"]["offered"] == 60
    assert finished.stats["evaluators"]["embedded"]["pending"] == 0


def test_the_simulated_regression_shows(whole: Outcome) -> None:
    """Nothing is wrong before the release; after it, the report says that the rate went up, and in which model."""
    comparison = whole.report.compared(whole.report.headline)
    assert comparison is not None
    assert comparison.change is not None
    assert comparison.before.value < 0.02  # the texts of some versions of the library have one that looks invented
    assert comparison.change.direction == "worse"
    assert comparison.change.value > 0.2
    text = text_of(whole)
    assert "Hallucination rate went up by" in text
    assert f"All of the change comes from model {RELEASE_NAME}" in text


def test_most_inventions_are_caught(whole: Outcome) -> None:
    """With invented words marked, and no other answer flagged: the demo knows the truth about each."""
    assert 60 <= len(whole.inventions) <= 70
    assert len(whole.flagged) - len(whole.caught) <= 1  # the texts are those of this Python's library
    assert len(whole.caught) == whole.located > 0.7 * len(whole.inventions)


def test_caught_located_and_wrongly_flagged_are_told_apart(finished: Outcome) -> None:
    """Each answer goes into its own number; marks that only touch the invented words do not locate them."""
    made = {name: Invention("detail", "aaaaa", 10, 15, "") for name in ("seen", "beside", "missed")}
    problems = (answer("seen", (0, 3), (14, 20)), answer("beside", (0, 10), (15, 20)), answer("healthy", (0, 5)))
    outcome = replace(finished, inventions=made, report=replace(finished.report, problems=problems))
    assert [each.trace_id for each in outcome.caught] == ["seen", "beside"]
    assert (outcome.located, len(outcome.flagged)) == (1, 3)
    text = text_of(outcome)
    assert (
        "invented something in 3 answers. The judge flagged 2 of them (67%), and marked the invented words in 1."
        in text
    )
    assert "Of the 57 other answers it flagged 1." in text
    assert "Invented in worst answer 1: 'aaaaa'" in text


def test_a_probability_flags_from_one_half_on(finished: Outcome) -> None:
    """A decision model scores every answer; few of these are flagged."""
    problems = tuple(answer("x", score=score, is_raw=True) for score in (0.9, 0.51, 0.5, 0.1))
    outcome = replace(finished, report=replace(finished.report, problems=problems))
    assert [each.score for each in outcome.flagged] == [0.9, 0.51]


def test_the_text_says_all(finished: Outcome) -> None:
    """What is simulated, how far its judge can be believed, the marked words, the accounts, where spans went."""
    text = text_of(finished)
    for part in (
        "SIMULATED",
        "the answers quote their passages (extractive=True)",
        "[[",
        "chunk 1 (does not support the marked words)",
        "Invented in worst answer 2:",
        "embedded: offered 60, scored 60",
        "nowhere: set OTEL_EXPORTER_OTLP_ENDPOINT",
    ):
        assert part in text


def test_failures_of_ragtrace_itself_are_said(finished: Outcome) -> None:
    """Such as spans that were lost."""
    outcome = replace(finished, stats={**finished.stats, "faults": {"lost spans: queue full": 3}})
    assert "failed in ragtrace itself: lost spans: queue full 3" in text_of(outcome)


@pytest.mark.parametrize(
    ("raised_after", "says"),
    [(75, "raised 75 calls after the release ("), (None, "not raised ("), (0, "raised FALSELY, before the release (")],
)
def test_the_text_says_when_the_alert_was_raised(finished: Outcome, raised_after: int | None, says: str) -> None:
    """Whatever came of it, with the rule that was stated beforehand."""
    alarm = Alarm("hallucinated above 0.05", 10_000, raised_after)
    stated = "hallucinated above 0.05, at most one false alarm in 10,000 scored calls in the mean)"
    assert f"alert {says}{stated}" in text_of(replace(finished, alarms=[alarm]))


def test_the_picture_loads_nothing(finished: Outcome) -> None:
    """The SVG in the documentation has no font or image from a server."""
    text = svg(finished)
    assert "<svg" in text
    assert "url(http" not in text
    assert "@font-face" not in text


def test_the_simulated_regression_raises_both_alerts(whole: Outcome) -> None:
    """After the release, not before; the number of calls is the call's own place in the run."""
    assert [alarm.rule for alarm in whole.alarms] == ["hallucinated above 0.05", "consistency below baseline"]
    for alarm in whole.alarms:
        assert alarm.raised_after is not None
        assert 5 <= alarm.raised_after <= 200
    assert {alert.name for alert in whole.report.alerts} == {alarm.rule for alarm in whole.alarms}
    assert whole.as_json()["alerts"] == [asdict(alarm) for alarm in whole.alarms]


def test_the_json_object_adds_up(finished: Outcome) -> None:
    """What was invented in the calls is what the object has; its report is that of `ragtrace report`."""
    found = finished.as_json()
    regression, report = found["simulated_regression"], found["report"]
    assert isinstance(regression, dict)
    assert isinstance(report, dict)
    assert regression["inventions"] == {key: asdict(made) for key, made in finished.inventions.items()}
    assert regression["caught"] == len(finished.caught)
    assert found["questions"] == report["calls"] == 60
    assert report["version"] == 1
    assert {each["trace_id"] for each in report["problems"]} <= {each.trace_id for each in finished.report.problems}


def test_two_runs_are_the_same() -> None:
    """Questions, answers, inventions and verdicts depend on the seed alone."""
    first, second = (run(Options(questions=40, seed=7), silent) for _ in range(2))
    assert list(first.inventions.values()) == list(second.inventions.values()) != []
    assert verdicts(first) == verdicts(second) != []


def test_a_history_of_earlier_runs_is_added_to(tmp_path: Path) -> None:
    """Each run reports on its own calls."""
    store = tmp_path / "calls.db"
    for _ in range(2):
        assert run(Options(questions=8, store=store), silent).report.calls == 8
    assert build_report(str(store), Period(0.0, time.time())).calls == 16


def test_everything_goes_to_a_backend_too(http_receiver: HttpReceiver, monkeypatch: pytest.MonkeyPatch) -> None:
    """With an endpoint set, the backend gets the spans, and the demo says where they went."""
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", http_receiver.endpoint)
    result = run(Options(questions=4), silent)
    assert len(http_receiver.spans) == 12
    assert result.as_json()["sent_to"] == {"endpoint": http_receiver.endpoint}
    assert f"spans to {http_receiver.endpoint}" in text_of(result)


def test_what_the_backend_does_not_take_is_said(http_receiver: HttpReceiver, monkeypatch: pytest.MonkeyPatch) -> None:
    """It keeps nobody from the report, and the text counts what was lost."""
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", http_receiver.endpoint)
    http_receiver.answer_with(400, times=1_000)
    result = run(Options(questions=4), silent)
    assert result.report.calls == 4
    assert "lost spans: export failed 12" in text_of(result)


def test_a_decision_model_judges_the_demo() -> None:
    """It finds most inventions, errs now and then, and no rate is made of its scores; the run ends with its server."""
    found = run(Options(questions=160, decisions=True), silent)
    item = found.report.headline
    assert item is not None
    assert item.evaluator.startswith("decision@decision-rule/openai/")
    assert item.is_raw
    assert item.box is not None
    assert item.box_before is not None
    assert 1.5 * item.box_before.mean < item.box.mean
    assert len(found.caught) > len(found.inventions) / 2
    assert len(found.flagged) - len(found.caught) < 15
    text = text_of(found)
    assert "is a decision model, here one that answers by a rule" in text
    assert "uncalibrated: not a rate" in text
    assert "Hallucination rate went" not in text
    assert "How the scores are spread" in text
