"""What the errors of real servers mean: the bodies that OpenAI, Azure OpenAI, vLLM, Ollama and others document or send.

Where they are from: OpenAI, platform.openai.com/docs/guides/error-codes and openai/openai-python's threads; Azure,
learn.microsoft.com "Azure OpenAI content filtering" and dotnet/extensions#6130; vLLM, docs.vllm.ai "OpenAI-compatible
server" and vllm-project/vllm#3906; Ollama, its docs/openai.md and netease-youdao/QAnything#555; llama.cpp,
ikawrakow/ik_llama.cpp#778; xAI, BerriAI/litellm#6610; Volcengine, agno-agi/agno#2553; DashScope,
FoundationAgents/OpenManus#330.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from email.utils import formatdate
from time import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragtrace.core.unscored_reasons import JUDGE_ERROR
from ragtrace.judges.llm.server_errors import ServerError, rejected_parameter

SENT = ("model", "messages", "temperature", "response_format", "max_tokens", "logprobs", "top_logprobs", "n")
WANTED = SENT[2:]


def openai(message: str, param: str | None = None, code: Any = None, kind: str = "invalid_request_error") -> Any:
    return {"error": {"message": message, "type": kind, "param": param, "code": code}}


def seen(status: int, body: Any, headers: Mapping[str, str] | None = None) -> ServerError:
    text = body if isinstance(body, bytes) else json.dumps(body).encode()
    return ServerError(status, headers or {}, text)


UNSUPPORTED: list[tuple[str, int, Any, str]] = [
    (
        "openai_old_model",
        400,
        openai("Invalid parameter: 'response_format' of type 'json_schema' is not supported with this model."),
        "response_format",
    ),
    (
        "openai_schema_refused",
        400,
        openai("Invalid schema for response_format 'x': 'minItems' is not permitted.", "response_format"),
        "response_format",
    ),
    (
        "openai_reasoning_temperature_value",
        400,
        openai(
            "Unsupported value: 'temperature' does not support 0 with this model. Only the default (1) value is"
            " supported.",
            "temperature",
            "unsupported_value",
        ),
        "temperature",
    ),
    (
        "openai_reasoning_temperature",
        400,
        openai("Unsupported parameter: 'temperature' is not supported with this model.", "temperature"),
        "temperature",
    ),
    (
        "openai_reasoning_max_tokens",
        400,
        openai(
            "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens'"
            " instead.",
            "max_tokens",
            "unsupported_parameter",
        ),
        "max_tokens",
    ),
    (
        "openai_reasoning_logprobs",
        403,
        openai("You are not allowed to request logprobs from this model"),
        "logprobs",
    ),
    (
        "azure_api_version",
        400,
        {
            "error": {
                "code": "BadRequest",
                "message": "response_format value as json_schema is enabled only for api versions 2024-08-01-preview"
                " and later",
            }
        },
        "response_format",
    ),
    (
        "azure_unknown_argument",
        400,
        openai("Unrecognized request argument supplied: logprobs"),
        "logprobs",
    ),
    (
        "vllm_pydantic",
        400,
        {
            "object": "error",
            "message": "[{'type': 'literal_error', 'loc': ('body', 'response_format', 'type'), 'msg': \"Input should be"
            " 'text' or 'json_object'\", 'input': {'temperature': 0, 'max_tokens': 9}}]",
            "type": "BadRequestError",
            "param": None,
            "code": 400,
        },
        "response_format",
    ),
    (
        "vllm_grammar",
        400,
        openai("The provided JSON schema contains features not supported by xgrammar. json_schema", kind="BadRequest"),
        "response_format",
    ),
    (
        "ollama_schema",
        400,
        openai("invalid JSON schema in format: unsupported structured output", kind="api_error"),
        "response_format",
    ),
    (
        "llama_cpp",
        500,
        {
            "error": {
                "code": 500,
                "message": 'response_format type must be one of "text" or "json_object", but got: json_schema',
                "type": "server_error",
            }
        },
        "response_format",
    ),
    (
        "xai",
        400,
        {
            "code": "Client specified an invalid argument",
            "error": "The response_format parameter is unsupported at the moment. Leave it unset.",
        },
        "response_format",
    ),
    (
        "volcengine",
        400,
        {
            "error": {
                "code": "InvalidParameter",
                "message": "The parameter `response_format.type` specified in the request are not valid: invalid value:"
                " `json_schema`, supported values are: `json_object` and `text`.",
                "param": "response_format.type",
                "type": "BadRequest",
            }
        },
        "response_format",
    ),
    (
        "deepseek",
        400,
        openai("This response_format type is unavailable now", code="invalid_request_error"),
        "response_format",
    ),
    (
        "litellm",
        400,
        openai("litellm.UnsupportedParamsError: does not support parameters: ['temperature']", "None", "400", "None"),
        "temperature",
    ),
    (
        "fastapi",
        422,
        {"detail": [{"type": "extra_forbidden", "loc": ["body", "n"], "msg": "Extra inputs are not permitted"}]},
        "n",
    ),
    (
        "google",
        400,
        [{"error": {"code": 400, "message": "Unknown name 'logprobs': Cannot find field.", "status": "INVALID"}}],
        "logprobs",
    ),
    ("plain_text", 400, b"json_schema is not supported", "response_format"),
    (
        "dashscope_stream_only",
        400,
        openai(
            "This model only support stream mode, please enable the stream parameter to access the model. ",
            None,
            "invalid_parameter_error",
        ),
        "stream",
    ),
    (
        "dashscope_thinking",
        400,
        openai("parameter.enable_thinking must be set to false for non-streaming calls"),
        "stream",
    ),
]


@pytest.mark.parametrize(("status", "body", "culprit"), [u[1:] for u in UNSUPPORTED], ids=[u[0] for u in UNSUPPORTED])
def test_a_rejected_part_of_the_request_is_found(status: int, body: Any, culprit: str) -> None:
    """In each server's own words; so it can be left out."""
    error = seen(status, body)
    assert rejected_parameter(error, WANTED) == culprit
    assert error.reason == "unavailable"
    assert not error.retryable or status == 500


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (400, openai("'messages' must contain the word 'json' to use 'response_format'.", "messages")),
        (400, openai("Invalid value for temperature of the kettle: unknown", "tools[0].function")),
        (400, b""),
        (400, b"Bad Request"),
        (401, openai("Incorrect API key provided: unsupported temperature", code="invalid_api_key")),
        (404, openai('model "x" not found, try pulling it first', kind="api_error")),
        (404, openai("The model `gpt-9` does not exist or you do not have access to it.", code="model_not_found")),
        (429, openai("Unsupported 'temperature'")),
        (500, openai("response_format")),
        (503, openai("temperature is not supported")),
        (500, {"error": {"message": "", "type": "InternalServerError", "param": None, "code": 500}}),
    ],
    ids=lambda value: str(value)[:60],
)
def test_other_errors_reject_nothing(status: int, body: Any) -> None:
    """A lower rung is tried only where the server says that the feature is unsupported."""
    assert rejected_parameter(seen(status, body), WANTED) is None


