"""Score rows: JSON objects that hold the scores of a call, and files of such rows as JSON Lines or CSV.

A row is the same whenever and however often its call is scored, so it has no times.
"""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from io import StringIO
from typing import Any, Final, TypeAlias, cast

from ragtrace.core.cost import Cost
from ragtrace.core.labels import Claim
from ragtrace.core.types import CALIBRATION, UNCALIBRATED, Evaluation, Plain, Result, Score, Unscored
from ragtrace.core.unscored_reasons import status_of
from ragtrace.evaluation.judge_client import CACHED
from ragtrace.metrics import registry

ScoreRow: TypeAlias = "dict[str, Any]"

FORMULA_STARTS: Final = ("=", "+", "-", "@", "\t", "\r", "\n", "＝", "＋", "－", "＠")  # noqa: RUF001 - as typed in East Asia
_UNSUPPORTED: Final = ("contradicted", "partial", "not_found")
_COSTS: Final = ("cached", "n_calls", "input_tokens", "output_tokens", "cost_usd")


# --- evaluation to row ------------------------------------------------------------------------------------------------


def score_row(number: int, name: str | int | float | None, evaluation: Evaluation) -> ScoreRow:
    """Return the scores of a call as a JSON object, with the call's line number and id."""
    results = evaluation.results.values()
    # The results of one evaluation share one tuple of claims.
    claims = next((result.claims for result in results if isinstance(result, Score) and result.claims), ())
    return {
        "line": number,
        "id": name,
        "judge": f"{evaluation.evaluator}@{evaluation.version}",
        "results": {metric: _result_fields(result) for metric, result in evaluation.results.items()},
        "unsupported": [_claim_fields(claim) for claim in claims if claim.support in _UNSUPPORTED],
        **(
            {"statements": likely}
            if (likely := [_chance_fields(c) for c in claims if c.probability is not None])
            else {}
        ),
        "cached": any(bool(result.attributes.get(CACHED)) for result in results),
        **{name: getattr(evaluation, name) for name in ("n_calls", "input_tokens", "output_tokens", "cost_usd")},
    }


def copy_row(row: ScoreRow, number: int, name: str | int | float | None) -> ScoreRow:
    """Copy a score row for another input line with the same call, at zero cost."""
    free = {"cached": True, "n_calls": 0, "input_tokens": 0, "output_tokens": 0, "cost_usd": 0.0}
    return {**row, "line": number, "id": name, **free}


def row_values(row: ScoreRow) -> dict[str, float | str]:
    """Return the results in a score row by metric name, each a score or the reason why there is none."""
    return {name: result.get("score", result.get("reason")) for name, result in row["results"].items()}


def uncalibrated_metrics(row: Mapping[str, Any]) -> list[str]:
    """Return the names of the metrics in a score row whose scores rest on a decision model's raw probabilities."""
    return [name for name, result in row["results"].items() if _calibration(result) == UNCALIBRATED]


def _calibration(fields: Mapping[str, Any]) -> str | None:
    """Return what a result in a score row says of its calibration, or None."""
    attributes: object = fields.get("attributes")
    known = cast("Mapping[str, object]", attributes).get(CALIBRATION) if isinstance(attributes, Mapping) else None
    return known if isinstance(known, str) else None


def row_cost(row: ScoreRow) -> Cost:
    """Return the cost of judging the call of a score row: requests, tokens and dollars."""
    return Cost(row["n_calls"], row["input_tokens"], row["output_tokens"], row["cost_usd"])


def _result_fields(result: Result) -> ScoreRow:
    if isinstance(result, Score):
        fields: ScoreRow = {"score": result.value} | ({} if result.label is None else {"label": result.label})
    else:
        fields = {"status": result.status, "reason": result.reason}
    if result.explanation is not None:
        fields["explanation"] = result.explanation
    fields["version"] = result.metric_version
    attributes = {name: _json_value(value) for name, value in result.attributes.items() if name != CACHED}
    return fields | ({"attributes": attributes} if attributes else {})


def _json_value(value: object) -> object:
    """Convert *value* to a type that JSON can represent, using `repr` for objects of other types."""
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else repr(value)
    if isinstance(value, (list, tuple)):
        return [_json_value(each) for each in cast("Sequence[object]", value)]
    return value if value is None or isinstance(value, (str, bool, int)) else repr(value)


def _chance_fields(claim: Claim) -> ScoreRow:
    chunks = [rank + 1 for rank in claim.evidence]
    return {"start": claim.start, "end": claim.end, "probability": claim.probability, "chunks": chunks}


def _claim_fields(claim: Claim) -> ScoreRow:
    return {
        "text": claim.text,
        "start": claim.start,
        "end": claim.end,
        "support": claim.support,
        "chunks": [rank + 1 for rank in claim.evidence],
        "quote": claim.quote,
        "unsupported": [list(part) for part in claim.unsupported],
        **({} if claim.probability is None else {"probability": claim.probability}),
    }


