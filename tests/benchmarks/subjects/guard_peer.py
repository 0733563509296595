"""Guards the same application by one library, in a process of its own, as told on the standard input.

    guard_peer.py NAME

NAME is `bare` (nothing), `judge` (one request to the judge, by httpx alone), `ragtrace`, `nemo` or `guardrails`. Each
line read is an order, a JSON object, and each line written is its result. The file imports nothing of ragtrace at its
head, as the environment of the peers does not have it.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import sys
import tempfile
import time
import warnings
from collections.abc import AsyncIterator, Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any, Final

SENTENCES: Final = (
    "The first bridge over the harbour was painted grey yesterday.",
    "The second bridge over the harbour was painted green yesterday.",
    "The third bridge over the harbour was painted blue yesterday.",
    "The fourth bridge over the harbour was painted white yesterday.",
    "The fifth bridge over the harbour was painted black yesterday.",
)
FACTS: Final = " ".join(SENTENCES)
BAD: Final = "Captain Nemo moored Atlantis there with nine golden anchors tonight."
"""Sentence that the judge finds unsupported; no other sentence has any of its words."""
PIECE_SECONDS: Final = 0.01
OWN_SECONDS: Final = 0.005
WARM_UP: Final = {"answers": 3, "streams": 1}
"""Calls at the beginning of an order that are not measured."""
CLIENT_SECONDS: Final = 0.4
"""The time limit of the client, where an order asks for one; as long as ragtrace's budget for an answer."""
QUESTION: Final = "Which bridges were painted?"


def pieces(*, bad: bool) -> list[str]:
    """Return an answer of five sentences, of ten pieces each; if it is bad, its third sentence is unsupported."""
    sentences = [*SENTENCES[:2], BAD if bad else SENTENCES[2], *SENTENCES[3:]]
    words = " ".join(sentences).split()
    return [f"{word} " for word in words[:-1]] + words[-1:]


async def stream(*, bad: bool) -> AsyncIterator[str]:
    for piece in pieces(bad=bad):
        await asyncio.sleep(PIECE_SECONDS)
        yield piece


class Subject:
    """The application without a guard, and what all subjects share.

    Args:
        url: base URL of the judge.
        mode: how a stream is guarded; empty: in no stream.
        limited: whether the client gives up after `CLIENT_SECONDS`, and asks once.
    """

    def __init__(self, url: str, mode: str, *, limited: bool) -> None:
        self.url, self.mode = url, mode
        self.client = {"timeout": CLIENT_SECONDS, "max_retries": 0} if limited else {}
        self.answered = 0.0
        self.start()

    def start(self) -> None:
        """Configure the library."""

    async def close(self) -> None:
        """End what `start` and the calls have begun."""

    async def own(self, text: str) -> str:
        """Answer as the application does."""
        await asyncio.sleep(OWN_SECONDS)
        self.answered = time.perf_counter()
        return text

    async def answer(self, question: str, text: str) -> str:
        """Return what the caller of the guarded function gets, or raise what it raises."""
        return await self.own(text)

    async def read(self, question: str, *, bad: bool, show: Callable[[str], None]) -> str:
        """Read a stream to its end, call *show* with each text that the reader gets; return how it ended."""
        async for piece in stream(bad=bad):
            show(piece)
        return "end"

    def tell(self) -> dict[str, int]:
        """Return what the library itself says about the calls so far, beside what it returned."""
        return {}


class Judge(Subject):
    """One request to the judge between the answer and its caller: the least that any guard adds."""

    def start(self) -> None:
        self._client = import_module("httpx").AsyncClient(timeout=60)

    async def close(self) -> None:
        await self._client.aclose()

    async def answer(self, question: str, text: str) -> str:
        answer = await self.own(text)
        body = {"model": "fake", "messages": [{"role": "user", "content": prompt(answer)}]}
        (await self._client.post(f"{self.url}/chat/completions", json=body)).raise_for_status()
        return answer


def prompt(answer: str) -> str:
    """Return the prompt of the subjects that have none of their own."""
    return f"Is the hypothesis entailed by the evidence? Answer with yes/no.\nevidence: {FACTS}\nhypothesis: {answer}"


