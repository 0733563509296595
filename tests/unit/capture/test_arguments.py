"""Finding query, documents, session and settings among the arguments of a function."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial, wraps
from typing import Any

import pytest
from pydantic import BaseModel

import ragtrace
from ragtrace.capture.arguments import ExtractedArguments, FunctionArguments, follow, select_at
from ragtrace.core.errors import SettingsError
from ragtrace.core.tags import MOST_TAGS, constant
from ragtrace.core.types import Document
from ragtrace.system.faults import faults
from tests.support.ids import readable
from tests.support.logged import logged
from tests.support.watched import watch


@pytest.fixture(autouse=True)
def fresh_faults() -> Iterator[None]:
    """Each test sees its own faults."""
    faults.clear()
    yield
    faults.clear()


def extract(arguments: FunctionArguments, *args: object, **kwargs: object) -> ExtractedArguments:
    """What an unbound call gives."""
    return arguments.extract(args, kwargs, bound=False)


class Request(BaseModel):
    question: str
    session_id: str = "s1"


@dataclass
class Inputs:
    messages: list[dict[str, str]]
    options: dict[str, object] = field(default_factory=dict)


# --- by well-known names ---------------------------------------------------------------------------------------------
def search(query: str, k: int = 5) -> list[str]:
    """A retriever."""
    return [query] * k


def answer(question: str, docs: list[str], model: str = "m", session_id: str | None = None) -> str:
    """A generator."""
    return question + docs[0] + model + str(session_id)


def test_positional_arguments() -> None:
    """By position."""
    assert extract(FunctionArguments(search, "retrieve"), "why?", 3) == ExtractedArguments("why?", top_k=3)


def test_keyword_arguments() -> None:
    """By keyword, in any order."""
    assert extract(FunctionArguments(search, "retrieve"), k=3, query="why?") == ExtractedArguments("why?", top_k=3)


def test_defaults_count() -> None:
    """What was not passed has its default."""
    assert extract(FunctionArguments(search, "retrieve"), "why?") == ExtractedArguments("why?", top_k=5)


def test_generation() -> None:
    """Documents, model and session are found by their names."""
    found = extract(FunctionArguments(answer, "generate"), "why?", ["a"], session_id="s")
    assert found == ExtractedArguments("why?", (Document("a"),), model="m", session="s")


@pytest.mark.parametrize(
    ("docs", "found"),
    [([("why?", [])], ()), ([("a passage", [])], None), ([("why?", ["because of it"])], (Document("because of it"),))],
    ids=readable,
)
def test_a_query_beside_its_hits_is_no_context(docs: Any, found: tuple[Document, ...] | None) -> None:
    """Which the function was given with them. A passage without tags is not said to be none."""
    assert extract(FunctionArguments(answer, "generate"), "why?", docs).documents == found


def test_a_default_query_counts() -> None:
    """Even the question may be a default."""

    def ask(question: str = "why?") -> str:
        return question

    assert extract(FunctionArguments(ask, "trace")).query == "why?"


def test_keyword_only_parameters() -> None:
    """They have no position."""

    def ask(*, question: str, top_k: int = 2) -> str:
        return question * top_k

    assert extract(FunctionArguments(ask, "trace"), question="why?") == ExtractedArguments("why?", top_k=2)


def test_the_only_text_is_the_query_without_a_known_name() -> None:
    """Whatever its position; what is the parameter's default was not asked."""

    def find(index: object, needle: str, color: str = "red") -> str:
        return f"{index}{needle}{color}"

    arguments = FunctionArguments(find, "retrieve")
    assert extract(arguments, object(), "why?").query == "why?"
    assert extract(arguments, object(), needle="why?", color="red").query == "why?"
    assert extract(arguments, object(), {"question": "why?"}).query == "why?"


@pytest.mark.parametrize("name", ["tenant", "lang", "namespace", "system_prompt"])
def test_a_setting_beside_a_text_is_not_the_query(name: str) -> None:
    """Though it comes first; alone it is, as a function may call its question anything."""
    ask: Any = eval(f"lambda {name}, utterance=None: None")
    assert extract(FunctionArguments(ask, "trace"), "acme", "why?").query == "why?"
    assert extract(FunctionArguments(ask, "trace"), "why?").query == "why?"


