"""Columns of a part of a history's calls as numpy arrays, the names that their numbers stand for, and their joining."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats: TypeAlias = "NDArray[np.float64]"
    Ints: TypeAlias = "NDArray[np.signedinteger[Any]]"
    """Integers of any width: of the millions in a large history, each takes the bytes that it needs."""
    Part: TypeAlias = "tuple[NDArray[Any], ...]"


class NameNumbers:
    """Mapping that assigns the numbers 0, 1, 2 ... to names on first look-up."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self._codes: dict[str, int] = {}

    def __getitem__(self, name: str) -> int:
        code = self._codes.get(name)
        if code is None:
            code = self._codes[name] = len(self.names)
            self.names.append(name)
        return code

    def __contains__(self, name: str) -> bool:
        return name in self._codes

    def reorder(self, codes: Ints, order: NDArray[np.int64]) -> Ints:
        """Number the names anew, by the first of their calls in *order*, and return the new *codes* of the calls."""
        _, first = np.unique(codes[order], return_index=True)
        ranked = np.argsort(first)
        self.names = [self.names[code] for code in ranked.tolist()]
        self._codes = {name: code for code, name in enumerate(self.names)}
        return narrow(np.argsort(ranked)[codes])


class CallNames(NamedTuple):
    """Numbers of the names of calls, which the segments of one reading share."""

    workflows: NameNumbers
    models: NameNumbers
    decisions: NameNumbers

    @classmethod
    def none(cls) -> CallNames:
        """Return numbers for no names yet."""
        return cls(NameNumbers(), NameNumbers(), NameNumbers())


class Segment(NamedTuple):
    """RAG calls with their scores and evaluations as columns, by the number of the call.

    The columns are those of `CallColumns`. Scores and evaluations refer to a call by its position in the segment.
    """

    number: Ints
    at: Floats
    source: Ints
    workflow: Ints
    model: Ints
    why: Ints
    scored_call: Ints
    scored_series: Ints
    score: Floats
    evaluation_call: Ints
    evaluator: Ints
    probability: Floats
    duration_s: Floats
    requests: Ints
    input_tokens: Ints
    output_tokens: Ints
    cost_usd: Floats
    failed: Ints


_FLOATS = frozenset(("at", "score", "probability", "duration_s", "cost_usd"))
NO_CALLS = Segment._make(np.zeros(0, np.float64 if name in _FLOATS else np.int8) for name in Segment._fields)


def join_segments(segments: Iterable[Segment], count: int, names: CallNames) -> Segment:
    """Join *segments*, whose calls follow each other, into one, and number the names in the order of the calls in time.

    Args:
        segments: the segments; each is read when the one before has been.
        count: how many segments there are, at most.
        names: the names that the segments share.
    """
    columns = [_Column(column.dtype, count) for column in NO_CALLS]
    calls = 0
    for segment in segments:
        scored, evaluated = (
            np.add(each, calls, dtype=np.int32) for each in (segment.scored_call, segment.evaluation_call)
        )
        moved = segment._replace(scored_call=scored, evaluation_call=evaluated)
        for column, values in zip(columns, moved, strict=True):
            column.append(values)
        calls += len(segment.number)
    found = Segment._make(column.values() for column in columns)
    if (found.at[1:] < found.at[:-1]).any():
        order = np.argsort(found.at, kind="stable")
        found = found._replace(
            workflow=names.workflows.reorder(found.workflow, order),
            model=names.models.reorder(found.model, order),
            why=names.decisions.reorder(found.why, order),
        )
    return found


class _Column:
    """Column of numbers that segments are appended to, whose memory is allocated once: it does not grow by the way.

    Arrays that grow in turns leave holes in the memory, and joining hundreds of small ones takes that of both. Memory
    that is allocated and not written to takes none.

    Args:
        dtype: type of the numbers, until wider ones are appended.
        segments: how many will be appended.
    """

    def __init__(self, dtype: np.dtype[Any], segments: int) -> None:
        self._memory: NDArray[Any] = np.empty(0, dtype)
        self._count, self._to_come = 0, segments

    def append(self, values: NDArray[Any]) -> None:
        begin, end = self._count, self._count + len(values)
        wider = np.promote_types(self._memory.dtype, values.dtype)
        self._to_come -= 1
        if end > len(self._memory) or wider != self._memory.dtype:
            size = max(len(self._memory), end + end // 8, end + len(values) * max(0, self._to_come) * 9 // 8)
            known, self._memory = self._memory[:begin], np.empty(size, wider)
            self._memory[:begin] = known
        self._memory[begin:end] = values
        self._count = end

    def values(self) -> NDArray[Any]:
        return self._memory[: self._count]


def narrow(values: NDArray[np.int64]) -> Ints:
    """Return *values* in the narrowest type of integer that holds them."""
    low, high = (int(values.min()), int(values.max())) if len(values) else (0, 0)
    fits = (each for each in (np.int8, np.int16, np.int32) if np.iinfo(each).min <= low and high <= np.iinfo(each).max)
    return values.astype(next(fits, np.int64))
