"""Reads fields of an application's objects without running the objects' code or consuming streams.

A class is examined once and remembered as a `Shape`. Of an instance we read its dictionary, its slots, and the
properties of libraries we know. No code of any other class is run: it may wait for a database, never end, or belong to
the thread that made it. A property that only returns a field (`return self._text`) is understood from its bytecode and
read as that field. Streams and HTTP responses stay untouched too: reading their text may consume it. `type(x)` is used
instead of `isinstance`, which believes what an object says about its own class.
"""

from __future__ import annotations

import dis
import math
import sys
from collections import UserDict, UserList, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
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
from typing import Any, Final, Literal, NamedTuple, TypeAlias, TypeGuard, TypeVar, cast
from uuid import UUID

from ragtrace.capture import field_names
from ragtrace.system.faults import faults

T = TypeVar("T")
Get: TypeAlias = Callable[[str], object]
"""Function that returns the field of a given name, or None if there is no such field."""
Kind: TypeAlias = Literal[
    "text", "list", "tuple", "sequence", "dict", "mapping", "object", "proxy", "user_list", "user_dict", "closed"
]
Stream: TypeAlias = Literal["", "plain", "async", "both", "iterable", "manager", "async manager"]

MAX_DEPTH = 4
MAX_RECORDS = 300
"""Largest number of records searched for one text. A record that contains itself under many names has no end."""
MAX_LABEL_CHARS = 1_000
_MAX_SHAPES = 1_000
_MAX_ITEMS = 10_000
_MAX_PARTS = 1_000
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
ABSENT: Final = object()
"""What `static_attribute` returns for an attribute that a class does not have."""
_PROXY_HOOKS = ("__wrapped__", "__wrapped_get__", "__wrapped_factory__")
# The built-in classes' own methods: a derived class may override them with methods that lie, raise or write.
_dict_get: Any = vars(dict)["get"]
_dict_values: Any = vars(dict)["values"]
_dict_items: Any = vars(dict)["items"]
_dict_iter: Any = vars(dict)["__iter__"]
_list_iter: Any = vars(list)["__iter__"]
_tuple_iter: Any = vars(tuple)["__iter__"]
_STREAMING_RESPONSES: Final = frozenset({"StreamingResponse", "EventSourceResponse", "StreamingHttpResponse"})
_of_class: Any = {name: type.__dict__[name].__get__ for name in ("__mro__", "__dict__", "__flags__", "__module__")}
"""Readers of the attributes of a class that a metaclass cannot intercept."""


class SearchBudget:
    """Limit on the number of nested dicts and objects that are searched in one value or one stream."""

    left: int = MAX_RECORDS
    """Number of records that may still be searched without finding anything."""


class Shape(NamedTuple):
    """Description of one class: which fields of its instances can be read safely."""

    kind: Kind
    computed: Mapping[str, Any] = MappingProxyType({})
    """Descriptor of each readable property or slot by name, or the path of fields that a property returns."""
    has_dict: bool = False
    is_plain: bool = False
    """Whether all fields are in the instance's dictionary, and reading that dictionary runs no code of the class."""
    is_number: bool = False
    is_passage: bool = False
    """Whether the class name is that of a piece of a document, which is never an answer."""
    is_foreign: bool = False
    """Whether there may be more fields, readable only by running code of an unknown class."""
    stream: Stream = ""
    """Kind of iterator, such as an OpenAI stream or a `map`, of boto3's `EventStream`, or of context manager that makes
    a stream; "" for generators, files, cursors and all other values."""
    is_late: bool = False
    """Whether the class is a response whose text the application reads later, as in LlamaIndex."""
    extras: Any = None
    """Descriptor of the slot in which a pydantic model keeps undeclared fields; None: the class has none."""


_NAMED_FIELD: object = vars(Shape)["kind"]
_PLAIN_DESCRIPTORS = frozenset(map(id, (MemberDescriptorType, GetSetDescriptorType, type(_NAMED_FIELD))))
"""Identities of the types of descriptors whose reading runs no Python code; the last reads a named tuple's field."""


# --- Classes ----------------------------------------------------------------------------------------------------------


def class_order(cls: type[Any]) -> tuple[type[Any], ...]:
    """Return the method resolution order of the class *cls*: the class itself, followed by its bases."""
    order: tuple[type[Any], ...] = _of_class["__mro__"](cls)
    return order


