"""Options of `configure` that belong together, as objects: history, limits, telemetry, baseline, canaries, judges.

A field that is left out, or None, is read from its environment variable or has its default; docs/configuration.md lists
all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import wraps
from typing import TYPE_CHECKING, Any, Final, ParamSpec, TypeVar

from ragtrace.core.errors import spelling_hint

if TYPE_CHECKING:
    import os
    from types import CodeType

    from opentelemetry._logs import LoggerProvider
    from opentelemetry.metrics import MeterProvider
    from opentelemetry.trace import TracerProvider

P = ParamSpec("P")
R = TypeVar("R")
C = TypeVar("C", bound=type)


def suggests_keywords(
    function: Callable[P, R],
    name: str = "",
    moved: Mapping[str, str] | None = None,
    further: Callable[[], Sequence[str]] = tuple,
) -> Callable[P, R]:
    """Make a call of *function* with an unknown keyword suggest the right one in its TypeError.

    Args:
        function: a function or method written in Python.
        name: name of the function in the message; empty: its own.
        moved: what to write instead of some unknown keywords, by keyword; for others the most similar is suggested.
        further: returns keywords that the function takes beside those in its signature; asked for an unknown one.
    """

    @wraps(function)
    def checked(*args: P.args, **kwargs: P.kwargs) -> R:
        code: CodeType = getattr(function, "__code__")  # noqa: B009 - a Callable need not have one, a function does
        known = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
        for keyword in kwargs:
            if keyword not in known and keyword not in (others := further()):
                problem = f"{name or function.__name__}() got an unexpected keyword argument {keyword!r}"
                instead = (moved or {}).get(keyword)
                hint = (
                    f"; write {instead}"
                    if instead
                    else spelling_hint(keyword, [each for each in (*known, *others) if each != "self"])
                )
                raise TypeError(f"{problem}{hint}")
        return function(*args, **kwargs)

    return checked


def option(cls: C) -> C:
    """Make the constructor of an option class suggest the right keyword for an unknown one."""
    cls.__init__ = suggests_keywords(cls.__init__, cls.__name__)  # type: ignore[misc]
    return cls


@option
@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Limits of what ragtrace keeps in memory, of how long it waits, and of how much text it reads.

    Examples:
        >>> ragtrace.configure(exporter="none", limits=ragtrace.Limits(hold_seconds=5, spool="unscored.db"))
    """

    capacity: int | None = None
    """Finished calls that may wait to be scored, and as many more that may wait for the judge; what exceeds it is
    counted as dropped. Default 2048."""
    queue_bytes: int | None = None
    """Memory in bytes that these and their spans may take until they are delivered; what would take more is counted as
    dropped. Default 64 MiB. The process may grow by more than twice that, as the allocator keeps what is freed: by 135
    to 150 MiB at the default, in an overload with texts of 20,000 characters."""
    hold_seconds: float | None = None
    """Longest time in seconds for which a root span waits for its scores. Default 10."""
    max_chars: int | None = None
    """Characters of any one text that are kept, where `redact=` is not given. Default 20,000."""
    spool: str | os.PathLike[str] | None = None
    """File that keeps the calls which were not scored when the process ended (an SQLite database; it holds their
    redacted texts, and several processes may share it): the next process with that file scores them, as soon as it sees
    a call of its own or a `flush`. At most 10,000 calls and 64 MiB. In the accounts such a call is dropped for the
    reason "spooled" here, and offered anew there. Delivery is at least once: a call whose scores are not known to be
    delivered when its process ends is scored and sent again, with the same score ids. Default: none is kept."""


