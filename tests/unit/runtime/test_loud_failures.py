"""Failures are told once, with what was said and what to do: judges that fail, contexts and answers never seen."""

from __future__ import annotations

import asyncio
import logging
import re
import socket
import threading
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final

import pytest

import ragtrace
from ragtrace.core.errors import JudgeError
from ragtrace.core.types import Judgement
from ragtrace.diagnosis import diagnose_environment
from ragtrace.system.faults import faults
from ragtrace.testing import FakeJudge, OpenAIServer
from ragtrace.testing.replies import Reply
from tests.support import watched
from tests.support.scored import EVERY
from tests.support.watched import ANSWER, GOOD, search, watch

SECRET: Final = "sk-very-secret-key-123"


@pytest.fixture(autouse=True)
def _no_faults_before() -> None:
    faults.clear()


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    """What ragtrace itself warned of: other libraries' threads may log at any time."""
    return [
        record.getMessage()
        for record in caplog.records
        if record.levelno >= logging.WARNING and record.name.startswith("ragtrace")
    ]


def ask(times: int, judge: Any, **settings: Any) -> None:
    """Have *judge* judge so many different calls, one after the other."""
    watch(screen=None, judge=judge, sampling=EVERY, **settings)
    for number in range(times):
        watched.ask(f"where {number}?")
        assert ragtrace.flush(timeout=20)


# --- judges ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def closed() -> Iterator[int]:
    """A port on which nobody listens."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        yield held.getsockname()[1]


def test_a_judge_without_a_key_says_so_once(caplog: pytest.LogCaptureFixture) -> None:
    """At the first call, with the variable to set; the doctor names the cause and counts."""
    ask(3, ragtrace.OpenAIJudge("gpt-4o-mini"))
    [warning] = warnings(caplog)
    assert "'openai' fails (no key)" in warning
    assert "OPENAI_API_KEY" in warning
    judge = ragtrace.doctor(probe=False).evaluators[-1]
    assert (judge.failures, judge.failing) == ({"no key": 3}, 3)
    assert any("no key 3" in problem for problem in ragtrace.doctor(probe=False).problems)


def test_a_judge_that_cannot_be_reached_says_so_once(closed: int, caplog: pytest.LogCaptureFixture) -> None:
    """With the address."""
    limits = ragtrace.JudgeLimits(timeout=2.0)
    ask(2, ragtrace.OpenAIJudge("m", base_url=f"http://127.0.0.1:{closed}/v1", limits=limits))
    [warning] = warnings(caplog)
    assert (
        f"'openai' fails (unreachable), and gives no scores until it answers: http://127.0.0.1:{closed}/v1" in warning
    )
    assert "base_url=" in warning


@pytest.mark.parametrize(
    ("detail", "cause", "todo"),
    [
        (f"HTTP 401: Incorrect API key provided: {SECRET}.", "key refused", "api_key="),
        ("HTTP 404: The model `gpt-5-pico` does not exist", "model or address unknown", "the model's name"),
    ],
)
def test_a_refusal_is_told_at_the_first_call(
    detail: str, cause: str, todo: str, caplog: pytest.LogCaptureFixture
) -> None:
    """With what the server said, without the key in it, and what to do."""
    ask(2, FakeJudge(JudgeError("unavailable", detail, retryable=False), name="judge"))
    [warning] = warnings(caplog)
    assert warning.startswith(f"'judge' fails ({cause})")
    assert detail.replace(SECRET, "***")[:30] in warning
    assert todo in warning
    assert SECRET not in warning + str(ragtrace.doctor(probe=False))


def test_a_key_that_a_server_refuses_is_told_with_its_words(caplog: pytest.LogCaptureFixture) -> None:
    """Over HTTP, as OpenAI's server says it; without the key, which it repeats."""
    refusal = Reply.failing(401, f"Incorrect API key provided: {SECRET}.", code="invalid_api_key")
    with OpenAIServer(refusal) as server:
        ask(2, ragtrace.OpenAIJudge("m", base_url=server.url, api_key=SECRET))
    [warning] = warnings(caplog)
    assert "'openai' fails (key refused), and gives no scores until it answers: HTTP 401: Incorrect API key" in warning
    diagnosis = ragtrace.doctor(probe=False)
    assert diagnosis.evaluators[-1].failures == {"key refused": 2}
    assert SECRET not in warning + str(diagnosis)


