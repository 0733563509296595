"""Configuration file of the gateway, in TOML, with the arguments of `ragtrace.configure`."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, cast

import ragtrace
from ragtrace.core.errors import SettingsError
from ragtrace.core.options import OPTIONS, JudgeLimits
from ragtrace.core.price import Price
from ragtrace.core.settings import check_known
from ragtrace.judges import DecisionJudge, RequestOptions
from ragtrace.offline.judge_spec import judge_from_spec

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

_OF_A_PROCESS: Final = frozenset(
    {"tracer_provider", "meter_provider", "logger_provider", "set_global", "evaluate_spans"}
)
"""Arguments and options of `configure` that only concern the spans of an application's own process."""
_CANARIES: Final = "canaries"
_NO_SPEC: Final = "none"
_SECRETS: Final = frozenset({"api_key"})


def read_config(path: Path, *, broker: str | None = None) -> dict[str, Any]:
    """Read the arguments for `ragtrace.configure` from the TOML file at *path*.

    `screen` and `judge` are specifications as for `ragtrace score` (`embedded`, `openai:MODEL`, `decision:MODEL`,
    `module:object`), or `none`; `judge` may be a table of the arguments of `OpenAIJudge` instead, and either of them a
    table of those of `DecisionJudge`, with its `protocol`. `sampling` and `redact` are tables of the arguments of
    `Sampling` and `Redact`, `alerts` is a list of those of `Alert`. `limits`, `telemetry`, `store`, `baseline` and
    `canaries` are tables of the fields of `Limits`, `TelemetryOptions`, `History`, `BaselineLearning` and `Canaries`,
    where they are not paths.

    Args:
        path: the file.
        broker: URL of the fleet's broker for a process that does not judge, empty where only the file may name one.
            With a fleet `judge` is left out, as it is that of the workers: here its module may not be installed. None:
            the process judges.

    Raises:
        SettingsError: the file cannot be read, or has a key or a value that is wrong.
    """
    try:
        with path.open("rb") as file:
            found = tomllib.load(file)
    except (OSError, ValueError) as error:
        raise SettingsError(f"the configuration {path} cannot be read: {error}") from error
    arguments = (*inspect.signature(ragtrace.configure).parameters, _CANARIES)
    known = [name for name in arguments if name not in _OF_A_PROCESS]
    for name in found:
        check_known(name, known, "setting", str(path))
    if broker is not None and (broker or found.get("fleet")):
        found.pop("judge", None)
    values = {name: _value(name, value, path) for name, value in found.items()}
    if _CANARIES in values:  # in Python they are among the alerts
        values["alerts"] = [*values.get("alerts", ()), values.pop(_CANARIES)]
    return values


def _value(name: str, value: Any, path: Path) -> Any:
    if name in ("screen", "judge") and isinstance(value, dict):
        arguments = dict(cast("dict[str, Any]", value))
        is_decision = "protocol" in arguments
        if name == "screen" and not is_decision:
            raise SettingsError(
                f"screen in {path} must be a text such as 'embedded', or a table with the protocol of a decision "
                f"model, got {value!r}"
            )
        for key, make in (("limits", JudgeLimits), ("requests", RequestOptions), ("price", Price)):
            if key in arguments:
                arguments[key] = _made(make, arguments[key], f"{name}.{key} in {path}")
        return _made(DecisionJudge if is_decision else ragtrace.OpenAIJudge, arguments, f"{name} in {path}")
    if name in ("screen", "judge"):
        if not isinstance(value, str):
            raise SettingsError(f"{name} in {path} must be a text such as 'embedded' or 'openai:MODEL', got {value!r}")
        return None if value == _NO_SPEC else judge_from_spec(value)
    if name == "sampling":
        return _made(ragtrace.Sampling, value, f"sampling in {path}")
    if name == "redact":
        return _made(ragtrace.Redact, value, f"redact in {path}")
    if name == "alerts":
        if not isinstance(value, list):
            raise SettingsError(f"alerts in {path} must be tables, written as [[alerts]], got {value!r}")
        return [_made(ragtrace.Alert, each, f"alerts in {path}") for each in cast("list[object]", value)]
    if name in OPTIONS and isinstance(value, dict):
        return _made(OPTIONS[name], cast("dict[str, Any]", value), f"{name} in {path}")
    return OPTIONS[name](value) if name == _CANARIES else value


def _made(make: Callable[..., object], arguments: object, where: str) -> object:
    """Build an object by calling *make* with the keys of the TOML table *arguments*.

    Raises:
        SettingsError: it is no table, or has a wrong key.
    """
    if not isinstance(arguments, Mapping):
        raise SettingsError(f"{where} must be a table, got {arguments!r}")
    table = cast("Mapping[str, Any]", arguments)
    known = [name for name in inspect.signature(make).parameters if name not in _SECRETS | _OF_A_PROCESS]
    for name in table:
        if name in _SECRETS:
            raise SettingsError(f"{name} does not belong into a file ({where}); set OPENAI_API_KEY instead")
        check_known(name, known, "key", where)
    try:
        return make(**table)
    except TypeError as error:
        raise SettingsError(f"{where}: {error}") from error
