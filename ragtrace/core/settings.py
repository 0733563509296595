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
from typing import Any, Final, Literal, NamedTuple, TypeAlias, cast

from ragtrace.core.errors import SettingsError, spelling_hint
from ragtrace.core.options import JudgeLimits, field_names
from ragtrace.core.slice_table import features_with_settings

log = logging.getLogger("ragtrace")

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
# Variables that other code reads: `Sampling`, an exporter, `ragtrace serve`, `ragtrace worker`, the start without code,
# and (outside the library) the test suite and the benchmarks.
_OTHER_VARIABLES: Final = frozenset(
    {_REPLICAS, "RAGTRACE_LABELLED_DATA", "RAGTRACE_REQUIRE_SERVICES", "RAGTRACE_SERVICES_DIR"}
    | {"RAGTRACE_PROMETHEUS_HOST", "RAGTRACE_PROMETHEUS_PORT", "RAGTRACE_SERVE_TOKEN", "RAGTRACE_FLEET_STORE"}
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


class RawValue(NamedTuple):
    """Raw value of one setting, and its origin: a keyword argument, an environment variable or the default."""

    raw: object
    origin: str

    def error(self, wanted: str, advice: str) -> SettingsError:
        """Return the error that says what was *wanted*, what was given and from where, and the *advice*."""
        return SettingsError(f"{wanted}, got {self.raw!r} (from {self.origin}); {advice}")


class Setting(NamedTuple):
    """Declaration of one setting: where its value comes from, how it is validated, and what its documentation says.

    Its environment variable is `RAGTRACE_` and its name in capitals.
    """

    name: str
    """Field of `Settings`."""
    default: object
    parse: Callable[[RawValue], object]
    meaning: str
    """What it is, in Markdown, for docs/configuration.md."""
    keyword: str = ""
    """How it is written in Python, such as `Limits(capacity=)`; empty: as the argument of `configure` with its name."""
    shown_default: str = ""
    """Default as the documentation shows it; empty: the value."""
    variables: tuple[str, ...] = ()
    """Environment variables that are read after its own."""

    @property
    def written(self) -> str:
        """How the setting is written in Python."""
        return self.keyword or f"{self.name}="

    @property
    def all_variables(self) -> tuple[str, ...]:
        """Its environment variables, in the order in which they are looked for."""
        return (f"RAGTRACE_{self.name.upper()}", *self.variables)


class _SettingsReader:
    """Reader of raw settings from keyword arguments, environment variables and defaults, in this order."""

    def __init__(self, keywords: Mapping[str, object], environ: Mapping[str, str]) -> None:
        self._keywords, self._environ = keywords, environ
        self.origins: dict[str, str] = {}

    def read(self, setting: Setting) -> object:
        name = setting.name
        value = RawValue(setting.default, f"the default of {setting.written}")
        self.origins[name] = DEFAULT
        given = [each for each in setting.all_variables if self._environ.get(each, "") != ""]
        if self._keywords.get(name) is not None:
            value = RawValue(self._keywords[name], setting.written)
            self.origins[name] = setting.written
        elif given:
            value = RawValue(self._environ[given[0]], given[0])
            self.origins[name] = given[0]
        return setting.parse(value)

    def variable(self, name: str, default: object) -> RawValue:
        """Return the value of the environment variable *name*, or *default* if it is not set."""
        return RawValue(self._environ.get(name, "") or default, name)


def resolve_settings(keywords: Mapping[str, object], environ: Mapping[str, str]) -> Settings:
    """Return all settings of ragtrace, read from *keywords* and *environ* and validated.

    Args:
        keywords: what the user passed to `configure`, by the name of the setting; None counts as not passed.
        environ: the environment.

    Raises:
        SettingsError: for the first wrong value, naming it, its origin and what to write instead.
    """
    source = _SettingsReader(keywords, environ)
    _warn_of_unknown_variables(environ)
    values: dict[str, Any] = {each.name: source.read(each) for each in SETTINGS}
    if values["baseline"] == "" and values["store"] and source.origins["baseline"] == DEFAULT:
        values["baseline"] = f"{values['store']}.baseline.json"
        source.origins["baseline"] = source.origins["store"]
    # The SDK's own switch turns every signal into a no-op, which leaves no place for scores.
    if values["enabled"] and _flag(source.variable(_SDK_DISABLED, False)):
        values["enabled"] = False
        source.origins["enabled"] = _SDK_DISABLED
    return Settings(**values, genai_metrics=_genai_metrics(source), origins=source.origins)


def limits_of(judge: object) -> JudgeLimits:
    """Return the limits that *judge* has, or limits that set nothing.

    Raises:
        SettingsError: its attribute `limits` is something else.
    """
    limits = getattr(judge, "limits", None)
    if limits is None:
        return JudgeLimits()
    if not isinstance(limits, JudgeLimits):
        raise SettingsError(
            f"the limits of a judge must be a ragtrace.JudgeLimits, got {type(limits).__name__} (from "
            f"{type(judge).__name__}.limits); write limits = ragtrace.JudgeLimits(timeout=10)"
        )
    return limits


def resolve_judge_limits(limits: JudgeLimits, environ: Mapping[str, str]) -> dict[str, Any]:
    """Return the settings `judge_timeout`, `judge_concurrency` and `judge_turns` of a judge with these *limits*.

    Raises:
        SettingsError: one of them is wrong.
    """
    source = _SettingsReader(judge_settings(limits), environ)
    return {each.name: source.read(each) for each in SETTINGS if each.name in judge_settings(limits)}


def resolve_options(settings: Sequence[Setting], option: object, environ: Mapping[str, str]) -> dict[str, Any]:
    """Return the values of the *settings* of a feature, by the field of its option class.

    Args:
        settings: the settings; the `keyword` of each names its field.
        option: object with these fields, of which those that are None are not given; None: nothing is given.
        environ: the environment.

    Raises:
        SettingsError: one of them is wrong.
    """
    names = {each.name: each.keyword.partition("(")[2].rstrip("=)") for each in settings}
    given = {} if option is None else {name: getattr(option, field) for name, field in names.items()}
    source = _SettingsReader(given, environ)
    return {names[each.name]: source.read(each) for each in settings}


def judge_settings(limits: JudgeLimits) -> dict[str, object]:
    """Return the fields of *limits* by the names of their settings."""
    return {f"judge_{name}": getattr(limits, name) for name in field_names(JudgeLimits)}


def _genai_metrics(source: _SettingsReader) -> GenAIMetrics:
    """Return the version of the GenAI metric names that OTEL_SEMCONV_STABILITY_OPT_IN asks for.

    The variable is a comma-separated list in which each convention looks for its own values; the other values belong to
    HTTP, databases and others. `/dup` asks for both versions, as it does for HTTP, and takes precedence.
    Source: github.com/open-telemetry/semantic-conventions, docs/gen-ai/gen-ai-metrics.md and docs/http/README.md.
    """
    words = set(names_in_list(source.variable(_STABILITY, "")))
    source.origins["genai_metrics"] = _STABILITY if {_LATEST, _LATEST_AND_RELEASED} & words else DEFAULT
    if _LATEST_AND_RELEASED in words:
        return "both"
    return "latest" if _LATEST in words else "released"


def _broker_url(value: RawValue) -> str:
    if not isinstance(value.raw, str):  # the message does not show the value, which may contain a password
        raise SettingsError(f"expected the URL of a broker (from {value.origin}); write 'amqp://...' or 'redis://...'")
    return value.raw.strip()


def _text(value: RawValue) -> str:
    if not isinstance(value.raw, str):
        raise value.error("expected a string", "write a name in quotes")
    return value.raw.strip()


def _path(value: RawValue) -> str:
    raw = cast("object", os.fspath(cast("str", value.raw))) if hasattr(value.raw, "__fspath__") else value.raw
    if not isinstance(raw, str) or "\0" in raw:
        raise value.error("expected the path of a file", "write for instance '/var/lib/my-app/ragtrace.db'")
    return raw.strip()


def _trace_url(value: RawValue) -> str:
    url = value.raw
    if isinstance(url, str) and (not url or (url.startswith(("http://", "https://")) and "{trace_id}" in url)):
        return url
    raise value.error(
        "expected an http or https URL with {trace_id} in it",
        "write for instance 'https://phoenix.example.com/redirects/traces/{trace_id}'",
    )


def _flag(value: RawValue) -> bool:
    if isinstance(value.raw, bool):
        return value.raw
    word = str(value.raw).strip().lower()
    if word in _TRUE or word in _FALSE:
        return word in _TRUE
    raise value.error("expected true or false", "write true or false")


def _number(value: RawValue) -> float:
    try:
        number = float(value.raw)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        raise value.error("expected a number", "write a number such as 10") from None
    if isinstance(value.raw, bool) or not math.isfinite(number):
        raise value.error("expected a finite number", "write a number such as 10")
    return number


def _above_zero(
    value: RawValue, wanted: str = "expected seconds above 0", advice: str = "write for instance 10"
) -> float:
    number = _number(value)
    if number <= 0:
        raise value.error(wanted, advice)
    return number


def _count(
    value: RawValue, wanted: str = "expected a whole number of at least 1", advice: str = "write for instance 2048"
) -> int:
    number = _number(value)
    if number < 1 or number != int(number):
        raise value.error(wanted, advice)
    return int(number)


def whole_number(least: int, most: int) -> Callable[[RawValue], int]:
    """Return the parser of a setting that is a whole number from *least* to *most*."""

    def parse(value: RawValue) -> int:
        number = _number(value)
        if not least <= number <= most or number != int(number):
            raise value.error(f"expected a whole number from {least} to {most}", f"write for instance {least}")
        return int(number)

    return parse


def _count_or_zero(value: RawValue) -> int:
    number = _number(value)
    if number < 0 or number != int(number):
        raise value.error("expected a whole number of at least 0", "write for instance 6, or 0 for none")
    return int(number)


def parse_flag(value: object, name: str) -> bool:
    """Parse the *value* of the setting *name* as True or False.

    Raises:
        SettingsError: if it is neither true nor false.
    """
    return _flag(RawValue(value, f"{name}="))


def parse_rate(value: object, name: str) -> float:
    """Parse the *value* of the setting *name* as a probability from 0 to 1.

    Raises:
        SettingsError: if it is not a number in [0, 1].
    """
    return _rate(RawValue(value, f"{name}="), name)


def _rate(seen: RawValue, name: str) -> float:
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
    return _above_zero(RawValue(value, f"{name}="), f"{name} must be above 0", "leave it out for no limit")


def resolve_replicas(value: object, environ: Mapping[str, str]) -> int:
    """Return how many processes share a budget, from *value*, an environment variable or the default of 1.

    Raises:
        SettingsError: if it is not a whole number of at least 1.
    """
    parse = partial(
        _count,
        wanted="replicas must be a whole number of at least 1",
        advice="write how many processes share the budget",
    )
    setting = Setting("replicas", 1, parse, "processes that share the budgets")
    return cast("int", _SettingsReader({"replicas": value}, environ).read(setting))


def names_in_list(value: RawValue) -> tuple[str, ...]:
    """Return the names in a setting that is a list of names, or a text with commas between them.

    Raises:
        SettingsError: it is something else.
    """
    raw = value.raw
    if isinstance(raw, str):
        return tuple(word.strip() for word in raw.split(",") if word.strip())
    if isinstance(raw, Sequence):
        return tuple(str(word) for word in cast("Sequence[object]", raw))
    raise value.error("expected a list of names", "write for instance ['consistency', 'answered'], or 'all'")


def _metric_names(value: RawValue) -> tuple[str, ...] | None:
    return None if value.raw is None else names_in_list(value)


def check_known(value: str, known: Sequence[str], what: str, origin: str) -> str:
    """Return *value* if it is one of the *known* names, or raise an error that suggests the most similar name.

    Raises:
        SettingsError: with the nearest known name, if any, and all of them.
    """
    if value in known:
        return value
    raise SettingsError(f"no {what} named {value!r} (from {origin}){spelling_hint(value, known)}")


def _dialects(value: RawValue) -> tuple[str, ...]:
    words = names_in_list(value)
    if not words:
        raise value.error("expected at least one dialect", f"known: {', '.join(DIALECTS)}")
    return tuple(check_known(word, DIALECTS, "dialect", value.origin) for word in words)


def _content_mode(value: RawValue) -> str:
    word = _text(value).upper()
    # Older instrumentations read the same variable as a yes-or-no switch.
    legacy = {"TRUE": "SPAN_ONLY", "FALSE": "NO_CONTENT"}
    return check_known(legacy.get(word, word), CONTENT_MODES, "content-capture mode", value.origin)


_OBJECT_NAMES = "the name of a [backend](backends.md), a `SpanExporter`, or `ragtrace.types.Signals`"
SETTINGS: Final = (
    Setting(
        "service",
        "",
        _text,
        meaning="name of the application (`service.name`)",
        variables=("OTEL_SERVICE_NAME",),
    ),
    Setting(
        "enabled",
        True,
        _flag,
        meaning="false: decorated functions run as if undecorated; also off with `OTEL_SDK_DISABLED=true`",
    ),
    Setting(
        "exporter",
        "otlp",
        _text,
        meaning=f"`otlp`, `console` (one line a call), `console-full`, `none`, {_OBJECT_NAMES}",
    ),
    Setting(
        "metrics",
        None,
        _metric_names,
        meaning="names or `ragtrace.metrics.Metric` objects; `all`: every metric that costs no further judge call",
        shown_default="`hallucinated`, `faithfulness`, `answer_relevancy`, `context_relevance`, `answered`, "
        "`answered_without_context`, `consistency`, `suspicious`, as far as screen and judge give them; metrics"
        " of your own; metrics that an alert watches",
    ),
    Setting(
        "dialects",
        ("otel",),
        _dialects,
        meaning="attribute conventions on the spans: `otel`, `openinference`, `langfuse`",
        keyword="TelemetryOptions(dialects=)",
    ),
    Setting(
        "capture_content",
        "SPAN_ONLY",
        _content_mode,
        meaning="`NO_CONTENT`, `SPAN_ONLY`, `EVENT_ONLY`, `SPAN_AND_EVENT`",
        variables=(CONTENT_VARIABLE,),
    ),
    Setting(
        "evidence",
        False,
        _flag,
        meaning="unsupported statements on the root span",
        keyword="TelemetryOptions(evidence=)",
    ),
    Setting(
        "hold_seconds",
        10.0,
        _above_zero,
        meaning="longest time a root span waits for its scores",
        keyword="Limits(hold_seconds=)",
    ),
    Setting(
        "capacity",
        2048,
        _count,
        meaning="finished calls that may wait for the screen; the same number again may wait for the judge",
        keyword="Limits(capacity=)",
    ),
    Setting(
        "queue_bytes",
        64 << 20,
        _count,
        meaning="memory that waiting calls and their spans may take until they are delivered",
        keyword="Limits(queue_bytes=)",
        shown_default="64 MiB",
    ),
    Setting(
        "judge_timeout",
        30.0,
        _above_zero,
        meaning="seconds a judge has for a call, waiting and retries included",
        keyword="JudgeLimits(timeout=)",
    ),
    Setting(
        "judge_concurrency",
        16,
        _count,
        meaning="calls a judge sees at a time",
        keyword="JudgeLimits(concurrency=)",
    ),
    Setting(
        "judge_turns",
        6,
        _count_or_zero,
        meaning="most [earlier turns of the conversation](judges.md#conversations) that a judge is shown; 0: none",
        keyword="JudgeLimits(turns=)",
    ),
    Setting(
        "max_chars",
        20_000,
        _count,
        meaning="characters kept of any one text, where `redact` is not given",
        keyword="Limits(max_chars=)",
    ),
    Setting(
        "sample_rate",
        0.05,
        partial(_rate, name="sample_rate"),
        meaning="probability with which the judge sees an ordinary call, where `sampling` is not given",
        keyword="Sampling(rate=)",
    ),
    Setting(
        "spool",
        "",
        _path,
        meaning="file that keeps [calls not scored at the end](operations.md#restarts-the-spool)",
        keyword="Limits(spool=)",
    ),
    Setting(
        "store",
        "",
        _path,
        meaning="file that keeps the [history](history-and-report.md), or a `ragtrace.History`",
    ),
    Setting(
        "store_days",
        30.0,
        partial(_above_zero, wanted="expected days above 0", advice="write for instance 30"),
        meaning="age in days at which a call leaves the history",
        keyword="History(days=)",
    ),
    Setting(
        "store_bytes",
        1 << 30,
        _count,
        meaning="size of the history; the oldest calls go first",
        keyword="History(bytes=)",
        shown_default="1 GiB",
    ),
    Setting(
        "set_global",
        False,
        _flag,
        meaning="make ragtrace's providers those of the process",
        keyword="TelemetryOptions(set_global=)",
    ),
    Setting(
        "evaluate_spans",
        False,
        _flag,
        meaning="score the calls in the spans of other instrumentations, too",
    ),
    Setting(
        "baseline",
        "",
        _path,
        meaning="file that keeps the [baseline](alerts-and-dashboards.md#baseline), a `ragtrace.BaselineLearning`, or a"
        " `ragtrace.types.Baseline`",
        shown_default="a file next to that of `store`, if `store` is set; else none",
    ),
    Setting(
        "baseline_calls",
        500,
        _count,
        meaning="scored calls of each workflow that a baseline is learned from",
        keyword="BaselineLearning(calls=)",
    ),
    Setting(
        "calibration",
        "",
        _path,
        meaning="[calibration file](calibration.md#the-calibration-file), by which the judge's rates are corrected",
    ),
    Setting(
        "trace_url",
        "",
        _trace_url,
        meaning="address of a trace in your backend, with `{trace_id}`: notices link to the calls",
        keyword="TelemetryOptions(trace_url=)",
    ),
    Setting(
        "canaries",
        "",
        _path,
        meaning="file of labelled calls that [show whether the judge drifts](calibration.md#canaries-does-the-judge-"
        "drift); a `ragtrace.Canaries` among the `alerts`",
        keyword="Canaries(path=)",
    ),
    Setting(
        "canary_interval",
        300.0,
        _above_zero,
        meaning="mean seconds between two judgements of canaries, over all replicas",
        keyword="Canaries(interval=)",
    ),
    Setting(
        "fleet",
        "",
        _broker_url,
        meaning="URL of a broker (`amqp://`, `amqps://`, `redis://`, `rediss://`): sampled calls are judged by [a "
        "fleet](scale.md#a-fleet-of-judges); no `judge` then",
    ),
)
"""All settings that have an environment variable."""


def _warn_of_unknown_variables(environ: Mapping[str, str]) -> None:
    known = {each.all_variables[0] for each in SETTINGS} | _OTHER_VARIABLES
    for variable in environ:
        if variable.startswith("RAGTRACE_") and variable not in known:
            known |= {each.all_variables[0] for feature in features_with_settings() for each in feature.settings}
            if variable in known:
                continue
            import difflib  # slow to import, and needed only for a misspelled name

            near = difflib.get_close_matches(variable, known, n=1)
            hint = f"; did you mean {near[0]}?" if near else ""
            log.warning("environment variable %s means nothing to ragtrace%s", variable, hint)
