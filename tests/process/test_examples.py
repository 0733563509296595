"""The examples, run as a user would run them."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from urllib.parse import urlencode

import httpx
import pytest

import ragtrace
from ragtrace.testing import FakeJudge
from tests.support.browser import dom_of_address
from tests.support.otlp import HttpReceiver
from tests.support.services import answers, free_ports, running
from tests.support.telemetry import Span

ROOT = Path(__file__).parents[2]
QUESTION = "Who built the Eiffel Tower?"
ATTEMPTS = 5
"""A client on a busy machine may leave too late to be noticed; one that is noticed is enough."""


def test_the_plain_script_prints_answer_spans_scores_and_accounts() -> None:
    """On standard output, without a backend; the invented sentence is named on the span."""
    done = subprocess.run(
        [sys.executable, "examples/plain_script.py", QUESTION],
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
        cwd=ROOT,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "It is painted green every 12 years." in done.stdout
    # Printed by another thread: a heading may share its line with the answer.
    assert len(re.findall(r"span   .* trace=[0-9a-f]{32}", done.stdout)) == 3
    for part in (
        "invoke_workflow ask",
        "retrieval landmarks",
        "chat first-sentences",
        "ragtrace.eval.status = ok",
        "ragtrace.eval.consistency.score = ",
        "ragtrace.eval.unsupported = [",
        "painted green",
        "event  gen_ai.evaluation.result",
        "metric ragtrace.eval.score",
        "Stats(",
        "scored=1",
    ):
        assert part in done.stdout


@pytest.fixture
def served(http_receiver: HttpReceiver, tmp_path: Path) -> Iterator[str]:
    """The FastAPI example under uvicorn, in a process of its own; its URL."""
    with _served("fastapi_app", http_receiver, tmp_path) as address:
        yield address


@contextmanager
def _served(name: str, http_receiver: HttpReceiver, tmp_path: Path) -> Iterator[str]:
    with free_ports(1) as (port,):
        argv = [sys.executable, "-m", "uvicorn", f"examples.{name}:app", "--port", str(port)]
        environ = {**http_receiver.environ, "OTEL_BSP_SCHEDULE_DELAY": "50", "PYTHONPATH": str(ROOT)}
        base = f"http://127.0.0.1:{port}"
        with running(
            [*argv, "--app-dir", str(ROOT)],
            environ=environ,
            log=tmp_path / "uvicorn.log",
            ready=lambda: answers(f"{base}/openapi.json"),
        ):
            yield base


def ours(receiver: HttpReceiver) -> list[Span]:
    """Our spans: the framework may write its own to the same provider."""
    return [span for span in receiver.spans if span.scope.name == "ragtrace"]


def roots(receiver: HttpReceiver) -> list[Span]:
    return [span for span in ours(receiver) if span.name.startswith("invoke_workflow")]


def has_calls(count: int, receiver: HttpReceiver) -> bool:
    """Whether that many whole calls have arrived."""
    return len(roots(receiver)) == count and len(ours(receiver)) == 3 * count


def left_early(span: Span) -> bool:
    return span.attributes.get("ragtrace.abandoned") is True


def test_a_streamed_answer_is_one_scored_call(served: str, http_receiver: HttpReceiver) -> None:
    """The client gets every word; the backend gets three spans with scores on the root, and the conversation."""
    with httpx.stream("GET", f"{served}/ask", params={"question": QUESTION, "conversation": "c-7"}) as response:
        text = "".join(response.iter_text())
    assert response.status_code == 200
    assert text.startswith("The Eiffel Tower is a wrought-iron tower")
    http_receiver.wait_for(lambda got: len(ours(got)) >= 3 and len(got.logs) >= 2)
    assert sorted(span.name for span in ours(http_receiver)) == [
        "chat word-by-word",
        "invoke_workflow ask",
        "retrieval landmarks",
    ]
    (root,) = roots(http_receiver)
    assert {span.trace_id for span in ours(http_receiver)} == {root.trace_id}
    assert {span.parent_span_id for span in ours(http_receiver) if span is not root} <= {root.span_id}
    assert root.attributes["ragtrace.eval.status"] == "ok"
    assert root.attributes["ragtrace.eval.consistency.score"] == 1.0
    assert root.attributes["gen_ai.conversation.id"] == "c-7"
    assert left_early(root) is False
    assert root.resource["service.name"] == "landmarks-api"


def test_a_client_that_disconnects_early_leaves_one_abandoned_call(served: str, http_receiver: HttpReceiver) -> None:
    """Its stream ends when it goes: one call with what it had read, and no span stays open."""
    for attempt in range(1, ATTEMPTS + 1):
        with httpx.stream("GET", f"{served}/ask", params={"question": QUESTION}) as response:
            next(response.iter_raw(1))
        http_receiver.wait_for(partial(has_calls, attempt))
        if left_early(roots(http_receiver)[-1]):
            break
    root = roots(http_receiver)[-1]
    assert left_early(root)
    [message] = json.loads(root.attributes["gen_ai.output.messages"])
    answer = httpx.get(f"{served}/ask", params={"question": QUESTION}).text
    assert answer.startswith(message["parts"][0]["content"])
    assert root.attributes["ragtrace.eval.status"] in {"ok", "partial"}
    assert root.duration_s < 5


def test_many_clients_at_once_get_their_own_calls(served: str, http_receiver: HttpReceiver) -> None:
    """Streams that run side by side do not mix."""
    import asyncio

    async def ask(client: httpx.AsyncClient, number: int) -> str:
        parameters = {"question": f"{QUESTION} {number}", "conversation": f"c-{number}"}
        return (await client.get(f"{served}/ask", params=parameters)).text

    async def main() -> list[str]:
        async with httpx.AsyncClient(timeout=30) as client:
            return await asyncio.gather(*(ask(client, number) for number in range(8)))

    assert len(set(asyncio.run(main()))) == 1
    http_receiver.wait_for(partial(has_calls, 8))
    for root in roots(http_receiver):
        number = root.attributes["gen_ai.conversation.id"].removeprefix("c-")
        mine = [span for span in ours(http_receiver) if span.trace_id == root.trace_id]
        assert len(mine) == 3
        assert f"{QUESTION} {number}" in root.attributes["gen_ai.input.messages"]
        assert {span.parent_span_id for span in mine} == {root.parent_span_id, root.span_id}


def test_calls_have_the_tenant_of_their_request() -> None:
    """Which a middleware takes from a header, for a stream that is sent after the endpoint has returned."""
    import asyncio

    from examples.fastapi_app import app

    async def main() -> None:
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://app", timeout=30) as client:
            requests = [
                client.get("/ask", params={"question": f"{QUESTION} {tenant}"}, headers={"x-tenant": tenant})
                for tenant in ("acme", "globex")
            ]
            await asyncio.gather(*requests, client.get("/ask", params={"question": QUESTION}))

    judge = FakeJudge(ragtrace.Judgement(answer_label="answered"), metrics=["answered"])
    ragtrace.configure(exporter="none", screen=judge, metrics=["answered"])
    try:
        asyncio.run(main())
        assert ragtrace.flush()
    finally:
        ragtrace.shutdown()
    found = {(call.query or "").removeprefix(QUESTION).strip(): call.tags for call in judge.calls}
    assert found == {"acme": {"tenant": "acme"}, "globex": {"tenant": "globex"}, "": {}}


@pytest.mark.parametrize(
    ("question", "verdict", "action", "corrected"),
    [("How tall is it?", "pass", "none", False), ("What colour is it?", "fail", "annotated", True)],
)
def test_a_guarded_stream_is_corrected_after_its_last_word(
    question: str, verdict: str, action: str, corrected: bool, http_receiver: HttpReceiver, tmp_path: Path
) -> None:
    """The words have left; a correction follows them where the guard has found the answer wrong, and in a browser."""
    with _served("guarded_app", http_receiver, tmp_path) as address:
        events = httpx.get(f"{address}/ask", params={"question": question}, timeout=30).text.split("\n\n")
        assert [event.startswith("event: correction") for event in events[-4:]] == [False, corrected, False, False]
        http_receiver.wait_for(lambda _: bool(roots(http_receiver)))
        attributes = roots(http_receiver)[0].attributes
        assert (attributes["ragtrace.guard.verdict"], attributes["ragtrace.guard.action"]) == (verdict, action)
        if shutil.which("chromium"):
            page = dom_of_address(f"{address}/?{urlencode({'question': question})}", tmp_path / "profile")
            assert "<title>Answered</title>" in page
            assert ("I could not verify this answer." in page.split("<script>")[0]) == corrected
            assert ("line-through" in page.split("<script>")[0]) == corrected


def test_stopping_the_server_drains_what_is_left(http_receiver: HttpReceiver, tmp_path: Path) -> None:
    """The application's own shutdown hook sends what was finished a moment ago, also with a lazy exporter."""
    with free_ports(1) as (port,):
        base = f"http://127.0.0.1:{port}"
        environ = {**http_receiver.environ, "OTEL_BSP_SCHEDULE_DELAY": "3600000", "PYTHONPATH": str(ROOT)}
        argv = [sys.executable, "-m", "uvicorn", "examples.fastapi_app:app", "--port", str(port)]
        with running(
            [*argv, "--app-dir", str(ROOT)],
            environ={**environ, "PATH": os.environ["PATH"]},
            log=tmp_path / "uvicorn.log",
            ready=lambda: answers(f"{base}/openapi.json"),
        ):
            assert httpx.get(f"{base}/ask", params={"question": QUESTION}, timeout=30).status_code == 200
    assert [root.attributes["ragtrace.eval.status"] for root in roots(http_receiver)] == ["ok"]
    assert len({log.attributes["gen_ai.evaluation.name"] for log in http_receiver.logs}) == len(http_receiver.logs) >= 2
