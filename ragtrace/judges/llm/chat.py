"""Client that sends prompts to a chat model, reads the labels in the replies, and adds up the cost for each call.

A request takes the highest level of `response_format` that the server accepts. The reply is read strictly, and asked
for once more if it has defects. The answer, or the error, carries the cost of all requests.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from time import monotonic
from typing import Any, Final, Generic, NamedTuple, TypeVar, cast

from ragtrace.core.cost import TURN_TOKENS, Cost, record_cost
from ragtrace.core.errors import JudgeError, SettingsError
from ragtrace.core.price import Price, check_price, cost_of_rejection, cost_of_reply, list_price
from ragtrace.core.types import JUDGE_FINGERPRINT, JUDGE_MODEL, Judgement, Plain
from ragtrace.judges.llm.completions import Choice, Completion, TokenChoice, read_completion
from ragtrace.judges.llm.embedder import Embedder, embed
from ragtrace.judges.llm.json_reading import ReadingError, read_object
from ragtrace.judges.llm.prompt import Prompt, R, enum, object_with
from ragtrace.judges.llm.response_format import (
    JSON,
    SCHEMA,
    TEXT,
    TOKENS_NAMES,
    Message,
    ServerCapabilities,
    capabilities_of,
    higher_of,
    is_lower,
    lower_of,
    repair_messages,
    request_messages,
    response_format,
)
from ragtrace.judges.llm.server_connection import ClientMaker, ServerConnection, Transport
from ragtrace.judges.llm.server_errors import ServerError

AT_ONCE: Final = 4
"""Most prompts about one call that wait for a reply at a time."""
_log: Final = logging.getLogger("ragtrace")

S = TypeVar("S")
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ModelReply(Generic[R]):
    """Reply of the LLM to a prompt: the labels read from it, its text, the model's name and the cost."""

    reply: R
    """Labels in the best reply that could be read, which may have defects that a repair did not mend."""
    text: str
    """Unchanged text of the reply."""
    level: int
    """Level of the response format, from 1 (strict JSON schema) down to 3 (JSON in plain text)."""
    model: str
    """Name of the model, as the server reports it."""
    cost: Cost
    tokens: tuple[TokenChoice, ...] | None = None
    """Tokens of `text`; None if the prompt does not ask for log probabilities or the server does not give them."""
    samples: tuple[R, ...] = ()
    """Labels in each reply without defects, which include `reply` if it has none."""
    defects: tuple[str, ...] = ()
    """Defects of `reply`."""
    input_truncated: bool = False
    """Whether the server counted far fewer input tokens than a request has, and so seems to have read only a part."""
    fingerprint: str = ""
    """The server's name for its configuration (`system_fingerprint`); empty if it sends none."""