def test_of_several_texts_none_is_guessed(caplog: pytest.LogCaptureFixture) -> None:
    """The log names them once, and the argument to give. What a tool is given is no question."""

    def ask(shop: str, utterance: str, color: str = "red") -> str:
        return shop + utterance + color

    arguments = FunctionArguments(ask, "trace")
    assert [extract(arguments, "acme", "why?").query, extract(arguments, "b", "what?").query] == [None, None]
    assert extract(arguments, "acme", "why?", "blue").query is None
    assert extract(arguments, "acme", ["why?"]).query == "acme"  # a list of texts is no question
    assert len(logged(caplog, "which argument of", "shop, utterance", "query=")) == 1
    assert extract(FunctionArguments(ask, "trace", query="utterance"), "acme", "why?").query == "why?"
    caplog.clear()
    faults.clear()
    assert extract(FunctionArguments(ask, "tool"), "acme", "why?").query is None
    assert logged(caplog, "which argument") == []


def test_well_known_names_are_found_among_any_keyword_arguments() -> None:
    """Of a function that passes on what it is given; its own parameters come first."""

    def forward(*args: object, **kwargs: object) -> None: ...

    def ask(text: str = "", **kwargs: object) -> None: ...

    found = extract(
        FunctionArguments(forward, "generate"), question="why?", docs=["c"], session_id="s", k=3, model="m", other="x"
    )
    assert found == ExtractedArguments("why?", (Document("c"),), 3, "s", "m")
    assert extract(FunctionArguments(forward, "trace"), "why?", 5).query == "why?"
    assert extract(FunctionArguments(forward, "trace"), "acme", "why?").query is None
    assert extract(FunctionArguments(forward, "trace"), other="x").query is None
    assert extract(FunctionArguments(ask, "trace"), "why?", question="what?").query == "why?"


def test_other_known_names_are_not_taken_for_the_query() -> None:
    """A session's id and a model's name are strings too."""

    def ask(session_id: str, model: str, context: str, wish: str) -> str:
        return session_id + model + context + wish

    found = extract(FunctionArguments(ask, "generate"), "s", "m", "c", "why?")
    assert found == ExtractedArguments("why?", (Document("c"),), session="s", model="m")


def test_a_request_object() -> None:
    """A request model has the question in a field."""

    def endpoint(request: Request) -> str:
        return request.question

    assert extract(FunctionArguments(endpoint, "trace"), Request(question="why?")).query == "why?"


def test_messages() -> None:
    """The last user message is the question."""

    def chat(messages: list[dict[str, str]]) -> str:
        return str(messages)

    assert extract(FunctionArguments(chat, "generate"), [{"role": "user", "content": "why?"}]).query == "why?"


def test_a_reranker_is_given_documents() -> None:
    """A retrieval with documents among its arguments shows them."""

    def rerank(query: str, documents: list[str]) -> list[str]:
        return documents

    assert extract(FunctionArguments(rerank, "retrieve"), "why?", ["a"]).documents == (Document("a"),)
    assert extract(FunctionArguments(search, "retrieve"), "why?").documents is None


def test_a_retrievers_context_is_no_document() -> None:
    """`context` of a retriever may be anything."""

    def retrieve(query: str, context: str) -> list[str]:
        return [query, context]

    assert extract(FunctionArguments(retrieve, "retrieve"), "why?", "tenant 7").documents is None


def test_an_empty_list_of_documents_is_understood() -> None:
    """Given none is not the same as not given."""
    assert extract(FunctionArguments(answer, "generate"), "why?", []).documents == ()
    assert extract(FunctionArguments(answer, "generate"), "why?", None).documents is None


def test_truth_values_and_texts_are_no_top_k() -> None:
    """Only a count is."""
    assert extract(FunctionArguments(search, "retrieve"), "why?", True).top_k is None
    assert extract(FunctionArguments(search, "retrieve"), "why?", "3").top_k is None


# --- every kind of callable ------------------------------------------------------------------------------------------
class Engine:
    def ask(self, question: str, k: int = 4) -> str:
        return question * k

    def __call__(self, question: str) -> str:
        return question

    @classmethod
    def of_class(cls, question: str) -> str:
        return question

    @staticmethod
    def of_none(question: str) -> str:
        return question


def test_a_method_called_on_its_instance() -> None:
    """The instance is left out of the arguments."""
    arguments = FunctionArguments(Engine.ask, "trace")
    assert arguments.extract(("why?", 2), {}, bound=True) == ExtractedArguments("why?", top_k=2)


def test_a_method_called_on_its_class() -> None:
    """The instance is the first argument."""
    arguments = FunctionArguments(Engine.ask, "trace")
    assert arguments.extract((Engine(), "why?", 2), {}, bound=False) == ExtractedArguments("why?", top_k=2)