def static_attribute(cls: type[Any], name: str) -> Any:
    """Return the attribute *name* as written in *cls* or its bases, without running a descriptor or metaclass."""
    for owner in _of_class["__mro__"](cls):
        found = _of_class["__dict__"](owner).get(name, ABSENT)
        if found is not ABSENT:
            return found
    return ABSENT


def _has(cls: type[Any], *names: str) -> bool:
    """Return whether the class *cls* or one of its bases has any of the attributes *names*."""
    return any(static_attribute(cls, name) is not ABSENT for name in names)


def _has_method(cls: type[Any], name: str) -> bool:
    return callable(static_attribute(cls, name))


def _derives(cls: type[Any], base: object) -> bool:
    """Return whether *cls* is derived from *base*, without running code of abstract classes."""
    return any(each is base for each in _of_class["__mro__"](cls))


def _is_heap_type(cls: type[Any]) -> bool:
    # Py_TPFLAGS_HEAPTYPE: a class made by a class statement, or by an extension like one
    return bool(_of_class["__flags__"](cls) & (1 << 9))


def _is_plain_descriptor(attribute: object) -> bool:
    return id(type(attribute)) in _PLAIN_DESCRIPTORS


def module_of(cls: type[Any]) -> str:
    """Return the name of the module in which *cls* is defined, or "" if it is not known."""
    name: object = _of_class["__module__"](cls)
    return name if type(name) is str else ""


def type_name_of(cls: type[Any]) -> str:
    """Return the name of the class *cls* without running code of its metaclass."""
    name: str = type.__dict__["__name__"].__get__(cls)
    return name


def full_name_of(cls: type[Any]) -> str:
    """Return the qualified name of the class *cls*, with its module unless it is a builtin.

    No code of its metaclass is run.
    """
    name: str = type.__dict__["__qualname__"].__get__(cls)
    module = module_of(cls)
    return name if module in ("builtins", "") else f"{module}.{name}"


def is_mock(cls: type[Any]) -> bool:
    """Return whether *cls* is a mock class, whose instances seem to have every attribute."""
    return module_of(cls) == "unittest.mock"


def is_known(cls: type[Any]) -> bool:
    """Return whether *cls* belongs to a well-known library, so that its code may be run to read its objects.

    The class must be found in that library under its own name.
    """
    module = module_of(cls)
    if module.partition(".")[0] not in field_names.LIBRARIES:
        return False
    found = sys.modules.get(module)
    name, bracket, _ = type_name_of(cls).partition("[")  # pydantic makes a parametrised generic outside its module
    here = vars(found).get(name) if type(found) is ModuleType else None
    return here is cls or (bool(bracket) and here is not None)


def shape_of(cls: type[Any]) -> Shape:
    """Return the `Shape` of the class *cls*: which fields of its instances can be read safely."""
    known = _shapes.get(id(cls))
    if known is None:
        if len(_shapes) >= _MAX_SHAPES:
            _shapes.clear()
        try:
            shape = _examine(cls)
        except Exception:  # a metaclass that raises when the class is examined
            shape = Shape("closed")
        known = _shapes[id(cls)] = (cls, shape)
    return known[1]


_shapes: dict[int, tuple[type[Any], Shape]] = {}
"""Shape by identity of the class, as a metaclass may refuse hashing. The class is kept, so its id is not reused."""


