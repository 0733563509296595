"""`OpenAIJudge` behind everything that judges: live calls, `score`, `evaluate`, the command, the assertion."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import pytest

import ragtrace
from ragtrace.core.types import Judge, Metric, Result, Score
from ragtrace.metrics import registry
from ragtrace.testing import Captured, OpenAIServer, Reply
from ragtrace.testing.replies import Request

QUESTION: Final = "How high is the Eiffel Tower, and who built it?"
CHUNKS: Final = ["The Eiffel Tower is 330 metres high. It stands in Paris.", "The Louvre is a museum."]
ANSWER: Final = "The Eiffel Tower is 330 metres high [1]. It was built by the Romans."
CALL: Final[dict[str, Any]] = {"query": QUESTION, "contexts": CHUNKS, "answer": ANSWER}
TIMEOUT: Final = 240.0
ROOT: Final = Path(__file__).parents[2]


def judge(server: OpenAIServer, **options: Any) -> ragtrace.OpenAIJudge:
    return ragtrace.OpenAIJudge("local", base_url=server.url, api_key="none", **options)


def main_metrics() -> list[Metric]:
    """Those that one request gives."""
    some: Judge = ragtrace.OpenAIJudge("local", api_key="none")
    return [metric for metric in registry.every() if metric.needs and some.offers(metric)]


@ragtrace.retrieve
def search(query: str) -> list[str]:
    return CHUNKS


@ragtrace.generate
def generate(question: str, docs: list[str]) -> str:
    return ANSWER


@ragtrace.trace
def ask(question: str) -> str:
    return generate(question, search(question))


def whole(results: Mapping[str, Result]) -> dict[str, Any]:
    """Value or reason, label and details."""
    return {
        name: (found.value if isinstance(found, Score) else found.reason, getattr(found, "label", None))
        for name, found in results.items()
    }


def online(server: OpenAIServer, metrics: list[Metric]) -> dict[str, Any]:
    """The same of a live call, from its events."""
    captured = Captured()
    ragtrace.configure(
        exporter=captured.signals,
        screen=None,
        judge=judge(server),
        metrics=metrics,
        sampling=ragtrace.Sampling(rate=1.0),
    )
    ask(QUESTION)
    assert ragtrace.flush(TIMEOUT)
    events = [event.log_record.attributes or {} for event in captured.events]
    return {
        str(event["gen_ai.evaluation.name"]): (
            event.get("gen_ai.evaluation.score.value", event.get("ragtrace.reason", event.get("error.type"))),
            event.get("gen_ai.evaluation.score.label"),
        )
        for event in events
    }


@pytest.mark.parametrize("reply", [Reply(), Reply.refusing(), Reply("garbage")], ids=["honest", "refusal", "garbage"])
def test_every_way_of_judging_gives_the_same(reply: Reply, tmp_path: Path) -> None:
    """For the same reply of the model: live, `score`, `ascore`, `evaluate`, the assertion, and the command."""
    metrics = main_metrics()
    with OpenAIServer(reply) as server:
        live = online(server, metrics)
        assert len(live) == len(metrics) >= 20
        assert whole(ragtrace.score(**CALL, metrics=metrics, judge=judge(server))) == live
        assert whole(asyncio.run(ragtrace.ascore(**CALL, metrics=metrics, judge=judge(server)))) == live
        assert whole(ragtrace.evaluate([CALL], metrics=metrics, judge=judge(server))[0].results) == live
        expected: Any = {
            name: "scored" if type(value) is float else f"unscored: {value}" for name, (value, _) in live.items()
        }
        assert whole(ragtrace.testing.assert_scores(CALL, judge=judge(server), **expected)) == live
        (row,) = command(server, [CALL], tmp_path, ",".join(metric.name for metric in metrics))
    results = {
        name: (each.get("score", each.get("reason")), each.get("label")) for name, each in row["results"].items()
    }
    assert results == live


def command(server: OpenAIServer, calls: list[dict[str, Any]], folder: Path, metrics: str = "") -> list[dict[str, Any]]:
    """The rows that `ragtrace score` writes."""
    (folder / "calls.jsonl").write_text("".join(json.dumps(call) + "\n" for call in calls), encoding="utf-8")
    subprocess.run(
        arguments(server, folder, "scores.jsonl", *(["--metrics", metrics] if metrics else [])),
        env=environment(),
        timeout=TIMEOUT,
        capture_output=True,
        check=False,  # a judge that fails is exit status 1
    )
    lines = (folder / "scores.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines]


def arguments(server: OpenAIServer, folder: Path, out: str, *more: str) -> list[str]:
    score = [sys.executable, "-m", "ragtrace", "score", str(folder / "calls.jsonl"), "--out", str(folder / out)]
    return [*score, "--judge", "openai:local", "--base-url", server.url, "--json", *more]


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT), "OPENAI_API_KEY": "none"}


def test_by_default_one_request_gives_the_usual_metrics(tmp_path: Path) -> None:
    """And no others: by `score`, `evaluate`, the command, or live."""
    usual = registry.defaults()
    names = {metric.name for metric in main_metrics() if metric in usual}
    with OpenAIServer() as server:
        assert set(ragtrace.score(**CALL, judge=judge(server))) == names
        assert server.n_chats == 1
        assert set(ragtrace.evaluate([CALL], judge=judge(server))[0].results) == names
        assert server.n_chats == 2
        (row,) = command(server, [CALL], tmp_path)
        assert set(row["results"]) == names
        assert server.n_chats == 3
        captured = Captured()
        ragtrace.configure(
            exporter=captured.signals, screen=None, judge=judge(server), sampling=ragtrace.Sampling(rate=1.0)
        )
        ask(QUESTION)
        assert ragtrace.flush(TIMEOUT)
        assert server.n_chats == 4
    assert names <= {str((event.log_record.attributes or {})["gen_ai.evaluation.name"]) for event in captured.events}


# --- killed ----------------------------------------------------------------------------------------------------------


class Halting:
    """An honest model, 20 ms away, that says when it has been asked *count* times."""

    def __init__(self, count: int) -> None:
        self.count, self.reached = count, threading.Event()

    def __call__(self, request: Request) -> Reply:
        if request.number + 1 >= self.count:
            self.reached.set()
        return Reply(after=0.02)


def most_often(server: OpenAIServer) -> Counter[int]:
    """How many answers were judged once, twice ...; each call has its own."""
    answers = Counter((chat.data or {})["answer_sentences"][0]["text"] for chat in server.chats)
    return Counter(answers.values())


@pytest.mark.skipif(sys.platform == "win32", reason="no SIGKILL on Windows")
def test_a_killed_run_goes_on(tmp_path: Path) -> None:
    """300 calls, killed half-way: the same bytes as undisturbed, and no call paid twice but those in flight."""
    calls = [{**CALL, "answer": f"The Eiffel Tower is {number} metres high."} for number in range(300)]
    (tmp_path / "calls.jsonl").write_text("".join(json.dumps(call) + "\n" for call in calls), encoding="utf-8")

    def finish(server: OpenAIServer, out: str) -> bytes:
        done = subprocess.run(
            arguments(server, tmp_path, out), env=environment(), timeout=TIMEOUT, capture_output=True, check=False
        )
        assert (done.returncode, done.stderr) == (0, b"")
        return (tmp_path / out).read_bytes()

    with OpenAIServer(Halting(10_000)) as server:
        undisturbed = finish(server, "undisturbed.jsonl")
        assert most_often(server) == {1: 300}
    halting = Halting(150)
    with OpenAIServer(halting) as server:
        process = subprocess.Popen(arguments(server, tmp_path, "scores.jsonl"), env=environment())
        assert halting.reached.wait(TIMEOUT)
        process.kill()
        assert process.wait(TIMEOUT) == -signal.SIGKILL
        assert not (tmp_path / "scores.jsonl").exists()
        assert finish(server, "scores.jsonl") == undisturbed
        asked = most_often(server)
    assert set(asked) <= {1, 2}
    assert asked[2] <= 16
    assert len(undisturbed.splitlines()) == 300
