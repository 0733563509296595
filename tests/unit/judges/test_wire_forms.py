"""Wire forms of decision models: what is sent, and that nothing but a probability in its place becomes a number."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Callable, Mapping
from dataclasses import replace
from math import exp
from typing import Any, Final, cast

import httpx
import pytest
from pydantic import TypeAdapter

from ragtrace.core.errors import JudgeError
from ragtrace.core.labels import Turn
from ragtrace.core.types import Score, Unscored
from ragtrace.core.unscored_reasons import JUDGE_ERROR, NOT_APPLICABLE
from ragtrace.evaluation.scoring import Evaluator, evaluate
from ragtrace.judges import DecisionJudge
from ragtrace.judges.decision.questions import Question
from ragtrace.judges.decision.wire_forms import WIRE_FORMS, Protocol, read_reply
from ragtrace.pipeline.health import cause_of
from ragtrace.testing import DecisionServer, OpenAIServer, Reply, Request
from tests.support.decisions import (
    SHORT,
    ScriptedClient,
    encoded,
    evaluated,
    offered,
    openai_reply,
    renamed,
    systemone_reply,
    top_logprobs,
    values,
)
from tests.support.examples import examples

QUESTIONS: Final = (Question("s1", "One."), Question("s2", "Two."))
MUTATIONS: Final = 10_000


def answers(protocol: Protocol, reply: object, questions: tuple[Question, ...] = QUESTIONS) -> list[float | str]:
    """What the form reads from the bytes of *reply*."""
    body = reply if isinstance(reply, bytes) else encoded(reply)
    return WIRE_FORMS[protocol].read(read_reply(body), questions)


# --- What is sent -----------------------------------------------------------------------------------------------------


def test_a_predicate_a_question_in_openai_s_form() -> None:
    """Type, name and instructions; the state is one text."""
    assert WIRE_FORMS["openai"].body("m", "state", QUESTIONS[:1]) == {
        "model": "m",
        "input": "state",
        "questions": [{"type": "predicate", "name": "s1", "instructions": "One."}],
    }


def test_a_noul_a_question_in_the_system_one_form() -> None:
    """By name of the question, with type and instructions: servers refuse any other field."""
    assert WIRE_FORMS["systemone"].body("m", "state", QUESTIONS[:1]) == {
        "model": "m",
        "state": "state",
        "questions": {"s1": {"type": "noul", "instructions": "One."}},
    }


def test_one_token_of_a_chat_model_a_question() -> None:
    """The state comes before the question, so that a server reads it once for all questions of a call."""
    body = WIRE_FORMS["logprobs"].body("m", "state", QUESTIONS[:1])
    messages = cast("list[dict[str, str]]", body["messages"])
    assert (body["max_tokens"], body["logprobs"], body["top_logprobs"]) == (1, True, 20)
    assert messages[1]["content"].startswith("state\n")
    assert "One." in messages[1]["content"]


def test_requests_and_replies_are_of_the_openai_package_s_own_types() -> None:
    """The body that arrives has no other fields than its types have; the replies of our server are its `Decision`."""
    pytest.importorskip("openai.types.decision", reason="this openai package has no decisions")
    from openai.types.decision import Decision
    from openai.types.decision_create_params import DecisionCreateParams, QuestionQuestionParamPredicate

    call = replace(SHORT, reference="It is 1149 metres long.", earlier_turns=(Turn("user", "Hello."),))
    with DecisionServer() as server:
        judge = DecisionJudge("gpt-6-luna", base_url=server.url, api_key="none")
        names = [metric.name for metric in offered(judge)]
        evaluated(judge, call, *names, "factual_correctness_recall")
        (request,) = server.decisions
        raw = httpx.post(f"{server.url}/decisions", json=request.body).json()
    checked = cast("dict[str, Any]", TypeAdapter(DecisionCreateParams).validate_python(request.body))
    assert list(checked.pop("questions")) == request.body["questions"]  # it is checked while it is read
    assert checked == {key: request.body[key] for key in ("model", "input")}
    for question in request.body["questions"]:
        assert question.keys() <= QuestionQuestionParamPredicate.__annotations__.keys()
    decision = TypeAdapter(Decision).validate_python(raw, strict=True)
    assert [answer.name for answer in decision.answers] == [each["name"] for each in request.body["questions"]]
    assert {answer.type for answer in decision.answers} == {"predicate"}


# --- What is read -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("protocol", "reply"), [("openai", openai_reply), ("systemone", systemone_reply)])
@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (0, 0.0),
        (1, 1.0),
        (0.25, 0.25),
        (-0.01, "out_of_range"),
        (1.01, "out_of_range"),
        (10**400, "out_of_range"),
        (float("nan"), "non_finite"),
        (float("inf"), "non_finite"),
        (True, "unparsable"),
        ("0.5", "unparsable"),
        (None, "unparsable"),
        ([0.5], "unparsable"),
    ],
)
def test_a_probability_is_a_number_from_0_to_1(
    protocol: Protocol, reply: Callable[..., object], value: object, expected: float | str
) -> None:
    """Anything else is a reason, for this question alone."""
    assert answers(protocol, reply({"s1": value, "s2": 0.5})) == [expected, 0.5]


def test_a_refusal_leaves_the_other_answers_valid() -> None:
    """It is the reason of its question, and neither 0 nor 0.5."""
    reply = openai_reply({"s1": 0.0, "s2": 0.75})
    cast("list[Any]", reply["answers"])[0] = {"type": "refusal", "name": "s1"}
    assert answers("openai", reply) == ["refused", 0.75]


def test_an_answer_that_is_missing_in_the_system_one_form() -> None:
    """The question is unanswered."""
    assert answers("systemone", systemone_reply({"s2": 0.75})) == ["unanswered", 0.75]


def test_an_answer_under_another_name() -> None:
    """It is not taken for the answer to the question at its place."""
    assert answers("openai", openai_reply({"s2": 0.1, "s1": 0.9})) == ["unanswered", "unanswered"]
    assert answers("openai", openai_reply({"s9": 0.1, "s2": 0.9})) == ["unanswered", 0.9]


@pytest.mark.parametrize("given", [{"s1": 0.5}, {"s1": 0.5, "s2": 0.5, "s3": 0.5}, {}])
def test_another_number_of_answers_than_of_questions(given: dict[str, object]) -> None:
    """Answers go by their places, so that none of them is known."""
    with pytest.raises(JudgeError, match="answers to 2 questions"):
        answers("openai", openai_reply(given))


def test_an_answer_of_another_type() -> None:
    """A choice holds no probability of yes, even if a field is called so."""
    reply = openai_reply({"s1": 0.5, "s2": 0.5})
    cast("list[Any]", reply["answers"])[0]["type"] = "choice"
    assert answers("openai", reply) == ["unparsable", 0.5]
    other = systemone_reply({"s1": 0.5, "s2": 0.5})
    cast("dict[str, Any]", other["answers"])["s1"]["type"] = "score"
    assert answers("systemone", other) == ["unparsable", 0.5]


VLLM_REPLY: Final = (
    b'{"id":"decision-b052dd0c77225d11","object":"structured_decision","created":1795728202,"model":"tiny-qwen","answers":'
    b'{"s1":{"type":"noul","noul":0.4073334000459302,"probabilities":{"yes":0.4073334000459302,"no":0.5926665999540697},'
    b'"confidence":0.00033692721986678395},"s2":{"type":"noul","noul":0.40627293706223505,"probabilities":{"yes":'
    b'0.40627293706223505,"no":0.593727062937765},"confidence":0.00033687163629351357}},"usage":{"input_tokens":84,'
    b'"output_tokens":2},"diagnostics":{"s1":{"label_mass":0.0005684936858140733,"argmax_is_label":false},"s2":'
    b'{"label_mass":0.0005673846744102765,"argmax_is_label":false}}}'
)
"""Reply of vLLM 0.32.0 to two questions, with a small model of random weights, which says neither yes nor no."""


def test_a_share_of_two_words_that_the_model_would_not_say_is_no_probability() -> None:
    """vLLM divides by the sum of yes and no, however small; the sum stands beside the answers."""
    assert answers("systemone", VLLM_REPLY) == ["unparsable", "unparsable"]


@pytest.mark.parametrize(
    ("mass", "expected"),
    [
        (0.5, 0.25),
        (1, 0.25),
        (1.0000002, 0.25),
        (0.499, "unparsable"),
        (0, "unparsable"),
        (-1, "unparsable"),
        (2.0, "unparsable"),
        (float("nan"), "unparsable"),
        (float("inf"), "unparsable"),
        (True, "unparsable"),
        ("1", "unparsable"),
        (None, 0.25),
    ],
)
def test_yes_and_no_must_have_half_of_all_probability_where_a_server_tells_it(
    mass: object, expected: float | str
) -> None:
    """Each question has its own; a server that tells none is taken at its word."""
    reply = systemone_reply({"s1": 0.25, "s2": 0.75})
    assert answers("systemone", {**reply, "diagnostics": {"s1": {"label_mass": mass}}}) == [expected, 0.75]


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b"null",
        b"{",
        b"\xff\xfe\x00",
        b'{"answers": 3}',
        b'{"answers": null}',
        b'{"answers": {"s1": {"type": "noul", "noul": 0.1, "noul": 0.9}}}',
        b'{"answers": [{"type": "predicate", "name": "s1", "probability": 0.1, "probability": 0.9}, {}]}',
        b'{"answers": [], "answers": []}',
        encoded(openai_reply({"s1": 0.5, "s2": 0.5})) + b"{}",
        b"[" * 100_000,
    ],
)
def test_a_reply_that_cannot_be_read(body: bytes) -> None:
    """It is an error with a reason; of a key that comes twice neither value is taken."""
    for protocol in ("openai", "systemone"):
        with pytest.raises(JudgeError) as error:
            answers(protocol, body)
        assert error.value.reason == "unparsable"


def test_an_error_with_status_200() -> None:
    """It is the error that it says."""
    with pytest.raises(JudgeError, match="HTTP 429"):
        answers("openai", {"error": {"message": "slow down", "code": 429}})


@pytest.mark.parametrize(
    ("chances", "expected"),
    [
        ({"yes": 0.75, "no": 0.25}, 0.75),
        ({"Yes": 0.5, " yes": 0.25, "NO": 0.25}, 0.75),
        ({"\u0120yes": 0.6, "\u2581no": 0.2, "the": 0.2}, 0.75),
        ({"no": 0.995, "No": 0.004}, 0.0),
        ({"no": 0.6}, "unparsable"),  # yes may have the other 0.4: only one token was listed
        ({"I": 0.9, "yes": 0.06, "no": 0.04}, "unparsable"),
        ({"Y": 0.9, "N": 0.1}, "unparsable"),  # the words are cut into pieces
        ({"**": 0.9, "Yes": 0.1}, "unparsable"),  # markup of a whole token: what follows is not asked
        ({"**Yes": 0.5, '"yes': 0.25, "No.": 0.125, "`no`": 0.125}, 0.75),
        ({"Ja": 0.7, "Nein": 0.3}, "unparsable"),
        ({"yesterday": 0.7, "not": 0.3}, "unparsable"),
        ({"": 0.9, "yes": 0.05, "no": 0.05}, "unparsable"),
        ({"YES": 0.9, "Yes": 0.08, "yes": 0.015, "Y": 0.003, "Sure": 0.001}, 1.0),  # five listed: no has nothing left
        ({"YES": 0.6, "Yes": 0.1, "yes": 0.05, "Y": 0.03, "Sure": 0.02}, "unparsable"),  # no may have 0.02
        ({"yes": 0.72, "no": 0.2, "no ": 0.2}, "unparsable"),  # more than all: a token is listed twice
        ({"yes": 0.72, "no": 0.285}, 0.72 / 1.005),  # rounded by the server
    ],
)
def test_the_probability_of_yes_at_the_first_token(chances: dict[str, float], expected: float | str) -> None:
    """Yes and no in any spelling of the tokenizer, divided by their sum; no number if the model meant another word."""
    assert answers("logprobs", top_logprobs(chances), QUESTIONS[:1]) == [
        pytest.approx(expected) if isinstance(expected, float) else expected
    ]


def test_a_refusal_in_words_is_no_answer() -> None:
    """Not even where the server has log probabilities of its first token."""
    reply = top_logprobs({"yes": 1.0})
    reply["choices"][0]["message"]["refusal"] = "I cannot help with that."
    assert answers("logprobs", reply, QUESTIONS[:1]) == ["refused"]
    reply = {**top_logprobs({"yes": 1.0})}
    reply["choices"][0]["finish_reason"] = "content_filter"
    assert answers("logprobs", reply, QUESTIONS[:1]) == ["content_filter"]


# --- Log probabilities as servers write them -------------------------------------------------------------------------

GPT_4O_REPLY: Final = (
    b'{"id":"chatcmpl-CgP4aX","object":"chat.completion","created":1795892965,"model":"gpt-4o-2024-08-06","choices":['
    b'{"index":0,"message":{"role":"assistant","content":"No","refusal":null,"annotations":[]},"logprobs":{"content":['
    b'{"token":"No","logprob":-0.0009,"bytes":[78,111],"top_logprobs":[{"token":"No","logprob":-0.0009,"bytes":[78,111]},'
    b'{"token":"Yes","logprob":-7.2509,"bytes":[89,101,115]},{"token":"no","logprob":-10.0009,"bytes":[110,111]},'
    b'{"token":"\\\\xf0","logprob":-16.5,"bytes":[240]},{"token":" No","logprob":-9999.0,"bytes":[32,78,111]}]}],'
    b'"refusal":null},"finish_reason":"length"}],"usage":{"prompt_tokens":210,"completion_tokens":1,"total_tokens":211,'
    b'"prompt_tokens_details":{"cached_tokens":0,"audio_tokens":0},"completion_tokens_details":{"reasoning_tokens":0,'
    b'"audio_tokens":0,"accepted_prediction_tokens":0,"rejected_prediction_tokens":0}},"service_tier":"default",'
    b'"system_fingerprint":"fp_7ba0ee11a4"}'
)
"""Reply in the form of OpenAI's gpt-4o, whose log probability of what it would never say is -9999."""
LM_STUDIO_REPLY: Final = (
    b'{"id":"chatcmpl-dy1kx2","object":"chat.completion","created":1795892965,"model":"google/gemma-3-4b","choices":[{"index":'
    b'0,"message":{"role":"assistant","content":"Yes","reasoning_content":"","tool_calls":[]},"logprobs":null,"finish_reason":'
    b'"length"}],"usage":{"prompt_tokens":31,"completion_tokens":1,"total_tokens":32},"stats":{},"system_fingerprint":'
    b'"google/gemma-3-4b"}'
)
"""Reply in the form of LM Studio's chat completions, which take the parameter and return null.

Source: issue 60 of lmstudio-ai/lms.
"""
LM_STUDIO: Final[dict[str, Any]] = json.loads(LM_STUDIO_REPLY)
LLAMA_CPP_REPLY: Final = (
    b'{"choices":[{"finish_reason":"length","index":0,"message":{"role":"assistant","content":"Yes"},"logprobs":{"content":'
    b'[{"id":9454,"token":"Yes","bytes":[89,101,115],"logprob":-0.46316763758659363,"top_logprobs":[{"id":9454,"token":"Yes'
    b'","bytes":[89,101,115],"logprob":-0.46316763758659363},{"id":9693,"token":"yes","bytes":[121,101,115],"logprob":'
    b'-1.490797519683838},{"id":2753,"token":"No","bytes":[78,111],"logprob":-2.2437806129455566},{"id":2152,"token":"no",'
    b'"bytes":[110,111],"logprob":-3.3753342628479004}]}]}}],"created":1795892965,"model":"qwen2.5-coder-1.5b","system_'
    b'fingerprint":"b0-unknown","object":"chat.completion","usage":{"completion_tokens":1,"prompt_tokens":31,"total_tokens":'
    b'32,"prompt_tokens_details":{"cached_tokens":3}},"id":"chatcmpl-ruNeVkeJp75p","timings":{"cache_n":3,"prompt_n":28}}'
)
"""Reply of a llama.cpp server, as it came; each token has its id, too."""


