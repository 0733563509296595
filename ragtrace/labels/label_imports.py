"""Import of human labels from the exported scores of Langfuse, Phoenix and MLflow, matched to stored calls by trace id.

Formats, each as JSON, JSON lines or CSV:
    langfuse   the scores of its API (`GET /api/public/v2/scores`, the list or its answer with `data`), or its export.
               Source: langfuse.com/docs/evaluation/scores/data-model.
    phoenix    annotations of spans or traces: answers of its REST API (`/v1/projects/.../span_annotations`), or the
               data frame of its client (`get_span_annotations_dataframe`). Source: arize-phoenix-client 3.5.0.
    mlflow     traces with `assessments` (`Trace.to_dict`, `TraceInfo.to_dict`), or assessments alone
               (`Assessment.to_dictionary`). Source: mlflow 3.17.2.
What a score means is never guessed: numbers need a threshold, and texts, true and false a list of what is bad or good.
"""

from __future__ import annotations

import csv
import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple, TypeAlias, cast, get_args

from ragtrace.core.errors import SettingsError
from ragtrace.labels.label_store import LABELS, Label, LabelValue

Tool: TypeAlias = Literal["langfuse", "phoenix", "mlflow"]
TOOLS: Final[tuple[Tool, ...]] = get_args(Tool)
HUMAN_SOURCES: Final[Mapping[Tool, str]] = {"langfuse": "ANNOTATION", "phoenix": "HUMAN", "mlflow": "HUMAN"}
"""Value of the source field with which each tool marks scores by people."""
_TRACE_ID: Final = re.compile(r"(?<![0-9a-fA-F])[0-9a-fA-F]{32}$")
_SPAN_ID: Final = re.compile(r"[0-9a-fA-F]{16}")
_MOST_VALUES: Final = 10
_LISTS: Final = ("data", "scores", "traces", "assessments")
"""Keys under which the response of an API may have its records."""


class ExportedScore(NamedTuple):
    """One score from the export file of another tool (Langfuse, Phoenix or MLflow)."""

    trace_id: str
    """Trace id as the tool writes it; empty: the export does not have the id."""
    span_id: str
    name: str
    value: float | None
    text: str
    """Category, or `true` or `false`; empty: the score is only a number."""
    source: str
    reviewer: str
    comment: str
    at: float | None
    """Time of the score, in seconds since the epoch; None: not known."""


@dataclass(frozen=True, slots=True)
class Meaning:
    """Rules given by the user that translate exported scores to labels (good, bad, unsure).

    Args:
        bad: texts that mean bad, compared without regard to case.
        good: texts that mean good.
        unsure: texts that mean unsure.
        bad_below: numbers below it mean bad, all others good.
        bad_above: numbers above it mean bad, all others good.
    """

    bad: frozenset[str] = frozenset()
    good: frozenset[str] = frozenset()
    unsure: frozenset[str] = frozenset()
    bad_below: float | None = None
    bad_above: float | None = None

    def label(self, score: ExportedScore) -> LabelValue | None:
        """Return the label (good, bad, unsure) for *score*, or None if no rule applies."""
        text = score.text.strip().lower()
        for value, texts in (("bad", self.bad), ("good", self.good), ("unsure", self.unsure)):
            if text and text in texts:
                return cast("LabelValue", value)
        if score.value is not None and self.bad_below is not None:
            return "bad" if score.value < self.bad_below else "good"
        if score.value is not None and self.bad_above is not None:
            return "bad" if score.value > self.bad_above else "good"
        return next((each for each in LABELS if each == text), None)


@dataclass(frozen=True, slots=True)
class ImportedLabels:
    """Labels created from exported scores, and the scores from which no label could be created."""

    labels: tuple[Label, ...]
    other_names: Mapping[str, int]
    """Numbers of scores with another name than the wanted one, by name."""
    other_sources: Mapping[str, int]
    """Numbers of scores that no person gave, by source."""
    unmatched: tuple[str, ...]
    """Trace id or span id of each score whose call is not in the history."""
    ambiguous: tuple[str, ...]
    """Trace id of each score whose trace has several calls, where the score does not name one of them."""


