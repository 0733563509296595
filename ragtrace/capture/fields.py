"""Reads the fields of unknown values without running, consuming or changing anything that belongs to the application.

A class is looked at once and remembered as a `Shape`. Of an instance we read its dictionary, its slots, and the
properties of libraries we know. No code of any other class is run: it may wait for a database, never end, or belong to
the thread that made it, so it can be run neither here nor in the background. A property that only returns a field
(`return self._text`) is understood from its code and read as that field. Everything that looks like a stream or an HTTP
response stays untouched too: reading its text may consume it. `type(x)` is asked instead of `isinstance`, which
believes what an object says about its own class.
"""

from __future__ import annotations

import dis
import math
import sys
from collections import UserDict, UserList, deque
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from enum import Enum
from functools import partial
from gc import get_referents
from itertools import islice
from types import (
    AsyncGeneratorType,
    FunctionType,
    GeneratorType,
    GetSetDescriptorType,
    MappingProxyType,
    MemberDescriptorType,
    ModuleType,
)
from typing import Any, Literal, NamedTuple, TypeAlias, TypeGuard, TypeVar, cast
from uuid import UUID

from wrapt import ObjectProxy

from ragtrace.capture.field_names import LIBRARIES, VOCABULARY

T = TypeVar("T")
Get: TypeAlias = Callable[[str], object]
"""Looks a field up by its name; None if there is none."""
Kind: TypeAlias = Literal[
    "text", "list", "tuple", "sequence", "dict", "mapping", "object", "proxy", "user_list", "user_dict", "closed"
]

MAX_DEPTH = 4
MAX_LOOKS = 300
"""Records looked into for one text: a record that contains itself under many names would take seconds."""
MAX_LABEL_CHARS = 1_000
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
_dict_items: Any = vars(dict)["items"]
_dict_iter: Any = vars(dict)["__iter__"]
_list_iter: Any = vars(list)["__iter__"]
_tuple_iter: Any = vars(tuple)["__iter__"]


class Looks:
    """Budget of records that may be searched without finding anything, for one value or one stream."""

    left: int = MAX_LOOKS


class Shape(NamedTuple):
    """Description of one class: which fields of its instances can be read safely."""

    kind: Kind
    computed: Mapping[str, Any] = MappingProxyType({})
    """By name of a property or slot: the descriptor to read, or the path of fields that the property returns."""
    has_dict: bool = False
    is_plain: bool = False
    """All there is to read is in the instance's dictionary, and reading that runs no code of the class."""
    is_number: bool = False
    is_passage: bool = False
    """Its name says that it is a piece of a document, which is never an answer."""
    is_foreign: bool = False
    """There may be more to read, but only by running code of a class that we do not know."""
    is_stream: bool = False
    """An iterator that is no generator: an OpenAI stream, a `map`; but no file and no database cursor."""
    is_async: bool = False
    """It is an asynchronous iterator, whatever else it is."""
    is_both: bool = False
    """It is an asynchronous iterator and a plain one."""
    is_late: bool = False
    """A response whose text is read from it later, as LlamaIndex returns it."""


_NAMED_FIELD: object = vars(Shape)["kind"]
_PLAIN_DESCRIPTORS = (MemberDescriptorType, GetSetDescriptorType, type(_NAMED_FIELD))
"""Reading them runs no code of Python. The last is that of a named tuple's fields."""
_HEAP_TYPE = 1 << 9  # Py_TPFLAGS_HEAPTYPE: defined by a class statement, or by an extension that imitates one
_PROXY_HOOKS = ("__wrapped__", "__wrapped_get__", "__wrapped_factory__")


def _static(kind: type[Any], name: str) -> Any:
    """Return the attribute as written in the class or its bases, without running a descriptor or a metaclass."""
    for owner in type.__dict__["__mro__"].__get__(kind):
        found = type.__dict__["__dict__"].__get__(owner).get(name, _ABSENT)
        if found is not _ABSENT:
            return found
    return _ABSENT


