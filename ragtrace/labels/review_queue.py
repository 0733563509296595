"""Paginated queue of the RAG calls that a reviewer labels, read from a history of any size in bounded time per page."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from time import monotonic
from typing import Any, Final, Literal, TypeAlias, get_args

from ragtrace.estimates.label_demand import fewest_labels
from ragtrace.history.intact_rows import connect_to_intact_rows
from ragtrace.history.stored_json import stored_object

Source: TypeAlias = Literal["picked", "judged", "all"]
SOURCES: Final[tuple[Source, ...]] = get_args(Source)
Status: TypeAlias = Literal["unlabelled", "labelled", "unsure", "disputed", "all"]
STATUSES: Final[tuple[Status, ...]] = get_args(Status)
_BAD: Final = 0.5
"""Lowest badness of a score, from 0 to 1, that agrees with a label of bad, as in a calibration of the judge."""


@dataclass(frozen=True, slots=True)
class QueueFilter:
    """Filter that selects the RAG calls of a review queue."""

    metric: str
    reviewer: str
    source: Source = "all"
    """Calls to select from: those that `ragtrace calibrate pick` picked for the metric, those with a score, or all."""
    status: Status = "all"
    """State by the reviewer's label; `disputed`: labelled by the reviewer, and reviewers say both good and bad."""
    workflow: str | None = None
    text: str = ""
    """Text that must occur in the query or the answer, ignoring case; empty: any call."""


@dataclass(frozen=True, slots=True)
class QueuedReview:
    """Entry of a review queue: a RAG call to be labelled."""

    key: str
    """Position in the queue, after which `ReviewQueue.page` can continue."""
    identity: bytes
    number: int
    """Row number of the call in the history file."""
    at: float
    """Time of the call, in seconds since the epoch."""
    workflow: str
    picked: bool
    query: str
    has_texts: bool
    label: str | None
    """Label by the reviewer; None: there is none yet."""
    n_labels: int
    """Number of labels of all reviewers for the metric."""


@dataclass(frozen=True, slots=True)
class QueuePage:
    """Page of a review queue, with the position after which the next page begins."""

    calls: tuple[QueuedReview, ...]
    after: str | None
    """Position after which the next page begins; None: this page is the last."""


@dataclass(frozen=True, slots=True)
class Progress:
    """Labelling progress of one reviewer for one metric."""

    picked: int
    """Number of calls that are picked for the metric and still stored."""
    picked_labelled: int
    """Number of the `picked` calls that the reviewer has labelled."""
    decided: int
    """Number of the `picked` calls that any reviewer has labelled good or bad, which correct the rate."""
    needed: int
    """Number of such calls from which on they correct the rate."""
    labelled: int
    """Number of all calls that the reviewer has labelled."""
    calls: int
    """Number of stored calls."""
    without_identity: int
    """Number of stored calls that cannot be labelled, as they have no trace id."""