def test_an_instance_is_never_the_query() -> None:
    """Whatever the first parameter is called."""

    class Odd:
        def ask(this, wish: str) -> str:  # noqa: N805
            return wish

    assert FunctionArguments(Odd.ask, "trace").extract(("why?",), {}, bound=True).query == "why?"


@pytest.mark.parametrize(
    ("function", "bound"),
    [
        (Engine.__dict__["of_class"], True),
        (Engine.__dict__["of_none"], False),
        (Engine().ask, False),
        (Engine().ask, True),
        (Engine(), False),
        (Engine.of_class, False),
        (partial(Engine.ask, Engine()), False),
        (partial(answer, docs=["a"]), False),
    ],
    ids=["classmethod", "staticmethod", "bound", "bound twice", "instance", "bound classmethod", "partial", "keyword"],
)
def test_every_kind_of_callable(function: object, bound: bool) -> None:
    """The question is found in each."""
    assert FunctionArguments(function, "trace").extract(("why?",), {}, bound=bound).query == "why?"


async def coroutine(question: str) -> str:
    """A coroutine function."""
    return question


def generator(question: str) -> Iterator[str]:
    """A generator function."""
    yield question


@wraps(answer)
def wrapped(*args: Any, **kwargs: Any) -> str:
    """A decorated function that shows the signature of the original."""
    return answer(*args, **kwargs)


@pytest.mark.parametrize("function", [coroutine, generator, wrapped, lambda question, docs=(): question])
def test_every_kind_of_function(function: Callable[..., object]) -> None:
    """The kind of function does not matter."""
    assert extract(FunctionArguments(function, "generate"), "why?").query == "why?"


@pytest.mark.parametrize("function", [operator.itemgetter(0), dict.get, print, min, object()])
def test_without_a_readable_signature_nothing_is_found(function: object) -> None:
    """And nothing raises."""
    FunctionArguments(function, "trace").extract((1,), {}, bound=False)


def test_a_signature_that_cannot_be_read_leaves_the_code() -> None:
    """Names, positions and defaults are in the compiled function too."""

    def ask(question: str, k: int = 5, *, session_id: str = "s", **more: object) -> str:
        return question * k + session_id + str(more)

    ask.__signature__ = "broken"  # type: ignore[attr-defined]
    found = extract(FunctionArguments(ask, "trace", user="account"), "why?", account="u")
    assert found == ExtractedArguments("why?", top_k=5, session="s", user="u")


# --- told where ------------------------------------------------------------------------------------------------------
def test_a_parameter_by_name() -> None:
    """The user knows better than any list of names."""

    def ask(query: str, wish: str) -> str:
        return query + wish

    assert extract(FunctionArguments(ask, "trace", query="wish"), "no", "why?").query == "why?"


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("request.question", Request(question="why?")),
        ("request.question", {"question": "why?"}),
        ("request.messages", Inputs([{"role": "user", "content": "why?"}])),
        ("request.messages.0.content", Inputs([{"role": "user", "content": "why?"}])),
        ("request.messages.-1", Inputs([{"role": "user", "content": "why?"}])),
        ("request.options.text", Inputs([], {"text": "why?"})),
    ],
)
def test_a_path_from_a_parameter(path: str, value: object) -> None:
    """Attributes, keys and positions, one after the other; what is there is read like any question."""

    def ask(request: object) -> str:
        return str(request)

    assert extract(FunctionArguments(ask, "trace", query=path), value).query == "why?"


def test_a_function_of_the_arguments() -> None:
    """It gets all of them by name, with defaults."""
    seen: list[Mapping[str, Any]] = []

    def choose(arguments: Mapping[str, Any]) -> str:
        seen.append(arguments)
        return "why?"

    assert extract(FunctionArguments(search, "retrieve", query=choose), "x", 3).query == "why?"
    assert extract(FunctionArguments(search, "retrieve", query=choose), query="y").query == "why?"
    assert seen == [{"query": "x", "k": 3}, {"query": "y", "k": 5}]


def test_a_function_does_not_get_the_instance() -> None:
    """The arguments of a method are those of the call."""
    seen: list[Mapping[str, Any]] = []
    FunctionArguments(Engine.ask, "trace", query=seen.append).extract(("x",), {}, bound=True)
    assert seen == [{"question": "x", "k": 4}]


