"""`OpenAIJudge`: an LLM behind any OpenAI-compatible server labels a call; metrics compute scores from the labels."""

from __future__ import annotations

import copy
import random
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final, get_args

from ragtrace.core.cost import TURN_TOKENS
from ragtrace.core.errors import JudgeError, SettingsError
from ragtrace.core.follow_ups import QUERY_NEEDS_TURNS, needs_earlier_turns
from ragtrace.core.options import JudgeLimits
from ragtrace.core.types import Closable, EvaluatorType, Judgement, Metric, RagCall
from ragtrace.judges.llm.build_judgement import FIELDS, MOST_UNCOVERED, build_judgement
from ragtrace.judges.llm.chat import ChatClient, JudgeSession, ask_in_halves
from ragtrace.judges.llm.families import FIELDS as EXTRA_FIELDS
from ragtrace.judges.llm.families import add_extra_labels
from ragtrace.judges.llm.label_collector import LabelCollector, Mode
from ragtrace.judges.llm.label_reply import LabelReply, LabelTask, label_prompt
from ragtrace.judges.llm.prompt import group_by_size
from ragtrace.judges.llm.prompt_input import MAX_CHUNK_CHARS, PromptChunk, prepare_input, reference_chunks
from ragtrace.judges.llm.prompts import VERSION, system_message, turns_instructions
from ragtrace.judges.llm.server_connection import ClientMaker, import_http_library

if TYPE_CHECKING:
    from ragtrace.core.price import Price
    from ragtrace.judges.llm.embedder import Embedder

REFERENCE: Final = "reference_contexts_contradicted"
_JSON_LEVELS: Final = 3