def _examine(cls: type[Any]) -> Shape:
    kind = _kind_of(cls)
    has_dict = _is_plain_descriptor(static_attribute(cls, "__dict__"))
    is_number = _is_number(cls)
    if kind == "object":
        computed, is_foreign = _computed_fields(cls)
        is_passage = type_name_of(cls).endswith(_PASSAGE_NAMES)
        slot, config = static_attribute(cls, "__pydantic_extra__"), static_attribute(cls, "model_config")
        allows_extras = type(config) is dict and _dict_getter(config)("extra") == "allow"
        has_extras = has_dict and allows_extras and _is_plain_descriptor(slot)
        extras = slot if has_extras else None
        is_plain = has_dict and not computed and not _overrides_attributes(cls) and extras is None
        is_late = _has(cls, "response_gen") and _has(cls, "async_response_gen")
        is_late = _can_be_proxied(cls) and (is_late or (_has(cls, "stream_events") and is_known(cls)))
        return Shape(
            kind, computed, has_dict, is_plain, is_number, is_passage, is_foreign, _later_stream(cls), is_late, extras
        )
    scalars: Any = _SCALARS  # untyped: narrowing `cls` to these types would leave its type partially unknown
    is_foreign = kind == "closed" and _has_method(cls, "__getitem__") and not issubclass(cls, scalars)
    is_stream = _has(cls, "__next__", "__anext__") and not _has(cls, "read", "execute", "fetchone", "fetchall")
    if kind != "proxy":
        is_stream = is_stream and not _has(cls, "__wrapped__") and _can_be_proxied(cls)
    is_stream = is_stream and (_is_heap_type(cls) or module_of(cls) in ("builtins", "itertools"))
    stream: Stream = "plain" if is_stream else ""
    if is_stream and _has(cls, "__anext__"):
        stream = "both" if _has(cls, "__next__") else "async"
    return Shape(kind, {}, has_dict, False, is_number, False, is_foreign, stream)


def _later_stream(cls: type[Any]) -> Stream:
    """Return the kind of stream that an instance of *cls* makes when it is iterated or entered."""
    if module_of(cls) == "botocore.eventstream" and type_name_of(cls) == "EventStream":
        return "iterable"
    if not type_name_of(cls).endswith("StreamManager") or not is_known(cls):
        return ""
    return "manager" if _has_method(cls, "__enter__") else "async manager" if _has_method(cls, "__aenter__") else ""


def event_stream_in(response: dict[str, object]) -> str | None:
    """Return the key of the stream of events in a *response* of boto3, or None if there is none."""
    if "ResponseMetadata" not in response:
        return None
    return next((name for name, value in response.items() if shape_of(type(value)).stream == "iterable"), None)


def _kind_of(cls: type[Any]) -> Kind:
    for base, kind in _BUILT_IN:
        if issubclass(cls, base):
            return "object" if kind == "tuple" and _has(cls, "_fields") else kind
    if (proxy := _object_proxy()) and _derives(cls, proxy):
        eager = all(static_attribute(cls, name) is static_attribute(proxy, name) for name in _PROXY_HOOKS)
        return "proxy" if eager else "closed"
    # A lazy proxy makes its object when it is read. Instructor's models have the class that they were made of.
    if _has(cls, "__wrapped__") and not issubclass(type(static_attribute(cls, "__wrapped__")), type):
        return "closed"
    # Of werkzeug, instances alone have headers.
    is_response = _has(cls, "headers", "get_data") and _has(cls, "status_code", "status")
    if is_response or any(_has_method(cls, name) for name in _ONE_SHOT):
        return "closed"
    if _derives(cls, UserList):
        return "user_list"
    if _derives(cls, UserDict):
        return "user_dict"
    if not _has_method(cls, "__getitem__"):
        return "object"
    if _has_method(cls, "keys"):
        return "mapping" if cls is MappingProxyType or is_known(cls) else "closed"
    if not _has_method(cls, "__len__"):
        return "object"
    # Unknown code is never iterated. A Django query set has all methods of a sequence but is not registered as one;
    # indexing it would query the database.
    if cls is deque or (is_known(cls) and issubclass(cls, Sequence)):
        return "sequence"
    return "closed" if _derives(cls, Sequence) else "object"


def _overrides_attributes(cls: type[Any]) -> bool:
    return static_attribute(cls, "__getattribute__") is not vars(object)["__getattribute__"]


def _can_be_proxied(cls: type[Any]) -> bool:
    """Return whether an instance of *cls* can be wrapped in a proxy without running code of its class."""
    if _overrides_attributes(cls) and _is_heap_type(cls):
        return False
    return all(type(static_attribute(cls, name)) is not property for name in ("__module__", "__doc__", "__class__"))


def _is_number(cls: type[Any]) -> bool:
    if issubclass(cls, (int, float)):
        return not issubclass(cls, bool)
    # NumPy's arrays have a length, its scalars have none. A tensor's __float__ would wait for the accelerator.
    return cls is Decimal or (module_of(cls) == "numpy" and not _is_heap_type(cls) and not _has_method(cls, "__len__"))


