"""Settings of ragtrace: resolved from keyword arguments, environment variables and defaults, and validated.

They are resolved once, in this order. A wrong value stops `configure` with what was wrong, where it came from and what
to write instead; nothing is read from the environment afterwards.
"""

from __future__ import annotations

import logging
import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final, Literal, NamedTuple, TypeAlias, TypeVar, cast

from ragtrace.core.errors import SettingsError, spelling_hint

log = logging.getLogger("ragtrace")
T = TypeVar("T")

CONTENT_VARIABLE: Final = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"
CONTENT_MODES: Final = ("NO_CONTENT", "SPAN_ONLY", "EVENT_ONLY", "SPAN_AND_EVENT")
DIALECTS: Final = ("otel", "openinference", "langfuse")
DEFAULT: Final = "default"
"""Origin of a setting that neither a keyword nor a variable sets."""
_TRUE: Final = frozenset({"1", "true", "yes", "on"})
_FALSE: Final = frozenset({"0", "false", "no", "off", ""})
_REPLICAS: Final = "RAGTRACE_REPLICAS"
_SDK_DISABLED: Final = "OTEL_SDK_DISABLED"
_STABILITY: Final = "OTEL_SEMCONV_STABILITY_OPT_IN"
_LATEST: Final = "gen_ai_latest_experimental"
_LATEST_AND_RELEASED: Final = f"{_LATEST}/dup"
# Variables that other code reads: `Sampling`, an exporter, `ragtrace serve`, the start without code, and (outside the
# library) the test suite and the benchmarks.
_OTHER_VARIABLES: Final = frozenset(
    {_REPLICAS, "RAGTRACE_LABELLED_DATA", "RAGTRACE_REQUIRE_SERVICES", "RAGTRACE_SERVICES_DIR"}
    | {"RAGTRACE_PROMETHEUS_DIR", "RAGTRACE_PROMETHEUS_HOST", "RAGTRACE_PROMETHEUS_PORT", "RAGTRACE_SERVE_TOKEN"}
    | {"RAGTRACE_INSTRUMENT"}
)


GenAIMetrics: TypeAlias = Literal["released", "latest", "both"]
"""Version of the GenAI conventions from which the metrics of inferences take their names."""


@dataclass(frozen=True, slots=True)
class Settings:
    """Values of all scalar settings of ragtrace, resolved and validated.

    Objects (judges, exporters, redaction) go to `configure` itself.
    """

    service: str
    enabled: bool
    exporter: str
    metrics: tuple[str, ...] | None
    """Names of the metrics to compute; None: the default ones among those that the evaluators offer."""
    dialects: tuple[str, ...]
    capture_content: str
    evidence: bool
    hold_seconds: float
    capacity: int
    """Largest number of finished calls that wait for scores; further calls go unscored."""
    queue_bytes: int
    """Largest memory in bytes for calls and spans, from the end of a call to the delivery."""
    judge_timeout: float
    """Seconds that a judge may take for one call."""
    judge_concurrency: int
    judge_turns: int
    """Largest number of earlier turns of a conversation that a judge is shown."""
    max_chars: int
    sample_rate: float
    """Probability in [0, 1] with which the judge judges an ordinary call, where `sampling=` is not given."""
    spool: str = ""
    """Path of the file that keeps the calls not scored at shutdown; empty: such calls are dropped."""
    store: str = ""
    """Path of the history, which keeps every call with its scores; empty: there is no history."""
    store_days: float = 30.0
    """Age in days at which the history deletes a call."""
    store_bytes: int = 1 << 30
    """Largest size of the history in bytes."""
    set_global: bool = False
    """Whether ragtrace's providers become the global OpenTelemetry providers of the process."""
    evaluate_spans: bool = False
    """Whether calls in the spans of other instrumentations are scored, too."""
    baseline: str = ""
    """Path of the file with the baseline of the application's scores; empty: the baseline is kept in memory."""
    baseline_calls: int = 500
    """Number of calls of each workflow from which the baseline is learned."""
    calibration: str = ""
    """Path of the calibration file by which the judge's rates are corrected; empty: rates are not corrected."""
    trace_url: str = ""
    """URL of a trace in the backend's user interface, with `{trace_id}`; empty: alerts have no links."""
    canaries: str = ""
    """Path of the file with canaries, labelled calls that the judge judges again and again; empty: there are none."""
    canary_interval: float = 300.0
    """Mean number of seconds between two judgements of canaries, over all replicas."""
    fleet: str = field(default="", repr=False)
    """URL of the message broker of a fleet of judges, which may contain a password; empty: there is no fleet."""
    genai_metrics: GenAIMetrics = "released"
    origins: Mapping[str, str] = field(default_factory=dict[str, str], compare=False)
    """Origin of each setting by its name: a keyword such as `service=`, an environment variable, or `default`."""


