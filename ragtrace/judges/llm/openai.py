"""`OpenAIJudge`: a language model behind any OpenAI-compatible server labels a call; our code does the arithmetic."""

from __future__ import annotations

import copy
import random
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from ragtrace.core.cost import Cost
from ragtrace.core.errors import JudgeError, SettingsError
from ragtrace.core.types import Closable, EvaluatorType, Judgement, Metric, Plain, RagCall
from ragtrace.judges.llm.build_judgement import FIELDS, MOST_UNCOVERED, conclude
from ragtrace.judges.llm.judge_session import Inquiry, in_halves
from ragtrace.judges.llm.modes import ROUNDS, Interview, Labels, Limits, Mode, Scope, packed
from ragtrace.judges.llm.prompt import Asked
from ragtrace.judges.llm.prompt_input import MAX_CHUNK_CHARS, Chunk, Sheet, prepare, reference_chunks
from ragtrace.judges.llm.prompts import VERSION, system_message
from ragtrace.judges.llm.reply import Reply
from ragtrace.judges.llm.verdicts import UNREADABLE, Habit

if TYPE_CHECKING:
    from ragtrace.core.price import Price
    from ragtrace.judges.llm.chat_types import Chat
    from ragtrace.judges.local.embedder import Embedder

REFERENCE: Final = "reference_contexts_contradicted"
_MODES: Final = ("fast", "careful", "strict")
_JSON_RUNGS: Final = 3