def _computed_fields(cls: type[Any]) -> tuple[dict[str, Any], bool]:
    """Return the slots and properties of *cls* that are safe to read, and whether there are unsafe properties."""
    computed: dict[str, Any] = {}
    is_foreign = False
    known = is_known(cls)
    for name in field_names.VOCABULARY:
        found = static_attribute(cls, name)
        if _is_plain_descriptor(found) or (type(found) is property and known):
            computed[name] = found
        elif type(found) is property:
            path = _returned_path(found)
            if path is None:
                is_foreign = True
                continue
            computed[name] = path
            field = static_attribute(cls, path[0])
            if _is_plain_descriptor(field):
                computed[path[0]] = field
    return computed, is_foreign


def _returned_path(found: property) -> tuple[str, ...] | None:
    """Return the path of fields that a simple property returns, such as `return self.node.text`.

    None if the property does anything else.
    """
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


def _object_proxy() -> Any:
    """Return the class `ObjectProxy` of the library wrapt, or None if wrapt has not been imported.

    The decorators import wrapt. An import here would take 20 ms of `configure`, and no object is a proxy of wrapt's
    before wrapt is imported.
    """
    return getattr(sys.modules.get("wrapt"), "ObjectProxy", None)


# --- Fields of an instance --------------------------------------------------------------------------------------------


def holds_stream(value: object) -> bool:
    """Return whether *value* is a response with a stream in its field `response_gen`, as in LlamaIndex.

    Other instrumentations replace the generator there by a proxy or by an iterator of their own.
    """
    shape = shape_of(type(value))
    fields = _own_dict(value, shape) if shape.kind == "object" else None
    inner = unwrap_proxies(None if fields is None else fields.get("response_gen"))
    kind = type(inner)
    return kind is GeneratorType or kind is AsyncGeneratorType or bool(shape_of(kind).stream)


def is_late(value: object) -> bool:
    """Return whether *value* is a response whose text is read later by a method call, as in LlamaIndex."""
    if not shape_of(type(value)).is_late:
        return False
    get = getter(value)
    # LlamaIndex writes the text piece by piece on a thread of its own: what is there may be its beginning.
    return get is None or not text_of(get("response")) or get("is_writing_to_memory") is True


def _own_dict(value: object, shape: Shape) -> dict[str, object] | None:
    """Return the `__dict__` of the object *value*, or None if it is missing or not a plain dictionary."""
    fields: Any = object.__getattribute__(value, "__dict__") if shape.has_dict else None
    kind = cast("type[object]", type(fields))
    return fields if kind is dict else None


def own_fields(value: object) -> dict[str, object] | None:
    """Return the `__dict__` of the object *value*, or None, without running code of its class."""
    cls = type(value)
    shape = shape_of(cls)
    if not shape.has_dict and shape.kind == "closed" and _is_plain_descriptor(static_attribute(cls, "__dict__")):
        shape = shape._replace(has_dict=True)  # a stream or response: of its attributes only the dictionary is read
    return _own_dict(value, shape)


def plain_fields(value: object) -> dict[str, object] | None:
    """Return the dictionary that has all fields of *value*, or None if some fields are kept elsewhere.

    This is *value* itself or its `__dict__`.
    """
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
    """Return a function that looks up fields of *value* by name, or None if no field is safe to read."""
    plain: Any = value
    kind = type(value)
    if kind is dict:
        return _dict_getter(plain)
    shape = shape_of(kind)
    if shape.kind == "dict":
        return _dict_getter(plain)
    if shape.kind == "object":
        return _object_getter(plain, shape)
    if shape.kind == "mapping":
        return _mapping_getter(plain)
    return getter(_inner_data(plain)) if shape.kind == "user_dict" else None


def _dict_getter(fields: Any) -> Get:
    """Return a look-up function for a dictionary, which ignores keys that are not plain strings.

    Comparing other keys would run foreign code.
    """
    kind = cast("type[object]", type(fields))
    for key in fields if kind is dict else _dict_iter(fields):
        if type(key) is not str:
            fields = {name: each for name, each in islice(_dict_items(fields), _MAX_ITEMS) if type(name) is str}
            kind = dict
            break
    return fields.get if kind is dict else partial(_dict_get, fields)