class _RawValue(NamedTuple):
    """Raw value of one setting, and its origin: a keyword argument, an environment variable or the default."""

    raw: object
    origin: str

    def error(self, wanted: str, advice: str) -> SettingsError:
        return SettingsError(f"{wanted}, got {self.raw!r} (from {self.origin}); {advice}")


class _SettingsReader:
    """Reader of raw settings from keyword arguments, environment variables and defaults, in this order."""

    def __init__(self, keywords: Mapping[str, object], environ: Mapping[str, str]) -> None:
        self._keywords, self._environ = keywords, environ
        self.origins: dict[str, str] = {}

    def value(self, name: str, default: object, *variables: str) -> _RawValue:
        own = (f"RAGTRACE_{name.upper()}",) if name else ()
        variable = next((each for each in (*own, *variables) if self._environ.get(each, "") != ""), "")
        value = _RawValue(default, f"the default of {name}=")
        if self._keywords.get(name) is not None:
            value = _RawValue(self._keywords[name], f"{name}=")
        elif variable:
            value = _RawValue(self._environ[variable], variable)
        self.origins[name] = DEFAULT if value.raw is default else value.origin
        return value

    def read(self, name: str, default: object, parse: Callable[[_RawValue], T], *variables: str) -> T:
        return parse(self.value(name, default, *variables))


def resolve_settings(keywords: Mapping[str, object], environ: Mapping[str, str]) -> Settings:
    """Return all settings of ragtrace, read from *keywords* and *environ* and validated.

    Args:
        keywords: what the user passed to `configure`, by name; None counts as not passed.
        environ: the environment.

    Raises:
        SettingsError: for the first wrong value, naming it, its origin and what to write instead.
    """
    source = _SettingsReader(keywords, environ)
    _warn_of_unknown_variables(environ)
    store = source.read("store", "", _path)
    return Settings(
        service=source.read("service", "", _text, "OTEL_SERVICE_NAME"),
        enabled=_enabled(source),
        exporter=source.read("exporter", "otlp", _text),
        metrics=source.read("metrics", None, lambda value: None if value.raw is None else _names_in_list(value)),
        dialects=source.read("dialects", ("otel",), _dialects),
        capture_content=source.read("capture_content", "SPAN_ONLY", _content_mode, CONTENT_VARIABLE),
        evidence=source.read("evidence", False, _flag),
        hold_seconds=source.read("hold_seconds", 10.0, _above_zero),
        capacity=source.read("capacity", 2048, _count),
        queue_bytes=source.read("queue_bytes", 64 << 20, _count),
        judge_timeout=source.read("judge_timeout", 30.0, _above_zero),
        judge_concurrency=source.read("judge_concurrency", 16, _count),
        judge_turns=source.read("judge_turns", 6, _count_or_zero),
        max_chars=source.read("max_chars", 20_000, _count),
        sample_rate=source.read("sample_rate", 0.05, partial(_rate, name="sample_rate")),
        spool=source.read("spool", "", _path),
        store=store,
        store_days=source.read(
            "store_days", 30.0, partial(_above_zero, wanted="expected days above 0", advice="write for instance 30")
        ),
        store_bytes=source.read("store_bytes", 1 << 30, _count),
        set_global=source.read("set_global", False, _flag),
        evaluate_spans=source.read("evaluate_spans", False, _flag),
        baseline=_baseline(source, store),
        baseline_calls=source.read("baseline_calls", 500, _count),
        calibration=source.read("calibration", "", _path),
        trace_url=source.read("trace_url", "", _trace_url),
        canaries=source.read("canaries", "", _path),
        canary_interval=source.read("canary_interval", 300.0, _above_zero),
        fleet=_broker_url(source),
        genai_metrics=_genai_metrics(source),
        origins=source.origins,
    )


