"""What is known of a head sampler from its description: what need not be asked, and what need not be told."""

from __future__ import annotations

import re
from typing import Any, Final, NamedTuple

from opentelemetry.sdk.trace.sampling import DEFAULT_ON, Sampler

from ragtrace.system.faults import faults

_OFF: Final = "AlwaysOffSampler"
_INHERITS: Final = ",localParentSampled:AlwaysOnSampler,localParentNotSampled:AlwaysOffSampler}"
"""Ends the description of a `ParentBased` sampler that does for a child what was done for its local parent."""
_BLIND: Final = re.compile(
    r"(?:ParentBased|(?:root|(?:remote|local)Parent(?:Not)?Sampled):|AlwaysO(?:n|ff)Sampler|TraceIdRatioBased\{[^{}]*\}|[{},])+"
)
"""Matches the description of the SDK's own samplers and of what is put together of them: they look at ids alone."""
_RATIO: Final = re.compile(r"TraceIdRatioBased\{[^{}]*\}")
"""Matches the description of the sampler whose decision rests on the trace's id alone: one for all spans of a trace."""


class Known(NamedTuple):
    """What a sampler is sure to do; of one that nothing is known of, nothing is."""

    keeps_roots: bool
    """It is the SDK's default: everything is kept unless a parent was not."""
    drops_roots: bool
    inherits: bool
    """It does for a child what was done for its local parent."""
    drops_children: bool
    """It drops every span whose local parent it has dropped."""
    blind: bool
    """It looks at neither name nor attributes."""


def of_sampler(sampler: object) -> Known:
    """What is known of *sampler*: nothing unless all of it is the SDK's, as whoever inherits may inherit the words."""
    if not _is_the_sdks(sampler):
        return Known(False, False, False, False, False)
    default: Any = DEFAULT_ON
    describe: Any = getattr(sampler, "get_description", str)
    description = str(describe())
    inherits = description.startswith("ParentBased{") and description.endswith(_INHERITS)
    off = description == _OFF
    return Known(
        keeps_roots=description == default.get_description(),
        drops_roots=off or (inherits and description.startswith(f"ParentBased{{root:{_OFF},")),
        inherits=inherits,
        drops_children=inherits or off or _RATIO.fullmatch(description) is not None,
        blind=_BLIND.fullmatch(description) is not None,
    )


def drops_children(provider: object) -> bool:
    """Whether *provider* is known to drop every span whose local parent it has dropped."""
    try:
        return of_sampler(getattr(provider, "sampler", None)).drops_children
    except Exception as error:  # of a user's own sampler
        faults.record("description of a sampler", error)
        return False


def _is_the_sdks(sampler: object) -> bool:
    """Whether *sampler*, and every one that it asks, is one of the SDK's."""
    if type(sampler).__module__ != Sampler.__module__:
        return False
    return all(_is_the_sdks(value) for value in vars(sampler).values() if isinstance(value, Sampler))
