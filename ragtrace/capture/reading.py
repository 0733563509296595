"""Reading the fields of unknown values without running, consuming or changing anything that belongs to the application.

A class is looked at once and remembered as a `Shape`. Of an instance we read its dictionary, and of its class only
slots and plain properties with a name we know. Other descriptors stay untouched: those of an ORM load from a database
when they are read. So does everything that looks like a stream or an HTTP response: reading its text may consume it.
`type(x)` is asked instead of `isinstance`, which believes what an object says about its own class.
"""

from __future__ import annotations

import math
import sys
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import Enum
from functools import partial
from itertools import islice
from types import GetSetDescriptorType, MemberDescriptorType, ModuleType
from typing import Any, Literal, NamedTuple, TypeAlias, TypeGuard, cast
from uuid import UUID

from ragtrace.capture.names import VOCABULARY

Get: TypeAlias = Callable[[str], object]
"""Looks a field up by its name; None if there is none."""
Kind: TypeAlias = Literal["text", "list", "tuple", "sequence", "dict", "mapping", "object", "proxy", "closed"]

MAX_DEPTH = 4
_MAX_LABEL_CHARS = 1_000
_MAX_KEYS = 200
_MAX_SHAPES = 1_000
_MAX_ITEMS = 10_000
_SCALARS = (int, float, complex, bytes, bytearray, memoryview, type, ModuleType, type(None))
_BUILT_IN: tuple[tuple[type[Any] | tuple[type[Any], ...], Kind], ...] = (
    (str, "text"),
    (dict, "dict"),
    (list, "list"),
    (tuple, "tuple"),
    (_SCALARS, "closed"),
)
_ONE_SHOT = ("__next__", "__anext__", "read", "readinto", "iter_content", "iter_bytes", "body_iterator")
_PASSAGE_NAMES = ("Document", "Node", "NodeWithScore", "Passage")
_ABSENT = object()
# The methods of the built-in class itself: a derived class may have made them lie, raise or write.
_dict_get: Any = vars(dict)["get"]
_dict_values: Any = vars(dict)["values"]
_list_iter: Any = vars(list)["__iter__"]
_tuple_iter: Any = vars(tuple)["__iter__"]


class Shape(NamedTuple):
    """What one class lets us read of its instances."""

    kind: Kind
    computed: frozenset[str] = frozenset()
    """Names of properties and slots that may be read."""
    has_dict: bool = False
    is_plain: bool = False
    """All there is to read is in the instance's dictionary, and reading that runs no code of the class."""
    is_number: bool = False
    is_passage: bool = False
    """Its name says that it is a piece of a document, which is never an answer."""


_NAMED_FIELD: object = vars(Shape)["kind"]
_PLAIN_DESCRIPTORS = frozenset({property, MemberDescriptorType, GetSetDescriptorType, type(_NAMED_FIELD)})
"""The last is that of a named tuple's fields."""


def _static(kind: type[Any], name: str) -> Any:
    """The attribute as written in the class or its bases, without running a descriptor or a metaclass."""
    for owner in type.__dict__["__mro__"].__get__(kind):
        found = type.__dict__["__dict__"].__get__(owner).get(name, _ABSENT)
        if found is not _ABSENT:
            return found
    return _ABSENT


def _has_method(kind: type[Any], name: str) -> bool:
    return callable(_static(kind, name))


def _kind_of(kind: type[Any]) -> Kind:
    for base, what in _BUILT_IN:
        if issubclass(kind, base):
            return "object" if what == "tuple" and _static(kind, "_fields") is not _ABSENT else what
    if any(_has_method(kind, name) for name in _ONE_SHOT) or _is_response(kind):
        return "closed"
    if _static(kind, "__wrapped__") is not _ABSENT:
        return "proxy"
    if _has_method(kind, "keys") and _has_method(kind, "__getitem__"):
        return "mapping"
    # A Django query set has the methods of a sequence too, but indexing it asks the database: it is not registered.
    return "sequence" if issubclass(kind, (Sequence, deque)) else "object"