def ollama_reply(logprobs: object = None) -> dict[str, object]:
    """Reply in the form of Ollama from 0.12.11 on, whose types have no other fields; empty ones are left out.

    Source: `ChoiceLogprobs` in openai/openai.go, `Logprob` in api/types.go of ollama/ollama.
    """
    choice: dict[str, object] = {
        "index": 0,
        "message": {"role": "assistant", "content": "Yes"},
        "finish_reason": "length",
    }
    return {
        "id": "chatcmpl-856",
        "object": "chat.completion",
        "created": 1_795_892_965,
        "model": "qwen2.5:1.5b",
        "system_fingerprint": "fp_ollama",
        "choices": [choice if logprobs is None else {**choice, "logprobs": logprobs}],
        "usage": {"prompt_tokens": 31, "completion_tokens": 1, "total_tokens": 32},
    }


def vllm_reply(top: dict[str, float], sampled: str = "Yes") -> dict[str, object]:
    """Reply in the form of vLLM, which lists the sampled token first and the likeliest behind it.

    Minus infinity is -9999, and fields without a value are null.

    Source: `ChatCompletionLogProbsContent` and `_get_top_logprobs` in vllm/entrypoints/openai.
    """
    listed = [{"token": token, "logprob": logprob, "bytes": list(token.encode())} for token, logprob in top.items()]
    first = next((each for each in listed if each["token"] == sampled), listed[0])
    message = {"role": "assistant", "content": sampled, "refusal": None, "tool_calls": [], "reasoning_content": None}
    return {
        "id": "chatcmpl-b052dd0c77225d11",
        "object": "chat.completion",
        "created": 1_795_892_965,
        "model": "Qwen/Qwen2.5-1.5B-Instruct",
        "choices": [
            {
                "index": 0,
                "message": message,
                "logprobs": {"content": [{**first, "top_logprobs": listed}]},
                "finish_reason": "length",
                "stop_reason": None,
            }
        ],
        "service_tier": None,
        "system_fingerprint": None,
        "usage": {"prompt_tokens": 31, "total_tokens": 32, "completion_tokens": 1, "prompt_tokens_details": None},
        "prompt_logprobs": None,
        "kv_transfer_params": None,
    }


