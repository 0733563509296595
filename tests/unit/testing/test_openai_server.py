"""Model server of `ragtrace.testing`: answers prompts of ragtrace and other libraries, by rule or by a script."""

from __future__ import annotations

import asyncio
import base64
import json
import struct
from collections.abc import Iterator
from typing import Any, Final

import openai
import pytest

import ragtrace
from ragtrace.core.types import Document, RagCall, Score
from ragtrace.evaluation.scoring import Evaluator, evaluate
from ragtrace.judges.llm.openai import OpenAIJudge
from ragtrace.judges.llm.response_format import forget_capabilities
from ragtrace.metrics import registry
from ragtrace.testing import Captured, OpenAIServer, Reply

CALL: Final = RagCall(
    query="How tall is the Eiffel Tower?",
    contexts=(Document("The Eiffel Tower in Paris is 330 metres tall."), Document("Bananas are yellow fruit.")),
    answer="The Eiffel Tower is 330 metres tall [1]. Penguins live in Antarctica.",
)


@pytest.fixture(autouse=True)
def _nothing_known() -> Iterator[None]:
    forget_capabilities()
    yield
    forget_capabilities()


@pytest.fixture
def server() -> Iterator[OpenAIServer]:
    with OpenAIServer() as serving:
        yield serving


def client(server: OpenAIServer) -> openai.OpenAI:
    return openai.OpenAI(base_url=server.url, api_key="any", max_retries=0)


def judged(server: OpenAIServer) -> dict[str, float | str]:
    """Each metric's value, or the reason why it has none."""
    judge = OpenAIJudge("local", base_url=server.url)
    metrics = tuple(metric for metric in registry.all() if metric.needs and judge.offers(metric))
    evaluation = asyncio.run(evaluate(Evaluator(judge, metrics, 20.0), CALL))
    return {n: r.value if isinstance(r, Score) else r.reason for n, r in evaluation.results.items()}


def test_an_honest_judge_in_one_request(server: OpenAIServer) -> None:
    """Words that a chunk has are supported by it; one chat request for all metrics of the main reply."""
    seen = judged(server)
    assert seen["faithfulness"] == 0.5
    assert seen["hallucination"] == 0.5
    assert seen["reciprocal_rank"] == 1.0
    assert seen["citation_precision"] == 1.0
    assert server.n_chats == 1


def test_the_same_labels_on_every_rung() -> None:
    """Whichever way the schema comes."""
    with OpenAIServer() as first, OpenAIServer(rejects=["json_schema", "json_object", "temperature"]) as third:
        assert judged(first) == judged(third)


def test_a_watched_application_can_be_scored_without_a_key(server: OpenAIServer) -> None:
    """As a user would try it."""
    captured = Captured()
    judge = OpenAIJudge("local", base_url=server.url)
    ragtrace.configure(exporter=captured.signals, screen=None, judge=judge, sampling=ragtrace.Sampling(rate=1.0))
    try:

        @ragtrace.trace
        def ask(query: str) -> str:
            return answer(query, search(query))

        @ragtrace.retrieve
        def search(query: str) -> list[str]:
            return [document.text for document in CALL.contexts or ()]

        @ragtrace.generate
        def answer(query: str, contexts: list[str]) -> str:
            return CALL.answer or ""

        ask(CALL.query or "")
        assert ragtrace.flush(20.0)
        scored = (captured.root().attributes or {}).get("ragtrace.eval.faithfulness.score")
        assert scored == 0.5, dict(captured.root().attributes or {})
    finally:
        ragtrace.shutdown(10.0)


# --- the protocol ----------------------------------------------------------------------------------------------------


def chat(server: OpenAIServer, content: str = "hello", **parameters: Any) -> Any:
    with client(server) as asking:
        return asking.chat.completions.create(
            model="local", messages=[{"role": "user", "content": content}], **parameters
        )


def test_any_schema_gets_a_valid_instance(server: OpenAIServer) -> None:
    """As small as it can be; references and alternatives included."""
    schema = {
        "type": "object",
        "$defs": {"verdict": {"type": "string", "enum": ["yes", "no"]}},
        "properties": {
            "verdicts": {"type": "array", "minItems": 2, "items": {"$ref": "#/$defs/verdict"}},
            "score": {"type": "integer", "minimum": 3},
            "reason": {"anyOf": [{"type": "string"}, {"type": "null"}]},
            "kind": {"const": "x"},
            "more": {"type": ["boolean", "null"]},
        },
    }
    wanted = {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}
    got = json.loads(chat(server, response_format=wanted).choices[0].message.content)
    assert got == {"verdicts": ["yes", "yes"], "score": 3, "reason": "", "kind": "x", "more": True}


