"""Requests, tokens and dollars of decision judges a call: ours beside those of DeepEval and MLflow, on the same calls.

    python -m tests.benchmarks.decision_peers [--deepeval ENV/bin/python] [--mlflow ENV/bin/python] [--usd 0.1]

Each judges the same calls for faithfulness, answer relevancy and context relevance, with the metrics that it has for
them, against one local server in the form `/systemone`, which gives all of them the same answers. Tokens are the
server's count of state and questions, by one rule for all. A library whose environment is not given is left out:
`deepeval typesafe-sdk`, `mlflow` (each in an environment of its own).

What is asked is not the same: DeepEval asks a few questions about the whole answer and all chunks at once, MLflow one
yes or no a request, ragtrace one question for each statement and each chunk.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import subprocess
import sys
import threading
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final

from ragtrace.core.types import RagCall, Score
from ragtrace.evaluation.scoring import Evaluator, evaluate
from ragtrace.judges import DecisionJudge
from ragtrace.metrics import registry
from ragtrace.testing.decision_server import count_tokens
from tests.support.decisions import CALL, SHORT

SUBJECT: Final = Path(__file__).with_name("subjects") / "decision_peer.py"
METRICS: Final = ("faithfulness", "answer_relevancy", "context_relevance")
CALLS: Final[Mapping[str, RagCall]] = {"3 statements, 2 chunks": SHORT, "12 statements, 8 chunks": CALL}
TIMES: Final = 10


@contextmanager
def serving() -> Generator[tuple[str, list[dict[str, Any]]]]:
    """A server that says yes to every question with probability .9; its address, and the bodies that it was sent."""
    asked: list[dict[str, Any]] = []

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            asked.append(body)
            answers = {name: _answer(question) for name, question in body["questions"].items()}
            usage = {"input_tokens": count_tokens(body), "output_tokens": 0}
            reply = json.dumps({"model": "jev-1-0001", "answers": answers, "usage": usage}).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(reply)))
            self.end_headers()
            self.wfile.write(reply)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}", asked
    finally:
        server.shutdown()
        server.server_close()


def _answer(question: Mapping[str, Any]) -> dict[str, object]:
    """Answer a question of any type with probability .9 for yes, the first choice, or the highest level."""
    if question["type"] == "noul":
        return {"type": "noul", "noul": 0.9, "confidence": 0.8}
    options = [*question["criteria"]]
    if question["type"] == "choice":
        rest = 0.1 / max(1, len(options) - 1)
        probabilities = {name: 0.9 if name == options[0] else rest for name in options}
        return {"type": "choice", "choice": options[0], "probabilities": probabilities, "confidence": 0.8}
    top = len(options) - 1
    probabilities = {str(level): 0.9 if level == top else 0.1 / top for level in range(top + 1)}
    legend = {str(level): text for level, text in enumerate(options)}
    return {"type": "score", "score": float(top), "probabilities": probabilities, "legend": legend, "confidence": 0.8}


def ours(calls: Sequence[RagCall], url: str) -> int:
    """Judge *calls* with `DecisionJudge`; return how many scores there are."""

    async def judged() -> int:
        metrics = tuple(map(registry.get, METRICS))
        judge = DecisionJudge("jev-1", base_url=f"{url}/v1", protocol="systemone", api_key="none")
        evaluator = Evaluator(judge.asking(metrics), metrics)
        found = [await evaluate(evaluator, call) for call in calls]
        await judge.aclose()
        return sum(isinstance(result, Score) for each in found for result in each.results.values())

    return asyncio.run(judged())


def peer(name: str, python: str) -> Callable[[Sequence[RagCall], str], int]:
    """Return a function that has the library *name* judge calls in the environment of *python*."""

    def judge(calls: Sequence[RagCall], url: str) -> int:
        given = [
            {"query": call.query, "contexts": [each.text for each in call.contexts or ()], "answer": call.answer}
            for call in calls
        ]
        done = subprocess.run(
            [python, str(SUBJECT), name, url], input=json.dumps(given), capture_output=True, text=True, check=False
        )
        if done.returncode:
            sys.exit(f"{name} failed:\n{done.stderr[-2000:]}")
        return len(json.loads(done.stdout.splitlines()[-1]))

    return judge


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--deepeval", metavar="PYTHON")
    parser.add_argument("--mlflow", metavar="PYTHON")
    parser.add_argument("--usd", type=float, default=0.1, help="price of a million input tokens (default 0.1)")
    options = parser.parse_args()
    judges: dict[str, Callable[[Sequence[RagCall], str], int]] = {"ragtrace": ours}
    for name in ("deepeval", "mlflow"):
        if python := getattr(options, name):
            judges[name] = peer(name, python)
        else:
            print(f"{name} is left out: no --{name}")
    print("| call | judge | requests a call | questions | input tokens | dollars for a million calls | results |")
    print("|---|---|--:|--:|--:|--:|--:|")
    for title, call in CALLS.items():
        for name, judge in judges.items():
            with serving() as (url, asked):
                results = judge([replace(call, query=f"{call.query} ({number})") for number in range(TIMES)], url)
            tokens = sum(map(count_tokens, asked)) / TIMES
            questions = sum(len(body["questions"]) for body in asked) / TIMES
            counts = f"{len(asked) / TIMES:g} | {questions:g} | {tokens:,.0f} | {tokens * options.usd:,.0f}"
            print(f"| {title} | {name} | {counts} | {results / TIMES:g} |")


if __name__ == "__main__":
    main()
