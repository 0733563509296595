"""Extracts query, documents, session and settings from the arguments of a decorated function.

Where they are is worked out once, when the function is decorated; a call then costs a few look-ups.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from types import MethodType
from typing import Any, Final, Literal, NamedTuple, TypeAlias, cast

from ragtrace.capture import field_names
from ragtrace.capture.answers import find_answer
from ragtrace.capture.documents import find_documents
from ragtrace.capture.fields import (
    MAX_DEPTH,
    SearchBudget,
    content_of,
    first,
    first_item,
    getter,
    is_role_and_text,
    items_of,
    label_of,
    last_items,
    messages_of,
    parts_text,
    role_of,
    text_of,
    text_or_parts,
    unwrap_proxies,
    warn_not_found,
    whole_of,
)
from ragtrace.capture.plain_json import parse_json
from ragtrace.capture.providers import provider_among
from ragtrace.capture.references import is_address, is_id
from ragtrace.capture.tags import kept_tags
from ragtrace.core.errors import SettingsError, spelling_hint
from ragtrace.core.step import Message, Prompt, Role
from ragtrace.core.tags import MOST_TAGS, Constant, TagValue, check_tag_name, is_plain_value
from ragtrace.core.text import encodable
from ragtrace.core.types import Document
from ragtrace.system.faults import faults

Kind: TypeAlias = Literal["trace", "retrieve", "generate", "tool"]
Where: TypeAlias = "str | Callable[[Mapping[str, Any]], object] | None"
"""Place of an argument: parameter name, path ("request.question") or function of all arguments; None: by name."""
WhereTag: TypeAlias = "str | Callable[[Mapping[str, Any]], object] | Constant"
"""Place of a tag's value among the arguments, as of any argument, or the value itself, in every call the same."""

QUERY_ARGUMENTS: Final = (
    "query", "question", "user_query", "user_question", "user_input", "search_query", "query_str", "query_text",
    "prompt", "q", "messages", "message", "user_message", "input", "inputs", "text",
)  # fmt: skip
"""Names of arguments with the question, most likely first."""
CONTEXT_ARGUMENTS: Final = (
    "documents", "docs", "contexts", "context", "chunks", "passages", "nodes", "source_nodes", "sources", "retrieved",
    "retrieved_docs", "retrieved_documents", "retrieved_chunks", "results", "hits",
)  # fmt: skip
"""Names of arguments with the documents that an answer is written from."""
RANKED_ARGUMENTS: Final = (
    "documents", "docs", "chunks", "passages", "nodes", "candidates", "results", "hits", "retrieved_docs",
    "retrieved_documents", "retrieved_chunks",
)  # fmt: skip
"""Names of a re-ranker's input documents; `context` is none of them, as a retriever's context may be no document."""
_SESSION: Final = ("session_id", "conversation_id", "thread_id", "chat_id")
_TOP_K: Final = ("k", "top_k", "limit", "n_results", "num_results")
_MODEL: Final = ("model", "model_name")
_CONTEXT_NAMES: Final[Mapping[Kind, tuple[str, ...]]] = {
    "trace": CONTEXT_ARGUMENTS, "generate": CONTEXT_ARGUMENTS, "retrieve": RANKED_ARGUMENTS, "tool": (),
}  # fmt: skip
_NOT_A_QUERY: Final = frozenset(
    (*CONTEXT_ARGUMENTS, *RANKED_ARGUMENTS, *_SESSION, *_TOP_K, *_MODEL, "self", "cls", "user_id")
)
_HISTORY: Final = frozenset(
    ("history", "chat_history", "conversation_history", "message_history", "previous_messages", "past_messages")
)
"""Names of arguments with earlier turns of the conversation, without the question."""
_SELDOM_A_QUERY: Final = frozenset((
    "tenant", "tenant_id", "customer", "language", "lang", "locale", "index", "index_name", "collection", "namespace",
    "system", "system_prompt", "instructions", "role", "mode",
))  # fmt: skip
"""Names of arguments that hold the question only if no other argument has a text."""

