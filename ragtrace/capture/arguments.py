"""Query, documents, session and settings out of the arguments of a decorated function.

Where they are is worked out once, when the function is decorated; a call then costs a few look-ups.
"""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from types import MethodType
from typing import Any, Final, Literal, NamedTuple, TypeAlias, cast

from ragtrace.capture import find_documents, find_prompt, find_query, warn_not_found
from ragtrace.capture.fields import label_of, text_of, whole_of
from ragtrace.core.errors import SettingsError
from ragtrace.core.step import Message, Prompt
from ragtrace.core.types import Document
from ragtrace.system.faults import faults

Kind: TypeAlias = Literal["trace", "retrieve", "generate"]
Selector: TypeAlias = "str | Callable[[Mapping[str, Any]], object] | None"
"""A parameter's name, a dotted path from it ("request.question"), or a function of all arguments by name."""

_QUERY: Final = (
    "query", "question", "user_query", "user_question", "user_input", "search_query", "query_str", "query_text",
    "prompt", "q", "messages", "message", "user_message", "input", "inputs", "text",
)  # fmt: skip
_CONTEXTS: Final = (
    "documents", "docs", "contexts", "context", "chunks", "passages", "nodes", "source_nodes", "sources", "retrieved",
    "retrieved_docs", "retrieved_documents", "retrieved_chunks", "results", "hits",
)  # fmt: skip
_RANKED: Final = (
    "documents", "docs", "chunks", "passages", "nodes", "candidates", "results", "hits", "retrieved_docs",
    "retrieved_documents", "retrieved_chunks",
)  # fmt: skip
"""What a re-ranker is given. Not `context`: a retriever may be given one that is no document."""
_SESSION: Final = ("session_id", "conversation_id", "thread_id", "chat_id")
_TOP_K: Final = ("k", "top_k", "limit", "n_results", "num_results")
_MODEL: Final = ("model", "model_name")
_NOT_A_QUERY: Final = frozenset((*_CONTEXTS, *_RANKED, *_SESSION, *_TOP_K, *_MODEL, "self", "cls", "user_id"))
_HISTORY: Final = frozenset(
    ("history", "chat_history", "conversation_history", "message_history", "previous_messages", "past_messages")
)
"""What was said before the question, which is another argument."""

_NONE: Final = inspect.Parameter.empty
_POSITIONAL: Final = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


class Picked(NamedTuple):
    """What one call's arguments told; None where nothing was found."""

    query: str | None = None
    documents: tuple[Document, ...] | None = None
    """Documents the function was given: the contexts of a generation; what a re-ranker orders anew."""
    top_k: int | None = None
    session: str | None = None
    model: str | None = None
    user: str | None = None
    prompt: Prompt | None = None


@dataclass(frozen=True, slots=True)
class _Slot:
    """One parameter: where its value is in a call."""

    name: str
    index: int | None
    """Among the positional arguments, self or cls included; None: by keyword only."""
    default: object

    def value(self, args: Sequence[object], kwargs: Mapping[str, object], shift: int) -> object:
        """Its value; `_NONE` if the call gives none and it has no default."""
        if self.index is not None and 0 <= self.index - shift < len(args):
            return args[self.index - shift]
        return kwargs.get(self.name, self.default)


@dataclass(frozen=True, slots=True)
class _Wanted:
    """How to find one thing: in a slot, further along a path, or by the user's own function."""

    told: bool
    """By the user: then it is worth a warning if nothing is there."""
    slot: _Slot | None = None
    path: tuple[str, ...] = ()
    function: Callable[[Mapping[str, Any]], object] | None = None


_NOWHERE: Final = _Wanted(told=False)