@dataclass(frozen=True, slots=True)
class DisputedCall:
    """RAG call that some reviewers have labelled good and others bad."""

    identity: bytes
    number: int | None
    """Row number of the call in the history file; None: the call has been deleted."""
    labels: Mapping[str, str]
    """Label by each reviewer's name."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """Score that one evaluator gave to one RAG call for one metric, or the reason for a missing score."""

    evaluator: str
    """Evaluator that gave the score, as `id@version`."""
    evaluator_number: int
    """Number of the evaluator in the history file, a key of `CallTexts.evidence`."""
    score: float | None
    reason: str
    """Reason why there is no score; empty: there is one."""
    higher_is_better: bool
    is_judge: bool
    """Whether the labels for the metric are compared with the scores of this evaluator."""

    @property
    def label(self) -> str:
        """Label that agrees with the score: good or bad, or "" if there is no score."""
        if self.score is None:
            return ""
        return "bad" if (1.0 - self.score if self.higher_is_better else self.score) >= _BAD else "good"


@dataclass(frozen=True, slots=True)
class JudgeDisagreement:
    """RAG call that a reviewer and the judge label differently."""

    identity: bytes
    number: int
    """Row number of the call in the history file."""
    label: str
    """Label by the reviewer."""
    verdict: Verdict


class ReviewQueue:
    """Reader of the RAG calls to be labelled in a history file, which must have the tables of `LabelStore`.

    Raises:
        SQLiteFileError: it is no history.
        sqlite3.Error: it cannot be read.
    """

    def __init__(self, path: str) -> None:
        self._database = connect_to_intact_rows(path)
        self.damaged: set[int] = set()
        """Row numbers of the calls that were left out so far, as their stored texts are damaged."""

    def close(self) -> None:
        """Close the history file."""
        self._database.close()

    def metrics(self) -> list[str]:
        """Return the names of the metrics for which calls were picked or scores are stored."""
        rows = self._database.execute("SELECT metric FROM picks UNION SELECT metric FROM series ORDER BY 1")
        return [metric for (metric,) in rows]

    def picked_metrics(self) -> list[str]:
        """Return the names of the metrics for which calls were picked for labelling, most recent first."""
        rows = self._database.execute("SELECT metric FROM picks GROUP BY metric ORDER BY max(at) DESC")
        return [metric for (metric,) in rows]

    def workflows(self) -> list[str]:
        """Return the names of the workflows of all stored calls."""
        rows = self._database.execute("SELECT DISTINCT workflow FROM calls ORDER BY workflow")
        return [workflow for (workflow,) in rows]

    def evaluators(self) -> list[str]:
        """Return every evaluator that has looked at a call, as `id@version`."""
        return [name for (name,) in self._database.execute("SELECT DISTINCT name || '@' || version FROM evaluators")]

    def progress(self, metric: str, reviewer: str) -> Progress:
        """Return how many RAG calls *reviewer* has labelled for *metric*, and how many there are to label."""
        select = self._database.execute
        picked, picked_labelled = select(
            "SELECT count(*), count(l.identity) FROM picks p JOIN calls c ON c.identity = p.identity LEFT JOIN labels l"
            " ON l.identity = p.identity AND l.metric = p.metric AND l.reviewer = ?2 WHERE p.metric = ?1",
            (metric, reviewer),
        ).fetchone()
        (labelled,) = select(
            "SELECT count(*) FROM labels WHERE metric = ? AND reviewer = ?", (metric, reviewer)
        ).fetchone()
        (calls,) = select("SELECT count(*) FROM calls").fetchone()
        (without,) = select("SELECT count(*) FROM calls WHERE identity IS NULL").fetchone()
        (decided,) = select(
            "SELECT count(*) FROM picks p JOIN calls c ON c.identity = p.identity WHERE p.metric = ?1 AND EXISTS"
            " (SELECT 1 FROM labels l WHERE l.identity = p.identity AND l.metric = ?1 AND l.label != 'unsure')",
            (metric,),
        ).fetchone()
        is_decision = select(
            "SELECT 1 FROM evaluators WHERE name || '@' || version = ? AND type = 'decision' LIMIT 1",
            (self._judge(metric),),
        ).fetchone()
        needed = fewest_labels(is_decision=is_decision is not None)
        return Progress(picked, picked_labelled, decided, needed, labelled, calls, without)

    def number(self, identity: bytes) -> int | None:
        """Return the row number of the call with this identity (trace id and span id), or None if it is not stored."""
        row = self._database.execute("SELECT number FROM calls WHERE identity = ?", (identity,)).fetchone()
        return None if row is None else int(row[0])

    def verdicts(self, number: int, metric: str) -> list[Verdict]:
        """Return the scores for *metric* of the call with the row *number*: by LLM judges, decision judges, others."""
        rows = self._database.execute(
            "SELECT e.name || '@' || e.version, e.id, r.score, coalesce(r.reason, ''), s.higher_is_better"
            " FROM results r JOIN series s ON s.id = r.series JOIN evaluators e ON e.id = s.evaluator"
            " WHERE r.number = ? AND s.metric = ? ORDER BY e.type = 'llm_judge' DESC,"
            " e.type = 'decision' DESC, e.id DESC",
            (number, metric),
        )
        judge = self._judge(metric)
        return [
            Verdict(evaluator, by, score, reason, bool(higher_is_better), evaluator == judge)
            for evaluator, by, score, reason, higher_is_better in rows
        ]

    def _judge(self, metric: str) -> str:
        """Return the evaluator from whose calls those to label were picked; without picks the judge of the metric.

        An application without a model has a judge that compares words, and is one as well.
        """
        row = self._database.execute(
            "SELECT evaluator FROM picks WHERE metric = ?1 UNION ALL SELECT * FROM (SELECT e.name || '@' || e.version"
            " FROM series s JOIN evaluators e ON e.id = s.evaluator WHERE s.metric = ?1"
            " ORDER BY e.type = 'llm_judge' DESC, e.type = 'decision' DESC, e.id DESC) LIMIT 1",
            (metric,),
        ).fetchone()
        return "" if row is None else str(row[0])

    def judged_otherwise(self, metric: str, reviewer: str, limit: int = 50) -> list[JudgeDisagreement]:
        """Return the latest RAG calls that *reviewer* labelled good or bad, and the judge the other way.

        Args:
            metric: metric of the labels and of the judge's scores.
            reviewer: name of the reviewer.
            limit: most calls to return.
        """
        labelled = self._database.execute(
            "SELECT l.identity, c.number, l.label FROM labels l JOIN calls c ON c.identity = l.identity"
            " WHERE l.metric = ? AND l.reviewer = ? AND l.label IN ('good', 'bad') ORDER BY l.at DESC",
            (metric, reviewer),
        )
        found: list[JudgeDisagreement] = []
        for identity, number, label in labelled:
            judge = next((each for each in self.verdicts(number, metric) if each.is_judge and each.label), None)
            if judge is not None and judge.label != label:
                found.append(JudgeDisagreement(identity, number, label, judge))
                if len(found) == limit:
                    break
        return found

    def questions(self, numbers: Iterable[int]) -> dict[int, str]:
        """Return the question of each call by its row number; calls without a stored question are left out."""
        rows = (
            (number, self._database.execute("SELECT body FROM bodies WHERE number = ?", (number,)).fetchone())
            for number in numbers
        )
        bodies = ((number, stored_object(row[0]) or {}) for number, row in rows if row is not None)
        found = ((number, str(body.get("query") or "")) for number, body in bodies)
        return {number: question for number, question in found if question}

    def described(self, number: int) -> tuple[float, str, str]:
        """Return time, workflow and model of the call with the row *number*."""
        at, workflow, model = self._database.execute(
            "SELECT at, workflow, model FROM calls WHERE number = ?", (number,)
        ).fetchone()
        return float(at), str(workflow), str(model)

    def key(self, identity: bytes, number: int, metric: str) -> str:
        """Return the position of a RAG call in the review queue of *metric*."""
        picked = self._database.execute(
            "SELECT 1 FROM picks WHERE identity = ? AND metric = ?", (identity, metric)
        ).fetchone()
        return f"p{identity.hex()}" if picked else f"n{number}"

    def page(self, chosen: QueueFilter, after: str = "", limit: int = 20) -> QueuePage:
        """Return the next page of the review queue: calls picked for labelling in random order, then all others, newest
        first.

        A search that finds few calls ends after a fraction of a second: the page then has fewer calls than *limit*, or
        none, and `after` says where to continue.

        Args:
            chosen: which calls.
            after: position after which the page begins; empty: at the beginning.
            limit: most calls of the page.
        """
        # Number of seconds after which a search returns what has been found so far.
        deadline = monotonic() + 0.04
        found: list[QueuedReview] = []
        for last, call in self._search(chosen, after):
            if call is not None:
                found.append(call)
                if len(found) == limit:
                    return QueuePage(tuple(found), call.key)
            elif monotonic() > deadline:
                return QueuePage(tuple(found), last)
        return QueuePage(tuple(found), None)

    def _search(self, chosen: QueueFilter, after: str) -> Iterator[tuple[str, QueuedReview | None]]:
        """Yield each call of the review queue that matches a filter, with its position in the queue.

        After each part searched, a position without a call is yielded.
        """
        if not after.startswith("n"):
            last = _pick_order(bytes.fromhex(after.removeprefix("p")))
            picks = self._database.execute("SELECT identity FROM picks WHERE metric = ?", (chosen.metric,)).fetchall()
            remaining = sorted((each for (each,) in picks if _pick_order(each) > last), key=_pick_order)
            for place, identity in enumerate(remaining, 1):
                yield from self._rows(chosen, picked=True, condition="AND c.identity = :identity", identity=identity)
                # Number of picked calls after which a search reads the clock again.
                if place % 100 == 0:
                    yield f"p{identity.hex()}", None
        if chosen.source == "picked":
            return
        least, most = self._database.execute("SELECT min(number), max(number) FROM calls").fetchone()
        if least is None:
            return
        end = int(after[1:]) if after.startswith("n") else most + 1
        # One query reads so many calls that it takes some milliseconds: fewer where texts are searched.
        window = 500 if chosen.text else 2_000
        while end > least:
            begin = max(least, end - window)
            yield from self._rows(
                chosen, picked=False, condition="AND c.number >= :begin AND c.number < :end", begin=begin, end=end
            )
            end = begin
            yield f"n{end}", None

    def _rows(
        self, chosen: QueueFilter, *, picked: bool, condition: str, **values: object
    ) -> Iterator[tuple[str, QueuedReview]]:
        """Yield the matching calls of one part of the review queue, either those picked for labelling or the others."""
        label = "FROM labels l WHERE l.identity = c.identity AND l.metric = :metric"
        mine = f"{label} AND l.reviewer = :reviewer"
        where = {
            "unlabelled": f"NOT EXISTS (SELECT 1 {mine})",
            "labelled": f"EXISTS (SELECT 1 {mine})",
            "unsure": f"EXISTS (SELECT 1 {mine} AND l.label = 'unsure')",
            "disputed": f"EXISTS (SELECT 1 {mine}) AND EXISTS (SELECT 1 {label} AND l.label = 'good') "
            f"AND EXISTS (SELECT 1 {label} AND l.label = 'bad')",
            "all": "1",
        }[chosen.status]
        if chosen.workflow is not None:
            where += " AND c.workflow = :workflow"
        if chosen.source == "judged":
            where += (
                " AND EXISTS (SELECT 1 FROM results r WHERE r.number = c.number AND r.score IS NOT NULL"
                " AND r.series IN (SELECT id FROM series WHERE metric = :metric))"
            )
        if sql_needle(chosen.text):  # in SQL first, as parsing the JSON of each body takes longer
            where += " AND instr(lower(b.body), :needle) > 0"
        pick = "SELECT 1 FROM picks p WHERE p.identity = c.identity AND p.metric = :metric"
        if not picked:
            where += f" AND c.identity IS NOT NULL AND NOT EXISTS ({pick})"
        rows = self._database.execute(
            f"SELECT c.number, c.identity, c.at, c.workflow, b.body, (SELECT l.label {mine}), (SELECT count(*) {label})"
            f" FROM calls c LEFT JOIN bodies b ON b.number = c.number WHERE {where} {condition} ORDER BY c.number DESC",
            {
                "metric": chosen.metric,
                "reviewer": chosen.reviewer,
                "workflow": chosen.workflow,
                "needle": sql_needle(chosen.text),
                **values,
            },
        )
        for number, identity, at, workflow, body, label_given, n_labels in rows:
            texts = {} if body is None else stored_object(body)
            if texts is None:
                self.damaged.add(number)
                continue
            if chosen.text and not has_text(texts, chosen.text):
                continue
            key = f"p{identity.hex()}" if picked else f"n{number}"
            has_texts = bool(texts) and not texts.get("without_texts")
            query = str(texts.get("query") or "")
            yield (
                key,
                QueuedReview(key, identity, number, at, workflow, picked, query, has_texts, label_given, n_labels),
            )

    def disputed(self, metric: str, after: bytes = b"", limit: int = 50) -> list[DisputedCall]:
        """Return the RAG calls that some reviewers labelled good and others bad, in the order of their identities.

        Args:
            metric: metric of the labels.
            after: identity after which the calls begin.
            limit: most calls to return.
        """
        rows = self._database.execute(
            "SELECT identity, (SELECT number FROM calls c WHERE c.identity = l.identity) FROM labels l"
            " WHERE metric = ? AND identity > ? AND label IN ('good', 'bad') GROUP BY identity"
            " HAVING count(DISTINCT label) > 1 ORDER BY identity LIMIT ?",
            (metric, after, limit),
        ).fetchall()
        return [
            DisputedCall(
                identity,
                number,
                dict(
                    self._database.execute(
                        "SELECT reviewer, label FROM labels WHERE identity = ? AND metric = ? ORDER BY reviewer",
                        (identity, metric),
                    ).fetchall()
                ),
            )
            for identity, number in rows
        ]

    def earlier_bodies(self, number: int, conversation_id: str, most: int = 3) -> list[Mapping[str, Any]]:
        """Return the texts of the latest calls before a given call in the same conversation, oldest first.

        Args:
            number: row number of the call; only some thousand calls before it are looked at.
            conversation_id: the conversation.
            most: most calls to return.
        """
        # Only a key of the body can contain this text, as JSON escapes a quotation mark inside a value.
        needle = f'"conversation_id": {json.dumps(conversation_id)}'
        # Number of calls before a call that are searched for earlier turns of the conversation.
        rows = self._database.execute(
            "SELECT body FROM bodies WHERE number < ? AND number >= ? AND instr(body, ?) > 0"
            " ORDER BY number DESC LIMIT ?",
            (number, number - 2_000, needle, most),
        ).fetchall()
        return [stored_object(body) or {} for (body,) in reversed(rows)]


def _pick_order(identity: bytes) -> tuple[bytes, bytes]:
    """Return the sort key that puts the calls picked for labelling in a random but fixed order.

    Span ids are random, so the calls that are labelled before a reviewer stops are a random sample of the picks.
    """
    return identity[16:], identity


def sql_needle(text: str) -> str:
    """Return the lower-case part of a search text that SQLite can look for first, or "" if there is none.

    SQLite ignores case in ASCII alone, and the JSON of a body escapes all other characters.
    """
    longest = max(re.findall(r"[\x20-\x7e]+", text), key=len, default="")
    if not longest and text.upper() == text.lower():  # the script of the text has no upper and lower case
        longest = text
    return json.dumps(longest.lower())[1:-1]


def has_text(body: Mapping[str, Any], text: str) -> bool:
    """Return whether the query or the answer of a stored call contains *text*, ignoring case."""
    return any(text.casefold() in str(body.get(name) or "").casefold() for name in ("query", "answer"))
