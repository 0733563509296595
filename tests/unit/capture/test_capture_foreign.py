"""Code of the application's own classes is not run while its functions are watched, whatever they pass around."""

from __future__ import annotations

import asyncio
import gc
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import pytest
import wrapt

import ragtrace
from ragtrace.capture import find_documents
from ragtrace.capture.field_names import VOCABULARY
from ragtrace.core.types import Document
from ragtrace.recording.proxies import ObservedAsyncStream, ObservedEitherStream, ObservedResponse, ObservedStream
from ragtrace.system.faults import faults
from ragtrace.testing import FakeJudge
from tests.support.examples import examples
from tests.support.foreign import Foreign
from tests.support.watched import GOOD, ask, watch


@pytest.fixture(autouse=True)
def _no_faults_before() -> None:
    faults.clear()


@ragtrace.retrieve
def look_up(query: Any, docs: Any, give: Any) -> Any:
    return give


@ragtrace.generate
def reply(question: Any, docs: Any, give: Any) -> Any:
    return give


@ragtrace.trace
def whole(question: Any, docs: Any, give: Any) -> Any:
    return give


class Unhashable(type):
    """Its classes can be compared, and so are not hashable."""

    def __eq__(cls, other: object) -> bool:
        return cls is other


class Answer(metaclass=Unhashable):
    text = "x"


@pytest.mark.parametrize("function", [look_up, reply, whole])
def test_an_object_of_an_unhashable_class_comes_back(function: Callable[..., Any]) -> None:
    """Nothing is raised into the application, and what is called next is watched as before."""
    watch(screen=FakeJudge(GOOD))
    answer = Answer()
    assert function(answer, answer, answer) is answer
    ask("and then?")
    assert ragtrace.flush()
    offered = ragtrace.stats().evaluators["fake"].offered
    assert offered == (1 if function is look_up else 2)


def test_an_object_of_an_unhashable_class_comes_back_from_a_coroutine() -> None:
    """The same where the result is awaited."""
    watch()

    @ragtrace.trace
    async def asked(question: str) -> Any:
        return answer

    answer = Answer()
    assert asyncio.run(asked("why?")) is answer


def test_an_exception_of_an_unhashable_class_comes_out() -> None:
    """As it was raised."""

    class UnhashableError(Exception, metaclass=Unhashable):
        pass

    @ragtrace.trace
    def fail(question: str) -> None:
        raise error

    watch()
    error = UnhashableError("no")
    with pytest.raises(UnhashableError) as raised:
        fail("why?")
    assert raised.value is error


class Ran(Exception):  # noqa: N818 - it is the fact that it was run
    pass


OBSERVED = (ObservedResponse, ObservedStream, ObservedAsyncStream, ObservedEitherStream)


class Counted:
    """Counts how often code of a foreign class was run."""

    def __init__(self) -> None:
        self.times = 0

    def __call__(self) -> None:
        self.times += 1


@pytest.mark.parametrize("seed", range(6))
def test_no_code_of_unknown_classes_is_run(seed: int) -> None:
    """As arguments, results, pieces of streams and exceptions: the objects come back, and none of their code ran."""
    watch(screen=FakeJudge(GOOD))
    count = Counted()
    foreign = Foreign(seed, count)

    @ragtrace.generate
    def stream(question: Any) -> Iterator[Any]:
        yield value
        yield "text"

    @ragtrace.trace
    def fail(question: Any) -> None:
        raise error

    for _ in range(examples(50)):
        value, error = foreign.value(), foreign.error()
        before = count.times
        back = [function(value, value, value) for function in (look_up, reply, whole)] + [next(stream(value))]
        try:
            fail(value)
        except BaseException as seen:  # pytest.raises would look at it
            back.append(seen)
        back = [each.__wrapped__ if any(type(each) is kind for kind in OBSERVED) else each for each in back]
        same = [each is (value if number < 4 else error) for number, each in enumerate(back)]
        assert same == [True] * 5
        assert count.times == before
    assert ragtrace.flush()
    assert ragtrace.stats().pending == 0


class LazySequence(Sequence[str]):
    """A result list that asks a server for each item."""

    asked = 0

    def __len__(self) -> int:
        return 1_000

    def __getitem__(self, index: Any) -> Any:
        LazySequence.asked += 1
        return "text"