def _mapping_getter(value: Any) -> Get | None:
    if type(value) is MappingProxyType:  # the mapping behind the proxy may be of any class
        inner = get_referents(value)
        return getter(inner[0]) if inner else None
    try:
        known = frozenset(name for name in islice(value.keys(), _MAX_ITEMS) if type(name) is str)
    except Exception:  # the class only looks like a mapping
        return None

    def get(name: str) -> object:
        try:
            return value[name] if name in known else None
        except Exception:  # the value cannot be read now
            return None

    return get


def fields_of(value: object) -> dict[str, object] | None:
    """Return the public fields of a dict or an object by name, or None if it has none that are safe to read."""
    plain: Any = value
    cls = type(value)
    shape = shape_of(cls)
    if shape.kind == "dict":
        named = ((label_of(key), each) for key, each in _dict_items(plain))
        return {name: each for name, each in named if name is not None}
    if shape.kind == "user_dict" or cls is MappingProxyType:
        inner = get_referents(value) if cls is MappingProxyType else [_inner_data(value)]
        return fields_of(inner[0]) if inner and inner[0] is not None else None
    get = getter(value)
    if shape.kind == "mapping" and get is not None:  # a row of sqlite3 or asyncpg
        return {name: get(name) for name in islice(plain.keys(), _MAX_ITEMS) if type(name) is str}
    found = dict(_own_dict(value, shape) or {})
    if shape.kind != "object" or (found and get is None):  # of an HTTP response, nothing is read
        return None
    if shape.extras is not None and type(extras := shape.extras.__get__(value)) is dict:
        found.update(cast("dict[str, object]", extras))
    for owner in class_order(cls):
        for name, attribute in _of_class["__dict__"](owner).items():
            # Before Python 3.11.3, a dataclass with slots has the `__weakref__` of a class that is no more.
            if type(name) is str and name[:1] != "_" and name not in found and _is_plain_descriptor(attribute):
                with suppress(AttributeError):  # a slot may be empty
                    found[name] = attribute.__get__(value, cls)
    return {name: each for name, each in found.items() if type(name) is str and name[:1] != "_"} or None


def _inner_data(value: object) -> object:
    """Return the list or dictionary that a `UserList` or `UserDict` holds."""
    data = (_own_dict(value, shape_of(type(value))) or {}).get("data")
    return data if issubclass(type(data), (list, dict)) else None


def _object_getter(value: object, shape: Shape) -> Get | None:
    fields = _own_dict(value, shape)
    if fields is None:
        return partial(_field, value, None, shape.computed) if shape.computed else None
    get = _dict_getter(fields)
    if shape.extras is not None:  # pydantic keeps what a model does not declare in a slot
        extras: object = shape.extras.__get__(value)
        if type(extras) is dict and extras:
            get = _dict_getter({**cast("dict[str, object]", extras), **fields})
    if get("status_code") is not None and (get("headers") is not None or "headers" in shape.computed):
        return None  # an HTTP response, as of requests or Starlette
    return partial(_field, value, get, shape.computed) if shape.computed else get


def _field(value: object, get: Get | None, computed: Mapping[str, Any], name: str) -> object:
    """Return the field *name* of the object *value*, from its dictionary or else from a slot or property.

    *get* looks a name up in the dictionary; *computed* holds the descriptors and paths of the others.
    """
    found = None if get is None else get(name)
    how = computed.get(name)
    if found is not None or how is None:
        return found
    if type(how) is tuple:
        inner: object = value
        for step in cast("tuple[str, ...]", how):
            look_up = getter(inner)
            inner = None if look_up is None else look_up(step)
        return inner
    try:
        return how.__get__(value, type(value))
    except Exception:  # a property may refuse: the text of an image node, of a blocked reply
        return None


def unwrap_proxies(value: object) -> object:
    """Return the object inside the transparent proxies that instrumentation libraries put around it."""
    for _ in range(MAX_DEPTH):
        if shape_of(type(value)).kind != "proxy":
            break
        value = static_attribute(_object_proxy(), "__wrapped__").__get__(value)
    return value


# --- Items, texts, numbers --------------------------------------------------------------------------------------------


def items_of(value: object, limit: int) -> list[object] | None:
    """Return the first *limit* items of a list or sequence, or None for other values, such as iterators."""
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
    return items_of(_inner_data(plain), limit) if what == "user_list" else None


def first_item(value: object) -> object:
    """Return the first item of a list or sequence, or None if there is no item or *value* is something else."""
    return next(iter(items_of(value, 1) or ()), None)


