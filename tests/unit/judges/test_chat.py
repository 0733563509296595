"""`ChatClient` against servers of every kind: a checked object comes back, or a reason, and what either cost."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextvars import ContextVar
from dataclasses import replace
from typing import Any, Final, NamedTuple, TypeVar

import pytest

from ragtrace.core.cost import Cost
from ragtrace.core.errors import JudgeError, SettingsError
from ragtrace.core.price import Price
from ragtrace.judges.llm.chat import ChatClient, ModelReply
from ragtrace.judges.llm.prompt import Prompt
from ragtrace.judges.llm.response_format import capabilities_of, forget_capabilities
from ragtrace.judges.llm.server_connection import Transport, has_aiohttp
from ragtrace.testing import OpenAIServer, Reply, Request

T = TypeVar("T")

SCHEMA: Final = {
    "type": "object",
    "additionalProperties": False,
    "required": ["label", "reason"],
    "properties": {"label": {"type": "string", "enum": ["good", "bad"]}, "reason": {"type": "string"}},
}
GOOD: Final = {"label": "good", "reason": "it is"}


class Read(NamedTuple):
    """The reply as it is, with a defect if its label is none."""

    data: dict[str, Any]

    @property
    def defects(self) -> list[str]:
        label = self.data.get("label")
        return [] if label in ("good", "bad") else [f"label must be good or bad, got {label!r}"]


ASK: Final = Prompt("verdict", "Judge the text. Reply in JSON.", '{"data_1": {"text": "hello"}}', SCHEMA, Read)
BOUGHT: Final = Reply(GOOD, usage=(100, 10))
PRICE: Final = Price(10.0, 100.0)


TRANSPORT: Final = ContextVar[Transport]("TRANSPORT", default="auto")


@pytest.fixture(autouse=True, params=["httpx", "aiohttp"])
def _transport(request: pytest.FixtureRequest) -> Iterator[None]:
    """Every test is run over both: whoever installs the faster one must see no difference."""
    if request.param == "aiohttp" and not has_aiohttp():
        pytest.skip("needs openai[aiohttp]")
    forget_capabilities()
    before = TRANSPORT.set(request.param)
    yield
    TRANSPORT.reset(before)
    forget_capabilities()


def run(server: OpenAIServer, use: Callable[[ChatClient], Awaitable[T]], **settings: Any) -> T:
    """What *use* makes of a chat with *server*, on an event loop of its own."""

    async def main() -> T:
        chat = ChatClient(
            "judge", base_url=server.url, **{"timeout": 10.0, "price": PRICE, "transport": TRANSPORT.get(), **settings}
        )
        try:
            return await use(chat)
        finally:
            await chat.aclose()

    return asyncio.run(main())


async def put(chat: ChatClient) -> ModelReply[Read]:
    return await chat.ask(ASK)


def answer(
    *script: Any, ask: Prompt[Read] = ASK, chat: Mapping[str, Any] | None = None, **server: Any
) -> ModelReply[Read]:
    with OpenAIServer(*script, **server) as serving:
        return run(serving, lambda c: c.ask(ask), **(chat or {}))


def failure(*script: Any, chat: Mapping[str, Any] | None = None, **server: Any) -> JudgeError:
    with pytest.raises(JudgeError) as caught:
        answer(*script, chat=chat, **server)
    return caught.value


def twice(server: OpenAIServer) -> tuple[ModelReply[Read], list[Request]]:
    """The second answer of a server, and the requests that it took."""

    async def both(chat: ChatClient) -> ModelReply[Read]:
        await put(chat)
        server.requests.clear()
        return await put(chat)

    return run(server, both), server.chats


# --- the ladder ------------------------------------------------------------------------------------------------------


def test_one_request_gives_one_answer() -> None:
    """With the schema in strict mode, temperature 0, and nothing that the caller did not ask for."""
    with OpenAIServer(BOUGHT) as server:
        got = run(server, put)
        assert (got.reply.data, got.level, got.model, got.defects) == (GOOD, 1, "judge", ())
        assert got.cost == Cost(1, 100, 10, 0.002)
        (request,) = server.chats
    assert request.body == {
        "model": "judge",
        "messages": [{"role": "system", "content": ASK.system}, {"role": "user", "content": ASK.user}],
        "temperature": 0.0,
        "response_format": {
            "type": "json_schema",
            "json_schema": {"name": "verdict", "strict": True, "schema": SCHEMA},
        },
    }


@pytest.mark.parametrize(
    ("rejects", "rung", "requests"),
    [
        (["json_schema"], 2, 2),
        (["json_schema", "json_object"], 3, 3),
        (["response_format"], 3, 3),
        (["temperature"], 1, 2),
        (["json_schema", "temperature"], 2, 3),
        (["non_streaming"], 1, 2),
        (["non_streaming", "stream_options", "json_schema", "json_object", "temperature"], 3, 6),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, list) else str(value),
)
def test_what_a_server_rejects_is_left_out_and_remembered(rejects: list[str], rung: int, requests: int) -> None:
    """The first question finds out, the second takes one request; turned-down requests cost no tokens."""
    with OpenAIServer(BOUGHT, rejects=rejects) as server:
        first = run(server, put)
        assert (first.reply.data, first.level, server.n_chats, first.cost.n_calls) == (GOOD, rung, requests, requests)
        assert (first.cost.input_tokens, first.cost.cost_usd) in ((100, 0.002), (0, None))
        second = run(server, put)  # by another object, on another event loop: it is the process that knows
        assert (second.level, server.n_chats) == (rung, requests + 1)


def test_the_schema_stands_in_the_instructions_below_the_first_rung() -> None:
    """Where the server does not take it otherwise; the data stay alone in the user message."""
    with OpenAIServer(BOUGHT, rejects=["json_schema"]) as server:
        run(server, put)
        request = server.chats[-1]
    assert request.schema == SCHEMA
    assert request.body["response_format"] == {"type": "json_object"}
    assert request.body["messages"][1] == {"role": "user", "content": ASK.user}


def test_it_goes_no_lower_than_allowed() -> None:
    """Then the server's refusal is the outcome."""
    error = failure(rejects=["json_schema"], chat={"lowest_format": 1})
    assert (error.reason, error.retryable, error.n_calls) == ("unavailable", False, 1)
    assert "json_schema" in error.detail