_MAX_PROMPT_MESSAGES: Final = 100
_MAX_PROMPT_CHARS: Final = 200_000
"""Largest number of characters kept of the messages of one prompt."""
_ROLES: Final[Mapping[str, Role]] = {
    **dict.fromkeys(field_names.USER, "user"),
    **dict.fromkeys((*field_names.ASSISTANT, "chatbot"), "assistant"),
    **dict.fromkeys(("system", "developer"), "system"),
    **dict.fromkeys(("tool", "function"), "tool"),
}
_RESULT_ITEMS: Final = frozenset(("function_call_output", "custom_tool_call_output"))
_SILENT_ITEMS: Final = frozenset((
    "reasoning", "function_call", "custom_tool_call", "item_reference", "file_search_call", "web_search_call",
    "computer_call", "computer_call_output", "image_generation_call", "code_interpreter_call", "local_shell_call",
    "local_shell_call_output", "shell_call", "shell_call_output", "apply_patch_call", "apply_patch_call_output",
    "mcp_list_tools", "mcp_call", "mcp_approval_request", "mcp_approval_response", "compaction",
))  # fmt: skip
"""Types of items without a role, and without a text, in the input of OpenAI's Responses API."""
_ROLE_NAMES: Final = frozenset(_ROLES)


def find_query(value: object) -> str | None:
    """Return the user's question in *value*: a string, the last user message, or a field of a dict or object.

    Never raises. None if there is no question; a blank question is returned as it is.
    """
    try:
        return value if type(value) is str else _query(unwrap_proxies(value), 0, SearchBudget())
    except Exception as error:  # an error of the capture must not reach the application
        faults.record("capture.query", error)
        return None


def _query(value: object, depth: int, budget: SearchBudget) -> str | None:
    budget.left -= 1
    if (text := text_of(value)) is not None or depth > MAX_DEPTH or budget.left < 0:
        return text
    get = getter(value)
    if get is not None:
        if role_of(get) in field_names.USER:
            return content_of(get, "\n")
        return first(get, field_names.QUESTION, lambda found: _query(found, depth + 1, budget))
    for message in messages_of(value, field_names.USER):  # the newest may hold only the results of tools
        get = getter(message)
        text = text_or_parts((items_of(message, 2) or ["", ""])[1], "\n") if get is None else content_of(get, "\n")
        if text is not None:
            return text
    item = first_item(value)
    get = getter(item)
    if (get is not None and get("role") is not None) or is_role_and_text(item, field_names.ASSISTANT):
        return None  # the conversation has no turn of the user
    # The items are parts of a message if they have types; plain strings may be anything.
    return parts_text(value, "\n") if get is not None and get("type") is not None else None


def find_prompt(value: object) -> Prompt | None:
    """Return the chat messages in *value*, a conversation or an object with a field `messages`.

    None for any other value. Never raises. Each item must have a role: a list of other records may be anything.
    Messages without a text (images, tool calls) are left out; of a long conversation, so are the earliest, which is
    logged once.
    """
    try:
        if type(value) is str or value is None:
            return None
        items = last_items(unwrap_proxies(value), _MAX_PROMPT_MESSAGES + 1)
        if items is None and (get := getter(unwrap_proxies(value))) is not None:
            items = last_items(get("messages"), _MAX_PROMPT_MESSAGES + 1)
        return _prompt(items) if items else None
    except Exception as error:  # an error of the capture must not reach the application
        faults.record("capture.messages", error)
        return None


def _prompt(items: list[object]) -> Prompt | None:
    """Convert chat messages to a `Prompt`, or return None if one item is no chat message.

    The *items* are given newest first.
    """
    found: list[Message] = []
    for item in items:
        get = getter(item)
        if get is not None:
            role = _ROLES.get(role_of(get) or "")
            text = content_of(get, "\n")
            kind = label_of(get("type"))
            if role is None and kind in _SILENT_ITEMS:
                continue
            if role is None and kind in _RESULT_ITEMS:
                role, text = "tool", text_or_parts(get("output"), "\n")
            if role == "user":  # of Anthropic's, results of tools come before the text
                results = _tool_results(get("content"))
                found += [Message("user", text)] if text is not None and results else []
                found += [Message("tool", result) for result in reversed(results)]
                text = None if results else text
            if text is None and role == "tool":  # Haystack's tool message has the result as one part
                parts = map(getter, items_of(get("_content"), 1_000) or ())
                text = next((said for part in parts if part and (said := text_of(part("result"))) is not None), None)
        elif is_role_and_text(item, _ROLE_NAMES):
            speaker, content = items_of(item, 2) or ["", ""]
            role, text = _ROLES[text_of(speaker) or ""], text_or_parts(content, "\n")
        else:
            return None
        if role is None:
            return None
        if text is not None:
            found.append(Message(role, text))
    is_cut = len(items) > _MAX_PROMPT_MESSAGES or sum(len(message.text) for message in found) > _MAX_PROMPT_CHARS
    if is_cut:
        faults.warn_once(
            "capture.messages.cut",
            "a prompt has more than %d messages or %d characters; ragtrace recorded only its last messages",
            _MAX_PROMPT_MESSAGES,
            _MAX_PROMPT_CHARS,
        )
        del found[_MAX_PROMPT_MESSAGES:]
        while len(found) > 1 and sum(len(message.text) for message in found) > _MAX_PROMPT_CHARS:
            found.pop()
    return Prompt(tuple(reversed(found)), is_cut) if found else None