def is_list(value: object) -> TypeGuard[list[object]]:
    """Return whether *value* is a `list`, and not an instance of a subclass."""
    kind = type(value)
    return kind is list


def last_items(value: object, limit: int) -> list[object] | None:
    """Return the last *limit* items of a list or sequence in reverse order, or None for other values."""
    plain: Any = value
    kind = type(value)
    if kind is list or kind is tuple:
        return list(plain[: -limit - 1 : -1])
    items = items_of(plain, _MAX_ITEMS)
    return None if items is None else items[: -limit - 1 : -1]


def values_of(value: object, limit: int) -> list[object]:
    """Return the first *limit* values of a dictionary, or an empty list for other values."""
    return list(islice(_dict_values(value), limit)) if shape_of(type(value)).kind == "dict" else []


def entries_of(value: object, limit: int) -> list[tuple[object, object]]:
    """Return the first *limit* keys and values of a dictionary, or an empty list for other values."""
    return list(islice(_dict_items(value), limit)) if shape_of(type(value)).kind == "dict" else []


def text_of(value: object) -> str | None:
    """Return *value* as a plain `str` if it is a string or an instance of a subclass of `str`, else None."""
    kind = type(value)
    if kind is str:
        return cast(str, value)
    # A derived class may lie about length or characters; str's own method returns the characters that are there.
    return str.__str__(cast(str, value)) if issubclass(kind, str) else None


def number_of(value: object) -> float | None:
    """Return *value* as a float if it is a finite number, else None.

    NumPy's scalars and Decimal are numbers, truth values and tensors are not.
    """
    plain: Any = value
    kind = type(value)
    if kind is not float:
        if not shape_of(kind).is_number:
            return None
        # A derived class may override its conversion, so the built-in class converts.
        base: Any = float if issubclass(kind, float) else int if issubclass(kind, int) else None
        try:
            plain = float(plain) if base is None else base.__float__(plain)
        except (ArithmeticError, TypeError, ValueError):  # too large, a signalling NaN, a date of NumPy
            return None
    return plain if math.isfinite(plain) else None


def whole_of(value: object) -> int | None:
    """Return *value* if it is a non-negative integer, else None."""
    return value if type(value) is int and 0 <= value <= sys.maxsize else None


def label_of(value: object) -> str | None:
    """Return *value* as text if it is a short identifier (string, integer, UUID or enumeration member), else None."""
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
    """Read the fields *names* in order, and return the first value that *read* converts, or None."""
    for name in names:
        found = get(name)
        if found is not None and (value := read(found)) is not None:
            return value
    return None


# --- Chat messages ----------------------------------------------------------------------------------------------------


def parts_text(value: object, separator: str) -> str | None:
    """Return the joined texts of *value*, the content parts of a chat message, or None if they have no text."""
    texts: list[str] = []
    for part in items_of(value, _MAX_PARTS) or ():
        get = getter(part)
        text = text_of(part) if get is None else _part_text(get)
        if text is not None:
            texts.append(text)
    return separator.join(texts) if texts else None


def _part_text(get: Get) -> str | None:
    """Return the text of one part of a chat message. Reasoning, images and tool calls are no text of the message."""
    kind = get("type")
    if kind is not None:
        kind = label_of(kind)
        if kind == field_names.REFUSAL:
            return text_of(get(kind))
        return text_of(get("text")) if kind in field_names.TEXT_PARTS else None
    if get("thought") is True:  # of Gemini
        return None
    cited = getter(get("citationsContent"))  # of Amazon Bedrock: what the model says, beside what it cites for it
    if cited is not None:
        inner = (getter(each) for each in items_of(cited("content"), _MAX_PARTS) or ())
        return "".join(text for look in inner if look is not None and (text := text_of(look("text"))) is not None)
    return text_of(get("text"))


def role_of(get: Get) -> str | None:
    """Return the role of a chat message, such as "user", from whichever field the message's library uses.

    OpenAI, LlamaIndex and Haystack have a role, LangChain has a type.
    """
    return first(get, ("role", "_role", "type"), label_of)


def content_of(get: Get, separator: str) -> str | None:
    """Return the text of a chat message, joined if the message consists of several parts."""
    return first(get, ("content", "text", "parts"), partial(text_or_parts, separator=separator))


