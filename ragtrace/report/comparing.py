"""Two groups of calls side by side: two periods, two releases, two models."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

import numpy as np

from ragtrace.core.errors import SettingsError
from ragtrace.estimates import Estimate, difference
from ragtrace.history.reading import Columns
from ragtrace.report.model import Change, Compared, Comparison, Direction, Period, Point, Recent
from ragtrace.report.series import Track, mask
from ragtrace.report.words import span

if TYPE_CHECKING:
    from typing import TypeAlias

    from numpy.typing import NDArray

    from ragtrace.history.reading import Ints

    _Kind: TypeAlias = tuple[Literal["releases", "models"], dict[int, str], Ints]

_MOST_NAMED: Final = 10
_AN_HOUR: Final = 3600.0
_LATEST: Final = 1 / 6
_NEWEST: Final = 0.25
"""Part of the time that is the newest."""
_WIDER: Final = 2.5758 / 1.96
"""Of a 99 % interval, in 95 % ones."""


@dataclass(frozen=True, slots=True)
class Sides:
    """Which calls are compared with which."""

    kind: Literal["periods", "releases", "models"]
    before: str
    after: str
    calls_before: NDArray[np.bool_]
    calls_after: NDArray[np.bool_]


def sides(columns: Columns, compare: str, period: Period) -> Sides | None:
    """The two groups that *compare* names: `previous`, or `A:B`; None for `none`.

    Raises:
        SettingsError: there are no calls of that name.
    """
    within = columns.at >= period.start
    if compare == "none":
        return None
    if compare == "previous":
        length = span(period.end - period.start)
        return Sides("periods", f"the {length} before", f"these {length}", ~within, within)
    releases = {number: source.release for number, source in columns.sources.items()}
    models = dict(enumerate(columns.models))
    by_release: _Kind = ("releases", releases, columns.source)
    by_model: _Kind = ("models", models, columns.model)
    for kind, names, codes in (by_release, by_model):
        pair = _pair(compare, set(names.values()))
        if pair is not None:
            masks = [mask(columns, codes, [code for code, name in names.items() if name == each]) for each in pair]
            return Sides(kind, *pair, masks[0] & within, masks[1] & within)
    known = sorted({*releases.values(), *models.values()} - {""})
    raise SettingsError(
        f"--compare must be previous, none, or two versions or models A:B, got {compare!r}; in this time there are: "
        f"{', '.join(known[:_MOST_NAMED]) or 'none (versions are the resource attribute service.version)'}"
    )


def _pair(compare: str, known: set[str]) -> tuple[str, str] | None:
    """The two names in *compare*; names may have colons in them."""
    for at, char in enumerate(compare):
        if char == ":" and compare[:at] in known and compare[at + 1 :] in known and 0 < at < len(compare) - 1:
            return compare[:at], compare[at + 1 :]
    return None


def compared(columns: Columns, found: Sequence[Track], two: Sides) -> Comparison:
    """Every estimated metric in both groups."""
    group = np.where(two.calls_after, 1, np.where(two.calls_before, 0, -1))
    rows = [_compared(track, *track.estimates(group, 2)) for track in found if track.estimated]
    return Comparison(
        two.kind,
        two.before,
        two.after,
        int(two.calls_before.sum()),
        int(two.calls_after.sum()),
        tuple(rows),
        releases(columns, two.calls_before),
        releases(columns, two.calls_after),
    )


def releases(columns: Columns, chosen: NDArray[np.bool_]) -> tuple[str, ...]:
    """Releases of the *chosen* calls."""
    found = {columns.sources[number].release for number in np.unique(columns.source[chosen]).tolist()}
    return tuple(sorted(found - {""}))


def _compared(track: Track, before: Estimate, after: Estimate) -> Compared:
    names = track.metric, track.evaluator, track.higher_is_better
    found = changed(before, after, higher_is_better=track.higher_is_better)
    if found is None:
        missing = "before" if before.value is None else "after"
        return Compared(*names, before, after, None, f"nothing was judged by {track.evaluator} {missing}")
    return Compared(*names, before, after, found)


def changed(before: Estimate, after: Estimate, *, higher_is_better: bool) -> Change | None:
    """What became of an estimate; None where one of the two is not known."""
    found = difference(after, before)
    return None if found is None else Change(*found, _direction(found, higher_is_better=higher_is_better))


def _direction(change: tuple[float, float, float], *, higher_is_better: bool) -> Direction:
    _, low, high = change
    if low <= 0.0 <= high:
        return "unclear"
    return "better" if (low > 0) is higher_is_better else "worse"


def recent(columns: Columns, track: Track, period: Period) -> Recent | None:
    """The newest quarter of *period* against the rest of it; None where one of them has nothing judged."""
    since = period.end - _NEWEST * (period.end - period.start)
    within = (columns.at >= period.start) & (columns.at < period.end)
    before, after = track.estimates(np.where(within, np.where(columns.at >= since, 1, 0), -1), 2)
    found = difference(after, before)
    if found is None:
        return None
    value, low, high = found
    wide = value, value - _WIDER * (value - low), value + _WIDER * (high - value)
    return Recent(since, before, after, Change(*found, _direction(wide, higher_is_better=track.higher_is_better)))


def latest(columns: Columns, track: Track, period: Period) -> Point | None:
    """The estimate of the newest hour of *period*, or its newest sixth if that is shorter; None without a call."""
    newest = Period(period.end - min(_AN_HOUR, _LATEST * (period.end - period.start)), period.end)
    group = np.where((columns.at >= newest.start) & (columns.at < newest.end), 0, -1)
    estimate = track.estimates(group, 1)[0]
    return None if estimate.value is None else Point(newest, estimate, track.judged(group, 1)[0])