def test_garbage_is_told_when_it_is_no_accident(caplog: pytest.LogCaptureFixture) -> None:
    """The fifth call in a row; the doctor tells causes apart."""
    bad = JudgeError("unparsable", "the server sent no JSON object: 'lorem'", retryable=False)
    judge = FakeJudge(*([GOOD] + [bad] * 4), name="judge")
    ask(5, judge)
    assert warnings(caplog) == []
    assert ragtrace.doctor(probe=False).evaluators[-1].failing == 4
    ask(6, FakeJudge(bad, name="judge"))
    [warning] = warnings(caplog)
    assert "'judge' fails (garbage)" in warning
    assert "lorem" in warning


def test_a_judge_that_fails_again_later_is_told_again(caplog: pytest.LogCaptureFixture) -> None:
    """It has answered in between."""
    bad = JudgeError("unavailable", "HTTP 401: no", retryable=False)
    ask(12, FakeJudge(bad, GOOD, bad, bad, bad, bad, bad, bad, GOOD, name="judge"))
    assert len(warnings(caplog)) == 2


# --- what was never seen ---------------------------------------------------------------------------------------------


@ragtrace.trace(name="bare")
def without_contexts(question: str) -> str:
    return ANSWER


@ragtrace.trace(name="odd")
def without_answer(question: str) -> dict[str, int]:
    search(question)
    return {"foo": 1}


def test_contexts_that_are_never_captured_are_told_once(caplog: pytest.LogCaptureFixture) -> None:
    """After the first ten calls, with the decorator to write; the doctor counts them and says it is not well."""
    watch()
    for _ in range(12):
        without_contexts("where?")
    assert ragtrace.flush()
    [warning] = warnings(caplog)
    assert "no contexts were captured in the first 10 calls of workflow 'bare'" in warning
    assert "hallucination" not in warning  # no judge: no such score is to be had
    assert "@ragtrace.retrieve" in warning
    diagnosis = ragtrace.doctor(probe=False)
    assert "12 contexts_missing" in str(diagnosis)
    assert "contexts_missing" in diagnosis.fates[-1].why
    assert "All well" not in str(diagnosis)
    assert any("contexts_missing" in problem for problem in diagnosis.problems)


@ragtrace.retrieve
def look_up(query: str) -> list[str]:
    return ["Paris is a big city."]


async def in_executor(question: str) -> None:
    await asyncio.get_running_loop().run_in_executor(None, look_up, question)


async def in_pool(question: str) -> None:
    with ThreadPoolExecutor(2) as pool:
        assert len(list(pool.map(look_up, [question, "how many"]))) == 2


async def on_thread(question: str) -> None:
    thread = threading.Thread(target=look_up, args=(question,))
    thread.start()
    thread.join()


@pytest.mark.parametrize("retrieve", [in_executor, in_pool, on_thread])
def test_retrievals_on_threads_without_the_context_are_told(
    retrieve: Callable[[str], Awaitable[None]], caplog: pytest.LogCaptureFixture
) -> None:
    """With the function, and what carries the context: to decorate it is no advice, as it is decorated."""

    @ragtrace.trace(name="threads")
    async def ask_in_thread(question: str) -> str:
        await retrieve(question)
        return ANSWER

    watch()
    for _ in range(12):
        asyncio.run(ask_in_thread("where?"))
    assert ragtrace.flush()
    [warning] = warnings(caplog)
    problem = next(problem for problem in ragtrace.doctor(probe=False).problems if "contexts_missing" in problem)
    for told in (warning, problem):
        assert "ragtrace.carry" in told
        assert "asyncio.to_thread" in told
        assert re.search(r"look_up \(\d+ times\) began while they ran", told)
        assert "decorate the function" not in told