class ChatClient:
    """Client for a chat model behind an OpenAI-compatible server: sends prompts and reads the replies.

    Args:
        model: its name, as the server knows it; Azure: the name of the deployment.
        base_url: up to and including "/v1"; default: the environment variable OPENAI_BASE_URL, or OpenAI.
        api_key: default: the environment variable OPENAI_API_KEY; servers other than OpenAI's may need none.
        timeout: seconds for one request.
        price: US dollars for a million tokens; default: the list price, where it is known.
        lowest_format: lowest level of the response format that it may use: 1, 2 or 3, where 3 is the lowest.
        max_tokens: most tokens of a reply; None: as many as an honest reply to the prompt can have, and no limit for a
            model that spends tokens on reasoning before it replies.
        extra_body: further parts of every request, as the server knows them.
        transport: HTTP library: "aiohttp", "httpx", or "auto": aiohttp where it is installed.
        client: makes a client of the openai package in place of the other arguments about the server.

    Raises:
        SettingsError: an argument makes no sense.
    """

    def __init__(
        self,
        model: str,
        *,
        base_url: str | None = None,
        api_key: str | None = None,
        timeout: float = 60.0,
        price: Price | None = None,
        lowest_format: int = TEXT,
        max_tokens: int | None = None,
        extra_body: Mapping[str, object] | None = None,
        transport: Transport = "auto",
        client: ClientMaker | None = None,
    ) -> None:
        if lowest_format not in (SCHEMA, JSON, TEXT):
            raise SettingsError(
                "lowest_format must be 1 (strict JSON schema), 2 (JSON object) or 3 (JSON in plain text), got "
                f"{lowest_format!r}; leave it out for 3"
            )
        if max_tokens is not None and max_tokens < 1:
            raise SettingsError(
                f"max_tokens must be at least 1, got {max_tokens!r}; leave it out for a limit from the prompt"
            )
        check_price(price)
        self.model, self._price = model, price
        self.lowest_level: int = lowest_format
        self.max_tokens, self.extra_body = max_tokens, dict(extra_body or {})
        self.connection = ServerConnection(
            base_url=base_url, api_key=api_key, timeout=timeout, transport=transport, client=client
        )

    @property
    def server(self) -> str:
        """Base URL of the LLM's server."""
        return self.connection.server

    @property
    def price(self) -> Price | None:
        """Price of the model in US dollars per million tokens, or None if the price is not known."""
        return self._price or list_price(self.model, self.server)

    @property
    def capabilities(self) -> ServerCapabilities:
        """Parameters and response formats that the model's server accepts, as far as this process knows."""
        return capabilities_of(self.connection.url, self.model)

    async def ask(self, prompt: Prompt[R]) -> ModelReply[R]:
        """Send *prompt* to the model and return the reply. If the reply has defects, ask once for a corrected one.

        Raises:
            JudgeError: there is none that can be read; with the cost of all requests.
        """
        exchange = _Exchange(self, prompt)
        try:
            return await exchange.best_reply()
        except JudgeError as error:
            raise exchange.cost.set_on_error(error) from error.__cause__

    async def probe(self) -> str:
        """Test the connection with a tiny request. Return a sentence with the model, server and response time.

        Raises as `ask`.
        """
        began = monotonic()
        reply = await self.ask(_PROBE)
        price = "price known" if self.price else "price not known: pass price="
        took = f"{monotonic() - began:.2f} s"
        return f"{reply.model or self.model} at {self.server} answered in {took}, {self.capabilities}; {price}"

    async def aclose(self) -> None:
        """Close the connections to the LLM's server that the running event loop has opened."""
        await self.connection.aclose()


class JudgeSession:
    """Session of an LLM judge for one RAG call: sends at most four prompts at a time and adds up their cost.

    One prompt may ask for the labels of several metrics: `Prompt.name` names a schema, not a metric. So the cost is
    known for the RAG call as a whole, not for each metric. `n_calls` of the cost counts requests to the LLM, not RAG
    calls. Requests that fail count, too.

    A prompt for several samples may be several requests at a time, as many servers reply once to a request. Requests
    for embeddings are not among the four.

    Used on the event loop on which the judge runs: in an application, that of ragtrace's background thread.

    Args:
        embedder: None: labels that need embeddings are `no_embedder`.
    """

    def __init__(self, chat: ChatClient, embedder: Embedder | None = None) -> None:
        self._chat, self.embedder = chat, embedder
        self._slots = asyncio.Semaphore(AT_ONCE)
        self.cost = Cost()
        self.turn_tokens = 0
        """Input tokens of the earlier turns in all prompts, estimated from their share of the characters."""
        self.attributes: dict[str, Plain] = {}
        """Attributes of the judgement about its requests, such as the model and fingerprint of the last reply."""

    @property
    def model(self) -> str:
        """Name of the LLM that this session asks."""
        return self._chat.model

    @property
    def capabilities(self) -> ServerCapabilities:
        """Parameters and response formats that the model's server accepts, as far as this process knows."""
        return self._chat.capabilities

    async def ask(self, prompt: Prompt[R]) -> ModelReply[R]:
        """Send *prompt* to the LLM and return its reply, or raise a `JudgeError` if no reply could be read."""
        async with self._slots:
            reply = await self._with_failure_cost(self._chat.ask(prompt))
        self.cost += reply.cost
        if prompt.turn_chars:
            share = prompt.turn_chars / (len(prompt.system) + len(prompt.user) + sum(map(len, prompt.examples)))
            self.turn_tokens += round(share * reply.cost.input_tokens)
            self.attributes[TURN_TOKENS] = self.turn_tokens
        self.attributes[JUDGE_MODEL] = reply.model
        if reply.fingerprint:
            self.attributes[JUDGE_FINGERPRINT] = reply.fingerprint
        if reply.input_truncated:
            self.attributes["judge_input_truncated"] = True
        return reply

    async def embed(self, embedder: Embedder, texts: Sequence[str]) -> object:
        """Return the embedding vectors that *embedder* computes for *texts*, and add their cost to the session.

        The vectors are not validated.
        """
        vectors, cost = await self._with_failure_cost(embed(embedder, texts))
        self.cost += cost
        return vectors

    async def _with_failure_cost(self, work: Awaitable[T]) -> T:
        """Await the requests in *work*. If they fail, add their cost to the session."""
        try:
            return await work
        except JudgeError as error:
            self.cost += Cost.from_report(error)
            raise

    def with_cost(self, judgement: Judgement) -> Judgement:
        """Return a copy of *judgement* with the cost and the attributes of all requests in this session."""
        cost = self.cost if self.cost.n_calls else Cost(cost_usd=0.0)  # without a request the price is known: 0
        return cost.set_on_judgement(replace(judgement, attributes={**judgement.attributes, **self.attributes}))