def _tool_results(content: object) -> list[str]:
    """Return the texts of the tool results among the parts of a user's message, without those of failed tools."""
    texts: list[str] = []
    for part in items_of(content, 1_000) or ():
        get = getter(part)
        if get is not None and get("type") == "tool_result" and get("is_error") is not True:
            text = text_or_parts(get("content"), "\n")
            texts += [] if text is None else [text]
    return texts


class ExtractedArguments(NamedTuple):
    """Query, documents and settings found in the arguments of one call, each None if it was not found."""

    query: str | None = None
    documents: tuple[Document, ...] | None = None
    """Documents that the function was given: the contexts of a generation, or a re-ranker's input."""
    top_k: int | None = None
    session: str | None = None
    model: str | None = None
    user: str | None = None
    prompt: Prompt | None = None
    provider: str | None = None
    """Provider of the clients among the arguments, as `provider_among` returns it."""


class Parameter(NamedTuple):
    """Parameter of a decorated function: its name, its position and its default value."""

    name: str
    position: int | None
    """Index among the positional arguments, with self or cls at 0; None: the parameter is keyword-only."""
    default: object = None


class CallArguments(NamedTuple):
    """Positional and keyword arguments that were passed in one call of a decorated function."""

    args: Sequence[object]
    kwargs: Mapping[str, object]
    shift: int
    """Number of leading parameters that `args` leaves out: 1 where self or cls is bound, else 0."""

    def value(self, parameter: Parameter) -> object:
        """Return the value passed for *parameter*, or else its default value, or else None."""
        position = parameter.position
        if position is not None and 0 <= position - self.shift < len(self.args):
            return self.args[position - self.shift]
        return self.kwargs.get(parameter.name, parameter.default)


class ArgumentSource(NamedTuple):
    """Place in a call's arguments where a value such as the query is found.

    It is a parameter, a path that starts at a parameter, or found by a function of the user's.
    """

    is_explicit: bool = False
    """Whether the user named the place, rather than a well-known name leading to it."""
    parameter: Parameter | None = None
    path: Sequence[str] = ()
    function: Callable[[Mapping[str, Any]], object] | None = None
    keywords: tuple[str, ...] = ()
    """Well-known names to look for among the keyword arguments, of a function that takes any and names none."""


_NOWHERE: Final = ArgumentSource()