def import_labels(
    scores: Iterable[ExportedScore],
    identities: Iterable[bytes],
    *,
    name: str,
    metric: str,
    meaning: Meaning,
    sources: frozenset[str],
    reviewer: str,
    now: float,
) -> ImportedLabels:
    """Create labels for the RAG calls of a history from exported scores.

    Args:
        scores: the exported scores.
        identities: identity of each call of the history.
        name: name of the scores that are imported.
        metric: metric for which the labels are.
        meaning: what the scores mean.
        sources: sources of scores that people gave.
        reviewer: reviewer where a score names none.
        now: time of labels whose score has none, in seconds since the epoch.

    Raises:
        SettingsError: the meaning of a score is not stated.
    """
    by_trace: dict[str, list[bytes]] = {}
    by_span: dict[str, list[bytes]] = {}
    for identity in identities:
        by_trace.setdefault(identity[:16].hex(), []).append(identity)
        by_span.setdefault(identity[16:].hex(), []).append(identity)
    other_names, other_sources, unclear = Counter[str](), Counter[str](), Counter[str]()
    unmatched, ambiguous, labels = list[str](), list[str](), list[Label]()
    for score in sorted(scores, key=lambda each: each.at or 0.0):  # a reviewer's latest score replaces earlier ones
        if score.name != name:
            other_names[score.name] += 1
            continue
        if score.source.upper() not in sources:
            other_sources[score.source] += 1
            continue
        value = meaning.label(score)
        if value is None:
            unclear[repr(score.text) if score.text else f"{score.value:g}" if score.value is not None else "none"] += 1
            continue
        span = score.span_id.lower()
        trace = _TRACE_ID.search(score.trace_id)
        found = by_trace.get(trace[0].lower(), []) if trace else by_span.get(span, [])
        if len(found) > 1:
            found = [identity for identity in found if identity[16:].hex() == span]
            if not found:
                ambiguous.append(score.trace_id or span)
                continue
        if len(found) != 1:
            unmatched.append(score.trace_id or score.span_id)
            continue
        labels.append(
            Label(found[0], metric, score.reviewer or reviewer, value, score.comment or None, at=score.at or now)
        )
    if unclear:
        raise SettingsError(_unclear(unclear))
    return ImportedLabels(tuple(labels), other_names, other_sources, tuple(unmatched), tuple(ambiguous))


def _unclear(values: Counter[str]) -> str:
    shown = ", ".join(f"{value} ({count} times)" for value, count in values.most_common(_MOST_VALUES))
    return (
        f"what these scores mean is not stated: {shown}; for numbers pass --bad-below or --bad-above, for texts, true "
        "and false pass --bad, --good and --unsure with the texts"
    )


def read_scores(path: Path, tool: Tool) -> list[ExportedScore]:
    """Read the scores in the file at *path*, an export of *tool*.

    Raises:
        SettingsError: the file is no such export.
        OSError, UnicodeDecodeError: it cannot be read.
    """
    try:
        return [score for record in _records(path) for score in _READERS[tool](record)]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        if isinstance(error, (SettingsError, UnicodeDecodeError)):
            raise
        raise SettingsError(f"{path} is no export of {tool} ({type(error).__name__}: {error})") from None


def _records(path: Path) -> Iterator[Mapping[str, Any]]:
    """Yield the records of a JSON, JSON lines or CSV file, without the empty cells of CSV."""
    if path.suffix.lower() == ".csv":
        with path.open(encoding="utf-8-sig", newline="") as file:
            yield from ({name: cell for name, cell in row.items() if cell} for row in csv.DictReader(file))
        return
    text = path.read_text(encoding="utf-8-sig")
    try:
        found: Any = json.loads(text)
    except ValueError:
        found = [json.loads(line) for line in text.splitlines() if line.strip()]
    if isinstance(found, dict):
        whole = cast("dict[str, Any]", found)
        found = next((whole[name] for name in _LISTS if isinstance(whole.get(name), list)), [whole])
    for record in cast("Sequence[Any]", found):
        if not isinstance(record, dict):
            raise SettingsError(f"{path} must hold objects, got {type(record).__name__}")
        yield cast("dict[str, Any]", record)


