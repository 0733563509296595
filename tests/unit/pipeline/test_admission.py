"""Places in the queue: bounded in number and in bytes, also before anything has been weighed."""

from __future__ import annotations

from ragtrace.pipeline.admission import Places


def test_what_has_been_weighed_leaves_no_room() -> None:
    """At the bound the next is refused, and when one goes there is room again."""
    places = Places(100, 1_000)
    assert places.enter(False, 0)
    places.weigh(1_001, 1_001)
    assert not places.enter(False, 0)
    assert not places.enter(True, 0)
    assert places.full(0)
    places.leave(False, 1_001)
    assert places.enter(False, 0)


def test_items_that_are_not_weighed_yet_count_as_others_did() -> None:
    """A burst cannot slip in while the background has no time to weigh it."""
    places = Places(100, 1_000)
    for _ in range(200):
        places.weigh(100, 0)
    assert places.enter(False, 9)
    assert not places.enter(False, 11)


def test_what_was_refused_still_tells_how_heavy_items_are() -> None:
    """Else a flood of refused giants would make giants look light."""
    places = Places(100, 1_000)
    for _ in range(200):
        places.weigh(10_000, 0)
    assert places.bytes == 0
    assert not places.enter(False, 1)


def test_full_is_full_for_small_and_large() -> None:
    """Large ones may come while only the places of the small are taken."""
    places = Places(1, 1_000)
    assert all(places.enter(True, 0) for _ in range(8))
    assert places.full_of_small(0)
    assert not places.full(0)
    assert places.enter(False, 0)
    assert places.full(0)


def test_an_item_may_become_heavier() -> None:
    """And takes all of it along when it goes."""
    places = Places(10, 1_000)
    places.enter(False, 0)
    places.weigh(300, 300)
    places.reweigh(400)
    assert places.bytes == 700
    places.leave(False, 700)
    assert places.bytes == 0


def test_items_that_wait_for_a_judge_have_places_of_their_own() -> None:
    """As many in number, and three quarters of the bytes: there is always room for one that nobody has looked at."""
    places = Places(2, 1_000)
    for _ in range(2):
        assert places.enter(False, 0)
        places.weigh(300, 300)
        assert places.wait(300)
    assert places.enter(False, 0)
    places.weigh(200, 200)
    assert not places.wait(200)
    assert places.enter(False, 0)
    assert places.taken == 4


def test_bytes_that_wait_for_a_judge_are_bounded() -> None:
    """And given back when the item goes."""
    places = Places(10, 1_000)
    places.enter(False, 0)
    places.weigh(700, 700)
    assert places.wait(700)
    places.enter(False, 0)
    places.weigh(100, 100)
    assert not places.wait(100)
    places.leave(False, 700, waiting=True)
    assert places.wait(100)
    assert (places.taken, places.bytes) == (1, 100)
