"""Filter expressions that select stored RAG calls, such as `faithfulness < 0.5 and workflow = support`.

An expression compares fields of a call with values. The filter never becomes SQL: it is parsed here, and evaluated on
arrays. A comparison of a value that a call does not have is neither true nor false (Kleene's logic), so that `not` does
not select calls that were never scored.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from difflib import get_close_matches
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol, TypeAlias

import numpy as np

from ragtrace.core.errors import SettingsError
from ragtrace.core.tags import check_tag_name

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Mask: TypeAlias = "NDArray[np.bool_]"

FIELDS: Final = ("workflow", "model", "release", "service", "status", "label", "feedback", "guard")
"""Fields of a call that are no metrics; people give `label` and `feedback`, and `guard` is the verdict of a guard. A
tag is a field as well, such as `tag.tenant`, which is compared as the text that `tag_text` writes."""
_OF_GUARD: Final = frozenset({"guard.metric", "guard.mode", "guard.action", "guard.reason"})
"""Fields of the guard of a call besides its verdict."""
PARTS: Final = ("status", "reason", "label", "evaluator")
"""Texts of a metric's result besides the score, used as in `faithfulness.reason`."""
_TOKEN: Final = re.compile(
    r"\s*(?:(?P<sign><=|>=|!=|==|=|<|>)|(?P<bracket>[()])|'(?P<single>[^']*)'|\"(?P<double>[^\"]*)\""
    r"|(?P<word>[^\s()<>=!'\"]+))"
)
_DEEPEST: Final = 50
_MOST_CHARS: Final = 10_000


def tag_of(field: str) -> str | None:
    """Return the name of the tag that *field*, such as `tag.tenant`, stands for, or None if it is another field."""
    kind, dot, name = field.partition(".")
    return name if dot and kind == "tag" else None


class Selected(NamedTuple):
    """Result of a filter expression: a mask of the calls where it is true, and a mask where it is false.

    For all other calls the result is unknown.
    """

    yes: Mask
    no: Mask


class FilterValues(Protocol):
    """Interface of the call data that a filter expression is evaluated on, with one element per RAG call."""

    def metrics(self) -> Sequence[str]:
        """Return the names of all metrics for which the calls have results."""
        ...

    def numbers(self, field: str) -> NDArray[np.float64]:
        """Return the score of each call for the metric *field*, with NaN for calls without a score.

        For the field `feedback`, it is the lowest score that users gave the call.
        """
        ...

    def texts(self, field: str) -> Sequence[frozenset[str]]:
        """Return the text values that each call has for *field*, such as the workflow or the labels."""
        ...


class _Token(NamedTuple):
    kind: str
    text: str
    at: int


_Evaluate: TypeAlias = Callable[[FilterValues], Selected]