class EndlessMapping(Mapping[str, str]):
    """Its keys never end."""

    def __iter__(self) -> Iterator[str]:
        while True:
            yield "key"

    def __len__(self) -> int:
        return 1

    def __getitem__(self, name: str) -> str:
        return "text"


class SlowText:
    """Its text takes half a second."""

    asked = 0

    @property
    def text(self) -> str:
        SlowText.asked += 1
        return " ".join(["so", "slow"])


@pytest.mark.parametrize("make", [LazySequence, EndlessMapping, SlowText, lambda: [SlowText()] * 5])
def test_what_only_foreign_code_could_read_is_counted_and_told_once(
    make: Callable[[], Any], caplog: pytest.LogCaptureFixture
) -> None:
    """Under one name in `stats().faults`, with what to write in the log."""
    watch()
    caplog.set_level(logging.WARNING, "ragtrace")
    for _ in range(2):
        look_up("why?", None, make())
    assert ragtrace.flush()
    assert (LazySequence.asked, SlowText.asked) == (0, 0)
    assert ragtrace.stats().faults["capture.unread"] == 2
    (told,) = [record.getMessage() for record in caplog.records if "did not read" in record.getMessage()]
    assert "documents=lambda" in told


class LazyProxy:
    """Makes its object when somebody looks at it, as lazy_object_proxy and werkzeug's LocalProxy do."""

    made = 0

    @property
    def __wrapped__(self) -> str:
        LazyProxy.made += 1
        return "text"

    @property
    def __class__(self) -> Any:
        return type(self.__wrapped__)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__wrapped__, name)

    def __str__(self) -> str:
        return str(self.__wrapped__)

    __iter__ = __next__ = __aiter__ = __anext__ = __await__ = __len__ = __getitem__ = __str__


def lazy_of_wrapt() -> Any:
    """The one of wrapt."""

    def make() -> str:
        LazyProxy.made += 1
        return "text"

    return wrapt.LazyObjectProxy(make)


_OLD_WRAPT = pytest.mark.skipif(not hasattr(wrapt, "LazyObjectProxy"), reason="this version of wrapt has no lazy proxy")


@pytest.mark.parametrize("make", [LazyProxy, pytest.param(lazy_of_wrapt, marks=_OLD_WRAPT)])
def test_a_lazy_proxy_comes_back_unmade(make: Callable[[], Any]) -> None:
    """It is passed on as it is, as argument, document and answer, and nobody makes its object."""
    watch(screen=FakeJudge(GOOD))
    proxy = make()
    for function in (look_up, reply, whole):
        assert function(proxy, [proxy], proxy) is proxy
    gc.collect()
    assert ragtrace.flush()
    assert LazyProxy.made == 0


class Chunk:
    """Properties that only return a field."""

    __slots__ = ("_inner", "_text")

    def __init__(self, text: str) -> None:
        self._text = text
        self._inner = {"id": "7"}

    @property
    def text(self) -> str:
        return self._text

    @property
    def id(self) -> Any:
        return self._inner["id"]


def test_a_property_that_returns_a_field_is_read_as_that_field() -> None:
    """From slots, from a dictionary inside."""
    assert find_documents([Chunk("a")]) == (Document("a", "7"),)


def test_keys_that_are_no_strings_are_not_compared() -> None:
    """A record is read by its plain keys."""

    class Key:
        def __hash__(self) -> int:
            return hash("text")

        def __eq__(self, other: object) -> bool:
            if type(other) is str:
                raise Ran
            return False

    assert find_documents([{Key(): 1, "page_content": "a", "metadata": {Key(): 2, "id": "7"}}]) == (Document("a", "7"),)
    assert VOCABULARY


class QuotaError(Exception):
    def __str__(self) -> str:
        raise Ran


def test_an_exception_is_printed_by_its_arguments() -> None:
    """Not by a `__str__` of the application's; its cause and its notes are there."""

    @ragtrace.trace
    def fail(question: str) -> None:
        try:
            {}["key"]
        except KeyError as error:
            raise QuotaError(429, "too many") from error

    captured = watch()
    with pytest.raises(QuotaError):
        fail("why?")
    assert ragtrace.flush()
    (event,) = captured.root().events
    told = dict(event.attributes or {})
    assert told["exception.message"] == "(429, 'too many')"
    assert "KeyError: 'key'\n\nThe above exception was the direct cause" in str(told["exception.stacktrace"])
