"""`OpenAIJudge` before servers that cannot do what is asked: the scores of a good one, or a reason, never a default."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping
from typing import Any, Final

import pytest

import ragtrace
from ragtrace.core.types import Document, Evaluation, RagCall, Score
from ragtrace.evaluation.scoring import Evaluator, evaluate
from ragtrace.judges.llm import response_format
from ragtrace.metrics import registry
from ragtrace.testing import OpenAIServer, Reply
from ragtrace.testing.replies import Request
from tests.unit.judges.test_server_errors import UNSUPPORTED

CALL: Final = RagCall(
    "How high is the tower?",
    (Document("The tower is 330 metres high. It stands in Paris."), Document("The museum opens at nine.")),
    "The tower is 330 metres high. It was built by the Romans.",
)
METRICS: Final = ("faithfulness", "hallucination", "answer_relevancy", "context_relevance", "answered")
WAIT_S: Final = 20.0


def judged(server: OpenAIServer, timeout: float = WAIT_S, **options: Any) -> Evaluation:
    """What comes of CALL, with a limit of *timeout* seconds for all of it."""

    async def run() -> Evaluation:
        judge = ragtrace.OpenAIJudge("local", base_url=server.url, api_key="none", **options)
        metrics = registry.resolve(METRICS)
        evaluator = Evaluator(judge.asking(metrics), metrics, timeout)
        try:
            return await evaluate(evaluator, CALL)
        finally:
            await evaluator.aclose()

    return asyncio.run(asyncio.wait_for(run(), 2 * WAIT_S))


def values(evaluation: Evaluation) -> dict[str, float | str]:
    found = evaluation.results.items()
    return {name: result.value if isinstance(result, Score) else result.reason for name, result in found}


@pytest.fixture(scope="module")
def good() -> Mapping[str, float | str]:
    """What a server says that can do everything."""
    with OpenAIServer() as server:
        found = values(judged(server))
    assert found["faithfulness"] == 0.5
    assert all(isinstance(value, float) for value in found.values())
    return found


def has(request: Request, part: str) -> bool:
    """Whether the request has what a server turns down."""
    wanted: Mapping[str, Any] = request.body.get("response_format") or {}
    return part in request.body and (part != "response_format" or wanted.get("type") == "json_schema")


@pytest.mark.parametrize(
    ("status", "body", "culprit"),
    [each[1:] for each in UNSUPPORTED if each[3] in ("response_format", "temperature")],
    ids=[each[0] for each in UNSUPPORTED if each[3] in ("response_format", "temperature")],
)
def test_the_words_of_real_servers_lead_down_the_ladder(
    status: int, body: Any, culprit: str, good: Mapping[str, float | str]
) -> None:
    """Same scores after one more request; the next call asks at once as the server likes it."""
    response_format.forget_capabilities()  # of a server that had the same port before

    def answer(request: Request) -> Reply | None:
        if not has(request, culprit):
            return None
        return Reply(status=status, body=body if isinstance(body, bytes) else json.dumps(body).encode())

    with OpenAIServer(answer) as server:
        assert values(judged(server)) == good
        assert server.n_chats == 2
        assert values(judged(server)) == good
        assert server.n_chats == 3


@pytest.mark.parametrize(
    ("settings", "requests"),
    [
        ({"rejects": ["json_schema"]}, 2),
        ({"rejects": ["json_schema", "json_object"]}, 3),
        ({"rejects": ["temperature"]}, 2),
        ({"rejects": ["non_streaming"]}, 2),
        ({"wrap": lambda text: f"```json\n{text}\n```"}, 1),
        ({"wrap": lambda text: f'<think>Say {{"answer_label": "abstained"}}?</think>{text}'}, 1),
        ({"wrap": lambda text: f"{text}\n{text}"}, 1),
    ],
    ids="no_schema no_json no_temperature streams_only fences reasoning twice".split(),
)
def test_a_lesser_server_gives_the_same_scores(
    settings: dict[str, Any], requests: int, good: Mapping[str, float | str]
) -> None:
    """However it must be asked, and whatever it wraps its reply in."""
    with OpenAIServer(**settings) as server:
        assert values(judged(server)) == good
        assert server.n_chats == requests


def ignoring(request: Request) -> str | None:
    """A server that takes the schema and does not look at it: its model says what it likes until told in words."""
    return None if "schema:" in request.system else "The answer seems fine to me."


def halves(request: Request) -> Reply | None:
    """A reply about more than one sentence is cut off."""
    data = request.data or {}
    return Reply.cutting_off() if len(data.get("answer_sentences", ())) > 1 else None


@pytest.mark.parametrize("rule", [ignoring, halves])
def test_a_server_that_must_be_asked_again_gives_the_same_scores(
    rule: Callable[[Request], Any], good: Mapping[str, float | str]
) -> None:
    """In other words, or about less at a time."""
    with OpenAIServer(rule) as server:
        assert values(judged(server)) == good


TWO: Final = '{"answer_label": "answered", "sentences": []}{"answer_label": "abstained", "sentences": []}'


@pytest.mark.parametrize(
    ("reply", "reason"),
    [
        (Reply(TWO), "ambiguous"),
        (Reply.cutting_off(), "truncated"),
        (Reply.refusing(), "refused"),
        (Reply.filtering(), "content_filter"),
        (Reply("VERDICT: SUPPORTED"), "unparsable"),
        (Reply.babbling(), "unparsable"),
        (Reply.failing(401, "Incorrect API key provided", code="invalid_api_key"), "unavailable"),
    ],
    ids="two_objects cut_off refusal filter prose garbage no_key".split(),
)
def test_a_reply_without_labels_is_a_reason(reply: Reply, reason: str) -> None:
    """The same for every metric, and no number among them."""
    with OpenAIServer(reply) as server:
        evaluation = judged(server)
        assert evaluation.n_calls == server.n_chats
    assert set(values(evaluation).values()) == {reason}
    assert evaluation.outcome == ("failed", reason)


def test_a_server_that_takes_a_minute_is_left_in_time() -> None:
    """The call ends at its limit, not at the server's; the time passes in no other call."""
    with OpenAIServer(latency=60.0) as server:
        evaluation = judged(server, timeout=0.5)
    assert set(values(evaluation).values()) == {"timeout"}
    assert evaluation.duration_s < 5.0