AZURE_FILTERED = {
    "error": {
        "message": "The response was filtered due to the prompt triggering Azure OpenAI's content management policy.",
        "type": None,
        "param": "prompt",
        "code": "content_filter",
        "status": 400,
        "innererror": {"code": "ResponsibleAIPolicyViolation", "content_filter_result": {"hate": {"filtered": True}}},
    }
}


@pytest.mark.parametrize(
    ("status", "body", "reason", "retryable"),
    [
        (400, AZURE_FILTERED, "content_filter", False),
        (400, openai("too long", "messages", "context_length_exceeded"), "truncated", False),
        (
            400,
            {"object": "error", "message": "This model's maximum context length is 4096 tokens.", "code": 400},
            "truncated",
            False,
        ),
        (401, openai("Incorrect API key provided", code="invalid_api_key"), "unavailable", False),
        (404, openai("model 'x' not found", kind="api_error"), "unavailable", False),
        (408, b"", "unavailable", True),
        (429, openai("Rate limit reached", code="rate_limit_exceeded"), "unavailable", True),
        (429, openai("You exceeded your current quota", code="insufficient_quota"), "unavailable", False),
        (500, openai("The server had an error", kind="server_error"), "unavailable", True),
        (502, b"<html>Bad Gateway</html>", "unavailable", True),
        (503, {"error": {"message": "Loading model", "type": "unavailable_error", "code": 503}}, "unavailable", True),
        (504, b"", "unavailable", True),
        (501, b"", "unavailable", False),
    ],
    ids=lambda value: str(value)[:40],
)
def test_every_error_has_a_reason(status: int, body: Any, reason: str, retryable: bool) -> None:
    """And says whether the same request may go well a moment later."""
    error = seen(status, body)
    assert (error.reason, error.retryable) == (reason, retryable)


@pytest.mark.parametrize(
    ("headers", "low", "high"),
    [
        ({"retry-after": "7"}, 7, 7),
        ({"retry-after": "0.5"}, 0.5, 0.5),
        ({"retry-after-ms": "1500", "retry-after": "2"}, 1.5, 1.5),
    ],
    ids=repr,
)
def test_the_wait_that_a_server_asks_for_is_read(headers: dict[str, str], low: float, high: float) -> None:
    """In milliseconds or seconds (RFC 9110, section 10.2.3)."""
    after = seen(429, b"", headers).retry_after
    assert after is not None
    assert low <= after <= high


def test_the_wait_may_be_a_date() -> None:
    """In a minute from now."""
    after = seen(429, b"", {"retry-after": formatdate(time() + 60, usegmt=True)}).retry_after
    assert after is not None
    assert 50 <= after <= 60


@pytest.mark.parametrize(
    "value",
    ["", "soon", "nan", "inf", "1e999", "Mon, 99 Foo 2026", "\x00", "0", "-0.0", "-3", formatdate(1.0, usegmt=True)],
)
def test_a_wait_that_makes_no_sense_is_none(value: str) -> None:
    """It neither fails nor shuts the judge for ever."""
    assert seen(429, b"", {"retry-after": value, "retry-after-ms": value}).retry_after is None


@given(st.integers(400, 599), st.binary(max_size=300), st.dictionaries(st.just("retry-after"), st.text()))
def test_no_answer_gives_another_error(status: int, body: bytes, headers: dict[str, str]) -> None:
    """Whatever the bytes, there is a reason of ours."""
    error = ServerError(status, headers, body)
    assert error.reason in JUDGE_ERROR
    assert rejected_parameter(error, WANTED) in (None, "stream", *WANTED)


def test_a_long_body_is_read_in_part() -> None:
    """Megabytes of an error neither take long nor end up in telemetry."""
    error = seen(400, openai("x" * 10_000_000))
    assert len(error.detail) < 400
