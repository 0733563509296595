"""What Grafana's own library makes of a dashboard: its models are generated from the schema of a release of Grafana.

Reading and writing it again loses every key that the schema does not know; and every value is held against the type
that the schema gives it: numbers, texts, the words of an enumeration. Options and styles of a panel are read by the
model of that panel's type. Not in it: what a plugin does with a value, and the language of a query.
"""

from __future__ import annotations

import enum
import json
import types
import typing
from collections.abc import Iterator
from functools import cache
from typing import Any

from grafana_foundation_sdk.cog import runtime
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.cog.plugins import register_default_plugins
from grafana_foundation_sdk.models.dashboard import Dashboard, Panel

_PLAIN = (str, int, bool, type(None))


def faults(dashboard: dict[str, Any]) -> list[str]:
    """What the schema does not allow in *dashboard*, with where it is."""
    register_default_plugins()
    read = Dashboard.from_json(dashboard)
    written = json.loads(JSONEncoder().encode(read))
    return [*_lost(dashboard, written, "dashboard"), *_inside(read, "dashboard"), *_overrides(dashboard)]


def _lost(ours: Any, theirs: Any, where: str) -> Iterator[str]:
    """Whatever of *ours* is not in *theirs*; they may add what is so by default."""
    if isinstance(ours, dict) and isinstance(theirs, dict):
        for key, value in ours.items():
            if key in theirs:
                yield from _lost(value, theirs[key], f"{where}.{key}")
            else:
                yield f"{where}.{key} is unknown"
    elif isinstance(ours, list) and isinstance(theirs, list) and len(ours) == len(theirs):
        for number, (one, other) in enumerate(zip(ours, theirs, strict=True)):
            yield from _lost(one, other, f"{where}[{number}]")
    elif ours != theirs:
        yield f"{where} is {ours!r}, read as {theirs!r}"


_type_hints = cache(typing.get_type_hints)


def _inside(of: object, where: str) -> Iterator[str]:
    for name, hint in _type_hints(type(of)).items():
        yield from _wrong(getattr(of, name), hint, f"{where}.{name}")
    if isinstance(of, Panel):
        yield from _of_its_type(of, where)


def _of_its_type(panel: Panel, where: str) -> Iterator[str]:
    """What the schema leaves to the panel's type."""
    styles = None if panel.field_config is None else panel.field_config.defaults.custom
    for name, value in (("options", panel.options), ("styles", styles)):
        if isinstance(value, dict):
            yield f"{where}: there is no type {panel.type_val!r} with {name}"
        elif value is not None:
            yield from _inside(value, f"{where}.{name}")


def _wrong(value: Any, hint: Any, where: str) -> Iterator[str]:
    """Why *value* is not of the type *hint*."""
    origin, inner = typing.get_origin(hint), typing.get_args(hint)
    if isinstance(value, dict) and hasattr(hint, "from_json"):  # the library leaves some as they are
        value = hint.from_json(value)
    if origin in (typing.Union, types.UnionType):
        tried = [list(_wrong(value, each, where)) for each in inner]
        yield from min(tried, key=len)
    elif origin is list and isinstance(value, list):
        for number, each in enumerate(value):
            yield from _wrong(each, inner[0], f"{where}[{number}]")
    elif origin is dict and isinstance(value, dict):
        for key, each in value.items():
            yield from _wrong(each, inner[1], f"{where}.{key}")
    elif not _is(value, hint, origin, inner):
        yield f"{where} is {value!r}, not {hint}"
    elif isinstance(hint, type) and hint not in (*_PLAIN, float, object) and not issubclass(hint, enum.Enum):
        yield from _inside(value, where)


def _is(value: Any, hint: Any, origin: Any, inner: tuple[Any, ...]) -> bool:
    if hint in (Any, object):
        return True
    if origin is typing.Literal:
        return value in inner
    if hint is float:
        return type(value) in (int, float)
    if hint in _PLAIN:
        return type(value) is hint or (hint is str and isinstance(value, enum.Enum) and isinstance(value, str))
    if isinstance(hint, type) and issubclass(hint, enum.Enum):
        return value in [each.value for each in hint]
    return isinstance(hint, type) and isinstance(value, hint) and not isinstance(value, runtime.UnknownDataquery)


def _overrides(dashboard: dict[str, Any]) -> Iterator[str]:
    """Styles that a panel has for some of its series go by names, which the schema takes as any text."""
    for number, panel in enumerate(dashboard["panels"]):
        read = runtime.Runtime().panelcfg_config(panel["type"])
        for override in (panel.get("fieldConfig") or {}).get("overrides", ()):
            for style in override["properties"]:
                kind, _, name = style["id"].partition(".")
                if kind != "custom":
                    continue
                styles = None if read is None else read.field_config_from_json_hook
                custom = None if styles is None else styles({name: style["value"]})
                if custom is None or name not in json.loads(JSONEncoder().encode(custom)):
                    yield f"dashboard.panels[{number}] has a style for a series that is unknown: {style['id']}"
                else:
                    yield from _inside(custom, f"dashboard.panels[{number}].{style['id']}")
