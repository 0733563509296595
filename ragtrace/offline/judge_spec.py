"""Judge specifications on a command line: `embedded`, `openai:MODEL`, `decision:MODEL`, `module:object`, and others."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, cast
from urllib.parse import urlsplit

from ragtrace.core.errors import SettingsError
from ragtrace.core.types import Judge
from ragtrace.evaluation.metric_selection import embedded_judge

if TYPE_CHECKING:
    from ragtrace.judges.decision.wire_forms import Protocol

_FORMS: Final = (
    "write embedded, embedded:extractive, openai:MODEL, decision:MODEL, decision-logprobs:MODEL, or module:object"
)
_PROTOCOLS: Final[Mapping[str, Protocol]] = {
    "decision": "openai", "decision-systemone": "systemone", "decision-logprobs": "logprobs"
}  # fmt: skip
"""Wire form of a decision model by the kind of the specification."""
_MODES: Final[Mapping[str, str]] = {"openai": "", "openai-careful": "careful", "openai-sentences": "sentences"}
"""Mode of a chat model by the kind of the specification; "": the one that is given, or the judge's default."""
_LOCAL: Final = frozenset({"localhost", "127.0.0.1", "::1"})
LOCAL_TIMEOUT_S: Final = 900.0
"""Seconds that a server on this machine has for a call, and for each of its requests: a model without a graphics card
takes minutes where the machine has other work, too."""


def is_local(base_url: str | None) -> bool:
    """Return whether *base_url* is of a server on this machine, which computes for one call at a time, and slowly."""
    return base_url is not None and urlsplit(base_url).hostname in _LOCAL


def judge_from_spec(spec: str, *, mode: str | None = None, base_url: str | None = None) -> Judge:
    """Return the judge that a specification from the command line, such as `openai:MODEL`, describes.

    Args:
        spec: `embedded`; `embedded:extractive`; `openai:MODEL`, behind *base_url* or the variables of the openai
            package, or `openai-careful:MODEL` and `openai-sentences:MODEL`, the same in that mode; `decision:MODEL`, a
            decision model behind the same, in OpenAI's form, or `decision-systemone:MODEL` and
            `decision-logprobs:MODEL` in the others; `module:object`, where the object is a judge or a function (a
            class) that makes one.
        mode: mode of an `openai:` judge.
        base_url: server of an `openai:` or `decision:` judge. One on this machine has more time for a request.

    Raises:
        SettingsError: there is no such judge; the message says what to write.
    """
    kind, _, rest = spec.partition(":")
    if kind in _MODES and rest:
        return _openai(rest, _MODES[kind] or mode, base_url)
    if mode:
        raise SettingsError(f"a mode is for judges openai:MODEL, got the judge {spec!r}; leave it out")
    if kind in _PROTOCOLS and rest:
        from ragtrace.judges import DecisionJudge

        given: dict[str, Any] = {"timeout": LOCAL_TIMEOUT_S} if is_local(base_url) else {}
        return DecisionJudge(rest, protocol=_PROTOCOLS[kind], base_url=base_url, **given)
    if base_url:
        raise SettingsError(
            f"a base URL is for judges openai:MODEL and decision:MODEL, got the judge {spec!r}; leave it out"
        )
    if kind == "embedded" and rest in ("", "extractive"):
        return embedded_judge(extractive=bool(rest))
    if not rest:
        raise SettingsError(f"no judge {spec!r}; {_FORMS}")
    return _import_judge(kind, rest)


def _openai(model: str, mode: str | None, base_url: str | None) -> Judge:
    try:
        make = cast("Callable[..., Judge]", import_module("ragtrace.judges.llm.openai").OpenAIJudge)
        from ragtrace.judges.llm.llm_judge import RequestOptions
    except ImportError as error:
        raise SettingsError(
            f"the judge openai:{model} cannot be loaded ({error}); install the openai package"
        ) from None
    requests = RequestOptions(timeout=LOCAL_TIMEOUT_S) if is_local(base_url) else None
    given = {"mode": mode, "base_url": base_url, "requests": requests}
    return make(model, **{name: value for name, value in given.items() if value is not None})


def _import_judge(module: str, path: str) -> Judge:
    found: object
    try:
        found = import_module(module)
        for part in path.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError, ValueError) as error:
        raise SettingsError(f"no judge at {module}:{path} ({error}); {_FORMS}") from None
    if callable(found) and (inspect.isclass(found) or not isinstance(found, Judge)):
        found = found()
    if not isinstance(found, Judge):
        raise SettingsError(
            f"{module}:{path} is no judge, got {type(found).__name__}; it needs id, version, type, offers() and judge()"
        )
    return found
