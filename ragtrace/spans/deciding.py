"""What is known of a head sampler from its description: what need not be asked, and what need not be told."""

from __future__ import annotations

import re
from typing import Any, Final, NamedTuple

from opentelemetry.sdk.trace.sampling import DEFAULT_ON

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
    """What is known of *sampler*."""
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
