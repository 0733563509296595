"""Documentation of what is written in C, read from modules that load without side effects."""

from __future__ import annotations

import importlib
import inspect
import re
import sys
from collections.abc import Iterator
from types import BuiltinFunctionType, ClassMethodDescriptorType, MethodDescriptorType, ModuleType

from ragtrace.demo.passages import Entry, Parameter

_MODULES = (
    "builtins array atexit binascii bisect cmath collections datetime decimal errno faulthandler functools gc"
    " hashlib heapq io itertools json marshal math operator os pickle random re select signal socket statistics"
    " string struct sys threading time tracemalloc unicodedata weakref zlib"
).split()
_FUNCTIONS = (BuiltinFunctionType, MethodDescriptorType, ClassMethodDescriptorType)
_DEFAULT_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")


def builtin_entries() -> Iterator[Entry]:
    """Every documented function, class and method that a module of the list offers and that is not Python source."""
    seen: set[int] = set()  # statistics.groupby is itertools.groupby
    for name in sorted(_MODULES, key=_borrows):
        try:
            module = importlib.import_module(name)
        except ImportError:  # a platform may lack one (select, signal)
            continue
        yield from _module_entries(module, seen)


def _borrows(name: str) -> bool:
    """Modules written in Python take what they have in C from others, so these come last."""
    return name not in sys.builtin_module_names and f"_{name}" not in sys.builtin_module_names


def _module_entries(module: ModuleType, seen: set[int]) -> Iterator[Entry]:
    prefix = "" if module.__name__ == "builtins" else f"{module.__name__}."
    for name, value in sorted(vars(module).items()):
        if name.startswith("_") or id(value) in seen or not _is_home(module.__name__, value):
            continue
        if isinstance(value, type):
            seen.add(id(value))
            yield from _class_entries(prefix + name, value)
        elif isinstance(value, _FUNCTIONS):
            seen.add(id(value))
            yield from _entry(prefix + name, "function", value)


def _is_home(module: str, value: object) -> bool:
    """Whether *module* is where a user finds *value*: not what it took from another module of the list."""
    home = str(getattr(value, "__module__", "") or "").lstrip("_").split(".")[0]
    return module == "builtins" or home == module or home not in _MODULES


def _class_entries(name: str, cls: type) -> Iterator[Entry]:
    yield from _entry(name, "class", cls)
    for part, value in sorted(vars(cls).items()):
        if not part.startswith("_") and isinstance(value, _FUNCTIONS):
            yield from _entry(f"{name}.{part}", "method", value)


def _entry(name: str, kind: str, value: object) -> Iterator[Entry]:
    doc = getattr(value, "__doc__", None)
    if isinstance(doc, str) and doc.strip():
        signature, parameters = _signature(value)
        title = name if signature is None else f"{name}({signature})"
        yield Entry(name, kind, title, inspect.cleandoc(doc), parameters)


def _signature(value: object) -> tuple[str | None, tuple[Parameter, ...]]:
    """Its parameters where C code declares them; (None, ()) where it does not."""
    try:
        signature = inspect.signature(value)  # type: ignore[arg-type]
    except (ValueError, TypeError, AttributeError, NameError, SyntaxError):  # the declared text is evaluated
        return None, ()
    kept = [item.replace(annotation=item.empty) for item in signature.parameters.values() if item.name != "self"]
    parameters = tuple(Parameter(item.name, _default(item)) for item in kept)
    shown = str(signature.replace(parameters=kept, return_annotation=signature.empty))
    return _DEFAULT_ADDRESS.sub("", shown)[1:-1], parameters


def _default(parameter: inspect.Parameter) -> str | None:
    return None if parameter.default is parameter.empty else repr(parameter.default)