def _baseline(source: _SettingsReader, store: str) -> str:
    """Return the path of the file in which the baseline of the application's scores is kept.

    The default is beside the file of the history, if there is a history.
    """
    given = source.value("baseline", None)
    if given.raw is not None:
        return _path(given)
    if not store:
        return ""
    source.origins["baseline"] = source.origins["store"]
    return f"{store}.baseline.json"


def _enabled(source: _SettingsReader) -> bool:
    if _flag(source.value("enabled", True)) is False:
        return False
    # The SDK's own switch turns every signal into a no-op, which leaves no place for scores.
    disabled = _flag(source.value("", False, _SDK_DISABLED))
    del source.origins[""]
    if disabled:
        source.origins["enabled"] = _SDK_DISABLED
    return not disabled


def _genai_metrics(source: _SettingsReader) -> GenAIMetrics:
    """Return the version of the GenAI metric names that OTEL_SEMCONV_STABILITY_OPT_IN asks for.

    The variable is a comma-separated list in which each convention looks for its own values; the other values belong to
    HTTP, databases and others. `/dup` asks for both versions, as it does for HTTP, and takes precedence.
    Source: github.com/open-telemetry/semantic-conventions, docs/gen-ai/gen-ai-metrics.md and docs/http/README.md.
    """
    words = set(_names_in_list(source.value("", "", _STABILITY)))
    source.origins["genai_metrics"] = _STABILITY if {_LATEST, _LATEST_AND_RELEASED} & words else DEFAULT
    del source.origins[""]
    if _LATEST_AND_RELEASED in words:
        return "both"
    return "latest" if _LATEST in words else "released"


def _broker_url(source: _SettingsReader) -> str:
    value = source.value("fleet", "")
    if not isinstance(value.raw, str):  # the message does not show the value, which may contain a password
        raise SettingsError(f"expected the URL of a broker (from {value.origin}); write 'amqp://...' or 'redis://...'")
    return value.raw.strip()


def _text(value: _RawValue) -> str:
    if not isinstance(value.raw, str):
        raise value.error("expected a string", "write a name in quotes")
    return value.raw.strip()


def _path(value: _RawValue) -> str:
    raw = cast("object", os.fspath(cast("str", value.raw))) if hasattr(value.raw, "__fspath__") else value.raw
    if not isinstance(raw, str) or "\0" in raw:
        raise value.error("expected the path of a file", "write for instance '/var/lib/my-app/ragtrace.db'")
    return raw.strip()


def _trace_url(value: _RawValue) -> str:
    url = value.raw
    if isinstance(url, str) and (not url or (url.startswith(("http://", "https://")) and "{trace_id}" in url)):
        return url
    raise value.error(
        "expected an http or https URL with {trace_id} in it",
        "write for instance 'https://phoenix.example.com/redirects/traces/{trace_id}'",
    )


def _flag(value: _RawValue) -> bool:
    if isinstance(value.raw, bool):
        return value.raw
    word = str(value.raw).strip().lower()
    if word in _TRUE or word in _FALSE:
        return word in _TRUE
    raise value.error("expected true or false", "write true or false")


def _number(value: _RawValue) -> float:
    try:
        number = float(value.raw)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        raise value.error("expected a number", "write a number such as 10") from None
    if isinstance(value.raw, bool) or not math.isfinite(number):
        raise value.error("expected a finite number", "write a number such as 10")
    return number


def _above_zero(
    value: _RawValue, wanted: str = "expected seconds above 0", advice: str = "write for instance 10"
) -> float:
    number = _number(value)
    if number <= 0:
        raise value.error(wanted, advice)
    return number