@option
@dataclass(frozen=True, slots=True, kw_only=True)
class TelemetryOptions:
    """Options for OpenTelemetry: providers of your own, the attributes on spans, and where to look at a trace.

    Examples:
        >>> telemetry = ragtrace.TelemetryOptions(evidence=True, dialects=["otel", "openinference"])
        >>> ragtrace.configure(exporter="none", telemetry=telemetry)
    """

    tracer_provider: TracerProvider | None = None
    """Your own provider; wrap its exporting processor in `HoldProcessor` to get scores on spans."""
    meter_provider: MeterProvider | None = None
    """Your own provider of metrics."""
    logger_provider: LoggerProvider | None = None
    """Your own provider of logs, which carries the evaluation events."""
    set_global: bool | None = None
    """Whether ragtrace's own providers become those of the process, so that other instrumentations (HTTP, database,
    OpenInference) send to the same backend. Default False: they are left alone, and an application may set its
    providers before or after."""
    dialects: Sequence[str] | None = None
    """Attribute conventions of the spans, one or several of "otel" (default), "openinference", "langfuse"."""
    evidence: bool | None = None
    """Whether the unsupported claims are put on the root span, too. Default False."""
    trace_url: str | None = None
    """Address of a trace in your backend's user interface, with `{trace_id}` where the id goes; alerts then link to the
    worst calls. Default: they show the ids alone."""


@option
@dataclass(frozen=True, slots=True)
class History:
    """History of all calls with their scores in one file, for `ragtrace report`.

    Examples:
        >>> ragtrace.configure(exporter="none", store=ragtrace.History("calls.db", days=90))
    """

    path: str | os.PathLike[str] | None = None
    """File on a local disk (an SQLite database; several processes may share it)."""
    days: float | None = None
    """Age in days at which a call is deleted from it. Default 30. A clock that jumps ahead by more than a day is
    believed after a day."""
    bytes: int | None = None
    """Size that it may have; the oldest calls go first. Default 1 GiB."""


@option
@dataclass(frozen=True, slots=True)
class BaselineLearning:
    """How the baseline of the application's scores is learned, and the file that keeps it.

    Examples:
        >>> ragtrace.configure(exporter="none", baseline=ragtrace.BaselineLearning("baseline.json", calls=1000))
    """

    path: str | os.PathLike[str] | None = None
    """File that keeps the baseline (JSON; several processes may share it, and learn together)."""
    calls: int | None = None
    """Scored calls of each workflow that a baseline is learned from. Default 500."""


@option
@dataclass(frozen=True, slots=True)
class Canaries:
    """Labelled calls that the judge judges again and again, so that an alert says when it begins to judge otherwise.

    They are judged at random times and within the judge's budget. With a history, what was seen is kept there for later
    processes.

    Examples:
        >>> canaries = ragtrace.Canaries("canaries.jsonl", interval=600)  # written by `ragtrace labels export`
        >>> judge = ragtrace.testing.FakeJudge(ragtrace.Judgement(claims=(), answer_label="declined"))  # or yours
        >>> ragtrace.configure(exporter="none", judge=judge, metrics=["hallucination"], alerts=[canaries])
        >>> [each.metric for each in ragtrace.doctor(probe=False).canaries.agreements]
        ['hallucination']
    """

    path: str | os.PathLike[str] | None = None
    """File of labelled calls (JSON lines, as `ragtrace labels export` writes them; at least 30 of each metric, labelled
    bad and good)."""
    interval: float | None = None
    """Mean seconds between two of these judgements, over all replicas. Default 300."""


@option
@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeLimits:
    """Limits of a judge, wherever it is asked: time for a call, calls at a time, and turns that it is shown.

    A judge has them as its attribute `limits`: `OpenAIJudge(..., limits=JudgeLimits(timeout=10))`, or an attribute of a
    class of your own.

    Examples:
        >>> limits = ragtrace.JudgeLimits(timeout=10, concurrency=32)
        >>> judge = ragtrace.OpenAIJudge("gpt-4o-mini", api_key="...", limits=limits)
    """

    timeout: float | None = None
    """Seconds that the judge has for a call, waiting and retries included. Default 30; offline 120."""
    concurrency: int | None = None
    """Calls that the judge sees at a time. Default 16."""
    turns: int | None = None
    """Most earlier turns of the conversation (messages of user and assistant) that the judge is shown to understand the
    query; 0: none. Together they have at most 4,000 characters. Default 6."""


OPTIONS: Final[Mapping[str, type[Any]]] = {
    "limits": Limits,
    "telemetry": TelemetryOptions,
    "store": History,
    "baseline": BaselineLearning,
    "canaries": Canaries,
}
"""Classes of option objects, by the argument of `configure`, or key of a configuration file, that takes them."""


def field_names(kind: type[Any]) -> tuple[str, ...]:
    """Return the names of the fields of an option class, in order."""
    return tuple(each.name for each in fields(kind))
