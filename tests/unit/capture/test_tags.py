"""What an application gives as tags: what is none is left out and counted, and never raises."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace

import pytest

from ragtrace.capture.tags import joined_tags, kept_tags
from ragtrace.core.tags import MOST_TAGS
from ragtrace.system.faults import faults
from tests.support.logged import logged

SECRET = "my-secret"


@pytest.fixture(autouse=True)
def fresh_faults() -> Iterator[None]:
    """Each test sees its own faults."""
    faults.clear()
    yield
    faults.clear()


def test_what_is_a_tag_is_kept() -> None:
    """None is no tag, and no fault."""
    assert kept_tags({"tenant": "acme", "plan": None, "size": 3}, "a test") == {"tenant": "acme", "size": 3}
    assert faults.counts() == {}


@pytest.mark.parametrize(
    ("name", "value", "problem"),
    [
        ("tenant", [SECRET], "the value of 'tenant' is a list"),
        ("tenant", SimpleNamespace(id=SECRET), "the value of 'tenant' is a SimpleNamespace"),
        ("tenant", SECRET * 30, "the value of 'tenant' is a text of 270 characters"),
        ("tenant", "", "the value of 'tenant' is a text of 0 characters"),
        (f"{SECRET} x", "x", "its name, a text of 11 characters"),
        (3, "x", "its name, a int"),
    ],
    ids=["list", "record", "long", "empty", "name", "number"],
)
def test_what_is_none_is_left_out_counted_and_logged_once(
    name: object, value: object, problem: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The line has name and type, and neither the value nor a name that may be content."""
    for _ in range(2):
        assert kept_tags({name: value, "arm": "b"}, "a test") == {"arm": "b"}
    assert faults.counts() == {"tags left out: a test": 2}
    [line] = logged(caplog, "tag is left out (a test)")
    assert problem in line
    assert SECRET not in line


def test_one_too_many_is_named_and_all_of_them_are_counted(caplog: pytest.LogCaptureFixture) -> None:
    """Beyond the most that a call may have."""
    assert len(kept_tags({f"t{number}": number for number in range(MOST_TAGS + 3)}, "a test")) == MOST_TAGS
    assert faults.counts() == {"tags left out: a test": 3}
    assert len(logged(caplog, f"tag 't{MOST_TAGS}' is one more than the {MOST_TAGS}")) == 1


def test_a_hostile_value_is_a_fault_and_no_error() -> None:
    """Texts of the application's own classes may do anything."""

    class Hostile(str):
        __slots__ = ()

        def __len__(self) -> int:
            raise LookupError

    assert kept_tags({"tenant": Hostile("x")}, "a test") == {}
    assert faults.counts() == {"tags left out: a test": 1}


def test_tags_are_joined_in_a_new_mapping() -> None:
    """Later ones replace; beyond the most, those that come last are left out and counted."""
    known, more = {"t0": 0, "arm": "a"}, {"arm": "b", **{f"t{number}": number for number in range(MOST_TAGS + 1)}}
    joined = joined_tags(known, more, "a test")
    assert joined == {"t0": 0, "arm": "b", **{f"t{number}": number for number in range(1, MOST_TAGS - 1)}}
    assert known == {"t0": 0, "arm": "a"}
    assert faults.counts() == {"tags left out: a test": 2}