class OpenAIJudge:
    """LLM judge behind any OpenAI-compatible server: OpenAI, Azure, vLLM, Ollama, LiteLLM, llama.cpp ...

    One request gives the labels of all metrics that need no reference (`mode="fast"`), one more for every further
    twelve sentences of the answer. The model extracts the statements of the answer and holds each against the retrieved
    chunks, with a quote that is looked up in the chunk named.

    Query, answer and chunks are treated as hostile: they reach the model as data in one JSON string, and of its reply
    only known ids and labels are read. `careful` extracts the statements without showing the chunks, and then verifies
    them, ten in a request, with control items among them whose labels are known: if one is wrong, nothing of the
    judgement counts (`judge_suspect`). `strict` verifies three times, in other orders, and takes the majority, of
    control items, too. They cover the labels of support, and neither relevance, grades, citations nor ratings;
    `docs/judges.md` says which attacks are not caught. Models of 7 to 8 billion parameters need shorter lists:
    `mode="careful", statements_per_call=3`.

    Args:
        model: the model's name, or that of the deployment.
        mode: "fast" (1 request a call), "careful" (1 + 1 for ten statements), "strict" (1 + 3 for ten statements). A
            call over `max_input_chars` is judged as by "careful", and its scores say so.
        base_url: of the server; None: OPENAI_BASE_URL, or OpenAI's own.
        api_key: None: OPENAI_API_KEY.
        client: function that makes an `AsyncOpenAI` client in place of the two, or any subclass of it, with its own
            address, key, headers and proxies: `client=lambda: openai.AsyncAzureOpenAI(...)`. It is called once for each
            event loop and process, because a client can be used in one only.
        embedder: for metrics that compare embeddings, closed with the judge; None: these are unscored (`no_embedder`).
        controls: mix in control items; None: in "careful" and "strict", not in "fast".
        statements_per_call: most statements verified in one request.
        max_chunk_chars: a longer chunk is cut, and counted in the attribute `truncated_chunks`.
        max_input_chars: most characters of query, answer, chunks and earlier turns in one request.
        max_uncovered: share of the answer's sentences that may be in no statement; over it there are no claims
            (`judge_error`, `coverage`).
        timeout: seconds for one request.
        price: US dollars a million tokens; None: the list price of the model, if it is known.
        max_tokens: most tokens of a reply; None: derived from the request, well above what an honest reply has; none
            for a model that is seen to spend them on reasoning.
        lowest_rung: how far down it may go for a server that cannot do better: 1 (only JSON schemas), 2 (JSON objects),
            3 (JSON in plain text), 4 (for small local models: one statement a request, one word in reply, which gives
            the support of statements and nothing else).
        extra_body: further parts of every request, as the server knows them.
        name: the judge's id.
        limits: time for a call, retries included, calls at a time, and turns of a conversation that it is shown; None:
            those of the environment, or the defaults.
        chat: how requests are made, in place of the other arguments about the server.
        chance: where control items and orders come from; None: the system's randomness.

    Raises:
        SettingsError: an argument is out of its range.
    """

    type: EvaluatorType = "llm_judge"

    def __init__(
        self,
        model: str,
        *,
        mode: Mode = "fast",
        base_url: str | None = None,
        api_key: str | None = None,
        client: ClientMaker | None = None,
        embedder: Embedder | None = None,
        controls: bool | None = None,
        statements_per_call: int = 10,
        max_chunk_chars: int = MAX_CHUNK_CHARS,
        max_input_chars: int = 48_000,
        max_uncovered: float = MOST_UNCOVERED,
        timeout: float = 60.0,
        price: Price | None = None,
        max_tokens: int | None = None,
        lowest_rung: int = 3,
        extra_body: Mapping[str, object] | None = None,
        name: str = "openai",
        limits: JudgeLimits | None = None,
        chat: ChatClient | None = None,
        chance: random.Random | None = None,
    ) -> None:
        if mode not in get_args(Mode):
            raise SettingsError(f"mode must be one of {', '.join(get_args(Mode))}, got {mode!r}")
        most = {"statements_per_call": statements_per_call, "max_input_chars": max_input_chars}
        for argument, value in {**most, "max_chunk_chars": max_chunk_chars}.items():
            if value < 1:
                raise SettingsError(f"{argument} must be at least 1, got {value!r}")
        if lowest_rung not in (1, 2, 3, 4):
            raise SettingsError(
                "lowest_rung must be 1 (strict JSON schema), 2 (JSON object), 3 (JSON in plain text) or 4 (no JSON), "
                f"got {lowest_rung!r}; leave it out for 3"
            )
        if not 0 <= max_uncovered <= 1:
            raise SettingsError(f"max_uncovered must be between 0 and 1, got {max_uncovered!r}; for 20% write 0.2")
        self._mode: Mode = mode
        self._model, self.id, self.limits = model, name, limits
        self._embedder, self._controls = embedder, controls
        self._statements_per_call, self._max_input_chars = statements_per_call, max_input_chars
        self._max_chunk_chars, self._max_uncovered = max_chunk_chars, max_uncovered
        self._chat = chat or ChatClient(
            model,
            base_url=base_url,
            api_key=api_key,
            client=client,
            timeout=timeout,
            price=price,
            lowest_rung=min(lowest_rung, _JSON_LEVELS),
            max_tokens=max_tokens,
            extra_body=extra_body,
        )
        self._in_words = lowest_rung > _JSON_LEVELS
        self._chance = chance or random.SystemRandom()
        self._metrics: tuple[Metric, ...] | None = None

    @property
    def version(self) -> str:
        """Version of the judge, made of model, mode and prompts. Labels of different versions are not comparable."""
        return f"{self._model}/{self._mode}/prompts-{VERSION}"

    @property
    def price(self) -> Price | None:
        """Price of the model in US dollars per million tokens, or None if the price is not known."""
        return self._chat.price

    def offers(self, metric: Metric) -> bool:
        """Return whether *metric* needs labels and this judge can give all of them."""
        return bool(metric.needs) and metric.needs <= FIELDS | EXTRA_FIELDS | {REFERENCE}

    def asking(self, metrics: Sequence[Metric]) -> OpenAIJudge:
        """Return a copy of this judge that asks the LLM only for the labels that *metrics* need.

        The copy shares the connections.
        """
        import_http_library()
        system_message("full")  # imports a module too: see `import_http_library`
        turns_instructions()
        judge = copy.copy(self)
        judge._metrics = tuple(metrics)
        return judge

    async def aclose(self) -> None:
        """Close the connections of this judge, of its embedder and of the copies made by `asking`."""
        embedder: object = self._embedder
        try:
            await self._chat.aclose()
        finally:
            if isinstance(embedder, Closable):
                await embedder.aclose()

    async def probe(self) -> str:
        """Test the connection with a tiny request, and return a sentence about the model that replied.

        Raises a `JudgeError` if no model replied.
        """
        return await self._chat.probe()

    async def judge(self, call: RagCall) -> Judgement:
        """Ask the LLM for the labels of *call*, and return them.

        Raises a `JudgeError`, with all costs, if the LLM gives none.
        """
        session = JudgeSession(self._chat, self._embedder)
        try:
            judgement = await self._judgement(call, session)
        except JudgeError as error:
            raise session.cost.set_on_error(error) from error
        if not call.earlier_turns and needs_earlier_turns(call.query):
            session.attributes[QUERY_NEEDS_TURNS] = True
        if TURN_TOKENS in session.attributes:
            session.attributes["earlier_turns"] = len(call.earlier_turns or ())
        return session.with_cost(judgement)

    async def _judgement(self, call: RagCall, session: JudgeSession) -> Judgement:
        metrics = [metric for metric in self._metrics or () if not _needs_no_label(metric, call)]
        needs = FIELDS if self._metrics is None else frozenset[str]().union(*(metric.needs for metric in metrics))
        failed: JudgeError | None = None
        try:
            judgement = await self._main_labels(call, needs & FIELDS, session)
        except JudgeError as error:
            # The labels of other requests are kept, unless a retry may give all labels.
            if error.retryable or needs <= FIELDS:
                raise
            judgement, failed = Judgement(reasons=dict.fromkeys(FIELDS, error.reason), mode=self._mode), error
        asked = session.cost.n_calls
        if REFERENCE in needs:
            judgement = await self._with_reference_contexts(call, judgement, session)
        wanted = [metric for metric in self._metrics or () if metric.needs & EXTRA_FIELDS]
        judgement = await add_extra_labels(session, call, judgement, wanted)
        if failed is not None and session.cost.n_calls == asked:
            raise failed  # no other request was made: the error says more than a reason for each label
        return judgement

    async def _main_labels(self, call: RagCall, needs: frozenset[str], session: JudgeSession) -> Judgement:
        if not needs:
            return Judgement(mode=self._mode)
        source = prepare_input(call, self._max_chunk_chars)
        collector = LabelCollector(
            session,
            source,
            needs,
            mode=self._mode,
            statements_per_call=self._statements_per_call,
            max_chars=self._max_input_chars,
            controls=self._controls,
            chance=self._chance,
        )
        labels = await collector.collect(in_words=self._in_words)
        if session.cost.n_calls and TURN_TOKENS not in session.attributes and (call.conversation_id or call.turns):
            session.attributes["no_earlier_turns"] = True
        return build_judgement(source, labels, self._max_uncovered)

    async def _with_reference_contexts(self, call: RagCall, judgement: Judgement, session: JudgeSession) -> Judgement:
        """Ask the LLM which reference contexts the answer contradicts, and add the labels to *judgement*."""
        source = prepare_input(replace(call, contexts=None, parts=None), self._max_chunk_chars)
        chunks, names = reference_chunks(call.reference_contexts or (), self._max_chunk_chars)
        if not source.sentences or not chunks:
            return judgement

        async def ask(group: Sequence[PromptChunk]) -> LabelReply:
            task = LabelTask(
                "contradicted",
                source.query,
                sentences=source.sentences,
                chunks=tuple(group),
                earlier_turns=source.earlier_turns,
            )
            return (await session.ask(label_prompt(task))).reply

        contradicted: dict[str, bool | None] = {}
        try:
            for group in group_by_size(chunks, self._max_input_chars):
                for reply in await ask_in_halves(ask, group):
                    contradicted |= reply.contradicted or {}
        except JudgeError as error:
            return replace(judgement, reasons={**judgement.reasons, REFERENCE: error.reason})
        labels = tuple(False if name is None else contradicted.get(name) for name in names)
        return replace(judgement, reference_contexts_contradicted=labels)


def _needs_no_label(metric: Metric, call: RagCall) -> bool:
    """Return whether *metric* is a built-in metric that can score *call* without any label of a judge."""
    settled = getattr(metric, "settled", None)
    return settled is not None and settled(call) is True