class FunctionArguments:
    """Finder of query, documents and settings in the arguments of one decorated function.

    Args:
        function: what is decorated: a function, method, staticmethod, classmethod, partial or an object with
            `__call__`. Without a readable signature, nothing is found but by a selector that is a function.
        kind: what the function does.
        query: where the question is; None: by a well-known name, else the only argument that holds one.
        contexts: where the documents are; None: by a well-known name.
        session: where the conversation's id is; None: by a well-known name.
        user: where the user's id is; None: it is not taken.
        tags: where the value of each tag is, by the tag's name; None: there are none.

    Raises:
        SettingsError: if a selector names a parameter that the function does not have, or a tag's name is none.
    """

    def __init__(
        self,
        function: object,
        kind: Kind,
        *,
        query: Where = None,
        contexts: Where = None,
        session: Where = None,
        user: Where = None,
        tags: Mapping[str, WhereTag] | None = None,
    ) -> None:
        inner, self._always_bound = _signature_owner(function)
        self.function_name = name_of(inner)
        self._parameters, self._takes_keywords = _parameters(inner)
        self._query = self._source("query", query, QUERY_ARGUMENTS)
        self._contexts = self._source("contexts", contexts, _CONTEXT_NAMES[kind])
        self._names_contexts = contexts is not None
        self._session = self._source("session", session, _SESSION)
        self._user = self._source("user", user, ())
        self._top_k = self._source("top_k", None, _TOP_K)
        self._model = self._source("model", None, _MODEL)
        of_tags = self._tag_sources(tags)
        self._tags_as_written: dict[str, TagValue] = {
            name: each.value if isinstance(each, Constant) else "" for name, each in of_tags.items()
        }
        """Tags in the order of `tags=`, of which those that arguments give have no value yet."""
        self._tags = {name: each for name, each in of_tags.items() if not isinstance(each, Constant)}
        self.has_tags = bool(of_tags)
        """Whether a call has tags by `tags=`."""
        sources = (self._query, self._contexts, self._session, self._user)
        self.can_wait = all(source.function is None for source in sources)
        """Whether another thread may read the arguments later: False where a user's function has to be called."""
        self._has_provider = kind == "generate"
        self._has_query = kind != "tool"  # the arguments of a tool are no question that is judged
        usual = [parameter for parameter in self._parameters.values() if parameter.name not in _NOT_A_QUERY]
        self._n_positional = sum(parameter.position is not None for parameter in self._parameters.values())
        self._candidates = [parameter for parameter in usual if parameter.position is not None]
        self._prompts = [] if kind in ("retrieve", "tool") else usual

    def extract(
        self, args: Sequence[object], kwargs: Mapping[str, object], bound: bool, *, is_immutable: bool = False
    ) -> ExtractedArguments:
        """Return query, documents and settings found in the arguments of one call. Never raises.

        Args:
            args: positional arguments.
            kwargs: keyword arguments.
            bound: whether *args* leaves out the first parameter, self or cls.
            is_immutable: whether all arguments are texts, numbers and lists of texts: then none holds messages.
        """
        call = CallArguments(args, kwargs, 1 if bound or self._always_bound else 0)
        try:
            query = self._find_query(call)
            # Most functions have few of these sources, so a source that is nowhere is not looked for.
            return ExtractedArguments(
                query,
                None if self._contexts is _NOWHERE else self._find_documents(call, query),
                None if self._top_k is _NOWHERE else whole_of(self._value(self._top_k, call)),
                None if self._session is _NOWHERE else label_of(self._value(self._session, call)),
                None if self._model is _NOWHERE else text_of(self._value(self._model, call)) or None,
                None if self._user is _NOWHERE else label_of(self._value(self._user, call)),
                None if is_immutable else self._find_prompt(call, query),
                None if is_immutable or not self._has_provider else provider_among((*args, *kwargs.values())),
            )
        except Exception as error:  # an error of the capture must not reach the application
            faults.record(f"capture of the arguments of {self.function_name}", error)
            return ExtractedArguments()

    def extract_tags(self, args: Sequence[object], kwargs: Mapping[str, object], bound: bool) -> dict[str, TagValue]:
        """Return the tags of one call that `tags=` names. What is no tag is left out, and counted. Never raises.

        A value that is None says that the call has no such tag.

        Args:
            args: positional arguments.
            kwargs: keyword arguments.
            bound: whether *args* leaves out the first parameter, self or cls.
        """
        call = CallArguments(args, kwargs, 1 if bound or self._always_bound else 0)
        tags, others = self._tags_as_written.copy(), dict[str, object]()
        for name, source in self._tags.items():
            value = self._value(source, call)
            if type(value) is str and is_plain_value(value):  # nearly always, and the caller waits
                tags[name] = value
            else:
                others[name] = value
                del tags[name]
        return {**tags, **kept_tags(others, f"tags= of {self.function_name}")} if others else tags

    def _tag_sources(self, tags: object) -> dict[str, ArgumentSource | Constant]:
        """Return where the value of each tag is, by the tag's name."""
        if tags is None:
            return {}
        if not isinstance(tags, Mapping):
            raise SettingsError(
                f"tags= of {self.function_name} says where the value of each tag is, by its name, such as "
                f"{{'tenant': 'tenant_id'}}; got {type(tags).__name__}"
            )
        given = {check_tag_name(name): where for name, where in cast("Mapping[object, object]", tags).items()}
        if len(given) > MOST_TAGS:
            raise SettingsError(f"tags= of {self.function_name} has {len(given)} tags; a call has {MOST_TAGS} at most")
        sources: dict[str, ArgumentSource | Constant] = {}
        for name, where in given.items():
            if isinstance(where, Constant):
                sources[name] = where
            elif isinstance(where, str) or callable(where):
                sources[name] = self._source(f"tags[{name!r}]", where, ())
            else:
                raise SettingsError(
                    f"tags[{name!r}] of {self.function_name} must be a parameter's name, a path such as "
                    f"'request.tenant', a function of the arguments, or ragtrace.types.constant(...) for a value that "
                    f"is the same in every call; got {type(where).__name__}"
                )
        return sources

    def _source(self, argument: str, selector: object, well_known: Iterable[str]) -> ArgumentSource:
        """Return the parameter, path or function that supplies the value of *argument*, such as "query".

        A place named by the user comes first, then the first parameter with a well-known name.
        """
        known = self._parameters
        if selector is None:
            wanted = tuple(well_known)
            found = next((known[name] for name in wanted if name in known), None)
            if found is not None:
                return ArgumentSource(parameter=found)
            return ArgumentSource(keywords=wanted) if wanted and self._takes_keywords else _NOWHERE
        if callable(selector):
            return ArgumentSource(True, function=cast("Callable[[Mapping[str, Any]], object]", selector))
        if type(selector) is not str or not selector:
            raise SettingsError(
                f"{argument}= of {self.function_name} must be a parameter's name, a path such as 'request.question', or"
                f" a function of the arguments; got {type(selector).__name__}"
            )
        name, *path = selector.split(".")
        if name in known:
            return ArgumentSource(True, known[name], path)
        if self._takes_keywords:
            return ArgumentSource(True, Parameter(name, None), path)
        names = [each for each in known if each not in ("self", "cls")]
        hint = spelling_hint(name, names, "its parameters")
        raise SettingsError(f"{argument}={selector!r}: {self.function_name} has no parameter {name!r}{hint}")

    def _value(self, source: ArgumentSource, call: CallArguments) -> object:
        parameter = source.parameter
        if source.keywords:
            return next((call.kwargs[name] for name in source.keywords if name in call.kwargs), None)
        value = None if parameter is None else call.value(parameter)
        try:
            if source.function is not None:  # gets all arguments by name: defaults included, self and cls left out
                every = self._parameters.values()
                unbound = (each for each in every if each.position is None or each.position >= call.shift)
                return source.function({each.name: call.value(each) for each in unbound} | dict(call.kwargs))
            return value if value is None or not source.path else follow(value, source.path)
        except Exception as error:  # the user's function raised, or the path has no such step
            faults.record(f"a selector of {self.function_name}", error)
            return None

    def _find_query(self, call: CallArguments) -> str | None:
        seen = self._value(self._query, call)
        found = find_query(seen)
        if found is not None:
            return found
        questions: dict[str, str] = {}
        for name, value in () if self._query.is_explicit else self._candidate_values(call):
            if (found := find_query(value)) is not None:
                questions[name] = found
            seen = value if seen is None else seen
        if len(questions) > 1:
            likely = [name for name, text in questions.items() if text.strip() and name not in _SELDOM_A_QUERY]
            if self._has_query and len(likely) != 1:
                self._warn_of_several(questions)
            return questions[likely[0]] if len(likely) == 1 else None
        if questions:
            return next(iter(questions.values()))
        if seen is not None:
            warn_not_found("query", self.function_name, seen)
        return None

    def _candidate_values(self, call: CallArguments) -> Iterator[tuple[str, object]]:
        """Yield names and values of the positional arguments that may be the question, without defaults."""
        for parameter in self._candidates:
            value = call.value(parameter)
            if (parameter.position or 0) >= call.shift and value is not None and value is not parameter.default:
                yield parameter.name, value
        for at, value in enumerate(call.args[max(0, self._n_positional - call.shift) :], 1):
            yield f"*args[{at}]", value

    def _warn_of_several(self, names: Iterable[str]) -> None:
        faults.warn_once(
            f"capture.query:{self.function_name}",
            "ragtrace does not know which argument of %s is the question (%s have texts): name it with query=",
            self.function_name,
            ", ".join(names),
        )

    def _find_prompt(self, call: CallArguments, query: str | None) -> Prompt | None:
        """Return the chat messages among the arguments of *call*, including the user's question.

        The result is None if the order of the messages cannot be known.
        """
        found: Prompt | None = None
        is_history = False
        for parameter in self._prompts:
            if parameter.position is not None and parameter.position < call.shift:
                continue
            prompt = find_prompt(call.value(parameter))
            if prompt is None:
                continue
            if found is not None:
                return None
            found, is_history = prompt, parameter.name in _HISTORY
        if found is None or query is None:
            return found
        last = next((message.text for message in reversed(found.messages) if message.role == "user"), "")
        if query in last:
            return found
        return found._replace(messages=(*found.messages, Message("user", query))) if is_history else None

    def _find_documents(self, call: CallArguments, query: str | None) -> tuple[Document, ...] | None:
        seen = self._value(self._contexts, call)
        found = None if seen is None else find_documents(seen, query=query)
        if found is None and seen is not None:
            warn_not_found("contexts", self.function_name, seen)
        if found and not self._names_contexts and all(is_address(each.text) or is_id(each.text) for each in found):
            return None  # of what a retrieval has found, whose texts count
        return found