def _token(text: str, logprob: float, **more: object) -> dict[str, object]:
    return {"token": text, "logprob": logprob, "bytes": list(text.encode()), **more}


@pytest.mark.parametrize(
    ("reply", "expected"),
    [
        (LLAMA_CPP_REPLY, 0.8590),
        (
            ollama_reply(
                {
                    "content": [
                        _token(
                            "Yes",
                            -0.2231,
                            top_logprobs=[_token("Yes", -0.2231), _token("No", -1.8971), _token("The", -4)],
                        )
                    ]
                }
            ),
            0.8421,
        ),
        (vllm_reply({"Yes": -0.2231, "No": -1.8971, " yes": -4.6, "\u2581no": -9999.0}), 0.8431),
        (vllm_reply({"Yes": 0.0, "No": -9999.0}), 1.0),
        (vllm_reply({"No": -0.00001}, "No"), 0.0),  # the rest has next to nothing
        (vllm_reply({"Yes": 0.0, "No": -3.4028234663852886e38}), 1.0),
        (GPT_4O_REPLY, 0.0007),
        (vllm_reply({"\n": -4.6, "No": -1.8971, "Yes": -0.2231}, "Yes"), 0.8421),
    ],
    ids=[
        *("llama.cpp", "ollama", "vllm", "vllm, certain", "vllm, one token"),
        *("llama.cpp, a probability of 0", "gpt-4o", "in another order"),
    ],
)
def test_log_probabilities_of_servers_are_read(reply: object, expected: float) -> None:
    """The probability of yes, in any spelling, beside that of no."""
    assert answers("logprobs", reply, QUESTIONS[:1]) == [pytest.approx(expected, abs=1e-3)]


