"""Attributes of other libraries' objects that are read with a default: a default must not mean that a feature is off.

`getattr(span, "limit", None)` is None for a span without a limit, for one whose class keeps the limit elsewhere, and
after a release that renames it. So each such line is listed here, with the real object on which it finds something, or
with the test of the real library that shows it.
"""

from __future__ import annotations

import ast
import asyncio
import gc
import io
import weakref
from collections.abc import AsyncGenerator, Callable, Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final, NamedTuple

import httpx
import openai
import pytest
import urllib3
import wrapt
from opentelemetry.sdk._logs import LoggerProvider
from opentelemetry.sdk.trace import SpanLimits, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExportResult
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.id_generator import RandomIdGenerator
from opentelemetry.sdk.trace.sampling import DEFAULT_ON

from tests.support.frameworks import library

ROOT: Final = Path(__file__).parents[2]
FOLDERS: Final = ("ragtrace", "ragtrace_pytest", "exporters/ragtrace_exporters")
OF_PYTHON: Final = frozenset({"builtins", "database", "os", "signal", "sys.flags"})
"""Objects whose attributes depend on the version of Python and on the operating system."""


class Site(NamedTuple):
    """A `getattr` with a default, or a `hasattr`, as it stands in the source."""

    path: str
    """File; of the folder `ragtrace`, unless it says otherwise."""
    read: str
    """The object and the attribute."""


class Named(NamedTuple):
    """An object, and the name of the attribute that a variable holds in the source."""

    one: object
    attribute: str


def _tracer_provider(**limits: int) -> TracerProvider:
    return TracerProvider(shutdown_on_exit=False, span_limits=SpanLimits(**limits))


def _span(**limits: int) -> Any:
    span = _tracer_provider(**limits).get_tracer("test").start_span("name", attributes={"a": 1, "b": 2})
    span.end()
    return span


def _attributes_behind_proxy() -> Any:
    (inner,) = gc.get_referents(_span(max_span_attribute_length=7).attributes)
    return inner


def _failed_future() -> Any:
    async def fail() -> Any:
        future = asyncio.get_running_loop().create_future()
        future.set_exception(LookupError())
        assert future.exception()  # else the loop complains that nobody looked
        return future

    return asyncio.run(fail())


def _stream(client: Any) -> Any:
    response = httpx.Response(200, request=httpx.Request("GET", "http://127.0.0.1"))
    kind: Any = openai.AsyncStream if isinstance(client, openai.AsyncOpenAI) else openai.Stream
    return kind(cast_to=object, response=response, client=client)


def _one_piece() -> Iterator[str]:
    yield ""


async def _pieces() -> AsyncGenerator[str, None]:
    yield ""


def _of(module: str, make: Callable[[Any], Any]) -> Callable[[], Any]:
    """Return what makes something of a module that is imported only then."""
    return lambda: make(library(module))


def _tool_message(dataclasses: Any) -> Any:
    return dataclasses.ChatMessage.from_tool("330 metres", origin=dataclasses.ToolCall("look_up", {}))


def _callbacks_of_run(runnables: Any) -> Any:
    seen: list[Any] = []
    current = library("langchain_core.runnables.config").var_child_runnable_config
    runnables.RunnableLambda(lambda _: seen.append(current.get()["callbacks"])).invoke("")
    return seen[0]


def _finalizers() -> Any:
    assert any(each.peek()[0] is _POOL for each in list(getattr(weakref.finalize, "_registry")))  # noqa: B009
    return weakref.finalize


def _logger() -> Any:
    if tuple(map(int, version("opentelemetry-sdk").split(".")[:2])) < (1, 45):
        pytest.skip("loggers of older SDKs have no `enabled`, and take every event")
    return LoggerProvider(shutdown_on_exit=False).get_logger("test")


