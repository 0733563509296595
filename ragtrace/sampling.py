"""Which calls the judge sees, and with what probability."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from ragtrace.errors import SettingsError
from ragtrace.settings import rate

_SALT = b"ragtrace evaluation sampling"
_SUSPICIOUS_BELOW = 0.5


@dataclass(frozen=True, slots=True)
class Sampling:
    """How often a judge looks at a call.

    Args:
        rate: probability for an ordinary call, in [0, 1].
        suspicious_rate: probability for a call whose screen gave a consistency below 0.5; None: the same as `rate`.

    Raises:
        SettingsError: if a rate is outside [0, 1], or the suspicious one below the ordinary one.
    """

    rate: float = 0.05
    suspicious_rate: float | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "rate", rate(self.rate, "rate"))
        if self.suspicious_rate is None:
            return
        object.__setattr__(self, "suspicious_rate", rate(self.suspicious_rate, "suspicious_rate"))
        if self.suspicious_rate < self.rate:
            raise SettingsError(
                f"suspicious_rate must be at least rate, got {self.suspicious_rate!r} and {self.rate!r}; "
                "leave suspicious_rate out to judge all calls alike"
            )

    def probability(self, consistency: float | None) -> float:
        """Inclusion probability of a call with that screen score (None: not screened)."""
        suspicious = consistency is not None and consistency < _SUSPICIOUS_BELOW
        return self.suspicious_rate if suspicious and self.suspicious_rate is not None else self.rate


def included(trace_id: int, probability: float) -> bool:
    """Whether the call of that trace is included: the same answer in every process.

    The hash is salted, so that it is independent of a head sampler that looks at the bits of the trace id.
    """
    digest = hashlib.blake2b(trace_id.to_bytes(16, "big"), digest_size=8, key=_SALT).digest()
    return int.from_bytes(digest, "big") < probability * 2**64