def follow(value: Any, path: Iterable[str]) -> object:
    """Return the value at the end of *path*, a sequence of keys, indexes and attribute names that starts at *value*.

    Raises:
        LookupError, TypeError: if there is no such step; other errors are the object's own.
    """
    for step in path:
        if issubclass(type(value), Mapping):
            value = value[step]
        elif step.lstrip("-").isdigit():
            value = value[int(step)]
        else:
            try:
                value = getattr(value, step)
            except AttributeError:
                value = value[step]
    return value


def select_at(path: Sequence[str], value: object) -> object:
    """Return what is at the end of *path* in *value*, or in the JSON that its text is.

    Raises:
        LookupError, TypeError: if there is no such step; other errors are the object's own.
    """
    try:
        return follow(parse_json(value), path)
    except Exception:
        found = find_answer(value) if text_of(value) is None else None
        if found is None or found.text is None:
            raise
        return follow(parse_json(found.text), path)


def unwrap(function: Any) -> Any:
    """Return the function inside a `partial`, a static method or a class method."""
    wrappers: Any = (partial, staticmethod, classmethod)
    while isinstance(function, wrappers):
        function = function.func if isinstance(function, partial) else function.__func__
    return function


def name_of(function: Any) -> str:
    """Return the qualified name of a callable, without memory addresses, `<locals>` and lone surrogates."""
    function = unwrap(function)
    name: object = None
    with suppress(Exception):  # the object may compute its attributes with code that raises
        name = getattr(function, "__qualname__", None)
    text = name if type(name) is str else type(function).__qualname__
    return encodable(text.rpartition("<locals>.")[2])