class Arguments:
    """Finds what matters in the arguments of one function.

    Args:
        function: what is decorated: a function, method, staticmethod, classmethod, partial or an object with
            `__call__`. One without a readable signature gives nothing unless it is told by a function.
        kind: what the function does.
        query: where the question is; None: by a well-known name, else the first argument that holds a question.
        contexts: where the documents are; None: by a well-known name.
        session: where the conversation's id is; None: by a well-known name.
        user: where the user's id is; None: it is not taken.

    Raises:
        SettingsError: if a selector names a parameter that the function does not have.
    """

    __slots__ = (
        "_always_bound", "_candidates", "_contexts", "_model", "_name", "_prompts", "_query", "_session", "_slots",
        "_top_k", "_user", "can_wait",
    )  # fmt: skip

    def __init__(
        self,
        function: object,
        kind: Kind,
        *,
        query: Selector = None,
        contexts: Selector = None,
        session: Selector = None,
        user: Selector = None,
    ) -> None:
        inner, self._always_bound = _unwrapped(function)
        self._name = _name_of(inner)
        parameters = _parameters(inner)
        self._slots = _slots(parameters)
        names: Mapping[str, tuple[str, ...]] = {
            "query": _QUERY,
            "contexts": _RANKED if kind == "retrieve" else _CONTEXTS,
            "session": _SESSION,
        }
        find = partial(_find, self._name, self._slots, parameters)
        self._query = find("query", query, names["query"])
        self._contexts = find("contexts", contexts, names["contexts"])
        self._session = find("session", session, names["session"])
        self._user = find("user", user, ())
        self._top_k = find("top_k", None, _TOP_K)
        self._model = find("model", None, _MODEL)
        selectors = (self._query, self._contexts, self._session, self._user)
        self.can_wait = all(wanted.function is None for wanted in selectors)
        """Whether reading may be left to another thread: not where a user's function is to be called."""
        self._candidates = tuple(
            slot for slot in self._slots.values() if slot.index is not None and slot.name not in _NOT_A_QUERY
        )
        prompts = () if kind == "retrieve" else self._slots.values()
        self._prompts = tuple(slot for slot in prompts if slot.name not in _NOT_A_QUERY)

    def pick(
        self, args: Sequence[object], kwargs: Mapping[str, object], bound: bool, *, is_frozen: bool = False
    ) -> Picked:
        """Read one call's arguments. Never raises.

        Args:
            args: positional arguments.
            kwargs: keyword arguments.
            bound: whether *args* leaves out the first parameter, self or cls.
            is_frozen: whether the arguments come from `frozen_arguments`: then none of them can be a list of messages.
        """
        shift = 1 if bound or self._always_bound else 0
        try:
            asked = self._pick_query(args, kwargs, shift)
            # Most functions have few of these: what is nowhere is not looked for.
            return Picked(
                asked,
                None if self._contexts is _NOWHERE else self._pick_documents(args, kwargs, shift),
                None if self._top_k is _NOWHERE else whole_of(self._value(self._top_k, args, kwargs, shift)),
                None if self._session is _NOWHERE else label_of(self._value(self._session, args, kwargs, shift)),
                None if self._model is _NOWHERE else text_of(self._value(self._model, args, kwargs, shift)) or None,
                None if self._user is _NOWHERE else label_of(self._value(self._user, args, kwargs, shift)),
                None if is_frozen else self._pick_prompt(args, kwargs, shift, asked),
            )
        except Exception as error:  # the application must not see it
            faults.record(f"capture of the arguments of {self._name}", error)
            return Picked()

    def _value(self, wanted: _Wanted, args: Sequence[object], kwargs: Mapping[str, object], shift: int) -> object:
        slot = wanted.slot
        if slot is not None and not wanted.path:
            value = slot.value(args, kwargs, shift)
            return None if value is _NONE else value
        try:
            if slot is None:
                return None if wanted.function is None else wanted.function(self._bind(args, kwargs, shift))
            value = slot.value(args, kwargs, shift)
            return None if value is _NONE else follow(value, wanted.path) if wanted.path else value
        except Exception as error:  # of the user's function, or no such step on the path
            faults.record(f"a selector of {self._name}", error)
            return None

    def _bind(self, args: Sequence[object], kwargs: Mapping[str, object], shift: int) -> dict[str, object]:
        """All arguments by name, defaults included, self and cls left out."""
        values = {name: slot.value(args, kwargs, shift) for name, slot in self._slots.items()}
        own = [name for name, slot in self._slots.items() if slot.index is not None and slot.index < shift]
        bound = {name: value for name, value in values.items() if value is not _NONE and name not in own}
        return {**bound, **kwargs}

    def _pick_query(self, args: Sequence[object], kwargs: Mapping[str, object], shift: int) -> str | None:
        seen = self._value(self._query, args, kwargs, shift)
        found = find_query(seen)
        if found is not None or self._query.told:
            if found is None and seen is not None:
                warn_not_found("query", self._name, seen)
            return found
        for slot in self._candidates:
            if slot.index is None or slot.index < shift:
                continue
            value = slot.value(args, kwargs, shift)
            if value is _NONE or value is None:
                continue
            if (found := find_query(value)) is not None:
                return found
            seen = value if seen is None else seen
        if seen is not None:
            warn_not_found("query", self._name, seen)
        return None

    def _pick_prompt(
        self, args: Sequence[object], kwargs: Mapping[str, object], shift: int, asked: str | None
    ) -> Prompt | None:
        """The messages among the arguments, with the question; None if it is not plain where that belongs."""
        found: Prompt | None = None
        is_history = False
        for slot in self._prompts:
            if slot.index is not None and slot.index < shift:
                continue
            value = slot.value(args, kwargs, shift)
            if type(value) is str or value is None or value is _NONE or (given := find_prompt(value)) is None:
                continue
            if found is not None:
                return None
            found, is_history = given, slot.name in _HISTORY
        if found is None or asked is None:
            return found
        last = next((message.text for message in reversed(found.messages) if message.role == "user"), "")
        if asked in last:
            return found
        return found._replace(messages=(*found.messages, Message("user", asked))) if is_history else None

    def _pick_documents(
        self, args: Sequence[object], kwargs: Mapping[str, object], shift: int
    ) -> tuple[Document, ...] | None:
        seen = self._value(self._contexts, args, kwargs, shift)
        if seen is None:
            return None
        found = find_documents(seen)
        if found is None:
            warn_not_found("contexts", self._name, seen)
        return found