def test_the_token_of_the_reply_counts_where_only_the_others_are_listed() -> None:
    """As LMDeploy lists them: without the likeliest one, the rest would seem to be all there is."""
    reply = vllm_reply({"No": -1.8971, "yes": -2.9, "The": -6.0})
    choice = cast("Any", reply)["choices"][0]
    choice["logprobs"]["content"][0] |= {"token": "Yes", "logprob": -0.2231, "bytes": [89, 101, 115]}
    assert answers("logprobs", reply, QUESTIONS[:1]) == [pytest.approx(0.8512, abs=1e-3)]


@pytest.mark.parametrize(
    "reply",
    [
        ollama_reply(),
        ollama_reply({"content": None}),
        ollama_reply({"content": []}),
        ollama_reply({"content": [_token("Yes", -0.2231)]}),
        ollama_reply({"content": [_token("Yes", -0.2231, top_logprobs=[])]}),
        ollama_reply({"content": [_token("Yes", -0.2231, top_logprobs={"Yes": -0.2231, "No": -1.8971})]}),
        ollama_reply({"tokens": [9454], "token_logprobs": [-0.2231], "top_logprobs": [{"9454": -0.2231}]}),
        vllm_reply({"Yes": 21.5, "No": 19.25}),
        LM_STUDIO_REPLY,
    ],
    ids=[
        *("ollama before 0.12.11", "none", "no token", "no alternatives", "empty alternatives", "a mapping"),
        *("mlx-lm", "logits", "LM Studio"),
    ],
)
def test_a_reply_without_log_probabilities_is_no_number(reply: object) -> None:
    """The word alone is no probability, and the error says what the server lacks."""
    with pytest.raises(JudgeError, match="gives no log probabilities") as error:
        answers("logprobs", reply, QUESTIONS[:1])
    assert error.value.reason == "unparsable"


