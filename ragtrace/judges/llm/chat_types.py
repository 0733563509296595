"""`Chat`: puts a question to a model and gets a checked JSON object back, whatever its server can do.

A request goes down the ladder (`ladder`), over the wire (`wire`); the reply is read (`completions`, `jsonreading`) and
checked, and asked for once more if it has defects. What all of that cost is on the answer, and on the error.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from time import monotonic
from typing import Any, Final, cast

from ragtrace.core.cost import Cost, record_cost
from ragtrace.core.errors import JudgeError, SettingsError
from ragtrace.core.price import Price, check_price, cost_of_refusal, cost_of_reply, price_of
from ragtrace.judges.llm import response_format
from ragtrace.judges.llm.completions import Choice, Completion, TokenChoice, read_completion
from ragtrace.judges.llm.exchange import Answer, Ask, Check, Tally
from ragtrace.judges.llm.jsonreading import ReadingError, read_object
from ragtrace.judges.llm.openai_client import Wire
from ragtrace.judges.llm.server_errors import ServerError
from ragtrace.judges.llm.transport import Transport
from ragtrace.judges.local.embeddings import Embeddings

__all__ = ["Answer", "Ask", "Chat", "Check", "Embeddings", "Price", "Cost", "TokenChoice"]

_MOST_LESSONS: Final = 12
"""Requests that one question may take to learn what a server rejects."""
_TOP_LOGPROBS: Final = 20
_PATH: Final = "/chat/completions"
_MOST_CHARS_A_TOKEN: Final = 7.0
"""Of prose and JSON in any language; English has 4 to 5. More: the server did not read all of it."""
_SMALLEST_WINDOW: Final = 256
"""Tokens; a server that counts fewer leaves out those that it has cached."""
_FEWEST_CHARS_A_TOKEN: Final = 0.5
"""Of any reply; one that was cut off with fewer spent its tokens on reasoning that is not shown."""
_AMPLE_FOR_TEXT: Final = 2_000
"""Tokens of a verdict in words, what leads up to it included."""
_log: Final = logging.getLogger("ragtrace")


@dataclass(slots=True)
class _Reading:
    """One reply of the model, and what could be read of it."""

    choice: Choice
    data: dict[str, Any] | None
    defects: list[str]
    error: ReadingError | None = None


class Chat:
    """A model behind an OpenAI-compatible server.

    Example:
        chat = Chat("gpt-4o-mini")
        answer = await chat.ask(Ask(system, user, "verdict", schema), check=lambda data: [])
        await chat.aclose()

    Args:
        model: its name, as the server knows it; Azure: the name of the deployment.
        base_url: up to and including "/v1"; default: the environment variable OPENAI_BASE_URL, or OpenAI.
        api_key: default: the environment variable OPENAI_API_KEY; servers other than OpenAI's may need none.
        timeout: seconds for one request.
        price: US dollars for a million tokens; default: the list price, where it is known.
        lowest_rung: how far down the ladder it may go: 1, 2 or 3.
        client: an `openai.AsyncOpenAI` or `AsyncAzureOpenAI` to use instead of one of our own. It must be used on one
            event loop only, and is not closed by us.
        max_tokens: most tokens of a reply; None: as many as an honest reply to the request can have.
        extra_body: further parts of every request, as the server knows them.
        transport: what moves the bytes: "aiohttp", "httpx", or "auto": aiohttp where it is installed.

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
        lowest_rung: int = response_format.TEXT,
        client: object | None = None,
        max_tokens: int | None = None,
        extra_body: Mapping[str, object] | None = None,
        transport: Transport = "auto",
    ) -> None:
        if lowest_rung not in (response_format.SCHEMA, response_format.JSON, response_format.TEXT):
            raise SettingsError(f"lowest_rung must be 1, 2 or 3, got {lowest_rung!r}")
        if max_tokens is not None and max_tokens < 1:
            raise SettingsError(f"max_tokens must be at least 1, got {max_tokens!r}; None: no limit")
        check_price(price)
        self.model, self._price = model, price
        self._lowest, self._most, self._extra = lowest_rung, max_tokens, dict(extra_body or {})
        self._wire = Wire(base_url=base_url, api_key=api_key, timeout=timeout, client=client, transport=transport)

    @property
    def server(self) -> str:
        """Its base URL."""
        return self._wire.server

    @property
    def price(self) -> Price | None:
        """US dollars for a million tokens; None: not known."""
        return self._price or price_of(self.model, self.server)

    async def ask(self, ask: Ask, check: Check) -> Answer:
        """The model's reply to *ask*; with at most one more request for a reply that has defects.

        Raises:
            JudgeError: "refused", "content_filter", "truncated", "unparsable", "ambiguous", "unavailable" or "timeout";
                with what was spent.
        """
        tally = Tally(self.price)
        try:
            return await self._ask(ask, check, tally)
        except JudgeError as error:
            raise tally.spent.on_error(error) from error.__cause__

    async def text(self, system: str, user: str, *, max_tokens: int | None = None) -> tuple[str, Cost]:
        """The model's reply in its own words, for models that write no JSON.

        Raises:
            JudgeError: as `ask`.
        """
        tally = Tally(self.price)
        ask = Ask(system, user, "", {}, max_tokens=max_tokens, ample_tokens=_AMPLE_FOR_TEXT)
        sent: list[response_format.Message] = [{"role": "system", "content": system}, {"role": "user", "content": user}]
        try:
            completion, _ = await self._complete(ask, lambda rung: sent, tally, least=response_format.TEXT)
            completion.choices[0].check()
        except JudgeError as error:
            raise tally.spent.on_error(error) from error.__cause__
        return completion.choices[0].text, tally.spent

    async def probe(self) -> str:
        """Ask a trifle, and say in a sentence who answered, how and when. Raises `JudgeError`, as `ask`."""
        began = monotonic()
        answer = await self.ask(_TRIFLE, lambda data: [] if data.get("ok") == "yes" else ['"ok" must be "yes"'])
        took, habits = monotonic() - began, self._known.habits
        price = "price known" if self.price else "price not known: pass price="
        return f"{answer.model or self.model} at {self.server} answered in {took:.2f} s, {habits}; {price}"

    async def aclose(self) -> None:
        """Close the connections of the running event loop."""
        await self._wire.aclose()

    # --- one question ------------------------------------------------------------------------------------------------

    @property
    def _known(self) -> response_format.Known:
        return response_format.known(self.server, self.model)

    async def _ask(self, ask: Ask, check: Check, tally: Tally) -> Answer:
        completion, rung = await self._complete(ask, self._first(ask), tally)
        readings = await self._read_all(ask, check, completion, rung, tally)
        best = next((reading for reading in readings if not reading.defects), readings[0])
        if best.defects:
            best, rung = await self._repair(ask, check, best, rung, tally)
        if best.data is None or self._is_alien(ask, best.data):
            raise best.error or JudgeError("unparsable", "; ".join(best.defects)[:200], retryable=False)
        good = [r.data for r in readings if r.data is not None and not r.defects] or (
            [] if best.defects else [best.data]
        )
        return Answer(
            data=best.data,
            text=best.choice.text,
            rung=rung,
            model=tally.model or self.model,
            spent=tally.spent,
            tokens=best.choice.tokens,
            samples=tuple(good),
            defects=tuple(best.defects),
            input_truncated=tally.input_truncated,
        )

    def _first(self, ask: Ask) -> Callable[[int], list[response_format.Message]]:
        return lambda rung: response_format.messages(ask.system, ask.user, ask.schema, rung)

    async def _read_all(
        self, ask: Ask, check: Check, completion: Completion, rung: int, tally: Tally
    ) -> list[_Reading]:
        """All samples, asked for one by one where the server does not give several at a time."""
        choices = list(completion.choices[: ask.samples])
        lacking = ask.samples - len(choices)
        if lacking:
            rest = [self._complete(ask, self._first(ask), tally, samples=1) for _ in range(lacking)]
            done = await asyncio.gather(*rest, return_exceptions=True)
            choices += [one[0].choices[0] for one in done if not isinstance(one, BaseException)]
        if len(choices) == 1:
            return [self._read(ask, check, choices[0])]
        return [self._read(ask, check, choice) for choice in choices if _is_whole(choice)] or [
            self._read(ask, check, choices[0])
        ]

    def _read(self, ask: Ask, check: Check, choice: Choice) -> _Reading:
        choice.check()
        try:
            data = read_object(choice.text)
        except ReadingError as error:
            return _Reading(choice, None, [error.detail], error)
        lacks = [f"the key {key!r} is missing" for key in response_format.missing(ask.schema, data)]
        return _Reading(choice, data, lacks + check(data))

    async def _repair(self, ask: Ask, check: Check, first: _Reading, rung: int, tally: Tally) -> tuple[_Reading, int]:
        """Ask again, listing the defects of the *first* reply; return that reply if it has fewer than the second."""
        ignored = rung == response_format.SCHEMA < self._lowest and response_format.ignores(ask.schema, first.data)
        least = response_format.JSON if ignored else rung

        def again(rung: int) -> list[response_format.Message]:
            return response_format.repair(self._first(ask)(rung), first.choice.text, first.defects)

        try:
            completion, rung = await self._complete(ask, again, tally, least=least, samples=1)
            second = self._read(ask, check, completion.choices[0])
        except JudgeError:
            if first.data is None:
                raise
            return first, rung
        if first.data is not None and (second.data is None or len(second.defects) > len(first.defects)):
            return first, rung
        if second.data is None:
            return second, rung
        if ignored and not response_format.ignores(ask.schema, second.data):
            self._known.rung = max(self._known.rung, least)  # it never saw the schema before
        return second, rung

    def _is_alien(self, ask: Ask, data: dict[str, Any]) -> bool:
        """Whether *data* has nothing that was asked for."""
        required: Any = ask.schema.get("required", ())
        return bool(required) and len(response_format.missing(ask.schema, data)) == len(required)

    # --- one reply ---------------------------------------------------------------------------------------------------

    async def _complete(
        self,
        ask: Ask,
        messages: Callable[[int], list[response_format.Message]],
        tally: Tally,
        *,
        least: int = response_format.SCHEMA,
        samples: int | None = None,
    ) -> tuple[Completion, int]:
        """The server's answer, and the rung it was asked on; asks again while its errors say what to leave out."""
        ample = self._ample(ask)
        for _ in range(_MOST_LESSONS):
            known = self._known
            rung = max(least, min(known.rung, self._lowest))
            body = self._body(ask, messages(rung), rung, known, samples or ask.samples, ample)
            try:
                completion = await self._once(body, tally)
            except ServerError as error:
                if ample is not None and error.reason == "truncated":
                    ample = None  # a small context window has no room for the request and such a reply
                elif not known.learn(error, body, self._lowest):
                    raise
                continue
            if ample is None or not _reasoned(completion, ample, in_json=bool(ask.schema)):
                return completion, rung
            ample, known.reasons = None, True
        raise JudgeError("unavailable", f"{self.server} rejects every request, each for another part of it")

    def _ample(self, ask: Ask) -> int | None:
        """Return the limit of a reply's tokens that is ours; None where somebody set one, or there is none."""
        set_already = ask.max_tokens or self._most or self._known.reasons
        return None if set_already or self._extra.keys() & response_format.TOKENS_NAMES else ask.ample_tokens

    async def _once(self, body: dict[str, object], tally: Tally) -> Completion:
        record_cost(Cost(1))  # now: who is cancelled while it waits cannot say so later
        try:
            completion = read_completion(await self._wire.post(_PATH, body))
        except JudgeError as error:
            # What was read in part, or answered too late, may have been charged for all the same.
            tally.spent += cost_of_refusal(tally.price) if isinstance(error, ServerError) else Cost(1)
            raise
        spent = cost_of_reply(completion.usage, tally.price)
        record_cost(replace(spent, n_calls=0))
        tally.spent += spent
        tally.model = completion.model or tally.model
        read = completion.usage.input_tokens if completion.usage is not None else 0
        self._compare(cast("list[response_format.Message]", body["messages"]), read, tally)
        return completion

    def _compare(self, messages: Sequence[response_format.Message], read: int, tally: Tally) -> None:
        """Note whether the server *read* far fewer tokens than *messages* have; warn of it once."""
        chars = sum(len(message["content"]) for message in messages)
        if not _SMALLEST_WINDOW <= read < chars / _MOST_CHARS_A_TOKEN:
            return
        tally.input_truncated = True
        if not self._known.cuts_input:
            self._known.cuts_input = True
            _log.warning(
                "judge %s at %s counted %d tokens of a request of %d characters: it seems to read only a part of it. "
                "Its scores carry the attribute judge_input_truncated; enlarge its context window (Ollama: "
                "OLLAMA_CONTEXT_LENGTH=16384), or lower max_input_chars=",
                *(self.model, self.server, read, chars),
            )

    def _body(
        self,
        ask: Ask,
        messages: Sequence[response_format.Message],
        rung: int,
        known: response_format.Known,
        samples: int,
        ample: int | None,
    ) -> dict[str, object]:
        body: dict[str, object] = {"model": self.model, "messages": messages, "temperature": ask.temperature}
        wanted = response_format.response_format(ask.name, ask.schema, rung)
        if wanted is not None:
            body["response_format"] = wanted
        most = ask.max_tokens or self._most or ample
        if most is not None and known.tokens_name is not None:
            body[known.tokens_name] = most
        if ask.logprobs:
            body |= {"logprobs": True, "top_logprobs": _TOP_LOGPROBS}
        if samples > 1:
            body["n"] = samples
        if known.streams:
            body |= {"stream": True, "stream_options": {"include_usage": True}}
        body |= self._extra
        return {name: value for name, value in body.items() if name not in known.dropped}


def _reasoned(completion: Completion, ample: int, *, in_json: bool) -> bool:
    """Return whether a reply that was cut off at *ample* tokens spent them on reasoning, shown or not."""
    choice = completion.choices[0]
    if choice.finish not in ("length", "max_tokens"):
        return False
    begun = choice.text.lstrip()[:1]
    if completion.usage is not None and completion.usage.reasoning_tokens:
        return True
    if begun in ("<", "[") or (in_json and begun not in ("", "{", "`")):
        return True
    return len(choice.text) < _FEWEST_CHARS_A_TOKEN * ample


def _is_whole(choice: Choice) -> bool:
    try:
        choice.check()
    except JudgeError:
        return False
    return True


_TRIFLE: Final = Ask(
    system='This tests a connection. Reply with the JSON object {"ok": "yes"}.',
    user='{"test": true}',
    name="ragtrace_probe",
    schema={
        "type": "object",
        "additionalProperties": False,
        "required": ["ok"],
        "properties": {"ok": {"type": "string", "enum": ["yes"]}},
    },
)