async def ask_in_halves(ask: Callable[[Sequence[S]], Awaitable[T]], items: Sequence[S]) -> list[T]:
    """Ask an LLM about all *items* in one request. If the reply is cut off, ask about each half of the items.

    Raises:
        JudgeError: as *ask*; `truncated` if there is no half, or a half is cut off too.
    """
    try:
        return [await ask(items)]
    except JudgeError as error:
        if error.reason != "truncated" or len(items) < 2:
            raise
    middle = len(items) // 2
    return [await ask(items[:middle]), await ask(items[middle:])]


async def run_concurrently(works: Sequence[Coroutine[Any, Any, T]]) -> list[T]:
    """Run coroutines concurrently and return their results. The first failure cancels the others.

    It is raised when all of them have ended.
    """
    if len(works) == 1:
        return [await works[0]]
    tasks = [asyncio.ensure_future(work) for work in works]
    try:
        return await asyncio.gather(*tasks)
    except BaseException:
        _cancel_all(tasks)
        await asyncio.gather(*tasks, return_exceptions=True)
        raise
    finally:
        del tasks  # which have the error, whose traceback has this frame


def _cancel_all(tasks: Iterable[asyncio.Future[Any]]) -> None:
    for task in tasks:
        task.cancel()


class _ProbeReply(NamedTuple):
    """Reply of the LLM to a connection test: a JSON object that should be {"ok": "yes"}."""

    data: dict[str, Any]

    @property
    def defects(self) -> list[str]:
        return [] if self.data.get("ok") == "yes" else ['"ok" must be "yes"']


_PROBE: Final = Prompt(
    name="ragtrace_probe",
    system='This tests a connection. Reply with the JSON object {"ok": "yes"}.',
    user='{"test": true}',
    schema=object_with(ok=enum(["yes"])),
    read=_ProbeReply,
)


@dataclass(slots=True)
class _ParsedReply(Generic[R]):
    """One reply of the LLM, with the labels that could be read from it and its defects."""

    choice: Choice
    labels: R | None
    """Labels in the reply; None if the text holds no JSON object."""
    defects: list[str]
    missing: list[str]
    """Top-level keys of the schema that the reply lacks."""
    unread: str = ""
    """Reason why the text cannot be read as a JSON object; empty: it can."""

    @property
    def breaks_schema(self) -> bool:
        return self.labels is None or bool(self.missing)