def test_a_schema_in_the_prompt_is_found(server: OpenAIServer) -> None:
    """Libraries without structured output put it there."""
    schema = {"properties": {"statements": {"type": "array", "items": {"type": "string"}}}}
    prompt = f"Do {{this}}. Follow the schema: {json.dumps(schema)}"
    assert json.loads(chat(server, prompt).choices[0].message.content) == {"statements": []}


def test_without_a_schema_it_says_yes(server: OpenAIServer) -> None:
    """Something has to be said."""
    assert chat(server).choices[0].message.content == "Yes."


def test_a_stream_is_the_same_in_pieces(server: OpenAIServer) -> None:
    """As the openai package reads it, with the usage at its end."""
    with client(server) as asking:
        stream = asking.chat.completions.create(
            model="local",
            messages=[{"role": "user", "content": "hello"}],
            stream=True,
            stream_options={"include_usage": True},
        )
        chunks = list(stream)
    assert "".join(c.choices[0].delta.content or "" for c in chunks if c.choices) == "Yes."
    assert chunks[-1].usage is not None


def test_embeddings_by_the_words_of_a_text(server: OpenAIServer) -> None:
    """Plain or packed, the same numbers; words in common bring texts together."""
    with client(server) as asking:
        plain = asking.embeddings.create(model="e", input=["a tall tower"], encoding_format="float").data[0].embedding
        packed = asking.embeddings.create(model="e", input="a tall tower", encoding_format="base64").data[0].embedding
        near, far = (d.embedding for d in asking.embeddings.create(model="e", input=["tall tower", "ripe fruit"]).data)
        assert [model.id for model in asking.models.list()] == ["local"]
    unpacked = struct.unpack("<64f", base64.b64decode(packed)) if isinstance(packed, str) else packed
    assert list(unpacked) == pytest.approx(plain)
    assert _cosine(plain, near) > 0.7 > 0.2 > _cosine(plain, far)


def _cosine(one: Any, other: Any) -> float:
    return sum(a * b for a, b in zip(one, other, strict=True))


def test_log_probabilities_and_samples(server: OpenAIServer) -> None:
    """Where they are asked for."""
    choices = chat(server, n=3, logprobs=True, top_logprobs=2).choices
    assert [choice.message.content for choice in choices] == ["Yes."] * 3
    assert "".join(token.token for token in choices[0].logprobs.content) == "Yes."


# --- unkind on demand ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("reply", "error"),
    [
        (Reply.too_many(3), openai.RateLimitError),
        (Reply.failing(500), openai.InternalServerError),
        (Reply.failing(400, "no"), openai.BadRequestError),
        (Reply.dropping(), openai.APIConnectionError),
        (Reply.hanging(), openai.APITimeoutError),
    ],
    ids="429 500 400 drop hang".split(),
)
def test_it_fails_on_demand(reply: Reply, error: type[Exception]) -> None:
    """As real servers do, and as the openai package calls it."""
    with OpenAIServer(reply) as server, pytest.raises(error):
        chat(server, timeout=0.5 if reply.hangs else 30.0)


def test_it_follows_a_script() -> None:
    """Reply by reply, the last one for ever; what was asked is kept."""
    with OpenAIServer("one", {"two": 2}, Reply.refusing("no")) as server:
        got = [chat(server).choices[0].message for _ in range(4)]
        assert [message.content for message in got] == ["one", '{"two": 2}', "", ""]
        assert [message.refusal for message in got] == [None, None, "no", "no"]
        assert [request.body["messages"][0]["content"] for request in server.chats] == ["hello"] * 4


def test_it_follows_a_rule() -> None:
    """A function of the request; None is the honest answer."""
    with OpenAIServer(lambda request: "first" if request.number == 0 else None) as server:
        assert [chat(server).choices[0].message.content for _ in range(2)] == ["first", "Yes."]


def test_replies_end_as_scripted() -> None:
    """Cut off, filtered, or with a text around."""
    with OpenAIServer(Reply.cutting_off("half"), Reply.filtering(), "x", wrap=lambda text: f"<{text}>") as server:
        choices = [chat(server).choices[0] for _ in range(3)]
    assert [c.finish_reason for c in choices] == ["length", "content_filter", "stop"]
    assert [c.message.content for c in choices] == ["<half>", "<>", "<x>"]
