"""Attributes that are read with a default, on the objects of libraries that have an environment of their own.

`tests/contract/test_library_attributes.py` has the list.
"""

from __future__ import annotations

import json
import os
import subprocess
from typing import Any

import pytest

from tests.integration.frameworks.environment import FOLDER, python_of

pytestmark = pytest.mark.integration
_TIMEOUT_S = 120.0


def told(environment: str, program: str) -> Any:
    """What *program* prints, as JSON, in that environment, where ragtrace is the source beside the tests."""
    environ = {name: value for name, value in os.environ.items() if not name.startswith(("OTEL_", "OPENAI_", "PYTHON"))}
    done = subprocess.run(
        [str(python_of(environment)), "-c", program],
        env={**environ, "LITELLM_LOCAL_MODEL_COST_MAP": "True", "OPENAI_AGENTS_DISABLE_TRACING": "0"},
        cwd=FOLDER.parents[2],
        capture_output=True,
        text=True,
        timeout=_TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return json.loads(done.stdout.splitlines()[-1])


AGENTS = """
import json, os
from agents.tracing import GenerationSpanData, TracingProcessor, get_trace_provider, trace
provider = get_trace_provider()
with trace("a workflow", group_id="visit-7", metadata={"user_id": "u1"}) as made:
    found = [made.name, made.group_id, made.metadata, GenerationSpanData(model="a model").model]
print(json.dumps([*found, len(provider._multi_processor._processors)]), flush=True)
os._exit(0)
"""


@pytest.mark.parametrize("environment", ["openai_agents", "openai_agents_0_7", "openai_agents_v2"])
def test_the_agents_sdk_has_them(environment: str) -> None:
    """Name, session, user and model of a run, and the processors among which ragtrace's listener must be."""
    *found, processors = told(environment, AGENTS)
    assert found == ["a workflow", "visit-7", {"user_id": "u1"}, "a model"]
    assert processors >= 1


LITELLM = """
import json
import litellm
from ragtrace.capture.providers import provider_of
asked = {"messages": [{"role": "user", "content": "How tall is it?"}], "mock_response": "330 metres"}
models = ("openai/gpt-4o", "anthropic/claude-sonnet-4-5", "mistral/mistral-small-latest")
print(json.dumps([provider_of(litellm.completion(model=model, **asked)) for model in models]))
"""


def test_the_provider_of_an_answer_of_litellm_is_found() -> None:
    """Which LiteLLM names nowhere else."""
    assert told("captured_clients", LITELLM) == ["openai", "anthropic", "mistral_ai"]


REPLIES = """
import json
import anthropic, cohere, ollama
from ragtrace.capture import find_answer
counts = {"input_tokens": 20, "cache_read_input_tokens": 8000, "cache_creation_input_tokens": 0, "output_tokens": 9}
reply = {"id": "m1", "type": "message", "role": "assistant", "model": "claude-x", "stop_sequence": None}
said, model = [{"type": "text", "text": "It is high."}], anthropic.types.Message.model_validate
message = cohere.AssistantMessageResponse(role="assistant", content=said)
usage = cohere.Usage(
    billed_units=cohere.UsageBilledUnits(input_tokens=3, output_tokens=9),
    tokens=cohere.UsageTokens(input_tokens=900, output_tokens=9),
)
ollamas = {"model": "qwen3", "message": {"role": "assistant", "content": "It is high."}, "done": True}
made = [
    model({**reply, "usage": counts, "content": said, "stop_reason": "end_turn"}),
    model({**reply, "usage": counts, "content": [], "stop_reason": "refusal"}),
    cohere.V2ChatResponse(id="1", finish_reason="COMPLETE", usage=usage, message=message),
    ollama.ChatResponse.model_validate({**ollamas, "prompt_eval_count": 900, "eval_count": 9}),
]
found = [find_answer(each) for each in made]
print(json.dumps([(each.text, each.input_tokens, each.output_tokens) for each in found]))
"""


def test_the_tokens_of_replies_are_all_of_them() -> None:
    """With those that Anthropic's cache has had, and also of a reply without a word."""
    said = "It is high."
    assert told("captured", REPLIES) == [[said, 8020, 9], ["", 8020, 9], [said, 900, 9], [said, 900, 9]]


CACHED = """
import json
from litellm.llms.anthropic.chat.transformation import AnthropicConfig
from litellm.types.utils import Choices, Message, ModelResponse
from ragtrace.capture import find_answer
counts = {"input_tokens": 20, "cache_read_input_tokens": 8000, "cache_creation_input_tokens": 0, "output_tokens": 9}
usage = AnthropicConfig().calculate_usage(usage_object=counts, reasoning_content=None)
reply = ModelResponse(model="claude-x", choices=[Choices(message=Message(content="It is high."))], usage=usage)
found = find_answer(reply)
print(json.dumps([found.input_tokens, found.output_tokens, usage.cache_read_input_tokens]))
"""


def test_the_cached_tokens_of_litellm_are_counted_once() -> None:
    """It names them as Anthropic does, beside a number of the prompt's tokens that includes them."""
    assert told("captured_clients", CACHED) == [8020, 9, 8000]


STREAMED = """
import json
import ollama
from google.genai import types
from ragtrace.capture import AnswerStream, find_answer

def gemini(*parts, reason=None, **usage):
    candidate = {"content": {"role": "model", "parts": list(parts)}, "finish_reason": reason}
    reply = {"candidates": [candidate], "model_version": "g", "response_id": "r", "usage_metadata": usage}
    return types.GenerateContentResponse.model_validate(reply)

def ask(**fields):
    return ollama.ChatResponse.model_validate({"model": "q", "done": False, **fields})

def told(found):
    return [found.text, found.model, list(found.finish_reasons), found.input_tokens, found.output_tokens]

def streamed(*pieces):
    stream = AnswerStream()
    for piece in pieces:
        stream.add(piece)
    return told(stream.answer())

first, thought = {"prompt_token_count": 10, "thoughts_token_count": 20}, {"text": "hm", "thought": True}
counts = {**first, "candidates_token_count": 5, "total_token_count": 35}
ended = {"done": True, "done_reason": "stop", "prompt_eval_count": 11, "eval_count": 2}
print(json.dumps([
    told(find_answer(gemini(thought, {"text": "It is "}, {"text": "high."}, reason="STOP", **counts))),
    told(find_answer(gemini(thought, reason="MAX_TOKENS", **first))),
    streamed(
        gemini(thought, **first),
        gemini({"text": "It is "}, **first),
        gemini({"text": "high."}, **first),
        gemini(reason="STOP", **counts),
    ),
    streamed(
        ask(message={"role": "assistant", "content": "It is "}),
        ask(message={"role": "assistant", "content": "high."}),
        ask(message={"role": "assistant", "content": ""}, **ended),
    ),
]))
"""


def test_thoughts_tokens_and_reasons_of_gemini_and_ollama_are_read() -> None:
    """Thoughts count as output and are no text; the last piece of a stream has the tokens and the reason."""
    high, gemini = "It is high.", ["g", ["STOP"], 10, 25]
    assert told("captured", STREAMED) == [
        [high, *gemini],
        ["", "g", ["MAX_TOKENS"], 10, 20],
        [high, *gemini],
        [high, "q", ["stop"], 11, 2],
    ]


CONVERSE = """
import json
from botocore.parsers import create_parser
from botocore.session import get_session
from ragtrace.capture import find_answer
operation = get_session().get_service_model("bedrock-runtime").operation_model("Converse")
cached = {"cacheReadInputTokens": 8000, "cacheWriteInputTokens": 0}
usage = {"inputTokens": 20, "outputTokens": 9, "totalTokens": 8029, **cached}
thought = {"reasoningContent": {"reasoningText": {"text": "hm", "signature": "s"}}}
found = []
for content in ([{"text": "It is high."}], [thought, {"text": "It is high."}]):
    output = {"message": {"role": "assistant", "content": content}}
    body = {"output": output, "stopReason": "end_turn", "usage": usage, "metrics": {"latencyMs": 5}}
    sent = {"status_code": 200, "headers": {}, "body": json.dumps(body).encode()}
    answer = find_answer(create_parser("rest-json").parse(sent, operation.output_shape))
    found.append([answer.text, list(answer.finish_reasons), answer.input_tokens, answer.output_tokens])
print(json.dumps(found))
"""


def test_the_cached_tokens_of_bedrock_are_counted_as_those_of_anthropic() -> None:
    """Which they are beside; thoughts before the answer do not hide it."""
    assert told("captured_clients", CONVERSE) == [["It is high.", ["end_turn"], 8020, 9]] * 2


CHROMA = """
import json
import chromadb
from ragtrace.capture import find_documents
held = chromadb.EphemeralClient().create_collection("held", embedding_function=None)
held.add(ids=["a", "b", "c"], embeddings=[[1.0, 0.0], [0.9, 0.1], [0.0, 1.0]], documents=["A", "B", "C"])
held.add(ids=["d"], embeddings=[[0.1, 0.9]])
include = ["documents", "distances", "metadatas", "embeddings"]
found = held.query(query_embeddings=[[1.0, 0.0], [0.0, 1.0]], n_results=2, include=include)
print(json.dumps([(each.text, each.id, each.score) for each in find_documents(found)]))
"""


def test_each_document_of_chroma_has_its_id() -> None:
    """Of several queries, too, where an entry has no text; a distance is no score."""
    assert told("captured", CHROMA) == [["A", "a", None], ["B", "b", None], ["C", "c", None]]


TABLES = """
import json
import polars, pyarrow
from ragtrace.capture.documents import find_documents, rows_of_frame
columns = {"id": ["a"], "text": ["The tower is 330 metres tall."], "vector": [[0.1, 0.2]], "tags": [["x"]]}
tables = [pyarrow.table(columns), polars.DataFrame(columns)]
found = [[(each.id, each.text) for each in find_documents(table)] for table in tables]
print(json.dumps([found, [sorted(rows_of_frame(table)[0]) for table in tables]]))
"""


def test_vectors_of_a_table_are_not_converted() -> None:
    """The application would wait for a million numbers of Python's."""
    passages, columns = told("captured", TABLES)
    assert passages == [[["a", "The tower is 330 metres tall."]]] * 2
    assert columns == [["id", "tags", "text"]] * 2
