"""Exceptions that ragtrace or its judges raise."""

from __future__ import annotations

from collections.abc import Sequence


class RagtraceError(Exception):
    """Base class of the errors that ragtrace raises.

    Examples:
        >>> try:
        ...     ragtrace.configure(exporter="no-such-backend")
        ... except ragtrace.RagtraceError as error:
        ...     print(type(error).__name__)
        SettingsError
    """


class SettingsError(RagtraceError, ValueError):
    """Raised for a wrong setting; the message says what was wrong, where it came from and what to write instead.

    Examples:
        >>> try:
        ...     ragtrace.Sampling(rate=50)
        ... except ragtrace.SettingsError as error:
        ...     print(error)
        rate must be between 0 and 1, got 50 (from rate=); for 50% write 0.5
    """


class UnknownMetricError(SettingsError):
    """Raised for an unknown name of a metric; the message lists similar names and all known ones.

    Examples:
        >>> try:
        ...     ragtrace.score(answer="In Paris.", metrics=["faithfullness"])
        ... except ragtrace.metrics.UnknownMetricError as error:
        ...     print(error)
        no metric named 'faithfullness'; did you mean 'faithfulness'? known: hallucinated, faithfulness, ...
    """


class JudgeError(RagtraceError):
    """Raised by a judge that failed to judge a call; `reason` says why, in one word.

    The reasons are the `judge_error` reasons in `ragtrace.core.unscored_reasons`. Any other reason counts as
    "unavailable".

    Examples:
        >>> failure = ragtrace.judges.JudgeError("unavailable", "the model is being loaded")
        >>> judge = ragtrace.testing.FakeJudge(failure)
        >>> ragtrace.score(contexts=["The tower is in Paris."], answer="In Paris.", judge=judge)["faithfulness"]
        Unscored('unavailable', metric='faithfulness')

    Args:
        reason: "unavailable", "timeout", "refused" ...
        detail: what was seen, for diagnosis.
        retry_after: seconds in which the judge wants to be left alone (its Retry-After); no call of the process is put
            to it before. Zero or less: no pause is asked for.
        retryable: whether the same call may go well a moment later; default: if `retry_after` is given, or the reason
            is "unavailable" or "timeout".
        n_calls: requests made to the model before it failed.
        input_tokens: tokens those read.
        output_tokens: tokens those wrote.
        cost_usd: what those cost in US dollars; None: not known.
    """

    def __init__(
        self,
        reason: str,
        detail: str = "",
        *,
        retry_after: float | None = None,
        retryable: bool | None = None,
        n_calls: int = 0,
        input_tokens: int = 0,
        output_tokens: int = 0,
        cost_usd: float | None = None,
    ) -> None:
        super().__init__(f"{reason}: {detail}" if detail else reason)
        self.reason = reason
        self.detail = detail
        # Zero and less is no pause: without one, tries are counted and the circuit breaker is told.
        self.retry_after = retry_after if retry_after is not None and retry_after > 0 else None
        passing = retry_after is not None or reason in ("unavailable", "timeout")
        self.retryable = passing if retryable is None else retryable
        self.n_calls, self.input_tokens, self.output_tokens = n_calls, input_tokens, output_tokens
        self.cost_usd = cost_usd
        self.deferred = False
        """Whether the failure says nothing about the call: the judge asked for a pause, or got no request."""


def spelling_hint(name: str, known: Sequence[str], label: str = "known") -> str:
    """Return the end of an error message about an unknown *name*: the most similar known name, and all known names."""
    import difflib  # slow to import, and needed only for a misspelled name

    near = difflib.get_close_matches(name, known, n=1)
    return f"; {f'did you mean {near[0]!r}? ' if near else ''}{label}: {', '.join(known) or 'none'}"