def text_or_parts(value: object, separator: str) -> str | None:
    """Return *value* if it is a text, the joined texts if it is a list of content parts, or None."""
    text = text_of(value)
    return parts_text(value, separator) if text is None else text


def last_message(value: object, roles: frozenset[str]) -> object | None:
    """Return a conversation's last message with one of the given roles, or None if there is none."""
    return next(messages_of(value, roles), None)


def messages_of(value: object, roles: frozenset[str]) -> Iterator[object]:
    """Return the messages of a conversation with one of the given roles, the newest first."""
    # Number of messages at the end of a conversation that are searched; a call is about the last turn.
    for message in last_items(value, 100) or ():
        get = getter(message)
        if is_role_and_text(message, roles) if get is None else role_of(get) in roles:
            yield message


def is_role_and_text(message: object, roles: frozenset[str]) -> bool:
    """Return whether *message* is a (role, text) pair with one of *roles*, as LangChain accepts it."""
    items = items_of(message, 3) if shape_of(type(message)).kind == "tuple" else None
    return items is not None and len(items) == 2 and text_of(items[0]) in roles


# --- What could not be read -------------------------------------------------------------------------------------------


def describe(value: object) -> str:
    """Return the type name of *value* for a log line. For a list or tuple, include the type of the first item."""
    kind = type(value)
    items: Any = value if kind is list or kind is tuple else ()
    first: object = items[0] if items else None
    return f"{type_name_of(kind)} of {type_name_of(type(first))}" if items else type_name_of(kind)


def unreadable_class(value: object) -> str | None:
    """Return the class name of a value whose fields cannot be read without running its own code, else None.

    It is the class of *value*, or of the first item of a list or tuple.
    """
    kind = type(value)
    items: Any = value if kind is list or kind is tuple else ()
    for each in (value, *items[:1]):
        cls = cast("type[object]", type(each))
        if shape_of(cls).is_foreign:
            return type_name_of(cls)
    return None


def _is_streaming_response(value: object) -> bool:
    """Return whether *value* is an HTTP response of Starlette, FastAPI, sse-starlette or Django that streams."""
    return any(type_name_of(each) in _STREAMING_RESPONSES for each in _of_class["__mro__"](type(value)))


def warn_unread(name: str) -> None:
    """Count an object of the unknown class *name* as not read, and log a warning the first time.

    Reading it would run code of that class.
    """
    faults.warn_once(
        "capture.unread",
        "ragtrace did not read an object of class %s: its text comes from a property or an index that would run code of"
        " the application, which takes time and may change something. Say where the text is with a function, such as"
        " documents=lambda hits: [hit.text for hit in hits], or give the class a plain field `text`",
        name,
    )


def warn_unknown_stream(function_name: str, why: str) -> None:
    """Log, once per function, that the answer of a stream is not known, as it has *why*. Never raises."""
    faults.warn_once(
        f"capture.answer:{function_name}",
        "ragtrace found no answer in the stream of %s, which has %s; give answer=, a function that returns the text of "
        "a piece, and None for a piece that is none of the answer, or reduce=, which returns the text of the list of "
        "all pieces",
        function_name,
        why,
    )


def warn_not_reduced(function_name: str, made: object) -> None:
    """Log, once per function, that *made*, which `reduce=` has made of a stream, is no answer. Never raises."""
    faults.warn_once(
        f"capture.answer:{function_name}",
        "ragtrace found no answer in the %s that reduce= of %s has returned; return the text",
        describe(made),
        function_name,
    )


def warn_not_found(
    what: Literal["query", "documents", "contexts", "answer", "result"], function_name: str, value: object
) -> None:
    """Log, once per function, that no query, documents or answer were found in *value*. Never raises.

    The log line names the argument of the decorator that would locate them, or the function to decorate instead.
    """
    if what == "answer" and _is_streaming_response(value):
        faults.warn_once(
            f"capture.{what}:{function_name}",
            "ragtrace found no %s in the %s of %s: it is sent after the function has returned. Decorate the generator "
            "whose pieces it sends, in place of this function",
            what,
            describe(value),
            function_name,
        )
        return
    if (name := unreadable_class(value)) is not None:
        warn_unread(name)
    faults.warn_once(
        f"capture.{what}:{function_name}",
        "ragtrace found no %s in the %s of %s; say where it is with %s= (a name, a path or a function)",
        what,
        describe(value),
        function_name,
        what,
    )