def test_texts_of_tokens_that_are_no_words_are_no_number() -> None:
    """As of vLLM with `--return-tokens-as-token-ids`."""
    reply = vllm_reply({"token_id:9454": -0.2231, "token_id:2753": -1.8971}, "token_id:9454")
    assert answers("logprobs", reply, QUESTIONS[:1]) == ["unparsable"]


def _thinking(**message: object) -> dict[str, object]:
    reply = vllm_reply({"Okay": -0.1, "First": -2.5}, "Okay")
    cast("Any", reply)["choices"][0]["message"] |= {"content": None, **message}
    return reply


@pytest.mark.parametrize(
    "reply",
    [
        vllm_reply({"<think>": -0.0001, "Yes": -9.5, "No": -9.9}, "<think>"),
        vllm_reply({"<|channel|>": -0.0001, "Yes": -9.5}, "<|channel|>"),
        vllm_reply({"[THINK]": -0.0001, "Yes": -9.5}, "[THINK]"),
        vllm_reply({"\u25c1think\u25b7": -0.0001, "Yes": -9.5}, "\u25c1think\u25b7"),
        _thinking(reasoning_content="Okay"),
        _thinking(reasoning="Okay"),
        {
            **LM_STUDIO,
            "choices": [{**LM_STUDIO["choices"][0], "message": {"content": "", "reasoning_content": "Okay"}}],
        },
    ],
    ids=["qwen", "gpt-oss", "magistral", "kimi", "a parser of thoughts", "openrouter", "and no log probabilities"],
)
def test_thoughts_are_no_answer(reply: object) -> None:
    """The error says how a model is asked not to think."""
    with pytest.raises(JudgeError, match=r"thinks before it answers: pass extra_body=.*enable_thinking") as error:
        answers("logprobs", reply, QUESTIONS[:1])
    assert error.value.reason == "unparsable"