def follow(value: object, path: Iterable[str]) -> object:
    """The value at the end of *path*: a key, an index or an attribute at each step.

    Raises:
        LookupError, TypeError: if there is no such step; other errors are the object's own.
    """
    for step in path:
        value = _step(value, step)
    return value


def _step(value: Any, step: str) -> object:
    if issubclass(type(value), Mapping):
        return cast("Mapping[str, object]", value)[step]
    if step.lstrip("-").isdigit():
        return value[int(step)]
    try:
        return getattr(value, step)
    except AttributeError:
        return value[step]


def _unwrapped(function: object) -> tuple[Any, bool]:
    """The function whose signature counts, and whether its first parameter is never among the arguments."""
    if isinstance(function, (staticmethod, classmethod)):
        return cast(Any, function).__func__, False
    if isinstance(function, MethodType):
        return function.__func__, True
    routine: Any = function
    if inspect.isroutine(routine) or isinstance(routine, partial):
        return cast(Any, routine), False
    call: Any = getattr(type(function), "__call__", None)
    return (call, True) if inspect.isfunction(call) else (function, False)


def _name_of(function: Any) -> str:
    while isinstance(function, partial):
        function = cast(Any, function).func
    name: object = None
    with suppress(Exception):  # of an object that answers for its attributes itself
        name = getattr(function, "__qualname__", None)
    return name.rpartition("<locals>.")[2] if type(name) is str else type(function).__qualname__


def _parameters(function: Any) -> Mapping[str, inspect.Parameter]:
    try:
        return inspect.signature(function).parameters
    except Exception:  # no signature (C functions), or annotations that cannot be evaluated now
        return _parameters_of_code(function)


def _parameters_of_code(function: Any) -> Mapping[str, inspect.Parameter]:
    """The parameters by the compiled function alone."""
    function = inspect.unwrap(function)
    code: Any = getattr(function, "__code__", None)
    if code is None:
        return {}
    count, total = code.co_argcount, code.co_argcount + code.co_kwonlyargcount
    defaults: tuple[object, ...] = getattr(function, "__defaults__", None) or ()
    values = dict(zip(code.co_varnames[count - len(defaults) : count], defaults, strict=True))
    values.update(getattr(function, "__kwdefaults__", None) or {})
    either, keyword = inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY
    found = [
        inspect.Parameter(name, either if position < count else keyword, default=values.get(name, _NONE))
        for position, name in enumerate(code.co_varnames[:total])
    ]
    if code.co_flags & inspect.CO_VARKEYWORDS:
        found.append(inspect.Parameter("kwargs", inspect.Parameter.VAR_KEYWORD))
    return {parameter.name: parameter for parameter in found}


def _slots(parameters: Mapping[str, inspect.Parameter]) -> dict[str, _Slot]:
    slots: dict[str, _Slot] = {}
    for position, parameter in enumerate(parameters.values()):
        if parameter.kind in (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD):
            continue
        index = position if parameter.kind in _POSITIONAL else None
        slots[parameter.name] = _Slot(parameter.name, index, parameter.default)
    return slots


def _find(
    function_name: str,
    slots: Mapping[str, _Slot],
    parameters: Mapping[str, inspect.Parameter],
    argument: str,
    selector: object,
    well_known: Iterable[str],
) -> _Wanted:
    """Where to look for *argument*."""
    if selector is None:
        slot = next((slots[name] for name in well_known if name in slots), None)
        return _NOWHERE if slot is None else _Wanted(told=False, slot=slot)
    if callable(selector):
        return _Wanted(told=True, function=cast("Callable[[Mapping[str, Any]], object]", selector))
    if type(selector) is not str or not selector:
        raise SettingsError(
            f"{argument}= of {function_name} must be a parameter's name, a path such as 'request.question', or a"
            f" function of the arguments; got {type(selector).__name__}"
        )
    first, *path = selector.split(".")
    if first in slots:
        return _Wanted(told=True, slot=slots[first], path=tuple(path))
    if any(parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in parameters.values()):
        return _Wanted(told=True, slot=_Slot(first, None, _NONE), path=tuple(path))
    raise SettingsError(_no_such_parameter(function_name, argument, selector, first, slots))


def _no_such_parameter(function_name: str, argument: str, selector: str, first: str, slots: Mapping[str, _Slot]) -> str:
    known = [name for name in slots if name not in ("self", "cls")]
    near = difflib.get_close_matches(first, known, n=1)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    names = ", ".join(known) or "none"
    return f"{argument}={selector!r}: {function_name} has no parameter {first!r}{hint or ';'} its parameters: {names}"