@pytest.mark.parametrize(
    "names", [("max_tokens", "max_completion_tokens"), ("max_tokens", "max_completion_tokens", None)], ids=str
)
def test_the_most_tokens_go_under_the_name_the_server_knows(names: tuple[str | None, ...]) -> None:
    """Reasoning models know another one than old servers do; some know none."""
    rejects = [name for name in names if name][: len(names) - 1]
    with OpenAIServer(BOUGHT, rejects=rejects) as server:
        run(server, put, max_tokens=77)
        last = server.chats[-1].body
    assert {key: value for key, value in last.items() if value == 77} == ({names[-1]: 77} if names[-1] else {})


AMPLE = replace(ASK, ample_tokens=900)


def test_a_reply_has_a_limit_unless_somebody_set_one() -> None:
    """What the request needs at most; under either name, what the caller says goes before."""

    def limit(ask: Prompt[Read], **settings: Any) -> object:
        with OpenAIServer(BOUGHT) as server:
            run(server, lambda chat: chat.ask(ask), **settings)
            return server.chats[-1].body.get("max_tokens")

    assert [limit(AMPLE), limit(ASK), limit(AMPLE, max_tokens=77)] == [900, None, 77]
    assert limit(AMPLE, extra_body={"max_completion_tokens": 5}) is None


@pytest.mark.parametrize("written", ["", "<think>Let me see. ", '{"label"'])
def test_a_model_that_reasons_is_asked_without_a_limit(written: str) -> None:
    """Its reply was cut off before it began; this is remembered."""

    def reasons(request: Request) -> Reply:
        return Reply.cutting_off(written) if "max_tokens" in request.body else BOUGHT

    async def both(chat: ChatClient) -> ModelReply[Read]:
        await chat.ask(AMPLE)
        return await chat.ask(AMPLE)

    with OpenAIServer(reasons) as server:
        assert run(server, both).reply.data == GOOD
        assert server.n_chats == 3