def _derives(kind: type[Any], base: object) -> bool:
    """Return whether *base* is among the bases of *kind*, without running code of abstract classes."""
    return any(each is base for each in type.__dict__["__mro__"].__get__(kind))


def _has_method(kind: type[Any], name: str) -> bool:
    return callable(_static(kind, name))


def module_of(kind: type[Any]) -> str:
    """Return the name of the module of *kind*, "" if its `__module__` is no string."""
    name: object = type.__dict__["__module__"].__get__(kind)
    return name if type(name) is str else ""


def is_known(kind: type[Any]) -> bool:
    """Return whether *kind* is a class of a library whose code may be run: found there under its own name."""
    module = module_of(kind)
    if module.partition(".")[0] not in LIBRARIES:
        return False
    found = sys.modules.get(module)
    name = type_name_of(kind).partition("[")[0]  # a parametrised generic of pydantic is made elsewhere
    here = vars(found).get(name) if type(found) is ModuleType else None
    return here is kind or ("[" in type_name_of(kind) and here is not None)


def _kind_of(kind: type[Any]) -> Kind:
    for base, what in _BUILT_IN:
        if issubclass(kind, base):
            return "object" if what == "tuple" and _static(kind, "_fields") is not _ABSENT else what
    if _derives(kind, ObjectProxy):
        eager = all(_static(kind, name) is _static(ObjectProxy, name) for name in _PROXY_HOOKS)
        return "proxy" if eager else "closed"
    if _static(kind, "__wrapped__") is not _ABSENT:
        return "closed"  # a proxy that makes its object when somebody looks at it
    if any(_has_method(kind, name) for name in _ONE_SHOT) or _is_response(kind):
        return "closed"
    if _derives(kind, UserList):
        return "user_list"
    if _derives(kind, UserDict):
        return "user_dict"
    is_mapping = _has_method(kind, "keys") and _has_method(kind, "__getitem__")
    if is_mapping or (_has_method(kind, "__len__") and _has_method(kind, "__getitem__")):
        return _container(kind, is_mapping)
    return "object"


def _container(kind: type[Any], is_mapping: bool) -> Kind:
    """Return the kind of a class that can be indexed: unknown code is never iterated."""
    if is_mapping:
        return "mapping" if kind is MappingProxyType or is_known(kind) else "closed"
    # A Django query set has the methods of a sequence too, but indexing it asks the database: it is not registered.
    if kind is deque or (is_known(kind) and issubclass(kind, Sequence)):
        return "sequence"
    return "closed" if _derives(kind, Sequence) else "object"


def _is_response(kind: type[Any]) -> bool:
    return _static(kind, "headers") is not _ABSENT and any(
        _static(kind, name) is not _ABSENT for name in ("status_code", "status")
    )


def _look_at(kind: type[Any]) -> Shape:
    what = _kind_of(kind)
    has_dict = any(type(_static(kind, "__dict__")) is each for each in (GetSetDescriptorType, MemberDescriptorType))
    late = all(_static(kind, name) is not _ABSENT for name in ("response_gen", "async_response_gen"))
    is_late = late and what == "object" and _looks_plain(kind)
    if what != "object":
        stream, asynchronous = _streams(kind, what)
        is_number, both = _is_scalar(kind), asynchronous and _static(kind, "__next__") is not _ABSENT
        is_foreign = what == "closed" and _has_method(kind, "__getitem__") and not issubclass(kind, _SCALARS)
        return Shape(
            what, has_dict=has_dict, is_number=is_number, is_foreign=is_foreign, is_stream=stream,
            is_async=asynchronous, is_both=both,
        )  # fmt: skip
    computed, is_foreign = _computed_of(kind)
    is_passage = type_name_of(kind).endswith(_PASSAGE_NAMES)
    is_plain = has_dict and not computed and _static(kind, "__getattribute__") is vars(object)["__getattribute__"]
    return Shape(
        what, computed, has_dict, is_plain, _is_scalar(kind), is_passage, is_foreign, is_late=is_late
    )  # fmt: skip