def test_retrievals_at_other_times_are_not_told(caplog: pytest.LogCaptureFixture) -> None:
    """Such as those that warm an index up, beside a workflow whose retrieval is not decorated."""
    watch()
    for _ in range(12):
        look_up("warm up")
        without_contexts("where?")
    assert ragtrace.flush()
    [warning] = warnings(caplog)
    assert "decorate the function that retrieves" in warning


def test_a_retrieval_beside_the_calls_is_no_problem_of_those_with_contexts(caplog: pytest.LogCaptureFixture) -> None:
    """Only a workflow without any contexts lacks those that were found elsewhere."""

    @ragtrace.trace(name="both")
    def ask_both(question: str) -> str:
        asyncio.run(in_executor(question))
        look_up(question)
        return ANSWER

    watch()
    for _ in range(12):
        ask_both("where?")
    assert ragtrace.flush()
    assert warnings(caplog) == []


@ragtrace.retrieve
def search_towns(query: str) -> list[str]:
    return ["Paris is a big city."] if "Paris" in query else []


@ragtrace.trace(name="towns")
def ask_of_towns(question: str) -> str:
    search_towns(question)
    return ANSWER


def test_a_retriever_that_never_finds_anything_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    """After the first ten calls; the doctor counts no call with contexts, and says that it is not well."""
    watch()
    for _ in range(12):
        ask_of_towns("where?")
    assert ragtrace.flush()
    [warning] = warnings(caplog)
    assert "the retrieval found nothing in the first 10 calls of workflow 'towns'" in warning
    diagnosis = ragtrace.doctor(probe=False)
    [row] = diagnosis.seen
    assert (row.calls, row.with_contexts, row.no_contexts, row.with_answer) == (12, 0, 12, 12)
    assert re.search("towns +12 calls +0 with contexts +12 no_contexts +0 contexts_missing +12 with an", str(diagnosis))
    [problem] = diagnosis.problems
    assert "the retrieval found nothing in the first 12 calls of workflow 'towns'" in problem
    assert "no_contexts" in problem
    assert "All well" not in str(diagnosis)
    assert diagnosis.scored_lately == 0


def test_a_retriever_that_sometimes_finds_nothing_is_counted(caplog: pytest.LogCaptureFixture) -> None:
    """Nothing is wrong; of the scored calls those count that had contexts."""
    watch()
    for question in ("where is Paris?", *["where?"] * 11):
        ask_of_towns(question)
    assert ragtrace.flush()
    assert warnings(caplog) == []
    diagnosis = ragtrace.doctor(probe=False)
    [row] = diagnosis.seen
    assert (row.calls, row.with_contexts, row.no_contexts) == (12, 1, 11)
    assert diagnosis.problems == ()
    assert "All well: 1 calls with contexts and an answer were scored" in str(diagnosis)


