"""Spans that cost the request thread little, and root spans that are exported when their scores are attached."""