def test_reasoning_that_the_server_counts_is_believed() -> None:
    """However much of the reply was written before it was cut off."""
    usage = {"prompt_tokens": 5, "completion_tokens": 900, "completion_tokens_details": {"reasoning_tokens": 500}}
    choice = {"message": {"content": '{"label": "' + "good " * 300}, "finish_reason": "length"}
    cut = Reply(body=json.dumps({"choices": [choice], "usage": usage}).encode())
    with OpenAIServer(cut, BOUGHT) as server:
        assert run(server, lambda chat: chat.ask(AMPLE)).reply.data == GOOD


@pytest.mark.parametrize("written", ["\n" * 900, '{"label": "' + "good " * 800])
def test_a_model_that_repeats_itself_is_cut_off(written: str) -> None:
    """It is not asked to go on without a limit."""
    with OpenAIServer(Reply.cutting_off(written)) as server, pytest.raises(JudgeError, match="truncated"):
        run(server, lambda chat: chat.ask(AMPLE))
    assert server.n_chats == 1


def test_a_small_window_is_asked_without_our_limit() -> None:
    """A server that refuses request and limit together may have room for the reply all the same."""

    def refuses(request: Request) -> Reply:
        error = Reply.failing(400, "This model's maximum context length is 4096 tokens, you requested 4500")
        return error if "max_tokens" in request.body else BOUGHT

    with OpenAIServer(refuses) as server:
        assert run(server, lambda chat: chat.ask(AMPLE)).reply.data == GOOD


def test_a_server_that_reads_only_a_part_is_noticed(caplog: pytest.LogCaptureFixture) -> None:
    """By the tokens that it counts: one warning that says what to do, and a mark on every answer."""
    long = replace(ASK, user="word " * 4_000)

    async def both(chat: ChatClient) -> list[bool]:
        return [(await chat.ask(ask)).input_truncated for ask in (long, long, ASK)]

    with OpenAIServer(Reply(GOOD, usage=(2048, 10))) as server:
        assert run(server, both) == [True, True, False]
        assert "reads only a part of long texts" in str(capabilities_of(server.url, "judge"))
    (warning,) = [record.message for record in caplog.records if "seems to read only a part" in record.message]
    assert "OLLAMA_CONTEXT_LENGTH" in warning
    with OpenAIServer(Reply(GOOD, usage=(5000, 10)), Reply(GOOD, usage=None), Reply(GOOD, usage=(1, 1))) as server:
        assert run(server, both) == [False, False, False]
    with OpenAIServer(Reply(GOOD, usage=(1, 10))) as server:
        assert run(server, both) == [False, False, False]  # it leaves out what it has cached


def test_errors_about_something_else_change_nothing() -> None:
    """A wrong key is not a reason to ask with less."""
    error = failure(Reply.failing(401, "Incorrect API key provided", code="invalid_api_key"))
    assert (error.reason, error.retryable, error.n_calls) == ("unavailable", False, 1)


def test_a_server_that_rejects_everything_is_given_up() -> None:
    """After a bounded number of requests."""

    def reject(request: Request) -> Reply:
        name = next(iter(set(request.body) - {"model", "messages"}), "model")
        return Reply.failing(400, f"Unsupported parameter: '{name}'", param=name)

    error = failure(reject)
    assert error.reason == "unavailable"
    assert error.n_calls <= 12


# --- what models write -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "wrap",
    [
        lambda text: f"```json\n{text}\n```",
        lambda text: f'<think>It is {{"label": "bad"}}, or not.</think>\n{text}',
        lambda text: f"Thinking aloud.</think>\n\n```\n{text}\n```",
        lambda text: f"{text}\n{text}",
    ],
    ids="fence reasoning reasoning_and_fence twice".split(),
)
def test_wrapped_json_is_read_at_once(wrap: Callable[[str], str]) -> None:
    """Without another request."""
    got = answer(BOUGHT, wrap=wrap)
    assert (got.reply.data, got.cost.n_calls) == (GOOD, 1)


