"""Contents of the pages of one RAG call: statements, chunks, earlier turns, and the judges' verdicts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Any, Final

from ragtrace.core.labels import STATEMENT_METRICS
from ragtrace.history.reading import HistoryReader
from ragtrace.judges.lexical.closest_passages import Passage, PassageSearch
from ragtrace.judges.lexical.statements import sentences
from ragtrace.labels.label_store import Label, Review
from ragtrace.labels.review_queue import ReviewQueue, Verdict
from ragtrace.report.wording import format_number, merge_ranges, split_at_marks

_SUPPORT: Final = {
    "supported": "supported", "partial": "supported in part", "not_found": "in no chunk", "contradicted": "contradicted"
}  # fmt: skip
_COMPARED_WORDS: Final = {
    "supported": "its words are in the chunks", "partial": "has words that are in no chunk",
    "not_found": "has words that are in no chunk", "contradicted": "has words that are in no chunk",
}  # fmt: skip
"""What an evaluator that only compares words says about a statement: no verdict."""
_WORST_FIRST: Final = ("contradicted", "not_found", "partial", "supported")


@dataclass(frozen=True, slots=True)
class Statement:
    """Sentence of an answer on a page, with the reviewer's label and the judge's verdict."""

    start: int
    """Offset of the statement's first character in the answer."""
    end: int
    pieces: Sequence[tuple[str, bool]]
    """Text of the statement in pieces, each with whether a judge marks that piece as unsupported. The marker of a list
    item, such as "1.", stands before it."""
    label: str
    """Label by the reviewer; empty: none yet."""
    judged: str
    """Judge's verdict on the statement, in words; empty: there is none, or it is hidden."""
    closest: Sequence[Passage] = ()
    """Passages of the chunks whose words are closest to the statement, as a help for checking it."""


@dataclass(frozen=True, slots=True)
class Chunk:
    """Retrieved chunk of a RAG call on a page."""

    rank: int
    """Rank in the retrieval, counted from 1."""
    id: str
    text: str
    is_held_against: bool
    """Whether a judge compared an unsupported statement with the chunk."""


@dataclass(frozen=True, slots=True)
class CallView:
    """Contents of the labelling page for one RAG call."""

    identity: bytes
    at: float
    workflow: str
    model: str
    query: str
    has_texts: bool
    is_damaged: bool
    """Whether its texts, or what an evaluator said about them, are damaged in the history."""
    statements: Sequence[Statement]
    chunks: Sequence[Chunk] | None
    """Retrieved chunks in order of rank; None: the retrieval was not captured."""
    chunks_searched: bool
    """Whether all of the chunks was searched for passages close to the statements, and not only their beginning."""
    earlier: Sequence[tuple[str, str]]
    """Pairs of query and answer of earlier calls in the conversation."""
    error: str
    cut_chars: int
    """Number of characters that `Redact(max_chars=...)` cut off the texts."""
    review: Review
    others: Sequence[Label]
    """Labels by other reviewers; empty while they are hidden."""
    is_revealed: bool
    """Whether the page shows the verdicts of judges and the labels of other reviewers."""
    marked_by: str
    """Evaluator (`id@version`) whose marks the statements show; empty: there are no marks."""
    verdicts: Sequence[tuple[Verdict, str]]
    """Scores of the call with their explanations; empty while they are hidden."""


def statement_ranges(answer: str) -> list[tuple[int, int]]:
    """Return the character ranges of the statements of *answer*: its sentences, and what follows the last of them.

    Between sentences are only white space and the markers of list items, such as "1.".
    """
    found = list(sentences(answer))
    end = found[-1][1] if found else 0
    rest = answer[end:].strip()
    if rest:
        begin = answer.index(rest, end)
        found.append((begin, begin + len(rest)))
    return found