def _streams(kind: type[Any], what: Kind) -> tuple[bool, bool]:
    """Return whether instances are iterators to be observed, and whether they are asynchronous iterators."""
    asynchronous = _static(kind, "__anext__") is not _ABSENT
    if not asynchronous and _static(kind, "__next__") is _ABSENT:
        return False, False
    if what != "proxy" and (_static(kind, "__wrapped__") is not _ABSENT or not _looks_plain(kind)):
        return False, False
    if any(_static(kind, name) is not _ABSENT for name in ("read", "execute", "fetchone")):
        return False, False
    return _is_heap_type(kind) or module_of(kind) in ("builtins", "itertools"), asynchronous


def _looks_plain(kind: type[Any]) -> bool:
    """Return whether a proxy can be put around an instance without running code of its class."""
    if _static(kind, "__getattribute__") is not vars(object)["__getattribute__"] and _is_heap_type(kind):
        return False
    return all(type(_static(kind, name)) is not property for name in ("__module__", "__doc__", "__class__"))


def _is_heap_type(kind: type[Any]) -> bool:
    flags: int = type.__dict__["__flags__"].__get__(kind)
    return bool(flags & _HEAP_TYPE)


def _computed_of(kind: type[Any]) -> tuple[dict[str, Any], bool]:
    """Return what can be read besides the instance's dictionary, and whether some property cannot be read."""
    computed: dict[str, Any] = {}
    is_foreign = False
    known = is_known(kind)
    for name in VOCABULARY:
        found = _static(kind, name)
        if any(type(found) is each for each in _PLAIN_DESCRIPTORS) or (type(found) is property and known):
            computed[name] = found
        elif type(found) is property:
            path = _path_of(found)
            if path is None:
                is_foreign = True
                continue
            computed[name] = path
            field = _static(kind, path[0])
            if any(type(field) is each for each in _PLAIN_DESCRIPTORS):
                computed[path[0]] = field
    return computed, is_foreign


def _path_of(found: property) -> tuple[str, ...] | None:
    """Return the path of fields that a property returns; None if the property does anything else."""
    function = found.fget
    if type(function) is not FunctionType or function.__code__.co_argcount != 1:
        return None
    path: list[str] = []
    began = ended = False
    for step in dis.get_instructions(function.__code__):
        name: object = step.argval
        if step.opname in ("RESUME", "NOP", "CACHE", "PRECALL"):
            continue
        if ended:
            return None
        if step.opname.startswith("LOAD_FAST") and not began:
            began = True
        elif step.opname in ("LOAD_ATTR", "LOAD_CONST") and began and type(name) is str:
            path.append(name)
        elif step.opname == "RETURN_VALUE" and path:
            ended = True
        elif step.opname != "BINARY_SUBSCR" and not (step.opname == "BINARY_OP" and step.argrepr == "[]"):
            return None
    return tuple(path) if ended and len(path) <= MAX_DEPTH else None


_WRAPPED: Any = _static(ObjectProxy, "__wrapped__")
_shapes: dict[int, tuple[type[Any], Shape]] = {}
"""By identity, as a metaclass may refuse to be hashed; the class itself is kept, so that its identity is not reused."""


def shape_of(kind: type[Any]) -> Shape:
    """Return how instances of *kind* can be read."""
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
    """Return the name of *kind* without running code of its metaclass."""
    name: str = type.__dict__["__name__"].__get__(kind)
    return name


def full_name_of(kind: type[Any]) -> str:
    """Return the qualified name of *kind*, with its module unless it is a builtin, without running its metaclass."""
    name: str = type.__dict__["__qualname__"].__get__(kind)
    module = module_of(kind)
    return name if module in ("builtins", "") else f"{module}.{name}"


def is_mock(kind: type[Any]) -> bool:
    """Return whether *kind* is a mock, which claims to have every attribute."""
    return module_of(kind) == "unittest.mock"


