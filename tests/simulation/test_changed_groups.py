"""Tags are named as the group of a change that comes from everywhere no more often than by a rare chance."""

from __future__ import annotations

from pathlib import Path

from ragtrace.report.analysis import build_report
from ragtrace.report.model import Period
from tests.unit.report.test_onset import CHANGED, DAY, NOW, TENANTS, tagged_history


def test_a_change_that_is_hardly_seen_is_seldom_said_to_come_from_a_tag(tmp_path: Path) -> None:
    """Of forty histories with eight tags of two values and one of twenty, in at most a seventh of those it is seen in.

    The change is so small for so few scores that it is seen in half of the histories, and that the half of the calls
    which has most of it by chance often looks like its cause.
    """
    tags = {"tenant": TENANTS, **{f"b{number}": [0, 1] for number in range(8)}}
    seen = named = 0
    for seed in range(40):
        path = tagged_history(
            tmp_path / f"{seed}.db", lambda at, _: 0.25 if at >= CHANGED else 0.05, tags, calls=1_500, seed=seed
        )
        found = build_report(str(path), Period(NOW - DAY, NOW), made_at=NOW, details="headline").latest_change
        path.unlink()
        seen += found is not None
        named += found is not None and found.group is not None and found.group.names[0][0] == "tag"
    assert seen >= 12
    assert named <= seen / 7
