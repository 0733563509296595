"""Metrics: arithmetic over a judge's labels."""

from ragtrace.metrics.formula import Formula
from ragtrace.metrics.registry import Registry, registry

__all__ = ["Formula", "Registry", "registry"]