# --- row to evaluation ------------------------------------------------------------------------------------------------


def evaluation_from_row(row: Mapping[str, Any]) -> Evaluation:
    """Rebuild an evaluation from a row that `score_row` wrote.

    Fields that a row does not keep are missing.
    """
    name, _, version = str(row["judge"]).partition("@")
    claims = _claims_of(row)
    results = {metric: _result_of(metric, result, claims) for metric, result in row["results"].items()}
    reasons = (result.reason for result in results.values() if isinstance(result, Unscored))
    faults = (reason for reason in reasons if status_of(reason) in ("judge_error", "judge_suspect"))
    return Evaluation(
        evaluator=name,
        version=version,
        type="decision"
        if row.get("statements") or uncalibrated_metrics(row)
        else "llm_judge"
        if row.get("n_calls")
        else "deterministic",
        results=results,
        n_calls=row.get("n_calls") or 0,
        input_tokens=row.get("input_tokens") or 0,
        output_tokens=row.get("output_tokens") or 0,
        cost_usd=row.get("cost_usd"),
        error=next(faults, None),
    )


def _result_of(metric: str, fields: Mapping[str, Any], claims: tuple[Claim, ...]) -> Result:
    shared: dict[str, Any] = {
        "metric": metric,
        "metric_version": str(fields.get("version", "")),
        "higher_is_better": registry.get(metric).higher_is_better if metric in registry.names() else True,
        "explanation": fields.get("explanation"),
    }
    if "score" in fields:
        known = _calibration(fields)
        attributes: dict[str, Plain] = {} if known is None else {CALIBRATION: known}
        return Score(float(fields["score"]), label=fields.get("label"), claims=claims, attributes=attributes, **shared)
    return Unscored(str(fields["reason"]), **shared)


def _claims_of(row: Mapping[str, Any]) -> tuple[Claim, ...]:
    """Return the claims that a row keeps: the unsupported ones, and those that have a probability."""
    claims = {(claim.start, claim.end): claim for claim in map(_claim_of, row.get("unsupported") or ())}
    for fields in row.get("statements") or ():
        start, end = fields["start"], fields["end"]
        evidence = tuple(rank - 1 for rank in fields["chunks"])
        supported = Claim("", start, end, "supported", evidence=evidence, probability=fields["probability"])
        claims.setdefault((start, end), supported)
    return tuple(sorted(claims.values(), key=lambda claim: claim.start))


def _claim_of(fields: Mapping[str, Any]) -> Claim:
    return Claim(
        text=fields["text"],
        start=fields["start"],
        end=fields["end"],
        support=fields["support"],
        evidence=tuple(rank - 1 for rank in fields["chunks"]),
        quote=fields["quote"],
        unsupported=tuple((start, end) for start, end in fields["unsupported"]),
        probability=fields.get("probability"),
    )


# --- rows to files ----------------------------------------------------------------------------------------------------


def json_line(value: Mapping[str, Any]) -> bytes:
    """Return *value* as one line of JSON in UTF-8, with lone surrogates escaped."""
    return json.dumps(value, ensure_ascii=False, allow_nan=False).encode("utf-8", "backslashreplace") + b"\n"


def without_formula(cell: object) -> object:
    """Return a CSV cell's value, with a quote put before text that a spreadsheet would run as a formula."""
    if isinstance(cell, str) and cell.lstrip(" ").startswith(FORMULA_STARTS):
        return f"'{cell}"
    return cell


def _csv_lines(rows: Iterable[ScoreRow], metrics: Sequence[str]) -> Iterator[bytes]:
    columns = ("line", "id", *(column for name in metrics for column in (name, f"{name}.reason")), "unsupported")
    yield _csv_line([*columns, "judge", *_COSTS])
    for row in rows:
        results = [row["results"].get(name, {}) for name in metrics]
        cells = [cell for result in results for cell in (result.get("score"), result.get("reason"))]
        unsupported = "\n".join(claim["text"] for claim in row["unsupported"])
        costs = [row[name] for name in _COSTS]
        yield _csv_line([row["line"], row["id"], *cells, unsupported, row["judge"], *costs])


def _csv_line(cells: Sequence[object]) -> bytes:
    line = StringIO()
    csv.writer(line).writerow([without_formula(cell) for cell in cells])
    return line.getvalue().encode("utf-8", "backslashreplace")


FORMS: Final[Mapping[str, Callable[[Iterable[ScoreRow], Sequence[str]], Iterator[bytes]]]] = {
    ".jsonl": lambda rows, _: map(json_line, rows),
    ".csv": _csv_lines,
}
"""Function, by suffix of the file name, that converts score rows and the metrics' names to the lines of a file."""
