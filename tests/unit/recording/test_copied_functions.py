"""Decorated functions are copied, deep-copied and pickled as what they wrap."""

from __future__ import annotations

import asyncio
import copy
import multiprocessing
import pickle
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import pydantic
import pytest

import ragtrace
from ragtrace.guard.guards import guarded_functions
from ragtrace.system.faults import faults
from ragtrace.testing import Captured

FOUND = ["Paris is a town."]
Copier = Callable[[Any], Any]


@ragtrace.retrieve
def search(query: str) -> list[str]:
    return FOUND


@ragtrace.generate
def stream(question: str) -> Iterator[str]:
    yield from FOUND


@ragtrace.generate
async def astream(question: str) -> AsyncIterator[str]:
    yield FOUND[0]


@ragtrace.tool
async def asearch(query: str) -> list[str]:
    return FOUND


def plain(query: str) -> list[str]:
    return FOUND


traced_elsewhere = ragtrace.retrieve(source="other")(plain)
of_partial = ragtrace.retrieve(partial(plain))


class Service:
    def __init__(self) -> None:
        self.found = list(FOUND)

    @ragtrace.retrieve
    def search(self, query: str) -> list[str]:
        return self.found

    @ragtrace.retrieve
    @staticmethod
    def static(query: str) -> list[str]:
        return FOUND

    @ragtrace.retrieve
    @classmethod
    def of_class(cls, query: str) -> list[str]:
        return FOUND

    @staticmethod
    @ragtrace.retrieve
    def static_inside(query: str) -> list[str]:
        return FOUND

    @classmethod
    @ragtrace.retrieve
    def of_class_inside(cls, query: str) -> list[str]:
        return FOUND


class Searcher:
    def __init__(self) -> None:
        self.found = list(FOUND)

    def __call__(self, query: str) -> list[str]:
        return self.found


searcher: Any = ragtrace.retrieve(Searcher())
SERVICE = Service()
DECORATED: dict[str, Any] = {
    "function": search,
    "generator": stream,
    "async generator": astream,
    "coroutine function": asearch,
    "function under another name": traced_elsewhere,
    "partial": of_partial,
    "callable object": searcher,
    "bound method": SERVICE.search,
    "function of a class": partial(Service.search, SERVICE),
    "static method": Service.static,
    "static method of an object": SERVICE.static,
    "class method": Service.of_class,
    "class method of an object": SERVICE.of_class,
    "static method around it": Service.static_inside,
    "class method around it": SERVICE.of_class_inside,
}


@dataclass
class Settings:
    retriever: Any


class Model(pydantic.BaseModel):
    retriever: Any


COPIERS: dict[str, Copier] = {
    "copy": copy.copy,
    "deepcopy": copy.deepcopy,
    "in a dict": lambda it: copy.deepcopy({"it": it})["it"],
    "asdict": lambda it: asdict(Settings(it))["retriever"],
    "model_copy": lambda it: Model(retriever=it).model_copy(deep=True).retriever,
    **{f"pickle {n}": lambda it, n=n: pickle.loads(pickle.dumps(it, n)) for n in range(pickle.HIGHEST_PROTOCOL + 1)},
}  # fmt: skip


@pytest.fixture
def captured() -> Iterator[Captured]:
    faults.clear()
    captured = Captured()
    ragtrace.configure(exporter=captured.signals)
    yield captured
    ragtrace.shutdown()


async def read_async(found: Any) -> list[str]:
    return [piece async for piece in found] if hasattr(found, "__aiter__") else await found


def read(found: Any) -> list[str]:
    """What a function of any kind returned, as a list."""
    if hasattr(found, "__aiter__") or hasattr(found, "__await__"):
        return asyncio.run(read_async(found))
    return list(found)


@pytest.mark.parametrize("copier", COPIERS.values(), ids=COPIERS.keys())
@pytest.mark.parametrize("decorated", DECORATED.values(), ids=DECORATED.keys())
def test_copies_work_and_are_recorded(captured: Captured, decorated: Any, copier: Copier) -> None:
    """A copy does what the original does, and its calls are recorded alike."""
    with ragtrace.call("Where?"):
        assert read(copier(decorated)("Where?")) == FOUND
        assert read(decorated("Where?")) == FOUND
    assert ragtrace.flush(5)
    first, second, _ = (span.name for span in captured.spans)
    assert first == second


def test_copies_of_a_guarded_object_share_its_guard(captured: Captured) -> None:
    """A guard is checked against the judges once, and none is added for a copy."""
    guarded: Any = ragtrace.trace(guard=ragtrace.Guard("consistency", below=0.5))(Searcher())
    guards = len(list(guarded_functions()))
    assert copy.deepcopy(guarded)("Where?") == copy.copy(guarded)("Where?") == FOUND
    assert len(list(guarded_functions())) == guards


def test_a_function_is_its_own_copy() -> None:
    """As Python copies functions, and pickles them: by name, in the same bytes as undecorated."""
    assert copy.copy(search) is copy.deepcopy(search) is pickle.loads(pickle.dumps(search)) is search
    assert pickle.loads(pickle.dumps(Service.search)).__wrapped__ is Service.search.__wrapped__  # type: ignore[attr-defined]


@pytest.mark.parametrize("decorated", [searcher, SERVICE.search], ids=["callable object", "bound method"])
@pytest.mark.parametrize("deep", [copy.deepcopy, lambda it: pickle.loads(pickle.dumps(it))], ids=["deepcopy", "pickle"])
def test_a_deep_copy_shares_no_state(decorated: Any, deep: Copier) -> None:
    """The object in it is copied; a shallow copy of a callable object shares what it holds."""
    deep(decorated)("Where?").append("more")
    assert decorated("Where?") == FOUND
    assert copy.copy(searcher)("Where?") is searcher("Where?")


def test_what_undecorated_cannot_be_pickled_cannot_decorated() -> None:
    """With Python's own error."""

    def local(query: str) -> list[str]:
        return FOUND

    with pytest.raises((AttributeError, pickle.PicklingError), match="local"):
        pickle.dumps(ragtrace.retrieve(local))


def test_an_option_that_cannot_be_pickled_leaves_the_function_undecorated() -> None:
    """Rather than make the application fail; it is said once, and counted."""
    faults.clear()
    chosen: Any = ragtrace.retrieve(documents=lambda found: found)(Searcher())
    assert type(pickle.loads(pickle.dumps(chosen))) is Searcher
    assert faults.counts()["pickled undecorated"] == 1


def test_a_returned_iterator_is_copied_as_what_it_is(captured: Captured) -> None:
    """The copy goes its own way, from the place where the original stood."""

    @ragtrace.generate
    def words(question: str) -> Any:
        return iter(["Paris ", "is ", "big."])

    found = words("Where?")
    next(found)
    for other in (copy.copy(found), copy.deepcopy(found), pickle.loads(pickle.dumps(found))):
        assert list(other) == ["is ", "big."]
    assert list(found) == ["is ", "big."]


@pytest.mark.parametrize("method", ["spawn", "fork"])
def test_decorated_things_go_to_a_process_pool(method: str) -> None:
    """Whichever way the processes are started."""
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context(method)) as pool:
        for decorated in (search, SERVICE.search, Service.static, searcher, of_partial):
            assert list(pool.map(decorated, ["Where?"])) == [FOUND]