def _count(
    value: _RawValue, wanted: str = "expected a whole number of at least 1", advice: str = "write for instance 2048"
) -> int:
    number = _number(value)
    if number < 1 or number != int(number):
        raise value.error(wanted, advice)
    return int(number)


def _count_or_zero(value: _RawValue) -> int:
    number = _number(value)
    if number < 0 or number != int(number):
        raise value.error("expected a whole number of at least 0", "write for instance 6, or 0 for none")
    return int(number)


def parse_flag(value: object, name: str) -> bool:
    """Parse the *value* of the setting *name* as True or False.

    Raises:
        SettingsError: if it is neither true nor false.
    """
    return _flag(_RawValue(value, f"{name}="))


def parse_rate(value: object, name: str) -> float:
    """Parse the *value* of the setting *name* as a probability from 0 to 1.

    Raises:
        SettingsError: if it is not a number in [0, 1].
    """
    return _rate(_RawValue(value, f"{name}="), name)


def _rate(seen: _RawValue, name: str) -> float:
    number = _number(seen)
    if not 0 <= number <= 1:
        advice = f"for {number:g}% write {number / 100:g}" if 1 < number <= 100 else "write for instance 0.05"
        raise seen.error(f"{name} must be between 0 and 1", advice)
    return number


def parse_amount(value: object, name: str) -> float:
    """Parse the *value* of the setting *name* as a number above 0.

    Raises:
        SettingsError: if it is not a number above 0.
    """
    return _above_zero(_RawValue(value, f"{name}="), f"{name} must be above 0", "leave it out for no limit")


def resolve_replicas(value: object, environ: Mapping[str, str]) -> int:
    """Return how many processes share a budget, from *value*, an environment variable or the default of 1.

    Raises:
        SettingsError: if it is not a whole number of at least 1.
    """
    seen = _SettingsReader({"replicas": value}, environ).value("replicas", 1)
    return _count(seen, "replicas must be a whole number of at least 1", "write how many processes share the budget")


def _names_in_list(value: _RawValue) -> tuple[str, ...]:
    raw = value.raw
    if isinstance(raw, str):
        return tuple(word.strip() for word in raw.split(",") if word.strip())
    if isinstance(raw, Sequence):
        return tuple(str(word) for word in cast("Sequence[object]", raw))
    raise value.error("expected a list of names", "write for instance ['consistency', 'answered'], or 'all'")


def check_known(value: str, known: Sequence[str], what: str, origin: str) -> str:
    """Return *value* if it is one of the *known* names, or raise an error that suggests the most similar name.

    Raises:
        SettingsError: with the nearest known name, if any, and all of them.
    """
    if value in known:
        return value
    raise SettingsError(f"no {what} named {value!r} (from {origin}){spelling_hint(value, known)}")


def _dialects(value: _RawValue) -> tuple[str, ...]:
    words = _names_in_list(value)
    if not words:
        raise value.error("expected at least one dialect", f"known: {', '.join(DIALECTS)}")
    return tuple(check_known(word, DIALECTS, "dialect", value.origin) for word in words)


def _content_mode(value: _RawValue) -> str:
    word = _text(value).upper()
    # Older instrumentations read the same variable as a yes-or-no switch.
    legacy = {"TRUE": "SPAN_ONLY", "FALSE": "NO_CONTENT"}
    return check_known(legacy.get(word, word), CONTENT_MODES, "content-capture mode", value.origin)


def _warn_of_unknown_variables(environ: Mapping[str, str]) -> None:
    names = (name for name in Settings.__dataclass_fields__ if name not in ("origins", "genai_metrics"))
    known = {f"RAGTRACE_{name.upper()}" for name in names} | _OTHER_VARIABLES
    for variable in environ:
        if variable.startswith("RAGTRACE_") and variable not in known:
            import difflib  # slow to import, and needed only for a misspelled name

            near = difflib.get_close_matches(variable, known, n=1)
            hint = f"; did you mean {near[0]}?" if near else ""
            log.warning("environment variable %s means nothing to ragtrace%s", variable, hint)