def _is_response(kind: type[Any]) -> bool:
    return _static(kind, "headers") is not _ABSENT and any(
        _static(kind, name) is not _ABSENT for name in ("status_code", "status")
    )


def _look_at(kind: type[Any]) -> Shape:
    what = _kind_of(kind)
    if what != "object":
        return Shape(what, is_number=_is_scalar(kind))
    computed = {name for name in VOCABULARY if type(_static(kind, name)) in _PLAIN_DESCRIPTORS}
    has_dict = type(_static(kind, "__dict__")) in (GetSetDescriptorType, MemberDescriptorType)
    is_passage = type_name_of(kind).endswith(_PASSAGE_NAMES)
    is_plain = has_dict and not computed and _static(kind, "__getattribute__") is vars(object)["__getattribute__"]
    return Shape(what, frozenset(computed), has_dict, is_plain, _is_scalar(kind), is_passage)


_shapes: dict[int, tuple[type[Any], Shape]] = {}
"""By identity, as a metaclass may refuse to be hashed; the class itself is kept, so that its identity is not reused."""


def shape_of(kind: type[Any]) -> Shape:
    """How instances of *kind* can be read."""
    known = _shapes.get(id(kind))
    if known is None:
        if len(_shapes) >= _MAX_SHAPES:
            _shapes.clear()
        try:
            shape = _look_at(kind)
        except Exception:  # a metaclass that does not let itself be asked
            shape = Shape("closed")
        known = _shapes[id(kind)] = (kind, shape)
    return known[1]


def type_name_of(kind: type[Any]) -> str:
    """The name of a class, past any metaclass that would run code for it."""
    name: str = type.__dict__["__name__"].__get__(kind)
    return name


def plain_fields(value: object) -> dict[str, object] | None:
    """The dictionary that holds all fields of *value*: itself, or an instance's; None if there is more to it."""
    plain: Any = value
    kind = type(value)
    if kind is dict:
        return plain  # type: ignore[no-any-return]
    if not shape_of(kind).is_plain:
        return None
    fields: object = plain.__dict__
    kind = type(fields)
    plain = fields
    return plain if kind is dict else None


def getter(value: object) -> Get | None:
    """A function that looks up fields of *value* by name; None if it has none that may be read."""
    plain: Any = plain_fields(value)
    if plain is not None and "status_code" not in plain:
        get: Get = plain.get
        return get
    kind = type(value)
    shape = shape_of(kind)
    plain = value
    if shape.kind == "object":
        return _object_getter(plain, shape)
    if shape.kind == "dict":
        return partial(_dict_get, plain)
    if shape.kind == "mapping":
        return _mapping_getter(plain)
    return None


def _mapping_getter(value: Any) -> Get | None:
    try:
        keys: Iterable[object] = value.keys()
        # The keys of a database row may be an iterator.
        known = keys if issubclass(type(value), Mapping) else frozenset(islice(keys, _MAX_KEYS))
    except Exception:  # not a mapping after all
        return None
    return partial(_look_up, value, known)


def _look_up(value: Any, keys: Any, name: str) -> object:
    try:
        return value[name] if name in keys else None
    except Exception:  # a value that cannot be had now
        return None


def _object_getter(value: object, shape: Shape) -> Get | None:
    found: object = object.__getattribute__(value, "__dict__") if shape.has_dict else None
    fields: Any = found
    kind = type(found)
    if kind is not dict:
        return partial(_computed, value, shape.computed) if shape.computed else None
    get: Get = fields.get
    if get("status_code") is not None and (get("headers") is not None or "headers" in shape.computed):
        return None  # an HTTP response of requests, Starlette ...
    return partial(_field, value, get, shape.computed) if shape.computed else get


def _field(value: object, get: Get, computed: frozenset[str], name: str) -> object:
    found = get(name)
    return _computed(value, computed, name) if found is None else found


def _computed(value: object, computed: frozenset[str], name: str) -> object:
    if name not in computed:
        return None
    try:
        return getattr(value, name)
    except Exception:  # a property may refuse: the text of an image node, of a blocked reply ...
        return None