def test_a_server_that_ignores_the_schema_is_told_in_words() -> None:
    """The request that repairs carries the schema in the instructions; then this is how the server is asked."""

    def ignores(request: Request) -> Reply:
        return Reply(
            GOOD if request.schema and "response_format" in request.body and "schema:" in request.system else "Hm!"
        )

    with OpenAIServer(ignores) as server:
        got, requests = twice(server)
    assert (got.reply.data, got.level, len(requests)) == (GOOD, 2, 1)


def test_one_bad_reply_is_repaired() -> None:
    """The second request shows the reply and lists its defects, with the same schema and the data as they were."""
    with OpenAIServer(Reply({"label": "meh", "reason": ""}, usage=(50, 5)), BOUGHT) as server:
        got = run(server, put)
        assert (got.reply.data, got.level, got.defects) == (GOOD, 1, ())
        assert got.cost == Cost(2, 150, 15, 0.003)
        system, user, before, after = server.chats[1].body["messages"]
        assert server.chats[1].body["response_format"] == server.chats[0].body["response_format"]
    assert system["content"].startswith(ASK.system)
    assert user["content"] == ASK.user
    assert (before["role"], json.loads(before["content"])["label"]) == ("assistant", "meh")
    assert json.loads(after["content"]) == {"defects_of_your_reply": ["label must be good or bad, got 'meh'"]}


def test_there_is_one_repair_at_most() -> None:
    """What is wrong then is left to the caller, who is told."""
    with OpenAIServer(Reply({"label": "meh", "reason": ""})) as server:
        got = run(server, put)
        assert (got.reply.data["label"], server.n_chats, got.samples) == ("meh", 2, ())
    assert got.defects == ("label must be good or bad, got 'meh'",)


def test_a_worse_repair_leaves_the_first_reply() -> None:
    """Of two replies with defects the one with fewer counts; of equally many the later."""

    class Counted(Read):
        @property
        def defects(self) -> list[str]:
            return ["a bad label"] * int(self.data["reason"])

    def labels(*reasons: str) -> str:
        replies = [Reply({"label": "meh", "reason": reason}) for reason in reasons]
        with OpenAIServer(*replies) as server:
            return str(run(server, lambda chat: chat.ask(replace(ASK, read=Counted))).reply.data["reason"])

    assert [labels("1", "40"), labels("40", "1"), labels("2", "3")] == ["1", "1", "2"]


def test_a_failed_repair_leaves_the_first_reply() -> None:
    """It was paid for, and most of it may be good."""
    got = answer(Reply({"label": "meh", "reason": ""}), Reply.failing(500))
    assert (got.reply.data["label"], got.cost.n_calls) == ("meh", 2)


@pytest.mark.parametrize(
    ("reply", "reason", "requests"),
    [
        (Reply("I would say it is good."), "unparsable", 2),
        (Reply(""), "unparsable", 2),
        (Reply({"something": "else"}), "unparsable", 2),
        (Reply('{"label": "good", "reason": "a"}{"label": "bad", "reason": "b"}'), "ambiguous", 2),
        (Reply('{"label": "good", "label": "bad", "reason": "b"}'), "unparsable", 2),
        (Reply('{"label": "good", "reason": NaN}'), "unparsable", 2),
        (Reply.refusing(), "refused", 1),
        (Reply.filtering(), "content_filter", 1),
        (Reply.cutting_off(), "truncated", 1),
        (Reply.failing(400, "too long", code="context_length_exceeded"), "truncated", 1),
        (Reply.failing(500), "unavailable", 1),
        (Reply.dropping(), "unavailable", 1),
        (Reply.babbling(), "unparsable", 1),
        (Reply.flooding(3_000_000), "unparsable", 1),
        (Reply(body=b"[]"), "unparsable", 1),
        (Reply(body=b'{"choices": []}'), "unparsable", 1),
        (Reply(body=b'{"choices": [{"message": {"content": null, "tool_calls": []}}]}'), "unparsable", 2),
        (Reply(body=b'{"error": {"message": "upstream", "code": 502}}'), "unavailable", 1),
        (Reply.failing(418, body="\ufeff<html>"), "unavailable", 1),
    ],
    ids="prose empty alien two_objects key_twice nan refusal filter cut context_length 500 dropped garbage huge list"
    " no_choices tool_call error_in_200 teapot".split(),
)
def test_every_failure_has_a_reason(reply: Reply, reason: str, requests: int) -> None:
    """And says how many requests were made; only what a better reply could mend is asked for again."""
    error = failure(reply)
    assert (error.reason, error.n_calls) == (reason, requests)


