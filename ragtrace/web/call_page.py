"""Contents of the page of one stored RAG call: its texts, every score with its evidence, feedback and labels."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any, Final

from ragtrace.core.labels import STATEMENT_METRICS
from ragtrace.core.step import GuardVerdict
from ragtrace.core.tags import tag_text
from ragtrace.history.reading import HistoryReader
from ragtrace.history.source import CallOrigin
from ragtrace.history.stored_json import stored_object
from ragtrace.labels.label_store import Label, labels_in
from ragtrace.web.call_list import ListedScore
from ragtrace.web.call_view import Chunk, Statement, judged_statements, retrieved_chunks

_RELATIVE: Final = frozenset(("consistency",))
"""Metrics whose values are comparable only within an application, as raw probabilities of a decision model are."""
_AROUND: Final = 2_000
"""Numbers of calls before and after a call among which its conversation and its standing are looked for."""
_FEWEST_OTHERS: Final = 20


@dataclass(frozen=True, slots=True)
class MetricScores:
    """Results of one metric for a call, by evaluator."""

    metric: str
    results: tuple[tuple[ListedScore, str, str], ...]
    """For each evaluator its result, its explanation, and where the score stands among those of other calls."""


@dataclass(frozen=True, slots=True)
class EvaluatorView:
    """One evaluator of a call, and what its evaluation took."""

    number: int
    """Number of the evaluator in the history file."""
    labels_statements: bool
    """Whether the evaluator labels statements, and does not only compare words."""
    evaluator: str
    """Evaluator, as `id@version`."""
    duration_s: float
    requests: int
    input_tokens: int
    output_tokens: int
    cost_usd: float | None
    probability: float
    """Probability with which the evaluator saw the call."""
    error: str


@dataclass(frozen=True, slots=True)
class StoredCall:
    """Contents of the page of one stored RAG call."""

    number: int
    identity: bytes | None
    """Trace id and span id; None: the call was scored without a span, and cannot be labelled."""
    at: float
    workflow: str
    model: str
    service: str
    release: str
    decision: str
    trace_id: str
    query: str
    answer: str
    reference: str
    has_texts: bool
    is_damaged: bool
    """Whether its texts, or what an evaluator said about them, are damaged in the history."""
    error: str
    cut_chars: int
    marked_by: str
    """Evaluator whose verdicts the statements show; empty: none labels statements or compares words."""
    statements: Sequence[Statement]
    """Statements of the answer."""
    chunks: Sequence[Chunk] | None
    """Retrieved chunks in order of rank; None: the retrieval was not captured."""
    evaluators: tuple[EvaluatorView, ...]
    scores: tuple[MetricScores, ...]
    tags: Mapping[str, str]
    """Texts of the values of the call's tags, by name."""
    guard: GuardVerdict | None
    """Verdict of the guard on the answer; None: no guard checked it."""
    turns: tuple[tuple[int, float, str], ...]
    """Other calls of the conversation, oldest first: row number, time and query."""
    labels: tuple[Label, ...]
    feedback: tuple[tuple[str, str], ...]
    """Name of each user feedback, and what was said."""

    @property
    def has_raw(self) -> bool:
        """Whether any of the scores is a raw probability of a decision model."""
        return any(result.is_raw and result.score is not None for each in self.scores for result, _, _ in each.results)


def read_stored_call(path: str, number: int) -> StoredCall | None:
    """Read the contents of the page of the call with the row *number*, or None if the history has no such call."""
    with closing(HistoryReader(path)) as reader:
        reader.note_damage("number = ?", (number,))
        select = reader.database.execute
        row = select(
            "SELECT identity, at, workflow, model, coalesce(decision, ''), s.body FROM calls c"
            " JOIN sources s ON s.id = c.source WHERE number = ?",
            (number,),
        ).fetchone()
        if row is None:
            return None
        identity, at, workflow, model, decision, source = row
        texts = reader.texts([number])[number]
        origin = CallOrigin.decode(source)
        answer = str(texts.body.get("answer") or "")
        evaluators = _evaluators(reader, number)
        marking = next((each for each in evaluators if texts.evidence.get(each.number, {}).get("claims")), None)
        marked: Mapping[str, Any] = {} if marking is None else texts.evidence[marking.number]
        tags = reader.tags([number]).get(number, {})
        return StoredCall(
            number=number,
            identity=identity,
            at=at,
            workflow=workflow,
            model=model,
            service=origin.service,
            release=origin.release,
            decision=decision,
            trace_id=texts.trace_id,
            query=str(texts.body.get("query") or ""),
            answer=answer,
            reference=str(texts.body.get("reference") or ""),
            has_texts=bool(texts.body) and not texts.body.get("without_texts"),
            is_damaged=number in reader.damaged,
            error=str(texts.body.get("error") or ""),
            cut_chars=int(texts.body.get("cut_chars") or 0),
            marked_by="" if marking is None else marking.evaluator,
            statements=judged_statements(answer, marked, is_labelled=marking is not None and marking.labels_statements),
            chunks=retrieved_chunks(texts.body, marked),
            evaluators=evaluators,
            scores=_scores(reader, number, texts.evidence),
            tags={name: tag_text(value) for name, value in tags.items()},
            guard=next((each.verdict for each in reader.guard_verdicts(number, number)), None),
            turns=_turns(reader, number, texts.body.get("conversation_id")),
            labels=tuple(label for label in labels_in(reader) if label.identity == identity),
            feedback=tuple(
                (each.name, _said(each.score, each.label, each.comment, each.correction))
                for each in reader.feedback()
                if each.identity == identity
            ),
        )