def _signature_owner(function: object) -> tuple[Any, bool]:
    """Return the callable that has the signature of *function*, and whether its first parameter is already bound."""
    if isinstance(function, (staticmethod, classmethod)):
        return cast(Any, function).__func__, False
    if isinstance(function, MethodType):
        return function.__func__, True
    routine: Any = function
    if inspect.isroutine(routine) or isinstance(routine, partial):
        return cast(Any, routine), False
    call: Any = getattr(type(function), "__call__", None)
    return (call, True) if inspect.isfunction(call) else (function, False)


def _parameters(function: Any) -> tuple[dict[str, Parameter], bool]:
    """Return the parameters of *function* by name, and whether it accepts arbitrary keyword arguments."""
    try:
        found: Iterable[inspect.Parameter] = inspect.signature(function).parameters.values()
    except Exception:  # no signature (C functions), or annotations that cannot be evaluated now
        found = _parameters_of_code(function)
    parameters: dict[str, Parameter] = {}
    takes_keywords = False
    for position, parameter in enumerate(found):
        takes_keywords = takes_keywords or parameter.kind is inspect.Parameter.VAR_KEYWORD
        if parameter.kind not in (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD):
            index = None if parameter.kind is inspect.Parameter.KEYWORD_ONLY else position
            default: object = None if parameter.default is inspect.Parameter.empty else parameter.default
            parameters[parameter.name] = Parameter(parameter.name, index, default)
    return parameters, takes_keywords


def _parameters_of_code(function: Any) -> list[inspect.Parameter]:
    """Return the parameters that the code object of *function* declares, if its signature cannot be read."""
    function = inspect.unwrap(function)
    code: Any = getattr(function, "__code__", None)
    if code is None:
        return []
    count, total = code.co_argcount, code.co_argcount + code.co_kwonlyargcount
    defaults: tuple[object, ...] = getattr(function, "__defaults__", None) or ()
    values = dict(zip(code.co_varnames[count - len(defaults) : count], defaults, strict=True))
    values.update(getattr(function, "__kwdefaults__", None) or {})
    either, keyword = inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY
    found = [
        inspect.Parameter(name, either if position < count else keyword, default=values.get(name))
        for position, name in enumerate(code.co_varnames[:total])
    ]
    if code.co_flags & inspect.CO_VARKEYWORDS:
        found.append(inspect.Parameter("kwargs", inspect.Parameter.VAR_KEYWORD))
    return found