def test_an_answer_that_is_never_seen_is_told_with_the_function_and_with_what_follows(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Once each, with the argument that says where it is: at the first call, and after ten without any answer."""
    watch()
    for _ in range(12):
        without_answer("where?")
    assert ragtrace.flush()
    [warning] = warnings(caplog)
    assert "found no answer in the dict of" in warning
    assert "answer=" in warning
    assert "12 answer_not_captured" in str(ragtrace.doctor(probe=False))


@ragtrace.trace(name="silent")
def without_return(question: str) -> None:
    search(question)


def test_a_workflow_that_returns_nothing_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    """There is no value to describe, so the workflow is named."""
    watch()
    for _ in range(12):
        without_return("where?")
    assert ragtrace.flush()
    [warning] = warnings(caplog)
    assert "no answer was found in the first 10 calls of workflow 'silent'" in warning
    assert "answer=" in warning


def test_all_is_well_only_while_calls_are_scored() -> None:
    """With contexts and an answer."""
    watch()
    assert "All well" not in str(ragtrace.doctor(probe=False))
    watched.ask("where?")
    assert ragtrace.flush()
    diagnosis = ragtrace.doctor(probe=False)
    assert diagnosis.scored_lately == 1
    assert "All well: 1 calls with contexts and an answer were scored in the last 5 minutes." in str(diagnosis)


def test_a_measured_time_is_no_score_of_a_call() -> None:
    """A call of which only the time to the first token is known was not scored."""
    watch(screen=FakeJudge(JudgeError("refused")), metrics=[_Seconds(), "consistency"])
    watched.ask("where?")
    assert ragtrace.flush()
    assert ragtrace.doctor(probe=False).scored_lately == 0


class _Seconds:
    name, version, higher_is_better, range = "seconds", "1", False, (0.0, 60.0)
    needs: frozenset[str] = frozenset()

    def __call__(self, call: ragtrace.RagCall, judgement: ragtrace.Judgement) -> ragtrace.Score:
        return ragtrace.Score(1.0)


def test_what_a_judge_said_is_shown_on_one_line_without_control_characters() -> None:
    """A server's reply must not drive the terminal in which the doctor is read."""
    watch(screen=FakeJudge(JudgeError("unavailable", "HTTP 500: down\x1b[2J\nAll well.")))
    watched.ask("where?")
    assert ragtrace.flush()
    [problem] = [text for text in ragtrace.doctor(probe=False).problems if "The last one said" in text]
    assert "HTTP 500: down [2J All well." in problem


# --- what the backend does not take ----------------------------------------------------------------------------------


@pytest.mark.parametrize("signal", ["logs", "metrics"])
def test_a_signal_that_the_backend_refuses_is_told_once(
    signal: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Phoenix, for instance, answers 405: with the variable to set, in the log and by the doctor."""
    with _TracesOnly() as port:
        monkeypatch.setenv(f"OTEL_EXPORTER_OTLP_{signal.upper()}_ENDPOINT", f"http://127.0.0.1:{port}/v1/{signal}")
        ragtrace.configure()
        for _ in range(2):
            watched.ask("where?")
            ragtrace.flush()
        [said] = [text for text in warnings(caplog) if text.startswith("the backend refuses")]
        assert f"the backend refuses {signal}: HTTP 405 at http://127.0.0.1:{port}/v1/{signal}." in said
        assert f"OTEL_{signal.upper()}_EXPORTER=none" in said
        assert 'exporter="phoenix"' in said
        [problem] = [text for text in ragtrace.doctor().problems if f"OTEL_{signal.upper()}_EXPORTER=none" in text]
        assert "405" in problem
        ragtrace.shutdown(timeout=2)


@pytest.mark.parametrize("signal", ["logs", "metrics"])
def test_a_signal_that_the_backend_refuses_fills_no_log(
    signal: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """OpenTelemetry's exporters would log an error for every batch; what is lost is counted, and the reason told."""
    with _TracesOnly() as port:
        monkeypatch.setenv(f"OTEL_EXPORTER_OTLP_{signal.upper()}_ENDPOINT", f"http://127.0.0.1:{port}/v1/{signal}")
        ragtrace.configure()
        for _ in range(3):
            watched.ask("where?")
            ragtrace.flush()
        counts = faults.counts()
        problems = ragtrace.doctor(probe=False).problems
        ragtrace.shutdown(timeout=watched.WAIT_S)
    assert [record.getMessage() for record in caplog.records if record.name.startswith("opentelemetry")] == []
    lost = [text for text in warnings(caplog) if text.startswith("telemetry was lost")]
    if signal == "logs":
        assert counts["lost events: not taken by the backend"] >= 3
        assert len(lost) == 1
        assert "backend answers, but does not take them" in lost[0]
        assert "Is the backend up?" not in lost[0]
        [problem] = [text for text in problems if "not taken by the backend" in text]
        assert "events were lost on their way to the backend" in problem


def test_a_signal_that_the_backend_takes_again_is_delivered(monkeypatch: pytest.MonkeyPatch) -> None:
    """A proxy may answer 404 while the server behind it starts."""
    with _TracesOnly(refused=1) as port:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_LOGS_ENDPOINT", f"http://127.0.0.1:{port}/v1/logs")
        ragtrace.configure()
        delivered: list[bool] = []
        for _ in range(3):
            watched.ask("where?")
            delivered.append(ragtrace.flush())
    assert delivered == [False, True, True]


def test_a_refused_key_of_the_backend_is_no_matter_of_queues(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Larger queues would not help: the answer is in the log, and the advice leads to it."""
    with _TracesOnly(status=401) as port:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{port}")
        ragtrace.configure()
        watched.ask("where?")
        ragtrace.flush()
    lost = [text for text in warnings(caplog) if text.startswith("telemetry was lost (spans: export failed)")]
    assert len(lost) == 1
    assert "does it accept them? OpenTelemetry's log says what it answered" in lost[0]
    assert "queues" not in lost[0]
    said = [record.getMessage() for record in caplog.records if record.name.startswith("opentelemetry")]
    assert any("401" in text for text in said)


class _TracesOnly:
    """A server that answers every request, or the first few, with an error."""

    def __init__(self, refused: int = 1 << 30, status: int = 405) -> None:
        self._refused, self._status = refused, status

    def __enter__(self) -> int:
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _Refusing)
        self._server.left, self._server.status = self._refused, self._status  # type: ignore[attr-defined]
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()
        return self._server.server_port

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()


class _Refusing(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.server.left -= 1  # type: ignore[attr-defined]
        self.send_response(self.server.status if self.server.left >= 0 else 200)  # type: ignore[attr-defined]
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name is the base class's
        pass


def test_the_address_of_a_preset_is_said_to_come_from_its_own_variable() -> None:
    """Not from one that nobody set."""
    where = [diagnose_environment({"RAGTRACE_EXPORTER": "phoenix", **more}).checks[0].where for more in (
        {}, {"PHOENIX_COLLECTOR_ENDPOINT": "http://127.0.0.1:9"}, {"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://127.0.0.1:9/t"},
    )]  # fmt: skip
    assert "from the default of PHOENIX_COLLECTOR_ENDPOINT" in where[0]
    assert "from PHOENIX_COLLECTOR_ENDPOINT" in where[1]
    assert "from OTEL_EXPORTER_OTLP_TRACES_ENDPOINT" in where[2]


# --- what stops at start-up, and how ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "price", [(0.15, 0.6), {"input": 1}, 0.15, ragtrace.judges.Price(-1.0), ragtrace.judges.Price("a")]
)  # type: ignore[arg-type]
def test_a_price_that_is_none_stops_where_it_is_given(price: Any) -> None:
    """It used to be accepted, and every paid reply was thrown away."""
    with pytest.raises(ragtrace.SettingsError, match=r"price=ragtrace\.judges\.Price\(input=0\.15, output=0\.6\)"):
        ragtrace.OpenAIJudge("m", price=price)
    with pytest.raises(ragtrace.SettingsError, match="price="):
        ragtrace.judges.OpenAIEmbedder("m", price=price)


def test_a_price_that_is_given_is_used() -> None:
    """In US dollars for a million tokens."""
    with OpenAIServer() as server:
        judge = ragtrace.OpenAIJudge("m", base_url=server.url, price=ragtrace.judges.Price(input=1e6, output=0.0))
        found = ragtrace.evaluate(
            [{"query": "q", "contexts": ["Paris is big."], "answer": "Paris is big."}], judge=judge
        )
    assert found[0].evaluation.cost_usd == found[0].evaluation.input_tokens > 0


def test_the_name_of_a_model_as_judge_points_to_the_class() -> None:
    """What a newcomer writes first."""
    with pytest.raises(ragtrace.SettingsError, match=r"ragtrace\.OpenAIJudge\('gpt-4o-mini'\)"):
        ragtrace.configure(judge="gpt-4o-mini")  # type: ignore[arg-type]


def test_a_parameter_that_is_not_there_is_named_in_a_sentence() -> None:
    """With those that are."""
    with pytest.raises(ragtrace.SettingsError, match=r"g has no parameter 'frage'; its parameters: question"):

        @ragtrace.generate(query="frage")
        def g(question: str) -> str:
            return question


def test_a_scripted_reply_may_be_given_as_a_mapping() -> None:
    """Written as JSON by the server of the tests."""
    with OpenAIServer(Reply(body={"choices": []})) as server:
        judge = ragtrace.OpenAIJudge("m", base_url=server.url)
        found = ragtrace.evaluate(
            [{"query": "q", "contexts": ["Paris is big."], "answer": "Paris is big."}], judge=judge
        )
    assert found[0].evaluation.error == "unparsable"


# --- what the doctor calls things ------------------------------------------------------------------------------------


def test_an_exporter_object_is_shown_as_what_it_is() -> None:
    """Not as the default that it replaces; and there is one rate of sampling, not two."""
    watch(sampling=ragtrace.Sampling(rate=0.2))
    found = {setting.name: (setting.value, setting.origin) for setting in ragtrace.doctor(probe=False).settings}
    value, origin = found["exporter"]
    assert value.startswith("an object, Signals of InMemorySpanExporter")
    assert origin == "exporter="
    assert "sample_rate" not in found


@ragtrace.trace(name="raising")
def raising(question: str) -> str:
    raise OSError("down")


def test_a_call_that_raised_says_so_on_its_span() -> None:
    """It was not a matter of sampling."""
    captured = watch()
    with pytest.raises(OSError, match="down"):
        raising("where?")
    assert ragtrace.flush()
    assert (captured.root().attributes or {})["ragtrace.eval.status"] == "call_failed"


# --- the judge's requests --------------------------------------------------------------------------------------------


def test_the_judges_requests_are_no_lines_in_the_log_of_the_application(caplog: pytest.LogCaptureFixture) -> None:
    """The HTTP library's INFO lines stay for the application's own requests."""
    import openai

    caplog.set_level(logging.INFO)
    with OpenAIServer() as server:
        ask(2, ragtrace.OpenAIJudge("m", base_url=server.url))
        assert ragtrace.stats().evaluators["openai"].scored == 2
        assert not [record for record in caplog.records if "HTTP Request" in record.getMessage()]
        client = openai.OpenAI(base_url=server.url, api_key="k", max_retries=0)
        client.chat.completions.create(model="m", messages=[{"role": "user", "content": "hi"}])
    assert [record for record in caplog.records if "HTTP Request" in record.getMessage()]


def test_nothing_is_said_of_a_judge_that_answers(caplog: pytest.LogCaptureFixture) -> None:
    """Also if some calls have no score by their nature."""
    ask(2, FakeJudge(Judgement(claims=(), answer_label="answered", reasons={"claims": "no_claims"}), name="judge"))
    assert warnings(caplog) == []


class Hit:
    __slots__ = ("body_of_it",)

    def __init__(self, text: str) -> None:
        self.body_of_it = text


@ragtrace.retrieve
def find_hits(question: str) -> list[Hit]:
    return [Hit(f"About {question}.")]


def test_what_was_not_found_in_a_value_is_no_failure_of_ragtrace() -> None:
    """The doctor names the argument that says where it is, instead of a place in the code."""
    watch()
    find_hits("towers")
    problems = ragtrace.doctor(probe=False).problems
    assert (
        "no documents found in find_hits, 1 times: say where with documents= (a name, a path or a function)" in problems
    )
    assert not any("ragtrace itself failed" in problem for problem in problems)
