"""`OpenAIJudge`: an LLM behind any OpenAI-compatible server labels a call; metrics compute scores from the labels."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ragtrace.core.errors import SettingsError
from ragtrace.core.options import JudgeLimits
from ragtrace.judges.llm.build_judgement import MOST_UNCOVERED
from ragtrace.judges.llm.chat import ChatClient
from ragtrace.judges.llm.label_collector import Mode
from ragtrace.judges.llm.llm_judge import LLMJudge, RequestOptions
from ragtrace.judges.llm.server_connection import ClientMaker

if TYPE_CHECKING:
    from ragtrace.core.price import Price
    from ragtrace.judges.llm.embedder import Embedder


class OpenAIJudge(LLMJudge):
    """LLM judge behind any OpenAI-compatible server: OpenAI, Azure, vLLM, Ollama, LiteLLM, llama.cpp ...

    One request gives the labels of all metrics that need no reference (`mode="fast"`), one more for every further
    twelve sentences of the answer. The model extracts the statements of the answer and holds each against the retrieved
    chunks, with a quote that is looked up in the chunk named.

    Query, answer and chunks are treated as hostile: they reach the model as data in one JSON string, and of its reply
    only known ids and labels are read. `careful` extracts the statements without showing the chunks, and then verifies
    them, ten in a request, with gold checks among them, whose labels are known: if one is wrong, nothing of the
    judgement counts (`judge_suspect`). They cover the labels of support, and neither relevance, grades, citations nor
    ratings; `docs/judges.md` says which attacks are not caught. Models of 7 to 8 billion parameters need shorter lists:
    `mode="careful", requests=RequestOptions(statements_per_call=3)`. Smaller ones are asked about one sentence at a
    time: `mode="sentences"` gives `faithfulness`, `hallucination` and `hallucinated` alone.

    Examples:
        >>> with ragtrace.testing.OpenAIServer() as server:  # in place of yours
        ...     judge = ragtrace.OpenAIJudge("local", base_url=server.url, api_key="none")
        ...     scores = ragtrace.score(contexts=["It is in Paris."], answer="It is in Berlin.", judge=judge)
        >>> scores["faithfulness"]
        Score(0, metric='faithfulness', label='fail')

    Args:
        model: the model's name, or that of the deployment.
        mode: "fast" (1 request a call), "careful" (1 + 1 for ten statements), "sentences" (1 a sentence, for small
            models). A longer call than a request of "fast" may be is judged as by "careful", and its scores say so.
        base_url: of the server; None: OPENAI_BASE_URL, or OpenAI's own.
        api_key: None: OPENAI_API_KEY.
        client: function that makes an `AsyncOpenAI` client in place of the two, or any subclass of it, with its own
            address, key, headers and proxies: `client=lambda: openai.AsyncAzureOpenAI(...)`. It is called once for each
            event loop and process, because a client can be used in one only.
        embedder: for metrics that compare embeddings, closed with the judge; None: these are unscored (`no_embedder`).
        gold_checks: mix in statements whose labels are known; None: in "careful", not in "fast".
        max_uncovered: share of the answer's sentences that may be in no statement; over it there are no claims
            (`judge_error`, `coverage`).
        price: US dollars a million tokens; None: the list price of the model, if it is known.
        name: the judge's id.
        limits: time for a call, retries included, calls at a time, and turns of a conversation that it is shown; None:
            those of the environment, or the defaults.
        requests: sizes, time limit and parameters of the requests.

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
        client: ClientMaker | None = None,
        embedder: Embedder | None = None,
        gold_checks: bool | None = None,
        max_uncovered: float = MOST_UNCOVERED,
        price: Price | None = None,
        name: str = "openai",
        limits: JudgeLimits | None = None,
        requests: RequestOptions | None = None,
    ) -> None:
        given: object = requests
        if not isinstance(given, (RequestOptions, type(None))):
            raise SettingsError(
                f"requests= must be a ragtrace.judges.RequestOptions, got {type(given).__name__}: {given!r}; "
                "write requests=ragtrace.judges.RequestOptions(timeout=30)"
            )
        requests = requests or RequestOptions()
        chat = ChatClient(
            model,
            base_url=base_url,
            api_key=api_key,
            client=client,
            timeout=requests.timeout,
            price=price,
            lowest_format=requests.lowest_format,
            max_tokens=requests.max_tokens,
            extra_body=requests.extra_body,
        )
        super().__init__(
            chat,
            name=name,
            mode=mode,
            embedder=embedder,
            gold_checks=gold_checks,
            max_uncovered=max_uncovered,
            requests=requests,
            limits=limits,
        )