def _langfuse(record: Mapping[str, Any]) -> Iterator[ExportedScore]:
    def field(name: str) -> str:
        snake = re.sub("([A-Z])", lambda found: f"_{found[1].lower()}", name)
        return _text(record.get(name, record.get(snake)))

    value: Any = record.get("value")
    kind, text = field("dataType").upper(), field("stringValue")
    if kind == "BOOLEAN" and not text:
        text = str(bool(float(value)) if str(value).lower() not in ("true", "false") else value).lower()
    elif kind == "CATEGORICAL" and not text:
        text = _text(value)
    if kind in ("BOOLEAN", "CATEGORICAL", "TEXT"):
        value = None  # the number is only an index of the category in the score's configuration
    yield ExportedScore(
        field("traceId"),
        field("observationId"),
        _name(record, "name"),
        _number(value),
        text,
        field("source"),
        field("authorUserId"),
        field("comment"),
        _time(field("updatedAt") or field("timestamp")),
    )


def _phoenix(record: Mapping[str, Any]) -> Iterator[ExportedScore]:
    result: Mapping[str, Any] = record.get("result") or {
        name: record.get(f"result.{name}") for name in ("label", "score", "explanation")
    }
    yield ExportedScore(
        _text(record.get("trace_id")),
        _text(record.get("span_id", record.get("context.span_id"))),
        _name(record, "name", "annotation_name"),
        _number(result.get("score")),
        _text(result.get("label")),
        _text(record.get("annotator_kind")),
        _text(record.get("user_id")) or _text(record.get("identifier")),
        _text(result.get("explanation")),
        _time(_text(record.get("updated_at"))),
    )


def _mlflow(record: Mapping[str, Any]) -> Iterator[ExportedScore]:
    info: Any = record.get("info", record)
    info = json.loads(info) if isinstance(info, str) else info
    given: Any = info.get("assessments")
    trace = _text(info.get("trace_id"))
    if given is None and "assessment_name" in info:
        given = [info]
    for each in json.loads(given) if isinstance(given, str) else given or ():
        if each.get("valid") is False or "feedback" not in each:  # a replaced assessment, or an expectation
            continue
        value: Any = each["feedback"].get("value")
        source: Mapping[str, Any] = each.get("source") or {}
        truth = isinstance(value, bool)
        yield ExportedScore(
            _text(each.get("trace_id")) or trace,
            "",  # MLflow's assessment of a span is used for the trace
            _name(each, "assessment_name"),
            None if truth or isinstance(value, str) else _number(value),
            str(value).lower() if truth else _text(value) if isinstance(value, str) else "",
            _text(source.get("source_type")),
            _text(source.get("source_id")),
            _text(each.get("rationale")),
            _time(_text(each.get("last_update_time"))),
        )


_READERS: Final[Mapping[Tool, Callable[[Mapping[str, Any]], Iterator[ExportedScore]]]] = {
    "langfuse": _langfuse,
    "phoenix": _phoenix,
    "mlflow": _mlflow,
}


def _name(record: Mapping[str, Any], *keys: str) -> str:
    name = next((record[key] for key in keys if key in record), None)
    if not isinstance(name, str):
        raise SettingsError(f"a score has no {keys[0]!r}, its keys are: {', '.join(list(record)[:_MOST_VALUES])}")
    return name


def _text(value: object) -> str:
    # pandas writes an empty cell as NaN, which is the only value unequal to itself.
    return "" if value is None or value != value else str(value)


def _number(value: object) -> float | None:
    if value is None or value == "" or value != value:
        return None
    return float(cast("str", value))


def _time(text: str) -> float | None:
    try:
        when = datetime.fromisoformat(text.replace("Z", "+00:00"))
    except ValueError:
        return None
    return (when if when.tzinfo else when.replace(tzinfo=timezone.utc)).timestamp()
