"""Places in the queue: bounded in number and in bytes, also before anything has been weighed."""

from __future__ import annotations

from ragtrace.pipeline.admission import AdmissionControl


def test_what_has_been_weighed_leaves_no_room() -> None:
    """At the bound the next is refused, and when one goes there is room again."""
    admission = AdmissionControl(100, 1_000)
    assert admission.admit(False, 0)
    admission.weigh(1_001, 1_001)
    assert not admission.admit(False, 0)
    assert not admission.admit(True, 0)
    assert admission.full(0)
    admission.free(False, 1_001)
    assert admission.admit(False, 0)


def test_items_that_are_not_weighed_yet_count_as_others_did() -> None:
    """A burst cannot slip in while the background has no time to weigh it."""
    admission = AdmissionControl(100, 1_000)
    for _ in range(200):
        admission.weigh(100, 0)
    assert admission.admit(False, 9)
    assert not admission.admit(False, 11)


def test_what_was_refused_still_tells_how_heavy_items_are() -> None:
    """Else a flood of refused giants would make giants look light."""
    admission = AdmissionControl(100, 1_000)
    for _ in range(200):
        admission.weigh(10_000, 0)
    assert admission.bytes == 0
    assert not admission.admit(False, 1)


def test_full_is_full_for_small_and_large() -> None:
    """Large ones may come while only the places of the small are taken."""
    admission = AdmissionControl(1, 1_000)
    assert all(admission.admit(True, 0) for _ in range(8))
    assert admission.full_of_small(0)
    assert not admission.full(0)
    assert admission.admit(False, 0)
    assert admission.full(0)


def test_an_item_may_become_heavier() -> None:
    """And takes all of it along when it goes."""
    admission = AdmissionControl(10, 1_000)
    admission.admit(False, 0)
    admission.weigh(300, 300)
    admission.reweigh(400)
    assert admission.bytes == 700
    admission.free(False, 700)
    assert admission.bytes == 0


def test_items_that_wait_for_a_judge_have_places_of_their_own() -> None:
    """As many in number, and three quarters of the bytes: there is always room for one that nobody has looked at."""
    admission = AdmissionControl(2, 1_000)
    for _ in range(2):
        assert admission.admit(False, 0)
        admission.weigh(300, 300)
        assert admission.move_to_judging(300)
    assert admission.admit(False, 0)
    admission.weigh(200, 200)
    assert not admission.move_to_judging(200)
    assert admission.admit(False, 0)
    assert admission.admitted == 4


def test_bytes_that_wait_for_a_judge_are_bounded() -> None:
    """And given back when the item goes."""
    admission = AdmissionControl(10, 1_000)
    admission.admit(False, 0)
    admission.weigh(700, 700)
    assert admission.move_to_judging(700)
    admission.admit(False, 0)
    admission.weigh(100, 100)
    assert not admission.move_to_judging(100)
    admission.free(False, 700, judging=True)
    assert admission.move_to_judging(100)
    assert (admission.admitted, admission.bytes) == (1, 100)
