"""Span attribute conventions: each module writes a step, one run of a decorated function, in one of them."""