def test_contexts_session_and_user_are_told_alike() -> None:
    """All selectors work the same way."""

    def ask(text: str, state: dict[str, Any]) -> str:
        return text + str(state)

    arguments = FunctionArguments(
        ask, "generate", contexts="state.found", session="state.thread", user=lambda given: given["state"]["who"]
    )
    found = extract(arguments, "why?", {"found": ["a"], "thread": 7, "who": "u"})
    assert found == ExtractedArguments("why?", (Document("a"),), session="7", user="u")


def test_the_user_is_taken_only_when_told() -> None:
    """Who asks is personal data: a parameter of that name is not enough."""

    def ask(question: str, user_id: str) -> str:
        return question + user_id

    assert extract(FunctionArguments(ask, "trace"), "why?", "u") == ExtractedArguments("why?")


def test_any_name_goes_with_keyword_arguments() -> None:
    """A function that takes everything may be given everything."""

    def ask(**kwargs: object) -> str:
        return str(kwargs)

    assert extract(FunctionArguments(ask, "trace", query="wish"), wish="why?").query == "why?"
    assert extract(FunctionArguments(ask, "trace", query="wish"), other="x").query is None


def test_an_unknown_parameter_stops_at_decoration() -> None:
    """It says what was wrong, what there is, and what was probably meant."""
    with pytest.raises(SettingsError) as raised:
        FunctionArguments(answer, "generate", query="questoin")
    assert str(raised.value) == (
        "query='questoin': answer has no parameter 'questoin'; did you mean 'question'?"
        " its parameters: question, docs, model, session_id"
    )


def test_an_unknown_start_of_a_path_stops_at_decoration() -> None:
    """The first step of a path is a parameter."""
    with pytest.raises(SettingsError, match="no parameter 'req'"):
        FunctionArguments(answer, "generate", contexts="req.docs")


@pytest.mark.parametrize("selector", [5, "", ["question"]])
def test_a_selector_of_another_type_stops_at_decoration(selector: Any) -> None:
    """A selector is a name, a path or a function."""
    with pytest.raises(SettingsError, match=r"must be a parameter's name, a path .* or a function"):
        FunctionArguments(answer, "generate", query=selector)


# --- what goes wrong -------------------------------------------------------------------------------------------------
def test_a_selector_that_raises_gives_nothing() -> None:
    """The failure is counted, the rest is picked."""

    def refuse(_: Mapping[str, Any]) -> str:
        raise RuntimeError("no")

    found = extract(FunctionArguments(answer, "generate", query=refuse), "why?", ["a"])
    assert found == ExtractedArguments(None, (Document("a"),), model="m")
    assert faults.counts() == {"a selector of answer": 1}


def test_a_path_that_leads_nowhere_gives_nothing() -> None:
    """The failure is counted, the rest is picked."""
    found = extract(FunctionArguments(answer, "generate", query="docs.question"), "why?", ["a"])
    assert found == ExtractedArguments(None, (Document("a"),), model="m")
    assert faults.counts() == {"a selector of answer": 1}


def test_a_question_that_is_not_understood_is_said(caplog: pytest.LogCaptureFixture) -> None:
    """Once, with the type and the argument to give."""

    def ask(thing: object) -> str:
        return str(thing)

    arguments = FunctionArguments(ask, "trace")
    assert [extract(arguments, object()).query, extract(arguments, object()).query] == [None, None]
    assert len(logged(caplog, "found no query in the object of", "query=")) == 1


def test_contexts_that_are_not_understood_are_said(caplog: pytest.LogCaptureFixture) -> None:
    """They are None, not empty."""
    assert extract(FunctionArguments(answer, "generate"), "why?", 5).documents is None
    assert "contexts=" in caplog.text


def test_a_call_that_does_not_fit_the_signature_does_no_harm() -> None:
    """The application gets its own TypeError, not ours."""
    assert extract(FunctionArguments(search, "retrieve")) == ExtractedArguments(top_k=5)
    extract(FunctionArguments(search, "retrieve"), 1, 2, 3, 4, other=5)


def test_a_broken_path_raises_only_here() -> None:
    """`follow` itself says what is missing."""
    with pytest.raises(LookupError):
        follow({"a": {}}, ["a", "b"])
    assert follow([{"a": 1}], ["0", "a"]) == 1