_POOL: Final = urllib3.HTTPConnectionPool("127.0.0.1")
_AGENTS: Final = "tests/integration/test_library_attributes.py::test_the_agents_sdk_has_them"
_LLAMA_INDEX: Final = "tests/unit/span_reading/frameworks/test_llama_index.py::"
_PASSED: Final = "tests/contract/test_passed_tests.py::test_workers_report_to_one_record"
_HHEM: Final = "tests/unit/judges/test_hhem.py::"
FOUND: Final[dict[Site, Callable[[], Any] | str]] = {
    Site("capture/fields.py", "sys.modules.get('wrapt') . 'ObjectProxy'"): lambda: wrapt,
    Site(
        "capture/providers.py", "value . '_hidden_params'"
    ): "tests/integration/test_library_attributes.py::test_the_provider_of_an_answer_of_litellm_is_found",
    Site("core/step.py", "root.span . 'start_time'"): _span,
    Site("core/step.py", "step.span . 'start_time'"): _span,
    Site("diagnosis/telemetry_probes.py", "inner . 'strerror'"): lambda: OSError(2, "no such file"),
    Site("diagnosis/telemetry_probes.py", "one . 'reason'"): lambda: urllib3.exceptions.MaxRetryError(
        urllib3.HTTPConnectionPool("127.0.0.1"), "/", OSError("refused")
    ),
    Site("guard/held_objects.py", "stream . 'aclose'"): _pieces,
    Site("guard/held_objects.py", "stream . 'close'"): lambda: _stream(openai.AsyncOpenAI(api_key="none")),
    Site("judges/llm/server_connection.py", "found.client . 'api_key'"): lambda: openai.AsyncOpenAI(api_key="none"),
    Site(
        "judges/local/hhem.py", "config . 'max_position_embeddings'"
    ): f"{_HHEM}test_long_contexts_are_read_in_windows_of_the_models_length",
    Site(
        "judges/local/hhem.py", "config . 'model_type'"
    ): f"{_HHEM}test_long_contexts_are_read_in_windows_of_the_models_length",
    Site(
        "metrics/bert_score.py", "model.config . 'max_position_embeddings'"
    ): f"{_HHEM}test_long_texts_are_embedded_in_pieces",
    Site("ragtrace_pytest/__init__.py", "config . 'workerinput'"): _PASSED,
    Site("recording/drivers.py", "future . '_exception'"): _failed_future,
    Site("span_reading/frameworks/haystack.py", "message . 'tool_call_results'"): _of(
        "haystack.dataclasses", _tool_message
    ),
    Site("span_reading/frameworks/haystack.py", "result . 'result'"): _of(
        "haystack.dataclasses", lambda module: _tool_message(module).tool_call_results[0]
    ),
    Site("span_reading/frameworks/langchain.py", "callbacks . 'parent_run_id'"): _of(
        "langchain_core.runnables", _callbacks_of_run
    ),
    Site("span_reading/frameworks/langchain.py", "output . 'content'"): _of(
        "langchain_core.messages", lambda module: module.ToolMessage("330 metres", tool_call_id="1")
    ),
    Site(
        "span_reading/frameworks/llama_index.py", "instance . '_memory'"
    ): f"{_LLAMA_INDEX}test_a_chat_engine_is_one_call_for_each_message",
    Site("span_reading/frameworks/llama_index.py", "memory . name"): _of(
        "llama_index.core.memory",
        lambda module: Named(module.ChatMemoryBuffer.from_defaults(chat_store_key="visit"), "chat_store_key"),
    ),
    Site("span_reading/frameworks/openai_agents.py", "data . 'model'"): _AGENTS,
    Site(
        "span_reading/frameworks/openai_agents.py",
        "getattr(self.__wrapped__, '_multi_processor', None) . '_processors'",
    ): _AGENTS,
    Site("span_reading/frameworks/openai_agents.py", "self.__wrapped__ . '_multi_processor'"): _AGENTS,
    Site("span_reading/frameworks/openai_agents.py", "trace . 'group_id'"): _AGENTS,
    Site("span_reading/frameworks/openai_agents.py", "trace . 'metadata'"): _AGENTS,
    Site("span_reading/frameworks/openai_agents.py", "trace . 'name'"): _AGENTS,
    Site("recording/invocation.py", "iterator . 'close'"): _one_piece,
    Site("recording/invocation.py", "iterator . 'send'"): _one_piece,
    Site("runtime/configure.py", "provider or get_tracer_provider() . 'resource'"): _tracer_provider,
    Site("runtime/configure.py", "resource . 'attributes'"): lambda: _tracer_provider().resource,
    Site("runtime/configure.py", "value . f'get_{what}'"): lambda: Named(_tracer_provider(), "get_tracer"),
    Site("core/limited_json.py", "inner . 'max_value_len'"): _attributes_behind_proxy,
    Site("telemetry/spans/intake.py", "attributes . 'copy'"): lambda: _span().attributes,
    Site("system/forks.py", "weakref.finalize . '_registry'"): _finalizers,
    Site("system/terminal.py", "stream . 'reconfigure'"): lambda: io.TextIOWrapper(io.BytesIO()),
    Site("tagging/routing/route.py", "exporter . 'export'"): InMemorySpanExporter,
    Site("tagging/routing/routed_export.py", "logger . 'enabled'"): _logger,
    Site("telemetry/export/providers.py", "exporter . 'export'"): InMemorySpanExporter,
    Site("telemetry/export/providers.py", "provider . 'force_flush'"): _tracer_provider,
    Site("telemetry/export/telemetry.py", "result . 'name'"): lambda: SpanExportResult.SUCCESS,
    Site("telemetry/scores/event.py", "logger . 'enabled'"): _logger,
    Site("telemetry/spans/fast.py", "around . 'resource'"): _span,
    Site("telemetry/spans/fast.py", "ids . 'is_trace_id_random'"): RandomIdGenerator,
    Site("telemetry/spans/span_listener.py", "provider . 'add_span_processor'"): _tracer_provider,
    Site("telemetry/spans/span_providers.py", "kind . name"): lambda: Named(BatchSpanProcessor, "on_start"),
    Site("telemetry/spans/span_providers.py", "provider . 'sampler'"): _tracer_provider,
    Site("telemetry/spans/span_providers.py", "sampler . 'get_description'"): lambda: DEFAULT_ON,
    Site("telemetry/spans/span_providers.py", "tracer . '_is_enabled'"): lambda: _tracer_provider().get_tracer("test"),
    Site("telemetry/spans/writer.py", "readable . 'dropped_attributes'"): lambda: _span(max_span_attributes=1),
    Site("telemetry/spans/writer.py", "span . 'attributes'"): _span,
    Site("telemetry/spans/writer.py", "span . 'dropped_attributes'"): lambda: _span(max_span_attributes=1),
}
"""What makes the real object of a site, on which the attribute is neither missing nor empty; or a test that shows so of
a library that is not installed beside the others."""
OWN_NAMES: Final = frozenset({
    "add_own_processor", "bad", "beside", "call_builder", "computes", "counts", "depth", "finish", "first_after_s",
    "judged_texts", "keeps_held", "limits", "opt_in", "price", "reads", "refused", "rejected", "sees_ends_only",
    "settled",
})  # fmt: skip
"""Attributes of ragtrace's own, on objects of users or of ours, that no other library has."""
OURS: Final = frozenset(
    {
        Site("cli/results.py", "value . '_asdict'"),  # of a named tuple
        Site("cli/doctor_command.py", "module . attribute"),  # which the user names on the command line
        Site("decorators.py", "guard . 'driver'"),  # without it, the argument is refused
        Site("demo/library.py", "module . attribute"),
        Site("diagnosis/examination.py", "sink . 'where'"),
        Site("diagnosis/probes.py", "notifier . 'url'"),
        Site("diagnosis/telemetry_probes.py", "getattr(module, point.attr, None) . name"),
        Site("diagnosis/telemetry_probes.py", "module . name"),
        Site("diagnosis/telemetry_probes.py", "module . point.attr"),
        Site("history/history.py", "decision . 'reason'"),
        Site("pipeline/shutdown.py", "span . 'trace'"),
        Site("telemetry/scores/score_sender.py", "each . 'sees_early_scores'"),  # an observer need be no part
        Site("recording/conversations.py", "metric . 'fields'"),
    }
)
"""Where another library might have an attribute of that name, but the object is ragtrace's own or the user's."""


