"""Span attribute conventions: each module writes a step (a call of a decorated function) in one of them."""