class Ragtrace(Subject):
    """ragtrace with an LLM judge and the metric faithfulness; the mode is `stream=`, a comma, and `on_error=`."""

    def start(self) -> None:
        ragtrace = self._ragtrace = import_module("ragtrace")
        judge = ragtrace.OpenAIJudge("fake", base_url=self.url, api_key="none")
        ragtrace.configure(exporter="none", screen=None, judge=judge)
        mode, _, on_error = self.mode.partition(", ")
        # A stream's budget is for all of its checks together, and "sentence" makes one for each of the five.
        options: dict[str, Any] = {"below": 1.0, "budget_ms": 1_000 if mode else 400, "on_error": on_error or "open"}
        if mode:
            options["stream"] = mode
        action = {"": "raise", "after": "annotate"}.get(mode, "replace")
        if action == "replace":
            options["fallback"] = "[withdrawn]"
        guard = ragtrace.Guard("faithfulness", action=action, **options)

        @ragtrace.retrieve(source="facts")
        def search(question: str) -> list[str]:
            return [FACTS]

        async def ask(question: str, text: str) -> str:
            search(question)
            return await self.own(text)

        async def ask_streaming(question: str, bad: bool) -> AsyncIterator[str]:
            search(question)
            async for piece in stream(bad=bad):
                yield piece

        self._ask: Any = ragtrace.trace(name="guarded", guard=guard)(ask_streaming if mode else ask)

    async def close(self) -> None:
        await asyncio.to_thread(self._ragtrace.flush)
        await asyncio.to_thread(self._ragtrace.shutdown, timeout=1.0)

    async def answer(self, question: str, text: str) -> str:
        answer: str = await self._ask(question, text)
        return answer

    async def read(self, question: str, *, bad: bool, show: Callable[[str], None]) -> str:
        last = ""
        async for piece in self._ask(question, bad):
            show(piece)
            last = piece
        return last if last == "[withdrawn]" else "end"

    def tell(self) -> dict[str, int]:
        tally = self._ragtrace.stats().guards["guarded"]
        return {name: count for name, count in {**tally.verdicts, **tally.actions}.items() if count}


NEMO: Final = """
models:
  - type: main
    engine: openai
    model: fake
    parameters: {parameters}
rails:
  output:
    flows: [self check facts]
    streaming: {streaming}
prompts:
  - task: self_check_facts
    content: |
      You are given a task to identify if the hypothesis is grounded and entailed to the evidence.
      You will only use the contents of the evidence and not rely on external knowledge.
      Answer with yes/no. "evidence": {{{{ evidence }}}} "hypothesis": {{{{ response }}}} "entails":
"""


class Nemo(Subject):
    """NVIDIA NeMo Guardrails with the output rail `self check facts`.

    Whole answers of the application are checked with `check_async`, streams by `stream_async(generator=...)`. The mode
    is the setting `rails.output.streaming`, in JSON.
    """

    def start(self) -> None:
        library, options = import_module("nemoguardrails"), import_module("nemoguardrails.rails.llm.options")
        self._output = [options.RailType.OUTPUT]
        parameters = json.dumps({"base_url": self.url, **self.client})
        streaming = json.dumps({"enabled": bool(self.mode), **json.loads(self.mode or "{}")})
        config = library.RailsConfig.from_content(yaml_content=NEMO.format(parameters=parameters, streaming=streaming))
        self._rails = library.LLMRails(config)

    @staticmethod
    def _messages(question: str) -> list[dict[str, Any]]:
        # A text: of a list, version 0.24.1 says at a block that an internal error has occurred.
        context = {"role": "context", "content": {"relevant_chunks": FACTS, "check_facts": True}}
        return [context, {"role": "user", "content": question}]

    async def answer(self, question: str, text: str) -> str:
        answer = await self.own(text)
        messages = [*self._messages(question), {"role": "assistant", "content": answer}]
        result = await self._rails.check_async(messages, rail_types=self._output)
        if str(result.status.value) != "passed":
            return f"status {result.status.value}: {result.content}"
        content: str = result.content
        return content

    async def read(self, question: str, *, bad: bool, show: Callable[[str], None]) -> str:
        messages = self._messages(question)
        async for piece in self._rails.stream_async(messages=messages, generator=stream(bad=bad)):
            if piece.startswith('{"error"'):
                return f"JSON with code {json.loads(piece)['error']['code']}"
            show(piece)
        return "end"


class Guardrails(Subject):
    """Guardrails AI with a validator of our own, which asks the judge by the `openai` client.

    Whole answers are checked with `AsyncGuard.validate`, streams by `Guard(function, stream=True)`. The mode is what
    the validator does on a failure.
    """

    def start(self) -> None:
        library, base = import_module("guardrails"), import_module("guardrails.validator_base")
        client = import_module("openai").OpenAI(base_url=self.url, api_key="none", **self.client)

        @base.register_validator(name="benchmark/entailed", data_type="string")
        class Entailed(base.Validator):  # type: ignore[misc, name-defined]
            def _validate(self, value: Any, metadata: dict[str, Any]) -> Any:
                messages = [{"role": "user", "content": prompt(value)}]
                reply = client.chat.completions.create(model="fake", messages=messages)
                if reply.choices[0].message.content == "yes":
                    return base.PassResult()
                return base.FailResult(error_message="not entailed by the evidence", fix_value="")

        on_fail = self.mode or "exception"
        self._async = library.AsyncGuard().use(Entailed(on_fail=on_fail))
        self._sync = library.Guard().use(Entailed(on_fail=on_fail))

    async def answer(self, question: str, text: str) -> str:
        answer = await self.own(text)
        outcome = await self._async.validate(answer)
        if not outcome.validation_passed:
            return "validation_passed False"
        validated: str = outcome.validated_output
        return validated

    async def read(self, question: str, *, bad: bool, show: Callable[[str], None]) -> str:
        return await asyncio.to_thread(self._read, question, bad, show)

    def _read(self, question: str, bad: bool, show: Callable[[str], None]) -> str:
        """Read a stream with the synchronous guard: the asynchronous one takes streams of litellm alone (0.11.0)."""

        def ask(*, messages: Any = None, **_: Any) -> Iterator[str]:
            for piece in pieces(bad=bad):
                time.sleep(PIECE_SECONDS)
                yield piece

        passed = True
        for outcome in self._sync(ask, messages=[{"role": "user", "content": question}], stream=True):
            passed = outcome.validation_passed
            if outcome.validated_output:
                show(outcome.validated_output)
        return "end" if passed else "end, validation_passed False"


