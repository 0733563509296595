"""Messages and tracebacks of exceptions as Python prints them, made without running code of unknown classes."""

from __future__ import annotations

import builtins
import sys
import traceback
from collections.abc import Sequence
from types import FunctionType
from typing import Any, Final, cast

from ragtrace.capture.fields import full_name_of, getter, is_known, items_of, module_of, type_name_of

_LINKS: Final = 10
_CAUSED: Final = "\nThe above exception was the direct cause of the following exception:\n\n"
_WHILE: Final = "\nDuring handling of the above exception, another exception occurred:\n\n"
_PLAIN: Final = frozenset(map(id, (str, int, float, bool, bytes, type(None))))
_GROUP: Any = getattr(builtins, "BaseExceptionGroup", None)
_own: Any = vars(BaseException)
"""Descriptors of the interpreter for an exception's attributes, which a derived class may hide behind properties."""


def message_of(error: BaseException) -> str:
    """Return the message of the exception *error*, without running code of an unknown class.

    It is made by a `__str__` of Python or a known library, else from the exception's arguments.
    """
    args: tuple[object, ...] = _own["args"].__get__(error)
    if not all(id(type(each)) in _PLAIN for each in args):  # printing other arguments would run their classes' code
        return ", ".join(str(each) if id(type(each)) in _PLAIN else f"<{type_name_of(type(each))}>" for each in args)
    for owner in type.__dict__["__mro__"].__get__(type(error)):
        found = type.__dict__["__dict__"].__get__(owner).get("__str__")
        if found is None:
            continue
        module = sys.modules.get(module_of(owner))
        is_python = module_of(owner).partition(".")[0] in sys.stdlib_module_names and module is not None
        is_python = is_python and vars(module).get(type_name_of(owner)) is owner
        if type(found) is type(BaseException.__str__) or (
            type(found) is FunctionType and (is_python or is_known(owner))
        ):
            return str(found(error))
        break
    return BaseException.__str__(error)


def traceback_of(error: BaseException, *, messages: bool = True) -> str:
    """Return the traceback of the exception *error* and of its causes as text.

    Without *messages*, the text has types and frames, but no messages or notes.
    """
    return "".join(_chain(error, 0, messages=messages))


def _chain(error: BaseException, depth: int, *, messages: bool) -> list[str]:
    links: list[tuple[BaseException, str]] = []
    link: BaseException | None = error
    while link is not None and len(links) < _LINKS and all(link is not seen for seen, _ in links):
        cause = _own["__cause__"].__get__(link)
        around = None if _own["__suppress_context__"].__get__(link) else _own["__context__"].__get__(link)
        before = around if cause is None else cause
        links.append((link, "" if before is None else _WHILE if cause is None else _CAUSED))
        link = before
    lines: list[str] = []
    for link, how in reversed(links):
        lines += [how if lines else "", *_one(link, depth, messages=messages)]
    return lines


def _one(error: BaseException, depth: int, *, messages: bool) -> list[str]:
    # Largest number of frames that are printed of one exception: the last ones.
    frames = traceback.format_tb(_own["__traceback__"].__get__(error), limit=-200)
    name, message = full_name_of(type(error)), message_of(error) if messages else ""
    lines = ["Traceback (most recent call last):\n"] if frames else []
    lines += [*frames, f"{name}: {message}\n" if message else f"{name}\n"]
    get = getter(error) if messages else None
    notes = items_of(None if get is None else get("__notes__"), _LINKS) or ()
    lines += [f"{note}\n" for note in notes if type(note) is str]
    if _GROUP is not None and issubclass(type(error), _GROUP) and depth < _LINKS:
        exceptions = cast("Any", vars(_GROUP)["exceptions"])
        members = cast("Sequence[BaseException]", exceptions.__get__(error))
        for number, member in enumerate(members[:_LINKS], 1):
            lines += [f"---------------- {number} ----------------\n", *_chain(member, depth + 1, messages=messages)]
    return lines