class _Exchange(Generic[R]):
    """Exchange of messages with the LLM for one prompt: sends requests, checks replies and adds up the cost."""

    def __init__(self, chat: ChatClient, prompt: Prompt[R]) -> None:
        self._chat, self._prompt, self._price = chat, prompt, chat.price
        self._required = list(cast("Sequence[str]", prompt.schema.get("required", ())))
        self._model = self._fingerprint = ""
        self._input_truncated = False
        self.cost = Cost()

    async def best_reply(self) -> ModelReply[R]:
        """Send the prompt and return the LLM's best reply. If every reply has defects, ask for a corrected one."""
        completion, level = await self.complete(SCHEMA)
        replies = await self._read_all(completion)
        best = next((reply for reply in replies if not reply.defects), replies[0])
        if best.defects:
            best, level = await self._repair(best, level)
        if best.labels is None:
            raise ReadingError(best.unread, best.defects[0])
        if self._required and best.missing == self._required:
            raise JudgeError("unparsable", "; ".join(best.defects)[:200], retryable=False)
        good = tuple(one.labels for one in replies if one.labels is not None and not one.defects)
        return ModelReply(
            reply=best.labels,
            text=best.choice.text,
            level=level,
            model=self._model or self._chat.model,
            cost=self.cost,
            tokens=best.choice.tokens,
            samples=good or (() if best.defects else (best.labels,)),
            defects=tuple(best.defects),
            input_truncated=self._input_truncated,
            fingerprint=self._fingerprint,
        )

    async def _read_all(self, completion: Completion) -> list[_ParsedReply[R]]:
        """Parse all replies to the prompt, including those that the server's first response lacks.

        A server that does not know the parameter `n` sends one reply. The others are then requested all at once, one in
        each request.
        """
        wanted = self._prompt.samples
        choices = list(completion.choices[:wanted])
        if len(choices) < wanted:
            rest = [self.complete(SCHEMA, samples=1) for _ in range(wanted - len(choices))]
            done = await asyncio.gather(*rest, return_exceptions=True)
            choices += [one[0].choices[0] for one in done if not isinstance(one, BaseException)]
        whole = choices if len(choices) == 1 else [choice for choice in choices if not choice.problem()]
        return [self._read(choice) for choice in whole or choices[:1]]

    def _read(self, choice: Choice) -> _ParsedReply[R]:
        choice.check()
        try:
            data = read_object(choice.text)
        except ReadingError as error:
            return _ParsedReply(choice, None, [error.detail], self._required, error.reason)
        labels = self._prompt.read(data)
        missing = [key for key in self._required if key not in data]
        return _ParsedReply(
            choice, labels, [*(f"the key {key!r} is missing" for key in missing), *labels.defects], missing
        )

    async def _repair(self, first: _ParsedReply[R], level: int) -> tuple[_ParsedReply[R], int]:
        """Ask the LLM to correct the defects of its *first* reply. Return the reply with fewer defects."""
        # The server did not enforce the schema: object or keys are missing. The model was never shown the schema.
        may_go_lower = is_lower(self._chat.lowest_level, than=SCHEMA)
        ignored = level == SCHEMA and may_go_lower and first.breaks_schema
        repair_level = JSON if ignored else level
        try:
            completion, level = await self.complete(repair_level, samples=1, repair=first)
            second = self._read(completion.choices[0])
        except JudgeError:
            if first.labels is None:
                raise
            return first, level
        if first.labels is not None and (second.labels is None or len(second.defects) > len(first.defects)):
            return first, level
        if ignored and not second.breaks_schema:
            self._chat.capabilities.level = lower_of(self._chat.capabilities.level, repair_level)
        return second, level

    async def complete(
        self, highest_level: int, *, samples: int | None = None, repair: _ParsedReply[R] | None = None
    ) -> tuple[Completion, int]:
        """Send the prompt without parameters that the server rejects.

        Return the response and the level of the response format that the request had.

        Args:
            highest_level: level to begin with, unless the server is known to need a lower one.
            samples: number of replies wanted; None: as many as the prompt asks for.
            repair: the reply to correct; None: this is the first request.
        """
        chat, prompt, capabilities = self._chat, self._prompt, self._chat.capabilities
        computed_limit = prompt.ample_tokens  # of the reply's tokens; None: this request has no such limit
        if chat.max_tokens or chat.extra_body.keys() & TOKENS_NAMES:
            computed_limit = None  # the user has set one
        elif capabilities.is_reasoning_model:
            computed_limit = None  # it would be spent on reasoning, whose length the prompt does not tell
        # Most forms in which a request is sent for one completion. Each form changes or leaves out a parameter with
        # which the form before failed. A request that fails for another reason is not sent again here, but by
        # `JudgeClient`.
        for _ in range(12):
            level = lower_of(highest_level, higher_of(capabilities.level, chat.lowest_level))
            messages = request_messages(prompt.system, prompt.user, prompt.schema, level, prompt.examples)
            if repair is not None:
                messages = repair_messages(messages, repair.choice.text, repair.defects)
            body = self._request_body(messages, level, capabilities, samples or prompt.samples, computed_limit)
            try:
                completion = await self._post(body)
            except ServerError as error:
                # "truncated" as the reason of a `ServerError`: the request and the limit of the reply do not fit the
                # context window together. As the reason of a reply's error it says that the reply was cut off.
                does_not_fit = error.reason == "truncated"
                if computed_limit is not None and does_not_fit:
                    computed_limit = None  # the window may have room for the request and a shorter reply
                elif not capabilities.learn_from_error(error, body, chat.lowest_level):
                    raise
                continue
            in_json = bool(prompt.schema)
            if computed_limit is None or not _spent_on_reasoning(completion, computed_limit, in_json=in_json):
                return completion, level
            computed_limit, capabilities.is_reasoning_model = None, True
        raise JudgeError(
            "unavailable", f"{chat.server} rejects every form of request; see its log, or use another model"
        )

    def _request_body(
        self,
        messages: Sequence[Message],
        level: int,
        capabilities: ServerCapabilities,
        samples: int,
        computed_limit: int | None,
    ) -> dict[str, object]:
        chat, prompt = self._chat, self._prompt
        body: dict[str, object] = {"model": chat.model, "messages": messages, "temperature": prompt.temperature}
        wanted = response_format(prompt.name, prompt.schema, level)
        if wanted is not None:
            body["response_format"] = wanted
        most = chat.max_tokens or computed_limit
        if most is not None and capabilities.tokens_name is not None:
            body[capabilities.tokens_name] = most
        if prompt.logprobs:
            # Tokens at each place of a reply whose log probabilities are wanted; more than that OpenAI rejects.
            body |= {"logprobs": True, "top_logprobs": 20}
        if samples > 1:
            body["n"] = samples
        if capabilities.streams:
            body |= {"stream": True, "stream_options": {"include_usage": True}}
        body |= chat.extra_body
        return {name: value for name, value in body.items() if name not in capabilities.dropped}

    async def _post(self, body: dict[str, object]) -> Completion:
        """Send *body* to the server, record the cost of the request, and return the response.

        The cost is recorded twice. `self.cost` leaves with the reply or the error. A judge that is cancelled has
        neither: its requests are only in the cost meter of the execution context (`record_cost`).
        """
        # One request, at once: a request that is cancelled while it waits cannot be recorded later.
        record_cost(Cost(n_calls=1))
        chat = self._chat
        try:
            completion = read_completion(await chat.connection.post("/chat/completions", body))
        except JudgeError as error:
            # A reply that was read in part, or came too late, may have been charged for all the same.
            self.cost += cost_of_rejection(self._price) if isinstance(error, ServerError) else Cost(n_calls=1)
            raise
        cost = cost_of_reply(completion.usage, self._price)
        record_cost(replace(cost, n_calls=0))
        self.cost += cost
        self._model = completion.model or self._model
        self._fingerprint = completion.fingerprint or self._fingerprint
        chars = sum(len(message["content"]) for message in cast("list[Message]", body["messages"]))
        input_tokens = completion.usage.input_tokens if completion.usage is not None else 0
        # No tokenizer has seven characters a token in prose and JSON of any language (English: 4 to 5), so that a part
        # was not read. Below 256 tokens nothing is concluded: the server may have left out tokens in its cache.
        if 256 <= input_tokens < chars / 7.0:
            self._input_truncated = True
            if not chat.capabilities.truncates_input:
                chat.capabilities.truncates_input = True
                _log.warning(
                    "judge %s at %s counted %d tokens of a request of %d characters: it seems to read only a part of "
                    "it. Its scores carry the attribute judge_input_truncated; enlarge its context window (Ollama: "
                    "OLLAMA_CONTEXT_LENGTH=16384), or lower RequestOptions(max_input_chars=)",
                    *(chat.model, chat.server, input_tokens, chars),
                )
        return completion


def _spent_on_reasoning(completion: Completion, limit: int, *, in_json: bool) -> bool:
    """Return whether a reply was cut off because the model used its token *limit* for reasoning.

    The reply may show that reasoning or not.
    """
    choice = completion.choices[0]
    if choice.finish not in ("length", "max_tokens"):
        return False
    first = choice.text.lstrip()[:1]
    if completion.usage is not None and completion.usage.reasoning_tokens:
        return True
    if first in ("<", "[") or (in_json and first not in ("", "{", "`")):
        return True
    # Fewest characters a token of any reply. If a reply that was cut off has fewer, the model has spent the other
    # tokens on reasoning that the reply does not show.
    return len(choice.text) < 0.5 * limit
