"""Judge that has an LLM label a RAG call; metrics compute scores from the labels."""

from __future__ import annotations

import copy
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar, get_args

from ragtrace.core.cost import TURN_TOKENS
from ragtrace.core.errors import JudgeError, SettingsError
from ragtrace.core.follow_ups import QUERY_NEEDS_TURNS, needs_earlier_turns
from ragtrace.core.options import JudgeLimits
from ragtrace.core.text import chars_of
from ragtrace.core.types import Closable, EvaluatorType, Judgement, Metric, RagCall
from ragtrace.judges.llm.build_judgement import FIELDS, MOST_UNCOVERED, build_judgement
from ragtrace.judges.llm.chat import ChatClient, JudgeSession, ask_in_halves
from ragtrace.judges.llm.families import FIELDS as EXTRA_FIELDS
from ragtrace.judges.llm.families import add_extra_labels
from ragtrace.judges.llm.label_collector import LabelCollector, Mode, labels_for
from ragtrace.judges.llm.label_reply import LabelReply, LabelTask, label_prompt
from ragtrace.judges.llm.prompt import group_by_size
from ragtrace.judges.llm.prompt_input import MAX_CHUNK_CHARS, PromptChunk, PromptInput, prepare_input, reference_chunks
from ragtrace.judges.llm.prompts import LABELS, VERSION, Label, system_message, turns_instructions
from ragtrace.judges.llm.response_format import TEXT
from ragtrace.judges.llm.sentence_questions import SENTENCE_LABELS, label_sentences
from ragtrace.judges.llm.server_connection import import_http_library
from ragtrace.system.event_loops import beside_loop

if TYPE_CHECKING:
    from ragtrace.core.price import Price
    from ragtrace.judges.llm.embedder import Embedder

J = TypeVar("J", bound="LLMJudge")
REFERENCE: Final = "reference_contexts_contradicted"


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestOptions:
    """Options of an LLM judge's requests, which fit most servers and models as they are.

    Examples:
        >>> requests = ragtrace.judges.RequestOptions(statements_per_call=3, extra_body={"seed": 7})
        >>> judge = ragtrace.OpenAIJudge("gpt-4o-mini", api_key="...", mode="careful", requests=requests)

    Raises:
        SettingsError: a value is out of its range.
    """

    statements_per_call: int = 10
    """Most statements verified in one request."""
    max_chunk_chars: int = MAX_CHUNK_CHARS
    """A longer chunk is cut, and counted in the attribute `truncated_chunks`."""
    max_input_chars: int = 48_000
    """Most characters of query, answer, chunks and earlier turns in one request."""
    timeout: float = 60.0
    """Seconds for one request."""
    max_tokens: int | None = None
    """Most tokens of a reply; None: derived from the request, well above what an honest reply has; none for a model
    that is seen to spend them on reasoning."""
    lowest_format: int = TEXT
    """How far down the judge may go for a server that cannot do better: 1 (only JSON schemas), 2 (JSON objects) or 3
    (JSON in plain text)."""
    extra_body: Mapping[str, object] | None = None
    """Further parts of every request, as the server knows them."""

    def __post_init__(self) -> None:
        for name in ("statements_per_call", "max_input_chars", "max_chunk_chars"):
            if getattr(self, name) < 1:
                raise SettingsError(f"{name} must be at least 1, got {getattr(self, name)!r}")


