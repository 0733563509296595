"""Decorators for the functions of a RAG application: `@trace`, `@retrieve`, `@tool`, `@generate`."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from importlib import import_module
from operator import attrgetter
from typing import TYPE_CHECKING, Any, TypeVar, overload

from ragtrace.capture.arguments import FunctionArguments, Where, WhereTag, name_of, select_at
from ragtrace.core.errors import SettingsError
from ragtrace.core.text import encodable_name
from ragtrace.recording.drivers import driver_of
from ragtrace.recording.proxies import BoundProxy, FunctionProxy, Proxy
from ragtrace.recording.recorder import Selector, StepRecorder, StepSpec, is_recording_suppressed
from ragtrace.runtime import current_runtime
from ragtrace.system.faults import faults

if TYPE_CHECKING:
    from ragtrace.recording.answer_hook import AnswerHook
    from ragtrace.slices import Guard

F = TypeVar("F", bound=Callable[..., Any])


@overload
def trace(function: F, /) -> F: ...
@overload
def trace(
    *,
    name: str | None = None,
    query: Where = None,
    sources: str | Selector | None = None,
    answer: str | Selector | None = None,
    reduce: Selector | None = None,
    session: Where = None,
    user: Where = None,
    tags: Mapping[str, WhereTag] | None = None,
    guard: Guard | None = None,
) -> Callable[[F], F]: ...
def trace(
    function: Any = None,
    /,
    *,
    name: str | None = None,
    query: Where = None,
    sources: str | Selector | None = None,
    answer: str | Selector | None = None,
    reduce: Selector | None = None,
    session: Where = None,
    user: Where = None,
    tags: Mapping[str, WhereTag] | None = None,
    guard: Guard | None = None,
) -> Any:
    """Trace every call of the decorated function as one RAG call, including the retrievals and generations inside it.

    The finished call is scored.

    Examples:
        >>> @ragtrace.retrieve
        ... def search(query: str) -> list[str]:
        ...     return ["The tower is in Paris."]
        >>> @ragtrace.trace
        ... def ask(question: str) -> str:
        ...     return f"As I read, {search(question)[0]}"
        >>> captured = ragtrace.testing.Captured()
        >>> ragtrace.configure(exporter=captured.signals)
        >>> ask("Where is the tower?")
        'As I read, The tower is in Paris.'
        >>> ragtrace.flush()
        True
        >>> [span.name for span in captured.spans]
        ['retrieval', 'invoke_workflow ask']
        >>> captured.root().attributes["ragtrace.eval.status"]
        'ok'

    Args:
        function: any function: plain, coroutine, generator, async generator, method.
        name: the workflow's name, of low cardinality; default: the function's qualified name.
        query: where the user's question is among the arguments; default: found by name and position.
        sources: takes the returned value (of a stream: each piece) and gives the documents that the answer rests on,
            or says where they are as a path; default: what was retrieved.
        answer: takes the returned value (of a stream: each piece) and gives the text, or says where it is as a path
            of keys and attributes, also in JSON text, such as "data.reply"; default: found by itself.
        reduce: takes the list of a stream's pieces, after its end, and gives the text; `answer` is not asked then, but
            for a guard that holds sentences. Default: the texts of the pieces are found and joined.
        session: where the conversation's id is; default: found by name.
        user: where the user's id is; default: none.
        tags: where the value of each tag of the call is, by the tag's name, such as `{"tenant": "tenant_id"}`, or
            `ragtrace.types.constant("web")` for one that is always the same; 16 at most, read when the call begins.
        guard: checks every answer before it leaves the function, or in its shadow; default: none.

    Raises:
        SettingsError: at decoration, if the function has no such parameter, a tag has no valid name, `reduce` cannot be
            called or is asynchronous, or the guard cannot work with the function.
    """
    return _decorate(
        function,
        _with_options(
            trace,
            name=name,
            query=query,
            sources=sources,
            answer=answer,
            reduce=reduce,
            session=session,
            user=user,
            tags=tags,
            guard=guard,
        ),
        lambda f: StepSpec(
            kind="trace",
            arguments=FunctionArguments(f, "trace", query=query, session=session, user=user, tags=tags),
            name=encodable_name(name) if name else name_of(f),
            workflow=encodable_name(name) if name else name_of(f),
            select_result=_selector("answer", answer),
            select_sources=_selector("sources", sources),
            reduce=_checked(reduce),
        ),
        guard,
    )


@overload
def retrieve(function: F, /) -> F: ...
@overload
def retrieve(
    *,
    source: str = "",
    query: Where = None,
    documents: str | Selector | None = None,
    rerank: bool | None = None,
    provider: str | None = None,
) -> Callable[[F], F]: ...
def retrieve(
    function: Any = None,
    /,
    *,
    source: str = "",
    query: Where = None,
    documents: str | Selector | None = None,
    rerank: bool | None = None,
    provider: str | None = None,
) -> Any:
    """Record each call of the decorated function as a retrieval of the documents that it returns.

    Examples:
        >>> @ragtrace.retrieve(source="handbook")
        ... def search(query: str, k: int = 3) -> list[dict[str, str]]:
        ...     return [{"id": "tower.md", "text": "The tower is in Paris."}][:k]
        >>> captured = ragtrace.testing.Captured()
        >>> ragtrace.configure(exporter=captured.signals)
        >>> search("tower")
        [{'id': 'tower.md', 'text': 'The tower is in Paris.'}]
        >>> ragtrace.flush()
        True
        >>> captured.spans[0].attributes["gen_ai.data_source.id"]
        'handbook'

    Args:
        function: any function that returns (or yields) documents: texts, dicts, (document, score) tuples, or the
            documents of LangChain, LlamaIndex, Haystack and their like.
        source: id of the index or collection that is searched.
        query: where the search text is among the arguments; default: found by name and position.
        documents: takes the returned value and gives the documents, or says where they are as a path of keys and
            attributes; default: found by itself.
        rerank: whether it orders documents it is given anew; default: whether it has an argument with documents.
        provider: name of the database's or service's provider.

    Raises:
        SettingsError: at decoration, if the function has no such parameter.
    """
    return _decorate(
        function,
        _with_options(retrieve, source=source, query=query, documents=documents, rerank=rerank, provider=provider),
        lambda f: StepSpec(
            kind="retrieve",
            arguments=FunctionArguments(f, "retrieve", query=query),
            name=encodable_name(source),
            workflow=name_of(f),
            rerank=rerank,
            provider=provider,
            select_result=_selector("documents", documents),
        ),
    )


@overload
def tool(function: F, /) -> F: ...
@overload
def tool(*, name: str | None = None, query: Where = None, result: str | Selector | None = None) -> Callable[[F], F]: ...
def tool(
    function: Any = None, /, *, name: str | None = None, query: Where = None, result: str | Selector | None = None
) -> Any:
    """Record the result of the decorated function, an agent's tool, as evidence for the agent's answer.

    A tool that retrieves documents by a decorated function counts once, with these documents.

    Examples:
        >>> @ragtrace.tool
        ... def opening_hours(place: str) -> str:
        ...     return f"{place}: 9 to 18 h"
        >>> @ragtrace.trace
        ... def ask(question: str) -> str:
        ...     return "It is open from 9 to 18 h." if opening_hours("Tower") else ""
        >>> captured = ragtrace.testing.Captured()
        >>> ragtrace.configure(exporter=captured.signals)
        >>> ask("When is the tower open?")
        'It is open from 9 to 18 h.'
        >>> ragtrace.flush()
        True
        >>> captured.root().attributes["ragtrace.context_source"]
        'tool'

    Args:
        function: any function that returns a text, documents, a result of MCP, a number, or a dict or list of plain
            values.
        name: name of the tool; default: the function's name.
        query: where the search text is among the arguments; default: found by name and position.
        result: takes the returned value and gives the part of it that the agent sees, or says where it is as a path;
            default: all of it.

    Raises:
        SettingsError: at decoration, if the function has no such parameter.
    """
    return _decorate(
        function,
        _with_options(tool, name=name, query=query, result=result),
        lambda f: StepSpec(
            kind="tool",
            arguments=FunctionArguments(f, "tool", query=query),
            name=encodable_name(name) if name else name_of(f).rpartition(".")[2],
            workflow=name_of(f),
            select_result=_selector("result", result),
        ),
    )


@overload
def generate(function: F, /) -> F: ...
@overload
def generate(
    *,
    query: Where = None,
    contexts: Where = None,
    answer: str | Selector | None = None,
    reduce: Selector | None = None,
    model: str | None = None,
    provider: str | None = None,
    session: Where = None,
    tags: Mapping[str, WhereTag] | None = None,
) -> Callable[[F], F]: ...
def generate(
    function: Any = None,
    /,
    *,
    query: Where = None,
    contexts: Where = None,
    answer: str | Selector | None = None,
    reduce: Selector | None = None,
    model: str | None = None,
    provider: str | None = None,
    session: Where = None,
    tags: Mapping[str, WhereTag] | None = None,
) -> Any:
    """Record the answer that the decorated function generates.

    Without a `@trace` around it, it is a scored call of its own.

    Examples:
        >>> @ragtrace.generate(model="my-model")
        ... def answer(question: str, docs: list[str]):
        ...     yield from ("In ", "Paris.")  # streams are recorded as they are read
        >>> captured = ragtrace.testing.Captured()
        >>> ragtrace.configure(exporter=captured.signals)
        >>> "".join(answer("Where is the tower?", ["The tower is in Paris."]))
        'In Paris.'
        >>> ragtrace.flush()
        True
        >>> captured.root().attributes["ragtrace.eval.consistency.score"]
        1.0

    Args:
        function: any function that returns or streams an answer: texts, dicts, or the objects of OpenAI, LangChain,
            LlamaIndex, Haystack and their like.
        query: where the question is among the arguments; default: found by name and position.
        contexts: where the documents are among the arguments; default: found by name; else what was retrieved.
        answer: takes the returned value (of a stream: each piece) and gives the text, or says where it is as a path
            of keys and attributes, also in JSON text, such as "data.reply"; default: found by itself.
        reduce: takes the list of a stream's pieces, after its end, and gives the text; `answer` is not asked then, but
            for a guard that holds sentences. Default: the texts of the pieces are found and joined.
        model: the model asked for; default: an argument of that name.
        provider: name of the model's provider, such as "openai"; default: what a client among the arguments, or the
            returned value, tells.
        session: where the conversation's id is; default: found by name.
        tags: where the value of each tag of the call is, by the tag's name, such as `{"tenant": "tenant_id"}`, or
            `ragtrace.types.constant("web")` for one that is always the same; 16 at most, read when the call begins.

    Raises:
        SettingsError: at decoration, if the function has no such parameter, a tag has no valid name, or `reduce` cannot
            be called or is asynchronous.
    """
    return _decorate(
        function,
        _with_options(
            generate,
            query=query,
            contexts=contexts,
            answer=answer,
            reduce=reduce,
            model=model,
            provider=provider,
            session=session,
            tags=tags,
        ),
        lambda f: StepSpec(
            kind="generate",
            arguments=FunctionArguments(f, "generate", query=query, contexts=contexts, session=session, tags=tags),
            workflow=name_of(f),
            provider=provider,
            model=model,
            select_result=_selector("answer", answer),
            reduce=_checked(reduce),
        ),
    )


def _with_options(decorate: Callable[..., Any], **options: Any) -> Callable[[Any], Any]:
    return partial(decorate, **options)


def _selector(argument: str, place: str | Selector | None) -> Selector | None:
    if isinstance(place, str) and place:
        return partial(select_at, place.split("."))
    if place is None or (not isinstance(place, str) and callable(place)):
        return place
    raise SettingsError(
        f"{argument}= must be a function of the returned value or a path in it, such as 'data.text'; got {place!r}"
    )


def _checked(reduce: Selector | None) -> Selector | None:
    if reduce is not None and (not callable(reduce) or inspect.iscoroutinefunction(reduce)):
        raise SettingsError(
            f"reduce= must be a function that takes the list of a stream's pieces and returns the text, got {reduce!r}"
        )
    return reduce


def _decorate(
    function: Any, decorator: Callable[[Any], Any], specify: Callable[[Any], StepSpec], guard: AnswerHook | None = None
) -> Any:
    if function is None:
        return decorator
    if inspect.isclass(function):
        raise SettingsError(
            f"cannot decorate the class {function.__qualname__}; decorate its __call__ or the method that does the work"
        )
    method = type(function) in (staticmethod, classmethod)
    if not (method or callable(function)):
        raise SettingsError(f"cannot decorate {type(function).__name__}; expected a function")
    spec, run = specify(function), driver_of(function)

    def observed(wrapped: Any, instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        runtime = current_runtime.installed or current_runtime.current()
        if runtime is None:
            _warn_not_configured(spec)
            return wrapped(*args, **kwargs)
        if is_recording_suppressed():
            return wrapped(*args, **kwargs)
        recorder = StepRecorder(runtime, spec, args, kwargs, instance is not None)
        return run(recorder, wrapped, args, kwargs)

    caller = observed if guard is None else _guarded(guard, spec, function)
    if inspect.isfunction(function):
        return _ObservedFunction(function, caller, decorator)
    if method or inspect.isroutine(function):
        return _ObservedRoutine(function, caller, decorator)
    return _ObservedObject(function, caller, decorator)


def _guarded(guard: AnswerHook, spec: StepSpec, function: Any) -> Callable[..., Any]:
    """Return the function that calls *function*, records the call, and has its answer checked by *guard*."""
    if not hasattr(guard, "driver"):
        raise SettingsError(
            f"guard= must be a ragtrace.Guard, got {type(guard).__name__}: {guard!r}; write for instance "
            "guard=ragtrace.Guard('faithfulness', below=0.5)"
        )
    driver = guard.driver(spec, function)
    driver.begin(current_runtime.installed or current_runtime.current())

    def observed(wrapped: Any, instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        runtime = current_runtime.installed or current_runtime.current()
        if runtime is None:
            _warn_not_configured(spec)
            return wrapped(*args, **kwargs)
        if is_recording_suppressed():
            return wrapped(*args, **kwargs)
        return driver.run(runtime, wrapped, args, kwargs, instance is not None)

    return observed


class _ObservedMethod(BoundProxy):
    """Proxy of a decorated method, bound to an object or a class, or of a function that was looked up in its class."""

    def __copy__(self) -> Any:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        owner = getattr(self.__wrapped__, "__self__", None)
        copied = copy.deepcopy(owner, memo)
        return self if copied is owner else self._self_parent.__get__(copied, type(copied))

    def __reduce__(self) -> Any:
        owner = getattr(self.__wrapped__, "__self__", None)
        if owner is not None:
            return getattr, (owner, self.__wrapped__.__name__)
        return _find, (self.__module__, self.__qualname__)

    def __reduce_ex__(self, protocol: Any) -> Any:
        return self.__reduce__()


class _ObservedRoutine(FunctionProxy):
    """Proxy of a decorated static, class or built-in method, which is copied and pickled as functions are: by name."""

    __bound_function_wrapper__ = _ObservedMethod

    def __init__(self, wrapped: Any, observed: Callable[..., Any], decorator: Callable[[Any], Any]) -> None:
        super().__init__(wrapped, observed)
        self._self_observed, self._self_decorator = observed, decorator

    def __copy__(self) -> Any:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        return self

    def __reduce__(self) -> Any:
        with suppress(Exception):  # no such module or name: it is a function's in another place, or a local one's
            if _find(self.__module__, self.__qualname__) is self:
                return self.__qualname__
        return _decorated_again(self._self_decorator, self.__wrapped__)

    def __reduce_ex__(self, protocol: Any) -> Any:
        return self.__reduce__()


class _ObservedFunction(_ObservedRoutine):
    """Proxy of a decorated function that records every call of the function.

    A plain call goes straight to the recorder, a call as a method through wrapt's binding.
    """

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        return self._self_observed(self.__wrapped__, None, args, kwargs)


class _ObservedObject(Proxy):
    """Proxy of a decorated callable object or partial that records every call of the object.

    Unlike a function it binds to no instance, and its copies are proxies of copies.
    """

    def __init__(self, wrapped: Any, observed: Callable[..., Any], decorator: Callable[[Any], Any]) -> None:
        super().__init__(wrapped)
        self._self_observed, self._self_decorator = observed, decorator

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._self_observed(self.__wrapped__, None, args, kwargs)

    def __copy__(self) -> Any:
        return _ObservedObject(copy.copy(self.__wrapped__), self._self_observed, self._self_decorator)

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        return _ObservedObject(copy.deepcopy(self.__wrapped__, memo), self._self_observed, self._self_decorator)

    def __reduce__(self) -> Any:
        return _decorated_again(self._self_decorator, self.__wrapped__)

    def __reduce_ex__(self, protocol: Any) -> Any:
        return self.__reduce__()


def _find(module: str, qualified_name: str) -> Any:
    return attrgetter(qualified_name)(import_module(module))


def _decorated_again(decorator: Callable[[Any], Any], wrapped: Any) -> Any:
    """Return how to unpickle *wrapped* with its decorator, or undecorated where an option cannot be pickled."""
    import pickle

    try:
        pickle.dumps(decorator)
    except Exception as error:
        faults.warn_once(
            "pickled undecorated",
            "%s is pickled undecorated, as an option of its decorator cannot be pickled (%s): its calls in other "
            "processes are not recorded. Give functions of a module as options, no lambdas",
            name_of(wrapped),
            error,
        )
        return _itself, (wrapped,)
    return decorator, (wrapped,)


def _itself(wrapped: Any) -> Any:
    return wrapped


def _warn_not_configured(spec: StepSpec) -> None:
    if not current_runtime.switched_off():
        faults.warn_once(
            "not configured",
            "%s was called, but ragtrace is not configured (or was shut down): nothing is traced or scored. "
            "Call ragtrace.configure(service=...) when the application starts",
            spec.arguments.function_name,
        )