def test_an_answer_stands_though_the_server_has_a_field_for_thoughts() -> None:
    """A model that was told not to think has an empty one, or white space."""
    reply = vllm_reply({"Yes": -0.2231, "No": -1.8971})
    cast("Any", reply)["choices"][0]["message"]["reasoning_content"] = "\n"
    assert answers("logprobs", reply, QUESTIONS[:1]) == [pytest.approx(0.8421, abs=1e-3)]


# --- Parameters that a server does not take --------------------------------------------------------------------------

_CAPS: Final = {
    "Azure": Reply.failing(400, "Invalid value for 'top_logprobs': must be less than or equal to 5."),
    "vLLM": Reply.failing(
        400, "Requested sample logprobs of 20, which is greater than max allowed: 5 (parameter=logprobs, value=20)",
        param="logprobs",
    ),
    "vLLM before 0.8": Reply.failing(400, "Cannot request more than 5 logprobs."),
    "xAI": Reply.failing(422, "top_logprobs must be between 0 and 5"),
    "pydantic": Reply.failing(
        422, body={"detail": [{"loc": ["body", "top_logprobs"], "msg": "Input should be less than or equal to 5"}]}
    ),
}  # fmt: skip
_OLD_NAME: Final = Reply.failing(
    400,
    "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead.",
    param="max_tokens",
    code="unsupported_parameter",
)
_HEATED: Final = Reply.failing(
    400, "Unsupported value: 'temperature' does not support 0 with this model.", param="temperature"
)


def _asked(rule: Callable[[Request], Reply], **options: Any) -> tuple[dict[str, float | str], list[dict[str, Any]]]:
    """What a judge makes of one statement, and the bodies of its requests."""
    with OpenAIServer(rule) as server:
        judge = DecisionJudge("m", protocol="logprobs", base_url=server.url, api_key="none", **options)
        found = evaluated(judge, replace(SHORT, answer="It is 1149 metres long."), "faithfulness")
        return values(found), [request.body for request in server.chats]


def _answering(*refused: tuple[Callable[[Mapping[str, Any]], bool], Reply]) -> Callable[[Request], Reply]:
    """Rule of a server that refuses requests of which a condition holds, and answers the others."""
    body = json.dumps(top_logprobs({"yes": 0.75, "no": 0.25}))
    return lambda request: next((reply for is_so, reply in refused if is_so(request.body)), Reply(body=body))


@pytest.mark.parametrize("server", _CAPS)
def test_a_server_that_lists_fewer_tokens_is_asked_for_as_many(server: str) -> None:
    """Five are enough for two words, as what is not listed is never taken for impossible unseen."""
    found, bodies = _asked(_answering((lambda body: body["top_logprobs"] > 5, _CAPS[server])))
    assert found == {"faithfulness": 0.75}
    assert [body["top_logprobs"] for body in bodies] == [20, 5]