SUBJECTS: Final[dict[str, type[Subject]]] = {
    "bare": Subject,
    "judge": Judge,
    "ragtrace": Ragtrace,
    "nemo": Nemo,
    "guardrails": Guardrails,
}


def named(error: Exception) -> str:
    """Return the name of *error*, and the verdict of ragtrace's guard in it."""
    notice: Any = getattr(error, "notice", None)
    return f"raises {type(error).__name__}" + (f" ({notice.verdict})" if notice else "")


async def answers(subject: Subject, order: dict[str, Any]) -> dict[str, Any]:
    """Measure how long after the function has its answer the caller has it, and what the caller gets."""
    text, added, outcomes = BAD if order["bad"] else SENTENCES[0], list[float](), list[str]()
    for number in range(order["calls"]):
        question = f"{QUESTION} ({order['number']}.{number})"
        try:
            got = await asyncio.wait_for(subject.answer(question, text), order["cap"])
        except Exception as error:  # of whatever library
            waits = isinstance(error, TimeoutError) and time.perf_counter() - subject.answered > order["cap"] - 1.0
            got = f"still waits after {order['cap']:g} s" if waits else named(error)
        added.append(time.perf_counter() - subject.answered)
        outcomes.append("answer" if got == text else got)
    return {"added": added, "outcomes": outcomes}


async def streams(subject: Subject, order: dict[str, Any]) -> dict[str, Any]:
    """Measure when the first piece of a stream and its end reach the reader, and how many words (of a bad one)."""
    first, end, shown, outcomes = list[float](), list[float](), list[int](), list[str]()
    for number in range(order["calls"]):
        began, times, texts = time.perf_counter(), list[float](), list[str]()

        def show(text: str, times: list[float] = times, texts: list[str] = texts) -> None:
            times.append(time.perf_counter())
            texts.append(text)

        try:
            question = f"{QUESTION} ({order['number']}.{number})"
            outcomes.append(await subject.read(question, bad=order["bad"], show=show))
        except Exception as error:  # of whatever library
            outcomes.append(named(error))
        end.append(time.perf_counter() - began)
        if times:
            first.append(times[0] - began)
        words = "".join(texts).replace(".", ". ").split()
        shown.append(sum(word in BAD.split() for word in words) if order["bad"] else len(words))
    return {"first": first, "end": end, "shown": shown, "outcomes": outcomes}


async def carry_out(name: str, order: dict[str, Any]) -> dict[str, Any]:
    measure = answers if order["do"] == "answers" else streams
    subject = SUBJECTS[name](order["url"], order["mode"], limited=order["limited"])
    if order["warm"]:
        await measure(
            subject, {**order, "calls": WARM_UP[order["do"]], "number": f"warm {order['number']}", "bad": False}
        )
    result = await measure(subject, order)
    result["told"] = subject.tell()
    result["calls"] = order["calls"] + (WARM_UP[order["do"]] if order["warm"] else 0)
    await subject.close()
    return result


def main() -> None:
    logging.disable(logging.CRITICAL)
    warnings.simplefilter("ignore")
    home = tempfile.mkdtemp()
    Path(home, ".guardrailsrc").write_text("enable_metrics=false\nuse_remote_inferencing=false\n", "utf-8")
    # Nothing here may ask the network: no usage statistics, no list of prices.
    os.environ.update(
        HOME=home, OPENAI_API_KEY="none", NEMO_GUARDRAILS_NO_USAGE_STATS="1", LITELLM_LOCAL_MODEL_COST_MAP="True"
    )
    out, sys.stdout = sys.stdout, sys.stderr  # libraries print
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    for line in sys.stdin:
        print(json.dumps(loop.run_until_complete(carry_out(sys.argv[1], json.loads(line)))), file=out, flush=True)
    os._exit(0)  # threads may wait for a judge that hangs


if __name__ == "__main__":
    main()