def holds_stream(value: object) -> bool:
    """Return whether *value* has a generator in its field `response_gen`, as LlamaIndex's responses have."""
    shape = shape_of(type(value))
    if shape.kind != "object" or not shape.has_dict:
        return False
    fields: Any = object.__getattribute__(value, "__dict__")
    kind = cast("type[object]", type(fields))
    inner: object = fields.get("response_gen") if kind is dict else None
    return type(inner) is GeneratorType or type(inner) is AsyncGeneratorType


def is_late(value: object) -> bool:
    """Return whether the text of *value* is still to be read by a method, as of LlamaIndex's chat responses."""
    if not shape_of(type(value)).is_late:
        return False
    get = getter(value)
    return get is None or not text_of(get("response"))


def plain_fields(value: object) -> dict[str, object] | None:
    """Return the dictionary with all fields of *value*: *value* or its `__dict__`; None if it has other fields too."""
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
    """Return a function that looks up fields of *value* by name; None if it has none that may be read."""
    plain: Any = value
    kind = type(value)
    if kind is dict:
        return _dict_getter(plain)
    shape = shape_of(kind)
    if shape.kind == "object":
        return _object_getter(plain, shape)
    if shape.kind == "dict":
        return _dict_getter(plain)
    if shape.kind == "mapping":
        return _mapping_getter(plain)
    return getter(_data_of(plain)) if shape.kind == "user_dict" else None


def _dict_getter(fields: Any) -> Get:
    """Return the look-up of a dictionary, without keys that are no plain strings: comparing them runs foreign code."""
    kind = cast("type[object]", type(fields))
    for key in fields if kind is dict else _dict_iter(fields):
        if type(key) is not str:
            fields = {name: each for name, each in islice(_dict_items(fields), _MAX_ITEMS) if type(name) is str}
            kind = dict
            break
    return fields.get if kind is dict else partial(_dict_get, fields)


def _mapping_getter(value: Any) -> Get | None:
    if type(value) is MappingProxyType:  # what it shows may itself be anything
        inner = get_referents(value)
        return getter(inner[0]) if inner else None
    try:
        known = frozenset(name for name in islice(value.keys(), _MAX_ITEMS) if type(name) is str)
    except Exception:  # not a mapping after all
        return None
    return partial(_look_up, value, known)


def _look_up(value: Any, keys: Any, name: str) -> object:
    try:
        return value[name] if name in keys else None
    except Exception:  # a value that cannot be had now
        return None


def _data_of(value: object) -> object:
    """Return the list or dictionary inside a `UserList` or `UserDict`."""
    fields: Any = object.__getattribute__(value, "__dict__") if shape_of(type(value)).has_dict else None
    kind = cast("type[object]", type(fields))
    data: object = fields.get("data") if kind is dict else None
    return data if issubclass(type(data), (list, dict)) else None


def _object_getter(value: object, shape: Shape) -> Get | None:
    found: object = object.__getattribute__(value, "__dict__") if shape.has_dict else None
    fields: Any = found
    kind = type(found)
    if kind is not dict:
        return partial(_computed, value, shape.computed) if shape.computed else None
    get = _dict_getter(fields)
    if get("status_code") is not None and (get("headers") is not None or "headers" in shape.computed):
        return None  # an HTTP response of requests, Starlette ...
    return partial(_field, value, get, shape.computed) if shape.computed else get


def _field(value: object, get: Get, computed: Mapping[str, Any], name: str) -> object:
    found = get(name)
    return _computed(value, computed, name) if found is None else found


def _computed(value: object, computed: Mapping[str, Any], name: str) -> object:
    how = computed.get(name)
    if how is None:
        return None
    if type(how) is tuple:
        return _follow(value, cast("Any", how))
    try:
        return how.__get__(value, type(value))
    except Exception:  # a property may refuse: the text of an image node, of a blocked reply ...
        return None


def _follow(value: object, path: tuple[str, ...]) -> object:
    """Return the nested field that a property returns; None if reading it would run code."""
    for name in path:
        get = getter(value)
        value = None if get is None else get(name)
    return value


