"""`python -m docs.make_configuration`: writes the table in docs/configuration.md anew, from the declared settings."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

import ragtrace
from ragtrace.core.settings import SETTINGS, Setting
from ragtrace.core.slice_table import features_with_settings

PAGE: Final = Path(__file__).with_name("configuration.md")
_HEAD: Final = "| Argument | Variable | Default | Meaning |\n|---|---|---|---|\n"


class Row(NamedTuple):
    """Row of the table about an argument that has no environment variable."""

    argument: str
    default: str
    meaning: str


_OBJECTS: Final = (
    Row("screen", "`EmbeddedJudge()`", "judge that sees every call; None: off"),
    Row("judge", "none", "judge that sees a [sample](sampling-and-estimates.md) of the calls"),
    Row(
        "sampling",
        "`Sampling()`",
        "which calls the judge sees; `RAGTRACE_REPLICAS` (1) is the number of processes that share its budgets",
    ),
    Row(
        "redact",
        "texts are only cut to `Limits(max_chars=)`",
        "[`ragtrace.Redact`](decorators.md#content): patterns that are removed from texts before they reach spans, "
        "events and judges",
    ),
    Row("alerts", "none", "[alerts](alerts-and-dashboards.md), and `ragtrace.Canaries`"),
    Row("limits", "`Limits()`", "how much is kept in memory, and how long for: the rows of `Limits`"),
    Row("telemetry", "`TelemetryOptions()`", "providers and attributes of spans: the rows of `TelemetryOptions`"),
)
_PROVIDERS: Final = Row(
    "TelemetryOptions(tracer_provider=, meter_provider=, logger_provider=)",
    "those of the process, or ragtrace's own",
    "[providers of your own](providers-and-servers.md)",
)
_STABILITY: Final = (
    "| | `OTEL_SEMCONV_STABILITY_OPT_IN` | none | [names of the GenAI metrics](#names-of-the-genai-metrics): "
    "`gen_ai_latest_experimental`, `gen_ai_latest_experimental/dup` |\n"
)


def render(page: str) -> str:
    """Return the text of *page*, docs/configuration.md, with its table written anew."""
    before, _, rest = page.partition(_HEAD)
    after = rest.partition("\n\n")[2]
    return before + _HEAD + "".join(_rows()) + _STABILITY + "\n" + after


def _rows() -> Iterator[str]:
    """Yield the rows of the arguments of `configure`, in order, and then those of the options."""
    settings = {each.name: each for each in SETTINGS}
    objects = {each.argument: each for each in _OBJECTS}
    for argument, parameter in inspect.signature(ragtrace.configure).parameters.items():
        if parameter.kind == inspect.Parameter.VAR_KEYWORD:
            continue
        yield _of_setting(settings[argument]) if argument in settings else _of_object(objects[argument])
    of_features = [each for feature in features_with_settings() for each in feature.settings]
    options = [each for each in (*SETTINGS, *of_features) if each.keyword]
    for setting in sorted(options, key=lambda each: each.keyword.partition("(")[0]):
        yield _of_setting(setting)
    yield _of_object(_PROVIDERS)


def _of_setting(setting: Setting) -> str:
    variables = ", ".join(f"`{name}`" for name in setting.all_variables)
    argument = setting.keyword or setting.name
    return f"| `{argument}` | {variables} | {_default(setting)} | {setting.meaning} |\n"


def _of_object(row: Row) -> str:
    return f"| `{row.argument}` | | {row.default} | {row.meaning} |\n"


def _default(setting: Setting) -> str:
    """Return the default of *setting* as the table shows it."""
    default = setting.default
    if setting.shown_default or default in ("", None):
        return setting.shown_default or "none"
    if isinstance(default, bool):
        return str(default).lower()
    if isinstance(default, int | float):
        return f"{default:g}" if isinstance(default, float) else str(default)
    return ", ".join(f"`{each}`" for each in ([default] if isinstance(default, str) else list(default)))  # type: ignore[call-overload]


if __name__ == "__main__":
    PAGE.write_text(render(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