# --- paths in results ------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("data.0.text", {"data": [{"text": "yes"}]}),
        ("reply.text", '{"reply": {"text": "yes"}, "n": 1}'),
        ("note", {"choices": [{"message": {"content": '{"note": "yes", "other": "no"}'}}]}),
        ("note", Request(question='{"note": "yes"}').question),
    ],
)
def test_a_path_leads_to_what_is_in_a_result(path: str, value: object) -> None:
    """Through keys, indexes and attributes, and through JSON text."""
    assert select_at(path.split("."), value) == "yes"


def test_a_path_that_leads_nowhere_is_the_users_error() -> None:
    """As a function of the user's that raises."""
    for value in ({"data": 1}, "no JSON", 7, None):
        with pytest.raises((LookupError, TypeError)):
            select_at(["data", "text"], value)


@pytest.mark.parametrize("place", ["", 7, ["a"]])
def test_a_place_that_is_neither_a_path_nor_a_function_is_an_error(place: Any) -> None:
    """At decoration, with the argument that was wrong."""
    with pytest.raises(SettingsError, match="answer= must be a function"):
        ragtrace.generate(answer=place)(len)


def test_decorators_take_paths() -> None:
    """For documents and the answer, of what the functions return."""

    @ragtrace.retrieve(documents="page.rows")
    def search(question: str) -> Any:
        return {"page": {"rows": ["It is 330 metres tall."]}}

    @ragtrace.generate(answer="note")
    def reply(question: str) -> str:
        return '{"note": "It is tall.", "other": "It is very old."}'

    @ragtrace.trace
    def handle(question: str) -> str:
        search(question)
        reply(question)
        return "done"

    captured = watch()
    handle("How tall is it?")
    assert ragtrace.flush()
    written = {span.name: dict(span.attributes or {}) for span in captured.spans}
    search_span = next(each for name, each in written.items() if name.startswith("retrieval"))
    reply_span = next(each for each in written.values() if each.get("gen_ai.operation.name") == "chat")
    assert search_span["gen_ai.retrieval.documents"] == '[{"content":"It is 330 metres tall."}]'
    assert "It is tall." in str(reply_span["gen_ai.output.messages"])
    assert "very old" not in str(reply_span["gen_ai.output.messages"])
    ragtrace.shutdown()


# --- tags ------------------------------------------------------------------------------------------------------------
def test_tags_are_where_their_names_say() -> None:
    """A parameter, a path, a function, any keyword argument, or the same in every call."""

    def ask(question: str, request: Request, **options: object) -> None: ...

    tags = FunctionArguments(
        ask,
        "trace",
        tags={
            "session": "request.session_id",
            "size": lambda arguments: len(arguments["question"]),
            "tenant": "tenant",
            "via": constant("web"),
        },
    )
    assert tags.has_tags
    found = tags.extract_tags(("why?", Request(question="q")), {"tenant": "acme"}, bound=False)
    assert found == {"session": "s1", "size": 4, "tenant": "acme", "via": "web"}
    assert tags.extract_tags(("why?", Request(question="q")), {}, bound=False)["session"] == "s1"
    assert faults.counts() == {}


def test_a_function_without_tags_says_so() -> None:
    """So that a call of it does not look for any."""
    assert not FunctionArguments(search, "retrieve").has_tags
    assert not FunctionArguments(search, "retrieve", tags={}).has_tags


def test_a_function_that_finds_a_tag_keeps_no_argument_from_being_read_later() -> None:
    """Tags are read by themselves, when the call begins."""
    assert FunctionArguments(search, "retrieve", tags={"size": lambda arguments: 3}).can_wait


@pytest.mark.parametrize(
    ("tags", "problem"),
    [
        ({"tenant": "tennant"}, "has no parameter 'tennant'"),
        ({"a b": "query"}, "the name of a tag"),
        ({1: "query"}, "the name of a tag"),
        ({"tenant": None}, "must be a parameter's name"),
        ({"tenant": 3}, r"ragtrace.types.constant"),
        ({"tenant": ""}, "must be a parameter's name"),
        ("tenant", "such as {'tenant': 'tenant_id'}"),
        (["tenant"], "got list"),
        ({f"t{number}": "query" for number in range(MOST_TAGS + 1)}, "has 17 tags; a call has 16 at most"),
    ],
    ids=["parameter", "name", "number", "none", "value", "empty", "text", "list", "many"],
)
def test_wrong_tags_are_refused_at_decoration(tags: Any, problem: str) -> None:
    """As a wrong place of any other argument is."""
    with pytest.raises(SettingsError, match=problem):
        ragtrace.trace(tags=tags)(search)
    with pytest.raises(SettingsError, match=problem):
        ragtrace.generate(tags=tags)(search)
