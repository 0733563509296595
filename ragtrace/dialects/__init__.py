"""Span attribute conventions: each module adds what a step has recorded as the attributes of one convention."""