class CallFilter:
    """Parsed filter expression that selects stored RAG calls.

    Args:
        text: the expression, for instance `faithfulness < 0.5 and not (workflow = "chat" or label = good)`.

    Raises:
        SettingsError: *text* is no filter expression; the message says where.
    """

    def __init__(self, text: str) -> None:
        self.text = text
        self.metrics: list[str] = []
        """Names of the metrics whose scores the expression compares, in order of occurrence."""
        self._names: list[tuple[str, int]] = []
        self._tokens, self._next = self._tokenize(), 0
        self._evaluate = self._any_of(0)
        if self._token().kind != "end":
            raise self._error("expected `and`, `or` or the end", self._token().at)

    def select(self, values: FilterValues) -> Selected:
        """Evaluate the filter expression, and return for which calls it is true and for which it is false.

        Raises:
            SettingsError: the calls have no results of a metric that the expression names.
        """
        known = values.metrics()
        for name, at in self._names:
            if name not in known:
                near = get_close_matches(name, [*known, *FIELDS], 1)
                advice = f"did you mean {near[0]!r}? " if near else ""
                raise self._error(
                    f"the calls have no metric {name!r}; {advice}metrics: {', '.join(sorted(known)) or 'none'}; "
                    f"other fields: {', '.join(FIELDS)}",
                    at,
                )
        return self._evaluate(values)

    # --- parsing ------------------------------------------------------------------------------------------------------

    def _tokenize(self) -> list[_Token]:
        if len(self.text) > _MOST_CHARS:
            raise SettingsError(f"a filter may have at most {_MOST_CHARS:,} characters, got {len(self.text):,}")
        found: list[_Token] = []
        end, at = len(self.text.rstrip()), 0
        while at < end:
            match = _TOKEN.match(self.text, at, end)
            if match is None or match.lastgroup is None:
                raise self._error("a text in quotes has no end, or there is a sign that no filter has", at)
            kind = "text" if match.lastgroup in ("single", "double") else match.lastgroup
            found.append(_Token(kind, match[match.lastgroup], at + len(match[0]) - len(match[0].lstrip())))
            at = match.end()
        return [*found, _Token("end", "", end)]

    def _token(self) -> _Token:
        return self._tokens[self._next]

    def _taken(self, kind: str, *texts: str) -> _Token | None:
        """Consume and return the next token if it has the given kind and is one of *texts*, else return None."""
        token = self._token()
        if token.kind != kind or (texts and token.text.lower() not in texts):
            return None
        self._next += 1
        return token

    def _any_of(self, depth: int) -> _Evaluate:
        parts = [self._all_of(depth)]
        while self._taken("word", "or"):
            parts.append(self._all_of(depth))
        return parts[0] if len(parts) == 1 else lambda values: _any(each(values) for each in parts)

    def _all_of(self, depth: int) -> _Evaluate:
        parts = [self._one(depth)]
        while self._taken("word", "and"):
            parts.append(self._one(depth))
        return parts[0] if len(parts) == 1 else lambda values: _not(_any(_not(each(values)) for each in parts))

    def _one(self, depth: int) -> _Evaluate:
        if depth > _DEEPEST:
            raise self._error(f"brackets and `not` may be nested {_DEEPEST} deep", self._token().at)
        if self._taken("word", "not"):
            inner = self._one(depth + 1)
            return lambda values: _not(inner(values))
        if opening := self._taken("bracket", "("):
            inner = self._any_of(depth + 1)
            if not self._taken("bracket", ")"):
                raise self._error("this bracket is not closed", opening.at)
            return inner
        return self._comparison()

    def _comparison(self) -> _Evaluate:
        name = self._taken("word")
        if name is None or name.text.lower() in ("and", "or", "not"):
            raise self._error("expected a metric or a field", self._token().at if name is None else name.at)
        sign = self._taken("sign")
        if sign is None:
            raise self._error("expected one of < <= > >= = !=", self._token().at)
        value = self._taken("word") or self._taken("text")
        if value is None:
            raise self._error("expected a value", self._token().at)
        metric, _, part = name.text.rpartition(".")
        if (name.text in FIELDS and name.text != "feedback") or name.text in _OF_GUARD:
            return self._of_text(name.text, sign, value)
        if (tag := tag_of(name.text)) is not None:
            try:
                check_tag_name(tag)
            except SettingsError as error:
                raise self._error(str(error), name.at) from None
            return self._of_text(name.text, sign, value)
        if metric and part in PARTS:
            if metric != "label":
                self._names.append((metric, name.at))
            return self._of_text(name.text, sign, value)
        if metric == "label":  # a human label for one metric, as in label.hallucinated = bad
            return self._of_text(name.text, sign, value)
        if name.text != "feedback":
            self._names.append((name.text, name.at))
            self.metrics = list(dict.fromkeys([*self.metrics, name.text]))
        return self._of_number(name.text, sign, value)

    def _of_text(self, field: str, sign: _Token, value: _Token) -> _Evaluate:
        if sign.text not in ("=", "==", "!="):
            raise self._error(f"{field} is a text: compare it by = or !=", sign.at)

        def evaluate(values: FilterValues) -> Selected:
            texts = values.texts(field)
            known = np.array([bool(each) for each in texts], dtype=bool)
            same = np.array([value.text in each for each in texts], dtype=bool)
            found = Selected(same, known & ~same)
            return _not(found) if sign.text == "!=" else found

        return evaluate

    def _of_number(self, field: str, sign: _Token, value: _Token) -> _Evaluate:
        try:
            bound = float(value.text)
        except ValueError:
            bound = float("nan")
        if not np.isfinite(bound):
            raise self._error(
                f"{field} is compared with a number, got {value.text!r}; its texts are "
                f"{', '.join(f'{field}.{part}' for part in PARTS)}",
                value.at,
            )

        def evaluate(values: FilterValues) -> Selected:
            scores = values.numbers(field)
            known = ~np.isnan(scores)
            yes = known & _COMPARE[sign.text](scores, bound)
            return Selected(yes, known & ~yes)

        return evaluate

    def _error(self, why: str, at: int) -> SettingsError:
        return SettingsError(f"the filter cannot be used at character {at + 1}: {why}\n  {self.text}\n  {' ' * at}^")


_COMPARE: Final[dict[str, Callable[[NDArray[np.float64], float], Mask]]] = {
    "<": np.less,
    "<=": np.less_equal,
    ">": np.greater,
    ">=": np.greater_equal,
    "=": np.equal,
    "==": np.equal,
    "!=": np.not_equal,
}


def _not(found: Selected) -> Selected:
    return Selected(found.no, found.yes)


def _any(parts: Iterable[Selected]) -> Selected:
    found = list(parts)
    return Selected(
        np.logical_or.reduce([each.yes for each in found]), np.logical_and.reduce([each.no for each in found])
    )