def read_call(
    path: str, queue: ReviewQueue, number: int, review: Review, labels: Sequence[Label], *, is_blind: bool
) -> CallView:
    """Read the contents of the labelling page for the call with the row *number*.

    Args:
        path: the history file.
        queue: the review queue of the same file.
        number: row number of the call.
        review: what the reviewer has said about the call.
        labels: labels of all reviewers of the call for the metric.
        is_blind: hide what judges and other reviewers said until the reviewer has given a label.
    """
    with closing(HistoryReader(path)) as reader:
        reader.note_damage("number = ?", (number,))
        texts = reader.texts([number])[number]
    body, is_revealed = texts.body, review.label is not None or not is_blind
    answer = str(body.get("answer") or "")
    verdicts = queue.verdicts(number, review.metric) if is_revealed else []
    evidence = [texts.evidence.get(each.evaluator_number, {}) for each in verdicts]
    marking = next((at for at, each in enumerate(evidence) if each.get("claims")), None)
    marked: Mapping[str, Any] = {} if marking is None else evidence[marking]
    given = {(each.get("start"), each.get("end")): str(each.get("label", "")) for each in review.statements}
    conversation = body.get("conversation_id")
    earlier = queue.earlier_bodies(number, str(conversation)) if conversation else []
    chunks = retrieved_chunks(body, marked)
    search = PassageSearch([chunk.text for chunk in chunks or ()], answer)
    statements = [
        replace(
            each,
            label=given.get((each.start, each.end), ""),
            closest=search.closest(answer[each.start : each.end]),
        )
        for each in judged_statements(answer, marked, is_labelled=review.metric in STATEMENT_METRICS)
    ]
    at, workflow, model = queue.described(number)
    return CallView(
        identity=review.identity,
        at=at,
        workflow=workflow,
        model=model,
        query=str(body.get("query") or ""),
        has_texts=bool(body) and not body.get("without_texts"),
        is_damaged=number in reader.damaged,
        statements=statements,
        chunks=chunks,
        chunks_searched=search.is_whole,
        earlier=[(str(each.get("query") or ""), str(each.get("answer") or "")) for each in earlier],
        error=str(body.get("error") or ""),
        cut_chars=int(body.get("cut_chars") or 0),
        review=review,
        others=[each for each in labels if each.reviewer != review.reviewer] if is_revealed else [],
        is_revealed=is_revealed,
        marked_by="" if marking is None else verdicts[marking].evaluator,
        verdicts=[
            (verdict, str(each.get("explanations", {}).get(review.metric, "")))
            for verdict, each in zip(verdicts, evidence, strict=True)
        ],
    )  # fmt: skip


def judged_statements(answer: str, evidence: Mapping[str, Any], *, is_labelled: bool) -> list[Statement]:
    """Return the statements of *answer* with what one evaluator says of each, and without labels by people.

    Args:
        answer: the answer.
        evidence: evidence of the evaluator; empty: nothing is marked.
        is_labelled: whether the evaluator labels statements; otherwise it only compared words, which is no verdict.
    """
    claims = [claim for claim in evidence.get("claims", ()) if claim.get("checkable", True)]
    ranges = [
        (int(first), int(last))
        for claim in _unsupported(evidence)
        for first, last in claim.get("unsupported") or [(claim["start"], claim["end"])]
    ]
    marks, in_words = merge_ranges(ranges, len(answer)), _SUPPORT if is_labelled else _COMPARED_WORDS
    found: list[Statement] = []
    last = 0
    for start, end in statement_ranges(answer):
        marker = answer[last:start].strip()
        pieces = _pieces(answer, start, end, marks)
        said = _likeliest_unsupported(claims, start, end) or _worst_verdict(claims, start, end, in_words)
        found.append(Statement(start, end, [(f"{marker} ", False), *pieces] if marker else pieces, "", said))
        last = end
    return found


def retrieved_chunks(body: Mapping[str, Any], evidence: Mapping[str, Any]) -> list[Chunk] | None:
    """Return the retrieved chunks of a call in order of rank, or None if the retrieval was not captured.

    Args:
        body: stored texts of the call.
        evidence: evidence of the evaluator whose marks the answer shows; empty: it shows none.
    """
    contexts: Sequence[Mapping[str, Any]] | None = body.get("contexts")
    held = {rank for claim in _unsupported(evidence) for rank in claim.get("evidence", ())}
    if contexts is None:
        return None
    return [
        Chunk(rank + 1, str(each.get("id") or ""), str(each.get("text") or ""), rank in held)
        for rank, each in enumerate(contexts)
    ]


def _unsupported(evidence: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the claims of *evidence* that can be checked and that no chunk supports in full."""
    claims = (claim for claim in evidence.get("claims", ()) if claim.get("checkable", True))
    return [claim for claim in claims if claim.get("support") not in ("supported", None)]


def _pieces(answer: str, start: int, end: int, marks: Sequence[tuple[int, int]]) -> list[tuple[str, bool]]:
    """Split the text of a statement into pieces, each with a flag whether it is marked."""
    own = [(max(first, start) - start, min(last, end) - start) for first, last in marks if first < end and last > start]
    return split_at_marks(answer[start:end], own, end - start)


def _worst_verdict(claims: Sequence[Mapping[str, Any]], start: int, end: int, in_words: Mapping[str, str]) -> str:
    """Return the judge's worst verdict on the claims in a statement as a phrase, or "" if there is none."""
    said = {claim.get("support") for claim in claims if claim["start"] < end and claim["end"] > start}
    return next((in_words[each] for each in _WORST_FIRST if each in said), "")


def _likeliest_unsupported(claims: Sequence[Mapping[str, Any]], start: int, end: int) -> str:
    """Return the lowest probability by a decision model that the claims in a statement are supported, as a phrase.

    The phrase names the chunk that is closest to that claim; it is "" if no claim has a probability.
    """
    inside = [
        (float(claim["probability"]), claim.get("evidence") or ())
        for claim in claims
        if claim.get("probability") is not None and claim["start"] < end and claim["end"] > start
    ]
    if not inside:
        return ""
    lowest, ranks = min(inside, key=lambda each: each[0])
    closest = f", closest chunk {int(ranks[0]) + 1}" if ranks else ""
    return f"probability of support {format_number(lowest)}{closest}"