class LLMJudge:
    """Judge over a chat client, as which `OpenAIJudge` works.

    Args:
        chat: sends the prompts to the model.
        name: the judge's id.
        mode: how the labels are asked for.
        embedder: for metrics that compare embeddings.
        gold_checks: whether statements whose labels are known are mixed in; None: in "careful", not in "fast".
        max_uncovered: share of the answer's sentences that may be in no statement.
        requests: options of the requests.
        limits: limits of the judge in live use.
        chance: where gold checks and their places come from.

    Raises:
        SettingsError: an argument is out of its range.
    """

    type: EvaluatorType = "llm_judge"

    def __init__(
        self,
        chat: ChatClient,
        *,
        name: str = "openai",
        mode: Mode = "fast",
        embedder: Embedder | None = None,
        gold_checks: bool | None = None,
        max_uncovered: float = MOST_UNCOVERED,
        requests: RequestOptions | None = None,
        limits: JudgeLimits | None = None,
        chance: random.Random | None = None,
    ) -> None:
        if mode not in get_args(Mode):
            raise SettingsError(f"mode must be one of {', '.join(get_args(Mode))}, got {mode!r}")
        if not 0 <= max_uncovered <= 1:
            raise SettingsError(f"max_uncovered must be between 0 and 1, got {max_uncovered!r}; for 20% write 0.2")
        if mode == "sentences" and gold_checks:
            raise SettingsError("gold_checks=True is for the modes fast and careful; mode='sentences' has none")
        self._mode: Mode = mode
        self.id, self.limits = name, limits
        self._embedder, self._gold_checks = embedder, gold_checks
        self._requests = RequestOptions() if requests is None else requests
        self._max_uncovered = max_uncovered
        self._chat, self._chance = chat, chance
        self._metrics: tuple[Metric, ...] | None = None

    @property
    def version(self) -> str:
        """Version of the judge, made of model, mode and prompts. Labels of different versions are not comparable."""
        return f"{self._chat.model}/{self._mode}/prompts-{VERSION}"

    @property
    def price(self) -> Price | None:
        """Price of the model in US dollars per million tokens, or None if the price is not known."""
        return self._chat.price

    def offers(self, metric: Metric) -> bool:
        """Return whether *metric* needs labels and this judge can give all of them."""
        if self._mode == "sentences":
            labels = labels_for(metric.needs, _reads(metric))
            return "support" in labels and labels <= SENTENCE_LABELS and metric.needs <= FIELDS
        return bool(metric.needs) and metric.needs <= FIELDS | EXTRA_FIELDS | {REFERENCE}

    def asking(self: J, metrics: Sequence[Metric]) -> J:
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
        labels = frozenset[Label]().union(*(labels_for(metric.needs, _reads(metric)) for metric in metrics))
        failed: JudgeError | None = None
        try:
            judgement = await self._main_labels(call, LABELS if self._metrics is None else labels, session)
        except JudgeError as error:
            # The labels of other requests are kept, unless a retry may give all labels.
            if error.retryable or needs <= FIELDS:
                raise
            judgement, failed = Judgement(reasons=dict.fromkeys(FIELDS, error.reason), mode=self._mode), error
        try:
            asked = session.cost.n_calls
            if REFERENCE in needs:
                judgement = await self._with_reference_contexts(call, judgement, session)
            wanted = [metric for metric in self._metrics or () if metric.needs & EXTRA_FIELDS]
            if wanted:
                source = await self._prepare(call)
                judgement = await add_extra_labels(session, source, call, judgement, wanted)
            if failed is not None and session.cost.n_calls == asked:
                raise failed  # no other request was made: the error says more than a reason for each label
            return judgement
        finally:
            del failed  # its traceback has this frame

    async def _prepare(self, call: RagCall) -> PromptInput:
        return await beside_loop(chars_of(call), partial(prepare_input, call, self._requests.max_chunk_chars))

    async def _main_labels(self, call: RagCall, labels: frozenset[Label], session: JudgeSession) -> Judgement:
        if not labels:
            return Judgement(mode=self._mode)
        source = await self._prepare(call)
        max_chars = self._requests.max_input_chars
        if self._mode == "sentences":
            found = await label_sentences(session, source, max_chars=max_chars)
        else:
            collector = LabelCollector(
                session,
                source,
                labels,
                mode=self._mode,
                statements_per_call=self._requests.statements_per_call,
                max_chars=max_chars,
                with_gold_checks=self._gold_checks,
                chance=self._chance or random.SystemRandom(),
            )
            found = await collector.collect()
        if session.cost.n_calls and TURN_TOKENS not in session.attributes and (call.conversation_id or call.turns):
            session.attributes["no_earlier_turns"] = True
        return build_judgement(source, found, self._max_uncovered)

    async def _with_reference_contexts(self, call: RagCall, judgement: Judgement, session: JudgeSession) -> Judgement:
        """Ask the LLM which reference contexts the answer contradicts, and add the labels to *judgement*."""
        source = await self._prepare(replace(call, contexts=None, parts=None))
        chunks, names = reference_chunks(call.reference_contexts or (), self._requests.max_chunk_chars)
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
            for group in group_by_size(chunks, self._requests.max_input_chars):
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


def _reads(metric: Metric) -> frozenset[str] | None:
    """Return which labels *metric* reads of the fields that it needs, if it says so, or None for all."""
    reads: frozenset[str] | None = getattr(metric, "reads", None)
    return reads
