"""What is kept of an evaluated call: one JSON object, the same whenever and however often the call is scored."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, TypeAlias, cast

from ragtrace.core.labels import Claim
from ragtrace.core.types import Evaluation, Result, Score
from ragtrace.evaluation.cache import CACHED
from ragtrace.offline.summary import Cost

Row: TypeAlias = "dict[str, Any]"

_UNSUPPORTED: Final = ("contradicted", "partial", "not_found")


def row_of(number: int, name: str | int | float | None, evaluation: Evaluation) -> Row:
    """The row of line *number*, called *name*. No times: they would differ from run to run."""
    results = evaluation.results
    return {
        "line": number,
        "id": name,
        "judge": f"{evaluation.evaluator}@{evaluation.version}",
        "results": {metric: _result(result) for metric, result in results.items()},
        "unsupported": [_claim(claim) for claim in _claims(results.values()) if claim.support in _UNSUPPORTED],
        "cached": any(bool(result.attributes.get(CACHED)) for result in results.values()),
        "n_calls": evaluation.n_calls,
        "input_tokens": evaluation.input_tokens,
        "output_tokens": evaluation.output_tokens,
        "cost_usd": evaluation.cost_usd,
    }


def copy_of(row: Row, number: int, name: str | int | float | None) -> Row:
    """The row of a further line that describes the same call: it cost nothing."""
    free = {"cached": True, "n_calls": 0, "input_tokens": 0, "output_tokens": 0, "cost_usd": 0.0}
    return {**row, "line": number, "id": name, **free}


def values_of_row(row: Row) -> dict[str, float | str]:
    """By metric its score, or the reason why there is none."""
    return {name: result.get("score", result.get("reason")) for name, result in row["results"].items()}


def cost_of_row(row: Row) -> Cost:
    """What the judge took for it."""
    return Cost(row["n_calls"], row["input_tokens"], row["output_tokens"], row["cost_usd"])


def encoded(value: Mapping[str, Any]) -> bytes:
    """One line of JSON. Half a surrogate pair, which UTF-8 cannot carry, stays the escape that it was in the input."""
    return json.dumps(value, ensure_ascii=False, allow_nan=False).encode("utf-8", "backslashreplace") + b"\n"


def _result(result: Result) -> Row:
    said: Row = {"score": result.value} if isinstance(result, Score) else {}
    if not isinstance(result, Score):
        said = {"status": result.status, "reason": result.reason}
    if isinstance(result, Score) and result.label is not None:
        said["label"] = result.label
    if result.explanation is not None:
        said["explanation"] = result.explanation
    attributes = {name: _plain(value) for name, value in result.attributes.items() if name != CACHED}
    return {**said, "version": result.metric_version, **({"attributes": attributes} if attributes else {})}


def _plain(value: object) -> object:
    """As JSON has it; a user's metric or judge may have put anything there."""
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else repr(value)
    if isinstance(value, (list, tuple)):
        return [_plain(each) for each in cast("Sequence[object]", value)]
    return value if value is None or isinstance(value, (str, bool, int)) else repr(value)


def _claims(results: Iterable[Result]) -> tuple[Claim, ...]:
    """The statements that the results rest on: they share them."""
    return next((result.claims for result in results if isinstance(result, Score) and result.claims), ())


def _claim(claim: Claim) -> Row:
    return {
        "text": claim.text,
        "start": claim.start,
        "end": claim.end,
        "support": claim.support,
        "chunks": [rank + 1 for rank in claim.evidence],
        "quote": claim.quote,
        "unsupported": [list(part) for part in claim.unsupported],
    }
