"""Whose calls are worse: tags that the bad calls of an incident have in common."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

import pytest

from ragtrace.alerts.shared_tags import CallTags
from tests.support.alerted import Board, close_all


@pytest.fixture(autouse=True)
def _no_threads_left() -> Iterator[None]:
    yield
    close_all()


def test_the_notice_names_the_tag_that_the_bad_calls_share() -> None:
    """With how many of them have it, and how many of all calls; other tags of these calls are not named."""
    board = Board(above=0.01)
    for number in range(200):
        board.score(0.0, tags={"tenant": f"t{number % 20}", "channel": "web"})
    for number in range(1_000):
        board.score(float(number % 20 == 7), tags={"tenant": f"t{number % 20}", "channel": "web"})
    assert board.notified() == [("spiking", "firing")]
    [notice] = board.notices
    [shared] = notice.shared
    assert (shared.tag, shared.bad) == ("tenant=t7", shared.all_bad)
    assert f"{shared.bad} of {shared.bad} bad calls: tenant t7 (5% of all calls)" in notice.text.splitlines()
    told = {"tag": "tenant=t7", "bad": shared.bad, "all_bad": shared.bad, "share": pytest.approx(0.05, abs=0.01)}
    assert list(notice.as_dict()["shared"]) == [told]  # type: ignore[call-overload]


def test_a_tag_that_most_calls_have_is_not_named() -> None:
    """It explains nothing; and of few bad calls nothing is said."""
    tags = CallTags()
    for number in range(100):
        tags.add(number, {"plan": "free"}, is_bad=number % 5 == 0)
    assert tags.shared_by_bad(0) == ()
    few = CallTags()
    for number in range(100):
        few.add(number, {"tenant": "a" if number > 95 else "b"}, is_bad=number > 95)
    assert few.shared_by_bad(0) == ()


def test_chance_alone_seldom_has_a_tag_named() -> None:
    """20 tenants, four channels and a version each; of 3,000 incidents of which none depends on tags, at most six."""
    random, named = Random(7), 0
    for _ in range(3_000):
        tags = CallTags()
        for number in range(150):
            given = {"tenant": random.randrange(20), "channel": random.randrange(4), "version": random.random() < 0.9}
            tags.add(number, given, is_bad=random.random() < 0.1)
        named += bool(tags.shared_by_bad(0))
    assert named <= 6