def peel(value: object) -> object:
    """What is inside the transparent proxies that instrumentation puts around objects."""
    for _ in range(MAX_DEPTH):
        if shape_of(type(value)).kind != "proxy":
            break
        value = cast(Any, value).__wrapped__
    return value


def items_of(value: object, limit: int) -> list[object] | None:
    """The first *limit* items of a value that can be read again afterwards; None if it is no such value."""
    plain: Any = value
    kind = type(value)
    if kind is list or kind is tuple:
        return plain if kind is list and len(plain) <= limit else list(plain[:limit])
    if issubclass(kind, list):
        return list(islice(_list_iter(plain), limit))
    if issubclass(kind, tuple):
        return list(islice(_tuple_iter(plain), limit))
    if shape_of(kind).kind == "sequence":
        return [plain[index] for index in range(min(len(plain), limit))]
    return None


def is_list(value: object) -> TypeGuard[list[object]]:
    """Whether it is a plain list."""
    kind = type(value)
    return kind is list


def last_items(value: object, limit: int) -> list[object] | None:
    """As `items_of`, but the last *limit* items, last first."""
    plain: Any = value
    kind = type(value)
    if kind is list or kind is tuple:
        return list(plain[: -limit - 1 : -1])
    items = items_of(plain, _MAX_ITEMS)
    return None if items is None else items[: -limit - 1 : -1]


def values_of(value: object, limit: int) -> list[object]:
    """The first *limit* values of a dictionary; nothing for other values."""
    if shape_of(type(value)).kind != "dict":
        return []
    return list(islice(_dict_values(value), limit))


def text_of(value: object) -> str | None:
    """*value* itself if it is a string, a plain copy if it is of a class derived from str, else None."""
    kind = type(value)
    if kind is str:
        return cast(str, value)
    # A derived class may lie about its length or its characters; str's own method gives those it really holds.
    return str.__str__(cast(str, value)) if issubclass(kind, str) else None


def first_text(get: Get, names: tuple[str, ...]) -> str | None:
    """The first string found under one of *names*."""
    for name in names:
        found = get(name)
        if found is not None and (text := text_of(found)) is not None:
            return text
    return None


def number_of(value: object) -> float | None:
    """A finite number as float; NumPy's scalars and Decimal count, truth values and tensors do not."""
    plain: Any = value
    kind = type(value)
    if kind is not float:
        if not shape_of(kind).is_number:
            return None
        plain = float(plain)
    return plain if math.isfinite(plain) else None


def first_number(get: Get, names: tuple[str, ...]) -> float | None:
    """The first number found under one of *names*."""
    for name in names:
        found = get(name)
        if found is not None and (number := number_of(found)) is not None:
            return number
    return None


def _is_scalar(kind: type[Any]) -> bool:
    if issubclass(kind, (int, float)):
        return not issubclass(kind, bool)
    # An array of NumPy has a length, its scalars have none. A tensor's __float__ would wait for the accelerator.
    module = type.__dict__["__module__"].__get__(kind)
    return (module == "numpy" and not _has_method(kind, "__len__")) or module in ("decimal", "_decimal")


def whole_of(value: object) -> int | None:
    """A count: an int >= 0, else None."""
    return value if type(value) is int and 0 <= value <= sys.maxsize else None


def label_of(value: object) -> str | None:
    """A short identifier as text: of a string, an integer, a UUID or an enumeration of them; else None."""
    if type(value) is str:
        return value if 0 < len(value) <= _MAX_LABEL_CHARS else None
    plain: Any = value
    if issubclass(type(plain), Enum) and not issubclass(type(plain), str):
        plain = object.__getattribute__(plain, "__dict__").get("_value_")
    if type(plain) is int:
        return str(plain) if abs(plain) <= sys.maxsize else None
    if type(plain) is UUID:
        return str(plain)
    text = text_of(plain)
    return text if text and len(text) <= _MAX_LABEL_CHARS else None


def first_label(get: Get, names: tuple[str, ...]) -> str | None:
    """The first identifier found under one of *names*."""
    for name in names:
        found = get(name)
        if found is not None and (label := label_of(found)) is not None:
            return label
    return None
