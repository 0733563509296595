"""Scores as text, and back: whole, so that they can be sent by another process as they would have been by this one."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields
from typing import Any, Final

from ragtrace.core.labels import Claim
from ragtrace.core.types import Evaluation, Result, Score, Unscored

_KINDS: Final[Mapping[str, type[Score] | type[Unscored]]] = {"score": Score, "unscored": Unscored}


def encode_scores(evaluations: Sequence[Evaluation]) -> str:
    """*evaluations* as one line of JSON in ASCII: lone surrogates included, which SQLite would refuse."""
    return json.dumps([_record(evaluation) for evaluation in evaluations])


def _record(evaluation: Evaluation) -> dict[str, Any]:
    record = {each.name: getattr(evaluation, each.name) for each in fields(Evaluation)}
    results = evaluation.results.items()
    record["results"] = {name: [_kind(result), _plain(result)] for name, result in results}
    return record


def _kind(result: Result) -> str:
    return "score" if isinstance(result, Score) else "unscored"


def _plain(result: Result) -> dict[str, Any]:
    plain = {each.name: getattr(result, each.name) for each in fields(result)}
    plain["attributes"] = dict(result.attributes)
    if isinstance(result, Score):
        plain["claims"] = [asdict(claim) for claim in result.claims]
    return plain


def decode_scores(text: str) -> tuple[Evaluation, ...]:
    """What `encode_scores` made a text of, also where another version of ragtrace knew more or fewer fields.

    Raises:
        ValueError, TypeError, KeyError: it is no such text.
    """
    return tuple(_evaluation(record) for record in json.loads(text))


def _evaluation(record: Mapping[str, Any]) -> Evaluation:
    given = _known(Evaluation, record)
    given["results"] = {name: _result(_KINDS[kind], plain) for name, (kind, plain) in record["results"].items()}
    return Evaluation(**given)


def _result(kind: type[Score] | type[Unscored], plain: Mapping[str, Any]) -> Result:
    given = _known(kind, plain)
    given["attributes"] = {name: _tupled(value) for name, value in given["attributes"].items()}
    if "claims" in given:
        given["claims"] = tuple(_claim(claim) for claim in given["claims"])
    return kind(**given)


def _claim(plain: Mapping[str, Any]) -> Claim:
    return Claim(**{name: _tupled(value) for name, value in _known(Claim, plain).items()})


def _known(kind: type[Any], plain: Mapping[str, Any]) -> dict[str, Any]:
    names = {each.name for each in fields(kind)}
    return {name: value for name, value in plain.items() if name in names}


def _tupled(value: Any) -> Any:
    """Lists as the tuples that they were, at any depth."""
    if not isinstance(value, list):
        return value
    return tuple(_tupled(item) for item in value)  # pyright: ignore[reportUnknownVariableType]