def peel(value: object) -> object:
    """Return the object inside the transparent proxies that instrumentation puts around objects."""
    for _ in range(MAX_DEPTH):
        if shape_of(type(value)).kind != "proxy":
            break
        value = _WRAPPED.__get__(value)
    return value


def items_of(value: object, limit: int) -> list[object] | None:
    """Return the first *limit* items of a list or sequence; None for other values, such as iterators."""
    plain: Any = value
    kind = type(value)
    if kind is list or kind is tuple:
        return plain if kind is list and len(plain) <= limit else list(plain[:limit])
    if issubclass(kind, list):
        return list(islice(_list_iter(plain), limit))
    if issubclass(kind, tuple):
        return list(islice(_tuple_iter(plain), limit))
    what = shape_of(kind).kind
    if what == "sequence":
        return [plain[index] for index in range(min(len(plain), limit))]
    return items_of(_data_of(plain), limit) if what == "user_list" else None


def is_list(value: object) -> TypeGuard[list[object]]:
    """Return whether *value* is a plain list."""
    kind = type(value)
    return kind is list


def last_items(value: object, limit: int) -> list[object] | None:
    """Return the last *limit* items of a list or sequence, last first; None as for `items_of`."""
    plain: Any = value
    kind = type(value)
    if kind is list or kind is tuple:
        return list(plain[: -limit - 1 : -1])
    items = items_of(plain, _MAX_ITEMS)
    return None if items is None else items[: -limit - 1 : -1]


def values_of(value: object, limit: int) -> list[object]:
    """Return the first *limit* values of a dictionary; an empty list for other values."""
    if shape_of(type(value)).kind != "dict":
        return []
    return list(islice(_dict_values(value), limit))


def text_of(value: object) -> str | None:
    """Return *value* if it is a string, a plain copy if it is of a class derived from str, else None."""
    kind = type(value)
    if kind is str:
        return cast(str, value)
    # A derived class may lie about its length or its characters; str's own method gives those it really holds.
    return str.__str__(cast(str, value)) if issubclass(kind, str) else None


def number_of(value: object) -> float | None:
    """Return a finite number as float, also NumPy's scalars and Decimal; None for truth values, tensors and others."""
    plain: Any = value
    kind = type(value)
    if kind is not float:
        if not shape_of(kind).is_number:
            return None
        # A derived class may have made its conversion anything.
        base: Any = float if issubclass(kind, float) else int if issubclass(kind, int) else None
        plain = float(plain) if base is None else base.__float__(plain)
    return plain if math.isfinite(plain) else None


def _is_scalar(kind: type[Any]) -> bool:
    if issubclass(kind, (int, float)):
        return not issubclass(kind, bool)
    # An array of NumPy has a length, its scalars have none. A tensor's __float__ would wait for the accelerator.
    if kind is Decimal:
        return True
    return module_of(kind) == "numpy" and not _is_heap_type(kind) and not _has_method(kind, "__len__")


def whole_of(value: object) -> int | None:
    """Return *value* if it is an int >= 0, else None."""
    return value if type(value) is int and 0 <= value <= sys.maxsize else None


def label_of(value: object) -> str | None:
    """Return a short identifier as text: a string, an integer, a UUID or an enumeration of them; else None."""
    if type(value) is str:
        return value if 0 < len(value) <= MAX_LABEL_CHARS else None
    plain: Any = value
    if issubclass(type(plain), Enum) and not issubclass(type(plain), str):
        plain = object.__getattribute__(plain, "__dict__").get("_value_")
    if type(plain) is int:
        return str(plain) if abs(plain) <= sys.maxsize else None
    if type(plain) is UUID:
        return str(plain)
    text = text_of(plain)
    return text if text and len(text) <= MAX_LABEL_CHARS else None


def first(get: Get, names: tuple[str, ...], read: Callable[[object], T | None]) -> T | None:
    """Return the first value under one of *names* that *read* understands; None if there is none."""
    for name in names:
        found = get(name)
        if found is not None and (value := read(found)) is not None:
            return value
    return None
