"""Metrics at little cost, where they go through a reader of our own."""

from ragtrace.meters.book import Book, Labels
from ragtrace.meters.light import Instrumented, LightMeter

__all__ = ["Book", "Instrumented", "Labels", "LightMeter"]