def test_a_failure_says_what_was_spent() -> None:
    """Tokens and money of all requests, as on an answer."""
    error = failure(Reply("no", usage=(100, 10)), Reply("no", usage=(200, 20)))
    assert (error.n_calls, error.input_tokens, error.output_tokens, error.cost_usd) == (2, 300, 30, 0.006)


def test_a_refusal_among_the_pieces_of_a_stream_counts() -> None:
    """Servers that only stream refuse in pieces."""
    assert failure(Reply("", refusal="No.", streams=True)).reason == "refused"


@pytest.mark.parametrize("streams", [True, False])
def test_text_beyond_ascii_survives(streams: bool) -> None:
    """Also a line separator, which must not end an event."""
    text = {"label": "good", "reason": "\u2028 \u00e9\U0001f600"}
    assert answer(Reply(text, streams=streams)).reply.data == text


# --- servers in trouble ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("headers", "low", "high"),
    [({"Retry-After": "7"}, 7, 7), ({"retry-after-ms": "250"}, 0.25, 0.25)],
    ids=["seconds", "milliseconds"],
)
def test_the_wait_a_server_asks_for_is_passed_on(headers: dict[str, str], low: float, high: float) -> None:
    """It is the caller who waits: all requests of the process share one gate."""
    with OpenAIServer(Reply.failing(429, "slow down", headers=headers)) as server:
        with pytest.raises(JudgeError) as caught:
            run(server, put)
        assert server.n_chats == 1
    assert caught.value.retry_after is not None
    assert low <= caught.value.retry_after <= high
    assert caught.value.retryable


@pytest.mark.parametrize(
    "reply",
    [
        Reply.failing(401, "Incorrect API key provided: sk-secret-1234"),
        Reply.too_many(7),
        Reply.failing(500),
        Reply.failing(418, body="\ufeff<html>"),
        Reply(status=307, headers={"Location": "http://127.0.0.1:9/v1"}),
        Reply.flooding(3_000_000),
        Reply.babbling(),
        Reply.dropping(),
        Reply(hangs=True),
    ],
    ids="key 429 500 teapot redirect huge garbage dropped hangs".split(),
)
def test_a_later_request_fails_as_the_first(reply: Reply) -> None:
    """In every word, though it is made without the openai package's help."""

    async def fails(chat: ChatClient) -> tuple[object, ...]:
        with pytest.raises(JudgeError) as caught:
            await put(chat)
        error = caught.value
        return error.reason, error.detail, error.retry_after, error.retryable, error.n_calls

    async def fails_later(chat: ChatClient) -> tuple[object, ...]:
        await put(chat)
        return await fails(chat)

    # Only a server that never answers is waited for until the deadline, which an answering one must not miss.
    timeout = 2.0 if reply.hangs else 30.0
    with OpenAIServer(reply, BOUGHT, reply) as server:
        first, later = (run(server, use, api_key="sk-secret-1234", timeout=timeout) for use in (fails, fails_later))
    assert later == first


def test_a_later_request_is_like_the_first() -> None:
    """The same headers, the key's among them, and the same body."""

    async def thrice(chat: ChatClient) -> None:
        for text in ("hello", "hello", "h\u00e9 \U0001f600"):
            await chat.ask(replace(ASK, user=text))

    with OpenAIServer(GOOD) as server:
        run(server, thrice, api_key="sk-secret-1234")
    first, second, third = server.chats
    assert first.headers["authorization"] == "Bearer sk-secret-1234"
    assert (second.headers, second.body, third.user) == (first.headers, first.body, "h\u00e9 \U0001f600")


def test_a_date_to_come_back_is_passed_on() -> None:
    """As the standard allows."""
    error = failure(Reply.too_many(30, date=True))
    assert error.retry_after is not None
    assert 20 < error.retry_after <= 30