def test_a_model_that_knows_the_limit_under_its_newer_name_alone() -> None:
    """It gets room to finish, and no temperature where it takes none; the user's own limit stands."""
    refused = [(lambda body: "max_tokens" in body, _OLD_NAME), (lambda body: "temperature" in body, _HEATED)]
    found, bodies = _asked(_answering(*refused))
    assert found == {"faithfulness": 0.75}
    assert [body.get("max_completion_tokens") for body in bodies] == [None, 16, 16]
    _, bodies = _asked(_answering(*refused), extra_body={"max_completion_tokens": 8, "reasoning_effort": "none"})
    assert [body.get("max_completion_tokens") for body in bodies] == [8, 8, 8]


@pytest.mark.parametrize(
    "refusal",
    [
        Reply.failing(403, "You are not allowed to request logprobs from this model"),
        Reply.failing(400, "Unsupported parameter: 'logprobs' is not supported with this model.", param="logprobs"),
    ],
    ids=["o4-mini", "gpt-5"],
)
def test_a_model_that_gives_no_log_probabilities_says_so(refusal: Reply) -> None:
    """Once, with what may help; the key is not blamed."""
    with OpenAIServer(refusal) as server:
        judge = DecisionJudge("m", protocol="logprobs", base_url=server.url, api_key="none")
        with pytest.raises(JudgeError, match=r"gives no log probabilities; some do with .*reasoning_effort") as error:
            asyncio.run(judge.judge(SHORT))
        assert server.n_chats == 1
    assert cause_of("unavailable", error.value.detail)[0] == "no log probabilities"


def test_another_word_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    """With the words that the model would have said, of which the first token tells no more than that."""
    _asked(lambda _: Reply(body=json.dumps(top_logprobs({"The": 0.8, "Based": 0.2}))))
    (said,) = [record.getMessage() for record in caplog.records]
    assert "neither with yes nor with no" in said
    assert "its likeliest words are 'The', 'Based'" in said


# --- Mutated replies --------------------------------------------------------------------------------------------------

_JUNK: Final = (
    None, True, False, "", "0.5", "yes", -1, 2, 0, 1, 1.0000001, -1e-9, float("nan"), float("inf"), float("-inf"), [],
    {}, 10**400, "refusal", {"probability": 0.5}, [0.5], "\ud800", "s1", "predicate", "noul",
)  # fmt: skip


def _paths(value: object, at: tuple[object, ...] = ()) -> list[tuple[object, ...]]:
    inner: list[tuple[object, object]] = []
    if isinstance(value, dict):
        inner = list(cast("dict[object, object]", value).items())
    elif isinstance(value, list):
        inner = list(enumerate(cast("list[object]", value)))
    return [(*at, key) for key, _ in inner] + [path for key, each in inner for path in _paths(each, (*at, key))]


def _change(reply: Any, chance: random.Random) -> None:
    """Change one place of *reply*: another value, nothing, another place's value, another key, or twice the same."""
    paths = _paths(reply)
    if not paths:
        return
    *above, key = chance.choice(paths)
    holder = reply
    for step in above:
        holder = holder[step]
    how = chance.randrange(5)
    if how == 0:
        holder[key] = chance.choice(_JUNK)
    elif how == 1:
        del holder[key]
    elif how == 2:
        other = chance.choice(list(holder) if isinstance(holder, dict) else range(len(holder)))
        holder[key], holder[other] = holder[other], holder[key]
    elif isinstance(holder, dict):
        holder[f"{key}{chance.choice('12 _')}"] = holder.pop(key)
    else:
        holder.insert(key, json.loads(json.dumps(holder[key])))


def _mutated(reply: dict[str, object], chance: random.Random) -> bytes:
    """Bytes of *reply* after one to three changes of its values, and now and then of its text."""
    changed = json.loads(json.dumps(reply))
    for _ in range(chance.randint(1, 3)):
        _change(changed, chance)
    text = json.dumps(changed)
    if chance.random() < 0.3:
        at = chance.randrange(len(text))
        text = chance.choice([text[:at], text[:at] + chance.choice('{}[]",:0x\\') + text[at:], text + text, text[at:]])
    return text.encode("utf-8", "surrogatepass")


