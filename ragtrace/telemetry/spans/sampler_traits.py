"""What the description of a head sampler reveals about its decisions, so that it need not be asked for every span."""

from __future__ import annotations

import re
from typing import Any, Final, NamedTuple

from opentelemetry.sdk.trace.sampling import DEFAULT_ON, Sampler

from ragtrace.system.faults import faults

_OFF: Final = "AlwaysOffSampler"
_INHERITS: Final = ",localParentSampled:AlwaysOnSampler,localParentNotSampled:AlwaysOffSampler}"
"""End of the description of a `ParentBased` sampler that decides for a child as it did for its local parent."""
_IDS_ONLY: Final = re.compile(
    r"(?:ParentBased|(?:root|(?:remote|local)Parent(?:Not)?Sampled):|AlwaysO(?:n|ff)Sampler|TraceIdRatioBased\{[^{}]*\}|[{},])+"
)
"""Matches the description of the SDK's own samplers and their combinations, all of which look at ids only."""
_RATIO: Final = re.compile(r"TraceIdRatioBased\{[^{}]*\}")
"""Matches the description of the sampler that makes one decision for all spans of a trace, by the trace id."""


class SamplerTraits(NamedTuple):
    """Decisions that a head sampler is known to make; all are False for a sampler that is not the SDK's."""

    keeps_roots: bool
    """It is the SDK's default: it keeps every span whose parent was not dropped."""
    drops_roots: bool
    inherits: bool
    """It decides for a child as it did for its local parent."""
    drops_children: bool
    """It drops every span whose local parent it has dropped."""
    ids_only: bool
    """It looks at neither name nor attributes."""


def traits_of(sampler: object) -> SamplerTraits:
    """Return the traits of *sampler*; none if any part of it is not the SDK's, as a subclass inherits descriptions."""
    if not _is_the_sdks(sampler):
        return SamplerTraits(False, False, False, False, False)
    default: Any = DEFAULT_ON
    describe: Any = getattr(sampler, "get_description", str)
    description = str(describe())
    inherits = description.startswith("ParentBased{") and description.endswith(_INHERITS)
    off = description == _OFF
    return SamplerTraits(
        keeps_roots=description == default.get_description(),
        drops_roots=off or (inherits and description.startswith(f"ParentBased{{root:{_OFF},")),
        inherits=inherits,
        drops_children=inherits or off or _RATIO.fullmatch(description) is not None,
        ids_only=_IDS_ONLY.fullmatch(description) is not None,
    )


def drops_children(provider: object) -> bool:
    """Return whether the sampler of *provider* is known to drop every span whose local parent it has dropped."""
    try:
        return traits_of(getattr(provider, "sampler", None)).drops_children
    except Exception as error:  # of a user's own sampler
        faults.record("description of a sampler", error)
        return False


def _is_the_sdks(sampler: object) -> bool:
    """Return whether *sampler*, and every sampler that it delegates to, belongs to the SDK."""
    if type(sampler).__module__ != Sampler.__module__:
        return False
    return all(_is_the_sdks(value) for value in vars(sampler).values() if isinstance(value, Sampler))
