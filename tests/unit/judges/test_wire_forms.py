"""Wire forms of decision models: what is sent, and that nothing but a probability in its place becomes a number."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Callable
from dataclasses import replace
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
from ragtrace.testing import DecisionServer
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
        ({"<think>": 0.9, "yes": 0.06, "no": 0.04}, "unparsable"),
        ({"yes": 0.72, "no": 0.2, "no ": 0.2}, "unparsable"),  # more than all: a token is listed twice
        ({"yes": 0.72, "no": 0.285}, 0.72 / 1.005),  # rounded by the server
    ],
)
def test_the_probability_of_yes_at_the_first_token(chances: dict[str, float], expected: float | str) -> None:
    """Yes and no in any spelling of the tokenizer, divided by their sum; no number if the model meant another word."""
    assert answers("logprobs", top_logprobs(chances), QUESTIONS[:1]) == [
        pytest.approx(expected) if isinstance(expected, float) else expected
    ]


def test_a_chat_model_without_log_probabilities() -> None:
    """Its word alone is no probability."""
    reply = top_logprobs({"yes": 1.0})
    reply["choices"][0]["logprobs"] = None
    assert answers("logprobs", reply, QUESTIONS[:1]) == ["unparsable"]
    reply["choices"][0]["message"]["refusal"] = "I cannot help with that."
    assert answers("logprobs", reply, QUESTIONS[:1]) == ["refused"]


# --- Log probabilities as servers write them -------------------------------------------------------------------------

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
    ],
    ids=["llama.cpp", "ollama", "vllm", "vllm, certain", "vllm, one token"],
)
def test_log_probabilities_of_servers_are_read(reply: object, expected: float) -> None:
    """The probability of yes, in any spelling, beside that of no."""
    assert answers("logprobs", reply, QUESTIONS[:1]) == [pytest.approx(expected, abs=1e-3)]


@pytest.mark.parametrize(
    "reply",
    [
        ollama_reply(),
        ollama_reply({"content": None}),
        ollama_reply({"content": [_token("Yes", -0.2231)]}),
        vllm_reply({"token_id:9454": -0.2231, "token_id:2753": -1.8971}, "token_id:9454"),
        vllm_reply({"Yes": 21.5, "No": 19.25}),
        vllm_reply({"<think>": -0.0001, "Yes": -9.5, "No": -9.9}, "<think>"),
    ],
    ids=["ollama before 0.12.11", "ollama, none", "no alternatives", "token ids", "logits", "a reasoning model"],
)
def test_what_servers_send_in_place_of_log_probabilities_is_no_number(reply: object) -> None:
    """The question has no answer, and the reason says that the reply could not be read."""
    assert answers("logprobs", reply, QUESTIONS[:1]) == ["unparsable"]


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