def _expected(protocol: str, body: bytes, names: list[str]) -> dict[str, float] | None:
    """Probabilities in their places in *body*, read without the code under test; None: it is no reply at all."""

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        if len(dict(pairs)) < len(pairs):
            raise ValueError
        return dict(pairs)

    try:
        reply = json.loads(body.decode("utf-8", "replace"), object_pairs_hook=once)
    except ValueError:
        return None
    given = reply.get("answers") if isinstance(reply, dict) and not reply.get("error") else None
    if protocol == "openai":
        if not isinstance(given, list) or len(given) != len(names):
            return None
        found = [each if isinstance(each, dict) else {} for each in given]
        pairs = [(n, e.get("probability")) for n, e in zip(names, found, strict=True)
                 if e.get("name") == n and e.get("type") == "predicate"]  # fmt: skip
    else:
        if not isinstance(given, dict):
            return None
        pairs = [(n, e.get("noul")) for n in names if isinstance(e := given.get(n), dict) and e.get("type") == "noul"]
    return {n: v for n, v in pairs if isinstance(v, (int, float)) and not isinstance(v, bool) and 0 <= v <= 1}


@pytest.mark.parametrize(("protocol", "reply"), [("openai", openai_reply), ("systemone", systemone_reply)])
def test_a_mutated_reply_never_becomes_an_invented_number(protocol: Protocol, reply: Callable[..., Any]) -> None:
    """10,000 mutations: no exception, a score only from probabilities in their places, and else a known reason."""
    chance = random.Random(20_261_124)
    names = ["s1", "s2", "s3", "c1", "c2", "declines", "addresses"]
    honest = reply({name: 0.9 - n / 10 for n, name in enumerate(names)})
    sent: list[bytes] = []

    def answer(body: dict[str, Any]) -> bytes:
        sent.append(_mutated(honest, chance))
        return sent[-1]

    async def run() -> None:
        judge = DecisionJudge("m", protocol=protocol, client=lambda: ScriptedClient(answer), max_questions=64)
        metrics = offered(judge)
        evaluator = Evaluator(judge.asking(metrics), metrics, None)
        scored = 0
        for number in range(examples(MUTATIONS)):
            sent.clear()
            evaluation = await evaluate(evaluator, renamed(SHORT, number))
            known = _expected(protocol, sent[-1], names) or {}
            statements = [known[name] for name in names[:3] if name in known]
            result = evaluation.results["hallucinated"]
            if len(statements) == 3:
                scored += 1
                assert isinstance(result, Score), sent
                assert result.value == 1.0 - min(statements)
            else:
                assert isinstance(result, Unscored), sent
            for each in evaluation.results.values():
                assert isinstance(each, Score) or each.reason in JUDGE_ERROR | NOT_APPLICABLE, sent
            for name, question in (("answered", "declines"), ("answer_relevancy", "addresses")):
                found = evaluation.results[name]
                assert isinstance(found, Score) == (question in known), sent
        assert examples(MUTATIONS) // 10 < scored < examples(MUTATIONS)
        await judge.aclose()

    asyncio.run(run())


def _expected_chance(body: bytes) -> float | None:
    """Probability of yes in the reply of a chat model, read without the code under test; None: it tells none."""
    try:
        choice = json.loads(body.decode("utf-8", "replace"))["choices"][0]
        first = choice["logprobs"]["content"][0]
        listed = {each["token"]: exp(min(0.0, each["logprob"])) for each in (first, *first["top_logprobs"])}
    except (ValueError, LookupError, TypeError):
        return None
    word = {text: text.strip(" *.").lower() for text in listed}
    yes, no = (sum(listed[text] for text in listed if word[text] == wanted) for wanted in ("yes", "no"))
    return yes / (yes + no) if yes + no else None


def test_a_mutated_reply_of_a_chat_model_never_becomes_an_invented_number() -> None:
    """10,000 mutations: no exception, and a probability only where the reply has yes and no with that one."""
    chance = random.Random(20_261_128)
    honest = [json.loads(LLAMA_CPP_REPLY), json.loads(GPT_4O_REPLY), vllm_reply({"Yes": -0.2231, "No": -1.8971})]
    read = 0
    for number in range(examples(MUTATIONS)):
        body = _mutated(honest[number % 3], chance)
        try:
            (found,) = answers("logprobs", body, QUESTIONS[:1])
        except JudgeError as error:
            found = error.reason
        if isinstance(found, float):
            read += 1
            expected = _expected_chance(body)
            assert expected is not None, body
            assert found == pytest.approx(expected, abs=0.02), body
        else:
            assert found in JUDGE_ERROR, body
    assert examples(MUTATIONS) // 10 < read < examples(MUTATIONS)
