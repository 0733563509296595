"""Decision whether texts of calls, and what judges and metrics write about them, may leave the process."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final, Literal, cast

from ragtrace.core.text import OwnText
from ragtrace.core.types import CALIBRATION, JUDGE_FINGERPRINT, JUDGE_MODEL, Evaluation, Result, Score

_CODE: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:@/-]{0,63}")
"""Pattern of a word without spaces, such as a label or the name of a model."""
_OF_CODES: Final = frozenset(
    {
        *(CALIBRATION, JUDGE_MODEL, JUDGE_FINGERPRINT),
        *("method", "base_metric", "missing", "components", "fields_missing"),
    }
)
"""Names of the details that ragtrace's own metrics and judges give as words; all others have numbers."""


def may_leave(capture: str, output: Literal["spans", "events", "elsewhere"]) -> bool:
    """Return whether texts of calls may leave the process by *output*.

    Args:
        capture: value of the setting `capture_content`.
        output: spans, events of the texts themselves, or anything else: the log, the doctor, histories, notifications,
            score APIs, and what judges and metrics write, on events too. The spool and a fleet's queue are part of the
            application: without the texts nobody could score a call from there.
    """
    if output == "elsewhere":
        return capture != "NO_CONTENT"
    return capture in ("SPAN_AND_EVENT", "SPAN_ONLY" if output == "spans" else "EVENT_ONLY")


def without_contents(evaluation: Evaluation) -> Evaluation:
    """Return *evaluation* without any text that may quote the call, for `capture_content="NO_CONTENT"`.

    Explanations by ragtrace itself stay (`OwnText`, those of failed judges among them), as do labels of one word, the
    offsets of claims, and all numbers.
    """
    return replace(evaluation, results={name: _without_contents(each) for name, each in evaluation.results.items()})


def _without_contents(result: Result) -> Result:
    changes: dict[str, Any] = {}
    if not isinstance(result.explanation, OwnText):
        changes["explanation"] = None
    given = cast("object", result.attributes)  # a user's metric may put anything there
    if isinstance(given, Mapping):
        details = cast("Mapping[object, object]", given)
        changes["attributes"] = {name: value for name, value in details.items() if _is_free_of_texts(name, value)}
    if isinstance(result, Score):
        changes["claims"] = tuple(replace(claim, text="", quote=None) for claim in result.claims)
        if not _is_code(result.label):
            changes["label"] = None
    return replace(result, **changes)


def _is_free_of_texts(name: object, value: object) -> bool:
    values = cast("tuple[object, ...]", value) if isinstance(value, (tuple, list)) else (value,)
    is_code = name in _OF_CODES
    return all(isinstance(each, (bool, int, float)) or (is_code and _is_code(each)) for each in values)


def _is_code(value: object) -> bool:
    return isinstance(value, str) and _CODE.fullmatch(value) is not None