class OpenAIJudge:
    """Judges calls with a model behind an OpenAI-compatible server: OpenAI, Azure, vLLM, Ollama, LiteLLM, llama.cpp ...

    One request gives the labels of all metrics that need no reference (`mode="fast"`), one more for every further
    twelve sentences of the answer. The answer is taken apart into statements; each is held against the retrieved
    chunks, with a quote that is looked up in the chunk named.

    Query, answer and chunks are treated as hostile: they reach the model as data in one JSON string, and of its reply
    only known ids and labels are read. `careful` takes the answer apart without showing the chunks, and then verifies
    the statements, ten in a request, with control items among them whose labels are known: if one is wrong, nothing of
    the judgement counts (`judge_suspect`). `strict` verifies three times, in other orders, and takes the majority, of
    control items, too. They cover the labels of support, and neither relevance, grades, citations nor ratings;
    `docs/judges.md` says which attacks are not caught. Models of 7 to 8 billion parameters need shorter lists:
    `mode="careful", statements_per_call=3`.

    Args:
        model: the model's name, or that of the deployment.
        mode: "fast" (1 request a call), "careful" (1 + 1 for ten statements), "strict" (1 + 3 for ten statements). A
            call over `max_input_chars` is judged as by "careful", and its scores say so.
        base_url: of the server; None: OPENAI_BASE_URL, or OpenAI's own.
        api_key: None: OPENAI_API_KEY.
        embedder: for metrics that compare embeddings, closed with the judge; None: these are unscored (`no_embedder`).
        controls: mix in control items; None: in "careful" and "strict", not in "fast".
        statements_per_call: most statements verified in one request.
        max_chunk_chars: a longer chunk is cut, and counted in the attribute `truncated_chunks`.
        max_input_chars: most characters of query, answer and chunks in one request.
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
        chat: how requests are made, in place of the other arguments about the server.
        chance: where control items and orders come from; None: the system's randomness.

    Raises:
        SettingsError: an argument is out of its range.
    """

    def __init__(
        self,
        model: str,
        *,
        mode: Mode = "fast",
        base_url: str | None = None,
        api_key: str | None = None,
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
        chat: Chat | None = None,
        chance: random.Random | None = None,
    ) -> None:
        if mode not in _MODES:
            raise SettingsError(f"mode must be one of {', '.join(_MODES)}, got {mode!r}")
        numbers = {
            "statements_per_call": statements_per_call,
            "max_chunk_chars": max_chunk_chars,
            "max_input_chars": max_input_chars,
        }
        for argument, value in numbers.items():
            if value < 1:
                raise SettingsError(f"{argument} must be at least 1, got {value!r}")
        if lowest_rung not in (1, 2, 3, 4):
            raise SettingsError(f"lowest_rung must be 1, 2, 3 or 4, got {lowest_rung!r}")
        if not 0 <= max_uncovered <= 1:
            raise SettingsError(f"max_uncovered must be between 0 and 1, got {max_uncovered!r}; for 20% write 0.2")
        self._mode: Mode = mode
        self._model, self._name = model, name
        self._embedder, self._controls, self._max_tokens = embedder, controls, max_tokens
        self._limits = Limits(statements_per_call, max_input_chars)
        self._max_chunk_chars, self._max_uncovered = max_chunk_chars, max_uncovered
        self._chat = chat or _chat(
            model,
            base_url=base_url,
            api_key=api_key,
            timeout=timeout,
            price=price,
            lowest_rung=min(lowest_rung, _JSON_RUNGS),
            extra_body=extra_body,
        )
        self._habit = Habit() if lowest_rung > _JSON_RUNGS else None
        self._chance = chance or random.SystemRandom()
        self._metrics: tuple[Metric, ...] | None = None

    @property
    def id(self) -> str:
        return self._name

    @property
    def version(self) -> str:
        """Model, mode and prompts: labels of different ones do not compare."""
        return f"{self._model}/{self._mode}/prompts-{VERSION}"

    @property
    def type(self) -> EvaluatorType:
        return "llm_judge"

    def offers(self, metric: Metric) -> bool:
        """Whether *metric* reads labels, and this judge gives all that it reads."""
        return bool(metric.needs) and metric.needs <= self._fields()

    def asking(self, metrics: Sequence[Metric]) -> OpenAIJudge:
        """A judge like this one, with the same connections, that asks only what *metrics* need."""
        from ragtrace.judges.llm.transport import load

        load()
        # These load modules too: see `load`.
        self._fields()
        system_message("full")
        judge = copy.copy(self)
        judge._metrics = tuple(metrics)
        return judge

    async def aclose(self) -> None:
        """Close the connections, the embedder's too. Also those of every judge made by `asking`."""
        embedder: object = self._embedder
        try:
            await self._chat.aclose()
        finally:
            if isinstance(embedder, Closable):
                await embedder.aclose()

    async def probe(self) -> str:
        """What answers, and how; for whoever looks into a failure.

        Raises:
            JudgeError: nothing does, or it says no.
        """
        return await self._chat.probe()

    async def judge(self, call: RagCall) -> Judgement:
        """The labels that the model gives *call*.

        Raises:
            JudgeError: it gave none; with what was spent.
        """
        needs = self._needs(call)
        failed: JudgeError | None = None
        try:
            judgement = await self._main(call, needs & FIELDS)
        except JudgeError as error:
            # What other requests give is not lost with this one, unless asking again may give it all.
            if error.retryable or needs <= FIELDS:
                raise
            judgement, failed = _failed(error, self._mode), error
        spent = judgement.n_calls
        if REFERENCE in needs:
            judgement = await self._with_reference_contexts(call, judgement)
        judgement = await self._with_families(call, judgement)
        if failed is not None and judgement.n_calls == spent:
            raise failed  # nothing else was asked: what the server said is more than a reason for each label
        return judgement

    def _needs(self, call: RagCall) -> frozenset[str]:
        if self._metrics is None:
            return FIELDS
        return frozenset[str]().union(*(metric.needs for metric in self._metrics if not _is_settled(metric, call)))

    # --- the main reply ----------------------------------------------------------------------------------------------

    async def _main(self, call: RagCall, needs: frozenset[str]) -> Judgement:
        if not needs:
            return Judgement(mode=self._mode, cost_usd=0.0)
        sheet = prepare(call, self._max_chunk_chars)
        inquiry = Inquiry(self._chat, prove=self._steps(sheet), max_tokens=self._max_tokens)
        try:
            labels = await self._labels(sheet, needs, inquiry)
        except JudgeError as error:
            raise inquiry.failed(error) from error
        return _charged(conclude(sheet, labels, self._max_uncovered), inquiry)

    def _steps(self, sheet: Sheet) -> bool:
        return self._mode != "fast" or sheet.chars > self._limits.chars

    async def _labels(self, sheet: Sheet, needs: frozenset[str], inquiry: Inquiry) -> Labels:
        of_chunks = needs & {"claims", "chunks", "citations"}
        scope = Scope(
            answer=bool(sheet.sentences and needs - {"chunks"}),
            chunks=bool(sheet.chunks and of_chunks and (sheet.sentences or "chunks" in needs)),
            statements_only=of_chunks == frozenset({"claims"}),
        )
        if not (scope.answer or scope.chunks):
            return Labels(self._mode)
        steps = self._steps(sheet)
        with_controls = steps if self._controls is None else self._controls
        interview = Interview(inquiry, sheet, scope, self._limits, with_controls=with_controls, chance=self._chance)
        habit = self._habit if scope.answer and scope.chunks else None
        if habit and habit.writes_json is False:
            return await interview.one_by_one()
        try:
            labels = await (interview.in_steps(self._rounds) if steps else interview.whole())
        except JudgeError as error:
            if habit is None or error.reason not in UNREADABLE:
                raise
            labels = await interview.one_by_one()
            habit.writes_json = bool(habit.writes_json)
        else:
            if habit:
                habit.writes_json = True
        return labels

    @property
    def _rounds(self) -> int:
        return ROUNDS if self._mode == "strict" else 1

    # --- other replies -----------------------------------------------------------------------------------------------

    async def _with_reference_contexts(self, call: RagCall, judgement: Judgement) -> Judgement:
        """Which of the reference contexts the answer contradicts: one more request."""
        sheet = prepare(replace(call, contexts=None, parts=None), self._max_chunk_chars)
        chunks, names = reference_chunks(call.reference_contexts or (), self._max_chunk_chars)
        if not sheet.sentences or not chunks:
            return judgement
        inquiry = Inquiry(self._chat, max_tokens=self._max_tokens)

        async def ask(group: Sequence[Chunk]) -> Reply:
            return await inquiry.ask(Asked("contradicted", sheet.query, sentences=sheet.sentences, chunks=tuple(group)))

        denied: dict[str, bool | None] = {}
        try:
            for group in packed(chunks, self._limits.chars):
                for reply in await in_halves(ask, group):
                    denied |= reply.contradicted or {}
        except JudgeError as error:
            return _charged(_without(judgement, (REFERENCE,), error.reason), inquiry)
        labels = tuple(False if name is None else denied.get(name) for name in names)
        return _charged(replace(judgement, reference_contexts_contradicted=labels), inquiry)

    async def _with_families(self, call: RagCall, judgement: Judgement) -> Judgement:
        from ragtrace.judges.llm.families import FIELDS as OTHERS
        from ragtrace.judges.llm.families import more

        wanted = tuple(metric for metric in self._metrics or () if metric.needs & OTHERS)
        return await more(self._chat, call, judgement, wanted, self._embedder) if wanted else judgement

    def _fields(self) -> frozenset[str]:
        from ragtrace.judges.llm.families import FIELDS as OTHERS

        return FIELDS | OTHERS | {REFERENCE}


