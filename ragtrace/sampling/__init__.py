"""Which calls the judge sees, and with what probability."""

from ragtrace.sampling.policy import Sampling, heeded, warn_of_unheeded
from ragtrace.sampling.sampler import Decision, Sampler, included

__all__ = ["Decision", "Sampler", "Sampling", "heeded", "included", "warn_of_unheeded"]
