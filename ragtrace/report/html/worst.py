"""The worst answers, with the words that no chunk supports, or has."""

from __future__ import annotations

from ragtrace.report import words
from ragtrace.report.html.element import Html, element
from ragtrace.report.model import Passage, Problem, Report


def problems(report: Report) -> Html | None:
    """One card a problem: what was answered beside what was retrieved."""
    if not report.problems:
        return None
    first = next((problem for problem in report.problems if problem.marks), report.problems[0])
    lead = (
        f"Worst first. Marked words are {words.marked(report)}. A chunk with a coloured edge is the one that a "
        f"marked statement was compared with, as the nearest to it, and which {words.held(first)}."
    )
    return element(
        "section",
        element("h2", "The worst answers"),
        element("p", lead, class_="lead"),
        *(_problem(problem) for problem in report.problems),
    )


def _problem(problem: Problem) -> Html:
    score = f"{words.title(problem.metric)} {words.share(problem.score)}"
    return element(
        "article",
        element(
            "header",
            element("h3", words.shortened(problem.query, 300) or "(the question is not known)", dir="auto"),
            element("span", score, class_="score"),
        ),
        element("div", _answer(problem), _passages(problem), class_="sides"),
        element("p", words.clean(problem.explanation), class_="meta", dir="auto") if problem.explanation else None,
        element("p", _meta(problem), class_="meta"),
        class_="card problem",
    )


def _answer(problem: Problem) -> Html:
    if not problem.texts_kept:
        return element("div", element("p", "The texts of this call were not kept.", class_="quiet"))
    text, marks = words.excerpt(problem)
    pieces = [element("mark", piece) if marked else piece for piece, marked in words.pieces(text, marks)]
    return element(
        "div", element("p", "Answer", class_="label"), element("p", *(pieces or ["(empty)"]), class_="text", dir="auto")
    )


def _passages(problem: Problem) -> Html:
    if not problem.texts_kept:
        return element("div")
    if problem.passages is None:
        return element("div", element("p", "What was retrieved is not known.", class_="quiet"))
    if not problem.passages:
        return element("div", element("p", "Nothing was retrieved.", class_="quiet"))
    ranked = list(enumerate(problem.passages, start=1))
    first = [(rank, passage) for rank, passage in ranked if passage.held_against] or ranked[:2]
    rest = [pair for pair in ranked if pair not in first]
    others = None
    if rest:
        summary = element("summary", f"{len(rest)} more {'chunk' if len(rest) == 1 else 'chunks'}")
        others = element("details", summary, *(_passage(problem, *pair) for pair in rest))
    return element("div", *(_passage(problem, *pair) for pair in first), others)


def _passage(problem: Problem, rank: int, passage: Passage) -> Html:
    name = f"Chunk {rank}" + (f" \u00b7 {words.shortened(passage.id, 80)}" if passage.id else "")
    held = f" \u00b7 {words.held(problem)}" if passage.held_against else ""
    return element(
        "div",
        element("p", name + held, class_="label"),
        element("p", words.shortened(passage.text), class_="text", dir="auto"),
        class_="passage held" if passage.held_against else "passage",
    )


def _meta(problem: Problem) -> str:
    parts = [
        words.moment(problem.at),
        problem.workflow and words.name(problem.workflow),
        problem.model and words.name(problem.model),
        problem.release and f"release {words.name(problem.release)}",
        words.name(problem.evaluator),
        problem.trace_id and f"trace {problem.trace_id}",
        words.how_often(problem),
    ]
    return " \u00b7 ".join(words.clean(part) for part in parts if part)