def _is_settled(metric: Metric, call: RagCall) -> bool:
    """Whether *metric*, if it is one of ours, needs no label to say what it says of *call*."""
    settled = getattr(metric, "settled", None)
    return settled is not None and settled(call) is True


def _chat(
    model: str,
    *,
    base_url: str | None,
    api_key: str | None,
    timeout: float,
    price: Price | None,
    lowest_rung: int,
    extra_body: Mapping[str, object] | None,
) -> Chat:
    from ragtrace.judges.llm.chat_types import Chat  # loads what a judge by words alone does without

    return Chat(
        model,
        base_url=base_url,
        api_key=api_key,
        timeout=timeout,
        price=price,
        lowest_rung=lowest_rung,
        extra_body=extra_body,
    )


def _charged(judgement: Judgement, inquiry: Inquiry) -> Judgement:
    """*judgement* with what *inquiry* spent added, and the model that answered."""
    noticed: dict[str, Plain] = {"judge_model": inquiry.model} if inquiry.model else {}
    if inquiry.input_truncated:
        noticed["judge_input_truncated"] = True
    before = Cost.of(judgement) if judgement.n_calls else Cost()
    spent = before + inquiry.spent or Cost(cost_usd=0.0)
    return spent.on_judgement(replace(judgement, attributes={**judgement.attributes, **noticed}))


def _failed(error: JudgeError, mode: Mode) -> Judgement:
    """No labels of the main reply, and why; with what was spent."""
    return Cost.of(error).on_judgement(Judgement(reasons=dict.fromkeys(FIELDS, error.reason), mode=mode))


def _without(judgement: Judgement, fields: Sequence[str], reason: str) -> Judgement:
    reasons: Mapping[str, str] = {**judgement.reasons, **dict.fromkeys(fields, reason)}
    return replace(judgement, reasons=reasons)