def _trees() -> Iterator[tuple[str, ast.Module]]:
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*.py")):
            yield path.relative_to(ROOT).as_posix().removeprefix("ragtrace/"), ast.parse(path.read_text("utf-8"))


def _sites() -> Iterator[Site]:
    for path, tree in _trees():
        for node in ast.walk(tree):
            if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Name)):
                continue
            if (node.func.id, len(node.args)) not in {("getattr", 3), ("hasattr", 2)}:
                continue
            one, attribute = map(ast.unparse, node.args[:2])
            if one not in OF_PYTHON and not attribute.startswith("'__"):  # of functions and classes, as Python says
                yield Site(path, f"{one} . {attribute}")


def test_each_attribute_with_a_default_is_listed() -> None:
    """A new one needs the real object that has it: absence must not switch a feature off in silence."""
    found = {site for site in _sites() if site.read.rpartition(" . ")[2].strip("'") not in OWN_NAMES}
    assert found - FOUND.keys() - OURS == set(), "show the real object in FOUND, or name what is ours in OURS"
    assert found == FOUND.keys() | OURS
    assert not FOUND.keys() & OURS


@pytest.mark.parametrize("site", [site for site, made in FOUND.items() if callable(made)], ids=" ".join)
def test_the_real_object_has_it(site: Site) -> None:
    """With a value that is not the one of its absence."""
    make = FOUND[site]
    assert callable(make)
    one = make()
    if isinstance(one, Named):
        one, attribute = one
    else:
        attribute = ast.literal_eval(site.read.rpartition(" . ")[2])
    assert getattr(one, attribute) not in (None, "", 0, (), [], {})


@pytest.mark.parametrize("test", sorted({made for made in FOUND.values() if isinstance(made, str)}))
def test_the_test_that_is_named_is_there(test: str) -> None:
    """Under its name."""
    path, _, name = test.partition("::")
    assert name
    assert f"def {name}(" in (ROOT / path).read_text("utf-8")


def test_own_attributes_are_defined_here() -> None:
    """As a field, a method or an assignment: none is another library's."""
    own = {"_asdict"}
    for _, tree in _trees():
        for node in ast.walk(tree):
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                own.add(node.name)
            elif isinstance(node, (ast.Name, ast.Attribute)) and isinstance(node.ctx, ast.Store):
                own.add(node.id if isinstance(node, ast.Name) else node.attr)
    named = [ast.literal_eval(site.read.rpartition(" . ")[2]) for site in OURS if site.read.endswith("'")]
    assert {*named, *OWN_NAMES} <= own