def _evaluators(reader: HistoryReader, number: int) -> tuple[EvaluatorView, ...]:
    """Return the evaluators of a call: LLM judges, then decision judges, then others."""
    labelled = reader.database.execute(
        "SELECT DISTINCT s.evaluator, s.metric FROM results r JOIN series s ON s.id = r.series WHERE number = ?",
        (number,),
    )
    labelling = {evaluator for evaluator, metric in labelled if metric in STATEMENT_METRICS}
    rows = reader.database.execute(
        "SELECT e.id, e.name || '@' || e.version, duration_s, n_calls, input_tokens, output_tokens, cost_usd,"
        " probability, coalesce(error, '') FROM evaluations JOIN evaluators e ON e.id = evaluator WHERE number = ?"
        " ORDER BY e.type = 'llm_judge' DESC, e.type = 'decision' DESC, e.id DESC",
        (number,),
    )
    return tuple(EvaluatorView(row[0], row[0] in labelling, *row[1:]) for row in rows)


def _scores(reader: HistoryReader, number: int, evidence: Mapping[int, Mapping[str, Any]]) -> tuple[MetricScores, ...]:
    rows = reader.database.execute(
        "SELECT s.metric, e.id, e.name || '@' || e.version, score, coalesce(reason, ''), coalesce(label, ''),"
        " e.type = 'decision', s.id FROM results r JOIN series s ON s.id = r.series"
        " JOIN evaluators e ON e.id = s.evaluator WHERE number = ? ORDER BY s.metric, e.id DESC",
        (number,),
    ).fetchall()
    found: dict[str, list[tuple[ListedScore, str, str]]] = {}
    for metric, id_, evaluator, score, reason, label, raw, series in rows:
        explanation = str(evidence.get(id_, {}).get("explanations", {}).get(metric, ""))
        is_relative = raw or metric in _RELATIVE
        standing = "" if score is None or not is_relative else _standing(reader, number, series, score)
        shown = ListedScore(evaluator, score, reason, label, bool(raw))
        found.setdefault(metric, []).append((shown, explanation, standing))
    return tuple(MetricScores(metric, tuple(results)) for metric, results in found.items())


def _standing(reader: HistoryReader, number: int, series: int, score: float) -> str:
    """Return how many scores of the same series among the calls around the call *number* are lower than its *score*."""
    lower, equal, others = reader.database.execute(
        "SELECT sum(score < ?1), sum(score = ?1), count(*) FROM results"
        " WHERE number BETWEEN ?2 - ?3 AND ?2 + ?3 AND number != ?2 AND series = ?4 AND score IS NOT NULL",
        (score, number, _AROUND, series),
    ).fetchone()
    if others < _FEWEST_OTHERS:
        return ""
    same = f", the same as {equal:,}" if equal else ""
    return f"higher than {lower:,} of the {others:,} scores around it{same}"


def _turns(reader: HistoryReader, number: int, conversation: object) -> tuple[tuple[int, float, str], ...]:
    """Return the other calls of a conversation among the thousands of calls around the call *number*."""
    if not conversation:
        return ()
    needle = f'"conversation_id": {json.dumps(str(conversation))}'
    rows = reader.database.execute(
        "SELECT number, at, body FROM bodies JOIN calls USING (number) WHERE number BETWEEN ? AND ? AND number != ?"
        " AND instr(body, ?) > 0 ORDER BY number LIMIT 50",
        (number - _AROUND, number + _AROUND, number, needle),
    )
    return tuple((other, at, str((stored_object(body) or {}).get("query") or "")) for other, at, body in rows)


def _said(score: float | None, label: str | None, comment: str | None, correction: str | None) -> str:
    parts = ["" if score is None else f"{score:g}", label or "", comment or "", correction and f"instead: {correction}"]
    return " · ".join(part for part in parts if part)
