"""Canaries: human-labelled calls, read from a file, that are judged again and again to check the judge."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, cast

from ragtrace.alerts.canary_drift import CANARY_LABELS, CanaryLabel
from ragtrace.core.errors import SettingsError
from ragtrace.core.reasoning import without_reasoning
from ragtrace.core.types import Document, RagCall

FEWEST: Final = 30
"""Least number of canaries for a metric."""
_ADVICE: Final = "write such a file with `ragtrace labels export HISTORY.db --out canaries.jsonl`"
_MOST_LINE_CHARS: Final = 4_000_000


@dataclass(frozen=True, slots=True)
class CanarySet:
    """Human-labelled calls for one metric, grouped by label."""

    metric: str
    calls: Mapping[CanaryLabel, tuple[RagCall, ...]]
    key: str
    """Hash of the calls and their labels, so that nothing learned with other canaries is used for these."""


def read_canaries(path: str, judged: Collection[str], origin: str) -> tuple[CanarySet, ...]:
    """Read canaries (human-labelled calls that test the judge) from a file.

    `ragtrace labels export` writes such a file. Of several labels of one call and metric the majority counts. Calls
    without a label, without an answer, and those on which reviewers are unsure or divided, are left out.

    Args:
        path: path of the file.
        judged: names of the metrics that the judge computes on a scale from 0 to 1.
        origin: setting that *path* came from, for error messages.

    Raises:
        SettingsError: the file cannot be read, has a wrong line, names a metric that is not judged, or has too few
            labelled calls of a metric or calls with one label only.
    """
    votes: dict[str, dict[str, list[int]]] = {}
    calls: dict[str, RagCall] = {}
    for line, row in _rows(path, origin):
        metric, label = row.get("metric"), row.get("label")
        if label not in (*CANARY_LABELS, "unsure", None, ""):
            raise SettingsError(
                f"line {line} of {path} (from {origin}): label must be bad, good or unsure, got {label!r}"
            )
        if not isinstance(metric, str) or not metric:
            raise SettingsError(f"line {line} of {path} (from {origin}) names no metric; {_ADVICE}")
        call = _call_from_row(line, row, path, origin)
        if call is None or label not in CANARY_LABELS:
            continue
        given = row.get("call")
        key = given if isinstance(given, str) and given else repr(call)
        calls.setdefault(key, call)
        votes.setdefault(metric, {}).setdefault(key, []).append(1 if label == "bad" else -1)
    if not votes:
        raise SettingsError(f"{path} (from {origin}) has no labelled call with an answer; {_ADVICE}")
    return tuple(_canary_set(metric, votes[metric], calls, judged, f"{path} (from {origin})") for metric in votes)


def _canary_set(
    metric: str, votes: Mapping[str, list[int]], calls: Mapping[str, RagCall], judged: Collection[str], where: str
) -> CanarySet:
    if metric not in judged:
        raise SettingsError(
            f"{where} has labels for {metric!r}, which the judge does not compute on a scale from 0 to 1; it computes: "
            f"{', '.join(sorted(judged)) or 'nothing'}. Add it to metrics=, or leave its lines out"
        )
    bad = tuple(calls[key] for key, given in votes.items() if sum(given) > 0)
    good = tuple(calls[key] for key, given in votes.items() if sum(given) < 0)
    if len(bad) + len(good) < FEWEST or not bad or not good:
        raise SettingsError(
            f"{where} has {len(bad)} calls labelled bad and {len(good)} labelled good for {metric!r}; canaries need at "
            f"least {FEWEST} labelled calls of a metric, of both labels, best half and half. Label more calls"
        )
    text = repr(
        [(label, [(c.query, c.contexts, c.answer) for c in of]) for label, of in (("bad", bad), ("good", good))]
    )
    return CanarySet(metric, {"bad": bad, "good": good}, hashlib.blake2b(text.encode(), digest_size=8).hexdigest())


def _rows(path: str, origin: str) -> Iterator[tuple[int, Mapping[str, Any]]]:
    try:
        with open(path, encoding="utf-8-sig") as file:
            for line, text in enumerate(file, 1):
                if text.strip():
                    row: object = json.loads(text) if len(text) <= _MOST_LINE_CHARS else None
                    if not isinstance(row, dict):
                        raise SettingsError(f"line {line} of {path} (from {origin}) is no JSON object; {_ADVICE}")
                    yield line, cast("dict[str, Any]", row)
    except SettingsError:
        raise
    except (OSError, ValueError) as error:
        raise SettingsError(f"the canaries {path} (from {origin}) cannot be read: {error}; {_ADVICE}") from error


def _call_from_row(line: int, row: Mapping[str, Any], path: str, origin: str) -> RagCall | None:
    """Return the call that is described in a row of exported labels, or None if the row has no answer text."""
    query, contexts, answer = row.get("query"), row.get("contexts"), row.get("answer")
    chunks = cast("list[object]", contexts) if isinstance(contexts, list) else []
    known = all(isinstance(text, str) for text in (query, answer, *chunks) if text is not None)
    if not known or not isinstance(contexts or [], list):
        raise SettingsError(
            f"line {line} of {path} (from {origin}): query and answer must be texts, contexts a list of texts"
        )
    if not answer:
        return None
    found = None if contexts is None else tuple(Document(text) for text in chunks if isinstance(text, str))
    return without_reasoning(RagCall(query, found, answer, workflow=str(row.get("workflow") or "")))