def test_a_server_that_never_answers_is_left_at_the_deadline() -> None:
    """Every request has one; the connection is given up with it, and the next request gets another."""
    with OpenAIServer(Reply.hanging(), BOUGHT) as server:

        async def both(chat: ChatClient) -> tuple[str, ModelReply[Read]]:
            with pytest.raises(JudgeError) as caught:
                await put(chat)
            return caught.value.reason, await put(chat)

        reason, got = run(server, both, timeout=2.0)  # the second request must come within it on a busy machine, too
    assert (reason, got.reply.data) == ("timeout", GOOD)


def test_nobody_listening_is_unavailable() -> None:
    """And may be tried again."""
    with OpenAIServer() as server:
        url = server.url

    async def main() -> None:
        await ChatClient("judge", base_url=url, timeout=5.0, transport=TRANSPORT.get()).ask(ASK)

    with pytest.raises(JudgeError) as caught:
        asyncio.run(main())
    assert (caught.value.reason, caught.value.retryable) == ("unavailable", True)


# --- samples, log probabilities, plain text --------------------------------------------------------------------------


@pytest.mark.parametrize("rejects", [[], ["n"]], ids=["at_once", "one_by_one"])
def test_several_samples_of_one_question(rejects: list[str]) -> None:
    """At once where the server can, else one by one."""
    ask = replace(ASK, temperature=1.0, samples=3)
    got = answer(BOUGHT, ask=ask, rejects=rejects)
    assert got.samples == (Read(GOOD),) * 3
    assert got.cost.n_calls == (4 if rejects else 1)


def test_a_bad_sample_is_left_out() -> None:
    """The others count; only if all are bad is one repaired."""
    replies = [Reply.failing(400, "Unsupported parameter: 'n'", param="n"), BOUGHT, Reply("Hm."), BOUGHT]
    got = answer(*replies, ask=replace(ASK, samples=3))
    assert got.samples == (Read(GOOD), Read(GOOD))


@pytest.mark.parametrize("streams", [True, False])
def test_log_probabilities_come_with_the_tokens(streams: bool) -> None:
    """The texts of the tokens are the reply, each with the likeliest at its place."""
    ask = replace(ASK, logprobs=True)
    got = answer(Reply({"label": "good", "reason": "7"}, streams=streams), ask=ask)
    assert got.tokens is not None
    assert "".join(token.text for token in got.tokens) == got.text
    (seven,) = [token for token in got.tokens if token.text.strip() == "7"]
    assert [text.strip() for text, _ in seven.top] == ["7", "8"]
    assert all(logprob <= 0 for _, logprob in seven.top)


def test_no_log_probabilities_is_none() -> None:
    """Where the server rejects them."""
    got = answer(BOUGHT, ask=replace(ASK, logprobs=True), rejects=["logprobs"])
    assert (got.tokens, got.reply.data) == (None, GOOD)


# --- settings --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "wrong",
    [{"lowest_format": 4}, {"max_tokens": 0}, {"timeout": 0}, {"transport": "pigeon"}],
    ids=lambda w: next(iter(w)),
)
def test_settings_that_make_no_sense_are_said_at_once(wrong: dict[str, Any]) -> None:
    """Before the first request."""
    with pytest.raises(SettingsError, match=next(iter(wrong))):
        ChatClient("judge", **wrong)


def test_the_caller_may_add_to_every_request() -> None:
    """Servers have parameters of their own; one that is rejected is left out like ours."""
    with OpenAIServer(BOUGHT, rejects=["seed"]) as server:
        got = run(server, put, extra_body={"seed": 1, "top_k": 1})
        assert (got.reply.data, server.chats[-1].body["top_k"]) == (GOOD, 1)
        assert "seed" not in server.chats[-1].body


def test_a_probe_says_who_answers_and_how() -> None:
    """One sentence for whoever looks into it."""
    with OpenAIServer(rejects=["json_schema", "temperature"]) as server:
        said = run(server, lambda chat: chat.probe(), price=None)
        assert f"judge at {server.url} answered in" in said
    assert "keeps to JSON (rung 2); rejects temperature; price not known" in said
