"""Attribute conventions: each module writes a step as span attributes of one convention."""
