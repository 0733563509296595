"""Spans, scores and their export over OpenTelemetry."""
